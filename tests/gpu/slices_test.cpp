// Launches that are larger than the budget on a real GPU, in slices: thread blocks know their place in the whole grid,
// and contents are those of the whole launch, on either kind of memory.

#include "kernels.hpp"
#include <deepum/arena.hpp>
#include <deepum/cuda.hpp>
#include <deepum/slices.hpp>
#include <deepum/stream.hpp>

#include <doctest/doctest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace {

using namespace deepum::literals;
using word = std::uint32_t;

TEST_CASE_TEMPLATE("slices: a launch of three times the budget has the contents of the whole one", Memory,
                   deepum::cuda::managed_memory, deepum::cuda::paged_memory) {
  for (const std::string policy : {"um", "auto"}) {
    CAPTURE(policy);
    deepum::cuda::device gpu(0);
    deepum::arena<Memory> arena(
        gpu, {.capacity = 512_MiB, .device_budget = 128_MiB, .policy = policy, .log = [](std::string_view) {}});
    deepum::stream<Memory> s(arena);
    constexpr std::uint64_t n = (1_MiB).count / sizeof(word) + 19;  // rows end within blocks
    constexpr deepum::dim grid{1, 32, 6};
    constexpr std::uint64_t words = grid.y * grid.z * n;  // 192 MiB in each of two
    word* const in = arena.template allocate<word>(words);
    word* const out = arena.template allocate<word>(words);
    s.launch_in_pieces("fill", {.elements = words, .per_block = 4096}, gpu_kernels::fill, deepum::overwrites(in, words),
                       5U, 0U, deepum::piece_size);
    for (int step = 0; step < 4; ++step) {
      const std::uint64_t before = arena.statistics().launches;
      s.launch("neighbours", grid, 256, 0, deepum::sliced(gpu_kernels::neighbours),
               deepum::by_z(deepum::overwrites(out, words), grid.y * n),
               deepum::by_z(deepum::reads(in, words), grid.y * n), n);
      CHECK(arena.statistics().launches - before == grid.z);  // two planes of each do not fit
      s.launch_in_pieces("mix", {.elements = words, .per_block = 4096}, gpu_kernels::mix, deepum::updates(in, words),
                         deepum::reads(out, words), deepum::piece_size);
    }
    s.synchronize();
    // Words of a row are the same ones; so are rows but for those at the edges, by their thread block.
    std::array<std::array<std::array<word, grid.y>, grid.z>, 2> expected{};
    for (auto& plane : expected[0]) {
      plane.fill(5);
    }
    for (int step = 0; step < 4; ++step) {
      for (unsigned z = 0; z < grid.z; ++z) {
        for (unsigned y = 0; y < grid.y; ++y) {
          expected[1][z][y] =
              (y > 0 ? expected[0][z][y - 1] : 0) + (y + 1 < grid.y ? expected[0][z][y + 1] : 0) + z * grid.y + y;
        }
      }
      for (unsigned z = 0; z < grid.z; ++z) {
        for (unsigned y = 0; y < grid.y; ++y) {
          expected[0][z][y] = expected[0][z][y] * 3 + expected[1][z][y];
        }
      }
    }
    std::uint64_t wrong = 0;
    for (std::size_t which = 0; which < 2; ++which) {
      const auto view = arena.host_read(which == 0 ? in : out, words);
      for (std::uint64_t i = 0; i < words; ++i) {
        wrong += view[i] != expected[which][i / n / grid.y][i / n % grid.y] ? 1U : 0U;
      }
    }
    CHECK(wrong == 0);
  }
}

}  // namespace
