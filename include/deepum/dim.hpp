#pragma once

#include <deepum/cxx20.hpp>

namespace deepum {
inline namespace v0 {

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

  friend constexpr bool operator==(dim, dim) = default;
};

}  // namespace v0
}  // namespace deepum
