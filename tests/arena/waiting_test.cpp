// How threads of the program wait (docs/adr/0011), counted: what is waited for is asked once for each thing that
// happened, and never in between.

#include "engine/fake_memory.hpp"
#include "support/failure.hpp"
#include <deepum/arena/waiting.hpp>
#include <deepum/error.hpp>

#include <doctest/doctest.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace waiting_test {

using namespace deepum;
using namespace std::chrono_literals;
using deepum_test::failure;
using deepum_test::fake_memory;

TEST_CASE("what is waited for is asked once, and once more after each wait") {
  fake_memory memory(1);
  std::uint64_t asked = 0;
  detail::wait_until(memory, [&] { return ++asked == 1; });
  CHECK(memory.waits == 0);
  memory.while_waiting = [&] { ++memory.happenings; };
  detail::wait_until(memory, [&] { return memory.happenings == 5; });
  CHECK(memory.waits == 5);
  asked = 0;
  detail::wait_until(memory, [&] { return ++asked == 8; });
  CHECK(memory.waits == 5 + 7);
}

TEST_CASE("what happens while it is asked is not waited for") {
  fake_memory memory(1);
  std::uint64_t asked = 0;
  detail::wait_until(memory, [&] {
    ++memory.happenings;
    return ++asked == 100;
  });
  CHECK(memory.waits == 99);
  CHECK(memory.time == nanoseconds{});  // none of them slept
}

TEST_CASE("where nothing happens it is asked again now and then") {
  fake_memory memory(1);
  detail::wait_until(memory, [&] { return memory.time >= 10 * detail::looks_every; });
  CHECK(memory.waits == 10);
}

TEST_CASE("an error of what is waited for ends the wait") {
  fake_memory memory(1);
  const auto broken = [&]() -> bool {
    if (memory.waits == 3) throw error(status::device_failure, "broken");
    return false;
  };
  CHECK(failure(status::device_failure, [&] { detail::wait_until(memory, broken); }) != "");
  CHECK(memory.waits == 3);
}

TEST_CASE("a long wait is logged after a second, and whenever its length has doubled") {
  fake_memory memory(1);
  memory.time = 5s;
  std::vector<std::string> lines;
  const std::function<void(std::string_view)> log = [&](std::string_view line) { lines.emplace_back(line); };
  detail::long_wait wait(memory, log);
  wait.until([&] { return memory.time >= 14s; }, [] { return std::string("a test waits"); });
  CHECK(wait.lasted() == 9s);
  CHECK(lines == std::vector<std::string>{"a test waits (for 1 s so far)", "a test waits (for 2 s so far)",
                                          "a test waits (for 4 s so far)", "a test waits (for 8 s so far)"});
  const std::function<void(std::string_view)> none;
  detail::long_wait(memory, none).until([&] { return memory.time >= 30s; }, [] { return std::string("nobody hears"); });
}

}  // namespace waiting_test
