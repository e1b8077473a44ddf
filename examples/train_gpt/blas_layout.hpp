#pragma once

#include "gemm.hpp"

#include <algorithm>
#include <cstdint>

namespace train_gpt {

/// How a BLAS, which takes matrices column by column, is told of a row-major matrix: it sees the transposed one.
struct blas_layout {
  bool transposed;      ///< the BLAS has to transpose what it sees
  std::int64_t stride;  ///< of its columns ("leading dimension")
};

/// The layout by which a BLAS sees the transposed of `m`.
/// @param m  Elements of a row, or those of a column, lie side by side.
template <class T>
[[nodiscard]] blas_layout layout_of_transposed(const matrix<T>& m) {
  // The stride of a single row or column may be anything, but a BLAS wants it as large as a column.
  if (m.column_stride == 1 && (m.row_stride >= m.columns || m.rows == 1)) {
    return {false, std::max(m.row_stride, m.columns)};
  }
  return {true, std::max(m.column_stride, m.rows)};
}

}  // namespace train_gpt
