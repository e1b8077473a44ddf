// The layered programs of the GPU benchmark, on a CUDA runtime without a GPU: what each memory kind has to pass.
#pragma once

#include "cuda/fake_cuda.hpp"
#include "gpu/library/gpt_layers.hpp"
#include "gpu/library/hand_memory.hpp"
#include "gpu/library/infer_layers.hpp"
#include "gpu/library/layered_report.hpp"
#include "gpu/library/layered_step.hpp"
#include "gpu/library/layered_systems.hpp"
#include "gpu/library/memory_kinds.hpp"
#include "gpu/programs/churn_runs.hpp"
#include "gpu/programs/gpt_step_runs.hpp"
#include "gpu/programs/infer_runs.hpp"
#include "gpu/programs/largest_batch_runs.hpp"
#include "gpu_bench/host_kernels.hpp"
#include "support/test_scale.hpp"
#include <deepum/error.hpp>
#include <deepum/units.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace layered_checks {

using namespace deepum::gpu_bench;
using namespace deepum::literals;
using namespace deepum_test;
using deepum::access;
using deepum::bytes;
using deepum::cuda::managed_memory;
using train_gpt::bf16;

struct without_gpu {
  without_gpu() { register_host_kernels(); }
  ~without_gpu() { CHECK(fake_cuda::reset() == ""); }
};

template <class Memory>
bench_settings settings_for(std::vector<std::string> systems) {
  bench_settings s;
  if (!std::is_same_v<Memory, managed_memory>) s.choices.chunk = 2_MiB;
  s.systems = std::move(systems);
  s.steps = 2;
  s.warm_up = 2;
  s.audit = 1;
  s.seed = 3;
  s.feed = deepum::cuda::fault_source::none;
  s.managed = {.in = 40e9, .out = 12e9, .in_both = 40e9, .out_both = 10e9};
  s.pinned = {.in = 55e9, .out = 55e9, .in_both = 50e9, .out_both = 50e9};
  return s;
}

// All of them where there is time (DEEPUM_TEST_SCALE).
inline std::vector<std::string> library_and_by_hand() {
  if (scaled(10) > 10) return {"resident", "um", "lru", "deepum", "auto", "oracle", "by_hand"};
  return {"resident", "lru", "auto", "oracle", "by_hand"};
}

template <class T>
gpt_shape shape_for() {
  return {.layers = 2, .width = sizeof(T) == 4 ? 256 : 384, .context = 32, .batch = 4, .element = sizeof(T)};
}

// Bytes that came in all steps, those in which a policy learns among them.
inline std::uint64_t bytes_in(const system_run& run) {
  std::uint64_t in = 0;
  for (const auto* steps : {&run.warm_up, &run.steps}) {
    for (const measured_step& m : *steps)
      in += m.did.in;
  }
  return in;
}
// The oracle was told every step, none came otherwise, and it does not move more than what has to learn them. Threads
// take turns as they please here, which makes a difference of some blocks; oracle.cpp compares where nothing is left to
// chance.
// Where calls are drawn by lot nothing recurs within a run: its plan for all of them, again and again, may begin with
// more.
inline void check_oracle(const program_report& r, std::size_t told, bool recurs = true) {
  for (const system_run& run : r.runs) {
    if (!run.name.starts_with("oracle")) continue;
    CAPTURE(run.notes);
    CHECK(run.notes.find(std::to_string(told) + " launches were told beforehand") != std::string::npos);
    CHECK(run.notes.find("otherwise") == std::string::npos);
    for (const system_run& other : r.runs) {
      if (other.name != "auto" || other.budget != run.budget) continue;
      CAPTURE(other.budget);
      CHECK(bytes_in(run) > 0);
      if (recurs) CHECK(4 * bytes_in(run) <= 5 * bytes_in(other));
      CHECK(percent_of_oracle(r, other) > 0);
    }
  }
}

