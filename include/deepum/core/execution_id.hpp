#pragma once

#include <deepum/cxx20.hpp>

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>

namespace deepum {
inline namespace v0 {

/// Names a launch that recurs (DeepUM, section 4.1): a small number that an `execution_id_table` gives out. 0 is none.
struct execution_id {
  std::uint32_t value = 0;

  constexpr execution_id() = default;
  constexpr explicit execution_id(std::uint32_t v) : value(v) {}
  [[nodiscard]] constexpr bool valid() const { return value != 0; }
  friend constexpr auto operator<=>(execution_id, execution_id) = default;
  friend constexpr bool operator==(execution_id, execution_id) = default;  // nvcc does not define the implied one
};

}  // namespace v0
}  // namespace deepum

template <>
struct std::hash<deepum::execution_id> {
  std::size_t operator()(deepum::execution_id id) const noexcept { return std::hash<std::uint32_t>{}(id.value); }
};
