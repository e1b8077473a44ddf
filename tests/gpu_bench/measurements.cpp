// The GPU benchmark's memory systems and programs, on a CUDA runtime without a GPU.

#include "cuda/fake_cuda.hpp"
#include "gpu/library/bench_system.hpp"
#include "gpu/library/hand_memory.hpp"
#include "gpu/library/kernels.hpp"
#include "gpu/library/measure_links.hpp"
#include "gpu/opponents/double_managed.hpp"
#include "gpu/opponents/double_pinned.hpp"
#include "gpu/programs/feed_runs.hpp"
#include "gpu/programs/fits_runs.hpp"
#include "gpu/programs/gather_runs.hpp"
#include "gpu/programs/model_runs.hpp"
#include "gpu/programs/policy_checks.hpp"
#include "gpu_bench/host_kernels.hpp"
#include <deepum/planning/step_segments.hpp>
#include <deepum/units.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace measurements {

using namespace deepum::gpu_bench;
using namespace deepum::literals;
using namespace deepum_test;
using deepum::bytes;
using word = std::uint32_t;

constexpr word n = (4U << 20U) / sizeof(word);
constexpr std::size_t count = 10;

// A ring of buffers: fills some, mixes others into their neighbours.
struct ring {
  std::vector<word*> x{};

  template <class Arena>
  explicit ring(Arena& arena) {
    for (std::size_t i = 0; i < count; ++i)
      x.push_back(arena.template allocate<word>(n));
  }
  // On memory that is in another place at each launch, addresses are asked for first.
  void step(hand_stream& s, word number) const {
    const auto& k = deepum_gpu_bench_kernels::all();
    const auto at = [&](word* p) { return static_cast<word*>(s.address(p)); };
    for (std::size_t i = 0; i < count; ++i) {
      word* to = x[i];
      const word* from = x[(i + 1) % count];
      s.prepare();
      if (i % 3 == 0) {
        s.launch("fill", 1, 1, 0, k.fill, deepum::overwrites(at(to), n), n, number + 7);
      } else {
        s.launch("mix", 1, 1, 0, k.mix, at(to), n, deepum::reads(at(const_cast<word*>(from)), n), n, number);
      }
    }
    s.prepare();
    s.memset(x[4], static_cast<int>(number % 100), bytes{n * sizeof(word)});
  }
  [[nodiscard]] std::uint64_t sum(hand_stream& s) const {
    std::vector<word> copy(n);
    std::uint64_t total = 0;
    s.synchronize();
    for (std::size_t i = 1; i < count; ++i) {  // what the first one holds is filled anew before anybody reads it
      s.memcpy(copy.data(), x[i], bytes{n * sizeof(word)});
      s.synchronize();
      for (const word w : copy)
        total = deepum_test::folded(total, w);
    }
    return total;
  }
};

struct recorded {
  std::uint64_t sum = 0;
  step_program program{};
};
// What the steps compute on plain memory.
recorded on_plain_memory(word steps) {
  recorded r;
  const memory_pool pool(memory_pool::kind::device, bytes{count * n * sizeof(word)});
  hand_arena arena(pool);
  hand_stream stream(arena);
  const ring program(arena);
  for (const word* p : program.x)
    stream.memset(const_cast<word*>(p), 1, bytes{n * sizeof(word)});
  step_recorder recorder(arena);
  for (word i = 0; i < steps; ++i) {
    // `prepare` of a recorder would write down a launch without a name.
    stream.set_hook(nullptr);
    program.step(stream, i);
  }
  r.sum = program.sum(stream);
  struct without_prepare final : launch_hook {
    explicit without_prepare(step_recorder& to) : to_(to) {}
    void before(std::string_view name, std::span<const deepum::operand> operands) override {
      if (!name.empty()) to_.before(name, operands);
    }
    step_recorder& to_;
  } hook(recorder);
  stream.set_hook(&hook);
  program.step(stream, steps);
  stream.synchronize();
  stream.set_hook(nullptr);
  r.program = recorder.take();
  return r;
}

