#pragma once

#include "cuda/fake_cuda.hpp"
#include <deepum/core/block.hpp>
#include <deepum/engine/device_event.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace deepum_test {

/// The fake GPU from its beginning to its end, when nothing may be left of what was made on it.
struct fake_gpu {
  explicit fake_gpu(deepum::bytes memory = deepum::bytes{std::uint64_t{1} << 30}) {
    CHECK(fake_cuda::reset() == "");
    fake_cuda::set_device_memory(memory);
  }
  ~fake_gpu() { CHECK(fake_cuda::reset() == ""); }
  fake_gpu(const fake_gpu&) = delete;
  fake_gpu& operator=(const fake_gpu&) = delete;
};

/// A variable of the environment, for as long as it lives.
class environment {
 public:
  environment(const char* name, const char* value) : name_(name) {
    if (const char* before = std::getenv(name); before != nullptr) {
      before_ = before;
    }
    ::setenv(name, value, 1);
  }
  ~environment() {
    if (before_) {
      ::setenv(name_, before_->c_str(), 1);
    } else {
      ::unsetenv(name_);
    }
  }
  environment(const environment&) = delete;
  environment& operator=(const environment&) = delete;

 private:
  const char* name_;
  std::optional<std::string> before_{};
};

/// Waits for something that other threads bring about. @returns  Whether it came, within half a minute.
template <class Predicate>
bool comes(Predicate&& holds) {
  for (int i = 0; i < 300'000; ++i) {
    if (holds()) {
      return true;
    }
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  return false;
}

/// For what depends on time. Threads stand for the GPU here, and a busy machine lets one wait for longer than a kernel
/// takes; then `attempt` is made again. @returns  Whether one of them was right.
template <class Attempt>
bool succeeds(Attempt&& attempt) {
  for (int i = 0; i < 20; ++i) {
    if (attempt()) {
      return true;
    }
  }
  return false;
}

/// Device events as they are told, from any thread.
class event_list {
 public:
  void add(const deepum::device_event& e) {
    const std::lock_guard lock(mutex_);
    events_.push_back(e);
  }
  [[nodiscard]] std::vector<deepum::device_event> all() const {
    const std::lock_guard lock(mutex_);
    return events_;
  }
  void clear() {
    const std::lock_guard lock(mutex_);
    events_.clear();
  }
  /// One line: what, blocks, ticket; as in `arrived 0+2 #1`. Ends come as `completed #1`.
  [[nodiscard]] static std::string text(const std::vector<deepum::device_event>& events) {
    using kind = deepum::device_event::kind;
    std::string s;
    for (const deepum::device_event& e : events) {
      const char* name = e.what == kind::arrived           ? "arrived"
                         : e.what == kind::departed        ? "departed"
                         : e.what == kind::completed       ? "completed"
                         : e.what == kind::failed          ? "failed"
                         : e.what == kind::launch_finished ? "finished"
                                                           : "fault";
      s += std::string(s.empty() ? "" : ", ") + name;
      if (!e.range.empty()) {
        s += " " + std::to_string(e.range.first.value) + "+" + std::to_string(e.range.count);
      }
      if (e.ticket != 0) {
        s += " #" + std::to_string(e.ticket);
      }
    }
    return s;
  }
  [[nodiscard]] std::string text() const { return text(all()); }

 private:
  mutable std::mutex mutex_;
  std::vector<deepum::device_event> events_{};
};

/// The blocks of prefetches, in order, as in `0+32>device`.
inline std::vector<std::string> prefetches(const void* base, std::size_t from = 0) {
  std::vector<std::string> found;
  for (const fake_cuda::hint& h : fake_cuda::hints()) {
    if (h.what == fake_cuda::hint::kind::prefetch) {
      const auto offset =
          static_cast<std::size_t>(static_cast<const std::byte*>(h.address) - static_cast<const std::byte*>(base));
      found.push_back(std::to_string(offset / deepum::block_size.count) + "+" +
                      std::to_string(h.size / deepum::block_size.count) +
                      (h.location == cudaCpuDeviceId ? ">host" : ">device"));
    }
  }
  found.erase(found.begin(), found.begin() + static_cast<std::ptrdiff_t>(std::min(from, found.size())));
  return found;
}
/// The stream that the latest hint went to.
inline cudaStream_t stream_of_last_hint() { return fake_cuda::hints().back().stream; }

}  // namespace deepum_test
