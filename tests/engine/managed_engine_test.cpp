// What the engine does for memory that says more of itself: nobody may tell of faults, discarded blocks have to be
// repopulated, duplicates end before a write, and the memory chooses how many commands it is given.

#include "engine/fake_memory.hpp"
#include <deepum/engine/engine.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace managed_engine_test {

using namespace deepum;
using deepum_test::fake_memory;
using deepum_test::scripted_policy;

block_range blocks(std::uint32_t first, std::uint32_t count) { return {block_id{first}, count}; }
std::string text(block_range r) { return std::to_string(r.first.value) + "+" + std::to_string(r.count); }

/// Memory as `cuda::managed_memory` is to the engine.
class managed_fake_memory : public fake_memory {
 public:
  explicit managed_fake_memory(std::uint32_t size)
      : fake_memory(size, {.commands_in_flight = 3, .bytes_in_flight = 5 * block_size}) {}
  [[nodiscard]] bool sees_faults() const override { return sees; }
  [[nodiscard]] std::uint64_t lost_faults() const override { return lost; }
  [[nodiscard]] std::string fault_source() const override { return sees ? "driver" : "none"; }
  void repopulate(block_range r) override { repopulated.push_back(text(r)); }
  bool advise(block_range r, advice hint, location) override {
    advised.push_back((hint == advice::set_read_mostly     ? "duplicate "
                       : hint == advice::unset_read_mostly ? "unite "
                                                           : "other ") +
                      text(r));
    return !refuse_advice;
  }

  bool sees = true;
  std::uint64_t lost = 0;
  bool refuse_advice = false;
  std::vector<std::string> repopulated;
  std::vector<std::string> advised;
};

using strings = std::vector<std::string>;

struct bench {
  explicit bench(std::uint32_t size, std::uint32_t budget, engine_options options = {}) : memory(size) {
    options.budget = block_size * budget;
    options.log = {};
    e.emplace(memory, std::make_unique<scripted_policy>(policy), options);
    s = e->open_stream({});
  }
  launch_id launch(std::vector<block_access> accesses) {
    launch_record r;
    r.stream = s;
    r.accesses = std::move(accesses);
    return e->submit(std::move(r));
  }
  void plan(const transfer& t) { plan(deepum::plan{.transfers = {t}}); }
  void plan(const driver_hint& h) { plan(deepum::plan{.hints = {h}}); }
  void plan(deepum::plan p) {
    policy.plans.push_back(std::move(p));
    e->set_budget(e->budget());  // something happened, so that the policy is asked
    memory.repopulated.clear();
    e->pump();
  }
  [[nodiscard]] const block_map& map() {
    e->pump();
    return *policy.map;
  }

  managed_fake_memory memory;
  scripted_policy::script policy;
  std::optional<engine> e;
  stream_id s{};
};

TEST_CASE("where nobody tells of faults, a launch has brought what it declared when it finishes") {
  for (const bool sees : {false, true}) {
    CAPTURE(sees);
    bench b(16, 16);
    b.memory.sees = sees;
    CHECK(b.e->live(blocks(0, 8)));
    const launch_id id = b.launch({{blocks(0, 2), access::read}, {blocks(4, 1), access::update}});
    b.e->pump();
    CHECK_FALSE(b.map().present(block_id{0}));
    b.memory.finish(id, 10);
    const block_map& map = b.map();
    for (const std::uint32_t i : {0U, 1U, 4U}) {
      CHECK(map.resident(block_id{i}) == !sees);
    }
    CHECK_FALSE(map.present(block_id{2}));
    const statistics s = b.e->snapshot();
    CHECK(s.in().blocks_for(reason::fault) == (sees ? 0 : 3));
    CHECK(s.faults == 0);
    CHECK(s.fault_feed == (sees ? "driver" : "none"));
  }
}

TEST_CASE("a block that is arriving, or there, is not counted again by a launch that nobody saw fault") {
  bench b(16, 16);
  b.memory.sees = false;
  CHECK(b.e->live(blocks(0, 8)));
  b.plan(transfer::prefetch(location::device(), reason::learned, blocks(0, 2)));
  REQUIRE(b.memory.calls.size() == 1);
  const launch_id id = b.launch({{blocks(0, 3), access::read}});
  b.memory.finish(id, 10);
  b.e->pump();
  b.memory.carry_out(b.memory.calls[0]);
  CHECK(b.map().resident(block_id{0}));
  const statistics s = b.e->snapshot();
  CHECK(s.in().blocks_for(reason::fault) == 1);
  CHECK(s.in().blocks_for(reason::learned) == 2);
}

TEST_CASE("lost faults are in the statistics") {
  bench b(4, 4);
  b.memory.lost = 17;
  CHECK(b.e->snapshot().lost_faults == 17);
}

