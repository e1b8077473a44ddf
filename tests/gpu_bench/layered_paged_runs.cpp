// The layered programs of the GPU benchmark on paged memory.

#include "gpu/library/memory_kinds.hpp"
#include "gpu_bench/layered_checks.hpp"
#include <deepum/core/plan.hpp>
#include <deepum/units.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace layered_paged_runs {

using namespace layered_checks;
using deepum::cuda::paged_memory;

TEST_CASE("a training step of layers computes the same on paged memory under all systems") {
  const without_gpu setting;
  check_gpt_step<paged_memory, bf16>(false, true);
}

TEST_CASE("nothing is written back early where a run chooses so, under an oracle too, and in larger chunks") {
  const without_gpu setting;
  bench_settings settings = settings_for<paged_memory>({"resident", "auto", "oracle"});
  settings.choices.chunk = 4_MiB;
  const gpt_shape shape = shape_for<bf16>();
  const bytes budget = whole_blocks(static_cast<double>(footprint_of(shape).count) * 0.7);
  const program_report r = gpt_step_runs<paged_memory, bf16>(settings, shape, {budget}, true, {true, false}).run();
  REQUIRE(r.runs.size() == 5);
  const auto written_back = [](const system_run& run) {
    std::uint64_t n = 0;
    for (const auto* steps : {&run.warm_up, &run.steps}) {
      for (const measured_step& m : *steps)
        n += m.did.out_for[static_cast<std::size_t>(deepum::reason::write_back)];
    }
    return n;
  };
  for (const std::size_t first : {1U, 3U}) {  // auto, oracle
    CAPTURE(r.runs[first].name);
    CHECK(r.runs[first].skipped == "");
    CHECK(r.runs[first + 1].skipped == "");
    CHECK(written_back(r.runs[first + 1]) == 0);
  }
  check_oracle(r, step_of(shape, summed::everything).launches.size());
  CHECK(r.runs[3].name == "oracle, write-back early");
  MESSAGE(layered_table_of(r));
}

TEST_CASE("calls of one and of two models give the same on paged memory under all systems") {
  const without_gpu setting;
  check_infer<paged_memory>();
}

TEST_CASE("a sweep through a small budget leaves what it should on paged memory, with chunks of any size") {
  const without_gpu setting;
  check_churn<paged_memory>(2_MiB);
  check_churn<paged_memory>(4_MiB);
}

TEST_CASE("the largest batch on paged memory follows from host memory, which it holds to") {
  const without_gpu setting;
  gpt_shape shape = shape_for<bf16>();
  shape.batch = 1;
  const auto footprint = [&](std::int64_t batch) {
    gpt_shape s = shape;
    s.batch = batch;
    return footprint_of(s);
  };
  const bytes budget{footprint(1).count * 7 / 10};
  const bytes host = footprint(6) - budget;
  largest_batch_runs<paged_memory, bf16> runs(settings_for<paged_memory>({"lru", "auto", "by_hand"}), shape, {budget},
                                              host, {}, 8);
  const std::vector<batch_result> all = runs.run();
  REQUIRE(all.size() == 3);
  for (const batch_result& r : {all[0], all[1]}) {
    CHECK(r.found.batch >= 1);
    CHECK(footprint(r.found.batch) <= host + budget);
  }
  CHECK(all[2].found.batch == 0);  // all of its contents are on the host
  MESSAGE(runs.table_of(all));
}

}  // namespace layered_paged_runs
