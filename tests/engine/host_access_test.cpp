// When the host's copy of a block may be reclaimed (docs/adr/0007): never while it is the only one, while a view of the
// host uses it, or while something is copied to or from it.

#include "engine/paged_bench.hpp"
#include <deepum/engine/engine.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace host_access_test {

using namespace paged_bench_of_tests;
using deepum::access;  // not the one of POSIX

struct bench : paged_bench {
  bench() : paged_bench(4, 16) {
    stream = made->open_stream(std::nullopt);
    settle();
  }
  void settle() { carry_out_all(); }
  /// The next command of this kind is given, and not carried out yet. What comes before it is.
  paged_fake_memory::call next(const std::string& what) {
    for (int i = 0; i < 20; ++i) {
      made->pump();
      while (done < memory.calls.size()) {
        const auto call = memory.calls[done++];
        if (call.what == what) {
          return call;
        }
        memory.carry_out(call);
        made->pump();
      }
    }
    FAIL("no such command");
    return {};
  }
  void run(block_range r) {
    launch_record record;
    record.stream = stream;
    record.accesses = {{r, access::update}};
    const launch_id l = made->submit(std::move(record));
    while (!made->admitted(l, stream)) {
      settle();
    }
    memory.finish(l);
    settle();
  }
  void read(block_range r) {
    made->begin_host_access(r, access::read);
    while (!made->host_may_use(r, access::read)) {
      settle();
    }
  }
  void end_read(block_range r) { made->end_host_access(r, access::read); }
  [[nodiscard]] bool reclaimable(std::uint32_t b) const {
    return std::any_of(memory.stale.begin(), memory.stale.end(),
                       [b](block_range r) { return r.contains(block_id{b}); });
  }

  stream_id stream;
};

TEST_CASE("a view that ends while its block leaves does not give up the copy that is being made") {
  bench b;
  b.run(blocks(0));
  b.read(blocks(0));
  b.run(blocks(0));  // it is newer on the device than what the view sees
  b.made->prefetch(blocks(0), location::host());
  const auto leaving = b.next("evict");
  b.memory.stale.clear();
  b.end_read(blocks(0));
  b.memory.carry_out(leaving);
  b.settle();
  CHECK_FALSE(b.reclaimable(0));
}

TEST_CASE("a view that ends while its block is copied to the host does not give up that copy") {
  bench b;
  b.run(blocks(0));
  b.read(blocks(0));
  b.run(blocks(0));
  b.read(blocks(1));
  b.made->begin_host_access(blocks(0), access::read);
  CHECK_FALSE(b.made->host_may_use(blocks(0), access::read));
  const auto copy = b.next("clean");
  b.memory.stale.clear();
  b.end_read(blocks(0));
  b.memory.carry_out(copy);
  b.settle();
  CHECK(b.made->host_may_use(blocks(0), access::read));
  CHECK_FALSE(b.reclaimable(0));
  b.end_read(blocks(0));
  CHECK_FALSE(b.reclaimable(0));
}

TEST_CASE("when what moved a block has ended without a current copy on the host, that copy may be reclaimed") {
  bench b;
  b.run(blocks(0));
  b.read(blocks(0));
  b.run(blocks(0));
  b.made->prefetch(blocks(0), location::host());
  const auto leaving = b.next("evict");
  b.memory.stale.clear();
  b.end_read(blocks(0));
  CHECK_FALSE(b.reclaimable(0));
  b.memory.fail(leaving);
  b.made->pump();
  CHECK(b.reclaimable(0));
}

TEST_CASE("a block that cannot leave keeps the copy that a view uses") {
  bench b;
  b.run(blocks(0));
  b.read(blocks(0));
  b.run(blocks(0));
  b.made->prefetch(blocks(0), location::host());
  const auto leaving = b.next("evict");
  b.memory.stale.clear();
  b.memory.fail(leaving);
  b.made->pump();
  CHECK_FALSE(b.reclaimable(0));
  b.end_read(blocks(0));
  CHECK(b.reclaimable(0));
}

TEST_CASE("contents that are given up under a view are reclaimed when the view ends") {
  bench b;
  b.run(blocks(0));
  b.read(blocks(0));
  b.memory.stale.clear();
  b.made->dead(blocks(0), liveness::inactive, b.made->last_launch());
  b.made->discard(blocks(0));
  b.settle();
  CHECK_FALSE(b.reclaimable(0));
  b.end_read(blocks(0));
  CHECK(b.reclaimable(0));
}

TEST_CASE("the host does not wait behind a request for a block that a launch goes on using") {
  for (const access mode : {access::read, access::update}) {
    bench b;
    b.run(blocks(1));
    launch_record record;
    record.stream = b.stream;
    record.accesses = {{blocks(0), access::update}};
    const launch_id l = b.made->submit(std::move(record));
    for (int i = 0; i < 20 && !b.made->admitted(l, b.stream); ++i) {
      b.settle();
    }
    b.made->prefetch(blocks(0), location::host());
    b.settle();
    b.made->begin_host_access(blocks(1), mode);
    bool there = false;
    for (int i = 0; i < 20 && !there; ++i) {
      there = b.made->host_may_use(blocks(1), mode);
      b.settle();
    }
    CHECK(there);
    b.memory.finish(l);
    CHECK(b.next("evict").range == blocks(0));  // the request was not forgotten
  }
}

}  // namespace host_access_test
