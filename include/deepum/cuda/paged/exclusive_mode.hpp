#pragma once

#include <deepum/core/block.hpp>
#include <deepum/core/launch.hpp>
#include <deepum/cuda/paged/chunk_range.hpp>

#include <cstdint>
#include <mutex>
#include <vector>

namespace deepum {
inline namespace v0 {
namespace cuda {

/// Checked mode of paged memory: while it is on, what is mapped at the arena's addresses is accessible to the device
/// for as long as launches use it that were let in, and to no others.
///
/// Threads: any, but for `turn_on`: before anything is mapped.
class exclusive_mode {
 public:
  /// @param addresses  Outlives it.
  explicit exclusive_mode(const chunk_range& addresses) : arena_(addresses), let_in_(addresses.count()) {}

  void turn_on() { on_ = true; }
  [[nodiscard]] bool is_on() const { return on_; }

  /// Calls are counted for each block.
  /// @errors  None: a launch that does not get in fails, and says so.
  void let_in(const std::vector<block_access>& blocks) {
    const std::lock_guard lock(mutex_);
    for (const block_access& a : blocks) {
      for (const block_id b : a.range) {
        if (let_in_[b.value]++ == 0) {
          (void)arena_.allow(b.value);
        }
      }
    }
  }
  void keep_out(const std::vector<block_access>& blocks) {
    const std::lock_guard lock(mutex_);
    for (const block_access& a : blocks) {
      for (const block_id b : a.range) {
        if (--let_in_[b.value] == 0) {
          arena_.forbid(b.value);  // fails where it has left since the launch ended
        }
      }
    }
  }

 private:
  const chunk_range& arena_;
  bool on_ = false;
  std::mutex mutex_;
  std::vector<std::uint32_t> let_in_;  // launches that may use each block
};

}  // namespace cuda
}  // namespace v0
}  // namespace deepum
