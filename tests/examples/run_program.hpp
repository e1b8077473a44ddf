#pragma once

#include <doctest/doctest.h>
#include <sys/wait.h>

#include <cstdio>
#include <string>

namespace deepum_test {

struct outcome {
  int status = -1;
  std::string output{};  // what the command line lets through
};

/// Runs a command line through the shell, and waits for it.
inline outcome shell(const std::string& command) {
  outcome result;
  std::FILE* pipe = popen(command.c_str(), "r");
  REQUIRE(pipe != nullptr);
  char buffer[4096];
  for (std::size_t n = 0; (n = std::fread(buffer, 1, sizeof buffer, pipe)) != 0;)
    result.output.append(buffer, n);
  const int status = pclose(pipe);
  if (WIFEXITED(status)) result.status = WEXITSTATUS(status);
  return result;
}

/// The same for a program of this build.
/// @param environment  Variables for it, as NAME=VALUE.
inline outcome run_program(const std::string& name, const std::string& arguments, const std::string& environment = {}) {
  return shell(environment + " " + std::string{DEEPUM_BIN_DIR} + "/" + name + " " + arguments);
}

}  // namespace deepum_test
