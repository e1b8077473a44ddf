#pragma once

#include <deepum/core/block.hpp>
#include <deepum/core/block_map.hpp>
#include <deepum/core/launch.hpp>

#include <atomic>
#include <cstdint>
#include <vector>

namespace deepum {
inline namespace v0 {
namespace detail {

/// Who wants a block to stay where it is, on memory that never faults.
struct claim {
  std::uint64_t wanted_by = 0;    ///< the launch that was served last and declares it
  std::uint32_t pins = 0;         ///< launches that may execute and declare it
  std::uint32_t holds = 0;        ///< those of them that are an `arena::hold`
  std::uint32_t host_views = 0;   ///< through which the host reads or writes it
  std::uint32_t host_writes = 0;  ///< those through which it writes
};

/// What keeps blocks where they are, on memory that never faults.
///
/// A *pin* of a launch that may execute, or of an `arena::hold`: the block does not leave. The launch that is *served*
/// declares it: the same, so that what that launch needs comes together. A *view of the host* writes it: it does not
/// arrive, and a launch begins with it only if it was submitted before the view and misses nothing, since the view may
/// wait for a hold that ends behind that launch.
///
/// Not synchronised, but for `host_writes`: used under the engine's state lock.
class block_claims {
 public:
  explicit block_claims(std::uint32_t block_count) : claims_(block_count) {}

  [[nodiscard]] const claim& operator[](block_id b) const { return claims_[b.value]; }

  /// A launch may execute, as far as is known. Until `unpin` what it declares does not leave.
  void pin(const launch_record& record) {
    for (const block_access& a : record.accesses) {
      for_each_block(a.range, [&](block_id b) {
        claim& c = claims_[b.value];
        ++c.pins;
        if (record.hold && c.holds++ == 0) {
          ++blocks_of_holds_;
        }
      });
    }
  }
  void unpin(const launch_record& record) {
    for (const block_access& a : record.accesses) {
      for_each_block(a.range, [&](block_id b) {
        claim& c = claims_[b.value];
        --c.pins;
        if (record.hold && --c.holds == 0) {
          --blocks_of_holds_;
        }
      });
    }
  }

  /// From now on this launch, and no other, gets what it misses.
  void serve(const launch_record& record) {
    served_ = record.id.value;
    for (const block_access& a : record.accesses) {
      for_each_block(a.range, [&](block_id b) { claims_[b.value].wanted_by = served_; });
    }
  }
  void serve_none() { served_ = 0; }
  /// Invalid: none.
  [[nodiscard]] launch_id served() const { return launch_id{served_}; }

  void begin_view(block_range range, access mode) {
    for_each_block(range, [&](block_id b) {
      ++claims_[b.value].host_views;
      claims_[b.value].host_writes += mode != access::read ? 1 : 0;
    });
    host_writes_.fetch_add(mode != access::read ? 1 : 0, std::memory_order_relaxed);
  }
  void end_view(block_range range, access mode) {
    for_each_block(range, [&](block_id b) {
      --claims_[b.value].host_views;
      claims_[b.value].host_writes -= mode != access::read ? 1 : 0;
    });
    host_writes_.fetch_sub(mode != access::read ? 1 : 0, std::memory_order_relaxed);
  }

  /// A launch that may execute, or that is served, needs the block where it is. One that is served gives way to the
  /// host, for which it would have to wait in turn.
  [[nodiscard]] bool held_down(block_id b, const block_map& map) const {
    const claim& c = claims_[b.value];
    return c.pins != 0 || (c.wanted_by != 0 && c.wanted_by == served_ && c.host_writes == 0 && !map.hollow(b));
  }
  /// A launch that declares the block may execute: one that is more than a hold.
  [[nodiscard]] bool executed_on(block_id b) const { return claims_[b.value].pins != claims_[b.value].holds; }
  /// Blocks that stay until the program ends a hold.
  [[nodiscard]] std::uint64_t blocks_of_holds() const { return blocks_of_holds_; }
  /// Views of the host that write. Threads: any.
  [[nodiscard]] std::uint32_t host_writes() const { return host_writes_.load(std::memory_order_relaxed); }

 private:
  std::vector<claim> claims_;
  std::uint64_t served_ = 0;
  std::uint64_t blocks_of_holds_ = 0;
  std::atomic<std::uint32_t> host_writes_{0};
};

}  // namespace detail
}  // namespace v0
}  // namespace deepum
