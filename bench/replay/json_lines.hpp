#pragma once

#include <deepum/error.hpp>

#include <nlohmann/json.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace deepum::replay {

/// The text of a file, unpacked where it is gzip.
/// @errors  `status::io_failure` where it cannot be read; `status::bad_format` where its gzip data are damaged, or the
///          text is longer than a GiB.
[[nodiscard]] std::string read_text(const std::string& path);

/// One line of a file in which every line is a JSON object, and the reasons why it is not what it should be.
///
/// All of its functions throw `error` with `status::bad_format`, and name the file, the line and the reason.
class json_line {
 public:
  json_line(std::string_view source, std::size_t number, std::string_view text);

  [[nodiscard]] std::size_t number() const { return number_; }
  [[nodiscard]] bool has(const char* key) const { return object_.contains(key); }
  [[nodiscard]] const nlohmann::json& at(const char* key) const;

  /// A whole number from 0 to `max`.
  [[nodiscard]] std::uint64_t whole(const char* key, std::uint64_t max) const { return whole(at(key), key, max); }
  [[nodiscard]] std::uint64_t whole(const nlohmann::json& value, std::string_view what, std::uint64_t max) const;
  /// A number of at least 0 that is not infinite.
  [[nodiscard]] double number(const char* key) const;
  [[nodiscard]] std::string string(const char* key) const;

  [[noreturn]] void refuse(const std::string& reason) const;

 private:
  std::string_view source_;
  std::size_t number_;
  nlohmann::json object_;
};

/// Calls `visit` for every line that is not blank.
/// @param source  Name of the file, for messages.
void for_each_line(std::string_view source, std::string_view text, const std::function<void(const json_line&)>& visit);

/// Throws the error for a line that has been left behind.
[[noreturn]] void refuse_line(std::string_view source, std::size_t number, const std::string& reason);

/// Throws the error for something that a file says in a line, or a program without lines (0).
[[noreturn]] void refuse(std::string_view source, std::size_t line, const std::string& reason);

}  // namespace deepum::replay
