#pragma once

#include "replay/machine.hpp"
#include "replay/schedule.hpp"
#include "replay/shared_links.hpp"
#include "replay/workload.hpp"
#include <deepum/core/block_ledger.hpp>
#include <deepum/core/launch.hpp>
#include <deepum/core/location.hpp>
#include <deepum/core/topology.hpp>
#include <deepum/core/transfer.hpp>
#include <deepum/engine/device_event.hpp>
#include <deepum/engine/memory_space.hpp>
#include <deepum/sim/event_loop.hpp>
#include <deepum/units.hpp>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

namespace deepum::replay {

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

/// The simulated GPU of a replay: launches of known duration, links, blocks that move as a whole between the host, the
/// GPU and neighbours that only hold blocks.
///
/// A launch begins when all its blocks are on the device, and none of them leaves while it runs, or after it faulted.
/// What the launch at the head of the queue misses, and nothing is bringing, faults: one block after another, and where
/// there is no room the least recently migrated block that the launch does not use is driven out first, as the driver
/// of managed memory does. Commands move ranges; those of one route are carried out in order, one copy at a time, and a
/// fault goes before the next copy. Routes share links: a copy has the rate that is left on the fullest of its links
/// when it begins, and waits where that is less than half of what it could be. What cannot be done, because a launch
/// uses the blocks or a fault took the room, is left out, and reported as completed when a copy, a fault or a launch
/// has ended. Everything that happens goes into a schedule that a referee can check.
///
/// The engine sees it through `managed_blocks` or `blocks_with_home_copy`. Threads: one.
class gpu {
 public:
  using schedule_sink = std::function<void(const schedule_entry&)>;

  /// @param blocks           Length of the address range.
  /// @param keeps_home_copy  The host keeps a copy of what is on the device, which is current until a launch writes;
  ///                         else contents are in one place only, and whatever leaves is copied.
  gpu(std::uint32_t blocks, const machine& what, bool keeps_home_copy, schedule_sink sink);
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
  /// Blocks that took room on the device at most since the last call.
  [[nodiscard]] std::uint32_t take_peak() { return std::exchange(peak_, map_.occupied()); }
  [[nodiscard]] const topology& places() const { return machine_.places; }
  /// The source is filled in, and the route where contents are copied.
  bool start(const transfer& t, std::uint64_t ticket);
  /// From now on launches touch rows of the blocks on the host, while they are there; or they do not any more.
  void set_in_place(block_range range, bool on);
  /// Of rows that are touched in place; 0: none are.
  [[nodiscard]] bytes shortest_row() const { return bytes{machine_.shortest_row()}; }
  void poll(std::vector<device_event>& events);
  void notify();
  /// @}

 private:
  static constexpr nanoseconds least_stay{1000};  // of room taken without a copy: mapping and unmapping take longer

  struct operation {
    transfer what{};
    block_range rest{};  // not yet begun
    std::uint64_t ticket = 0;
  };
  /// Of a route.
  struct lane {
    std::deque<operation> queue{};
    bool busy = false;
  };
  void after(nanoseconds delay, std::function<void()> what);
  [[nodiscard]] location here() const { return map_.device(); }
  [[nodiscard]] bool copying() const;
  /// The fastest route that is free; nothing where none is.
  [[nodiscard]] std::optional<std::uint8_t> free_route(location from, location to) const;
  /// The same for the contents of a block that faulted.
  [[nodiscard]] std::optional<std::uint8_t> free_route_to(block_id b) const;
  void note(schedule_entry entry, nanoseconds length = {});
  void report(device_event::kind what, block_range range, std::uint64_t ticket, reason why = reason::fault,
              nanoseconds began = {});
  void report(const device_event& e);

  void make_progress();
  void populate(block_range range, std::uint64_t ticket);
  void drop(const transfer& t, std::uint64_t ticket);
  void discard(const transfer& t, std::uint64_t ticket);
  [[nodiscard]] bool waits_for_driver(const operation& op, location from, location to);
  void work_in(std::uint8_t way);
  void work_out(std::uint8_t way);
  [[nodiscard]] bool may_be_read(block_id b, location from, bool released) const;
  void begin_copy(const transfer& t, std::uint64_t ticket, bool last);
  void end_copy(const transfer& t, std::uint64_t ticket, bool last, nanoseconds began);
  void place_new(block_range range, std::uint64_t ticket);
  [[nodiscard]] bool just_placed(block_range range, location at) const;
  bool place_where_room(block_range range, std::uint64_t ticket);
  void complete(const operation& op, bool done);
  void complete_left_out();
  bool give_up(block_range range, location at, std::uint64_t ticket, reason why);
  void serve_fault();
  void end_fault();
  [[nodiscard]] bool make_room_for_fault();
  /// The block that the driver drives out next; nothing where none can leave now.
  [[nodiscard]] std::optional<block_id> next_victim() const;
  void drive_out(block_id victim);
  [[nodiscard]] bool head_misses_more() const;

