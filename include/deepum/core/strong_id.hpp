#pragma once

#include <deepum/cxx20.hpp>

#include <compare>
#include <concepts>
#include <cstddef>
#include <functional>

namespace deepum {
inline namespace v0 {

/// What the number 0 of a `strong_id` means.
enum class zero_is { an_id, none };

/// A number that names one kind of thing and converts to no other kind's.
/// @tparam Tag   Names the kind; a class that need not be defined.
/// @tparam Zero  Whether 0 names one too, or none. Where it is none, `valid()` tells.
template <class Tag, std::unsigned_integral Number, zero_is Zero = zero_is::an_id>
struct strong_id {
  using number = Number;

  Number value = 0;

  constexpr strong_id() = default;
  constexpr explicit strong_id(Number counted) : value(counted) {}
  [[nodiscard]] constexpr bool valid() const
    requires(Zero == zero_is::none)
  {
    return value != 0;
  }
  friend constexpr auto operator<=>(strong_id, strong_id) = default;
  friend constexpr bool operator==(strong_id, strong_id) = default;  // nvcc does not define the implied one
};

}  // namespace v0
}  // namespace deepum

/// @cond  What doxygen cannot place: a specialisation in std.
template <class Tag, class Number, deepum::zero_is Zero>
struct std::hash<deepum::strong_id<Tag, Number, Zero>> {
  std::size_t operator()(deepum::strong_id<Tag, Number, Zero> hashed) const noexcept {
    return std::hash<Number>{}(hashed.value);
  }
};
/// @endcond
