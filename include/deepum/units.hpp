#pragma once

#include <deepum/cxx20.hpp>

#include <chrono>
#include <compare>
#include <concepts>
#include <cstdint>

namespace deepum {
inline namespace v0 {

namespace detail {

/// False, and known only when a template is instantiated.
template <class T>
inline constexpr bool never = false;

}  // namespace detail

/// A number of bytes. A type of its own, so that bytes and element counts cannot be mixed up.
struct bytes {
  std::uint64_t count = 0;

  constexpr bytes() = default;
  constexpr explicit bytes(std::uint64_t number) : count(number) {}
  template <std::integral Number>
  constexpr explicit bytes(Number number) : count(static_cast<std::uint64_t>(number)) {}
  /// Does not compile: a number by itself does not say what it counts. The other ones go before where both can.
  template <std::integral Number, class... Nothing>
    requires(sizeof...(Nothing) == 0)
  constexpr bytes(Number /*n*/, Nothing...) {  // NOLINT(google-explicit-constructor): what is implicit is what is wrong
    static_assert(detail::never<Number>,
                  "a number is not a size: write deepum::bytes{n}, or 1_GiB after using namespace deepum::literals");
  }

  friend constexpr auto operator<=>(bytes, bytes) = default;
  friend constexpr bool operator==(bytes, bytes) = default;  // nvcc does not define the implied one
  friend constexpr bytes operator+(bytes a, bytes b) { return bytes{a.count + b.count}; }
  friend constexpr bytes operator-(bytes a, bytes b) { return bytes{a.count - b.count}; }
  friend constexpr bytes operator*(bytes a, std::uint64_t n) { return bytes{a.count * n}; }
  friend constexpr bytes operator*(std::uint64_t n, bytes a) { return a * n; }
  friend constexpr std::uint64_t operator/(bytes a, bytes b) { return a.count / b.count; }
  constexpr bytes& operator+=(bytes b) { return *this = *this + b; }
  constexpr bytes& operator-=(bytes b) { return *this = *this - b; }
};

/// Time on the clock of a device: virtual on the simulated GPU, monotonic host time on a real one.
using nanoseconds = std::chrono::duration<std::int64_t, std::nano>;

namespace detail {
/// A product too large to count becomes the greatest number, which nothing can hold.
[[nodiscard]] constexpr bytes shifted(unsigned long long n, unsigned by) {
  return bytes{n > ~0ULL >> by ? ~0ULL : n << by};
}
}  // namespace detail

inline namespace literals {
constexpr bytes operator""_B(unsigned long long n) { return bytes{n}; }
constexpr bytes operator""_KiB(unsigned long long n) { return detail::shifted(n, 10); }
constexpr bytes operator""_MiB(unsigned long long n) { return detail::shifted(n, 20); }
constexpr bytes operator""_GiB(unsigned long long n) { return detail::shifted(n, 30); }
}  // namespace literals

}  // namespace v0
}  // namespace deepum
