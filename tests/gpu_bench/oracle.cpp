// What an oracle is told of a step, and what it makes of it, on simulated memory.

#include "replay/oracle.hpp"

#include "gpu/library/gpt_layers.hpp"
#include "gpu/library/infer_layers.hpp"
#include "gpu/library/layered_step.hpp"
#include "gpu/library/oracle_step.hpp"
#include "gpu/library/report.hpp"
#include <deepum/arena.hpp>
#include <deepum/core/plan.hpp>
#include <deepum/error.hpp>
#include <deepum/policy/policy_options.hpp>
#include <deepum/sim/device.hpp>
#include <deepum/sim/kernel.hpp>
#include <deepum/sim/paged_memory.hpp>
#include <deepum/sim/stream.hpp>
#include <deepum/stream.hpp>
#include <deepum/units.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace oracle {

using namespace deepum;
using namespace deepum::gpu_bench;
using namespace deepum::literals;
using replay::oracle_policy;
using replay::told_steps;

// --- what it is told ---

TEST_CASE("a step recurs after the fewest launches that repeat to the whole of it") {
  const infer_shape shape{.models = 2, .layers = 2, .width = 64, .most_tokens = 8};
  const std::vector<layered_step> each{call_of(shape, 0, 4), call_of(shape, 1, 4)};
  const std::size_t call = each[0].launches.size();
  const auto period = [&](const std::vector<std::int64_t>& models) { return period_of(joined(each, models).launches); };
  CHECK(period({0}) == call);
  CHECK(period({0, 0, 0}) == call);
  CHECK(period({0, 1, 0, 1}) == 2 * call);
  CHECK(period({0, 1, 0}) == 3 * call);  // its end is not its beginning's beginning
  CHECK(period({0, 0, 1}) == 3 * call);
  CHECK(period_of({}) == 0);
  CHECK(period_of(step_of({.layers = 2, .width = 64, .context = 8, .batch = 1}).launches) ==
        step_of({.layers = 2, .width = 64, .context = 8, .batch = 1}).launches.size());
}

TEST_CASE("the time of a launch is the median of its like, and nothing where nothing was measured") {
  const layered_step step = step_of({.layers = 2, .width = 64, .context = 8, .batch = 1});
  launch_times times;
  CHECK(times.empty());
  std::vector<std::size_t> products;
  for (std::size_t i = 0; i < step.launches.size(); ++i) {
    if (step.launches[i].what == work::product) products.push_back(i);
  }
  REQUIRE(products.size() == 8);
  times.add(step, products[0], nanoseconds{30});
  times.add(step, products[4], nanoseconds{10});  // the same product of the next layer
  times.add(step, products[0], nanoseconds{1000});
  CHECK(times.of(step, products[0]) == nanoseconds{30});
  CHECK(times.of(step, products[4]) == nanoseconds{30});
  CHECK(times.of(step, products[1]) == std::nullopt);  // another shape
  CHECK_THROWS_AS(
      (void)told_step(
          step, step.launches.size(), [](const layer_launch&) { return std::vector<block_access>{}; }, {}, times, true),
      error);
}

TEST_CASE("a block dies when the last tensor in it does, whatever was alive when the step began") {
  // 2 and 1/2 blocks; two small ones that share a block; one of a block.
  const std::vector<tensor> tensors{{5U << 20U, 1}, {1U << 16U, 1}, {1U << 16U, 1}, {2U << 20U, 1}};
  const std::vector<bytes> offsets{0_B, 6_MiB, 6_MiB + bytes{1U << 16U}, 8_MiB};
  unvalued none{std::vector<std::vector<std::uint32_t>>(4), std::vector<std::vector<std::uint32_t>>(4)};
  none.after[1] = {0};
  none.before[0] = {0};
  none.after[0] = {1};
  none.before[3] = {1};
  none.after[2] = {2};
  none.before[1] = {2};
  const auto last_uses = last_uses_in(tensors, offsets, none, 2_MiB);
  REQUIRE(last_uses.size() == 4);
  CHECK(last_uses[0] == std::vector<block_range>{{block_id{3}, 1}});  // one is inactive since the step before
  CHECK(last_uses[1] == std::vector<block_range>{{block_id{0}, 3}});
  CHECK(last_uses[2] == std::vector<block_range>{{block_id{3}, 1}});
  CHECK(last_uses[3].empty());
  // In blocks of 4 MiB the first one ends in a block that it shares.
  const auto large = last_uses_in(tensors, offsets, none, 4_MiB);
  CHECK(large[0].empty());
  CHECK(large[1] == std::vector<block_range>{{block_id{0}, 1}});
  CHECK(large[2] == std::vector<block_range>{{block_id{1}, 1}});
}

