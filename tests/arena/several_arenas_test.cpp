// Several arenas in one process whose memory never faults: what a launch of one may do with memory of another.

#include "support/failure.hpp"
#include <deepum/deepum.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

namespace several_arenas_test {

using namespace deepum;
using namespace deepum::literals;
using deepum_test::failure;
using deepum_test::mentions;
using word = std::uint32_t;

const sim::kernel add{[](word* a, const word* b, std::size_t n) {
                        for (std::size_t i = 0; i < n; ++i) {
                          a[i] += b[i];
                        }
                      },
                      [](sim::work& w, word* a, const word* b, std::size_t n) {
                        w.reads(b, n * sizeof(word)).updates(a, n * sizeof(word)).flops(1e8);
                      }};
const sim::kernel set{[](word* a, std::size_t n, word v) { std::fill_n(a, n, v); },
                      [](sim::work& w, word* a, std::size_t n, word) { w.overwrites(a, n * sizeof(word)).flops(1e8); }};

/// A class with a pointer in it.
struct view {
  const word* data;
  std::size_t n;
};
const sim::kernel add_view{[](word* a, view v) {
                             for (std::size_t i = 0; i < v.n; ++i) {
                               a[i] += v.data[i];
                             }
                           },
                           [](sim::work& w, word* a, view v) {
                             w.reads(v.data, v.n * sizeof(word)).updates(a, v.n * sizeof(word)).flops(1e8);
                           }};

constexpr std::size_t n = (8_MiB).count / sizeof(word);

arena_options options(bytes budget) { return {.capacity = 128_MiB, .device_budget = budget, .log = {}}; }
template <class A>
void fill(A& memory, word* p, std::size_t count, word first) {
  const auto v = memory.host_overwrite(p, count);
  std::iota(v.begin(), v.end(), first);
}
template <class A>
bool holds(A& memory, const word* p, std::size_t count, word first) {
  const auto v = memory.host_read(p, count);
  for (std::size_t i = 0; i < count; ++i) {
    if (v[i] != first + i) {
      return false;
    }
  }
  return true;
}

TEST_CASE("a kernel on memory of another arena is refused, with the name of the launch and the argument") {
  sim::device gpu(sim::find_profile("h200_pcie5"), {.memory = 512_MiB});
  arena<sim::paged_memory> one(gpu, options(64_MiB));
  arena<sim::paged_memory> two(gpu, options(64_MiB));
  arena<sim::managed_memory> managed(gpu, options(64_MiB));
  word* const a = one.allocate<word>(n);
  word* const b = two.allocate<word>(n);
  word* const c = managed.allocate<word>(n);
  fill(one, a, n, 1);
  fill(two, b, n, 2);
  fill(managed, c, n, 3);
  const auto refused = [](const std::string& what, const std::string& said) {
    CHECK(mentions(said, "'mix'"));
    CHECK(mentions(said, what));
    CHECK(mentions(said, "another arena"));
    CHECK(mentions(said, "stream::memcpy"));
  };
  {
    stream s(one);
    refused("argument 2", failure(status::foreign_pointer,
                                  [&] { s.launch("mix", 1, 1, 0, add, a, static_cast<const word*>(b), n); }));
    refused("argument 1", failure(status::foreign_pointer,
                                  [&] { s.launch("mix", 1, 1, 0, set, overwrites(b + 1, n - 1), n - 1, word{1}); }));
    refused("argument 2", failure(status::foreign_pointer, [&] { s.launch("mix", 1, 1, 0, add_view, a, view{b, n}); }));
    refused("operand 2", failure(status::foreign_pointer, [&] {
              s.call("mix", {updates(a, n), reads(b, n)}, [](sim::stream&) {});
            }));
    CHECK(mentions(failure(status::foreign_pointer, [&] { (void)one.hold({reads(b, n)}); }), "another arena"));
    CHECK(mentions(failure(status::foreign_pointer, [&] { s.memset(b, 0, 8_MiB); }), "another arena"));
    // Managed memory comes when it is touched, whoever touches it.
    s.launch("with managed", 1, 1, 0, add, a, static_cast<const word*>(c), n);
    s.synchronize();
    CHECK(one.host_read(a, n)[5] == 6 + 8);
  }
  {
    stream s(managed);
    refused("argument 2", failure(status::foreign_pointer,
                                  [&] { s.launch("mix", 1, 1, 0, add, c, static_cast<const word*>(b), n); }));
  }
  CHECK(holds(two, b, n, 2));
}

TEST_CASE("a pointer into an arena that has ended is a number like any other") {
  sim::device gpu(sim::find_profile("h200_pcie5"), {.memory = 512_MiB});
  arena<sim::paged_memory> one(gpu, options(64_MiB));
  word* const a = one.allocate<word>(n);
  fill(one, a, n, 1);
  const word* gone = nullptr;
  {
    arena<sim::paged_memory> two(gpu, options(64_MiB));
    gone = two.allocate<word>(n);
  }
  stream s(one);
  s.call("fine", {updates(a, n), reads(gone, n)}, [](sim::stream&) {});
  s.synchronize();
}

TEST_CASE("memcpy between arenas copies what launches wrote, whichever of the two the stream belongs to") {
  sim::device gpu(sim::find_profile("h200_pcie5"), {.memory = 512_MiB});
  for (const bytes budget_of_two : {64_MiB, 16_MiB, 4_MiB}) {
    for (const char* const policy : {"auto", "um"}) {
      CAPTURE(budget_of_two.count);
      CAPTURE(policy);
      arena_options o = options(32_MiB);
      o.policy = policy;
      arena<sim::paged_memory> one(gpu, o);
      o.device_budget = budget_of_two;
      arena<sim::paged_memory> two(gpu, o);
      std::vector<word*> x;
      std::vector<word*> y;
      for (int i = 0; i < 8; ++i) {  // twice what one of them holds on the device
        x.push_back(one.allocate<word>(n));
        y.push_back(two.allocate<word>(n));
        fill(one, x.back(), n, static_cast<word>(i));
      }
      stream s(one);
      stream t(two);
      for (int round = 0; round < 3; ++round) {
        for (std::size_t i = 0; i < x.size(); ++i) {
          s.launch("add", 1, 1, 0, add, x[i], static_cast<const word*>(x[(i + 1) % x.size()]), n);
          s.memcpy(y[i], x[i], 8_MiB);
        }
        for (std::size_t i = 0; i < y.size(); ++i) {
          t.memcpy(x[(i + 3) % x.size()] + 7, y[i] + 7, 8_MiB - bytes{13 * sizeof(word)});
        }
      }
      // The same on the host.
      std::vector<std::vector<word>> a(x.size(), std::vector<word>(n));
      std::vector<std::vector<word>> b = a;
      for (std::size_t i = 0; i < a.size(); ++i) {
        std::iota(a[i].begin(), a[i].end(), static_cast<word>(i));
      }
      for (int round = 0; round < 3; ++round) {
        for (std::size_t i = 0; i < a.size(); ++i) {
          for (std::size_t k = 0; k < n; ++k) {
            a[i][k] += a[(i + 1) % a.size()][k];
          }
          b[i] = a[i];
        }
        for (std::size_t i = 0; i < b.size(); ++i) {
          std::copy(b[i].begin() + 7, b[i].end() - 6, a[(i + 3) % a.size()].begin() + 7);
        }
      }
      for (std::size_t i = 0; i < a.size(); ++i) {
        const auto seen_a = one.host_read(x[i], n);
        CHECK(std::equal(a[i].begin(), a[i].end(), seen_a.begin()));
        const auto seen_b = two.host_read(y[i], n);
        CHECK(std::equal(b[i].begin(), b[i].end(), seen_b.begin()));
      }
      const statistics first = one.statistics();
      const statistics second = two.statistics();
      CHECK(first.finished == first.launches);
      CHECK(second.finished == second.launches);
    }
  }
}

TEST_CASE("a stream of a third arena copies between two others, also one on memory that faults") {
  sim::device gpu(sim::find_profile("h200_pcie5"), {.memory = 512_MiB});
  arena<sim::paged_memory> one(gpu, options(32_MiB));
  arena<sim::paged_memory> two(gpu, options(32_MiB));
  arena<sim::paged_memory> three(gpu, options(32_MiB));
  arena<sim::managed_memory> managed(gpu, options(32_MiB));
  word* const a = one.allocate<word>(n);
  word* const b = two.allocate<word>(n);
  word* const c = managed.allocate<word>(n);
  fill(one, a, n, 100);
  stream s(three);
  s.memcpy(b, a, 8_MiB);
  CHECK(holds(two, b, n, 100));
  stream m(managed);
  m.memcpy(c, b, 8_MiB);
  CHECK(holds(managed, c, n, 100));
  m.launch("set", 1, 1, 0, set, overwrites(c, n), n, word{7});
  m.memcpy(a, c, 8_MiB);
  CHECK(one.host_read(a, n)[n - 1] == 7);
  s.memcpy(b, b + n / 2, 4_MiB);  // within one of them
  CHECK(holds(two, b, n / 2, 100 + static_cast<word>(n / 2)));
}

TEST_CASE("arenas on two devices copy by way of the host") {
  sim::device gpu(sim::find_profile("h200_pcie5"), {.memory = 512_MiB});
  sim::device other(sim::find_profile("h200_pcie5"), {.memory = 512_MiB});
  arena<sim::paged_memory> one(gpu, options(16_MiB));
  arena<sim::paged_memory> two(other, options(16_MiB));
  arena<sim::managed_memory> managed(gpu, options(16_MiB));
  word* const a = one.allocate<word>(4 * n);
  word* const b = two.allocate<word>(4 * n);
  word* const c = managed.allocate<word>(4 * n);
  {
    stream s(one);
    for (word i = 0; i < 4; ++i) {
      s.launch("set", 1, 1, 0, set, overwrites(a + i * n, n), n, i);
    }
    s.memcpy(b, a, 32_MiB);
  }
  stream t(two);
  t.launch("add", 1, 1, 0, add, updates(b, n), reads(static_cast<const word*>(b + 3 * n), n), n);
  stream m(managed);
  t.synchronize();
  m.memcpy(c, b, 32_MiB);
  m.synchronize();
  const auto seen = managed.host_read(c, 4 * n);
  CHECK(seen[0] == 3);
  CHECK(seen[n] == 1);
  CHECK(seen[4 * n - 1] == 3);
}

TEST_CASE("a copy out of freed memory of another arena, or past its end, is that arena's error") {
  sim::device gpu(sim::find_profile("h200_pcie5"), {.memory = 512_MiB});
  arena<sim::paged_memory> one(gpu, options(16_MiB));
  arena<sim::paged_memory> two(gpu, options(16_MiB));
  word* const a = one.allocate<word>(n);
  word* const b = two.allocate<word>(n);
  stream s(one);
  CHECK(mentions(failure(status::invalid_argument, [&] { s.memcpy(a, b + 1, 8_MiB); }), "memcpy"));
  two.deallocate(b);
  CHECK(mentions(failure(status::foreign_pointer, [&] { s.memcpy(a, b, 8_MiB); }), "memcpy"));
  fill(one, a, n, 3);  // what was begun has ended
  s.launch("add", 1, 1, 0, add, a, static_cast<const word*>(a), n);
  s.synchronize();
  CHECK(one.host_read(a, n)[0] == 6);
  CHECK(one.statistics().finished == one.statistics().launches);
  CHECK(two.statistics().finished == two.statistics().launches);
}

TEST_CASE("threads that copy between two small arenas in both directions do not wait for each other for ever") {
  sim::device_options o{.memory = 512_MiB};
  o.worker = sim::worker_mode::thread;
  sim::device gpu(sim::find_profile("h200_pcie5"), o);
  arena<sim::paged_memory> one(gpu, options(8_MiB));
  arena<sim::paged_memory> two(gpu, options(8_MiB));
  constexpr std::size_t threads = 4;
  constexpr std::size_t part = (8_MiB).count / sizeof(word);
  std::vector<std::thread> running;
  std::atomic<int> wrong{0};
  for (std::size_t t = 0; t < threads; ++t) {
    running.emplace_back([&, t] {
      word* const a = one.allocate<word>(part);
      word* const b = two.allocate<word>(part);
      fill(one, a, part, static_cast<word>(t));
      stream<sim::paged_memory> s(t % 2 == 0 ? one : two);
      for (int round = 0; round < 3; ++round) {
        s.memcpy(b, a, 8_MiB);
        s.memcpy(a + 1, b, 8_MiB - bytes{sizeof(word)});
      }
      s.synchronize();
      const auto seen = one.host_read(a, part);
      wrong += seen[0] == t && seen[part - 1] == t + part - 4 ? 0 : 1;
    });
  }
  for (std::thread& t : running) {
    t.join();
  }
  CHECK(wrong == 0);
}

}  // namespace several_arenas_test
