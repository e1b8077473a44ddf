// Host memory of paged memory that is reclaimed for other chunks, on the fake CUDA runtime: no view loses its memory
// and no contents are lost.

#include "cuda/fake_cuda.hpp"
#include "cuda/fake_gpu.hpp"
#include "support/failure.hpp"
#include <deepum/arena.hpp>
#include <deepum/cuda.hpp>
#include <deepum/stream.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <thread>
#include <vector>

namespace cuda_host_copies_test {

using namespace deepum_test;
using namespace deepum::literals;
using namespace std::chrono_literals;
using deepum::access;  // not the one of POSIX
using deepum::bytes;
using arena_type = deepum::arena<deepum::cuda::paged_memory>;
using stream_type = deepum::stream<deepum::cuda::paged_memory>;
using word = std::uint32_t;

constexpr std::size_t words_per_chunk = (2_MiB).count / sizeof(word);

void set(word* a, std::uint64_t n, word value) {
  device_touch(a, n * sizeof(word), access::overwrite);
  std::fill_n(a, n, value);
}

struct machine {
  explicit machine(bytes budget, bytes host_limit) {
    fake_cuda::register_kernel(set);
    deepum::cuda::device_options o;
    o.chunk = 2_MiB;
    o.host_limit = host_limit;
    device.emplace(0, o);
    arena.emplace(*device,
                  deepum::arena_options{.capacity = 64_MiB, .device_budget = budget, .policy = "um", .log = {}});
  }
  /// Writes chunks of other allocations, so that they go through the device and need memory of the host.
  void write_others(stream_type& s, const std::vector<word*>& others, word value) {
    for (word* const p : others) {
      s.launch("set", 1, 1, 0, set, p, words_per_chunk, value);
    }
    s.synchronize();
  }

  fake_gpu gpu;
  std::optional<deepum::cuda::device> device;
  std::optional<arena_type> arena;
};

TEST_CASE("a view that ends while its chunk is on its way to the host does not lose what is in it") {
  machine m(8_MiB, 8_MiB);
  arena_type& memory = *m.arena;
  stream_type s(memory);
  std::vector<word*> others;
  for (int i = 0; i < 6; ++i) {
    others.push_back(memory.allocate<word>(words_per_chunk));
  }
  word* const x = memory.allocate<word>(100);  // both lie in one chunk
  word* const y = memory.allocate<word>(100);
  s.launch("set", 1, 1, 0, set, x, std::uint64_t{100}, word{7});
  s.synchronize();
  {
    const auto view = memory.host_read(x, 100);
    s.launch("set", 1, 1, 0, set, y, std::uint64_t{100}, word{101});
    s.synchronize();
    fake_cuda::set_leaving_time(100ms);
    memory.prefetch(x, bytes{400}, deepum::location::host());
    std::this_thread::sleep_for(30ms);  // the chunk is leaving
#ifndef __SANITIZE_THREAD__             // the copy writes the bytes that are there, which is a race to it
    CHECK(view[0] == 7);
#endif
  }
  fake_cuda::set_leaving_time({});
  for (int i = 0; i < 2; ++i) {
    m.write_others(s, others, 5);
  }
  CHECK(memory.host_read(x, 100)[0] == 7);
  CHECK(memory.host_read(y, 100)[99] == 101);
}

TEST_CASE("where a chunk cannot leave, the view that reads it keeps its memory") {
  machine m(16_MiB, 18_MiB);
  arena_type& memory = *m.arena;
  stream_type s(memory);
  std::vector<word*> others;
  for (int i = 0; i < 8; ++i) {
    others.push_back(memory.allocate<word>(words_per_chunk));
  }
  word* const x = memory.allocate<word>(4 * words_per_chunk);
  s.launch("set", 1, 1, 0, set, x, 4 * words_per_chunk, word{7});
  s.synchronize();
  {
    const auto view = memory.host_read(x, 4 * words_per_chunk);
    s.launch("set", 1, 1, 0, set, x, 4 * words_per_chunk, word{8});
    s.synchronize();
    // A copy on its way out fails, in the middle of the range.
    fake_cuda::fail_call("cudaMemcpyAsync", 3, cudaErrorUnknown);
    memory.prefetch(x, 8_MiB, deepum::location::host());
    CHECK(comes([&] { return memory.statistics().failed_calls != 0; }));
    for (int i = 0; i < 2; ++i) {
      for (word* const p : others) {
        m.write_others(s, {p, x}, 8);  // x stays
      }
    }
    for (std::size_t i = 0; i < 4 * words_per_chunk; i += words_per_chunk) {
      REQUIRE(fake_cuda::host_may_access(&view[i], sizeof(word), access::read));
    }
  }
  s.launch("set", 1, 1, 0, set, x, 4 * words_per_chunk, word{8});
  s.synchronize();
  const auto view = memory.host_read(x, 4 * words_per_chunk);
  CHECK(std::count(view.begin(), view.end(), word{8}) == static_cast<std::ptrdiff_t>(4 * words_per_chunk));
}

}  // namespace cuda_host_copies_test
