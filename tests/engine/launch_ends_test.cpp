#include "engine/fake_memory.hpp"
#include <deepum/core/block.hpp>
#include <deepum/core/location.hpp>
#include <deepum/engine/inbox.hpp>
#include <deepum/engine/launch_ends.hpp>
#include <deepum/engine/records.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace launch_ends_test {

using namespace deepum;

struct bench {
  stream_id open() {
    const stream_id s = *mail.take_stream_number(1);
    state.launches.open(s);
    return s;
  }
  void issue(std::uint64_t id, stream_id s) {
    launch_record r;
    r.id = launch_id{id};
    r.stream = s;
    state.launches.issue(std::move(r));
  }
  void finish(std::uint64_t id, stream_id s) {
    (void)state.launches.finish(launch_id{id}, {}, nanoseconds{1});
    ends.ended(launch_id{id}, s);
  }
  void close(stream_id s) {
    mail.push(detail::message{detail::message::kind::close_stream});
    ends.close(s);
  }

  deepum_test::fake_memory memory{8};
  deepum_test::scripted_policy::script script{};
  deepum_test::scripted_policy policy{script};
  detail::inbox mail{memory};
  detail::records state{8, topology{}, block_size};
  detail::launch_ends ends{state, policy, mail};
};

TEST_CASE("the policy is told of the end of each launch") {
  bench b;
  const stream_id s = b.open();
  b.issue(1, s);
  b.issue(2, s);
  b.finish(1, s);
  b.finish(2, s);
  CHECK(b.script.told == std::vector<std::string>{"finish 1", "finish 2"});
}

TEST_CASE("a stream gives its number back when it is closed and its last launch has ended, whichever comes last") {
  for (const bool closed_first : {false, true}) {
    CAPTURE(closed_first);
    bench b;
    const stream_id s = b.open();
    b.issue(1, s);
    b.issue(2, s);
    if (closed_first) b.close(s);
    b.finish(1, s);
    if (closed_first) CHECK(b.mail.take_stream_number(1) == std::nullopt);  // it is closing
    b.finish(2, s);
    if (!closed_first) {
      const std::optional<stream_id> other = b.mail.take_stream_number(1);
      REQUIRE(other.has_value());
      CHECK(*other != s);  // it is open, though nothing of it is in flight
      b.close(s);
    }
    CHECK(b.mail.take_stream_number(1) == s);
  }
}

TEST_CASE("a stream without launches gives its number back when it is closed") {
  bench b;
  const stream_id s = b.open();
  b.close(s);
  CHECK(b.mail.take_stream_number(1) == s);
}

}  // namespace launch_ends_test
