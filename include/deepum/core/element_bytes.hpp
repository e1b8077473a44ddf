#pragma once

#include <deepum/error.hpp>
#include <deepum/units.hpp>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <type_traits>

namespace deepum {
inline namespace v0 {
namespace detail {

[[noreturn]] inline void throw_too_many_elements(std::uint64_t n, std::size_t size) {
  throw error(status::invalid_argument, std::to_string(n) + " elements of " + std::to_string(size) +
                                            " bytes are more bytes than can be counted; is the count negative?");
}

/// Bytes of `n` elements; of `n` bytes, where `T` is void.
/// @errors  `status::invalid_argument` where that is 2^64 - 1 or more, the greatest number being no size.
template <class T>
[[nodiscard]] constexpr bytes bytes_of_elements(std::uint64_t n) {
  constexpr std::size_t size = [] {
    if constexpr (std::is_void_v<T>) {
      return std::size_t{1};
    } else {
      return sizeof(T);
    }
  }();
  if (n > (std::numeric_limits<std::uint64_t>::max() - 1) / size) [[unlikely]] {
    throw_too_many_elements(n, size);
  }
  return bytes{n * size};
}

/// Bytes of `n` rows; as many as can be counted, where they are more.
[[nodiscard]] constexpr bytes bytes_of_rows(bytes row, std::uint64_t n) {
  constexpr std::uint64_t most = std::numeric_limits<std::uint64_t>::max();
  return bytes{row.count != 0 && n > most / row.count ? most : row.count * n};
}

}  // namespace detail
}  // namespace v0
}  // namespace deepum
