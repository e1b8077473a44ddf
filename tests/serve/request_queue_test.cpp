#include "../../examples/serve/request_queue.hpp"

#include <doctest/doctest.h>

#include <atomic>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

namespace request_queue_test {

using serve::offered;
using serve::request_queue;

TEST_CASE("entries come out in order, and a full queue says so") {
  request_queue<int> queue{2};
  CHECK(queue.try_push(1) == offered::taken);
  CHECK(queue.try_push(2) == offered::taken);
  CHECK(queue.try_push(3) == offered::full);
  CHECK(queue.size() == 2);
  CHECK(queue.pop() == 1);
  CHECK(queue.try_push(4) == offered::taken);
  CHECK(queue.try_pop() == 2);
  CHECK(queue.pop() == 4);
  CHECK(queue.try_pop() == std::nullopt);
  CHECK(request_queue<int>{0}.try_push(1) == offered::full);
}

TEST_CASE("a closed queue takes nothing and gives what it has") {
  request_queue<int> queue{4};
  CHECK(queue.try_push(1) == offered::taken);
  queue.close();
  CHECK(queue.try_push(2) == offered::closed);
  CHECK(queue.pop() == 1);
  CHECK(queue.pop() == std::nullopt);
}

TEST_CASE("closing wakes who waits") {
  request_queue<int> queue{4};
  std::thread waits([&] { CHECK(queue.pop() == std::nullopt); });
  queue.close();
  waits.join();
}

TEST_CASE("entries that are of no use make room, and the others stay in order") {
  request_queue<int> queue{4};
  for (int i = 0; i < 4; ++i)
    CHECK(queue.try_push(i) == offered::taken);
  queue.remove_if([](int i) { return i % 2 == 0; });
  CHECK(queue.try_push(7) == offered::taken);
  for (const int each : {1, 3, 7})
    CHECK(queue.try_pop() == each);
}

TEST_CASE("of many threads' entries none is lost and none comes twice") {
  request_queue<std::unique_ptr<int>> queue{8};
  constexpr int producers = 4;
  constexpr int each = 500;
  std::vector<std::atomic<int>> seen(producers * each);
  std::vector<std::thread> threads;
  for (int c = 0; c < 2; ++c) {
    threads.emplace_back([&] {
      while (const auto entry = queue.pop())
        ++seen[static_cast<std::size_t>(**entry)];
    });
  }
  std::vector<std::thread> from;
  for (int p = 0; p < producers; ++p) {
    from.emplace_back([&, p] {
      for (int i = 0; i < each; ++i) {
        while (queue.try_push(std::make_unique<int>(p * each + i)) == offered::full)
          std::this_thread::yield();
      }
    });
  }
  for (std::thread& t : from)
    t.join();
  queue.close();
  for (std::thread& t : threads)
    t.join();
  int once = 0;
  for (const std::atomic<int>& s : seen)
    once += s == 1 ? 1 : 0;
  CHECK(once == producers * each);
}

}  // namespace request_queue_test
