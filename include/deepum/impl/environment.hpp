#pragma once

#include <deepum/core/regular_file.hpp>
#include <deepum/core/size_text.hpp>
#include <deepum/environment.hpp>
#include <deepum/separate.hpp>
#include <deepum/units.hpp>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>

namespace deepum {
inline namespace v0 {
namespace detail::environment {

/// Nothing where a variable is not set, or empty.
DEEPUM_SEPARATE std::optional<std::string_view> value_of(const char* variable) {
  const char* const text = std::getenv(variable);
  return text == nullptr || *text == '\0' ? std::nullopt : std::optional<std::string_view>(text);
}

/// Says that a value cannot be used.
/// @param why  What is wrong, and what it may be; begins with the quote behind the value.
DEEPUM_SEPARATE std::nullopt_t ignored(const sink& log, const char* variable, std::string_view value,
                                       const std::string& why) {
  if (log) {
    log(std::string(variable) + " is '" + std::string(value) + why + "; it is ignored");
  }
  return std::nullopt;
}

/// A share of `whole` such as 50% or 37.5%, above 0 and up to 100.
DEEPUM_SEPARATE std::optional<bytes> try_parse_share(std::string_view text, bytes whole) {
  double percent = 0;
  const auto [end, failure] =
      std::from_chars(text.data(), text.data() + text.size(), percent, std::chars_format::fixed);
  if (failure != std::errc{} || std::string_view(end, text.data() + text.size()) != "%" ||
      !(percent > 0 && percent <= 100)) {
    return std::nullopt;
  }
  return bytes{static_cast<std::uint64_t>(static_cast<double>(whole.count) * (percent / 100))};
}

DEEPUM_SEPARATE std::optional<std::string> policy(std::span<const std::string_view> known, const sink& log) {
  constexpr const char* variable = "DEEPUM_POLICY";
  const std::optional<std::string_view> value = value_of(variable);
  if (!value) {
    return std::nullopt;
  }
  if (std::find(known.begin(), known.end(), *value) == known.end() && *value != "off") {
    std::string names;
    for (const std::string_view name : known) {
      names += std::string(name) + ", ";
    }
    return ignored(log, variable, *value, "', which is no policy: there are " + names + "and off, which is um");
  }
  return std::string(*value);
}

DEEPUM_SEPARATE std::optional<bytes> budget(bytes device_memory, bytes block, const sink& log) {
  constexpr const char* variable = "DEEPUM_BUDGET";
  const std::optional<std::string_view> value = value_of(variable);
  if (!value) {
    return std::nullopt;
  }
  std::optional<bytes> size = try_parse_size(*value);
  if (!size) {
    size = try_parse_share(*value, device_memory);
  }
  if (!size) {
    return ignored(log, variable, *value,
                   "', which is no budget: give bytes, a number with KiB, MiB, GiB or TiB, or a share of the "
                   "device's memory such as 50%");
  }
  if (size->count != 0 && *size < block) {
    return ignored(log, variable, *value,
                   "', which is less than a block of " + std::to_string(block.count) +
                       " bytes; 0 means what is free on the device");
  }
  return size;
}

DEEPUM_SEPARATE std::optional<bytes> chunk(bytes smallest, bytes largest, const sink& log) {
  constexpr const char* variable = "DEEPUM_CHUNK";
  const std::optional<std::string_view> value = value_of(variable);
  if (!value) {
    return std::nullopt;
  }
  const std::optional<bytes> size = try_parse_size(*value);
  if (!size || *size < smallest || *size > largest || (size->count & (size->count - 1)) != 0) {
    return ignored(log, variable, *value,
                   "', which is no size of a chunk: give a power of two from " + std::to_string(smallest.count >> 20) +
                       "MiB to " + std::to_string(largest.count >> 20) + "MiB");
  }
  return size;
}

DEEPUM_SEPARATE std::optional<bool> checked(const sink& log) {
  constexpr const char* variable = "DEEPUM_CHECK";
  const std::optional<std::string_view> value = value_of(variable);
  if (!value) {
    return std::nullopt;
  }
  if (*value != "0" && *value != "1") {
    return ignored(log, variable, *value, "', which is neither 1 (checked mode) nor 0");
  }
  return *value == "1";
}

/// A file that can be written when the time has come, as far as that can be told now.
DEEPUM_SEPARATE std::optional<std::string> file(const char* variable, const sink& log) {
  const std::optional<std::string_view> value = value_of(variable);
  if (!value) {
    return std::nullopt;
  }
  std::string path(*value);
  if (const std::optional<std::string> why = why_not_replaceable(path)) {
    return ignored(log, variable, *value, "', which cannot be written: " + *why);
  }
  return path;
}

DEEPUM_SEPARATE std::optional<std::string> statistics_file(const sink& log) { return file("DEEPUM_STATISTICS", log); }
DEEPUM_SEPARATE std::optional<std::string> trace_file(const sink& log) { return file("DEEPUM_TRACE", log); }

}  // namespace detail::environment
}  // namespace v0
}  // namespace deepum
