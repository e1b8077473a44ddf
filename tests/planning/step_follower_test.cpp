#include <deepum/planning/step_follower.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <set>
#include <vector>

namespace step_follower_test {

using namespace deepum;
using deepum::access;  // not the one of POSIX

constexpr std::uint32_t launches = 40;
constexpr std::uint32_t blocks_each = 16;
constexpr std::uint32_t room = 320;  // half of the blocks

block_range blocks_of(std::uint32_t launch) { return {block_id{launch * blocks_each}, blocks_each}; }

// A step that reads everything once, in order, and what is known of it. Plans are carried out block by block.
struct followed_step {
  explicit followed_step(block_grid grid = um_grid) : map(launches * blocks_each, location::device(), room, grid) {
    for (std::uint32_t b = 0; b != map.size(); ++b) {
      map.set_liveness(block_id{b}, liveness::live);
      map.write_on_host(block_id{b});
    }
  }

  static step_description step() {
    step_description s;
    for (std::uint32_t k = 0; k != launches; ++k) {
      s.add_launch(nanoseconds{100});
      s.add_use(blocks_of(k), access::read);
    }
    return s;
  }

  void write(std::size_t issued = 1) {
    wanted.clear();
    leaving.clear();
    plan p;
    follower.write(map, issued, 1, dead, p);
    for (const transfer& c : p.transfers) {
      for (std::uint32_t b = c.blocks.begin_value(); b != c.blocks.end_value(); ++b) {
        CHECK((to_string(c) == "prefetch" ? wanted : leaving).insert(b).second);
      }
    }
  }
  void bring(std::uint32_t count) {
    for (; count != 0 && !wanted.empty(); --count) {
      const block_id b{*wanted.begin()};
      wanted.erase(wanted.begin());
      map.start_arriving(b);
      map.arrive(b, true);
      follower.arrived({b, 1});
    }
  }
  void take_away(block_id b) {
    map.start_leaving(b);
    map.depart(b);
    follower.left({b, 1});
    follower.look_again({b, 1});
  }

