#include "per_item.hpp"
#include <deepum/core/signature.hpp>

#include <benchmark/benchmark.h>

#include <cstdint>

using namespace deepum;
using namespace deepum_bench;

namespace {

launch_signature sign(std::int64_t operands, std::int64_t scalars, float step) {
  signature_builder builder("void fused_adamw_kernel<float, 4>");
  for (std::int64_t i = 0; i < operands; ++i) {
    builder.operand(0x7f0000000000U + static_cast<std::uint64_t>(i) * 0x200000U, 0x190000U, deepum::access::update);
  }
  for (std::int64_t i = 0; i < scalars; ++i) {
    builder.scalar(&step, sizeof step);
  }
  return builder.finish();
}

void sign_launch(benchmark::State& state) {
  const std::int64_t operands = state.range(0);
  const std::int64_t scalars = state.range(1);
  const launch_signature one = sign(operands, scalars, 1);
  const launch_signature two = sign(operands, scalars, 2);
  if (!check(state, (one.exact != two.exact) == (scalars != 0) && one.shape == two.shape, "a signature is wrong")) {
    return;
  }
  float step = 0;
  for (auto _ : state) {
    step += 1;
    benchmark::DoNotOptimize(sign(operands, scalars, step));
  }
  report_per(state, "launch", 1);
}
BENCHMARK(sign_launch)->ArgNames({"operands", "scalars"})->Args({3, 1})->Args({4, 6})->Args({16, 8})->Args({64, 0});

}  // namespace
