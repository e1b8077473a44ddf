#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdlib>

namespace deepum_test {

/// How many rounds a long test does: `normal` times DEEPUM_TEST_SCALE (1 unless the environment says more), and a
/// fifth of that under a sanitizer, which is about how much slower it runs. At least one.
inline std::size_t scaled(std::size_t normal) {
  double scale = 1.0;
  if (const char* text = std::getenv("DEEPUM_TEST_SCALE")) scale = std::atof(text);
#ifdef DEEPUM_SANITIZED
  scale /= 5.0;
#endif
  return std::max<std::size_t>(1, static_cast<std::size_t>(static_cast<double>(normal) * std::max(scale, 0.0)));
}

}  // namespace deepum_test
