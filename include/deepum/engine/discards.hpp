#pragma once

#include <deepum/core/block.hpp>
#include <deepum/core/plan.hpp>
#include <deepum/core/transfer.hpp>
#include <deepum/engine/engine_options.hpp>
#include <deepum/engine/fact_finder.hpp>
#include <deepum/engine/records.hpp>
#include <deepum/engine/transfer_start.hpp>

namespace deepum {
inline namespace v0 {
namespace detail {

/// Which contents are given up next: those that the program asks to discard, and dead ones that a launch demands the
/// room of or a plan names.
///
/// These need no link, so one that waits for a launch does not hold up the others. Not synchronised: used under the
/// engine's state lock.
class discards {
 public:
  /// All outlive it.
  discards(records& shared, const fact_finder& facts, const engine_options& chosen, transfer_start& starts)
      : state_(shared),
        facts_(facts),
        options_(chosen),
        start_(starts) {}

  /// A plan gives up blocks. Contents that no fact calls dead are not even queued.
  void enqueue(transfer t);
  /// Gives the device what may go now.
  void issue();

 private:
  void start_one(block_range blocks, reason why);

  records& state_;
  const fact_finder& facts_;
  const engine_options& options_;
  transfer_start& start_;
};

}  // namespace detail
}  // namespace v0
}  // namespace deepum

#ifndef DEEPUM_SEPARATE_COMPILATION
#include <deepum/engine/impl/discards.hpp>  // what it declares
#endif
