#pragma once

#include <deepum/core/block.hpp>
#include <deepum/core/plan.hpp>
#include <deepum/core/transfer.hpp>
#include <deepum/engine/accounting.hpp>
#include <deepum/engine/discards.hpp>
#include <deepum/engine/engine_options.hpp>
#include <deepum/engine/fact_finder.hpp>
#include <deepum/engine/memory_space.hpp>
#include <deepum/engine/records.hpp>
#include <deepum/engine/transfer_queues.hpp>
#include <deepum/units.hpp>

#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

namespace deepum {
inline namespace v0 {
namespace detail {

/// Takes plans into the queues and gives transfers to the memory, as far as the law, the room and the links allow.
/// Where a policy has left it open, it fills in where blocks come from and by which route.
///
/// Each link keeps the order of its queue, with a bounded number of transfers at a time. Blocks without contents get
/// room without a copy, and blocks that are current elsewhere give theirs up without one; neither waits for the link. A
/// block that an executing launch declares, or the next one of its stream, is not evicted: else launches that wait
/// would take blocks from each other for ever.
///
/// Not synchronised: used under the engine's state lock.
class dispatcher {
 public:
  /// All outlive it.
  dispatcher(memory_space& space, records& shared, const fact_finder& facts, accounting& account,
             const engine_options& chosen)
      : memory_(space),
        state_(shared),
        facts_(facts),
        account_(account),
        options_(chosen),
        start_(space, shared, account),
        discards_(shared, facts, chosen, start_) {}

  /// Takes a plan over into the queues. Contents that no fact calls dead are not even queued to be discarded.
  void enqueue(const plan& made);
  /// Gives the device what it can take. The gates are closed and the inbox has been read.
  void dispatch();
  /// Ends the duplication of what launches are going to write, before they begin, and places what the program wants to
  /// be in place.
  void issue_urgent();

 private:
  /// A prefetch is forgotten. What the new plan has again was not cancelled.
  void cancel(const transfer& t);
  /// Gives a link what it can take.
  void issue(transfer_queue& q);
  /// @name One piece of the first transfer that waits
  /// Blocks of which nothing is to be done, or cannot be done, are left out. @returns  False where the queue has to
  /// wait.
  /// @{
  bool issue_arrival(transfer_queue& q, std::deque<queue_entry>& waiting);
  bool issue_departure(transfer_queue& q, std::deque<queue_entry>& waiting);
  bool issue_copy(transfer_queue& q, std::deque<queue_entry>& waiting);
  /// @}
  /// A copy in two places is of use only where blocks have to leave.
  void advise(const driver_hint& h);

  /// Takes the first blocks of the first transfer, and the transfer itself when nothing of it is left.
  static transfer take_piece(std::deque<queue_entry>& queue, std::uint32_t blocks);
  [[nodiscard]] location source(const transfer& t, block_id b) const;
  /// The blocks have moved since the transfer was asked for: it goes on in the queue of the link that leads from there.
  /// @returns  Whether that is so.
  bool goes_elsewhere(transfer_queue& q, std::deque<queue_entry>& waiting, location from);
  /// The route for one more transfer; nothing where all are full.
  [[nodiscard]] std::optional<std::uint8_t> route_for(location from, location to) const;
  /// No route has room. @returns  False where the queue has to wait; else there is none, and the transfer is dropped.
  bool waits_for_link(std::deque<queue_entry>& waiting, location from);
  /// The first block cannot do what is asked. @returns  False where that may change by itself.
  bool leave_out(transfer& t);
  void drop_rest(std::deque<queue_entry>& waiting);
  void start_leaving(block_id b, location from, std::uint64_t ticket);
  /// That a link is given at a time.
  [[nodiscard]] std::uint64_t most_blocks() const;
  [[nodiscard]] std::uint32_t blocks_left(std::uint8_t via) const;
  /// Of a transfer that goes on by this route, where there are others.
  [[nodiscard]] std::uint32_t piece(std::uint8_t via, std::uint32_t count) const;
  /// The block is on the device, and nothing is going to change that.
  [[nodiscard]] bool stays(block_id b) const;
  /// It is not worth to wait until the block may leave: a hold keeps it, which ends when the program likes, or who
  /// wants it asks again anyway.
  [[nodiscard]] bool stays_for_now(block_id b, reason why) const;

  static constexpr bytes bytes_per_piece = 32_MiB;  // longer ones are hardly faster, and are needed as a whole

  memory_space& memory_;
  records& state_;
  const fact_finder& facts_;
  accounting& account_;
  const engine_options& options_;
  transfer_start start_;
  discards discards_;
  bool moved_on_ = false;           // a transfer from one queue to another
  bool driver_makes_room_ = false;  // the last plan said so
  std::vector<bool> planned_{};  // blocks that the last plan which superseded others prefetches, or that were cancelled
};

}  // namespace detail
}  // namespace v0
}  // namespace deepum

#ifndef DEEPUM_SEPARATE_COMPILATION
#include <deepum/engine/impl/dispatcher.hpp>  // what it declares
#endif
