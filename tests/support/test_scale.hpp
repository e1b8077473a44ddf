#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <vector>

namespace deepum_test {

#ifdef DEEPUM_SANITIZED
inline constexpr bool sanitized = true;
#else
inline constexpr bool sanitized = false;
#endif

/// For tests of what is copied, and when, of which ThreadSanitizer looks at each byte: their threads are those of
/// others.
#ifdef __SANITIZE_THREAD__
inline constexpr bool thread_sanitized = true;
#else
inline constexpr bool thread_sanitized = false;
#endif

/// How many rounds a long test does: `normal` times DEEPUM_TEST_SCALE (1 unless the environment says more), and under
/// a sanitizer a fifth of that, under ThreadSanitizer a tenth: so much slower it is. At least one.
inline std::size_t scaled(std::size_t normal) {
  double scale = 1.0;
  if (const char* text = std::getenv("DEEPUM_TEST_SCALE")) scale = std::atof(text);
  if (sanitized) scale /= thread_sanitized ? 10.0 : 5.0;
  return std::max<std::size_t>(1, static_cast<std::size_t>(static_cast<double>(normal) * std::max(scale, 0.0)));
}

/// All of them, or the first `number` under sanitizers, where everything takes ten times as long.
template <class T>
std::vector<T> few(std::vector<T> all, std::size_t number) {
  all.resize(sanitized ? std::min(number, all.size()) : all.size());
  return all;
}

}  // namespace deepum_test
