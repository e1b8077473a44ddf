#include "driver.hpp"
#include <deepum/policy/lru.hpp>

#include <doctest/doctest.h>

namespace lru_test {

using namespace deepum_test;

std::vector<std::uint32_t> left_by(const std::vector<transfer>& commands) {
  std::vector<std::uint32_t> all;
  for (const transfer& c : commands) {
    for (std::uint32_t b = c.blocks.begin_value(); b != c.blocks.end_value(); ++b) {
      if (to_string(c) != "prefetch") all.push_back(b);
    }
  }
  return all;
}

struct fixture {
  fixture() {
    d.make_live(blocks(0, 16));
    d.host_writes(blocks(0, 16));
  }
  lru_policy p;
  driver d{p, 16, 4};
};

TEST_CASE_FIXTURE(fixture, "what an issued launch declares is brought, and nothing else") {
  d.run(honest("k", {reads(3, 2)}));
  CHECK(d.faults == 0);
  CHECK(d.blocks_in == 2);
  d.run(honest("k", {reads(3, 2)}));
  d.run(honest("k", {reads(3, 2)}));
  CHECK(d.blocks_in == 2);
  CHECK(left_by(d.transfers).empty());
}

TEST_CASE_FIXTURE(fixture, "what was used least recently makes room, whatever came first") {
  d.run(honest("k", {reads(0)}));
  d.run(honest("k", {reads(1)}));
  d.run(honest("k", {reads(2, 2)}));
  d.run(honest("k", {reads(0)}));  // used again
  d.run(honest("k", {reads(8, 2)}));
  CHECK(left_by(d.transfers) == std::vector<std::uint32_t>{1, 2});
  d.run(honest("k", {reads(9)}));
  d.run(honest("k", {reads(10, 2)}));
  CHECK(left_by(d.transfers) == std::vector<std::uint32_t>{1, 2, 3, 0});
}

TEST_CASE_FIXTURE(fixture, "what launches in flight use stays") {
  d.issue(honest("k", {reads(0, 2)}));
  d.issue(honest("k", {reads(2, 2)}));
  d.issue(honest("k", {reads(4, 2)}));
  CHECK(left_by(d.transfers).empty());
  d.execute();
  CHECK(left_by(d.transfers) == std::vector<std::uint32_t>{0, 1});
  CHECK(d.map.ready(block_id{4}));
  d.execute();
  d.execute();
  CHECK(d.faults == 0);
}

TEST_CASE_FIXTURE(fixture, "dead contents make room before all others, and are not copied") {
  d.run(honest("k", {updates(0, 2)}));
  d.run(honest("k", {updates(2, 2)}));
  d.make_dead(blocks(3));
  d.run(honest("k", {reads(8)}));
  REQUIRE(left_by(d.transfers) == std::vector<std::uint32_t>{3});
  CHECK(d.blocks_out == 0);
  d.run(honest("k", {reads(9)}));
  CHECK(left_by(d.transfers) == std::vector<std::uint32_t>{3, 0});
  CHECK(d.lost.empty());
}

TEST_CASE_FIXTURE(fixture, "a launch is held back until what it declares is there") {
  d.automatic = false;
  const launch_id l = d.issue(honest("k", {reads(5, 2)}));
  CHECK_FALSE(p.ready(l, stream_id{0}, d.map));
  d.automatic = true;
  d.pump();
  CHECK(p.ready(l, stream_id{0}, d.map));
  CHECK(p.holds_launches());
  policy_options never;
  never.hold_launches = false;
  CHECK_FALSE(lru_policy(never).holds_launches());
}

TEST_CASE("dead contents are forgotten where they are away, and on the device when no launch may use them") {
  block_ledger map(8, location::device(), 8, um_grid);
  for (std::uint32_t b = 0; b != 6; ++b) {
    map.write_on_host(block_id{b});
    if (b >= 3) map.arrive(block_id{b}, false);  // 3, 4, 5 are on the device; 6 and 7 nowhere
  }
  map.add_user(block_id{1}, deepum::access::read);
  map.add_user(block_id{4}, deepum::access::read);
  map.set_liveness(block_id{2}, liveness::live);  // alive again
  map.set_liveness(block_id{5}, liveness::live);
  detail::dead_blocks dead;
  const auto ask = [&] {
    plan out;
    dead.forget_elsewhere(map, out);
    (void)dead.give_room(map, 8, out);
    std::vector<std::uint32_t> all;
    for (const transfer& c : out.transfers) {
      CHECK(to_string(c) == "discard");
      CHECK(c.why == reason::dead);
      for (std::uint32_t b = c.blocks.begin_value(); b != c.blocks.end_value(); ++b) {
        all.push_back(b);
        map.discard(block_id{b});
      }
    }
    return all;
  };
  dead.note(blocks(0, 3));
  dead.note(blocks(3, 5));
  CHECK(ask() == std::vector<std::uint32_t>{0, 3});
  CHECK(ask().empty());
  map.remove_user(block_id{1}, deepum::access::read);
  map.remove_user(block_id{4}, deepum::access::read);
  CHECK(ask() == std::vector<std::uint32_t>{1, 4});
  CHECK(ask().empty());
}

TEST_CASE("what is dead on the device gives as much room as is asked for, and none where it is in use again") {
  block_ledger map(8, location::device(), 8, um_grid);
  for (std::uint32_t b = 0; b != 8; ++b) {
    map.arrive(block_id{b}, false);
  }
  detail::dead_blocks dead;
  const auto room_of = [&](std::size_t count) {
    plan out;
    dead.forget_elsewhere(map, out);
    std::vector<std::uint32_t> all;
    CHECK(dead.give_room(map, count, out) <= count);
    for (const transfer& c : out.transfers) {
      for (std::uint32_t b = c.blocks.begin_value(); b != c.blocks.end_value(); ++b) {
        all.push_back(b);
        map.discard(block_id{b});
      }
    }
    return all;
  };
  dead.note(blocks(4, 3));
  CHECK(room_of(0).empty());
  dead.note(blocks(0, 3));
  CHECK(room_of(2) == std::vector<std::uint32_t>{4, 5});  // they died first
  map.set_liveness(block_id{6}, liveness::live);
  map.set_liveness(block_id{0}, liveness::live);
  CHECK(room_of(1) == std::vector<std::uint32_t>{1});
  map.set_liveness(block_id{6}, liveness::inactive);
  dead.note(blocks(6, 1));
  CHECK(room_of(8) == std::vector<std::uint32_t>{2, 6});
  CHECK(room_of(8).empty());
}

}  // namespace lru_test
