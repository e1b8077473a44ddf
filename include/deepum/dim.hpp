#pragma once

#include <deepum/cxx20.hpp>

#include <type_traits>

namespace deepum {
inline namespace v0 {

namespace detail {

template <class T>
concept extent = std::is_class_v<T> && sizeof(T) == 3 * sizeof(unsigned) && requires {
  requires std::is_same_v<decltype(&T::x), unsigned T::*>;
  requires std::is_same_v<decltype(&T::y), unsigned T::*>;
  requires std::is_same_v<decltype(&T::z), unsigned T::*>;
};

}  // namespace detail

/// Extent of a grid or of a block of threads, as `dim3` in CUDA.
struct dim {
  unsigned x = 1;
  unsigned y = 1;
  unsigned z = 1;

  constexpr dim() = default;
  // Implicit, so that a launch takes numbers: launch(name, blocks, threads, ...).
  constexpr dim(unsigned x_extent, unsigned y_extent = 1, unsigned z_extent = 1)  // NOLINT(google-explicit-constructor)
      : x(x_extent),
        y(y_extent),
        z(z_extent) {}
  /// `dim3`, and what else consists of three unsigned numbers x, y and z.
  template <detail::extent Extent>
  constexpr dim(const Extent& extent)  // NOLINT(google-explicit-constructor): as in CUDA
      : x(extent.x),
        y(extent.y),
        z(extent.z) {}

  friend constexpr bool operator==(dim, dim) = default;
};

}  // namespace v0
}  // namespace deepum
