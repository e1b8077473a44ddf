#pragma once

#include <deepum/units.hpp>

#include <cstddef>
#include <cstdint>
#include <limits>

namespace deepum {
inline namespace v0 {
namespace detail {

/// Sizes too large to count do not fit into an arena either.
template <class T>
[[nodiscard]] constexpr bytes size_of_allocation(std::size_t n) {
  constexpr std::uint64_t most = std::numeric_limits<std::uint64_t>::max();
  return bytes{n > most / sizeof(T) ? most : n * sizeof(T)};
}

}  // namespace detail
}  // namespace v0
}  // namespace deepum
