#include <deepum/engine/transfer_queue.hpp>

#include <doctest/doctest.h>

namespace transfer_queue_test {

using namespace deepum;
using detail::transfer_queue;

TEST_CASE("what a held launch demands goes before what the program requests, and that before what is planned") {
  transfer_queue q;
  CHECK(&q.next() == &q.planned);
  q.planned.emplace_back();
  CHECK(&q.next() == &q.planned);
  q.requested.emplace_back();
  CHECK(&q.next() == &q.requested);
  q.demanded.emplace_back();
  CHECK(&q.next() == &q.demanded);
  q.demanded.clear();
  CHECK(&q.next() == &q.requested);
}

TEST_CASE("a direction is idle when nothing waits and the device has nothing") {
  transfer_queue q;
  CHECK(q.idle());
  for (auto* const waiting : {&q.demanded, &q.requested, &q.planned}) {
    waiting->emplace_back();
    CHECK_FALSE(q.idle());
    waiting->clear();
    CHECK(q.idle());
  }
  q.issued.push_back({.ticket = 1});
  CHECK_FALSE(q.idle());
}

}  // namespace transfer_queue_test
