// What becomes of contents: the room alone, on the records that it shares with the others.

#include <deepum/engine/block_contents.hpp>
#include <deepum/engine/records.hpp>

#include <doctest/doctest.h>

#include <string>
#include <variant>

namespace block_contents_test {

using namespace deepum;

constexpr block_id block{0};

/// Memory whose host keeps its contents, with a block that has some.
struct bench {
  bench() {
    state.ledger.set_budget(2);
    state.ledger.set_keeps_home_copy(true);
    state.ledger.write_on_host(block);
  }
  void bring() {
    state.ledger.start_arriving(block);
    state.ledger.arrive(block, true);
  }
  /// A launch that overwrites the block is issued: the contents from before are set aside, and it gets room.
  launch_record overwrite() {
    launch_record record{.id = launch_id{1}};
    record.accesses.push_back({{block, 1}, access::overwrite});
    state.ledger.forget(block, record.id);
    state.ledger.start_arriving(block, state.ledger.device(), state.ledger.device());
    state.ledger.arrive_empty(block);
    return record;
  }
  [[nodiscard]] std::string requested() {
    const auto& queue = state.queue_of(transfer::drop(reason::requested, {block, 1})).requested;
    return queue.empty() ? "" : std::string(to_string(std::get<transfer>(queue.front())));
  }

  detail::records state{2, topology{}, block_size};
  detail::block_contents room{state, nullptr};
};

TEST_CASE("what a launch writes is on the device alone") {
  bench b;
  b.bring();
  REQUIRE_FALSE(b.state.ledger.dirty(block));
  b.room.written(block);
  CHECK(b.state.ledger.dirty(block));
  b.room.written(block);
  CHECK(b.state.ledger.dirty(block));
}

TEST_CASE("contents that were given up are nowhere, and are counted") {
  bench b;
  b.bring();
  b.room.forgotten(block);
  CHECK(b.state.ledger.nowhere(block));
  CHECK_FALSE(b.state.ledger.present(block));
  CHECK(b.state.statistics.discarded == 1);
}

TEST_CASE("where a launch that would have overwritten a block does not run, the block has what it had") {
  bench b;
  const launch_record record = b.overwrite();
  REQUIRE(b.state.ledger.nowhere(block));
  b.room.remember(record);
  CHECK(b.state.ledger.current(block, location::host()));
  SUBCASE("and room without contents leaves, so that they can come again") {
    CHECK(b.state.ledger.hollow(block));
    CHECK(b.requested() == "drop");
    CHECK(b.state.policy_due);
    b.room.written(block);  // nothing has been written there
    CHECK_FALSE(b.state.ledger.dirty(block));
  }
}

TEST_CASE("room without contents stays while something moves the block") {
  bench b;
  const launch_record record = b.overwrite();
  b.state.ledger.start_leaving(block);
  b.room.remember(record);
  CHECK(b.requested().empty());
}

}  // namespace block_contents_test
