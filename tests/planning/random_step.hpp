#pragma once

#include <deepum/planning/step_segments.hpp>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <random>

namespace deepum_test {

using namespace deepum;
using deepum::access;  // not the one of POSIX

/// All blocks of a random step lie below.
inline constexpr std::uint32_t random_step_blocks = 16;

/// A number from `least` to `most`.
inline std::uint32_t draw(std::mt19937& random, std::uint32_t least, std::uint32_t most) {
  return least + static_cast<std::uint32_t>(random() % (most - least + 1));
}

/// A step with uses and last uses anywhere, and with launches that use nothing.
inline step_description random_step(std::mt19937& random, std::uint32_t launches, std::uint32_t uses) {
  const auto range = [&] {
    const std::uint32_t first = draw(random, 0, random_step_blocks - 1);
    return block_range{block_id{first}, draw(random, 1, std::min<std::uint32_t>(4, random_step_blocks - first))};
  };
  step_description step;
  for (std::uint32_t k = 0; k != launches; ++k) {
    step.add_launch(nanoseconds{draw(random, 0, 99)});
    for (std::uint32_t i = 0; i != uses; ++i) {
      if (draw(random, 1, launches) == 1) {
        step.add_use(range(), static_cast<access>(draw(random, 0, 2)));
      }
    }
    if (draw(random, 1, 3) == 1) {
      step.add_last_use(range());
    }
  }
  return step;
}

/// What a launch does with a block; nothing where it does not use it.
inline std::optional<access> naive_use(const step_description& step, std::uint32_t launch, std::uint32_t block) {
  std::optional<access> mode;
  for (const block_access& use : step[launch].uses) {
    if (use.range.contains(block_id{block})) {
      mode = mode ? join(*mode, use.mode) : use.mode;
    }
  }
  return mode;
}

/// Whether what a block holds dies with a launch.
inline bool naive_death(const step_description& step, std::uint32_t launch, std::uint32_t block) {
  for (const block_range last_use : step[launch].last_uses) {
    if (last_use.contains(block_id{block})) {
      return true;
    }
  }
  return false;
}

}  // namespace deepum_test
