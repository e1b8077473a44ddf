#include "core/block_ledger_bench.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

namespace block_ledger_test {

using namespace block_ledger_bench_of_tests;
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

}  // namespace block_ledger_test
