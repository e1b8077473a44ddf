// Memory that is handed out with `arena_options::zero_new`: it reads as zero, whoever reads it first and however.

#include "support/failure.hpp"
#include <deepum/deepum.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace zero_new_test {

using namespace deepum;
using namespace deepum::literals;
using word = std::uint32_t;

constexpr std::size_t words_of(bytes n) { return n.count / sizeof(word); }

const sim::kernel set{[](word* a, std::size_t n, word v) { std::fill_n(a, n, v); },
                      [](sim::work& w, word* a, std::size_t n, word) { w.overwrites(a, n * sizeof(word)).flops(1e6); }};
/// Counts what is not zero.
const sim::kernel count{[](word* result, const word* a, std::size_t n) {
                          *result = static_cast<word>(static_cast<std::ptrdiff_t>(n) - std::count(a, a + n, 0U));
                        },
                        [](sim::work& w, word* result, const word* a, std::size_t n) {
                          w.reads(a, n * sizeof(word)).overwrites(result, sizeof(word));
                        }};
const sim::kernel increment{[](word* a, std::size_t n) {
                              for (std::size_t i = 0; i < n; ++i) {
                                ++a[i];
                              }
                            },
                            [](sim::work& w, word* a, std::size_t n) { w.updates(a, n * sizeof(word)); }};

template <class Memory>
struct machine {
  explicit machine(bool zero = true, bool checked = false)
      : gpu(sim::find_profile("h200_pcie5"), {.memory = 64_MiB}),
        memory(gpu, {.capacity = 128_MiB,
                     .device_budget = 32_MiB,
                     .zero_new = zero,
                     .checked = checked,
                     .log = [](std::string_view) {},
                     .observer =
                         [this](const device_event& e, launch_id) {
                           if (e.what == device_event::kind::launch_issued && e.record->name == "zero_new") {
                             for (const block_access& a : e.record->accesses) {
                               filled += a.range.count;
                             }
                           }
                         }}) {}
  /// An allocation that holds something, given back; the next one of its size is in its place.
  void soil(std::size_t n) {
    stream<Memory> s(memory);
    word* const p = memory.template allocate<word>(n);
    s.launch("set", 1, 1, 0, set, overwrites(p, n), n, word{0x77});
    s.synchronize();
    (void)memory.statistics();  // so that it is known that all have finished
    memory.deallocate(p);
    filled = 0;
  }
  word nonzero(stream<Memory>& s, const word* a, std::size_t n) {
    const auto result = memory.template make_array<word>(1);
    s.launch("count", 1, 1, 0, count, overwrites(result), reads(a, n), n);
    s.synchronize();
    return memory.host_read(result.data(), 1)[0];
  }

  std::uint64_t filled = 0;  // blocks
  sim::device gpu;
  arena<Memory> memory;
};

TEST_CASE_TEMPLATE("new memory reads as zero on the device, whatever was there before", Memory, sim::managed_memory,
                   sim::paged_memory) {
  for (const std::size_t n : {words_of(16_MiB), words_of(3_MiB), std::size_t{1000}, std::size_t{1}}) {
    CAPTURE(n);
    machine<Memory> m;
    m.soil(n);
    stream<Memory> s(m.memory);
    word* const p = m.memory.template allocate<word>(n);
    CHECK(m.nonzero(s, p, n) == 0);
    s.launch("increment", 1, 1, 0, increment, p, n);  // filled once only
    CHECK(m.nonzero(s, p, n) == n);
  }
}

TEST_CASE_TEMPLATE("it reads as zero on the host, through every kind of view that reads", Memory, sim::managed_memory,
                   sim::paged_memory) {
  constexpr std::size_t n = words_of(5_MiB);
  for (const bool writes : {false, true}) {
    machine<Memory> m;
    m.soil(n);
    word* const p = m.memory.template allocate<word>(n);
    if (writes) {
      const auto view = m.memory.host_write(p, n);
      CHECK(std::count(view.begin(), view.end(), 0U) == static_cast<std::ptrdiff_t>(n));
      view[7] = 1;
    }
    const auto view = m.memory.host_read(p, n);
    CHECK(std::count(view.begin(), view.end(), 0U) == static_cast<std::ptrdiff_t>(n) - (writes ? 1 : 0));
  }
}

