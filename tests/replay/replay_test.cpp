#include "replay/replay.hpp"

#include "replay/oracle.hpp"
#include "replay/placement.hpp"
#include "replay/scenario.hpp"
#include "schedule_checker.hpp"
#include "support/test_scale.hpp"
#include <deepum/error.hpp>
#include <deepum/policy/make_policy.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace replay_test {

using namespace deepum_test;

constexpr const char* all_policies[] = {"ideal", "um", "lru", "deepum", "auto", "oracle"};
constexpr std::uint64_t one_block = block_size.count;

/// A policy that gives up where it is asked again and again, so that a replay that never ends fails.
class bounded_policy final : public policy {
 public:
  bounded_policy(std::unique_ptr<policy> inner, std::uint64_t most) : inner_(std::move(inner)), most_(most) {}

  [[nodiscard]] std::string_view name() const override { return inner_->name(); }
  void on_stream(stream_id s, std::optional<std::uint32_t> lookahead) override { inner_->on_stream(s, lookahead); }
  void on_launch(const launch_record& r, const block_map& map) override { inner_->on_launch(r, map); }
  void on_finish(launch_id l, stream_id s, const block_map& map) override { inner_->on_finish(l, s, map); }
  void on_fault(const fault_record& f, const block_map& map) override { inner_->on_fault(f, map); }
  void on_migrated(block_range r, location to, const block_map& map) override { inner_->on_migrated(r, to, map); }
  void on_live(block_range r, const block_map& map) override { inner_->on_live(r, map); }
  void on_dead(block_range r, launch_id last, const block_map& map) override { inner_->on_dead(r, last, map); }
  void on_host_access(block_range r, deepum::access mode, const block_map& map) override {
    inner_->on_host_access(r, mode, map);
  }
  void plan_next(const block_map& map, plan& out) override {
    count();
    inner_->plan_next(map, out);
  }
  [[nodiscard]] bool holds_launches() const override { return inner_->holds_launches(); }
  [[nodiscard]] bool ready(launch_id l, stream_id s, const block_map& map) const override {
    count();
    return inner_->ready(l, s, map);
  }
  [[nodiscard]] policy_statistics statistics() const override { return inner_->statistics(); }

 private:
  void count() const {
    if (++asked_ > most_) {
      throw std::runtime_error("the replay does not end");
    }
  }

  std::unique_ptr<policy> inner_;
  std::uint64_t most_;
  mutable std::uint64_t asked_ = 0;
};

std::uint64_t launches_of(const program& what) {
  std::uint64_t sum = 0;
  for (const program_turn& t : what.turns) {
    sum += what.workloads[t.workload]->launches.size();
  }
  return sum;
}
std::uint64_t uses_of(const program& what) {
  std::uint64_t sum = 0;
  for (const program_turn& t : what.turns) {
    for (const workload_launch& l : what.workloads[t.workload]->launches) {
      sum += block_count(l.touches(t.variant).all());
    }
  }
  return sum;
}

struct recorded {
  replay_result result{};
  std::vector<schedule_entry> entries{};
  std::string wrong{};
};

/// Replays, and checks the schedule.
recorded record(const program& what, std::string_view name, const policy_options& tuning, replay_options how) {
  recorded r;
  how.schedule = [&](const schedule_entry& e) { r.entries.push_back(e); };
  std::unique_ptr<policy> chooser = name == "oracle"
                                        ? std::make_unique<oracle_policy>(*what.workloads[0], how.budget, how.costs)
                                        : make_policy(name, tuning);
  // Each use of a block may bring it in, take another one out, and have the policy asked about both a few times.
  const std::uint64_t most = 1000 + 50 * (launches_of(what) + uses_of(what));
  try {
    r.result = replay::replay(what, std::make_unique<bounded_policy>(std::move(chooser), most), how);
  } catch (const std::exception& e) {
    r.wrong = e.what();
    return r;
  }
  r.wrong = schedule_checker(what, how.on ? *how.on : one_device(how.budget, how.costs)).check(r.entries);
  if (r.wrong.empty() && r.result.turns.size() != what.turns.size()) {
    r.wrong = "there are turns without a time";
  }
  return r;
}

program repeated(std::shared_ptr<const workload> w, std::size_t steps) {
  program what{.name = w->name, .workloads = {w}, .turns = {}};
  for (std::size_t step = 0; step != steps; ++step) {
    what.turns.push_back({.workload = 0, .stream = {}, .variant = w->variant_of(step), .regime = 0});
  }
  return what;
}

