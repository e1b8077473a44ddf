#pragma once

#include <deepum/units.hpp>

#include <charconv>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string_view>
#include <system_error>

namespace deepum {
inline namespace v0 {

/// Reads a size as people write it: a number of bytes, or a whole number with KiB, MiB, GiB or TiB. Nothing else:
/// no space, no fraction, no decimal unit.
/// @returns  Nothing for a text that is no such size, or one of 2^64 bytes or more.
[[nodiscard]] inline std::optional<bytes> try_parse_size(std::string_view text) {
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

}  // namespace v0
}  // namespace deepum
