#pragma once

#include <deepum/core/block.hpp>
#include <deepum/cuda/managed_limit.hpp>
#include <deepum/error.hpp>
#include <deepum/separate.hpp>
#include <deepum/units.hpp>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

namespace deepum {
inline namespace v0 {
namespace cuda {

DEEPUM_SEPARATE std::optional<bytes> managed_limit::try_parse(std::string_view text) {
  std::uint64_t number = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (failure != std::errc{}) {
    return std::nullopt;
  }
  const std::string_view unit = text.substr(static_cast<std::size_t>(end - text.data()));
  unsigned shift = 0;
  if (unit == "KiB") {
    shift = 10;
  } else if (unit == "MiB") {
    shift = 20;
  } else if (unit == "GiB") {
    shift = 30;
  } else if (unit == "TiB") {
    shift = 40;
  } else if (!unit.empty()) {
    return std::nullopt;
  }
  if (number > (std::numeric_limits<std::uint64_t>::max() >> shift)) {
    return std::nullopt;
  }
  return bytes{number << shift};
}

DEEPUM_SEPARATE std::optional<bytes> managed_limit::from_environment() {
  const char* text = std::getenv(variable);
  if (text == nullptr || *text == '\0') {
    return std::nullopt;
  }
  const std::optional<bytes> limit = try_parse(text);
  if (!limit) {
    throw error(status::invalid_argument, std::string(variable) + " is '" + text +
                                              "', which is no size; write bytes, or a number with KiB, MiB or GiB");
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

DEEPUM_SEPARATE managed_limit::share::share(bytes size) : size_(size) {
  const std::optional<bytes> limit = from_environment();
  const std::lock_guard lock(the().mutex_);
  if (limit && (size > *limit || the().taken_ > *limit - size)) {
    throw error(status::out_of_arena_space,
                std::to_string(size.count) + " bytes of managed memory are more than " + variable + "=" +
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
