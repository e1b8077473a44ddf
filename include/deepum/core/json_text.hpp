#pragma once

#include <deepum/cxx20.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>

namespace deepum {
inline namespace v0 {
namespace detail {

/// Bytes of the UTF-8 character that a text begins with; 0 where it begins with none.
[[nodiscard]] inline std::size_t utf8_length(std::string_view text) {
  const auto at = [text](std::size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0U; };
  const unsigned first = at(0);
  if (first < 0x80) {
    return text.empty() ? 0 : 1;
  }
  const std::size_t length = first >= 0xf5 ? 0 : first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : first >= 0xc2 ? 2 : 0;
  for (std::size_t i = 1; i < length; ++i) {
    if ((at(i) & 0xc0U) != 0x80) {
      return 0;
    }
  }
  // Longer than need be, half of a pair, or beyond the last character.
  const unsigned second = at(1);
  const bool wrong = (first == 0xe0 && second < 0xa0) || (first == 0xed && second >= 0xa0) ||
                     (first == 0xf0 && second < 0x90) || (first == 0xf4 && second >= 0x90);
  return wrong ? 0 : length;
}
/// Takes the first character off a text. @returns  It; U+FFFD for a byte that is in none.
[[nodiscard]] inline std::string_view take_utf8(std::string_view& text) {
  const std::size_t length = utf8_length(text);
  const std::string_view taken = length == 0 ? std::string_view("\xef\xbf\xbd") : text.substr(0, length);
  text.remove_prefix(length == 0 ? 1 : length);
  return taken;
}

/// Appends a string as JSON has it, in quotes. Bytes that are no UTF-8 become U+FFFD.
inline void append_json_string(std::string& out, std::string_view text) {
  out += '"';
  while (!text.empty()) {
    const std::string_view c = take_utf8(text);
    if (c == "\"" || c == "\\") {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c[0]) < 0x20) {
      char code[8];
      std::snprintf(code, sizeof code, "\\u%04x", static_cast<unsigned>(static_cast<unsigned char>(c[0])));
      out += code;
    } else {
      out += c;
    }
  }
  out += '"';
}

/// A number of parts as a decimal number of wholes: 1500 of 1000 is 1.500.
/// @param digits  Behind the point: a whole has 10^digits parts.
[[nodiscard]] inline std::string decimal_text(std::int64_t parts, int digits) {
  const bool negative = parts < 0;
  std::string text =
      std::to_string(negative ? ~static_cast<std::uint64_t>(parts) + 1 : static_cast<std::uint64_t>(parts));
  const auto least = static_cast<std::size_t>(digits) + 1;
  if (text.size() < least) {
    text.insert(0, least - text.size(), '0');
  }
  text.insert(text.size() - static_cast<std::size_t>(digits), 1, '.');
  return negative ? '-' + text : text;
}

}  // namespace detail
}  // namespace v0
}  // namespace deepum
