#pragma once

#include <cstdint>
#include <cstring>

#if defined(__CUDACC__)
#define DEEPUM_HOST_DEVICE __host__ __device__
#else
#define DEEPUM_HOST_DEVICE
#endif

namespace train_gpt {

/// The upper half of a float: its exponent, and 8 significant bits. Laid out as `__nv_bfloat16`, which libraries take.
///
/// Written here, so that the host compiler and every GPU round in the same way.
struct bf16 {
  std::uint16_t bits;
};

namespace detail {

DEEPUM_HOST_DEVICE inline std::uint32_t bits_of(float x) {
  std::uint32_t bits = 0;
  memcpy(&bits, &x, sizeof bits);
  return bits;
}

DEEPUM_HOST_DEVICE inline float float_of(std::uint32_t bits) {
  float x = 0;
  memcpy(&x, &bits, sizeof x);
  return x;
}

}  // namespace detail

DEEPUM_HOST_DEVICE inline float widened(float x) { return x; }
DEEPUM_HOST_DEVICE inline float widened(bf16 x) { return detail::float_of(static_cast<std::uint32_t>(x.bits) << 16); }

DEEPUM_HOST_DEVICE inline void store(float& to, float x) { to = x; }
/// To the nearest, ties to even; what is no number stays none.
DEEPUM_HOST_DEVICE inline void store(bf16& to, float x) {
  const std::uint32_t bits = detail::bits_of(x);
  const bool no_number = (bits & 0x7FFFFFFFU) > 0x7F800000U;
  const std::uint32_t rounded = bits + 0x7FFFU + ((bits >> 16) & 1U);
  to.bits = static_cast<std::uint16_t>((no_number ? bits | 0x400000U : rounded) >> 16);
}

}  // namespace train_gpt
