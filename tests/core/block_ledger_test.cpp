#include "../support/test_scale.hpp"
#include <deepum/core/block_ledger.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <random>
#include <vector>

namespace block_ledger_test {

using namespace deepum;

std::vector<std::uint32_t> migration_order(const block_map& map) {
  std::vector<std::uint32_t> order;
  map.for_each_least_recently_migrated([&](block_id b) {
    order.push_back(b.value);
    return true;
  });
  return order;
}

using order = std::vector<std::uint32_t>;

constexpr location home = location::host();
constexpr location here = location::device(0);
constexpr location beside = location::device(1);

/// Launches run on the first of two devices.
block_ledger two_devices(std::uint32_t blocks = 4) {
  constexpr std::array<std::uint32_t, 2> budgets{3, 2};
  return {blocks, here, budgets, um_grid};
}

TEST_CASE("a new block map holds nothing on the device") {
  const block_ledger map{8, location::device(), 5, um_grid};
  CHECK(map.size() == 8);
  CHECK(map.budget() == 5);
  CHECK(map.room() == 5);
  CHECK(map.occupied() == 0);
  CHECK(migration_order(map).empty());
  CHECK_FALSE(map.present(block_id{0}));
  CHECK(map[block_id{0}].copies.empty());
  CHECK(map[block_id{0}].life == liveness::unallocated);
  CHECK(map[block_id{0}].migrated_at == 0);
}

TEST_CASE("a block map knows how many of its blocks make up some memory, one at least") {
  const block_ledger usual{4, location::device(), 4, um_grid};
  CHECK(usual.grid() == um_grid);
  CHECK(usual.blocks_in(64_MiB) == 32);
  CHECK(usual.blocks_in(5_MiB) == 2);
  CHECK(usual.blocks_in(1_MiB) == 1);
  const block_ledger large{4, location::device(), 4, block_grid{16_MiB}};
  CHECK(large.grid() == block_grid{16_MiB});
  CHECK(large.blocks_in(64_MiB) == 4);
  CHECK(large.blocks_in(15_MiB) == 1);
}

TEST_CASE("a block takes room from the moment its arrival is commanded, and once") {
  block_ledger map{4, location::device(), 4, um_grid};
  map.start_arriving(block_id{1});
  CHECK(map.present(block_id{1}));
  CHECK_FALSE(map.resident(block_id{1}));
  CHECK(map.occupied() == 1);
  map.arrive(block_id{1}, false);
  CHECK(map.resident(block_id{1}));
  CHECK(map[block_id{1}].moving == motion::none);
  CHECK(map.occupied() == 1);
  map.arrive(block_id{1}, false);
  CHECK(map.occupied() == 1);

  map.start_arriving(block_id{2});
  map.cancel_arriving(block_id{2});
  CHECK_FALSE(map.present(block_id{2}));
  CHECK(map.occupied() == 1);
}

TEST_CASE("a block that arrives through a fault takes room without a command") {
  block_ledger map{4, location::device(), 4, um_grid};
  map.arrive(block_id{3}, false);
  CHECK(map.occupied() == 1);
  CHECK(map.resident(block_id{3}));
}

TEST_CASE("there is no room, rather than less than none, above the budget") {
  block_ledger map{4, location::device(), 1, um_grid};
  map.arrive(block_id{0}, false);
  map.arrive(block_id{1}, false);
  CHECK(map.room() == 0);
  map.set_budget(3);
  CHECK(map.room() == 1);
}

TEST_CASE("blocks are in the order of their last migration") {
  block_ledger map{8, location::device(), 8, um_grid};
  for (const std::uint32_t b : {5U, 2U, 7U}) {
    map.arrive(block_id{b}, false);
  }
  CHECK(migration_order(map) == order{5, 2, 7});
  map.touch_migrated(block_id{5});
  CHECK(migration_order(map) == order{2, 7, 5});
  map.depart(block_id{7});
  CHECK(migration_order(map) == order{2, 5});
  map.arrive(block_id{7}, false);
  CHECK(migration_order(map) == order{2, 5, 7});
  CHECK(map[block_id{2}].migrated_at < map[block_id{5}].migrated_at);
  CHECK(map[block_id{5}].migrated_at < map[block_id{7}].migrated_at);
}

TEST_CASE("the walk in the order of migration ends when its visitor has enough") {
  block_ledger map{4, location::device(), 4, um_grid};
  for (const std::uint32_t b : {3U, 1U, 0U}) {
    map.arrive(block_id{b}, false);
  }
  order seen;
  map.for_each_least_recently_migrated([&](block_id b) {
    seen.push_back(b.value);
    return seen.size() < 2;
  });
  CHECK(seen == order{3, 1});
}

TEST_CASE("the visitor of the walk may give the visited block up") {
  block_ledger map{4, location::device(), 4, um_grid};
  for (const std::uint32_t b : {3U, 1U, 0U}) {
    map.arrive(block_id{b}, false);
  }
  order seen;
  map.for_each_least_recently_migrated([&](block_id b) {
    seen.push_back(b.value);
    map.depart(b);
    return true;
  });
  CHECK(seen == order{3, 1, 0});
  CHECK(map.occupied() == 0);
}

TEST_CASE("contents are where the last copy, write or discard left them") {
  block_ledger map{2, location::device(), 2, um_grid};
  const block_id b{0};
  const location host = location::host();
  const location device = location::device();

  map.write_on_host(b);
  CHECK(map[b].copies.only_at(host));

  map.arrive(b, true);
  CHECK(map[b].copies.at(host));
  CHECK(map[b].copies.at(device));
  CHECK_FALSE(map[b].dirty);

  map.write(b);
  CHECK(map[b].copies.only_at(device));
  CHECK(map[b].dirty);

  map.start_cleaning(b);
  CHECK(map[b].moving == motion::cleaning);
  map.clean(b);
  CHECK(map[b].copies.at(host));
  CHECK(map[b].copies.at(device));
  CHECK_FALSE(map[b].dirty);
  CHECK(map[b].moving == motion::none);

  map.drop(b);
  CHECK(map[b].copies.only_at(host));

  map.arrive(b, false);
  CHECK(map[b].copies.only_at(device));
  CHECK(map[b].dirty);

  map.start_leaving(b);
  CHECK(map.present(b));
  map.depart(b);
  CHECK(map[b].copies.only_at(host));
  CHECK_FALSE(map[b].dirty);
  CHECK(map[b].moving == motion::none);

  map.arrive(b, false);
  map.discard(b);
  CHECK(map[b].copies.empty());
  CHECK_FALSE(map.present(b));
}

TEST_CASE("a block that a fault brought in is partial until all of it arrives, or it leaves") {
  block_ledger map{2, location::device(), 2, um_grid};
  const block_id b{0};
  CHECK_FALSE(map.ready(b));
  map.arrive(b, false, false);
  CHECK(map.resident(b));
  CHECK(map[b].partial);
  CHECK_FALSE(map.ready(b));
  SUBCASE("more of its pages do not make it whole") {
    map.arrive(b, false, false);
    CHECK(map[b].partial);
  }
  SUBCASE("the rest does") {
    map.arrive(b, false);
    CHECK_FALSE(map[b].partial);
    CHECK(map.ready(b));
    map.arrive(b, false, false);
    CHECK(map.ready(b));  // what was there as a whole stays so
  }
  SUBCASE("a write does not") {
    map.write(b);
    CHECK(map[b].partial);
  }
  SUBCASE("it leaves, and comes back as a whole") {
    SUBCASE("with its contents") { map.depart(b); }
    SUBCASE("without them") { map.discard(b); }
    SUBCASE("dropped") { map.drop(b); }
    CHECK_FALSE(map[b].partial);
    map.start_arriving(b);
    map.arrive(b, false);
    CHECK(map.ready(b));
  }
  SUBCASE("it leaves, and comes back in part, while a prefetch of it is under way") {
    map.depart(b);
    map.start_arriving(b);
    map.arrive(b, false, false);
    CHECK(map[b].partial);
    CHECK(map.occupied() == 1);
  }
}

TEST_CASE("a block is ready for a launch when it is on the device and stays there") {
  block_ledger map{2, location::device(), 2, um_grid};
  const block_id b{0};
  map.start_arriving(b);
  CHECK_FALSE(map.ready(b));
  map.arrive(b, false);
  CHECK(map.ready(b));
  map.start_cleaning(b);
  CHECK(map.ready(b));
  map.stop_moving(b);
  map.start_leaving(b);
  CHECK(map.resident(b));
  CHECK_FALSE(map.ready(b));
  map.stop_moving(b);
  CHECK(map.ready(b));
}

TEST_CASE("a block counts the launches in flight that declare it, and those that declare to write it") {
  block_ledger map{2, location::device(), 2, um_grid};
  map.add_user(block_id{1}, deepum::access::read);
  map.add_user(block_id{1}, deepum::access::update);
  map.add_user(block_id{1}, deepum::access::overwrite);
  CHECK(map[block_id{1}].users == 3);
  CHECK(map[block_id{1}].writers == 2);
  map.remove_user(block_id{1}, deepum::access::update);
  CHECK(map[block_id{1}].users == 2);
  CHECK(map[block_id{1}].writers == 1);
  map.remove_user(block_id{1}, deepum::access::read);
  CHECK(map[block_id{1}].users == 1);
  CHECK(map[block_id{1}].writers == 1);
  CHECK(map[block_id{0}].users == 0);
}

TEST_CASE("a block map knows whether the host's copies stay") {
  block_ledger map{2, location::device(), 2, um_grid};
  CHECK_FALSE(map.keeps_home_copy());
  map.set_keeps_home_copy(true);
  CHECK(map.keeps_home_copy());
}

TEST_CASE("room for new contents holds none until they are written") {
  block_ledger map{4, location::device(), 4, um_grid};
  const block_id b{0};
  map.start_arriving(b);
  map.arrive_empty(b);
  CHECK(map.occupied() == 1);
  CHECK(map.ready(b));
  CHECK(map[b].copies.empty());
  CHECK_FALSE(map[b].dirty);
  CHECK(map[b].moving == motion::none);
  CHECK(migration_order(map) == order{0});
  SUBCASE("by a launch") {
    map.write(b);
    CHECK(map[b].copies.only_at(location::device()));
    CHECK(map[b].dirty);
  }
  SUBCASE("by the host, which does not make the device's room hold them") {
    map.write_on_host(b);
    CHECK(map[b].copies.only_at(location::host()));
    map.depart(b);
    CHECK(map[b].copies.only_at(location::host()));
  }
  SUBCASE("or not at all") {
    map.depart(b);
    CHECK(map[b].copies.empty());
    CHECK(map.occupied() == 0);
    map.arrive_empty(b);  // through a fault
    CHECK(map.occupied() == 1);
  }
}

TEST_CASE("contents on the host can be forgotten") {
  block_ledger map{4, location::device(), 4, um_grid};
  const block_id b{0};
  map.write_on_host(b);
  map.forget(b);
  CHECK(map[b].copies.empty());
  map.start_arriving(b);
  CHECK(map[b].copies.empty());
}

TEST_CASE("random migrations leave the room taken and the order of migration as a plain list has them") {
  for (std::uint64_t seed = 1; seed <= deepum_test::scaled(40); ++seed) {
    CAPTURE(seed);
    std::mt19937_64 random{seed};
    const auto size = static_cast<std::uint32_t>(1 + random() % 24);
    block_ledger map{size, location::device(static_cast<unsigned>(random() % 3)), size / 2, um_grid};
    order resident;
    std::vector<bool> arriving(size, false);
    std::vector<bool> partial(size, false);

    for (int step = 0; step < 400; ++step) {
      const auto b = static_cast<std::uint32_t>(random() % size);
      const block_id block{b};
      const auto place = std::find(resident.begin(), resident.end(), b);
      const bool is_resident = place != resident.end();
      switch (random() % 8) {
        case 0:
          if (!is_resident && !arriving[b]) {
            map.start_arriving(block);
            arriving[b] = true;
          }
          break;
        case 1:
          if (arriving[b]) {
            map.cancel_arriving(block);
            arriving[b] = false;
          }
          break;
        case 2:
        case 3: {
          const bool whole = random() % 2 != 0;
          map.arrive(block, random() % 2 != 0, whole);
          arriving[b] = false;
          partial[b] = !whole && (partial[b] || !is_resident);
          if (is_resident) {
            resident.erase(place);
          }
          resident.push_back(b);
          break;
        }
        case 4:
          if (is_resident) {
            map.touch_migrated(block);
            resident.erase(place);
            resident.push_back(b);
          }
          break;
        case 5:
          if (is_resident) {
            map.write(block);
            map.start_cleaning(block);
            if (random() % 2 != 0) {
              map.clean(block);
            } else {
              map.stop_moving(block);
            }
          }
          break;
        default: {
          const auto how = random() % 3;
          if (is_resident && random() % 2 != 0) {
            map.start_leaving(block);
          }
          if (how == 0) {
            map.depart(block);
          } else if (how == 1) {
            map.drop(block);
          } else {
            map.discard(block);
          }
          arriving[b] = partial[b] = false;
          if (is_resident) {
            resident.erase(place);
          }
          break;
        }
      }

      std::uint32_t present = 0;
      for (std::uint32_t i = 0; i < size; ++i) {
        const bool in_list = std::find(resident.begin(), resident.end(), i) != resident.end();
        REQUIRE(map.resident(block_id{i}) == in_list);
        REQUIRE(map.present(block_id{i}) == (in_list || arriving[i]));
        REQUIRE(map[block_id{i}].partial == partial[i]);
        REQUIRE(map.ready(block_id{i}) == (in_list && !partial[i] && map[block_id{i}].moving != motion::leaving));
        REQUIRE((!map[block_id{i}].dirty || map[block_id{i}].copies.only_at(map.device())));
        present += map.present(block_id{i}) ? 1 : 0;
      }
      REQUIRE(map.occupied() == present);
      REQUIRE(map.room() == (present < map.budget() ? map.budget() - present : 0));
      REQUIRE(migration_order(map) == resident);
      for (std::size_t i = 1; i < resident.size(); ++i) {
        REQUIRE(map[block_id{resident[i - 1]}].migrated_at < map[block_id{resident[i]}].migrated_at);
      }
    }
  }
}

TEST_CASE("a block is in one state at each place, and each place has a ledger of its own") {
  block_ledger map = two_devices();
  const block_id b{1};
  CHECK(map.places() == 3);
  map.write_on_host(b);
  CHECK(map.state(b, home) == copy_state::current);
  map.start_arriving(b, beside, home);
  CHECK(map.state(b, beside) == copy_state::arriving);
  CHECK(map.occupied(beside) == 1);
  CHECK(map.occupied() == 0);
  map.arrive_at(b, beside);
  CHECK(map.state(b, beside) == copy_state::current);
  map.start_arriving(b, here, beside);
  CHECK(map.of(b).read_at(beside));
  CHECK_FALSE(map.of(b).read_at(home));
  map.arrive_at(b, here);
  CHECK_FALSE(map.of(b).read_at(beside));
  CHECK(map[b].copies.count() == 3);
  map.write(b);
  CHECK(map.state(b, here) == copy_state::current);
  CHECK(map.state(b, beside) == copy_state::stale);
  CHECK(map.state(b, home) == copy_state::stale);
  map.start_leaving(b, beside);
  CHECK(map.state(b, beside) == copy_state::leaving);
  CHECK(map.room(beside) == 1);
  map.release(b, beside);
  CHECK(map.state(b, beside) == copy_state::absent);
  CHECK(map.room(beside) == 2);
  CHECK(map.room() == 2);
  CHECK(map.occupied() == 1);
}

TEST_CASE("several transfers of a block may be under way, and each ends for itself") {
  block_ledger map = two_devices();
  const block_id b{0};
  map.arrive(b, false);
  map.write(b);
  map.start_arriving(b, home, here);  // a copy home
  map.give_ticket(b, home, 7);
  map.start_arriving(b, beside, here);  // and one to the neighbour
  map.give_ticket(b, beside, 8);
  CHECK(map.of(b).in_motion(here));
  CHECK(map.take_ticket(b, 8) == beside);
  CHECK(map.take_ticket(b, 8) == std::nullopt);
  map.stop_moving(b, beside);
  CHECK(map.state(b, beside) == copy_state::absent);
  CHECK(map.moving(b) == motion::cleaning);
  CHECK(map.take_ticket(b, 7) == home);
  CHECK(map.clean(b));
  CHECK(map.state(b, home) == copy_state::current);
  CHECK_FALSE(map.of(b).in_motion());
  CHECK_FALSE(map.of(b).has_ticket());
}

TEST_CASE("what is written while it is copied is stale where it arrives") {
  block_ledger map = two_devices();
  const block_id b{0};
  map.arrive(b, false);
  SUBCASE("at the host") {
    map.start_cleaning(b);
    SUBCASE("by a launch that finishes meanwhile") { map.write(b); }
    SUBCASE("by one that may have begun") { map.may_be_written(b); }
    CHECK_FALSE(map.clean(b));
    CHECK(map.state(b, home) == copy_state::absent);
    CHECK(map.dirty(b));
  }
  SUBCASE("at a neighbour") {
    map.start_arriving(b, beside, here);
    map.write(b);
    map.arrive_at(b, beside);
    CHECK(map.state(b, beside) == copy_state::stale);
  }
  CHECK(map.state(b, here) == copy_state::current);
}

TEST_CASE("contents that were set aside for a launch come back when it does not run") {
  block_ledger map = two_devices();
  const block_id b{0};
  map.write_on_host(b);
  map.forget(b, launch_id{3});
  CHECK(map.nowhere(b));
  SUBCASE("the launch") {
    CHECK_FALSE(map.remember(b, launch_id{4}));
    CHECK(map.remember(b, launch_id{3}));
    CHECK(map.state(b, home) == copy_state::current);
  }
  SUBCASE("not after it has run") {
    CHECK(map.take_overwriter(b, launch_id{3}));
    CHECK_FALSE(map.remember(b, launch_id{3}));
  }
  SUBCASE("not when another one writes the block, too") {
    map.settle_overwriter(b);
    CHECK_FALSE(map.remember(b, launch_id{3}));
  }
}

TEST_CASE("given up everywhere is given up at each place") {
  block_ledger map = two_devices();
  const block_id b{2};
  map.write_on_host(b);
  map.start_arriving(b, beside, home);
  map.arrive_at(b, beside);
  map.start_forgetting(b);
  CHECK(map.of(b)->forgetting);
  CHECK(map.state(b, beside) == copy_state::leaving);
  SUBCASE("when it is done") {
    map.discard(b);
    CHECK(map.state(b, home) == copy_state::absent);
    CHECK(map.state(b, beside) == copy_state::absent);
    CHECK(map.occupied(beside) == 0);
    CHECK(map.nowhere(b));
  }
  SUBCASE("and nowhere when it fails") {
    map.stop_moving(b);
    CHECK(map.state(b, home) == copy_state::current);
    CHECK(map.state(b, beside) == copy_state::current);
  }
  CHECK_FALSE(map.of(b)->forgetting);
}

/// One that has used up nearly all numbers of generations.
struct old_ledger : block_ledger {
  old_ledger() : block_ledger(two_devices(1)) { blocks_[0].generation = std::numeric_limits<std::uint32_t>::max() - 1; }
};

TEST_CASE("numbers of generations begin anew, and what is stale stays stale") {
  old_ledger map;
  const block_id b{0};
  map.write_on_host(b);  // the last number
  map.start_arriving(b, here, home);
  map.arrive_at(b, here);
  CHECK(map.state(b, home) == copy_state::current);
  map.write(b);
  CHECK(map.state(b, here) == copy_state::current);
  CHECK(map.state(b, home) == copy_state::stale);
  map.start_arriving(b, beside, here);
  map.arrive_at(b, beside);
  for (int i = 0; i < 3; ++i) {
    map.write(b);
    CHECK(map.state(b, home) == copy_state::stale);
    CHECK(map.state(b, beside) == copy_state::stale);
  }
}

TEST_CASE("a block takes as many bytes as docs/adr/0012 says") {
  constexpr std::uint32_t blocks = 1024;
  const auto bytes_a_block = [](const block_map& map) { return map.memory().count / blocks; };
  CHECK(bytes_a_block(block_ledger{blocks, here, 8, um_grid}) == 96);
  CHECK(bytes_a_block(two_devices(blocks)) == 128);
}

}  // namespace block_ledger_test