/// Tensors and launches in a few words.
struct description {
  using ids = std::vector<std::int64_t>;

  explicit description(const char* name) { d.name = name; }
  void tensor(std::int64_t id, std::uint64_t size, bool persistent = false) {
    d.tensors.push_back({.id = id, .size = bytes{size}, .address = {}, .persistent = persistent, .freed_after = {}});
  }
  void launch(const char* kernel, std::int64_t ns, ids in, ids out) {
    d.launches.push_back(
        {.kernel = kernel, .duration = nanoseconds{ns}, .in = std::move(in), .out = std::move(out), .blocks = {}});
  }
  [[nodiscard]] std::shared_ptr<const workload> build() const {
    return std::make_shared<const workload>(build_workload(d.name, d));
  }

  workload_description d{};
};

/// Reads weights one after another and adds to them, with a result that lives for two launches.
description ring(std::uint32_t layers, std::uint32_t blocks_each, std::int64_t ns) {
  description ring("ring");
  for (std::int64_t i = 0; i != layers; ++i) {
    ring.tensor(i, blocks_each * one_block, true);
    ring.tensor(100 + i, 2 * one_block);
  }
  for (std::int64_t i = 0; i != layers; ++i) {
    ring.launch("layer", ns, i == 0 ? description::ids{i} : description::ids{i, 99 + i}, {i, 100 + i});
  }
  return ring;
}

class random_workload {
 public:
  explicit random_workload(std::uint64_t seed) : random_(seed) {}

  [[nodiscard]] std::shared_ptr<const workload> make(bool forward_and_backward = false) {
    description d("random");
    const std::int64_t tensors = 4 + below(30);
    for (std::int64_t id = 0; id != tensors; ++id) {
      d.tensor(id, below(4) == 0 ? 1000 + below(one_block) : (1 + below(6)) * one_block, below(3) == 0);
    }
    const std::int64_t launches = forward_and_backward ? 16 + below(30) : 1 + below(50);
    const std::int64_t usual = 5'000 + below(300'000);
    for (std::int64_t k = 0; k != launches; ++k) {
      description::ids in;
      description::ids out;
      for (std::int64_t i = 1 + below(4); i != 0; --i) {
        // What is near the place in the step, so that uses come in phases.
        const std::int64_t near = below(3) == 0 ? below(tensors) : (k * tensors / launches + below(4)) % tensors;
        if (std::find(in.begin(), in.end(), near) == in.end() && std::find(out.begin(), out.end(), near) == out.end()) {
          const std::int64_t how = below(4);
          if (how != 0) in.push_back(near);
          if (how <= 1) out.push_back(near);
        }
      }
      d.launch(("k" + std::to_string(below(6))).c_str(), 1 + below(2 * usual), in, out);
      look_up(d, d.d.launches.back());
    }
    if (below(2) == 0) {
      place(d.d, {.which = std::vector<bool>(d.d.tensors.size(), true),
                  .taken = {},
                  .from_block = static_cast<std::uint32_t>(below(5)),
                  .reuse = below(2) == 0});
    }
    return d.build();
  }

  [[nodiscard]] std::int64_t below(std::uint64_t n) { return static_cast<std::int64_t>(random_() % n); }

 private:
  // Sometimes a launch touches only a few blocks of what it uses, others in each step.
  void look_up(const description& d, described_launch& l) {
    if (below(5) != 0 || l.in.empty()) {
      return;
    }
    const std::int64_t id = l.in.front();
    const auto blocks = d.d.tensors[static_cast<std::size_t>(id)].size.count / one_block;
    if (blocks < 2) {
      return;
    }
    described_launch::lists lists(static_cast<std::size_t>(1 + below(4)));
    for (auto& list : lists) {
      for (std::uint32_t b = 0; b != blocks; ++b) {
        if (below(3) == 0) list.push_back(b);
      }
    }
    l.blocks.emplace(id, std::move(lists));
  }

  std::mt19937_64 random_;
};

bool same(const recorded& a, const recorded& b) {
  return a.entries == b.entries && std::equal(a.result.turns.begin(), a.result.turns.end(), b.result.turns.begin(),
                                              b.result.turns.end(), [](const replayed_turn& x, const replayed_turn& y) {
                                                return x.time == y.time && x.used.faults == y.used.faults &&
                                                       x.used.stalled == y.used.stalled;
                                              });
}

