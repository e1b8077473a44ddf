#pragma once

#include <deepum/core/block.hpp>
#include <deepum/core/block_record.hpp>
#include <deepum/core/launch.hpp>
#include <deepum/core/sequence.hpp>
#include <deepum/engine/memory_space.hpp>
#include <deepum/engine/transfer_queue.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

namespace deepum {
inline namespace v0 {
namespace detail {

/// What a thread of the program reports.
struct message {
  enum class kind : std::uint8_t { open_stream, close_stream, launch, abandon, dead, live, host_access, request };
  explicit message(kind of) : what(of) {}
  explicit message(launch_record&& enqueued) : what(kind::launch), record(std::move(enqueued)) {}

  kind what;
  access mode = access::read;
  liveness life = liveness::live;
  std::optional<std::uint32_t> lookahead{};
  block_range range{};
  launch_id last{};
  queue_entry request{};
  launch_record record{};
};

/// Takes launches and facts of all threads of the program into one order (docs/adr/0001), and holds the two gates that
/// let them pass without the state lock: launches begin, and dead blocks come alive. `gates` says when.
///
/// Threads: any. Its lock is the innermost one, held for one push or swap.
class inbox {
 public:
  static constexpr std::size_t most_messages = 4096;        // between two pumps, before the program waits
  static constexpr std::uint32_t most_streams = 1U << 16U;  // that `stream_id` can tell apart

  /// @param space  Its pump empties this. Outlives it.
  explicit inbox(memory_space& space) : memory_(space) {}
  inbox(const inbox&) = delete;
  inbox& operator=(const inbox&) = delete;

  /// @name Messages
  /// @{

  void push(message&& m);
  /// @returns  The number of the launch, in the order of the inbox.
  launch_id push_launch(launch_record&& record);
  /// Contents of the blocks matter from now on.
  /// @returns  Whether no block is given up before this has been read, and launches need not wait for room because of
  ///           it.
  bool push_live(block_range range);
  /// What has come since the last time, in order. @param out  Empty.
  void take(std::vector<message>& out);
  /// The pump has run: what the program reports from now on is counted anew.
  void pumped();
  /// So much has been reported since the last pump that the program should wait for the next one. No lock.
  [[nodiscard]] bool crowded() const { return crowded_.load(std::memory_order_relaxed); }
  /// The launch that was pushed last; invalid where there was none. No lock.
  [[nodiscard]] launch_id last_launch() const { return launch_id{last_launch_.load(std::memory_order_acquire)}; }
  /// @}

  /// @name Numbers of streams
  /// @{

  /// @param closing  Nothing is found where so many closed streams still have their numbers and no other has been given
  ///                 back: numbers stay small, and so does all that is kept by them.
  [[nodiscard]] std::optional<stream_id> take_stream_number(std::uint32_t closing);
  /// The stream was closed, and nothing of it is in flight.
  void give_back(stream_id number);
  /// @}

  /// @name Gates
  /// Facts that passed a gate before it was closed are in the inbox then.
  /// @{

  /// Whether launches have to ask before they begin. No lock.
  [[nodiscard]] bool launches_ask() const { return launches_ask_.load(std::memory_order_relaxed) != 0; }
  /// @returns  Whether they had to before.
  bool set_launches_ask(bool ask) {
    const std::uint64_t before = ask ? launches_ask_.fetch_or(gate_closed, std::memory_order_relaxed)
                                     : launches_ask_.fetch_and(~gate_closed, std::memory_order_relaxed);
    return before != 0;
  }
  /// Whether an upload is not over.
  [[nodiscard]] bool uploading() const { return launches_ask_.load(std::memory_order_relaxed) >= one_upload; }
  /// An upload is over, and nothing is known any more of what it could not bring. Until then launches ask, from the
  /// moment on at which it was pushed.
  void upload_over() { launches_ask_.fetch_sub(one_upload, std::memory_order_relaxed); }
  /// Contents are going to be given up. @returns  Whether that had been said before.
  bool announce_discards();
  /// None is asked for, planned or on its way, but for what the inbox holds.
  void no_discards();
  /// @param live    Blocks that are alive, but for what the inbox holds.
  /// @param budget  Blocks that may come alive in all before launches have to wait for room.
  void set_spare(std::uint64_t live, std::uint64_t budget);
  /// @}

 private:
  /// @param m     Of which a message is made.
  /// @param note  (message&) -> void: called under the lock.
  template <class Made, class Note>
  void push(Made&& m, Note&& note);
  static bool asks_for_discard(const message& m);
  static constexpr std::uint64_t gate_closed = 1;
  static constexpr std::uint64_t one_upload = 2;

  memory_space& memory_;
  std::mutex mutex_;
  std::vector<message> messages_{};
  std::size_t reported_ = 0;                   // since the last pump
  std::uint32_t next_stream_ = 0;              // the first number that no stream has had
  sequence<stream_id> free_streams_{};         // numbers of streams that are over
  std::uint32_t streams_closing_ = 0;          // closed, and not over as far as is known
  bool discards_ = false;                      // are asked for, planned or on their way
  std::uint64_t spare_ = 0;                    // blocks that may come alive, and all that is fits the budget
  std::atomic<bool> crowded_{false};           // written under the lock
  std::atomic<std::uint64_t> last_launch_{0};  // written under the lock
  std::atomic<std::uint64_t> launches_ask_{
      0};  // the gate, written under the state lock, and how many uploads there are
};

}  // namespace detail
}  // namespace v0
}  // namespace deepum

#ifndef DEEPUM_SEPARATE_COMPILATION
#include <deepum/engine/impl/inbox.hpp>  // what it declares
#endif
