#pragma once

#include <deepum/cxx20.hpp>

#include <cstdio>
#include <cstdlib>
#include <source_location>
#include <stdexcept>
#include <string>
#include <string_view>

namespace deepum {
inline namespace v0 {

/// What went wrong, for programs that react to it. The message of the `error` is for people.
enum class status : int {
  invalid_argument = 1,  ///< the caller passed something that can never work
  out_of_arena_space,    ///< the arena's address range has no gap that is large enough
  out_of_device_memory,  ///< the device cannot hold what a launch needs
  out_of_host_memory,    ///< the host cannot back what was asked for
  foreign_pointer,       ///< a pointer that this arena did not hand out
  double_free,           ///< a pointer that was given back already
  device_failure,        ///< a call of the device failed; `native_code` has its number
  unsupported,           ///< this device, driver or build cannot do it
  io_failure,            ///< a file could not be read or written
  bad_format,            ///< a file was read, but is not what it should be
  wrong_declaration,     ///< checked mode: a launch did what it does not declare
};

/// Thrown by set-up and allocation. Hints, destructors and the migration thread never throw it.
class error : public std::runtime_error {
 public:
  /// @param code         Why, for programs.
  /// @param description  One line: what was wrong, and what to do.
  /// @param api          The call that failed, "" where there is none.
  /// @param native       The numeric status of that call, 0 where there is none.
  error(status code, const std::string& description, std::string_view api = {}, int native = 0,
        std::source_location where = std::source_location::current())
      : std::runtime_error(description),
        code_(code),
        native_(native),
        api_(api),
        where_(where) {}

  /// Why, for programs.
  [[nodiscard]] status code() const noexcept { return code_; }
  /// The numeric status of the call that failed, 0 where there was none.
  [[nodiscard]] int native_code() const noexcept { return native_; }
  /// The call that failed, "" where there was none.
  [[nodiscard]] const std::string& api() const noexcept { return api_; }
  /// The line of the library that noticed.
  [[nodiscard]] const std::source_location& where() const noexcept { return where_; }

 private:
  status code_;
  int native_;
  std::string api_;
  std::source_location where_;
};

/// A broken precondition: a bug in the program or in this library. Says where, and stops.
[[noreturn]] inline void precondition_failed(const char* what,
                                             std::source_location where = std::source_location::current()) {
  std::fprintf(stderr, "deepum: %s:%u: precondition failed: %s\n", where.file_name(), where.line(), what);
  std::abort();
}

/// Checks a precondition in every build: the checks are a compare and a branch.
constexpr void expects(bool holds, const char* what, std::source_location where = std::source_location::current()) {
  if (!holds) [[unlikely]] {
    precondition_failed(what, where);
  }
}

}  // namespace v0
}  // namespace deepum
