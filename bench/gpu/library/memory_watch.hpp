#pragma once

#include "gpu/library/report.hpp"
#include <deepum/cuda/check.hpp>

#include <cuda_runtime_api.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <fstream>
#include <string>
#include <string_view>
#include <thread>

namespace deepum::gpu_bench {

/// A number of kB in a file of /proc: "MemAvailable:  123 kB". @returns  Bytes; 0 where there is none.
[[nodiscard]] inline std::uint64_t kilobytes_in(std::istream& file, std::string_view key) {
  for (std::string line; std::getline(file, line);) {
    if (line.compare(0, key.size(), key) == 0) {
      const std::size_t digits = line.find_first_of("0123456789", key.size());
      return digits == std::string::npos ? 0 : std::stoull(line.substr(digits)) << 10;
    }
  }
  return 0;
}

/// Memory of device and host, beside a baseline. What others take meanwhile counts too.
class memory_watch {
 public:
  /// Begins now: what is there already, contexts and handles, is not counted.
  memory_watch() : device_free_(free_on_device()), host_available_(host_available()), host_resident_(host_resident()) {}

  /// The device memory that is taken at most while `work` runs, looked at every two milliseconds, and the host's at its
  /// end. Asking slows the driver down, so this is no work to be timed.
  /// @errors  Those of `work`.
  template <class Work>
  [[nodiscard]] memory_taken during(Work&& work) const {
    std::atomic<bool> stop{false};
    std::atomic<std::uint64_t> least_free{free_on_device()};
    std::thread looks([&] {
      while (!stop.load()) {
        least_free = std::min(least_free.load(), free_on_device());
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
      }
    });
    struct end {
      ~end() {
        stop = true;
        thread.join();
      }
      std::atomic<bool>& stop;
      std::thread& thread;
    };
    {
      const end ends{stop, looks};
      work();
    }
    return {.device = less(device_free_, least_free.load()),
            .host = less(host_available_, host_available()),
            .host_resident = less(host_resident(), host_resident_)};
  }

 private:
  static std::uint64_t less(std::uint64_t a, std::uint64_t b) { return a > b ? a - b : 0; }
  static std::uint64_t free_on_device() {
    std::size_t free = 0;
    std::size_t total = 0;
    return cuda::succeeded(cudaMemGetInfo(&free, &total)) ? free : 0;
  }
  static std::uint64_t host_available() {
    std::ifstream file("/proc/meminfo");
    return kilobytes_in(file, "MemAvailable:");
  }
  static std::uint64_t host_resident() {
    std::ifstream file("/proc/self/status");
    return kilobytes_in(file, "VmRSS:");
  }

  std::uint64_t device_free_;
  std::uint64_t host_available_;
  std::uint64_t host_resident_;
};

}  // namespace deepum::gpu_bench
