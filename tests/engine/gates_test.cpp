#include "engine/fake_memory.hpp"
#include <deepum/engine/gates.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <vector>

namespace gates_test {

using namespace deepum;
using deepum_test::fake_memory;
using deepum_test::home_copy_fake_memory;
using deepum_test::paged_fake_memory;

template <class Memory>
struct bench {
  explicit bench(bool policy_holds = true, bool policy_orders = false)
      : gates(in, state, memory.capabilities().faults, policy_holds || !memory.capabilities().faults, policy_orders) {
    state.ledger.set_keeps_home_copy(memory.capabilities().keeps_home_copy);
    state.ledger.set_budget(4);
    gates.work_out();
  }
  void live(std::uint64_t blocks) {
    state.live = blocks;
    state.note_live();
    gates.mark_stale();
    gates.work_out();
  }

  Memory memory{8};
  detail::inbox in{memory};
  detail::records state{8, topology{}, block_size};
  detail::gates gates;
};

const transfer discard = transfer::discard(reason::dead, {block_id{0}, 1});
const transfer evict = transfer::evict(location::host(), reason::make_room, {block_id{0}, 1});

TEST_CASE("launches ask where what is alive does not fit, or is on its way, and the policy holds any") {
  for (const bool holds : {true, false}) {
    CAPTURE(holds);
    bench<fake_memory> b(holds);
    CHECK(!b.in.launches_ask());
    b.state.queues.link(0).planned.emplace_back();
    b.gates.work_out();
    CHECK(b.in.launches_ask() == holds);
    b.state.queues.link(0).planned.clear();
    b.gates.work_out();
    CHECK(!b.in.launches_ask());
    b.live(5);
    CHECK(b.in.launches_ask() == holds);
  }
}

TEST_CASE("under a policy that orders them launches ask always") {
  bench<fake_memory> b(false, true);
  CHECK(b.in.launches_ask());
  b.live(1);
  CHECK(b.in.launches_ask());
  bench<paged_fake_memory> paged(false, true);
  paged.state.all_there = true;
  paged.gates.work_out();
  CHECK(paged.in.launches_ask());
}

TEST_CASE("where the host keeps its copy launches ask always") {
  CHECK(bench<home_copy_fake_memory>().in.launches_ask());
}

TEST_CASE("launches ask while contents are given up, whatever the policy, and while one is held back") {
  bench<fake_memory> b(false);
  b.state.queues.forgotten.issued.push_back({1, discard});
  b.gates.work_out();
  CHECK(b.in.launches_ask());
  b.state.queues.forgotten.issued.clear();
  b.gates.work_out();
  CHECK(!b.in.launches_ask());
  b.state.held.hold_back({}, {}, 0);
  b.gates.work_out();
  CHECK(b.in.launches_ask());
}

TEST_CASE("where memory never faults launches ask until all is there") {
  bench<paged_fake_memory> b;
  CHECK(b.in.launches_ask());
  b.state.all_there = true;
  b.gates.work_out();
  CHECK(!b.in.launches_ask());
}

TEST_CASE("gates close only where something leaves, and say once that somebody may have passed") {
  bench<paged_fake_memory> b;
  b.state.all_there = true;
  b.gates.work_out();
  CHECK(!b.gates.close());
  CHECK(b.state.all_there);
  b.state.queues.link(1).planned.push_back(evict);
  CHECK(b.gates.close());
  CHECK(!b.state.all_there);
  CHECK(b.in.launches_ask());
  b.gates.work_out();
  CHECK(!b.gates.close());  // nobody has passed since

  bench<fake_memory> m;
  m.state.queues.link(1).planned.push_back(evict);
  CHECK(!m.gates.close());  // the driver brings back what is missing
  CHECK(!m.in.launches_ask());
  m.state.queues.forgotten.planned.push_back(discard);
  CHECK(m.gates.close());
  CHECK(m.in.launches_ask());
  CHECK(m.in.announce_discards());  // it was
}

TEST_CASE("how much may come alive is worked out when the inbox was read or the budget has changed") {
  bench<fake_memory> b;
  CHECK(b.in.push_live({block_id{0}, 4}));
  CHECK(!b.in.push_live({block_id{4}, 1}));
  std::vector<detail::message> messages;
  b.in.take(messages);
  b.gates.work_out();
  CHECK(!b.in.push_live({block_id{4}, 1}));
  messages.clear();
  b.in.take(messages);
  b.live(3);
  CHECK(b.in.push_live({block_id{4}, 1}));
}

}  // namespace gates_test
