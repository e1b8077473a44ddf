// Copies and fills that are recorded into a graph on paged memory, wherever the memory happens to be.

#include "cuda/fake_cuda.hpp"
#include "cuda/fake_gpu.hpp"
#include "support/failure.hpp"
#include <deepum/arena.hpp>
#include <deepum/cuda.hpp>
#include <deepum/stream.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace graph_transfer_test {

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

struct machine {
  explicit machine(bool checked, bytes budget)
      : device(0, chosen()),
        arena(device, {.capacity = 64_MiB, .device_budget = budget, .policy = "um", .checked = checked, .log = {}}) {
    fake_cuda::register_kernel(add);
  }
  static deepum::cuda::device_options chosen() {
    deepum::cuda::device_options o;
    o.chunk = 2_MiB;
    return o;
  }
  word* filled(word value) {
    word* const p = arena.allocate<word>(n);
    const auto view = arena.host_overwrite(p, n);
    std::fill(view.begin(), view.end(), value);
    return p;
  }

  fake_gpu gpu;
  deepum::cuda::device device;
  arena_type arena;
};

TEST_CASE("memcpy and memset are recorded though the memory is away, and the graph runs wherever it was since") {
  for (const bool checked : {false, true}) {
    CAPTURE(checked);
    machine m(checked, 24_MiB);
    stream_type s(m.arena);
    word* const a = m.filled(1);
    word* const b = m.filled(2);
    word* const c = m.filled(3);
    std::vector<word*> others;
    for (word i = 0; i < 6; ++i) {
      others.push_back(m.filled(i));
    }
    std::vector<word> from_host(n, 10);
    const auto push_out = [&] {
      for (word* const p : others) {
        s.launch("push", 1, 1, 0, add, p, static_cast<const word*>(p), n);
      }
      s.synchronize();
    };
    push_out();  // what the graph names is not on the device, or not all of it
    const auto g = s.record_graph("copies", [&] {
      s.memcpy(b, a, 4_MiB);
      s.launch("add", 1, 1, 0, add, b, static_cast<const word*>(a), n);
      s.memset(a, 0, 4_MiB);
      s.memcpy(c, from_host.data(), 4_MiB);
    });
    CHECK(m.arena.host_read(a, n)[0] == 1);  // nothing of it has happened
    CHECK(m.arena.host_read(b, n)[0] == 2);
    CHECK(m.arena.host_read(c, n)[0] == 3);
    for (word round = 0; round < 3; ++round) {
      push_out();
      {
        const auto view = m.arena.host_overwrite(a, n);
        std::fill(view.begin(), view.end(), 100 + round);
      }
      std::fill(from_host.begin(), from_host.end(), 10 + round);
      s.launch(g);
      push_out();
      CHECK(m.arena.host_read(a, n)[n - 1] == 0);
      CHECK(m.arena.host_read(b, n)[0] == 2 * (100 + round));
      CHECK(m.arena.host_read(b, n)[1] == 100 + round);
      CHECK(m.arena.host_read(c, n)[n - 1] == 10 + round);
    }
    CHECK(comes([&] { return m.arena.statistics().finished == m.arena.statistics().launches; }));
    CHECK(fake_cuda::stats().capture_violations == 0);
  }
}

TEST_CASE("copies of more than the budget are refused where they are recorded, with the name of the graph") {
  machine m(false, 8_MiB);
  stream_type s(m.arena);
  std::vector<word*> x;
  for (word i = 0; i < 4; ++i) {
    x.push_back(m.filled(i));
  }
  const std::string said = failure(status::out_of_device_memory, [&] {
    (void)s.record_graph("too large", [&] {
      for (word* const p : x) {
        s.memset(p, 0, 4_MiB);
      }
    });
  });
  CHECK(mentions(said, "'too large'"));
  s.memset(x[0], 0, 4_MiB);  // the stream is as it was
  s.synchronize();
  CHECK(m.arena.host_read(x[0], n)[0] == 0);
  CHECK(m.arena.host_read(x[3], n)[0] == 3);
}

}  // namespace graph_transfer_test
