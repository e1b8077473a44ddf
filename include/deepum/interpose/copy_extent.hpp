#pragma once

#include <deepum/core/launch.hpp>
#include <deepum/operand.hpp>
#include <deepum/units.hpp>

#include <cstdint>

namespace deepum {
inline namespace v0 {
namespace interpose {

/// Rows of memory that a copy or fill goes over: `depth` slices of `height` rows of `width` bytes. A row begins `pitch`
/// bytes behind the one before, and a slice `rows` rows behind the one before.
struct copy_extent {
  std::uint64_t first = 0;  ///< address of the first byte
  std::uint64_t width = 0;
  std::uint64_t height = 1;
  std::uint64_t depth = 1;
  std::uint64_t pitch = 0;  ///< 0 where there is one row
  std::uint64_t rows = 0;   ///< 0 where there is one slice

  [[nodiscard]] bool empty() const { return width == 0 || height == 0 || depth == 0; }
  /// Bytes from the first to behind the last. Of one that is not empty.
  [[nodiscard]] bytes span() const { return bytes{(depth - 1) * rows * pitch + (height - 1) * pitch + width}; }
  /// Nothing lies between the rows.
  [[nodiscard]] bool dense() const {
    return (height == 1 || pitch == width) && (depth == 1 || (rows == height && (height != 1 || pitch == width)));
  }
};

/// What a launch reads there.
[[nodiscard]] inline operand read_by(const copy_extent& e) {
  return {reinterpret_cast<const void*>(e.first), e.empty() ? bytes{} : e.span(), access::read};
}
/// What a launch writes there: as a whole where the rows are dense, else what lies between them stays.
[[nodiscard]] inline operand written_by(const copy_extent& e) {
  return {reinterpret_cast<const void*>(e.first), e.empty() ? bytes{} : e.span(),
          e.empty() || e.dense() ? access::overwrite : access::update};
}

}  // namespace interpose
}  // namespace v0
}  // namespace deepum
