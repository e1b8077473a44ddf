// Paged memory where the driver does not unmap: contents are where they should be, nobody else gets the chunk, and who
// needs the room gets it later or is told why not.

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
#include <vector>

namespace failing_unmaps_test {

using namespace deepum_test;
using namespace deepum::literals;
using deepum::access;  // not the one of POSIX
using deepum::status;
using word = std::uint32_t;

constexpr std::size_t words = 2_MiB .count / sizeof(word);  // of a block
constexpr unsigned for_ever = 1U << 30;

void add(word* a, word value) {
  device_touch(a, words * sizeof(word), access::update);
  std::for_each_n(a, words, [value](word& w) { w += value; });
}

/// An arena of eight blocks on a device with room for three, and a buffer for each block: all words are its number.
struct bench {
  bench() {
    fake_cuda::register_kernel(add);
    for (word i = 0; i < 8; ++i) {
      buffers.push_back(memory.allocate<word>(words));
      const auto view = memory.host_overwrite(buffers.back(), words);
      std::fill_n(view.data(), words, i);
    }
  }
  void launch(std::size_t buffer, word value) { s.launch("add", 1, 1, 0, add, buffers[buffer], value); }
  [[nodiscard]] bool holds(std::size_t buffer, word value) {
    const auto view = memory.host_read(buffers[buffer], words);
    return std::all_of(view.begin(), view.end(), [value](word w) { return w == value; });
  }

  fake_gpu gpu{64_MiB};
  deepum::cuda::device device{0, {.chunk = 2_MiB}};
  deepum::arena<deepum::cuda::paged_memory> memory{
      device, {.capacity = 16_MiB, .device_budget = 6_MiB, .policy = "lru", .log = {}}};
  deepum::stream<deepum::cuda::paged_memory> s{memory};
  std::vector<word*> buffers{};
};

TEST_CASE("contents are right where the driver refuses to unmap now and then") {
  for (const unsigned nth : {1U, 2U, 5U}) {
    for (const unsigned times : {1U, 2U, 7U}) {
      CAPTURE(nth);
      CAPTURE(times);
      bench b;
      for (word round = 1; round <= 3; ++round) {
        fake_cuda::refuse_calls("cuMemUnmap", nth, times, cudaErrorUnknown);
        for (std::size_t i = 0; i < b.buffers.size(); ++i) {
          b.launch(i, 100 * round);
        }
      }
      b.s.synchronize();
      for (std::size_t i = 0; i < b.buffers.size(); ++i) {
        CHECK(b.holds(i, 600 + static_cast<word>(i)));
      }
      CHECK(fake_cuda::stats().taken_in_use == 0);
      CHECK(fake_cuda::stats().most_mappings == 2);
    }
  }
}

TEST_CASE("where nothing can be unmapped, a launch that needs room is refused with the reason, and nothing is lost") {
  bench b;
  for (const std::size_t i : {0U, 1U, 2U}) {
    b.launch(i, 100);
  }
  b.s.synchronize();
  fake_cuda::refuse_calls("cuMemUnmap", 1, for_ever, cudaErrorUnknown);
  CHECK(mentions(failure(status::out_of_device_memory, [&] { b.launch(3, 100); }),
                 "a chunk could not be unmapped: the driver says 999"));
  for (const std::size_t i : {0U, 1U, 2U, 3U}) {
    CHECK(b.holds(i, static_cast<word>(i) + (i < 3 ? 100 : 0)));
  }
  std::fill_n(b.memory.host_overwrite(b.buffers[0], words).data(), words, 7);
  CHECK(fake_cuda::stats().most_mappings == 2);

  fake_cuda::forget_failures();
  for (const std::size_t i : {0U, 1U, 2U, 3U}) {
    b.launch(i, 100);
  }
  b.s.synchronize();
  CHECK(b.holds(0, 107));
  for (const std::size_t i : {1U, 2U, 3U}) {
    CHECK(b.holds(i, static_cast<word>(i) + (i < 3 ? 200 : 100)));
  }
}

TEST_CASE("contents that are given up leave later, where the driver does not unmap") {
  bench b;
  for (const std::size_t i : {0U, 1U, 2U}) {
    b.launch(i, 100);
  }
  b.s.synchronize();
  fake_cuda::refuse_calls("cuMemUnmap", 2, 4, cudaErrorUnknown);
  for (const std::size_t i : {0U, 1U, 2U}) {
    b.memory.mark_inactive(b.buffers[i], 2_MiB);
  }
  for (const std::size_t i : {3U, 4U, 5U}) {
    b.launch(i, 100);
  }
  b.s.synchronize();
  for (const std::size_t i : {3U, 4U, 5U}) {
    CHECK(b.holds(i, static_cast<word>(i) + 100));
  }
}

}  // namespace failing_unmaps_test
