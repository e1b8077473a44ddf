// What deepum-bench-slices measures, on a CUDA runtime without a GPU.

#include "cuda/fake_cuda.hpp"
#include "gpu/programs/slices_runs.hpp"
#include "gpu_bench/host_kernels.hpp"
#include <deepum/cuda.hpp>
#include <deepum/units.hpp>

#include <doctest/doctest.h>

#include <string>
#include <utility>
#include <vector>

namespace slices {

using namespace deepum::gpu_bench;
using namespace deepum::literals;

bench_settings settings_for(std::vector<std::string> systems) {
  bench_settings s;
  s.systems = std::move(systems);
  s.feed = deepum::cuda::fault_source::none;
  s.choices.chunk = 2_MiB;
  return s;
}

TEST_CASE_TEMPLATE("AdamW in pieces is right under all systems, and one that fits the budget is one launch", memory,
                   deepum::cuda::managed_memory, deepum::cuda::paged_memory) {
  deepum_test::register_host_kernels();
  slices_runs<memory> runs(settings_for({"um", "auto"}), {.size = 48_MiB, .budget = 24_MiB, .steps = 2});
  const std::vector<slices_result> results = runs.run();
  REQUIRE(results.size() == 2);
  for (const slices_result& r : results) {
    CHECK(r.skipped == "");
    CHECK(r.pieces > 1);
    CHECK(r.step_ns.size() == 2);
    CHECK(r.first.in != 0);
  }
  CHECK(runs.least_ns() > 0);
  CHECK(runs.least_ns() < static_cast<double>(runs.link_ns()));
  CHECK(runs.table_of(results).find("auto") != std::string::npos);
  CHECK(runs.json_of(results)["runs"].size() == 2);
  slices_runs<memory> fitting(settings_for({"auto"}), {.size = 8_MiB, .budget = 32_MiB, .steps = 2});
  CHECK(fitting.run().front().pieces == 1);
  CHECK(deepum_test::fake_cuda::reset() == "");
}

}  // namespace slices
