// Which contents are given up next: the room alone, on the records that it shares with the others.

#include "engine/fake_memory.hpp"
#include <deepum/engine/accounting.hpp>
#include <deepum/engine/discards.hpp>
#include <deepum/engine/engine_options.hpp>
#include <deepum/engine/fact_finder.hpp>
#include <deepum/engine/records.hpp>
#include <deepum/engine/transfer_start.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <string>

namespace discards_test {

using namespace deepum;

block_range blocks(std::uint32_t first, std::uint32_t count = 1) { return {block_id{first}, count}; }

/// Eight blocks on the device.
struct bench {
  bench() {
    options.commands_in_flight = 2;
    state.ledger.set_budget(8);
    for (const block_id b : blocks(0, 8)) {
      state.ledger.set_liveness(b, liveness::live);
      state.ledger.start_arriving(b);
      state.ledger.arrive(b, false);
    }
  }
  void dies(block_range range) {
    for (const block_id b : range) {
      state.ledger.set_liveness(b, liveness::inactive);
    }
  }
  void request(block_range range) {
    state.queues.forgotten.requested.emplace_back(transfer::discard(reason::requested, range));
  }
  /// What the device was given since the last look.
  std::string issued() {
    room.issue();
    std::string all;
    for (; seen != memory.calls.size(); ++seen) {
      const auto& c = memory.calls[seen];
      all += (all.empty() ? "" : " ") + c.what + "(" + std::to_string(c.range.first.value) + "+" +
             std::to_string(c.range.count) + ")";
    }
    return all;
  }
  /// The device has carried out all of them.
  void settle() {
    for (const detail::outstanding& o : state.queues.forgotten.issued) {
      for (const block_id b : o.what.blocks) {
        state.ledger.discard(b);
      }
    }
    state.queues.forgotten.issued.clear();
  }

  deepum_test::fake_memory memory{8};
  engine_options options{.log = {}};
  detail::records state{8, memory.places(), memory.block()};
  detail::fact_finder facts{state, nullptr};
  detail::accounting account{state, options};
  detail::transfer_start start{memory, state, account};
  detail::discards room{state, facts, options, start};
  std::size_t seen = 0;
};

TEST_CASE("of what a plan gives up, only dead contents are queued; the rest is counted as refused") {
  bench b;
  b.dies(blocks(2, 3));
  b.room.enqueue(transfer::discard(reason::dead, blocks(0, 8)));
  CHECK(b.state.statistics.refused == 5);
  CHECK(b.issued() == "discard(2+3)");
}

TEST_CASE("dead contents that come alive again before their turn stay") {
  bench b;
  b.dies(blocks(0, 4));
  b.room.enqueue(transfer::discard(reason::dead, blocks(0, 4)));
  b.state.ledger.set_liveness(block_id{1}, liveness::live);
  CHECK(b.issued() == "discard(0+1) discard(2+2)");
}

TEST_CASE("dead contents wait for the launches that declare them, and hold up no others") {
  bench b;
  b.dies(blocks(0, 4));
  b.state.ledger.add_user(block_id{0}, access::update);
  b.room.enqueue(transfer::discard(reason::dead, blocks(0)));
  b.room.enqueue(transfer::discard(reason::dead, blocks(3)));
  CHECK(b.issued() == "discard(3+1)");
  b.state.ledger.remove_user(block_id{0}, access::update);
  CHECK(b.issued() == "discard(0+1)");
}

TEST_CASE("what the program asks to discard goes at once, except what a launch in flight uses") {
  bench b;
  b.state.ledger.add_user(block_id{1}, access::read);
  b.request(blocks(0, 3));
  CHECK(b.issued() == "discard(0+1) discard(2+1)");
  CHECK(b.state.statistics.dropped == 1);
  CHECK(b.state.queues.forgotten.requested.empty());
}

TEST_CASE("a plan has no more discards on their way than commands are allowed, and the program as many as it likes") {
  bench b;
  b.dies(blocks(0, 8));
  for (const std::uint32_t i : {0U, 2U, 4U}) {
    b.room.enqueue(transfer::discard(reason::dead, blocks(i)));
  }
  CHECK(b.issued() == "discard(0+1) discard(2+1)");
  CHECK(b.issued().empty());
  b.request(blocks(6));
  CHECK(b.issued() == "discard(6+1)");
  b.settle();
  CHECK(b.issued() == "discard(4+1)");
}

TEST_CASE("a discard that the device refuses is counted, and its blocks stay") {
  bench b;
  b.memory.fail_all = true;
  b.request(blocks(0, 2));
  CHECK(b.issued().empty());
  CHECK(b.state.statistics.failed_calls == 1);
  CHECK(b.state.ledger.resident(block_id{0}));
  CHECK_FALSE(b.state.discarding(blocks(0, 2)));
}

}  // namespace discards_test
