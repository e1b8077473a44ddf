#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>

namespace deepum_test {

/// The signals that each thread of this process blocks, as the kernel tells: a bit for each, by thread.
inline std::map<std::string, std::uint64_t> blocked_signals() {
  std::map<std::string, std::uint64_t> found;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::ifstream status(task.path() / "status");
    for (std::string line; std::getline(status, line);) {
      if (line.rfind("SigBlk:", 0) == 0) {
        found[task.path().filename().string()] = std::stoull(line.substr(7), nullptr, 16);
      }
    }
  }
  return found;
}

/// Whether all that can be blocked is: SIGKILL and SIGSTOP cannot, nor what the C library keeps for itself.
inline bool blocks_all(std::uint64_t mask) {
  for (unsigned signal = 1; signal < 32; ++signal) {
    if (signal != 9 && signal != 19 && (mask >> (signal - 1) & 1U) == 0) {
      return false;
    }
  }
  return true;
}

}  // namespace deepum_test
