// Launches in slices on the fake GPU: the part of the grid that each slice launches, and the same contents, on both
// kinds of memory.

#include "cuda/fake_cuda.hpp"
#include "cuda/fake_gpu.hpp"
#include <deepum/arena.hpp>
#include <deepum/cuda.hpp>
#include <deepum/slices.hpp>
#include <deepum/stream.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <vector>

namespace sliced_launches_test {

using namespace deepum_test;
using namespace deepum::literals;
using deepum::access;  // not the one of POSIX
using word = std::uint32_t;

constexpr std::size_t row = (256_KiB).count / sizeof(word) + 64;  // rows end within blocks

/// out[y] = in[y - 1] + in[y + 1], by thread blocks (x, y), the first of which does the work.
void neighbours(deepum::grid_slice at, word* out, const word* in, std::size_t rows) {
  const std::size_t from = at.begin.y;
  const std::size_t to = from + at.blocks.y;
  const std::size_t read_from = from - std::min<std::size_t>(from, 1);
  const std::size_t read_to = std::min(rows, to + 1);
  device_touch(in + read_from * row, (read_to - read_from) * row * sizeof(word), access::read);
  device_touch(out + from * row, (to - from) * row * sizeof(word), access::overwrite);
  for (std::size_t y = from; y < to; ++y) {
    for (std::size_t i = 0; i < row; ++i) {
      out[y * row + i] = (y > 0 ? in[(y - 1) * row + i] : 0) + (y + 1 < rows ? in[(y + 1) * row + i] : 0) + at.grid.y;
    }
  }
}
void scale(word* a, std::size_t n) {
  device_touch(a, n * sizeof(word), access::update);
  std::transform(a, a + n, a, [](word x) { return 3 * x; });
}

template <class Memory>
deepum::cuda::device_options options() {
  deepum::cuda::device_options o;
  if constexpr (deepum::paged_memory_kind<Memory>) {
    o.chunk = 2_MiB;
  }
  return o;
}

TEST_CASE_TEMPLATE("slices launch parts of the grid that are all of it, on CUDA as well", Memory,
                   deepum::cuda::managed_memory, deepum::cuda::paged_memory) {
  const fake_gpu gpu(256_MiB);
  fake_cuda::register_kernel(neighbours);
  fake_cuda::register_kernel(scale);
  deepum::cuda::device device(0, options<Memory>());
  deepum::arena<Memory> memory(device, {.capacity = 128_MiB, .device_budget = 16_MiB, .headroom = 4_MiB, .log = {}});
  deepum::stream<Memory> s(memory);
  constexpr unsigned rows = 67;  // 17 MiB in each of two
  constexpr std::size_t n = rows * row;
  word* const in = memory.template allocate<word>(n);
  word* const out = memory.template allocate<word>(n);
  {
    const auto view = memory.host_overwrite(in, n);
    std::iota(view.begin(), view.end(), word{1});
  }
  const std::size_t before = fake_cuda::launches().size();
  s.launch("neighbours", dim3{2, rows, 1}, 128, 0, deepum::sliced(neighbours),
           deepum::by_y(deepum::overwrites(out, n), row), deepum::by_y(deepum::reads(in, n), row, row), rows);
  s.launch_in_pieces("scale", {.elements = n, .threads = 128, .per_block = 4096}, scale, deepum::updates(in, n),
                     deepum::piece_size);
  s.synchronize();
  unsigned seen = 0;
  std::size_t slices = 0;
  std::uint64_t blocks_of_scale = 0;
  const std::vector<fake_cuda::launch> launches = fake_cuda::launches();
  for (std::size_t i = before; i < launches.size(); ++i) {
    if (launches[i].function == reinterpret_cast<const void*>(neighbours)) {
      CHECK(launches[i].grid.x == 2);
      seen += launches[i].grid.y;
      ++slices;
    } else if (launches[i].function == reinterpret_cast<const void*>(scale)) {
      blocks_of_scale += launches[i].grid.x;
    }
  }
  CHECK(seen == rows);
  CHECK(slices > 2);
  CHECK(blocks_of_scale == (n - 1) / 4096 + 1);
  {
    const auto view = memory.host_read(out, n);
    bool right = true;
    for (std::size_t i = 0; i < n; ++i) {
      const word above = i >= row ? static_cast<word>(i - row + 1) : 0;
      const word below = i + row < n ? static_cast<word>(i + row + 1) : 0;
      right = right && view[i] == above + below + rows;
    }
    CHECK(right);
  }
  const auto view = memory.host_read(in, n);
  bool right = true;
  for (std::size_t i = 0; i < n; ++i) {
    right = right && view[i] == 3 * static_cast<word>(i + 1);
  }
  CHECK(right);
}

TEST_CASE("a captured launch is one launch") {
  const fake_gpu gpu(256_MiB);
  fake_cuda::register_kernel(neighbours);
  deepum::cuda::device device(0);
  deepum::arena memory(device, {.capacity = 128_MiB, .device_budget = 16_MiB, .headroom = 4_MiB, .log = {}});
  deepum::stream s(memory);
  constexpr unsigned rows = 67;
  constexpr std::size_t n = rows * row;
  word* const in = memory.allocate<word>(n);
  word* const out = memory.allocate<word>(n);
  s.memset(in, 0, deepum::bytes{n * sizeof(word)});
  const std::size_t before = fake_cuda::launches().size();
  const auto graph = s.record_graph("graph", [&] {
    s.launch("neighbours", dim3{2, rows, 1}, 128, 0, deepum::sliced(neighbours),
             deepum::by_y(deepum::overwrites(out, n), row), deepum::by_y(deepum::reads(in, n), row, row), rows);
  });
  s.launch(graph);
  s.synchronize();
  CHECK(fake_cuda::launches().size() == before + 1);
  const auto view = memory.host_read(out, n);
  CHECK(view[0] == rows);
  CHECK(view[n - 1] == rows);
}

}  // namespace sliced_launches_test
