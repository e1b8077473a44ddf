#pragma once

#include <deepum/cxx20.hpp>

#include <cstddef>
#include <type_traits>

namespace deepum {
inline namespace v0 {
namespace detail {

/// Too small for a pointer. False for types that are not complete.
template <class T>
inline constexpr bool smaller_than_a_pointer = false;
template <class T>
  requires(std::is_class_v<T> && sizeof(T) < sizeof(void*))
inline constexpr bool smaller_than_a_pointer<T> = true;

template <class T>
inline constexpr bool is_number = std::is_arithmetic_v<T> || std::is_enum_v<T> || smaller_than_a_pointer<T>;
/// Members x, y, z and w of the type of x, as far as they exist, fill a class: `float4`, `dim3`, `__half2`.
template <class T>
[[nodiscard]] constexpr std::size_t count_coordinates() {
  if constexpr (requires { requires std::is_member_object_pointer_v<decltype(&T::x)>; }) {
    using number = decltype(T::x);
    if constexpr (requires { requires std::is_same_v<decltype(&T::y), number T::*>; }) {
      if constexpr (requires { requires std::is_same_v<decltype(&T::z), number T::*>; }) {
        return requires { requires std::is_same_v<decltype(&T::w), number T::*>; } ? 4 : 3;
      }
      return 2;
    }
    return 1;
  }
  return 0;
}
template <class T>
[[nodiscard]] constexpr bool is_vector_of_numbers() {
  constexpr std::size_t coordinates = count_coordinates<T>();
  if constexpr (coordinates != 0) {
    return is_number<decltype(T::x)> && sizeof(T) == coordinates * sizeof(T::x);
  }
  return false;
}
/// Two numbers that it gives as `real()` and `imag()` fill a class: the complex types of C++, Thrust and libcu++.
template <class T>
[[nodiscard]] constexpr bool is_complex_number() {
  if constexpr (requires(const T& z) {
                  requires std::is_same_v<std::remove_cvref_t<decltype(z.real())>, typename T::value_type>;
                  requires std::is_same_v<std::remove_cvref_t<decltype(z.imag())>, typename T::value_type>;
                }) {
    return is_number<typename T::value_type> && sizeof(T) == 2 * sizeof(typename T::value_type);
  }
  return false;
}
/// Whether a class consists of numbers, as its members tell. False for types that are not complete.
template <class T>
inline constexpr bool consists_of_numbers = false;
template <class T>
  requires(std::is_class_v<T> && sizeof(T) >= sizeof(void*))
inline constexpr bool consists_of_numbers<T> = is_vector_of_numbers<T>() || is_complex_number<T>();

}  // namespace detail
}  // namespace v0
}  // namespace deepum
