#pragma once

#include <deepum/dim.hpp>
#include <deepum/operand.hpp>

#include <cstdint>

namespace deepum {
inline namespace v0 {

/// Dimension of a grid.
enum class grid_axis : std::uint8_t { x, y, z };

/// Thread blocks of a grid that one launch computes: a slice of the grid, or all of it.
///
/// A kernel of `sliced` gets it as its first argument, and uses it where another one uses `blockIdx` and `gridDim`:
///
///     __global__ void scale(deepum::grid_slice at, float* w, float by, std::size_t n) {
///       const std::size_t i = at.block().x * std::size_t{blockDim.x} + threadIdx.x;   // at.grid.x for gridDim.x
///       if (i < n) w[i] *= by;
///     }
struct grid_slice {
  dim begin{0, 0, 0};  ///< its first thread block
  dim blocks{};        ///< how many it has in each dimension: the grid that runs
  dim grid{};          ///< the grid as the program launched it

#ifdef __CUDACC__
  /// The thread block that runs, as `blockIdx` would have it in the whole grid.
  [[nodiscard]] __device__ uint3 block() const {
    uint3 at;
    at.x = begin.x + blockIdx.x;
    at.y = begin.y + blockIdx.y;
    at.z = begin.z + blockIdx.z;
    return at;
  }
#endif

  /// Calls `body(dim)` for each thread block of the slice, x first: for kernels of the simulated GPU.
  template <class Body>
  void for_each_block(Body&& body) const {
    for (unsigned z = 0; z != blocks.z; ++z) {
      for (unsigned y = 0; y != blocks.y; ++y) {
        for (unsigned x = 0; x != blocks.x; ++x) {
          body(dim{begin.x + x, begin.y + y, begin.z + z});
        }
      }
    }
  }

  friend constexpr bool operator==(const grid_slice&, const grid_slice&) = default;
};

/// It is numbers.
template <>
inline constexpr bool hides_no_pointers<grid_slice> = true;

}  // namespace v0
}  // namespace deepum