TEST_CASE("a step is told with times, uses and last uses; what is overwritten comes where the host keeps no copy") {
  layered_step step{.tensors = {{1U << 20U, 2}, {1U << 20U, 2}}};
  step.launches.push_back({.what = work::draw_input, .tensors = {0}, .rows = 1 << 20});
  step.launches.push_back({.what = work::gelu, .tensors = {1, 0}, .rows = 1 << 20});
  launch_times times;
  times.add(step, 0, nanoseconds{5});
  times.add(step, 1, nanoseconds{7});
  const auto uses = [](const layer_launch& l) {
    std::vector<block_access> all;
    for (const tensor_use& u : uses_of(l))
      all.push_back({{block_id{u.tensor}, 1}, u.mode});
    return all;
  };
  for (const bool keeps_home_copy : {true, false}) {
    const step_description told = told_step(step, 2, uses, {{}, {{block_id{0}, 1}}}, times, keeps_home_copy);
    REQUIRE(told.size() == 2);
    CHECK(told[0].duration == nanoseconds{5});
    CHECK(told[1].duration == nanoseconds{7});
    REQUIRE(told[1].uses.size() == 2);
    CHECK(told[1].uses[0] == block_access{{block_id{1}, 1}, keeps_home_copy ? access::overwrite : access::update});
    CHECK(told[1].uses[1] == block_access{{block_id{0}, 1}, access::read});
    CHECK(told[0].last_uses.empty());
    CHECK(told[1].last_uses.size() == 1);
  }
  CHECK(told_step(step, 1, uses, {}, times, true).size() == 1);
  CHECK(time_of(2_MiB, 2.097152e9) == nanoseconds{1'000'000});
}

TEST_CASE("runs are compared with the fastest oracle of their budget") {
  const auto run = [](const char* name, std::uint64_t budget, std::int64_t ns) {
    system_run r{.name = name, .budget = budget};
    if (ns != 0) r.steps.push_back({.ns = ns});
    return r;
  };
  program_report r;
  r.runs = {run("resident", 0, 10), run("auto", 8, 50),    run("oracle, write-back late", 8, 80),
            run("oracle", 8, 40),   run("oracle", 16, 20), run("um", 8, 0),
            run("um", 24, 70)};
  CHECK(percent_of_oracle(r, r.runs[0]) == 0);
  CHECK(percent_of_oracle(r, r.runs[1]) == doctest::Approx(80));
  CHECK(percent_of_oracle(r, r.runs[2]) == doctest::Approx(50));
  CHECK(percent_of_oracle(r, r.runs[3]) == doctest::Approx(100));
  CHECK(percent_of_oracle(r, r.runs[5]) == 0);
  CHECK(percent_of_oracle(r, r.runs[6]) == 0);
  const nlohmann::ordered_json json = json_of(r);
  CHECK(json["runs"][1]["percent_of_oracle"] == doctest::Approx(80));
  CHECK(!json["runs"][0].contains("percent_of_oracle"));
}

// --- what it makes of it ---

using word = std::uint32_t;
constexpr std::size_t words = (2_MiB).count / sizeof(word);  // of a buffer
constexpr std::size_t buffers = 24;

const sim::kernel mix{[](word* a, const word* b, std::size_t n) {
                        for (std::size_t i = 0; i < n; i += 64) {
                          a[i] = a[i] * 31 + b[i] + 1;
                        }
                      },
                      [](sim::work& w, word* a, const word* b, std::size_t n) {
                        w.reads(b, n * sizeof(word)).updates(a, n * sizeof(word)).flops(1e8);
                      }};
// Elsewhere than in the arena: this uses nothing of it.
const sim::kernel tick{[](std::uint64_t) {}, [](sim::work& w, std::uint64_t) { w.flops(1e6); }};

