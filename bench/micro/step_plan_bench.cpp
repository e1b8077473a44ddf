// How long a whole step takes to plan. Arguments that are no flags of Google Benchmark are workloads to plan as well:
// step_plan_bench [--benchmark_...] [WORKLOAD.jsonl.gz]...

#include "replay/step_of.hpp"
#include "replay/workload.hpp"
#include <deepum/planning/step_planner.hpp>

#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <string>
#include <utility>
#include <vector>

namespace {

using namespace deepum;
using deepum::access;  // not the one of POSIX

constexpr nanoseconds block_copy{41'283};  // 2 MiB at 50.8 GB/s

struct measured_step {
  std::string name{};
  step_description step{};
  std::uint64_t block_uses = 0;
  std::uint32_t blocks = 0;
};

// A transformer's training step with as many launches, segments, gaps and blocks as GPT-2 XL has at batch 4.
measured_step synthetic_step() {
  constexpr std::uint32_t layers = 48;
  constexpr std::uint32_t tensors = 12;  // of a layer; each has a weight, a gradient and two moments
  constexpr std::uint32_t tensor_blocks = 10;
  constexpr std::uint32_t activations = 32;  // of a layer, one for each of its launches
  constexpr std::uint32_t activation_blocks = 16;
  constexpr std::uint32_t weights = layers * tensors * tensor_blocks;
  const auto weight = [&](std::uint32_t layer, std::uint32_t i, std::uint32_t copy) {
    return block_range{block_id{copy * weights + (layer * tensors + i) * tensor_blocks}, tensor_blocks};
  };
  const auto activation = [&](std::uint32_t layer, std::uint32_t i) {
    return block_range{block_id{4 * weights + (layer * activations + i) * activation_blocks}, activation_blocks};
  };
  measured_step m{.name = "synthetic"};
  step_description& s = m.step;
  for (std::uint32_t l = 0; l != layers; ++l) {
    for (std::uint32_t i = 0; i != activations; ++i) {
      s.add_launch(nanoseconds{70'000});
      s.add_use(weight(l, i % tensors, 0), access::read);
      if (l + i != 0) {
        s.add_use(i != 0 ? activation(l, i - 1) : activation(l - 1, activations - 1), access::read);
      }
      s.add_use(activation(l, i), access::overwrite);
    }
  }
  for (std::uint32_t l = layers; l-- != 0;) {
    for (std::uint32_t i = activations; i-- != 0;) {
      s.add_launch(nanoseconds{70'000});
      s.add_use(weight(l, i % tensors, 0), access::read);
      s.add_use(activation(l, i), access::read);
      s.add_launch(nanoseconds{70'000});
      s.add_use(activation(l, i), access::read);
      s.add_use(weight(l, i % tensors, 1), access::update);
      s.add_last_use(activation(l, i));
    }
  }
  for (std::uint32_t l = 0; l != layers; ++l) {
    for (std::uint32_t i = 0; i != tensors; ++i) {
      for (std::uint32_t part = 0; part != 6; ++part) {  // unfused, as PyTorch's AdamW launches it
        s.add_launch(nanoseconds{20'000});
        s.add_use(weight(l, i, 1), access::read);
        s.add_use(weight(l, i, part % 2 + 2), access::update);
        s.add_use(weight(l, i, 0), access::update);
      }
    }
  }
  return m;
}

void count_blocks(measured_step& m) {
  const step_segments cut(m.step);
  for (const step_segment& s : cut.segments()) {
    m.blocks += s.blocks.count;
    m.block_uses += std::uint64_t{s.blocks.count} * s.gap_count;
  }
}

// What is being timed must be a plan: within the budget, and not an idle one.
bool is_plan(const step_segments& cut, const step_plan& plan, std::uint32_t budget) {
  for (std::uint32_t k = 0; k != cut.launches(); ++k) {
    if (plan.occupied[k] > std::max(budget, cut.need(k))) {
      return false;
    }
  }
  return !plan.idle();
}

void describe(benchmark::State& state, const measured_step& m, const step_segments& cut) {
  state.counters["launches"] = m.step.size();
  state.counters["segments"] = static_cast<double>(cut.segments().size());
  state.counters["gaps"] = static_cast<double>(cut.gaps().size());
  state.counters["block_uses"] = static_cast<double>(m.block_uses);
  // 1 us a launch and 20 ns a block is what planning may cost.
  state.counters["allowed_ms"] = 1e-3 * m.step.size() + 20e-6 * static_cast<double>(m.block_uses);
}

void cut_into_segments(benchmark::State& state, const measured_step& m) {
  for ([[maybe_unused]] auto _ : state) {
    benchmark::DoNotOptimize(step_segments(m.step));
  }
  describe(state, m, step_segments(m.step));
}

// With room for a quarter of the blocks, so that there is a lot to decide.
void plan_whole_step(benchmark::State& state, const measured_step& m, bool copies_ahead) {
  const step_segments cut(m.step);
  const step_limits limits{
      .budget = m.blocks / 4, .in_per_block = block_copy, .out_per_block = block_copy, .copies_ahead = copies_ahead};
  if (!is_plan(cut, plan_step(cut, limits), limits.budget)) {
    state.SkipWithError("the plan is idle or over budget");
    return;
  }
  for ([[maybe_unused]] auto _ : state) {
    benchmark::DoNotOptimize(plan_step(cut, limits));
  }
  describe(state, m, cut);
}

}  // namespace

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  std::vector<measured_step> steps;
  steps.push_back(synthetic_step());
  for (int i = 1; i < argc; ++i) {
    try {
      const replay::workload w = replay::read_workload(argv[i]);
      steps.push_back({.name = w.name, .step = step_of(w)});
    } catch (const std::exception& e) {
      std::fprintf(stderr, "step_plan_bench: %s\n", e.what());
      return 1;
    }
  }
  for (measured_step& m : steps) {
    count_blocks(m);
    const measured_step& step = m;
    benchmark::RegisterBenchmark(("segments/" + m.name).c_str(), cut_into_segments, step)
        ->Unit(benchmark::kMillisecond);
    benchmark::RegisterBenchmark(("plan/" + m.name).c_str(), plan_whole_step, step, false)
        ->Unit(benchmark::kMillisecond);
    benchmark::RegisterBenchmark(("plan_with_copies_ahead/" + m.name).c_str(), plan_whole_step, step, true)
        ->Unit(benchmark::kMillisecond);
  }
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
}