  block_ledger map;
  step_follower follower{step(), {room, nanoseconds{10}, nanoseconds{10}}, 0, map};
  detail::dead_blocks dead{};
  std::set<std::uint32_t> wanted{};
  std::set<std::uint32_t> leaving{};
};

TEST_CASE("a plan that asked for enough stands until half of it has come") {
  followed_step s;
  CHECK(s.follower.wants_to_write(s.map, 1));
  s.write();
  CHECK(s.wanted.size() == 64);
  CHECK_FALSE(s.follower.wants_to_write(s.map, 1));
  s.bring(31);
  CHECK_FALSE(s.follower.wants_to_write(s.map, 1));
  s.bring(1);
  CHECK(s.follower.wants_to_write(s.map, 1));
}

TEST_CASE("what is enough is counted in bytes: of larger blocks there are fewer") {
  followed_step s(block_grid{16_MiB});
  s.write();
  CHECK(s.wanted.size() == 8);
  s.bring(3);
  CHECK_FALSE(s.follower.wants_to_write(s.map, 1));
  s.bring(1);
  CHECK(s.follower.wants_to_write(s.map, 1));
}

TEST_CASE("blocks are copied out ahead 32 MiB at a time, in two commands, and one where that is all there can be") {
  struct {
    std::uint64_t mib;
    std::uint32_t blocks;
    std::size_t commands;
  } const expected[] = {{2, 16, 2}, {16, 2, 2}, {32, 1, 1}};
  for (const auto& e : expected) {
    CAPTURE(e.mib);
    // Three tensors, of which two fit: each is written, and read once more before it makes room.
    block_ledger map(96, location::device(), 64, block_grid{bytes{e.mib << 20}});
    map.set_keeps_home_copy(true);
    step_description step;
    for (std::uint32_t k = 0; k != 12; ++k) {
      step.add_launch(nanoseconds{33});
      if (k % 4 == 0 || k % 4 == 3) {
        step.add_use({block_id{k / 4 * 32}, 32}, k % 4 == 0 ? access::update : access::read);
      }
    }
    for (std::uint32_t b = 0; b != 96; ++b) {
      map.set_liveness(block_id{b}, liveness::live);
      map.write_on_host(block_id{b});
    }
    for (std::uint32_t b = 0; b != 64; ++b) {
      map.start_arriving(block_id{b});
      map.arrive(block_id{b}, false);
      map.write(block_id{b});
    }
    step_follower follower(step, {64, nanoseconds{1'000'000}, nanoseconds{1'000'000}}, 0, map);
    detail::dead_blocks dead;
    std::uint32_t blocks = 0;
    std::size_t commands = 0;
    for (std::uint32_t k = 0; k != 48 && commands == 0; ++k) {
      plan p;
      follower.write(map, 1, 1, dead, p);
      for (const transfer& c : p.transfers) {
        for (std::uint32_t b = c.blocks.begin_value(); b != c.blocks.end_value(); ++b) {
          if (to_string(c) == "evict") {
            map.start_leaving(block_id{b});
            map.depart(block_id{b});
            follower.left({block_id{b}, 1});
            follower.look_again({block_id{b}, 1});
          } else if (to_string(c) == "prefetch") {
            map.start_arriving(block_id{b});
            map.arrive(block_id{b}, true);
            map.write(block_id{b});
            follower.arrived({block_id{b}, 1});
          }
        }
        blocks += to_string(c) == "clean" ? c.blocks.count : 0;
        commands += to_string(c) == "clean" ? 1 : 0;
      }
      if (k % 4 == 3) {
        follower.advance();
      }
    }
    CHECK(blocks == e.blocks);
    CHECK(commands == e.commands);
  }
}

// Each launch overwrites so many blocks, whose contents are dead behind it.
step_description step_of_overwrites(std::uint32_t count, std::uint32_t each) {
  step_description step;
  for (std::uint32_t k = 0; k != count; ++k) {
    step.add_launch(nanoseconds{1});
    step.add_use({block_id{each * k}, each}, access::overwrite);
    step.add_last_use({block_id{each * k}, each});
  }
  return step;
}

TEST_CASE(
    "room for what launches write first comes four launches ahead, and is urgent for those that are issued alone") {
  constexpr std::uint32_t count = 12;
  block_ledger map(4 * count, location::device(), 24, um_grid);
  for (std::uint32_t b = 0; b != map.size(); ++b) {
    map.set_liveness(block_id{b}, liveness::inactive);
  }
  step_follower follower(step_of_overwrites(count, 4), {24, nanoseconds{1}, nanoseconds{1}}, 0, map);
  detail::dead_blocks dead;
  const auto write = [&](std::size_t issued) {
    plan p;
    follower.write(map, issued, std::min<std::size_t>(issued, 1), dead, p);
    std::vector<std::uint32_t> blocks_for(2);
    for (const transfer& c : p.transfers) {
      CHECK(to_string(c) == "prefetch");
      blocks_for[c.why == reason::issued ? 0 : 1] += c.blocks.count;
      for (std::uint32_t b = c.blocks.begin_value(); b != c.blocks.end_value(); ++b) {
        map.start_arriving(block_id{b});
      }
    }
    return blocks_for;
  };
  CHECK(write(0) == std::vector<std::uint32_t>{0, 0});
  for (std::uint32_t b = 0; b != 4; ++b) {
    map.set_liveness(block_id{b}, liveness::live);
  }
  follower.issued(0);
  CHECK(write(1) == std::vector<std::uint32_t>{4, 16});
  follower.issued(1);
  CHECK(write(2) == std::vector<std::uint32_t>{0, 4});
  CHECK(write(2) == std::vector<std::uint32_t>{0, 0});
}

TEST_CASE("nothing leaves for a launch whose room is there when the contents of the one before it die") {
  // Two launches with scratch memory of their own, and weights that the third one uses, and the fourth one others.
  constexpr std::uint32_t each = 16;
  const block_range first{block_id{0}, each};
  const block_range second{block_id{each}, each};
  const block_range weights{block_id{2 * each}, each};
  const block_range more{block_id{3 * each}, each};
  for (const bool dies : {true, false}) {
    CAPTURE(dies);
    step_description step;
    for (const block_range blocks : {first, second}) {
      step.add_launch(nanoseconds{1});
      step.add_use(blocks, access::overwrite);
      if (dies || blocks.first != first.first) {
        step.add_last_use(blocks);
      }
    }
    for (const block_range blocks : {weights, more}) {
      step.add_launch(nanoseconds{1});
      step.add_use(blocks, access::read);
    }
    block_ledger map(4 * each, location::device(), 2 * each, um_grid);
    for (std::uint32_t b = 0; b != map.size(); ++b) {
      map.set_liveness(block_id{b}, liveness::live);
      map.write_on_host(block_id{b});
    }
    step_follower follower(step, {2 * each, nanoseconds{1}, nanoseconds{1}}, 0, map);
    for (const block_range there : {first, weights}) {
      for (const block_id b : there) {
        map.start_arriving(b);
        map.arrive(b, false);
        follower.arrived({b, 1});
      }
    }
    follower.issued(0);
    follower.issued(1);
    detail::dead_blocks dead;
    plan p;
    follower.write(map, 2, 2, dead, p);
    const auto leave = std::count_if(p.transfers.begin(), p.transfers.end(),
                                     [](const transfer& c) { return to_string(c) == "evict"; });
    CHECK((leave == 0) == dies);
  }
}

// What leaves behind the first launch of a step, where the first blocks have been on the device until then.
std::vector<block_range> leaving_behind_first(const step_description& step, std::uint32_t budget, block_ledger& map,
                                              std::uint32_t there) {
  for (std::uint32_t b = 0; b != map.size(); ++b) {
    map.set_liveness(block_id{b}, liveness::live);
    map.write_on_host(block_id{b});
  }
  step_follower follower(step, {budget, nanoseconds{1}, nanoseconds{1}}, 0, map);
  for (std::uint32_t b = 0; b != there; ++b) {
    map.start_arriving(block_id{b});
    map.arrive(block_id{b}, false);
    follower.arrived({block_id{b}, 1});
  }
  follower.advance();
  detail::dead_blocks dead;
  plan p;
  follower.write(map, 1, 1, dead, p);
  std::vector<block_range> leaving;
  for (const transfer& c : p.transfers) {
    if (to_string(c) == "evict") {
      leaving.push_back(c.blocks);
    }
  }
  return leaving;
}
step_description step_of_updates(const std::vector<block_range>& updated) {
  step_description step;
  for (const block_range blocks : updated) {
    step.add_launch(nanoseconds{1});
    step.add_use(blocks, access::update);
  }
  return step;
}

TEST_CASE("what leaves does so 16 MiB at a time, so that what waits for its room can come") {
  // Two tensors of 48 blocks take turns on a device that has room for one and a half.
  block_ledger map(96, location::device(), 72, um_grid);
  std::vector<std::uint32_t> leaving;
  for (const block_range blocks :
       leaving_behind_first(step_of_updates({{block_id{0}, 48}, {block_id{48}, 48}}), 72, map, 72)) {
    leaving.push_back(blocks.count);
  }
  CHECK(leaving == std::vector<std::uint32_t>{8, 8, 8});
}

TEST_CASE("what leaves together does so in the order of addresses, not in that of need: neighbours make one copy") {
  // Of the first eight blocks those that come first are needed first, and none may stay beside the other eight.
  block_ledger map(16, location::device(), 10, um_grid);
  const step_description step =
      step_of_updates({{block_id{0}, 8}, {block_id{8}, 8}, {block_id{0}, 4}, {block_id{4}, 4}});
  CHECK(leaving_behind_first(step, 8, map, 8) == std::vector<block_range>{{block_id{0}, 8}});
}

TEST_CASE("a whole step that is issued ahead drives nothing out that the plan keeps") {
  // Blocks that come in the third step, if so many launches are issued, of one stream.
  const auto blocks_of_a_step = [](std::size_t issued) {
    followed_step s;
    std::uint32_t came = 0;
    for (std::uint32_t k = 0; k != 3 * launches; ++k) {
      came = k == 2 * launches ? 0 : came;
      const block_range needed = blocks_of(k % launches);
      const auto all_there = [&] {
        bool all = true;
        for (std::uint32_t b = needed.begin_value(); b != needed.end_value(); ++b) {
          all = all && s.map.resident(block_id{b});
        }
        return all;
      };
      for (int tries = 0; !all_there(); ++tries) {
        REQUIRE(tries != 100);
        s.write(issued);
        for (const std::uint32_t b : s.leaving) {
          s.take_away(block_id{b});
        }
        came += static_cast<std::uint32_t>(s.wanted.size());
        s.bring(64);
      }
      s.follower.advance();
    }
    return came;
  };
  const std::uint32_t least = blocks_of_a_step(1);
  CHECK(least < launches * blocks_each);
  CHECK(blocks_of_a_step(launches) == least);
  CHECK(blocks_of_a_step(3 * launches) == least);
}

TEST_CASE("of a step that is issued ahead, the first sixteen launches get room for what they write first") {
  constexpr std::uint32_t count = 40;
  block_ledger map(2 * count, location::device(), 70, um_grid);
  for (std::uint32_t b = 0; b != map.size(); ++b) {
    map.set_liveness(block_id{b}, liveness::live);  // the host has said so, as it does when it issues
  }
  step_follower follower(step_of_overwrites(count, 2), {70, nanoseconds{1}, nanoseconds{1}}, 0, map);
  detail::dead_blocks dead;
  const auto end_of_room = [&] {
    plan p;
    follower.write(map, count, 1, dead, p);
    std::uint32_t end = 0;
    for (const transfer& c : p.transfers) {
      end = std::max(end, c.blocks.end_value());
    }
    return end / 2;
  };
  CHECK(end_of_room() == 16 + 4);
  follower.advance();
  CHECK(end_of_room() == 1 + 16 + 4);
}

TEST_CASE("a plan stands no longer where something has turned up that it did not know of") {
  followed_step s;
  s.write();
  s.bring(20);
  REQUIRE_FALSE(s.follower.wants_to_write(s.map, 1));
  SUBCASE("a block is gone that was there for the executing launch") {
    s.take_away(block_id{3});
    CHECK(s.follower.wants_to_write(s.map, 1));
    s.write();
    CHECK(s.wanted.count(3) == 1);
    CHECK_FALSE(s.follower.wants_to_write(s.map, 1));
  }
  SUBCASE("a launch is issued that misses only what has been asked for") {
    s.follower.issued(2);
    CHECK_FALSE(s.follower.wants_to_write(s.map, 3));
  }
  SUBCASE("a fault") {
    s.follower.surprised();
    CHECK(s.follower.wants_to_write(s.map, 1));
  }
  SUBCASE("another budget") {
    s.map.set_budget(room - 1);
    CHECK(s.follower.wants_to_write(s.map, 1));
  }
  SUBCASE("commands that never do anything") {
    int stood = 0;
    for (; stood != 20 && !s.follower.wants_to_write(s.map, 1); ++stood) {
      s.follower.advance();
    }
    CHECK(stood <= 8);
  }
}

TEST_CASE("what a launch did without is fetched for the next one that uses it") {
  followed_step s;
  s.write();
  REQUIRE(s.wanted.count(0) == 1);
  for (std::uint32_t k = 0; k != launches; ++k) {
    CHECK(s.follower.position() == k);
    s.follower.advance();
    s.write();
    CHECK(s.wanted.count((k + 1) % launches * blocks_each) == 1);
    s.wanted.clear();
  }
}

TEST_CASE("blocks are asked for in the order of need, each once, until all that may come has") {
  followed_step s;
  std::uint32_t come = 0;
  for (;;) {
    s.write();
    if (s.wanted.empty()) {
      break;
    }
    REQUIRE(*s.wanted.begin() == come);
    come += static_cast<std::uint32_t>(s.wanted.size());
    REQUIRE(*s.wanted.rbegin() == come - 1);
    s.bring(64);
  }
  CHECK(come == s.map.occupied());
  CHECK(come <= room);
  CHECK(come > 64);
}

}  // namespace step_follower_test