  /// What a launch touches on the host, and what that takes.
  struct away {
    std::vector<schedule_in_place> parts{};
    double in = 0;  // bytes
    double out = 0;
    double slowest = 0;  // of its rows, in 10^9 bytes a second; 0: it touches none there
  };
  [[nodiscard]] bool reached(const device_launch& l, block_id b) const;
  [[nodiscard]] away what_is_away(const device_launch& l) const;
  /// How long a launch takes with that; nothing where the links are full.
  [[nodiscard]] std::optional<nanoseconds> time_with(const away& a, nanoseconds alone) const;
  [[nodiscard]] std::uint8_t way_in() const { return machine_.places.cheapest(location::host(), here()); }
  [[nodiscard]] std::uint8_t way_out() const { return machine_.places.cheapest(here(), location::host()); }
  void try_begin();
  [[nodiscard]] bool all_there();
  void finish();
  [[nodiscard]] bool used_by_head(block_id b) const;
  [[nodiscard]] bool in_use(block_id b) const;

  sim::event_loop loop_{};
  block_ledger map_;
  std::vector<nanoseconds> placed_at_;  // by block: when it got room without a copy
  std::vector<bool> in_place_;          // by block
  machine machine_;
  bool keeps_home_copy_;
  schedule_sink sink_;
  std::function<void()> pump_{};
  bool pump_due_ = false;
  std::size_t due_ = 0;  // events

  std::vector<lane> lanes_;  // by route
  shared_links links_;
  std::vector<std::uint8_t> order_{};  // of the routes: those to the host, to neighbours, to the device
  std::vector<operation> left_out_{};  // not done, and not reported yet
  std::uint32_t peak_ = 0;             // blocks on the device since it was asked for last
  std::deque<device_launch> queue_{};
  std::vector<executed_launch> finished_{};
  std::vector<device_event> events_{};
  std::uint64_t reports_ = 0;
  nanoseconds began_{};        // the launch that is running
  nanoseconds finished_at_{};  // the launch before it
  bool running_ = false;
  bool awaits_links_ = false;  // the head of the queue, to touch rows: no copy begins before it
  double rows_in_ = 0;         // of the launch that is running, in 10^9 bytes a second
  double rows_out_ = 0;
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
  explicit managed_blocks(gpu& device, bool keeps_home_copy = false)
      : memory_space({.keeps_home_copy = keeps_home_copy, .shortest_row = device.shortest_row()}, block_size,
                     device.places()),
        gpu_(device) {}

  [[nodiscard]] std::byte* base() const override { return nullptr; }
  [[nodiscard]] bytes capacity() const override { return block_size * gpu_.blocks(); }
  [[nodiscard]] bytes free_memory() const override { return block_size * gpu_.free_rooms(); }
  /// The driver copies whatever it moves.
  bool start(const transfer& t, std::uint64_t ticket) override {
    if (t.cleans()) {
      return false;
    }
    transfer did = t;
    did.then = !t.forgets() && t.from.is_device() ? afterwards::release : t.then;
    if (!t.forgets() && !t.copies()) {
      did.contents = payload::current;
      did.from = t.from == t.to ? location::host() : t.from;
      did.via = places().cheapest(did.from, did.to);
    }
    return gpu_.start(did, ticket);
  }
  bool advise(block_range range, advice hint, location) override {
    if (hint == advice::set_in_place || hint == advice::unset_in_place) {
      gpu_.set_in_place(range, hint == advice::set_in_place);
    }
    return true;
  }
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
  explicit blocks_with_home_copy(gpu& device) : managed_blocks(device, true) {}

  bool start(const transfer& t, std::uint64_t ticket) override { return device().start(t, ticket); }
};

}  // namespace deepum::replay