TEST_CASE("memory that faults is zero as soon as it is handed out, for hosts that use no view") {
  machine<sim::managed_memory> m;
  constexpr std::size_t n = words_of(5_MiB);
  m.soil(n);
  word* const p = m.memory.allocate<word>(n);
  CHECK(std::count(p, p + n, 0U) == static_cast<std::ptrdiff_t>(n));
  p[3] = 5;  // and nothing overwrites that later
  stream s(m.memory);
  CHECK(m.nonzero(s, p, n) == 1);
}

TEST_CASE("memory that faults costs no fill where it was never handed out before") {
  machine<sim::managed_memory> m;
  constexpr std::size_t n = words_of(16_MiB);
  stream s(m.memory);
  word* const p = m.memory.allocate<word>(n);
  CHECK(m.filled == 0);
  CHECK(m.nonzero(s, p, n) == 0);
}

TEST_CASE("small allocations are filled by the byte: their neighbours keep what they hold") {
  machine<sim::managed_memory> managed;
  machine<sim::paged_memory> paged;
  const auto check = [](auto& m, auto s) {
    word* const before = m.memory.template allocate<word>(64);
    word* const middle = m.memory.template allocate<word>(64);
    word* const behind = m.memory.template allocate<word>(64);
    for (word* p : {before, middle, behind}) {
      s->launch("set", 1, 1, 0, set, overwrites(p, 64), std::size_t{64}, word{9});
    }
    s->synchronize();
    (void)m.memory.statistics();  // so that it is known that all have finished
    m.memory.deallocate(middle);
    word* const again = m.memory.template allocate<word>(64);
    REQUIRE(again == middle);
    CHECK(m.nonzero(*s, again, 64) == 0);
    CHECK(m.nonzero(*s, before, 64) == 64);
    CHECK(m.nonzero(*s, behind, 64) == 64);
  };
  check(managed, std::make_unique<stream<sim::managed_memory>>(managed.memory));
  check(paged, std::make_unique<stream<sim::paged_memory>>(paged.memory));
}

TEST_CASE("what a launch overwrites as a whole first costs no fill on memory that never faults") {
  machine<sim::paged_memory> m;
  constexpr std::size_t n = words_of(8_MiB);
  m.soil(n);
  stream s(m.memory);
  word* const p = m.memory.allocate<word>(n);
  word* const q = m.memory.allocate<word>(n);
  s.launch("set", 1, 1, 0, set, overwrites(p, n), n, word{1});
  s.memset(q, 1, bytes{n * sizeof(word)});
  CHECK(m.nonzero(s, p, n) == n);
  CHECK(m.nonzero(s, q, n) == n);
  CHECK(m.filled == 0);
  word* const half = m.memory.allocate<word>(n);
  s.launch("set", 1, 1, 0, set, overwrites(half, n / 2), n / 2, word{1});
  CHECK(m.nonzero(s, half, n) == n / 2);  // the rest is filled when it is read
  CHECK(m.filled == 2);
  const auto view = m.memory.host_overwrite(m.memory.allocate<word>(n), n);
  CHECK(m.filled == 2);
}

TEST_CASE("what a launch reads as well is filled before it, and so is all that one may touch which does not say") {
  machine<sim::paged_memory> m;
  constexpr std::size_t n = words_of(2_MiB);
  m.soil(4 * n);
  stream s(m.memory);
  word* const p = m.memory.allocate<word>(n);
  s.call("both", {overwrites(p, n), reads(p, n / 2)}, [&](sim::stream& q) {
    q.launch(1, 1, 0, increment, p, n / 2);
    q.launch(1, 1, 0, set, p + n / 2, n / 2, word{0});
  });
  CHECK(m.nonzero(s, p, n) == n / 2);
  word* const hidden = m.memory.allocate<word>(n);
  s.call("says nothing", {}, [&](sim::stream& q) { q.launch(1, 1, 0, increment, hidden, n); });
  s.synchronize();
  const auto view = m.memory.host_read(hidden, n);
  CHECK(std::count(view.begin(), view.end(), 1U) == static_cast<std::ptrdiff_t>(n));
}

