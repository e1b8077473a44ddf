#pragma once

#include "replay/schedule.hpp"
#include "replay/workload.hpp"
#include <deepum/core/block_ledger.hpp>
#include <deepum/core/launch.hpp>
#include <deepum/engine/device_event.hpp>
#include <deepum/engine/memory_space.hpp>
#include <deepum/sim/event_loop.hpp>
#include <deepum/units.hpp>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <vector>

namespace deepum::replay {

/// What moving blocks costs on the simulated GPU of a replay.
struct link_costs {
  double h2d_gbps = 50.8;           ///< 10^9 bytes a second
  double d2h_gbps = 50.8;           ///< 10^9 bytes a second
  nanoseconds copy_latency{2'000};  ///< of each copy, whatever its length
  nanoseconds fault_latency{0};     ///< from a page fault to the copy that serves it
  /// Both directions work while a launch's faults are served: while one block comes, the victim of the next one leaves.
  /// Else one follows the other.
  bool fault_overlap = false;
};

/// A launch as the device gets it.
struct device_launch {
  launch_id id{};
  const touched_blocks* touched = nullptr;  ///< outlives the launch
  block_set all{};                          ///< of those, what is read or written
  nanoseconds duration{};
  std::uint32_t kernel = 0;  ///< its place in the step, for the schedule
  std::uint32_t step = 0;    ///< for the schedule
  nanoseconds given{};       ///< when it was enqueued; set by the device
};

/// What became of a launch.
struct executed_launch {
  launch_id id{};
  nanoseconds began{};
  nanoseconds ended{};
};

/// The simulated GPU of a replay: launches of known duration, one link in each direction, blocks that move as a whole.
///
/// A launch begins when all its blocks are on the device, and none of them leaves while it runs, or after it faulted.
/// What the launch at the head of the queue misses, and nothing is bringing, faults: one block after another, and where
/// there is no room the least recently migrated block that the launch does not use is driven out first, as the driver
/// of managed memory does. Commands move ranges; those of one direction are carried out in order, one copy at a time,
/// and a fault goes before the next copy. What cannot be done, because a launch uses the blocks or a fault took the
/// room, is left out, and reported as completed when a copy, a fault or a launch has ended. Everything that happens
/// goes into a schedule that a referee can check.
///
/// The engine sees it through `managed_blocks` or `blocks_with_home_copy`. Threads: one.
class gpu {
 public:
  using schedule_sink = std::function<void(const schedule_entry&)>;

  /// @param blocks           Length of the address range.
  /// @param room             Blocks that fit on the device.
  /// @param keeps_home_copy  The host keeps a copy of what is on the device, which is current until a launch writes;
  ///                         else contents are in one place only, and whatever leaves is copied.
  gpu(std::uint32_t blocks, std::uint32_t room, link_costs costs, bool keeps_home_copy, schedule_sink sink);
  gpu(const gpu&) = delete;
  gpu& operator=(const gpu&) = delete;

  /// @name For the program that is replayed
  /// @{

  /// The host has written the block before the program began.
  void put_on_host(block_id b) { map_.write_on_host(b); }
  /// Enqueues a launch.
  void launch(device_launch l);
  /// Launches that have not finished.
  [[nodiscard]] std::size_t queued() const { return queue_.size(); }
  /// Lets the next thing happen. Something must be due.
  void run_next();
  /// Nothing will ever happen any more.
  [[nodiscard]] bool quiet() const { return due_ == 0; }
  /// Events reported so far.
  [[nodiscard]] std::uint64_t reports() const { return reports_; }
  /// Launches that finished since the last call.
  [[nodiscard]] std::vector<executed_launch> take_finished();
  [[nodiscard]] nanoseconds now() const { return loop_.now(); }
  /// Runs whenever it has been notified. Nothing: never.
  void attach(std::function<void()> pump) { pump_ = std::move(pump); }
  /// @}

  /// @name For memory kinds
  /// @{
  [[nodiscard]] std::uint32_t blocks() const { return map_.size(); }
  [[nodiscard]] std::uint32_t free_rooms() const { return map_.room(); }
  bool prefetch(block_range range, std::uint64_t ticket);
  bool populate(block_range range, std::uint64_t ticket);
  bool evict(block_range range, std::uint64_t ticket);
  bool clean(block_range range, std::uint64_t ticket);
  bool drop(block_range range, std::uint64_t ticket);
  bool discard(block_range range, std::uint64_t ticket);
  void poll(std::vector<device_event>& events);
  void notify();
  /// @}

 private:
  static constexpr nanoseconds least_stay{1000};  // of room taken without a copy: mapping and unmapping take longer

