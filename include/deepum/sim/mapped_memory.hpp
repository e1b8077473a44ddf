#pragma once

#include <deepum/core/block.hpp>
#include <deepum/core/launch.hpp>
#include <deepum/core/location.hpp>
#include <deepum/engine/memory_kind.hpp>
#include <deepum/error.hpp>
#include <deepum/sim/address_space.hpp>
#include <deepum/sim/device.hpp>
#include <deepum/sim/driver.hpp>
#include <deepum/sim/link.hpp>
#include <deepum/sim/profile.hpp>
#include <deepum/units.hpp>

#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace deepum {
inline namespace v0 {
namespace sim {

class stream;
class event;

/// Memory whose blocks the program maps and copies itself, as with the CUDA virtual memory management calls: no page
/// faults, and nothing moves by itself.
///
/// Host and device copies are two things here. A block that was mapped, but not copied in, reads as poison on the
/// device; one that is unmapped or dropped without `copy_out` has lost what the device wrote, and the older contents of
/// the host come back. An operation that touches an unmapped block fails, and with it the device (`stream::synchronize`
/// throws). The range that everybody sees holds the device's copy where it differs.
///
/// Of an arena it is a `faultless_memory_kind`.
class mapped_memory : private address_space {
 public:
  using device_type = device;
  using stream_type = stream;
  using event_type = event;

  static constexpr bool faultless = true;
  static constexpr std::uint32_t commands_in_flight = 16;
  static constexpr bytes bytes_in_flight{std::uint64_t{128} << 20};

  /// @param capacity  Length of the address range, whole blocks.
  /// @errors  `status::invalid_argument`, `status::out_of_host_memory`.
  mapped_memory(device& owner, bytes capacity)
      : address_space(owner.loop(), capacity, owner.options().worker, owner.properties().worker_wake_up,
                      owner.options().delay_seed),
        owner_(owner),
        blocks_(capacity / block_size) {
    const auto lock = loop().lock();
    owner_.operations().add(*this);
  }
  ~mapped_memory() override {
    detach();
    event_loop::host_call call(loop());
    call.wait([&] { return copies_ == 0; });
    for (block& b : blocks_) {
      if (b.mapped) {
        owner_.memory_driver().give_room();
      }
    }
    owner_.operations().remove(*this);
  }

  [[nodiscard]] device& owner() const { return owner_; }
  using address_space::attach;
  using address_space::base;
  using address_space::capacity;
  using address_space::contains;
  using address_space::detach;
  using address_space::notify;
  using address_space::now;
  using address_space::place;
  using address_space::poll;

  /// Device memory that is free, whole blocks. Threads: any.
  [[nodiscard]] bytes free_memory() const {
    const auto lock = loop().lock();
    return block_size * owner_.memory_driver().free_rooms();
  }

  /// @name Commands of an engine
  /// See `faultless_memory_kind`. Only queued, also when they are called from the pump.
  /// @{
  bool prefetch(block_range range, std::uint64_t ticket) {
    const auto lock = loop().lock();
    if (give_memory(range, ticket)) {
      queue_copy(in_, range, ticket, false);
    }
    return true;
  }
  bool populate(block_range range, std::uint64_t ticket) {
    const auto lock = loop().lock();
    if (give_memory(range, ticket)) {
      report(device_event::kind::arrived, range, ticket);
      report(device_event::kind::completed, range, ticket);
    }
    return true;
  }
  bool evict(block_range range, std::uint64_t ticket) {
    const auto lock = loop().lock();
    queue_copy(out_, range, ticket, true);
    return true;
  }
  bool clean(block_range range, std::uint64_t ticket) {
    const auto lock = loop().lock();
    queue_copy(out_, range, ticket, false);
    return true;
  }
  bool drop(block_range range, std::uint64_t ticket) {
    const auto lock = loop().lock();
    take_memory(range);
    report(device_event::kind::departed, range, ticket);
    report(device_event::kind::completed, range, ticket);
    return true;
  }
  /// What is not on the device has nothing to give up: the host's memory costs nothing here.
  bool discard(block_range range, std::uint64_t ticket) {
    const auto lock = loop().lock();
    for (std::uint32_t b = range.begin_value(); b < range.end_value(); ++b) {
      if (at(block_id{b}).mapped) {
        take_memory({block_id{b}, 1});
      }
    }
    report(device_event::kind::completed, range, ticket);
    return true;
  }
  /// No driver takes advice here.
  static bool advise(block_range, advice, location) { return true; }
  static void set_limit(std::uint64_t /*blocks*/) {}
  static void outdated(block_range) {}
  [[nodiscard]] std::byte* host_address(bytes offset, bytes /*size*/) const { return base() + offset.count; }
  [[nodiscard]] std::string last_failure() const {
    const auto lock = loop().lock();
    return last_failure_;
  }
  [[nodiscard]] static bool host_is_full() { return false; }
  /// @}

  /// Gives device memory to blocks that have none. The caller is blocked meanwhile.
  /// @errors  `status::out_of_device_memory`; then none of the blocks is mapped.
  void map(block_range range) {
    event_loop::host_call call(loop());
    call.spend(owner_.properties().map_call);
    driver& rooms = owner_.memory_driver();
    std::uint32_t got = 0;
    for (std::uint32_t b = range.begin_value(); b < range.end_value(); ++b) {
      expects(!at(block_id{b}).mapped, "a block is mapped that is mapped already");
      bool again = true;
      driver::room answer = driver::room::later;
      while (answer == driver::room::later) {
        call.wait([&] { return again; });
        again = false;
        answer = rooms.take_room(urgency::command, [&again] { again = true; });
      }
      if (answer == driver::room::refused) {
        for (; got > 0; --got) {
          rooms.give_room();
        }
        throw error(status::out_of_device_memory, "no device memory to map " + std::to_string(range.count) +
                                                      " blocks; " + std::to_string(rooms.free_rooms()) + " are free");
      }
      ++got;
    }
    for (std::uint32_t b = range.begin_value(); b < range.end_value(); ++b) {
      at(block_id{b}).mapped = true;
      at(block_id{b}).copy = state::garbage;
    }
  }

  /// Takes the device memory away, and with it what was not copied out. The caller is blocked until copies of the
  /// blocks have ended. An operation that touches one of them and is executing fails.
  void unmap(block_range range) {
    event_loop::host_call call(loop());
    for (std::uint32_t b = range.begin_value(); b < range.end_value(); ++b) {
      expects(at(block_id{b}).mapped, "a block is unmapped that is not mapped");
      call.wait([&] { return at(block_id{b}).copies == 0; });
    }
    call.spend(owner_.properties().map_call);
    take_memory(range);
  }

  /// Forgets the device's copy; the blocks stay mapped. The host's contents come back.
  void drop(block_range range) {
    event_loop::host_call call(loop());
    for (std::uint32_t b = range.begin_value(); b < range.end_value(); ++b) {
      expects(at(block_id{b}).mapped, "a block is dropped that is not mapped");
      call.wait([&] { return at(block_id{b}).copies == 0; });
      give_up(block_id{b});
    }
  }

  /// Copies the host's contents to the device. Only queued; reports arrived for each block, then completed.
  void copy_in(block_range range, std::uint64_t ticket) { submit(in_, range, ticket); }
  /// Copies the device's contents to the host; the device keeps its copy ("clean"). Only queued; reports completed.
  void copy_out(block_range range, std::uint64_t ticket) { submit(out_, range, ticket); }

  /// For the streams of the simulator.
  [[nodiscard]] address_space& space() { return *this; }

 private:
  /// What the device's copy is; it is the one that everybody sees where it differs from the host's.
  enum class state : std::uint8_t {
    garbage,  ///< the device has none; the host's is seen
    same,
    newer,  ///< differs, the host's copy is kept beside it
  };
  struct block {
    bool mapped = false;
    state copy = state::garbage;
    std::uint32_t copies = 0;  ///< copies that are queued or under way
    std::uint64_t writes = 0;  ///< by the device
  };
  struct queued_copy {
    block_range range{};
    std::uint64_t ticket = 0;
    std::uint32_t done = 0;
    bool leaves = false;  ///< the device gives the blocks up when they have been copied
  };
  using queue = std::deque<queued_copy>;

  [[nodiscard]] block& at(block_id b) {
    expects(b.value < blocks_.size(), "a block outside the arena");
    return blocks_[b.value];
  }
  [[nodiscard]] std::string unmapped(block_id b) const { return "block " + std::to_string(b.value) + " is not mapped"; }

  // ---- what operations find ---------------------------------------------------------------------------------------

  [[nodiscard]] touch_result touch(const segment& s) override {
    return at(s.block).mapped ? touch_result::ready : touch_result::refused;
  }
  [[nodiscard]] std::string refusal(const segment& s) const override { return unmapped(s.block); }
  void before_body(const segment& s) override {
    block& b = at(s.block);
    if (b.copy == state::garbage) {
      data().keep_older(s.block);
      data().poison(s.block);
      b.copy = state::newer;
    } else if (b.copy == state::same && s.mode != access::read) {
      data().keep_older(s.block);
      b.copy = state::newer;
    }
  }
  void after_body(const segment& s) override {
    if (s.mode != access::read) {
      ++at(s.block).writes;
    }
  }
  void give_up(block_id b) {
    if (at(b).copy == state::newer) {
      data().restore_older(b);
    }
    at(b).copy = state::garbage;
  }

  // ---- copies -----------------------------------------------------------------------------------------------------

  void submit(queue& q, block_range range, std::uint64_t ticket) {
    const auto lock = loop().lock();
    queue_copy(q, range, ticket, false);
  }
  void queue_copy(queue& q, block_range range, std::uint64_t ticket, bool leaves) {
    expects(!range.empty(), "a copy of no blocks");
    for (std::uint32_t b = range.begin_value(); b < range.end_value(); ++b) {
      expects(at(block_id{b}).mapped, "a block is copied that is not mapped");
      ++at(block_id{b}).copies;
      ++copies_;
    }
    q.push_back({.range = range, .ticket = ticket, .leaves = leaves});
    if (q.size() == 1) {
      next(q);
    }
  }
  void next(queue& q) {
    if (q.empty()) {
      return;
    }
    const block_id b{q.front().range.first.value + q.front().done};
    const bool inward = &q == &in_;
    driver& d = owner_.memory_driver();
    link& used = inward ? d.in() : d.out();
    link& other = inward ? d.out() : d.in();
    const std::uint64_t writes = at(b).writes;
    used.submit(
        urgency::command,
        [this, &other] {
          const profile& p = owner_.properties();
          return time_at(block_size, other.busy() ? p.pinned_both : p.pinned);
        },
        [this, &q, b, inward, writes] {
          if (inward) {
            finish_in(b, q.front().ticket);
          } else {
            finish_out(b, writes);
          }
          --at(b).copies;
          --copies_;
          end_block(q);
        });
  }
  void finish_in(block_id b, std::uint64_t ticket) {
    owner_.memory_driver().counters().in_by_command += block_size;
    give_up(b);
    at(b).copy = state::same;
    device_event e;
    e.what = device_event::kind::arrived;
    e.why = reason::predicted;
    e.range = {b, 1};
    e.ticket = ticket;
    e.host_copy_stays = true;
    emit(e);
  }
  void finish_out(block_id b, std::uint64_t writes_at_start) {
    owner_.memory_driver().counters().out_by_command += block_size;
    block& copied = at(b);
    if (copied.writes != writes_at_start) {
      return;  // written meanwhile: nobody knows which bytes the host got
    }
    if (copied.copy == state::garbage) {
      data().poison(b);
    } else if (copied.copy == state::newer) {
      data().forget_older(b);
    }
    copied.copy = state::same;
  }
  void end_block(queue& q) {
    if (++q.front().done == q.front().range.count) {
      const queued_copy ended = q.front();
      q.pop_front();
      if (ended.leaves) {
        take_memory(ended.range);
        report(device_event::kind::departed, ended.range, ended.ticket);
      }
      report(device_event::kind::completed, ended.range, ended.ticket);
    }
    next(q);
  }

  // ---- commands of an engine --------------------------------------------------------------------------------------

  void report(device_event::kind what, block_range range, std::uint64_t ticket) {
    emit({.what = what, .why = reason::predicted, .range = range, .ticket = ticket});
  }
  /// All of it or nothing; then the command has failed.
  bool give_memory(block_range range, std::uint64_t ticket) {
    driver& rooms = owner_.memory_driver();
    if (rooms.free_rooms() < range.count) {
      last_failure_ = "no device memory to map " + std::to_string(range.count) + " blocks; " +
                      std::to_string(rooms.free_rooms()) + " are free";
      report(device_event::kind::failed, range, ticket);
      return false;
    }
    for (std::uint32_t b = range.begin_value(); b < range.end_value(); ++b) {
      expects(!at(block_id{b}).mapped, "a block is mapped that is mapped already");
      (void)rooms.take_room(urgency::command, {});
      at(block_id{b}).mapped = true;
      at(block_id{b}).copy = state::garbage;
    }
    return true;
  }
  void take_memory(block_range range) {
    for (std::uint32_t b = range.begin_value(); b < range.end_value(); ++b) {
      expects(at(block_id{b}).mapped, "a block is unmapped that is not mapped");
      expects(at(block_id{b}).copies == 0, "a block is unmapped that is being copied");
      give_up(block_id{b});
      at(block_id{b}).mapped = false;
      owner_.memory_driver().give_room();
      if (const walk* user = owner_.memory_driver().active_with(*this, block_id{b})) {
        owner_.operations().fail(status::invalid_argument, unmapped(block_id{b}) + " any more, while kernel '" +
                                                               user->name + "' (launch " +
                                                               std::to_string(user->launch) + ") uses it");
      }
    }
  }

  device& owner_;
  std::vector<block> blocks_;
  std::uint32_t copies_ = 0;
  std::string last_failure_{};
  queue in_;
  queue out_;
};

}  // namespace sim
}  // namespace v0
}  // namespace deepum