// Blocks on the device whose contents count: those that are discarded give their room to whoever needs it.
std::uint64_t live_blocks(const memory_pool& pool) {
  std::uint64_t live = 0;
  for (std::uint64_t at = 0; at < pool.size().count; at += deepum::block_size.count) {
    const fake_cuda::block b = fake_cuda::block_at(pool.base() + at);
    live += b.on_device && !b.discarded ? 1 : 0;
  }
  return live;
}

struct without_gpu {
  without_gpu() { register_host_kernels(); }
  ~without_gpu() { CHECK(fake_cuda::reset() == ""); }
};

TEST_CASE("double buffering on managed memory computes the same, without a fault and inside its budget") {
  const without_gpu setting;
  constexpr word steps = 5;
  const recorded expected = on_plain_memory(steps);
  REQUIRE(expected.program.launches.size() == count + 1);
  for (const std::uint64_t seed : {0U, 1U, 2U, 3U}) {
    CAPTURE(seed);
    fake_cuda::set_delays(seed, std::chrono::microseconds(seed == 0 ? 0 : 500));
    const bytes budget = std::vector<bytes>{16_MiB, 20_MiB, 26_MiB, 40_MiB}[seed];
    const memory_pool pool(memory_pool::kind::managed, expected.program.capacity);
    hand_arena arena(pool);
    hand_stream stream(arena);
    const ring program(arena);
    for (word* p : program.x)
      stream.memset(p, 1, bytes{n * sizeof(word)});
    stream.synchronize();
    {
      double_managed system(0, pool.base(), expected.program, budget, 2, stream.native());
      struct on_launch final : launch_hook {
        explicit on_launch(double_managed& to) : to_(to) {}
        void before(std::string_view name, std::span<const deepum::operand> operands) override {
          if (!name.empty()) to_.before(name, operands);
        }
        void after() override { to_.after(); }
        double_managed& to_;
      } hook(system);
      stream.set_hook(&hook);
      const std::uint64_t faults = fake_cuda::stats().faults;
      std::uint64_t most = 0;
      for (word i = 0; i < steps; ++i) {
        program.step(stream, i);
        most = std::max(most, live_blocks(pool));
        stream.synchronize();
        most = std::max(most, live_blocks(pool));
      }
      CHECK(fake_cuda::stats().faults == faults);
      CHECK(most <= budget / deepum::block_size);
      CHECK(system.peak_bytes() <= budget.count);
      CHECK(system.traffic().in >= (steps - 1) * least_bytes_in(in_blocks(expected.program), budget.count));
      stream.set_hook(nullptr);
    }
    CHECK(program.sum(stream) == expected.sum);
  }
}

TEST_CASE("double buffering with slots computes the same, whatever the copies take") {
  const without_gpu setting;
  constexpr word steps = 5;
  const recorded expected = on_plain_memory(steps);
  for (const std::uint64_t seed : {0U, 1U, 2U, 3U, 4U, 5U}) {
    CAPTURE(seed);
    fake_cuda::set_delays(seed, std::chrono::microseconds(seed == 0 ? 0 : 2000));
    const bytes budget = std::vector<bytes>{20_MiB, 22_MiB, 26_MiB}[seed % 3];
    const memory_pool pool(memory_pool::kind::pinned, expected.program.capacity);
    hand_arena arena(pool);
    hand_stream stream(arena);
    on_host setting_up;
    stream.set_hook(&setting_up);
    const ring program(arena);
    for (word* p : program.x)
      stream.memset(p, 1, bytes{n * sizeof(word)});
    word done = 0;
    for (const word part : {2U, 3U}) {  // the second system goes on where the first one ended
      double_pinned system(arena, expected.program, budget, 2, stream.native());
      stream.set_hook(&system);
      for (word i = 0; i < part; ++i)
        program.step(stream, done++);
      stream.set_hook(&setting_up);
      CHECK(system.traffic().in > 0);
      CHECK(system.traffic().out > 0);
      CHECK(system.traffic().discarded > 0);
    }
    CHECK(program.sum(stream) == expected.sum);
  }
}

