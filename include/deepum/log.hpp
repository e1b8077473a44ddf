#pragma once

#include <deepum/cxx20.hpp>

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string_view>

namespace deepum {
inline namespace v0 {

/// What a line of the log is about, and how much of it is wanted.
enum class verbosity : int {
  none = 0,     ///< nothing
  changes = 1,  ///< the library changed its mind: a policy paused, a feed was lost, a launch does not fit
  set_up = 2,   ///< also what it found and chose when it began
};

/// How much DEEPUM_LOG in the environment asks for: 0, 1 or 2. `changes` where it is not set, or is no such number.
[[nodiscard]] inline verbosity wanted_verbosity() {
  const char* const wanted = std::getenv("DEEPUM_LOG");
  if (wanted == nullptr || wanted[0] < '0' || wanted[0] > '2' || wanted[1] != '\0') {
    return verbosity::changes;
  }
  return static_cast<verbosity>(wanted[0] - '0');
}

/// The sink for lines of one kind where the program gives none: standard error, or an empty function where DEEPUM_LOG
/// does not ask for them. The variable is read here, once.
[[nodiscard]] inline std::function<void(std::string_view)> default_log(verbosity of = verbosity::changes) {
  if (of == verbosity::none || of > wanted_verbosity()) {
    return {};
  }
  return
      [](std::string_view line) { std::fprintf(stderr, "deepum: %.*s\n", static_cast<int>(line.size()), line.data()); };
}

}  // namespace v0
}  // namespace deepum