template <class Memory, class T>
void check_gpt_step(bool at_end, bool forgets) {
  gpt_shape shape = shape_for<T>();
  shape.update_at_end = at_end;
  // Tensors are smaller than blocks here, so what they have is less than what they take in blocks.
  const unit_program tensors = in_tensors(step_of(shape));
  const std::vector<bytes> budgets{whole_blocks(static_cast<double>(used_bytes(tensors)) * 0.6),
                                   whole_blocks(static_cast<double>(used_bytes(tensors)) * 0.4)};
  const program_report r =
      gpt_step_runs<Memory, T>(settings_for<Memory>(library_and_by_hand()), shape, budgets, forgets, {std::nullopt})
          .run();
  REQUIRE(r.runs.size() == 1 + (library_and_by_hand().size() - 1) * budgets.size());
  REQUIRE(r.bounds.size() == 2);
  CHECK(r.bounds[0].least_in > 0);
  CHECK(r.bounds[0].least_in < r.bounds[1].least_in);
  CHECK(r.bounds[0].least_out < r.bounds[1].least_out);
  CHECK(r.bounds[1].least_out > 0);
  for (const system_run& run : r.runs) {
    CAPTURE(run.name);
    CHECK(run.skipped == "");
    REQUIRE(run.steps.size() == 2);  // sums have been compared, or there would be no report
    REQUIRE(run.taken);
    if (run.name == "by_hand") {
      // What had to leave comes back, for somebody reads it. A budget's worth may be put off.
      const std::uint64_t least = least_bytes_out(tensors, run.budget);
      std::uint64_t in = run.budget;
      std::uint64_t out = run.budget;
      for (const auto* steps : {&run.warm_up, &run.steps}) {
        for (const measured_step& m : *steps) {
          in += m.did.in;
          out += m.did.out;
        }
      }
      CHECK(least > 0);
      CHECK(in >= 4 * least);
      CHECK(out >= 4 * least);
      CHECK(out < 4 * used_bytes(tensors) + run.budget);  // each content leaves once at most, and some never do
      CHECK(run.taken->device >= run.budget);
      CHECK(run.taken->device <= run.budget + (8U << 20));
    }
  }
  CHECK(r.runs[0].taken->device >= r.footprint);
  check_oracle(r, step_of(shape, summed::everything).launches.size());
  MESSAGE(layered_table_of(r));
}

template <class Memory>
void check_infer() {
  for (const std::int64_t models : {1, 2}) {
    const infer_shape shape{.models = models, .layers = 2, .width = 1024, .most_tokens = 16, .element = sizeof(bf16)};
    const bytes footprint = footprint_of(shape);
    const std::vector<program_report> all =
        infer_runs<Memory, bf16>(settings_for<Memory>(library_and_by_hand()), shape,
                                 {whole_blocks(static_cast<double>(footprint.count) * 0.7),
                                  whole_blocks(static_cast<double>(footprint.count) * 0.5)},
                                 {1, 16}, 6)
            .run();
    REQUIRE(all.size() == 2);
    // Calls of one model recur; which of two is next is drawn by lot.
    const std::size_t told = call_of(shape, 0, 1).launches.size() * (models == 1 ? 1 : 2 + 6 + 1);
    for (const program_report& r : all) {
      REQUIRE(r.runs.size() == 1 + (library_and_by_hand().size() - 1) * 2);
      check_oracle(r, told, models == 1);
      for (const system_run& run : r.runs) {
        CAPTURE(run.name);
        CHECK(run.skipped == "");
        REQUIRE(run.steps.size() == 6);
        if (run.name == "by_hand") {
          std::uint64_t in = 0;
          std::uint64_t out = 0;
          for (const measured_step& m : run.steps) {
            in += m.did.in;
            out += m.did.out;
          }
          CHECK(in >= bound_of(r, run.budget)->least_in * 6);
          CHECK(out * 10 < in);
        }
      }
      MESSAGE(layered_table_of(r));
    }
  }
}

template <class Memory>
void check_churn(bytes chunk) {
  churn_runs<Memory> churn(settings_for<Memory>({"lru", "auto"}),
                           {.size = 48_MiB, .budget = 24_MiB, .group = 8_MiB, .sweeps = 2}, {chunk}, 100);
  const std::vector<churn_result> all = churn.run();
  REQUIRE(all.size() == 3);
  CHECK(all[0].name == "pinned");
  for (const churn_result& r : all) {
    CAPTURE(r.name);
    CHECK(r.skipped == "");
    CHECK(r.in > 0);
    CHECK(r.out > 0);
    CHECK(r.in_alone > 0);
    CHECK(r.slowdown > 0);
  }
  CHECK(all[1].did.in >= 2 * least_bytes_of_sweep({.size = 48_MiB, .budget = 24_MiB, .group = 8_MiB}));
  MESSAGE(churn.table_of(all));
  CHECK(churn.json_of(all)["runs"].size() == 3);
}

}  // namespace layered_checks