struct machine {
  explicit machine(std::shared_ptr<told_steps> told, std::string name = "auto", bool write_back = true)
      : memory(
            gpu,
            {.capacity = 128_MiB,
             .device_budget = 24_MiB,
             .policy = std::move(name),
             .tuning = {.write_back = write_back},
             .make_policy =
                 told == nullptr
                     ? decltype(arena_options::make_policy){}
                     : [told](const policy_options& o) { return std::make_unique<oracle_policy>(told, o.write_back); },
             .log = {}}),
        q(memory) {
    for (std::size_t i = 0; i < buffers; ++i) {
      x.push_back(memory.allocate<word>(words));
      const auto view = memory.host_overwrite(x.back(), words);
      std::fill_n(view.data(), words, static_cast<word>(i));
    }
  }
  [[nodiscard]] static std::size_t other(std::size_t i) { return (i * 7 + 3) % buffers; }
  [[nodiscard]] std::uint32_t block_of(std::size_t i) {
    return static_cast<std::uint32_t>((reinterpret_cast<std::byte*>(x[i]) - memory.memory().base()) / (2 << 20));
  }
  void launch(std::size_t a, std::size_t b) {
    q.launch("mix", 1, 1, 0, mix, x[a], static_cast<const word*>(x[b]), words);
  }
  void step() {
    q.launch("tick", 1, 1, 0, tick, std::uint64_t{1});
    for (std::size_t i = 0; i < buffers; ++i)
      launch(i, other(i));
  }
  [[nodiscard]] told_steps::told described() {
    told_steps::told t{.in_per_block = nanoseconds{40'000},
                       .out_per_block = nanoseconds{40'000},
                       .after = memory.engine().last_launch()};
    for (std::size_t i = 0; i < buffers; ++i) {
      t.step.add_launch(nanoseconds{10'000});
      t.step.add_use({block_id{block_of(i)}, 1}, access::update);
      t.step.add_use({block_id{block_of(other(i))}, 1}, access::read);
    }
    return t;
  }
  [[nodiscard]] std::vector<word> result() {
    q.synchronize();
    std::vector<word> all;
    for (word* p : x)
      all.push_back(memory.host_read(p, words)[64]);
    return all;
  }

  sim::device gpu{sim::find_profile("h200_pcie5"), {.memory = 512_MiB}};
  arena<sim::paged_memory> memory;
  stream<sim::paged_memory> q;
  std::vector<word*> x{};
};

constexpr int steps = 6;

std::uint64_t bytes_of(machine& m, std::vector<word>& result, nanoseconds& time) {
  m.q.synchronize();
  const std::uint64_t before = m.memory.statistics().in().all_bytes();
  const nanoseconds began = m.memory.memory().now();
  for (int i = 0; i < steps; ++i)
    m.step();
  m.q.synchronize();
  time = m.memory.memory().now() - began;
  const std::uint64_t moved = m.memory.statistics().in().all_bytes() - before;
  result = m.result();
  return moved;
}

TEST_CASE("an oracle that is told its step from the first one on moves less than what has to learn it, or nobody") {
  std::vector<word> expected;
  std::vector<word> result;
  nanoseconds learning_time{};
  nanoseconds untold_time{};
  nanoseconds told_time{};
  machine learning(nullptr);
  const std::uint64_t learned = bytes_of(learning, expected, learning_time);
  machine untold(std::make_shared<told_steps>());
  const std::uint64_t moved_untold = bytes_of(untold, result, untold_time);
  CHECK(result == expected);
  const policy_statistics nothing = untold.memory.statistics().policy;
  CHECK(nothing.unpredicted == nothing.launches);
  CHECK(nothing.mispredicted == 0);

  const auto told = std::make_shared<told_steps>();
  machine m(told);
  told->tell(m.described());
  const std::uint64_t moved = bytes_of(m, result, told_time);
  CHECK(result == expected);
  CHECK(moved < learned);
  CHECK(moved < moved_untold);
  CHECK(told_time < learning_time);
  CHECK(told_time < untold_time);
  const policy_statistics p = m.memory.statistics().policy;
  CHECK(p.launches == steps * (buffers + 1));
  CHECK(p.unpredicted == 0);
  CHECK(p.mispredicted == 0);
}

TEST_CASE("an oracle follows another step from the launch on for which it is told, and plans anew for another budget") {
  const auto told = std::make_shared<told_steps>();
  machine m(told);
  machine same(nullptr, "lru");
  const auto both = [&](auto&& what) {
    what(m);
    what(same);
  };
  both([](machine& x) { x.launch(5, 6); });  // before anything was told
  m.q.synchronize();
  told->tell(m.described());
  both([](machine& x) { x.step(); });
  const auto moved_in_steps = [&] {
    both([](machine& x) { x.step(); });
    m.q.synchronize();
    const std::uint64_t before = m.memory.statistics().in().all_bytes();
    both([](machine& x) { x.step(); });
    both([](machine& x) { x.step(); });
    m.q.synchronize();
    return m.memory.statistics().in().all_bytes() - before;
  };
  const std::uint64_t first = moved_in_steps();
  m.memory.set_budget(16_MiB);
  CHECK(moved_in_steps() > first);
  m.memory.set_budget(40_MiB);
  CHECK(moved_in_steps() < first * 3 / 4);
  const policy_statistics p = m.memory.statistics().policy;
  CHECK(p.unpredicted == 1);
  CHECK(p.mispredicted == 0);

  // It is told something else in the middle of the step.
  both([](machine& x) { x.launch(0, machine::other(0)); });
  m.q.synchronize();
  told_steps::told two{.in_per_block = nanoseconds{40'000},
                       .out_per_block = nanoseconds{40'000},
                       .after = m.memory.engine().last_launch()};
  for (const auto& [a, b] : {std::pair{20, 21}, std::pair{22, 23}}) {
    two.step.add_launch(nanoseconds{10'000});
    two.step.add_use({block_id{m.block_of(static_cast<std::size_t>(a))}, 1}, access::update);
    two.step.add_use({block_id{m.block_of(static_cast<std::size_t>(b))}, 1}, access::read);
  }
  told->tell(std::move(two));
  for (int i = 0; i < 3; ++i) {
    both([](machine& x) {
      x.launch(20, 21);
      x.launch(22, 23);
    });
  }
  CHECK(m.memory.statistics().policy.mispredicted == 0);
  // A launch of other blocks ends it: the next ones are not known.
  both([](machine& x) { x.launch(1, 2); });
  both([](machine& x) { x.launch(20, 21); });
  m.q.synchronize();
  CHECK(m.memory.statistics().policy.mispredicted == 1);
  CHECK(m.memory.statistics().policy.unpredicted == 2);
  CHECK(m.result() == same.result());
}

TEST_CASE("an oracle writes blocks back ahead of need where the program does not choose otherwise") {
  std::vector<word> expected;
  for (const bool ahead : {true, false}) {
    CAPTURE(ahead);
    const auto told = std::make_shared<told_steps>();
    machine m(told, {}, ahead);
    told_steps::told sweep{.in_per_block = nanoseconds{40'000},
                           .out_per_block = nanoseconds{40'000},
                           .after = m.memory.engine().last_launch()};
    std::vector<std::pair<std::size_t, std::size_t>> launches;
    for (std::size_t i = 1; i < buffers; ++i)
      launches.emplace_back(i, i - 1);
    for (std::size_t i = buffers - 1; i != 0; --i)
      launches.emplace_back(0, i);  // all others are only read
    for (const auto& [a, b] : launches) {
      sweep.step.add_launch(nanoseconds{10'000});
      sweep.step.add_use({block_id{m.block_of(a)}, 1}, access::update);
      sweep.step.add_use({block_id{m.block_of(b)}, 1}, access::read);
    }
    told->tell(std::move(sweep));
    for (int i = 0; i < steps; ++i) {
      for (const auto& [a, b] : launches)
        m.launch(a, b);
    }
    m.q.synchronize();
    CHECK((m.memory.statistics().out().bytes_for(reason::write_back) != 0) == ahead);
    CHECK(m.memory.statistics().policy.mispredicted == 0);
    const std::vector<word> result = m.result();
    CHECK((expected.empty() || result == expected));
    expected = result;
  }
}

}  // namespace oracle
