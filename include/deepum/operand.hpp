#pragma once

#include <deepum/core/element_bytes.hpp>
#include <deepum/core/launch.hpp>
#include <deepum/core/plain_numbers.hpp>
#include <deepum/units.hpp>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <type_traits>

namespace deepum {
inline namespace v0 {

/// Whether a value of this type, or memory full of them, tells all that a kernel can reach through it.
///
/// A pointer does not, and a class may have pointers in it: a launch with such an argument may touch more than it
/// declares. Known are numbers, classes that consist of members x, y, z, w of one type of number (`float4`, `dim3`,
/// `__half2`), and complex numbers. Specialise it as true for your own classes without pointers (indices, offsets).
template <class T>
inline constexpr bool hides_no_pointers = detail::is_number<T> || detail::consists_of_numbers<T>;
template <class T>
inline constexpr bool hides_no_pointers<const T> = hides_no_pointers<T>;

/// Rows that a launch looks up or scatters into. What is left out is not known.
struct looked_up {
  std::uint64_t rows = 0;      ///< that the launch touches at most
  std::uint64_t elements = 0;  ///< of each row (bytes, where they are of type `void`)
};

/// Memory that a launch touches in one way. Made by `reads`, `updates` and `overwrites`.
struct operand {
  /// As a size: the allocation that the address lies in, or its part where it was split.
  static constexpr bytes whole{std::numeric_limits<std::uint64_t>::max()};

  const void* address = nullptr;
  bytes size = whole;
  access mode = access::update;
  bool declared = true;  ///< by the program; false: a plain pointer among the arguments of a launch
  bool scratch = false;  ///< what the launch leaves there is of no value either, so it need not write all of it
  bool guessed = false;  ///< found among bytes of arguments, which may have been no pointer
  bool sparse = false;   ///< rows here and there are touched, and nothing else
  bytes row{};           ///< sparse: of one row; 0: not known
  bytes touched{};       ///< sparse: of all rows that are touched; 0: not known
};

/// An operand that keeps the type of its pointer, so that it can stand for the pointer among the arguments of a launch.
template <class T>
struct typed_operand {
  T* pointer = nullptr;
  bytes size = operand::whole;
  access mode = access::update;
  bool sparse = false;
  bytes row{};
  bytes touched{};

  operator operand() const {  // NOLINT(google-explicit-constructor): it is one
    return {.address = pointer, .size = size, .mode = mode, .sparse = sparse, .row = row, .touched = touched};
  }
};

/// The launch reads the memory, the whole allocation or part, and leaves it as it is.
///
/// It stands for a pointer to const, so that it does not go to a kernel that may write.
/// @param p  Into the arena; elsewhere it is only an argument.
template <class T>
[[nodiscard]] constexpr typed_operand<const T> reads(T* p) {
  return {p, operand::whole, access::read};
}
/// The same of some elements.
/// @param n  Elements from there on (bytes, where `T` is void).
/// @errors   `status::invalid_argument` for more bytes than can be counted.
template <class T>
[[nodiscard]] constexpr typed_operand<const T> reads(T* p, std::uint64_t n) {
  return {p, detail::bytes_of_elements<T>(n), access::read};
}
/// The same of the elements of a span. An `array` goes in its place.
template <class T, std::size_t Extent>
[[nodiscard]] constexpr typed_operand<const T> reads(std::span<T, Extent> elements) {
  return reads(elements.data(), elements.size());
}

/// As `reads`, for kernels whose parameter is not a pointer to const although they only read through it.
///
/// A promise: what such a kernel writes may be lost.
template <class T>
[[nodiscard]] constexpr typed_operand<T> reads_as_mutable(T* p) {
  return {p, operand::whole, access::read};
}
/// The same of some elements, as `reads`.
template <class T>
[[nodiscard]] constexpr typed_operand<T> reads_as_mutable(T* p, std::uint64_t n) {
  return {p, detail::bytes_of_elements<T>(n), access::read};
}

/// The launch may read and write the memory: `+=`, partial writes. This is the default for a plain pointer.
template <class T>
[[nodiscard]] constexpr typed_operand<T> updates(T* p) {
  static_assert(!std::is_const_v<T>, "a launch cannot write through a pointer to const");
  return {p, operand::whole, access::update};
}
/// The same of some elements, as `reads`.
template <class T>
[[nodiscard]] constexpr typed_operand<T> updates(T* p, std::uint64_t n) {
  static_assert(!std::is_const_v<T>, "a launch cannot write through a pointer to const");
  return {p, detail::bytes_of_elements<T>(n), access::update};
}
/// The same of the elements of a span, as `reads`.
template <class T, std::size_t Extent>
[[nodiscard]] constexpr typed_operand<T> updates(std::span<T, Extent> elements) {
  return updates(elements.data(), elements.size());
}

/// The launch writes every byte of these elements before it reads any, so the contents from before are of no value.
///
/// A promise: where it is broken, the launch finds whatever was there, or nothing.
/// @param n  As for `reads`. There is no form without it: the allocation that a pointer lies in may hold more than the
///           launch writes.
template <class T>
[[nodiscard]] constexpr typed_operand<T> overwrites(T* p, std::uint64_t n) {
  static_assert(!std::is_const_v<T>, "a launch cannot write through a pointer to const");
  return {p, detail::bytes_of_elements<T>(n), access::overwrite};
}
/// The same of the elements of a span, as `reads`.
template <class T, std::size_t Extent>
[[nodiscard]] constexpr typed_operand<T> overwrites(std::span<T, Extent> elements) {
  return overwrites(elements.data(), elements.size());
}
/// The launch reads rows of these elements, here and there, which its indices name: an embedding that is looked up.
///
/// The rows may be read where they are, on the host, so that no block moves for them (docs/in_place.md). It is a hint
/// where the rows are, and a promise that nothing is written. On memory that never faults it is also a promise that
/// the launch finds what it needs in these elements.
/// @param n     Elements that the rows lie in, as for `reads`.
/// @param what  How much is touched, where that is known: it decides between moving blocks and reading rows in place.
/// @errors      `status::invalid_argument` for more bytes than can be counted.
template <class T>
[[nodiscard]] constexpr typed_operand<const T> gathers(T* p, std::uint64_t n, looked_up what = {}) {
  const bytes row = detail::bytes_of_elements<T>(what.elements);
  return {p, detail::bytes_of_elements<T>(n), access::read, true, row, detail::bytes_of_rows(row, what.rows)};
}
/// The same of the elements of a span.
template <class T, std::size_t Extent>
[[nodiscard]] constexpr typed_operand<const T> gathers(std::span<T, Extent> elements, looked_up what = {}) {
  return gathers(elements.data(), elements.size(), what);
}
/// The launch reads and writes rows of these elements, here and there, as the sparse update of an embedding does. Else
/// as `gathers`.
///
/// Atomic operations on rows that are written in place are atomic among the launches of this device, and of nobody
/// else: neither the host nor another device may touch those rows meanwhile.
template <class T>
[[nodiscard]] constexpr typed_operand<T> scatters(T* p, std::uint64_t n, looked_up what = {}) {
  static_assert(!std::is_const_v<T>, "a launch cannot write through a pointer to const");
  const bytes row = detail::bytes_of_elements<T>(what.elements);
  return {p, detail::bytes_of_elements<T>(n), access::update, true, row, detail::bytes_of_rows(row, what.rows)};
}
/// The same of the elements of a span.
template <class T, std::size_t Extent>
[[nodiscard]] constexpr typed_operand<T> scatters(std::span<T, Extent> elements, looked_up what = {}) {
  return scatters(elements.data(), elements.size(), what);
}
/// Memory that the launch uses for itself, as libraries use their workspaces: what it holds is of no value before and
/// after. As `overwrites`, but the launch may leave some of it out.
/// @param n  Bytes.
[[nodiscard]] inline operand uses_as_scratch(void* p, bytes n) { return {p, n, access::overwrite, true, true}; }
/// Does not compile: give the size.
template <class T>
[[nodiscard]] constexpr typed_operand<T> overwrites(T* p) {
  static_assert(detail::never<T>,
                "overwrites(p) does not say how much is overwritten: write overwrites(p, n) with the number of "
                "elements, or give an array or a std::span");
  return {p, bytes{}, access::overwrite};
}

}  // namespace v0
}  // namespace deepum