TEST_CASE("a small step runs to its end under every policy, on both memories, from the least budget on") {
  const auto w = ring(6, 3, 100'000).build();
  REQUIRE(w->largest_launch == 7);
  REQUIRE(w->blocks == 6 * 5);
  const program what = repeated(w, 14);
  for (const char* const name : all_policies) {
    for (const replay_memory memory : {replay_memory::managed, replay_memory::home_copy}) {
      for (const std::uint32_t budget : {7U, 8U, 12U, 20U, 30U, 40U}) {
        CAPTURE(std::string(name));
        CAPTURE(memory == replay_memory::home_copy);
        CAPTURE(budget);
        const recorded r = record(what, name, {}, {.memory = memory, .budget = block_size * budget});
        CHECK(r.wrong == "");
        CHECK(r.result.policy == name);
      }
    }
  }
}

TEST_CASE("random steps keep all rules under every policy, with every budget that holds their launches") {
  const std::size_t rounds = scaled(60);
  for (std::size_t round = 0; round != rounds; ++round) {
    random_workload make(round);
    const auto w = make.make();
    const program what = repeated(w, 6 + static_cast<std::size_t>(make.below(1 + 200 / w->launches.size())));
    const std::uint32_t least = std::max(1U, w->largest_launch);
    const std::uint32_t budget =
        make.below(3) == 0 ? least : least + static_cast<std::uint32_t>(make.below(w->blocks + 2 - w->largest_launch));
    replay_options how{.budget = block_size * budget};
    how.memory = make.below(2) == 0 ? replay_memory::managed : replay_memory::home_copy;
    how.costs = {.h2d_gbps = 5.0 + static_cast<double>(make.below(60)),
                 .d2h_gbps = 5.0 + static_cast<double>(make.below(60)),
                 .copy_latency = nanoseconds{make.below(2) * 2000},
                 .fault_latency = nanoseconds{make.below(2) * 45'000}};
    how.run_ahead = static_cast<std::size_t>(make.below(2) == 0 ? 1 : make.below(60));
    policy_options tuning;
    tuning.hold_launches = make.below(4) != 0;
    if (make.below(4) == 0) tuning.lookahead = static_cast<std::uint32_t>(1 + make.below(8));
    tuning.prefetch = make.below(8) != 0;
    tuning.pre_evict = make.below(8) != 0;
    tuning.invalidate = make.below(8) != 0;
    CAPTURE(round);
    CAPTURE(budget);
    CAPTURE(w->largest_launch);
    CAPTURE(how.run_ahead);
    CAPTURE(how.memory == replay_memory::home_copy);
    for (const char* const name : all_policies) {
      CAPTURE(std::string(name));
      const recorded r = record(what, name, tuning, how);
      CHECK(r.wrong == "");
    }
  }
}

TEST_CASE("programs in which something changes keep all rules under every policy") {
  const std::size_t rounds = scaled(3);
  for (std::size_t round = 0; round != rounds; ++round) {
    for (const std::string_view scenario : scenario_names()) {
      random_workload make(1000 + round);
      const auto w = make.make(true);
      program what;
      try {
        what = make_scenario(scenario, w, {.steps = 3, .seed = round, .validation = 2});
      } catch (const error&) {
        continue;  // not every scenario can be made of every step
      }
      std::uint32_t least = 1;
      std::uint32_t blocks = 1;
      for (const auto& part : what.workloads) {
        least = std::max(least, part->largest_launch);
        blocks = std::max(blocks, part->blocks);
      }
      const std::uint32_t budget = least + static_cast<std::uint32_t>(make.below(blocks + 1 - least));
      for (const char* const name : {"um", "lru", "deepum", "auto"}) {
        CAPTURE(round);
        CAPTURE(scenario);
        CAPTURE(std::string(name));
        CAPTURE(budget);
        const replay_memory memory = make.below(2) == 0 ? replay_memory::managed : replay_memory::home_copy;
        CAPTURE(memory == replay_memory::home_copy);
        const recorded r = record(what, name, {},
                                  {.memory = memory,
                                   .budget = block_size * budget,
                                   .costs = {.h2d_gbps = 20, .d2h_gbps = 20, .fault_latency = nanoseconds{45'000}}});
        CHECK(r.wrong == "");
      }
    }
  }
}

TEST_CASE("the same replay gives the same schedule and the same numbers") {
  random_workload make(5);
  const program what = repeated(make.make(), 8);
  const replay_options how{.budget = block_size * (what.workloads[0]->largest_launch + 3)};
  for (const char* const name : all_policies) {
    CAPTURE(std::string(name));
    const recorded first = record(what, name, {}, how);
    CHECK(first.wrong == "");
    CHECK_FALSE(first.entries.empty());
    CHECK(same(first, record(what, name, {}, how)));
  }
}

TEST_CASE("a launch that uses more blocks than the budget has is refused by its name") {
  const program what = repeated(ring(2, 9, 10).build(), 2);
  for (const replay_memory memory : {replay_memory::managed, replay_memory::home_copy}) {
    try {
      (void)replay::replay(what, make_policy("auto"), {.memory = memory, .budget = block_size * 12});
      FAIL("13 blocks fit 12");
    } catch (const error& e) {
      CHECK(e.code() == status::invalid_argument);
      CHECK(std::string(e.what()).find("'ring' uses 13 blocks of 2 MiB, and the budget holds 12") != std::string::npos);
    }
  }
}

TEST_CASE("turns take the time from one end to the next, and statistics are those of the turn") {
  const program what = repeated(ring(4, 2, 1'000'000).build(), 5);
  const recorded r = record(what, "um", {}, {.memory = replay_memory::managed, .budget = block_size * 100});
  REQUIRE(r.wrong == "");
  nanoseconds end{};
  std::vector<nanoseconds> ends;
  for (const schedule_entry& e : r.entries) {
    if (e.what == schedule_event::launch && e.kernel == 3) {
      ends.push_back(e.end);
    }
  }
  REQUIRE(ends.size() == 5);
  for (std::size_t i = 0; i != 5; ++i) {
    CHECK(r.result.turns[i].time == ends[i] - end);
    end = ends[i];
  }
  const statistics& first = r.result.turns[0].used;
  CHECK(first.launches >= 4);
  CHECK(first.faults == 16);  // eight blocks of weights, and eight that are written for the first time
  CHECK(first.in().all_bytes() == 8 * one_block);
  for (std::size_t i = 2; i != 5; ++i) {
    CHECK(r.result.turns[i].time == nanoseconds{4'000'000});
    CHECK(r.result.turns[i].used.in().all_bytes() == 0);
    CHECK(r.result.turns[i].used.faults == 0);
  }
}

TEST_CASE("progress is told once a turn") {
  const program what = repeated(ring(3, 1, 1000).build(), 4);
  std::vector<std::size_t> told;
  replay_options how{.budget = block_size * 5};
  how.progress = [&](std::size_t turn) { told.push_back(turn); };
  (void)replay::replay(what, make_policy("auto"), how);
  CHECK(told == std::vector<std::size_t>{0, 1, 2, 3});
}

TEST_CASE("auto replays recorded models at the speed of who knows the step, and above what was promised" *
          doctest::skip(!std::getenv("DEEPUM_WORKLOADS"))) {
  const struct {
    const char* file;
    std::uint64_t budget_gib;
    double gbps;
    double least_percent;
  } cases[] = {{"bert_base_b256_a100", 40, 15.754, 97},
               {"opt_13b_infer_b8", 28, 50.8, 60},
               {"gpt2_xl_b4", 48, 50.8, 28},
               {"resnet152_b256", 21, 50.8, 30}};
  for (const auto& c : cases) {
    CAPTURE(c.file);
    const auto w = std::make_shared<const workload>(
        read_workload(std::string(std::getenv("DEEPUM_WORKLOADS")) + "/" + c.file + ".jsonl.gz"));
    const program what = repeated(w, 6);
    replay_options how{.budget = block_size * (c.budget_gib * 512)};
    how.costs = {.h2d_gbps = c.gbps, .d2h_gbps = c.gbps, .fault_latency = nanoseconds{45'000}};
    const recorded learned = record(what, "auto", {}, how);
    const recorded told = record(what, "oracle", {}, how);
    CHECK(learned.wrong == "");
    CHECK(told.wrong == "");
    const auto mean = [](const recorded& r, std::size_t from) {
      nanoseconds sum{};
      for (std::size_t i = from; i != 5; ++i) {
        sum += r.result.turns.at(i).time;
      }
      return static_cast<double>(sum.count()) / static_cast<double>(5 - from);
    };
    CHECK(100 * static_cast<double>(w->compute.count()) / mean(learned, 2) >= c.least_percent);
    CHECK(mean(told, 3) / mean(learned, 3) >= 0.98);
  }
}

}  // namespace replay_test