bench_settings settings_for(std::vector<std::string> systems) {
  bench_settings s;
  s.systems = std::move(systems);
  s.budgets = {70, 50};
  s.steps = 2;
  s.warm_up = 2;
  s.audit = 1;
  s.seed = 3;
  s.feed = deepum::cuda::fault_source::none;
  s.managed = {.in = 40e9, .out = 12e9, .in_both = 40e9, .out_both = 10e9};
  s.pinned = {.in = 55e9, .out = 55e9, .in_both = 50e9, .out_both = 50e9};
  return s;
}

constexpr train_gpt::model_shape shape{.layers = 2, .width = 384, .heads = model_heads, .context = 16, .batch = 8};
static_assert(shape.batch * shape.context == model_rows);

TEST_CASE("a training step and a forward pass have the same losses under all systems") {
  const without_gpu setting;
  for (const train_gpt::purpose use : {train_gpt::purpose::training, train_gpt::purpose::evaluation}) {
    const bool trains = use == train_gpt::purpose::training;
    CAPTURE(trains);
    train_gpt::model_shape own = shape;
    own.layers = trains ? 2 : 5;
    bench_settings settings =
        settings_for({"resident", "um", "once", "double_managed", "double_pinned", "lru", "deepum", "auto"});
    if (trains) settings.budgets = {70};  // what one launch of so small a model needs is much of it
    std::string name;
    deepum::step_description step;
    settings.take_step = [&](const std::string& program, const deepum::step_description& s) {
      name = program;
      step = s;
    };
    const program_report r = model_runs<float>(settings, own, use).run();
    CHECK(name == r.name);
    CHECK(r.runs.front().notes == std::to_string(step.size()) + " launches in a step");
    deepum::nanoseconds launches{};
    for (std::uint32_t k = 0; k != step.size(); ++k)
      launches += step[k].duration;
    CHECK(launches.count() > 0);
    CHECK(static_cast<double>(launches.count()) <= median_ns(r.runs.front()));
    const deepum::step_segments segments(step);
    const auto gaps = segments.gaps();
    // Weights that are only read leave without a copy; of what layers keep for the backward pass nothing comes back.
    CHECK(std::any_of(gaps.begin(), gaps.end(), [](const deepum::step_gap& g) { return !g.writes; }) == !trains);
    CHECK(std::any_of(gaps.begin(), gaps.end(), [](const deepum::step_gap& g) { return !g.returns; }) == trains);
    const std::size_t budgets = settings.budgets.size();
    REQUIRE(r.runs.size() == 1 + 7 * budgets);
    REQUIRE(r.bounds.size() == budgets);
    CHECK(r.bounds.front().least_in > 0);
    CHECK((trains || r.bounds.front().least_in < r.bounds.back().least_in));
    CHECK(r.bounds.back().least_in < r.footprint);
    for (const system_run& run : r.runs) {
      CAPTURE(run.name);
      CHECK(run.skipped == "");
      REQUIRE(run.steps.size() == 2);
      // Losses have been compared step by step, or there would be no report.
      if (run.name == "double_managed") {
        const program_report::bound& bound = r.bounds[run.budget == r.bounds[0].budget ? 0 : 1];
        CHECK(run.budget == bound.budget);
        CHECK(run.steps[0].did.in + run.steps[1].did.in > bound.least_in);
        CHECK(run.peak_bytes <= run.budget);
      }
      if (run.name == "double_pinned" && !trains) {
        CHECK(run.steps[1].did.out < run.steps[1].did.in / 4);  // weights do not change
      }
    }
    MESSAGE(table_of(r));
    CHECK(json_of(r)["runs"].size() == r.runs.size());
  }
}

