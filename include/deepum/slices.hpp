#pragma once

#include <deepum/core/element_bytes.hpp>
#include <deepum/grid_slice.hpp>
#include <deepum/operand.hpp>
#include <deepum/units.hpp>

#include <cstdint>
#include <type_traits>
#include <utility>

namespace deepum {
inline namespace v0 {

/// Which bytes of an operand a thread block touches: those of its own place along one dimension of the grid, or any.
struct slice_shape {
  bool everywhere = true;  ///< any
  grid_axis axis = grid_axis::x;
  bytes step{};  ///< of one place along the dimension
  bytes halo{};  ///< beyond them, on either side
};

/// An operand of a launch that may run in slices, with the part of it that each thread block touches.
template <class T>
struct sliced_operand {
  typed_operand<T> what{};
  slice_shape shape{};
};

/// Elements of an operand, counted from its beginning.
struct element_range {
  std::uint64_t begin = 0;
  std::uint64_t count = 0;
};

/// An operand whose part a function of the program tells. Made by `by_slice`.
template <class T, class Part>
struct sliced_operand_by {
  typed_operand<T> what{};
  Part part;
};

namespace detail {

template <class T>
[[nodiscard]] constexpr sliced_operand<T> along(grid_axis axis, typed_operand<T> what, std::uint64_t elements,
                                                std::uint64_t halo) {
  return {what, {false, axis, bytes_of_elements<T>(elements), bytes_of_elements<T>(halo)}};
}

}  // namespace detail

/// Thread blocks with `blockIdx.x == i` touch the elements `[i * elements - halo, (i + 1) * elements + halo)` of the
/// operand, as far as it has them, and no others.
///
/// A promise, as `reads` and `updates` are. Checked mode runs such launches in slices whatever fits, and finds what is
/// written elsewhere.
/// @param what      `reads(p, n)`, `updates(p, n)` or `overwrites(p, n)`.
/// @param elements  Of one place along the dimension, 1 or more (bytes, where `T` is void). All places together cover
///                  the operand, and the last one begins within it.
/// @param halo      For operands that are only read.
/// @errors          Those of the launch: `status::invalid_argument` where that does not hold.
template <class T>
[[nodiscard]] constexpr sliced_operand<T> by_x(typed_operand<T> what, std::uint64_t elements, std::uint64_t halo = 0) {
  return detail::along(grid_axis::x, what, elements, halo);
}
/// The same for `blockIdx.y`.
template <class T>
[[nodiscard]] constexpr sliced_operand<T> by_y(typed_operand<T> what, std::uint64_t elements, std::uint64_t halo = 0) {
  return detail::along(grid_axis::y, what, elements, halo);
}
/// The same for `blockIdx.z`.
template <class T>
[[nodiscard]] constexpr sliced_operand<T> by_z(typed_operand<T> what, std::uint64_t elements, std::uint64_t halo = 0) {
  return detail::along(grid_axis::z, what, elements, halo);
}
/// Each thread block may touch any of the operand. So it is with a pointer that says nothing of slices, too. What is
/// written in this way counts as an update.
template <class T>
[[nodiscard]] constexpr sliced_operand<T> everywhere(typed_operand<T> what) {
  return {what, {}};
}
/// The same for memory that the launch reads, or may write where it is not const: `everywhere(p)`.
template <class T>
[[nodiscard]] constexpr sliced_operand<T> everywhere(T* p) {
  return {{p, operand::whole, std::is_const_v<T> ? access::read : access::update}, {}};
}

/// A slice of the grid touches the elements of the operand that `part(slice)` tells, and no others.
/// @param part  From `const grid_slice&` to an `element_range` (bytes, where `T` is void) within the operand. What is
///              written in one slice is written in no other one. Called on the host, several times for each slice.
template <class T, class Part>
[[nodiscard]] constexpr sliced_operand_by<T, std::decay_t<Part>> by_slice(typed_operand<T> what, Part&& part) {
  static_assert(std::is_invocable_r_v<element_range, const std::decay_t<Part>&, const grid_slice&>,
                "by_slice takes a function from const deepum::grid_slice& to deepum::element_range");
  return {what, std::forward<Part>(part)};
}

/// A kernel that takes a `grid_slice` first, so that a launch of it may run slice by slice. Made by `sliced`.
template <class Kernel>
struct sliced_kernel {
  Kernel kernel;
};

/// A kernel whose launches may run in slices, one after the other: for launches whose operands are more than the
/// budget.
///
///     s.launch("scale", blocks, 256, 0, deepum::sliced(scale), deepum::by_x(deepum::updates(w, n), 256), 2.0F, n);
///
/// Results are those of the whole launch where no thread block relies on another one of the same launch: neither on
/// what that writes, nor on running beside it (grid-wide synchronisation).
/// @param kernel  A `__global__` function, or a kernel of the simulated GPU, whose first parameter is a `grid_slice`.
///                The launch gives it that argument.
template <class Kernel>
[[nodiscard]] constexpr sliced_kernel<std::decay_t<Kernel>> sliced(const Kernel& kernel) {
  return {kernel};
}

/// How `stream::launch_in_pieces` cuts elementwise work.
struct elementwise {
  std::uint64_t elements = 0;   ///< that there are
  unsigned threads = 256;       ///< of a thread block
  std::uint64_t per_block = 0;  ///< elements that a thread block computes; 0: one for each thread
  unsigned shared = 0;          ///< bytes of dynamic shared memory
};

/// @name Arguments of `stream::launch_in_pieces` that each piece has its own of
/// @{
struct piece_size_argument {};
struct piece_begin_argument {};
/// The number of elements of the piece, in place of the number of all.
inline constexpr piece_size_argument piece_size{};
/// The number of the piece's first element among all, for kernels that depend on it.
inline constexpr piece_begin_argument piece_begin{};
/// @}

}  // namespace v0
}  // namespace deepum
