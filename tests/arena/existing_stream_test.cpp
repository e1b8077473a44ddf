#include "support/failure.hpp"
#include <deepum/deepum.hpp>

#include <doctest/doctest.h>

#include <string>
#include <type_traits>

namespace existing_stream_test {

using namespace deepum;
using namespace deepum::literals;
using deepum_test::failure;
using deepum_test::mentions;

const auto set = sim::kernel([](int* p, int value) { *p = value; },
                             [](sim::work& w, int* p, int) { w.updates(p, sizeof *p).flops(1e6); });
const auto twice =
    sim::kernel([](int* p) { *p *= 2; }, [](sim::work& w, int* p) { w.updates(p, sizeof *p).flops(1e9); });

TEST_CASE_TEMPLATE("a stream on one of the program's: all is in one order, and it is the program's afterwards", Memory,
                   sim::managed_memory, sim::paged_memory) {
  sim::device gpu;
  arena<Memory> memory(gpu, {.capacity = 64_MiB, .device_budget = 32_MiB});
  int* const x = memory.template allocate<int>(1);
  sim::stream q(memory.memory());
  {
    stream s{memory, q, {.lookahead = 8}};
    static_assert(std::is_same_v<decltype(s), stream<Memory>>);
    for (int i = 1; i <= 10; ++i) {
      s.call("raw", {updates(x, 1)}, [&](sim::stream&) { q.launch(1, 1, 0, set, x, i); });
      s.launch("twice", 1, 1, 0, twice, updates(x, 1));
    }
    q.synchronize();
    CHECK(memory.host_read(x, 1)[0] == 20);
    s.call("raw", {updates(x, 1)}, [&](sim::stream& native) { native.launch(1, 1, 0, set, x, 3); });
  }
  stream again{memory, q};
  again.launch("twice", 1, 1, 0, twice, updates(x, 1));
  q.synchronize();
  CHECK(memory.host_read(x, 1)[0] == 6);
  const statistics s = memory.statistics();
  CHECK(s.launches == s.finished);
}

TEST_CASE("a simulated stream of other memory is refused") {
  sim::device gpu;
  arena memory{gpu, {.capacity = 64_MiB, .device_budget = 32_MiB}};
  arena other{gpu, {.capacity = 64_MiB, .device_budget = 32_MiB}};
  sim::stream q(other.memory());
  const std::string text = failure(status::invalid_argument, [&] { const stream s(memory, q); });
  CHECK(mentions(text, "other memory"));
}

TEST_CASE("the options of a stream are the same everywhere, and so is a copy that the host waits for") {
  sim::device gpu;
  arena memory{gpu, {.capacity = 64_MiB, .device_budget = 32_MiB}};
  stream s{memory, {.blocking = true}};
  stream plain{memory, {}};
  int* const x = memory.allocate<int>(1);
  int value = 21;
  s.memcpy_and_wait(x, &value, bytes{sizeof value});
  s.launch("twice", 1, 1, 0, twice, updates(x, 1));
  const nanoseconds before = gpu.now();
  s.memcpy_and_wait(&value, x, bytes{sizeof value});
  CHECK(value == 42);
  CHECK(gpu.now() > before);
}

}  // namespace existing_stream_test
