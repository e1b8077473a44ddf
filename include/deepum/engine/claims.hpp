#pragma once

#include <deepum/core/block.hpp>
#include <deepum/core/block_ledger.hpp>
#include <deepum/core/launch.hpp>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <span>

namespace deepum {
inline namespace v0 {
namespace detail {

/// What keeps blocks where they are, on memory that never faults; the blocks' records say so.
///
/// A *pin* of a launch that may execute, of an `arena::hold`, or of `engine::keep`: the block does not leave. The
/// launch that is *served* declares it: the same, so that what that launch needs comes together. A *view of the host*
/// writes it: it does not arrive, and a launch begins with it only if it was submitted before the view and misses
/// nothing, since the view may wait for a hold that ends behind that launch.
///
/// Not synchronised, but for `host_writes`: used under the engine's state lock.
class block_claims {
 public:
  /// @param ledger  Outlives it.
  explicit block_claims(block_ledger& ledger) : ledger_(ledger) {}

  /// A launch may execute, as far as is known. Until `unpin` what it declares does not leave.
  void pin(const launch_record& record) { pin(record.accesses, record.hold); }
  void unpin(const launch_record& record) { unpin(record.accesses, record.hold); }
  /// @param hold  The pin is that of an `arena::hold`.
  void pin(std::span<const block_access> blocks, bool hold) {
    for (const block_access& a : blocks) {
      for (const block_id b : a.range) {
        if (ledger_.pin(b, hold) == 1 && hold) {
          ++blocks_of_holds_;
        }
      }
    }
  }
  void unpin(std::span<const block_access> blocks, bool hold) {
    for (const block_access& a : blocks) {
      for (const block_id b : a.range) {
        if (ledger_.unpin(b, hold) == 0 && hold) {
          --blocks_of_holds_;
        }
      }
    }
  }

  /// From now on this launch, and no other, gets what it misses.
  void serve(const launch_record& record) {
    if (served_ != record.id) {
      served_ = record.id;
      serve_ = std::max(serve_ + 1, 1U);
    }
    for (const block_access& a : record.accesses) {
      for (const block_id b : a.range) {
        ledger_.serve(b, serve_);
      }
    }
  }
  void serve_none() { served_ = launch_id{}; }
  /// Invalid: none.
  [[nodiscard]] launch_id served() const { return served_; }

  void begin_view(block_range range, access mode) {
    for (const block_id b : range) {
      ledger_.begin_host_view(b, mode);
    }
    host_writes_.fetch_add(mode != access::read ? 1 : 0, std::memory_order_relaxed);
  }
  void end_view(block_range range, access mode) {
    for (const block_id b : range) {
      ledger_.end_host_view(b, mode);
    }
    host_writes_.fetch_sub(mode != access::read ? 1 : 0, std::memory_order_relaxed);
  }

  /// A launch that may execute, or that is served, needs the block where it is. One that is served gives way to the
  /// host, for which it would have to wait in turn.
  [[nodiscard]] bool held_down(block_id b) const {
    const block_view r = ledger_.of(b);
    return r->pins != 0 || (served_.valid() && r->served_in == serve_ && r->host_writes == 0 && !ledger_.hollow(b));
  }
  /// Blocks that stay until the program ends a hold.
  [[nodiscard]] std::uint64_t blocks_of_holds() const { return blocks_of_holds_; }
  /// Views of the host that write. Threads: any.
  [[nodiscard]] std::uint32_t host_writes() const { return host_writes_.load(std::memory_order_relaxed); }

 private:
  block_ledger& ledger_;
  launch_id served_{};
  std::uint32_t serve_ = 0;  // counts the launches that were served
  std::uint64_t blocks_of_holds_ = 0;
  std::atomic<std::uint32_t> host_writes_{0};
};

}  // namespace detail
}  // namespace v0
}  // namespace deepum
