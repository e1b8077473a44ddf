#pragma once

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <string>

/// Tests in a process of their own: what may end the CUDA context, or the process, would end all other tests too. Such
/// a test case is skipped, and does nothing unless `is_child()`; another one runs it with `run_alone`.
namespace gpu_alone {

inline constexpr const char* child_variable = "DEEPUM_GPU_TEST_CHILD";

[[nodiscard]] inline bool is_child() { return std::getenv(child_variable) != nullptr; }

/// A line for the process that waits, there also if the next thing ends this one.
inline void say(const std::string& line) {
  std::printf("%s\n", line.c_str());
  std::fflush(stdout);
}

struct child_result {
  int status = -1;  ///< 128 + n where signal n has ended it; 124 where it took too long
  std::string output{};

  [[nodiscard]] bool said(const std::string& words) const { return output.find(words) != std::string::npos; }
};

/// Runs a test case, which is skipped otherwise, in a process of its own.
inline child_result run_alone(const std::string& test_case) {
  std::array<char, 4096> path{};
  REQUIRE(::readlink("/proc/self/exe", path.data(), path.size() - 1) > 0);
  const std::string command = std::string(child_variable) + "=1 timeout 60 '" + path.data() +
                              "' --no-skip=true --no-colors=true '--test-case=" + test_case + "' 2>&1";
  child_result result;
  std::FILE* pipe = ::popen(command.c_str(), "r");
  REQUIRE(pipe != nullptr);
  std::array<char, 4096> buffer{};
  for (std::size_t n = 0; (n = std::fread(buffer.data(), 1, buffer.size(), pipe)) != 0;) {
    result.output.append(buffer.data(), n);
  }
  const int status = ::pclose(pipe);
  result.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return result;
}

}  // namespace gpu_alone