TEST_CASE("blocks that come alive are repopulated, at once or when a discard on its way has settled") {
  bench b(16, 16);
  CHECK(b.e->live(blocks(0, 4)));
  CHECK(b.memory.repopulated == strings{"0+4"});
  b.plan(transfer::prefetch(location::device(), reason::learned, blocks(0, 4)));
  b.memory.carry_out(b.memory.calls.at(0));
  b.e->dead(blocks(0, 4), liveness::unallocated, {});
  b.e->pump();
  b.plan(transfer::discard(reason::dead, blocks(1, 2)));
  REQUIRE(b.memory.calls.size() == 2);
  REQUIRE(b.memory.calls[1].what == "discard");
  CHECK_FALSE(b.e->live(blocks(0, 4)));
  CHECK(b.memory.repopulated.empty());  // the discard would come behind it
  CHECK_FALSE(b.e->settled(blocks(0, 4)));
  CHECK(b.memory.repopulated.empty());
  b.memory.carry_out(b.memory.calls[1]);
  CHECK(b.e->settled(blocks(0, 4)));
  CHECK(b.memory.repopulated == strings{"0+4"});
}

TEST_CASE("what a launch will write is read-mostly no more before it is given to the device") {
  bench b(16, 4);
  CHECK(b.e->live(blocks(0, 16)));  // more than fits
  b.plan(driver_hint{.blocks = blocks(2, 6), .what = advice::set_read_mostly, .why = reason::learned});
  CHECK(b.memory.advised == strings{"duplicate 2+6"});
  b.launch({{blocks(0, 16), access::read}});
  b.e->pump();
  CHECK(b.memory.advised.size() == 1);
  b.launch({{blocks(0, 4), access::update}, {blocks(7, 3), access::overwrite}});
  b.e->pump();
  CHECK(b.memory.advised == strings{"duplicate 2+6", "unite 2+2", "unite 7+1"});
  b.launch({{blocks(0, 4), access::update}});
  b.e->pump();
  CHECK(b.memory.advised.size() == 3);  // once
  b.launch({{blocks(5, 1), access::update}});
  b.e->pump();
  CHECK(b.memory.advised.back() == "unite 5+1");
}

TEST_CASE("what the policy advises is left out while everything fits; what the program asks for is not") {
  bench b(16, 16);
  CHECK(b.e->live(blocks(0, 8)));
  b.plan(driver_hint{.blocks = blocks(0, 2), .what = advice::set_read_mostly, .why = reason::learned});
  CHECK(b.memory.advised.empty());
  b.plan(driver_hint{.blocks = blocks(0, 2), .what = advice::set_accessed_by, .why = reason::learned});
  CHECK(b.memory.advised == strings{"other 0+2"});
  b.e->advise(blocks(4, 2), advice::set_read_mostly, location::device());
  b.e->pump();
  CHECK(b.memory.advised.back() == "duplicate 4+2");
  b.launch({{blocks(0, 8), access::update}});
  b.e->pump();
  CHECK(b.memory.advised.back() == "unite 4+2");
}

TEST_CASE("advice that fails is counted, and nothing is believed to be read-mostly") {
  bench b(16, 4);
  CHECK(b.e->live(blocks(0, 16)));
  b.memory.refuse_advice = true;
  b.plan(driver_hint{.blocks = blocks(0, 2), .what = advice::set_read_mostly, .why = reason::learned});
  b.memory.refuse_advice = false;
  b.launch({{blocks(0, 2), access::update}});
  b.e->pump();
  CHECK(b.memory.advised == strings{"duplicate 0+2"});
  CHECK(b.e->snapshot().failed_calls == 1);
}

TEST_CASE("the memory chooses how much it is given at a time, unless the options do") {
  const auto given = [](engine_options options) {
    bench b(64, 64, options);
    CHECK(b.e->live(blocks(0, 64)));
    b.policy.plans.push_back({});
    for (std::uint32_t i = 0; i < 8; ++i) {
      b.policy.plans.back().transfers.push_back(
          transfer::prefetch(location::device(), reason::learned, blocks(i * 4, i == 0 ? 1 : 2)));
    }
    b.e->pump();
    std::string s;
    for (const fake_memory::call& c : b.memory.calls) {
      s += text(c.range) + " ";
    }
    return s;
  };
  CHECK(given({}) == "0+1 4+2 8+2 ");  // three commands, five blocks
  CHECK(given({.commands_in_flight = 2}) == "0+1 4+2 ");
  CHECK(given({.commands_in_flight = 9}) == "0+1 4+2 8+2 ");  // the memory's five blocks
  CHECK(given({.bytes_in_flight = 2 * block_size}) == "0+1 4+1 ");
}

TEST_CASE("a feed that is lost is worth one line") {
  std::vector<std::string> log;
  engine_options options;
  options.budget = block_size * 4;
  options.log = [&](std::string_view line) { log.emplace_back(line); };
  managed_fake_memory memory(8);
  scripted_policy::script script;
  engine e(memory, std::make_unique<scripted_policy>(script), options);
  const stream_id s = e.open_stream({});
  for (int i = 0; i < 3; ++i) {
    memory.sees = i == 0;
    launch_record record;
    record.stream = s;
    memory.finish(e.submit(std::move(record)));
    e.pump();
    e.pump();
  }
  CHECK(log == strings{"the fault feed is lost; what launches do not declare is not learned any more"});
}

}  // namespace managed_engine_test
