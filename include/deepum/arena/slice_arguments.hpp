#pragma once

#include <deepum/arena/kernel_arguments.hpp>
#include <deepum/arena/slicing.hpp>
#include <deepum/core/element_bytes.hpp>
#include <deepum/error.hpp>
#include <deepum/slices.hpp>
#include <deepum/units.hpp>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

namespace deepum {
inline namespace v0 {
namespace detail {

template <class T>
struct is_sliced_kernel : std::false_type {};
template <class Kernel>
struct is_sliced_kernel<sliced_kernel<Kernel>> : std::true_type {};

/// Of an argument of a sliced launch: whether it is an operand with a description of its parts, or by a function.
template <class T>
struct describes_slices : std::false_type {};
template <class T>
struct describes_slices<sliced_operand<T>> : std::true_type {};
template <class T>
struct tells_slices : std::false_type {};
template <class T, class Part>
struct tells_slices<sliced_operand_by<T, Part>> : std::true_type {};

// NOLINTBEGIN(readability-identifier-naming): the names are words of the compiler's message
template <class kernel>
void kernel_of_sliced_launch_does_not_take_a_grid_slice_first() = delete;
// NOLINTEND(readability-identifier-naming)

/// Parameters of a sliced kernel behind its `grid_slice`, for arguments that are given.
template <class Kernel, class... Arguments>
struct parameters_behind_slice {  // not known
  using type = unknown_parameters;
  static constexpr bool fit = true;
};
template <class... Arguments>
struct parameters_behind_slice<parameter_list<>, Arguments...> {
  static constexpr bool fit = false;
};
template <class First, class... Rest, class... Arguments>
struct parameters_behind_slice<parameter_list<First, Rest...>, Arguments...> {
  using type = parameter_list<Rest...>;
  static constexpr bool fit = std::is_convertible_v<grid_slice, First>;
};

/// An argument without what it tells of slices.
template <class Argument>
[[nodiscard]] constexpr decltype(auto) whole_argument(Argument&& argument) {
  using plain = std::remove_cvref_t<Argument>;
  if constexpr (describes_slices<plain>::value || tells_slices<plain>::value) {
    return (argument.what);
  } else {
    return std::forward<Argument>(argument);
  }
}
/// The type of one, for `launch_arguments`.
template <class Argument>
struct whole_argument_of {
  using type = Argument;
};
template <class Argument>
  requires(describes_slices<std::remove_cvref_t<Argument>>::value || tells_slices<std::remove_cvref_t<Argument>>::value)
struct whole_argument_of<Argument> {
  using type = decltype(std::remove_cvref_t<Argument>::what);
};
template <class Argument>
  requires(std::is_same_v<std::remove_cvref_t<Argument>, piece_size_argument> ||
           std::is_same_v<std::remove_cvref_t<Argument>, piece_begin_argument>)
struct whole_argument_of<Argument> {
  using type = std::uint64_t;
};
template <class Argument>
using whole_argument_type = typename whole_argument_of<Argument>::type;

/// What an argument that is a pointer touches, as the planner sees it; `address` is null where it is none.
struct sliced_pointer {
  operand whole{};
  sliced_access access{};
};
/// @tparam Parameter  Of the kernel, for this argument; void where it is not known.
template <class Parameter, class Argument>
[[nodiscard]] sliced_pointer pointer_of(const Argument& argument) {
  sliced_pointer p;
  if constexpr (describes_slices<Argument>::value) {
    p.whole = argument.what;
    p.access.shape = argument.shape;
  } else if constexpr (tells_slices<Argument>::value) {
    p.whole = argument.what;
    using pointee = std::remove_pointer_t<decltype(argument.what.pointer)>;
    p.access.part = [&argument](const grid_slice& slice) {
      const element_range part = argument.part(slice);
      return byte_span{bytes_of_elements<pointee>(part.begin), bytes_of_elements<pointee>(part.count)};
    };
  } else if constexpr (is_typed_operand<Argument>::value) {
    p.whole = argument;
  } else if constexpr (std::is_pointer_v<Argument> && !std::is_function_v<std::remove_pointer_t<Argument>>) {
    constexpr bool is_read = std::is_const_v<std::remove_pointer_t<Argument>> || reads_only<Parameter>;
    p.whole = {argument, operand::whole, is_read ? access::read : access::update, false};
  }
  p.access.mode = p.whole.mode;
  return p;
}

/// An argument as one slice has it: of an operand that part which the slice touches.
/// @param of  Of this argument.
template <class Argument>
[[nodiscard]] auto narrowed(const Argument& argument, const sliced_access& of, const grid_slice& slice) {
  auto narrow = whole_argument(argument);
  if constexpr (is_typed_operand<decltype(narrow)>::value) {
    if (of.size.count != 0) {
      const byte_span part = part_of(of, slice);
      using pointee = std::remove_pointer_t<decltype(narrow.pointer)>;
      using same_const_byte = std::conditional_t<std::is_const_v<pointee>, const std::byte, std::byte>;
      narrow.pointer =
          reinterpret_cast<pointee*>(reinterpret_cast<same_const_byte*>(narrow.pointer) + part.offset.count);
      narrow.size = part.size;
      narrow.mode = mode_of(of, slice);
    }
  }
  return narrow;
}

/// How the grid of a sliced kernel is cut.
class slices_of {
 public:
  explicit slices_of(dim whole) : grid_(whole) {}
  [[nodiscard]] dim grid() const { return grid_; }
  /// What an argument is in a slice.
  template <class Parameter, class Argument>
  [[nodiscard]] Argument own(const Argument& argument, const grid_slice& /*slice*/) const {
    return argument;
  }

 private:
  dim grid_;
};
/// @errors  Those of `check_shape`, for the operands of a sliced kernel that are described.
template <class... Args>
void check_shapes(std::string_view launch, dim grid, const Args&... args) {
  std::size_t position = 0;
  const auto check = [&](const auto& given) {
    ++position;
    if constexpr (describes_slices<std::remove_cvref_t<decltype(given)>>::value) {
      const auto& o = given.what;
      check_shape(launch, position, given.shape, o.mode, o.size == operand::whole ? bytes{} : o.size, grid);
    }
  };
  (check(args), ...);
}

/// How elementwise work is cut: its elements, in units, are the grid.
class pieces_of {
 public:
  /// @errors  `status::invalid_argument` for no threads, and for more elements than a grid can be made for.
  pieces_of(std::string_view launch_name, const elementwise& work);

  [[nodiscard]] std::string_view name() const { return name_; }
  [[nodiscard]] dim grid() const { return units_; }
  [[nodiscard]] unsigned threads() const { return work_.threads; }
  [[nodiscard]] unsigned shared() const { return work_.shared; }
  /// The grid that a piece needs.
  [[nodiscard]] dim grid_of(const grid_slice& piece) const {
    return dim{static_cast<unsigned>((elements_of(piece) - 1) / per_block_ + 1)};
  }

  /// What an argument is in a piece.
  template <class Parameter, class Argument>
  [[nodiscard]] auto own(const Argument& argument, const grid_slice& piece) const {
    if constexpr (std::is_same_v<Argument, piece_size_argument>) {
      return number<Parameter>(elements_of(piece));
    } else if constexpr (std::is_same_v<Argument, piece_begin_argument>) {
      return number<Parameter>(piece.begin.x * unit_);
    } else {
      return argument;
    }
  }

  /// An argument with its part of each piece.
  /// @param position  Counted from 1.
  /// @errors          `status::invalid_argument` for a pointer into the arena of which that is not known.
  template <class Argument, class Front>
  [[nodiscard]] auto described(const Argument& argument, std::size_t position, const Front& front) const {
    static_assert(!tells_slices<Argument>::value, "pieces of elementwise work are not described by_slice");
    if constexpr (is_typed_operand<Argument>::value) {
      sliced_operand<std::remove_pointer_t<decltype(argument.pointer)>> in_pieces{argument, {}};
      if (argument.pointer != nullptr) {
        in_pieces.shape = {false, grid_axis::x, step_of(argument.size, position), bytes{}};
      }
      return in_pieces;
    } else {
      if constexpr (describes_slices<Argument>::value) {
        refuse_where(!argument.shape.everywhere, position);
      } else if constexpr (std::is_pointer_v<Argument> && !std::is_function_v<std::remove_pointer_t<Argument>>) {
        refuse_where(front.offset_of(argument).has_value(), position);
      }
      return argument;
    }
  }

 private:
  static constexpr std::uint64_t alignment = 256;  // elements, so that vector types stay aligned

  /// Bytes of one unit. @errors  Where the size is not known, or no multiple of the elements.
  [[nodiscard]] bytes step_of(bytes size, std::size_t position) const;
  void refuse_where(bool unclear, std::size_t position) const;
  [[nodiscard]] std::uint64_t elements_of(const grid_slice& piece) const {
    return std::min(piece.blocks.x * unit_, work_.elements - piece.begin.x * unit_);
  }
  template <class Parameter>
  [[nodiscard]] auto number(std::uint64_t of) const {
    using known = std::remove_cvref_t<Parameter>;
    if constexpr (std::is_integral_v<known>) {
      if (of > static_cast<std::uint64_t>(std::numeric_limits<known>::max())) {
        refuse_number(of);
      }
      return static_cast<known>(of);
    } else {
      return of;
    }
  }
  [[noreturn]] void refuse_number(std::uint64_t of) const;

  std::string_view name_;
  elementwise work_;
  std::uint64_t per_block_;
  std::uint64_t unit_;  // elements
  dim units_{};
};

}  // namespace detail
}  // namespace v0
}  // namespace deepum

#ifndef DEEPUM_SEPARATE_COMPILATION
#include <deepum/arena/impl/slice_arguments.hpp>  // what it declares
#endif
