// Launches beside an `arena::hold` on memory that never faults: what a hold keeps makes nobody else wait who needs not.

#include "engine/paged_bench.hpp"
#include "support/failure.hpp"
#include <deepum/engine/engine.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace claims_test {

using namespace paged_bench_of_tests;
using deepum::access;  // not the one of POSIX
using deepum_test::failure;

/// An engine with a budget of eight blocks, and what it asks for carried out at once.
struct bench : paged_bench {
  bench() : paged_bench(8, 32) {
    for (stream_id& s : streams) {
      s = made->open_stream(std::nullopt);
    }
    settle();
  }
  struct launched {
    launch_id id{};
    stream_id stream{};
  };
  launched submit(std::size_t on, std::initializer_list<block_range> ranges, bool hold = false) {
    launch_record r;
    r.stream = streams[on];
    r.hold = hold;
    r.name = hold ? "hold" : "k";
    for (const block_range range : ranges) {
      r.accesses.push_back({range, access::update});
    }
    return {made->submit(std::move(r)), streams[on]};
  }
  launched hold(std::size_t on, std::initializer_list<block_range> ranges) { return submit(on, ranges, true); }
  void settle() {
    for (int i = 0; i < 4; ++i) {
      carry_out_all();
    }
  }
  /// Whether it begins, however often it and those that wait ask.
  bool begins(launched l, std::initializer_list<launched> others = {}) {
    for (int i = 0; i < 20; ++i) {
      if (made->admitted(l.id, l.stream)) {
        return true;
      }
      for (const launched& o : others) {
        CHECK_FALSE(made->admitted(o.id, o.stream));
      }
      settle();
    }
    return false;
  }
  void end(launched l) {
    memory.finish(l.id);
    settle();
  }

  stream_id streams[4];
};

TEST_CASE("a launch on what is held begins while an older one waits for the held room") {
  bench b;
  const auto kept = b.hold(0, {blocks(0, 4)});
  REQUIRE(b.begins(kept));
  const auto older = b.submit(1, {blocks(8, 6)});
  CHECK_FALSE(b.begins(older));
  const auto younger = b.submit(2, {blocks(1, 3)});
  CHECK(b.begins(younger, {older}));
  b.end(younger);
  // When the hold ends, the older one is first again.
  const auto another = b.submit(2, {blocks(16, 8)});
  CHECK_FALSE(b.begins(another, {older}));
  b.end(kept);
  CHECK(b.begins(older, {another}));
  b.end(older);
  CHECK(b.begins(another));
}

TEST_CASE("a launch that needs more than is held is served beside an older one that waits for the held room") {
  bench b;
  const auto kept = b.hold(0, {blocks(0, 4)});
  REQUIRE(b.begins(kept));
  const auto older = b.submit(1, {blocks(8, 6)});
  CHECK_FALSE(b.begins(older));
  for (std::uint32_t i = 0; i < 3; ++i) {
    const auto younger = b.submit(0, {blocks(2, 2), blocks(20 + 4 * i, 4)});
    CHECK(b.begins(younger, {older}));
    b.end(younger);
  }
  b.end(kept);
  CHECK(b.begins(older));
}

TEST_CASE("a hold that waits for the room of another one makes nobody wait") {
  bench b;
  const auto first = b.hold(0, {blocks(0, 5)});
  REQUIRE(b.begins(first));
  const auto second = b.hold(1, {blocks(8, 5)});
  CHECK_FALSE(b.begins(second));
  const auto inside = b.submit(2, {blocks(0, 5), blocks(24, 3)});
  CHECK(b.begins(inside, {second}));
  b.end(inside);
  b.end(first);
  CHECK(b.begins(second));
  const auto behind = b.submit(2, {blocks(0, 5)});
  CHECK_FALSE(b.begins(behind));
  b.end(second);
  CHECK(b.begins(behind));
}

TEST_CASE("a launch that gets no memory is refused also while something is held") {
  bench b;
  const auto kept = b.hold(0, {blocks(0, 4)});
  REQUIRE(b.begins(kept));
  const auto l = b.submit(1, {blocks(8, 4)});
  b.memory.why = "others have it";
  failure(status::out_of_device_memory, [&] {
    for (int i = 0; i < 1000 && !b.made->admitted(l.id, l.stream); ++i) {
      b.made->pump();
      for (; b.done < b.memory.calls.size(); ++b.done) {
        b.memory.fail(b.memory.calls[b.done]);
      }
    }
  });
  b.end(kept);
}

TEST_CASE("a launch that waits for a view that writes makes nobody wait for its room") {
  bench b;
  const auto l = b.submit(0, {blocks(0, 6)});
  CHECK(b.begins(l));
  const auto older = b.submit(1, {blocks(8, 5)});
  CHECK_FALSE(b.begins(older));
  b.made->begin_host_access(blocks(12), access::update);  // it has not begun, so the host is first
  CHECK(b.made->host_may_use(blocks(12), access::update));
  const auto younger = b.submit(2, {blocks(0, 4)});
  CHECK(b.begins(younger, {older}));
  b.end(younger);
  b.end(l);
  CHECK_FALSE(b.begins(older));
  b.made->end_host_access(blocks(12), access::update);
  CHECK(b.begins(older));
}

}  // namespace claims_test