  struct operation {
    schedule_event what = schedule_event::copy_in;
    block_range rest{};  // not yet begun
    std::uint64_t ticket = 0;
  };
  struct lane {
    std::deque<operation> queue{};
    bool busy = false;
  };

  void after(nanoseconds delay, std::function<void()> what);
  [[nodiscard]] nanoseconds copy_time(double gbps, std::uint32_t count) const;
  void note(schedule_event what, block_range range, nanoseconds length = {});
  void report(device_event::kind what, block_range range, std::uint64_t ticket, reason why = reason::fault,
              nanoseconds began = {});
  void report(const device_event& e);

  void make_progress();
  void work_in();
  void work_out();
  void begin_copy_in(block_range range, std::uint64_t ticket, bool last);
  void begin_copy_out(schedule_event what, block_range range, std::uint64_t ticket, bool last);
  void place_new(block_range range, std::uint64_t ticket);
  [[nodiscard]] bool just_placed(block_range range) const;
  bool place_where_room(block_range range, std::uint64_t ticket);
  void complete(const operation& op, bool done);
  void complete_left_out();
  bool give_up(block_range range, std::uint64_t ticket, reason why);
  void serve_fault();
  void end_fault();
  [[nodiscard]] bool make_room_for_fault();
  [[nodiscard]] bool head_misses_more() const;

  void try_begin();
  [[nodiscard]] bool all_there();
  void finish();
  [[nodiscard]] bool used_by_head(block_id b) const;
  [[nodiscard]] bool in_use(block_id b) const;

  sim::event_loop loop_{};
  block_ledger map_;
  std::vector<nanoseconds> placed_at_;  // by block: when it got room without a copy
  link_costs costs_;
  bool keeps_home_copy_;
  schedule_sink sink_;
  std::function<void()> pump_{};
  bool pump_due_ = false;
  std::size_t due_ = 0;  // events

  lane in_{};
  lane out_{};
  std::vector<operation> left_out_{};  // not done, and not reported yet
  std::deque<device_launch> queue_{};
  std::vector<executed_launch> finished_{};
  std::vector<device_event> events_{};
  std::uint64_t reports_ = 0;
  nanoseconds began_{};        // the launch that is running
  nanoseconds finished_at_{};  // the launch before it
  bool running_ = false;
  bool faulted_ = false;             // the head of the queue has
  std::size_t checked_range_ = 0;    // of the head: the blocks before are there
  std::uint32_t checked_block_ = 0;  // of that range
  std::optional<block_id> fault_{};  // being served
  bool fault_due_ = false;           // its latency is over
  bool progressing_ = false;         // `make_progress` is on the stack
  bool progress_again_ = false;
};

/// Managed memory on such a GPU.
class managed_blocks : public memory_space {
 public:
  explicit managed_blocks(gpu& device, const memory_capabilities& can = {})
      : memory_space(can, block_size),
        gpu_(device) {}

  [[nodiscard]] std::byte* base() const override { return nullptr; }
  [[nodiscard]] bytes capacity() const override { return block_size * gpu_.blocks(); }
  [[nodiscard]] bytes free_memory() const override { return block_size * gpu_.free_rooms(); }
  bool start(const transfer& t, std::uint64_t ticket) override {
    return !t.cleans() && (t.forgets()      ? gpu_.discard(t.blocks, ticket)
                           : t.takes_room() ? gpu_.prefetch(t.blocks, ticket)
                                            : gpu_.evict(t.blocks, ticket));
  }
  bool advise(block_range, advice, location) override { return true; }
  [[nodiscard]] nanoseconds now() const override { return gpu_.now(); }
  void poll(std::vector<device_event>& events) override { gpu_.poll(events); }
  void notify() override { gpu_.notify(); }
  [[nodiscard]] std::uint64_t happened() const override { return gpu_.reports(); }
  void wait(std::uint64_t seen, nanoseconds /*at_most*/) override {
    if (gpu_.reports() == seen && !gpu_.quiet()) gpu_.run_next();
  }

 protected:
  gpu& device() { return gpu_; }

 private:
  gpu& gpu_;
};

/// Memory with permanent host copies on such a GPU, as paged memory is.
class blocks_with_home_copy final : public managed_blocks {
 public:
  explicit blocks_with_home_copy(gpu& device) : managed_blocks(device, {.keeps_home_copy = true}) {}

  bool start(const transfer& t, std::uint64_t ticket) override {
    if (t.cleans()) {
      return device().clean(t.blocks, ticket);
    }
    if (t.copies() || t.forgets()) {
      return managed_blocks::start(t, ticket);
    }
    return t.takes_room() ? device().populate(t.blocks, ticket) : device().drop(t.blocks, ticket);
  }
};

}  // namespace deepum::replay