TEST_CASE("gather computes the same under the library's systems and tells when it was learned") {
  const without_gpu setting;
  bench_settings settings = settings_for({"resident", "um", "double_managed", "auto"});
  settings.steps = 4;
  const program_report r = gather_runs(settings, {.pieces = 24, .launches = 3, .each = 4, .change = 3}).run();
  REQUIRE(r.runs.size() == 5);
  CHECK(r.runs[2].name == "auto");
  CHECK(r.runs[2].notes.find("launches until all comes by prefetch, by choice of pieces: 0 0") != std::string::npos);
  CHECK(r.runs[0].steps.size() == 4);
}

TEST_CASE("small launches are timed on plain memory and through the library") {
  const without_gpu setting;
  const bench_settings settings = settings_for({"um"});
  const std::vector<launch_costs> costs = fits_runs<deepum::cuda::managed_memory>(settings).run();
  REQUIRE(costs.size() == 3);
  CHECK(costs[0].system == "runtime");
  CHECK(costs[1].system == "resident");
  CHECK(costs[2].system == "um");
  for (const launch_costs& c : costs) {
    CHECK(c.host_ns > 0);
    CHECK(c.through_ns >= c.host_ns * 0.5);
  }
  CHECK(costs[0].more_ns == 0);
  CHECK(costs[2].more_ns > 0);
}

TEST_CASE("feeds that are not there are said to be not there") {
  const without_gpu setting;
  const bench_settings settings = settings_for({});
  feed_runs feeds(settings, 8_MiB);
  const std::vector<feed_cost> costs = feeds.run();
  REQUIRE(costs.size() == 4);
  CHECK(costs[0].skipped == "");
  CHECK(costs[0].ms.size() == 30);
  for (std::size_t i = 1; i != costs.size(); ++i) {
    CHECK(costs[i].skipped != "");
  }
}

TEST_CASE("where everything fits, each system takes turns with the resident run and has its losses") {
  const without_gpu setting;
  bench_settings settings = settings_for({"managed", "um", "once", "double_pinned", "auto"});
  settings.warm_up = 2;
  settings.steps = 2;
  train_gpt::model_shape own = shape;
  own.layers = 2;
  const program_report r = model_runs<float>(settings, own, train_gpt::purpose::training).run_in_turns();
  REQUIRE(r.runs.size() == 4);
  CHECK(r.runs[0].name == "resident");
  CHECK(r.runs[1].name == "managed");
  CHECK(r.runs[2].name == "um");
  CHECK(r.runs[3].name == "auto");
  CHECK(r.runs[0].steps.size() == 48);
  for (std::size_t k = 1; k != r.runs.size(); ++k) {
    CHECK(r.runs[k].steps.size() == 16);
    for (std::size_t i = 0; i != 14; ++i) {
      CHECK(r.runs[k].steps[i].loss == r.runs[0].steps[i].loss);
    }
    CHECK(r.runs[k].notes.find("% beside resident") != std::string::npos);
  }
}

TEST_CASE("the links are measured with what moves on them") {
  const without_gpu setting;
  const link_rates managed = managed_rates(0, 128_MiB);
  const link_rates pinned = pinned_rates(16_MiB);
  for (const double rate : {managed.in, managed.out, managed.in_both, managed.out_both, pinned.in, pinned.out_both})
    CHECK(rate > 0);
  const fake_cuda::statistics s = fake_cuda::stats();
  CHECK(s.to_device >= 3 * 2 * 64);
  CHECK(s.to_host >= 3 * 2 * 64);
}

TEST_CASE_TEMPLATE("random programs give the memory that the host computes", memory, deepum::cuda::managed_memory,
                   deepum::cuda::paged_memory) {
  const without_gpu setting;
  const bench_settings settings = settings_for({});
  std::string wrong;
  check_random_programs<memory>(settings, 2, wrong);
  CHECK(wrong == "");
}

}  // namespace measurements
