#pragma once

#include <deepum/core/block.hpp>
#include <deepum/core/size_text.hpp>
#include <deepum/cuda/managed_limit.hpp>
#include <deepum/error.hpp>
#include <deepum/separate.hpp>
#include <deepum/units.hpp>

#include <algorithm>
#include <cstdlib>
#include <mutex>
#include <optional>
#include <string>

namespace deepum {
inline namespace v0 {
namespace cuda {

DEEPUM_SEPARATE std::optional<bytes> managed_limit::from_environment() {
  const char* text = std::getenv(variable);
  if (text == nullptr || *text == '\0') {
    return std::nullopt;
  }
  const std::optional<bytes> limit = try_parse_size(text);
  if (!limit) {
    throw error(status::invalid_argument,
                std::string(variable) + " is '" + text +
                    "', which is no size; write bytes, or a number with KiB, MiB, GiB or TiB");
  }
  return limit;
}

DEEPUM_SEPARATE std::optional<bytes> managed_limit::left() {
  const std::optional<bytes> limit = from_environment();
  if (!limit) {
    return std::nullopt;
  }
  const std::lock_guard lock(the().mutex_);
  return block_size * ((*limit - std::min(*limit, the().taken_)) / block_size);
}

DEEPUM_SEPARATE managed_limit::share::share(bytes wanted) : size_(wanted) {
  const std::optional<bytes> limit = from_environment();
  const std::lock_guard lock(the().mutex_);
  if (limit && (wanted > *limit || the().taken_ > *limit - wanted)) {
    throw error(status::out_of_arena_space,
                std::to_string(wanted.count) + " bytes of managed memory are more than " + variable + "=" +
                    std::getenv(variable) + " allows; " + std::to_string(the().taken_.count) +
                    " bytes are taken already. Make the arena's capacity smaller, or the limit larger");
  }
  the().taken_ += size_;
}

DEEPUM_SEPARATE managed_limit::share::~share() {
  const std::lock_guard lock(the().mutex_);
  the().taken_ -= size_;
}

DEEPUM_SEPARATE managed_limit& managed_limit::the() {
  static managed_limit one;
  return one;
}

}  // namespace cuda
}  // namespace v0
}  // namespace deepum
