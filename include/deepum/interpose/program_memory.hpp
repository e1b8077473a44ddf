#pragma once

#include <deepum/units.hpp>

#include <algorithm>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>

namespace deepum {
inline namespace v0 {
namespace interpose {

/// How much memory a program finds.
struct memory_sizes {
  bytes total{};
  bytes free{};
};

/// The capacity that a program is shown: what the budget and the host's memory hold together, within all limits.
/// @param host    Memory that the host has to spare.
/// @param limit   By the user, where there is one.
/// @param unit    What capacities are multiples of.
[[nodiscard]] inline bytes capacity_of(bytes budget, bytes host, std::optional<bytes> limit, bytes unit) {
  const bytes capacity = std::min(budget + host, limit.value_or(budget + host));
  return unit * (capacity / unit);
}

/// What a program has been given out of an arena, as the driver would tell it.
///
/// Threads: all members, any thread.
class program_memory {
 public:
  struct allocation {
    std::uint64_t address = 0;
    bytes size{};          ///< that was asked for
    bool managed = false;  ///< by cuMemAllocManaged: the program knows that it is managed memory
  };

  /// @param capacity  Of the arena.
  explicit program_memory(bytes capacity) : capacity_(capacity) {}

  /// @returns  Whether some of it lies behind all that was given before, so that nothing has ever been there.
  bool add(const allocation& a) {
    const std::lock_guard lock(mutex_);
    allocations_[a.address] = a;
    allocated_ += rounded(a.size);
    peak_ = std::max(peak_, allocated_);
    const std::uint64_t end = a.address + a.size.count;
    const bool is_new = end > end_of_used_;
    end_of_used_ = std::max(end_of_used_, end);
    return is_new;
  }
  /// @returns  Whether an allocation began there.
  bool remove(std::uint64_t address) {
    const std::lock_guard lock(mutex_);
    const auto it = allocations_.find(address);
    if (it == allocations_.end()) {
      return false;
    }
    allocated_ -= rounded(it->second.size);
    allocations_.erase(it);
    return true;
  }
  /// The allocation that an address lies in.
  [[nodiscard]] std::optional<allocation> find(std::uint64_t address) const {
    const std::lock_guard lock(mutex_);
    auto it = allocations_.upper_bound(address);
    if (it == allocations_.begin()) {
      return std::nullopt;
    }
    --it;
    const allocation& a = it->second;
    return address - a.address < a.size.count ? std::optional<allocation>(a) : std::nullopt;
  }
  [[nodiscard]] memory_sizes sizes() const {
    const std::lock_guard lock(mutex_);
    return {capacity_, capacity_ - std::min(capacity_, allocated_)};
  }
  /// The most that was allocated at a time.
  [[nodiscard]] bytes peak() const {
    const std::lock_guard lock(mutex_);
    return peak_;
  }

 private:
  // As the arena does, which gives no less.
  static bytes rounded(bytes size) { return bytes{(size.count + 511) / 512 * 512}; }

  const bytes capacity_;
  mutable std::mutex mutex_;
  std::map<std::uint64_t, allocation> allocations_{};
  bytes allocated_{};
  bytes peak_{};
  std::uint64_t end_of_used_ = 0;
};

}  // namespace interpose
}  // namespace v0
}  // namespace deepum
