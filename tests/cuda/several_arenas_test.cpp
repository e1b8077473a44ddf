// Several paged arenas in one process on the fake GPU, which breaks where a copy or kernel finds memory away.

#include "cuda/fake_cuda.hpp"
#include "cuda/fake_gpu.hpp"
#include "support/failure.hpp"
#include <deepum/arena.hpp>
#include <deepum/cuda.hpp>
#include <deepum/stream.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace several_arenas_test {

using namespace deepum_test;
using namespace deepum::literals;
using deepum::access;  // not the one of POSIX
using deepum::bytes;
using deepum::status;
using word = std::uint32_t;
using arena_type = deepum::arena<deepum::cuda::paged_memory>;
using stream_type = deepum::stream<deepum::cuda::paged_memory>;

constexpr std::uint64_t n = (4_MiB).count / sizeof(word);

void add(word* a, const word* b, std::uint64_t count) {
  device_touch(b, count * sizeof(word), access::read);
  device_touch(a, count * sizeof(word), access::update);
  for (std::uint64_t i = 0; i < count; i += 64) {
    a[i] += b[i];
  }
}
void set(word* a, std::uint64_t count, word value) {
  device_touch(a, count * sizeof(word), access::overwrite);
  std::fill_n(a, count, value);
}

struct machine {
  explicit machine(bool in_checked_mode = false) : checked(in_checked_mode), device(0, chosen()) {
    fake_cuda::register_kernel(add);
    fake_cuda::register_kernel(set);
  }
  static deepum::cuda::device_options chosen() {
    deepum::cuda::device_options o;
    o.chunk = 2_MiB;
    o.faults = deepum::cuda::fault_source::none;
    return o;
  }
  [[nodiscard]] deepum::arena_options options(bytes budget) const {
    return {.capacity = 64_MiB, .device_budget = budget, .checked = checked, .log = {}};
  }

  fake_gpu gpu;
  bool checked;
  deepum::cuda::device device;
};

TEST_CASE("a kernel on memory of another paged arena is refused, and the device stays whole") {
  machine m;
  arena_type one(m.device, m.options(16_MiB));
  arena_type two(m.device, m.options(16_MiB));
  deepum::arena<deepum::cuda::managed_memory> managed(m.device, m.options(16_MiB));
  word* const a = one.allocate<word>(n);
  word* const b = two.allocate<word>(n);
  word* const c = managed.allocate<word>(n);
  stream_type s(one);
  deepum::stream<deepum::cuda::managed_memory> t(managed);
  s.launch("set", 1, 1, 0, set, deepum::overwrites(a, n), n, word{1});
  const std::string said =
      failure(status::foreign_pointer, [&] { s.launch("mix", 1, 1, 0, add, a, static_cast<const word*>(b), n); });
  CHECK(mentions(said, "'mix'"));
  CHECK(mentions(said, "argument 2"));
  (void)failure(status::foreign_pointer, [&] { t.launch("mix", 1, 1, 0, add, c, static_cast<const word*>(b), n); });
  (void)failure(status::foreign_pointer,
                [&] { (void)s.record_graph("g", [&] { s.launch("mix", 1, 1, 0, set, b, n, word{1}); }); });
  // Managed memory comes when it is touched.
  t.launch("set", 1, 1, 0, set, deepum::overwrites(c, n), n, word{5});
  t.synchronize();
  s.launch("with managed", 1, 1, 0, add, a, static_cast<const word*>(c), n);
  s.synchronize();
  CHECK(one.host_read(a, n)[64] == 6);
}

TEST_CASE("memcpy between arenas brings and keeps both sides, in checked mode too") {
  for (const bool checked : {false, true}) {
    for (const bytes budget : {16_MiB, 4_MiB}) {
      CAPTURE(checked);
      CAPTURE(budget.count);
      machine m(checked);
      fake_cuda::set_delays(5, std::chrono::microseconds(300));
      arena_type one(m.device, m.options(16_MiB));
      arena_type two(m.device, m.options(budget));
      deepum::arena<deepum::cuda::managed_memory> managed(m.device, m.options(16_MiB));
      std::vector<word*> x;
      std::vector<word*> y;
      for (word i = 0; i < 6; ++i) {
        x.push_back(one.allocate<word>(n));
        y.push_back(two.allocate<word>(n));
      }
      word* const c = managed.allocate<word>(n);
      stream_type s(one);
      stream_type t(two);
      deepum::stream<deepum::cuda::managed_memory> u(managed);
      for (int round = 0; round < 2; ++round) {
        for (word i = 0; i < 6; ++i) {
          s.launch("set", 1, 1, 0, set, deepum::overwrites(x[i], n), n, 10 * i + 1);
          s.memcpy(y[i], x[i], 4_MiB);
        }
        for (word i = 0; i < 6; ++i) {
          t.memcpy(x[(i + 1) % 6] + 3, y[i] + 3, 4_MiB - bytes{3 * sizeof(word)});
        }
      }
      u.memcpy(c, y[5], 4_MiB);
      u.synchronize();
      for (word i = 0; i < 6; ++i) {
        const auto copied = one.host_read(x[(i + 1) % 6], n);
        CHECK(copied[0] == 10 * ((i + 1) % 6) + 1);
        CHECK(copied[3] == 10 * i + 1);
        CHECK(copied[n - 1] == 10 * i + 1);
      }
      CHECK(managed.host_read(c, n)[n - 1] == 51);
      CHECK(comes([&] { return two.statistics().finished == two.statistics().launches; }));
    }
  }
}

}  // namespace several_arenas_test
