#pragma once

#include <deepum/cxx20.hpp>

#include <cstdio>
#include <string>
#include <string_view>

namespace deepum {
inline namespace v0 {
namespace detail {

/// Appends a string as JSON has it, in quotes. Bytes from 0x80 on go through: names are taken to be UTF-8.
inline void append_json_string(std::string& out, std::string_view text) {
  out += '"';
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      char code[8];
      std::snprintf(code, sizeof code, "\\u%04x", static_cast<unsigned>(static_cast<unsigned char>(c)));
      out += code;
    } else {
      out += c;
    }
  }
  out += '"';
}

}  // namespace detail
}  // namespace v0
}  // namespace deepum
