#pragma once

#include <deepum/cxx20.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace deepum {
inline namespace v0 {
namespace detail {

__extension__ using uint128 = unsigned __int128;  // not ISO C++, and known to every compiler that hosts nvcc

/// The 128-bit product with its halves folded together: one multiplication that spreads every bit over the whole word.
///
/// The step of wyhash. A factor of zero loses the other one, so what comes in is first xored with a constant.
[[nodiscard]] constexpr std::uint64_t multiply_fold(std::uint64_t a, std::uint64_t b) {
  const uint128 product = static_cast<uint128>(a) * b;
  return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64U);
}

// Odd and without a pattern: digits of e, of pi and of the golden ratio.
inline constexpr std::uint64_t hash_key_a = 0xadf85458a2bb4a9bULL;
inline constexpr std::uint64_t hash_key_b = 0x243f6a8885a308d3ULL;
inline constexpr std::uint64_t hash_key_c = 0x9e3779b97f4a7c15ULL;

/// Takes two more words into a hash. The order of calls and of the two words matters.
[[nodiscard]] constexpr std::uint64_t absorb(std::uint64_t hash, std::uint64_t a, std::uint64_t b) {
  return multiply_fold(a ^ hash_key_a, b ^ hash_key_b ^ hash);
}

/// Takes bytes into a hash, their number with the first word, so that no two sequences of calls run together.
/// @param header  What the bytes are and how many; goes in with the first eight of them.
[[nodiscard]] inline std::uint64_t absorb_bytes(std::uint64_t hash, std::uint64_t header, const void* data,
                                                std::size_t n) {
  const auto* p = static_cast<const unsigned char*>(data);
  const auto next_word = [&] {
    std::uint64_t word = 0;
    const std::size_t taken = n < sizeof word ? n : sizeof word;
    if (taken != 0) {
      std::memcpy(&word, p, taken);
    }
    p += taken;
    n -= taken;
    return word;
  };
  hash = absorb(hash, next_word(), header);
  while (n != 0) {
    const std::uint64_t first = next_word();
    hash = absorb(hash, first, next_word());
  }
  return hash;
}

}  // namespace detail
}  // namespace v0
}  // namespace deepum
