#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

/// Matrix products for the kernels that run on the host.
///
/// Written here instead of taken from a library for one property: every element of the result is summed in the same
/// order, wherever the matrices lie in memory. Losses can then be compared bit by bit between policies.
namespace train_gpt {

/// A row-major matrix that somebody else owns; transposed by exchanging its strides.
template <class T>
struct matrix {
  T* data;
  std::int64_t rows;
  std::int64_t columns;
  std::int64_t row_stride;
  std::int64_t column_stride = 1;

  matrix(T* p, std::int64_t m, std::int64_t n) : matrix(p, m, n, n) {}
  matrix(T* p, std::int64_t m, std::int64_t n, std::int64_t stride, std::int64_t step = 1)
      : data(p),
        rows(m),
        columns(n),
        row_stride(stride),
        column_stride(step) {}

  [[nodiscard]] T& operator()(std::int64_t i, std::int64_t j) const { return data[i * row_stride + j * column_stride]; }
  [[nodiscard]] matrix transposed() const { return {data, columns, rows, column_stride, row_stride}; }
};

/// What happens to the old contents of C.
enum class result : std::uint8_t { overwrite, add };

namespace detail {

// One vector register, and a tile of C that leaves a few registers free for A and B.
#if defined(__AVX512F__)
inline constexpr std::int64_t lanes = 16;
inline constexpr std::int64_t tile_rows = 12;
#elif defined(__AVX__)
inline constexpr std::int64_t lanes = 8;
inline constexpr std::int64_t tile_rows = 6;
#else
inline constexpr std::int64_t lanes = 4;
inline constexpr std::int64_t tile_rows = 6;
#endif
inline constexpr std::int64_t tile_columns = 2 * lanes;
inline constexpr std::int64_t depth_limit = 256;  // a panel of B of this depth stays in the first-level cache

using vec = float __attribute__((vector_size(lanes * sizeof(float))));

// C[tile_rows x tile_columns] = panel of A * panel of B, into `out`.
inline void multiply_tile(std::int64_t depth, const float* a, const float* b, float* out) {
  vec left[tile_rows] = {};
  vec right[tile_rows] = {};
  for (std::int64_t k = 0; k < depth; ++k) {
    vec b0;
    vec b1;
    std::memcpy(&b0, b + k * tile_columns, sizeof b0);
    std::memcpy(&b1, b + k * tile_columns + lanes, sizeof b1);
#pragma GCC unroll 16
    for (std::int64_t i = 0; i < tile_rows; ++i) {
      left[i] += a[k * tile_rows + i] * b0;
      right[i] += a[k * tile_rows + i] * b1;
    }
  }
#pragma GCC unroll 16
  for (std::int64_t i = 0; i < tile_rows; ++i) {
    std::memcpy(out + i * tile_columns, &left[i], sizeof(vec));
    std::memcpy(out + i * tile_columns + lanes, &right[i], sizeof(vec));
  }
}

// Copies `width` rows of `m` that begin at `first`, element by element interleaved; rows that do not exist are zero.
inline void pack(const matrix<const float>& m, std::int64_t first, std::int64_t width, std::int64_t begin,
                 std::int64_t depth, float* out) {
  const std::int64_t there = std::min(width, m.rows - first);
  if (m.row_stride == 1) {
    for (std::int64_t k = 0; k < depth; ++k) {
      const float* from = &m(first, begin + k);
      for (std::int64_t i = 0; i < there; ++i)
        out[k * width + i] = from[i];
      for (std::int64_t i = there; i < width; ++i)
        out[k * width + i] = 0.0F;
    }
    return;
  }
  for (std::int64_t i = 0; i < width; ++i) {
    for (std::int64_t k = 0; k < depth; ++k)
      out[k * width + i] = i < there ? m(first + i, begin + k) : 0.0F;
  }
}

}  // namespace detail

/// C = A * B or C += A * B.
inline void gemm(result how, matrix<float> c, matrix<const float> a, matrix<const float> b) {
  using namespace detail;
  thread_local std::vector<float> packed_a;
  thread_local std::vector<float> packed_b;
  const std::int64_t depth = a.columns;
  const std::int64_t row_tiles = (c.rows + tile_rows - 1) / tile_rows;
  const std::int64_t column_tiles = (c.columns + tile_columns - 1) / tile_columns;
  packed_a.resize(static_cast<std::size_t>(row_tiles * tile_rows * std::min(depth, depth_limit)));
  packed_b.resize(static_cast<std::size_t>(tile_columns * std::min(depth, depth_limit)));
  const matrix<const float> columns_of_b = b.transposed();
  float tile[tile_rows * tile_columns];

  for (std::int64_t k = 0; k < depth; k += depth_limit) {
    const std::int64_t d = std::min(depth_limit, depth - k);
    for (std::int64_t i = 0; i < row_tiles; ++i) {
      pack(a, i * tile_rows, tile_rows, k, d, packed_a.data() + i * tile_rows * d);
    }
    for (std::int64_t j = 0; j < column_tiles; ++j) {
      pack(columns_of_b, j * tile_columns, tile_columns, k, d, packed_b.data());
      const std::int64_t n = std::min(tile_columns, c.columns - j * tile_columns);
      for (std::int64_t i = 0; i < row_tiles; ++i) {
        multiply_tile(d, packed_a.data() + i * tile_rows * d, packed_b.data(), tile);
        const std::int64_t m = std::min(tile_rows, c.rows - i * tile_rows);
        for (std::int64_t r = 0; r < m; ++r) {
          float* to = &c(i * tile_rows + r, j * tile_columns);
          const float* from = tile + r * tile_columns;
          if (k == 0 && how == result::overwrite) {
            for (std::int64_t s = 0; s < n; ++s)
              to[s] = from[s];
          } else {
            for (std::int64_t s = 0; s < n; ++s)
              to[s] += from[s];
          }
        }
      }
    }
  }
}

}  // namespace train_gpt