TEST_CASE("other streams and undeclared uses find zeroes too") {
  machine<sim::managed_memory> m;
  constexpr std::size_t n = words_of(4_MiB);
  m.soil(n);
  word* const p = m.memory.allocate<word>(n);
  stream one(m.memory);
  stream two(m.memory);
  one.launch("set", 1, 1, 0, set, p, std::size_t{1}, word{1});
  word* const mine = m.memory.allocate<word>(n);
  two.call("undeclared", {updates(mine, n)}, [&](sim::stream& q) { q.launch(1, 1, 0, increment, p + 8, n - 8); });
  two.synchronize();
  one.synchronize();
  CHECK(std::count(p + 8, p + n, 1U) == static_cast<std::ptrdiff_t>(n) - 8);

  machine<sim::paged_memory> paged;
  paged.soil(n);
  word* const q = paged.memory.allocate<word>(n);
  stream three(paged.memory);
  stream four(paged.memory);
  three.launch("increment", 1, 1, 0, increment, updates(q, n), n / 2);
  four.launch("increment", 1, 1, 0, increment, updates(q + n / 2, n / 2), n / 2);  // not ordered with the other one
  three.synchronize();
  four.synchronize();
  const auto view = paged.memory.host_read(q, n);
  CHECK(std::count(view.begin(), view.end(), 1U) == static_cast<std::ptrdiff_t>(n));
}

TEST_CASE("a launch that does not run overwrites nothing: the memory reads as zero all the same") {
  machine<sim::paged_memory> m;
  constexpr std::size_t n = words_of(4_MiB);
  m.soil(n);
  stream s(m.memory);
  word* const p = m.memory.allocate<word>(n);
  CHECK_THROWS_AS(s.call("thrown", {overwrites(p, n)}, [](sim::stream&) { throw std::runtime_error("no"); }),
                  std::runtime_error);
  CHECK(m.nonzero(s, p, n) == 0);
  word* const q = m.memory.allocate<word>(words_of(48_MiB));
  deepum_test::failure(status::out_of_device_memory, [&] {
    s.launch("too large", 1, 1, 0, set, overwrites(q, words_of(48_MiB)), words_of(48_MiB), word{1});
  });
  CHECK(m.nonzero(s, q, words_of(20_MiB)) == 0);
}

TEST_CASE("threads that find the same new memory wait for whoever fills it") {
  machine<sim::paged_memory> m;
  constexpr std::size_t n = words_of(16_MiB);
  m.soil(n);
  word* const p = m.memory.allocate<word>(n);
  word* const results = m.memory.allocate<word>(4);
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      stream s(m.memory);
      s.launch("count", 1, 1, 0, count, overwrites(results + t, 1), reads(p, n), n);
      s.synchronize();
    });
  }
  for (std::thread& t : threads) {
    t.join();
  }
  const auto view = m.memory.host_read(results, 4);
  CHECK(std::count(view.begin(), view.end(), 0U) == 4);
}

TEST_CASE("without the option memory holds what was left in it") {
  machine<sim::managed_memory> m(false);
  constexpr std::size_t n = words_of(4_MiB);
  word* const old = m.memory.allocate<word>(n);
  std::fill_n(old, n, 5U);
  m.memory.deallocate(old);
  word* const p = m.memory.allocate<word>(n);
  REQUIRE(p == old);
  CHECK(p[0] == 5);
}

TEST_CASE_TEMPLATE("in checked mode new memory reads as zero with the option, and as no number without", Memory,
                   sim::managed_memory, sim::paged_memory) {
  constexpr std::size_t n = words_of(3_MiB);
  for (const bool zero : {true, false}) {
    machine<Memory> m(zero, true);
    m.soil(n);
    stream<Memory> s(m.memory);
    word* const p = m.memory.template allocate<word>(n);
    CHECK(m.nonzero(s, p, n) == (zero ? 0 : n));
    const auto view = m.memory.host_read(reinterpret_cast<const float*>(p), n);
    CHECK(std::all_of(view.begin(), view.end(), [&](float x) { return zero ? x == 0 : std::isnan(x); }));
  }
}

}  // namespace zero_new_test
