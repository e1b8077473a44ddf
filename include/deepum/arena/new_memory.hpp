#pragma once

#include <deepum/arena/allocation_table.hpp>
#include <deepum/arena/checker.hpp>
#include <deepum/arena/unfilled_bytes.hpp>
#include <deepum/core/launch.hpp>
#include <deepum/core/signature.hpp>
#include <deepum/engine/memory_kind.hpp>
#include <deepum/error.hpp>
#include <deepum/units.hpp>

#include <algorithm>
#include <array>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

namespace deepum {
inline namespace v0 {
namespace detail {

/// Contents that were never written, in checked mode: four bytes that are no number in any floating-point format
/// of two, four or eight bytes, wherever an element begins, and an unlikely integer.
inline constexpr std::array<std::byte, 4> poison_pattern{std::byte{0xff}, std::byte{0x7f}, std::byte{0xff},
                                                         std::byte{0xff}};

/// Writes what new memory is filled with.
/// @param offset  Of the first byte, from the arena's base: the pattern is the same wherever a range begins.
inline void write_filling(std::byte* to, std::uint64_t offset, std::uint64_t n, filling with) {
  if (with == filling::zero) {
    std::memset(to, 0, n);
    return;
  }
  for (std::uint64_t i = 0; i < n; ++i) {
    to[i] = poison_pattern[(offset + i) % poison_pattern.size()];
  }
}

/// Fills memory whose contents were never written: with zeroes (`arena_options::zero_new`), or with a pattern that is
/// no number (`arena_options::checked`).
///
/// Managed memory is filled before `allocate` returns, because host and device may use it undeclared. Blocks that were
/// never handed out are zero already: the driver zeroes pages. Paged memory is filled before its first use, except
/// where that use overwrites it as a whole. Each user of unfilled memory waits for the fill (docs/adr/0009).
///
/// Threads: every call, any thread, none of them under the arena's lock.
template <class Arena>
class new_memory {
 public:
  using memory_type = typename Arena::memory_type;
  using range = unfilled_bytes::range;

  /// @param reads_as_zero  New memory reads as zero.
  /// @param one_at_a_time  In checked mode; else null. There new memory that is not to read as zero reads as poison,
  /// and
  ///                       so does what is given up.
  new_memory(Arena& holder, bool reads_as_zero, launch_order* one_at_a_time)
      : owner_(holder),
        fill_new_with_(reads_as_zero ? filling::zero : filling::poison),
        order_(one_at_a_time),
        handed_out_(static_cast<std::size_t>(holder.capacity() / holder.block())) {}
  ~new_memory() = default;
  new_memory(const new_memory&) = delete;
  new_memory& operator=(const new_memory&) = delete;

  /// The program is about to be given these bytes.
  /// @errors  Where memory faults, those of a launch.
  void allocated(byte_span bytes_of) {
    const range all{bytes_of.offset.count, (bytes_of.offset + bytes_of.size).count, fill_new_with_};
    if constexpr (lazy) {
      const std::lock_guard lock(mutex_);
      unfilled_.add(all);
    } else {
      for (const range& r : used_before(all)) {
        fill(r);
      }
    }
  }
  /// The program is about to give up what these bytes hold; nothing in flight uses them. Poisons them in checked mode.
  /// Never throws: what could not be poisoned was given up all the same.
  void given_up(byte_span bytes_of) noexcept {
    if (order_ == nullptr) {
      return;
    }
    try {
      if (!lazy && order_->within()) {
        return;  // what is being enqueued may still use it
      }
      const range all{bytes_of.offset.count, (bytes_of.offset + bytes_of.size).count, filling::poison};
      if constexpr (lazy) {
        const std::lock_guard lock(mutex_);
        unfilled_.add(all);
      } else {
        fill(all);
      }
    } catch (...) {  // NOLINT(bugprone-empty-catch): the next use of the device reports it
    }
  }
  /// An allocation is about to be given back.
  void freed(byte_span bytes_of) noexcept {
    given_up(bytes_of);
    const std::lock_guard lock(mutex_);
    (void)unfilled_.take(bytes_of.offset.count, (bytes_of.offset + bytes_of.size).count);  // it has no name any more
  }

  /// What need not be filled because a launch overwrites it. Has to be after all, unless it was `written` when this
  /// ends.
  class spared {
   public:
    spared() = default;
    spared(new_memory& holder, std::vector<range> ranges) : owner_(&holder), ranges_(std::move(ranges)) {}
    spared(spared&& other) noexcept : owner_(other.owner_), ranges_(std::exchange(other.ranges_, {})) {}
    spared& operator=(spared&& other) noexcept {
      owner_ = other.owner_;
      std::swap(ranges_, other.ranges_);
      return *this;
    }
    ~spared() { not_written(); }

    void written() { ranges_.clear(); }
    void not_written() {
      if (!ranges_.empty()) {
        give_back();
      }
    }

   private:
    [[gnu::noinline]] void give_back() { owner_->add(std::exchange(ranges_, {})); }

    new_memory* owner_ = nullptr;
    std::vector<range> ranges_{};
  };

  /// A launch is about to be submitted. All that it uses has been filled when this returns, but for what it overwrites.
  /// @param complete  It uses nothing else.
  /// @errors          Those of a launch.
  [[nodiscard]] spared before_launch(std::span<const named_operand> used, bool complete) {
    if constexpr (lazy) {
      std::vector<byte_span> read;
      for (const named_operand& o : used) {
        if (o.mode != access::overwrite) {
          read.push_back(o.where.span);
        }
      }
      spared overwritten(*this, take_overwritten(used, read));
      if (!complete) {
        read.assign(1, {bytes{}, owner_.capacity()});
      }
      for (const byte_span& r : read) {
        fill_all_of(r);
      }
      return overwritten;
    } else {
      return {};
    }
  }

  /// The host is about to use bytes, and not to overwrite them as a whole.
  /// @errors  Those of `arena::begin_host_access`.
  void before_host(byte_span bytes_of) {
    if constexpr (lazy) {
      fill_all_of(bytes_of, true);
    }
  }
  /// The host overwrites the bytes, and may begin to.
  /// @param found  Where it finds them.
  void host_overwrites(byte_span bytes_of, std::byte* found) {
    {
      const std::lock_guard lock(mutex_);
      (void)unfilled_.take(bytes_of.offset.count, (bytes_of.offset + bytes_of.size).count);
    }
    if (order_ != nullptr) {
      write_filling(found, bytes_of.offset.count, bytes_of.size.count, filling::poison);
    }
  }

 private:
  static constexpr bool lazy = paged_memory_kind<memory_type>;
  static constexpr bytes most_at_once = 4_MiB;  // of poison, which the host writes

  void add(const std::vector<range>& ranges) {
    const std::lock_guard lock(mutex_);
    for (const range& r : ranges) {
      unfilled_.add(r);
    }
  }
  /// What of the bytes has to be filled where that is done before they are handed out.
  std::vector<range> used_before(const range& all) {
    std::vector<range> found;
    const std::lock_guard lock(mutex_);
    const std::uint64_t block = owner_.block().count;
    for (std::uint64_t at = all.begin; at < all.end;) {
      const std::uint64_t end = std::min(all.end, (at / block + 1) * block);
      const bool zeroed = !handed_out_[at / block] && all.with == filling::zero;
      handed_out_[at / block] = true;
      if (!zeroed && !found.empty() && found.back().end == at) {
        found.back().end = end;
      } else if (!zeroed) {
        found.push_back({at, end, all.with});
      }
      at = end;
    }
    return found;
  }

  /// Takes out what a launch overwrites. @param except  What it reads as well stays in.
  std::vector<range> take_overwritten(std::span<const named_operand> used, std::span<const byte_span> except) {
    std::vector<range> taken;
    const std::lock_guard lock(mutex_);
    for (const named_operand& u : used) {
      if (u.mode == access::overwrite) {
        for (const range& r :
             unfilled_.take(u.where.span.offset.count, (u.where.span.offset + u.where.span.size).count)) {
          taken.push_back(r);
        }
      }
    }
    for (const byte_span& e : except) {
      for (std::size_t i = 0; i < taken.size(); ++i) {
        const range r = taken[i];
        const std::uint64_t begin = std::max(r.begin, e.offset.count);
        const std::uint64_t end = std::min(r.end, (e.offset + e.size).count);
        if (begin < end) {
          unfilled_.add({begin, end, r.with});
          taken[i] = {r.begin, begin, r.with};
          taken.push_back({end, r.end, r.with});
        }
      }
    }
    std::erase_if(taken, [](const range& part) { return part.begin >= part.end; });
    return taken;
  }

  /// Fills what has to be filled of these bytes, and waits for other threads that fill some of them.
  void fill_all_of(byte_span bytes_of, bool by_host = false) {
    const std::uint64_t begin = bytes_of.offset.count;
    const std::uint64_t end = (bytes_of.offset + bytes_of.size).count;
    std::vector<range> mine;
    {
      std::unique_lock lock(mutex_);
      filled_.wait(lock, [&] {
        return std::none_of(being_filled_.begin(), being_filled_.end(),
                            [&](const range& part) { return part.begin < end && begin < part.end; });
      });
      mine = unfilled_.take(begin, end);
      being_filled_.insert(being_filled_.end(), mine.begin(), mine.end());
    }
    for (std::size_t i = 0; i < mine.size(); ++i) {
      try {
        by_host ? fill_on_host(mine[i]) : fill(mine[i]);
      } catch (...) {
        for (; i < mine.size(); ++i) {
          end_fill(mine[i], false);
        }
        throw;
      }
      end_fill(mine[i], true);
    }
  }
  void end_fill(const range& r, bool done) {
    {
      const std::lock_guard lock(mutex_);
      being_filled_.erase(std::find(being_filled_.begin(), being_filled_.end(), r));
      if (!done) {
        unfilled_.add(r);
      }
    }
    filled_.notify_all();
  }

  void fill_on_host(const range& r) {
    const byte_span where{bytes{r.begin}, bytes{r.end - r.begin}};
    write_filling(owner_.bring_to_host(where, access::overwrite), r.begin, where.size.count, r.with);
    owner_.end_host_access(owner_.memory().base() + r.begin, where.size, access::overwrite);
  }

  /// What a fill is given to: one for each thread that fills at the same time.
  struct filler {
    explicit filler(Arena& holder) : owner(holder), queue(holder.memory()), stream(holder.engine().open_stream({})) {}
    ~filler() { owner.engine().close_stream(stream); }
    filler(const filler&) = delete;
    filler& operator=(const filler&) = delete;

    Arena& owner;
    typename memory_type::stream_type queue;
    stream_id stream;
  };

  /// By launches of its own, and waits for them.
  void fill(const range& r) {
    if (order_ != nullptr) {
      order_->refuse_after_failure();
    }
    [[maybe_unused]] const auto guard = outside_captures();
    std::unique_ptr<filler> by;
    {
      const std::lock_guard lock(mutex_);
      if (!idle_.empty()) {
        by = std::move(idle_.back());
        idle_.pop_back();
      }
    }
    if (!by) {
      by = std::make_unique<filler>(owner_);
    }
    // A part of the budget at a time, so that the rest of it need not leave; where memory never faults, it must not be
    // more than all of it.
    const bytes block = owner_.block();
    const bytes most = std::max(block, block * (owner_.budget() / (8 * block)));
    for (std::uint64_t at = r.begin; at < r.end; at += most.count) {
      launch_fill(*by, {at, std::min(r.end, at + most.count), r.with});
    }
    const std::lock_guard lock(mutex_);
    idle_.push_back(std::move(by));
  }
  void launch_fill(filler& by, const range& r) {
    const std::array<named_operand, 1> target{
        named_operand{{{bytes{r.begin}, bytes{r.end - r.begin}}}, access::overwrite, true}};
    launch_record record;
    record.stream = by.stream;
    record.name = r.with == filling::zero ? "zero_new" : "poison";
    signature_builder signature(record.name);
    signature.operand(r.begin, r.end - r.begin, access::overwrite);
    record.signature = signature.finish();
    owner_.declare(target, record.accesses);
    const std::vector<block_access> blocks = record.accesses;
    const std::string name = record.name;
    // Not through the arena: what was given up is poisoned, and not in use again by that.
    const launch_id id = owner_.engine().submit(std::move(record));
    owner_.await_admission(id, by.stream, name);
    bool written = false;
    const auto end = [&] {  // a launch that is known has to end, or it holds its memory for ever
      if (!written) {
        owner_.engine().abandon(id, by.stream);
      }
      by.queue.end(id);
    };
    try {
      if constexpr (requires { by.queue.order_after_arrival(blocks, true); }) {
        by.queue.order_after_arrival(blocks, true);
      }
    } catch (...) {
      by.queue.begin(id);
      end();
      throw;
    }
    std::optional<launch_order::turn> turn;
    if (order_ != nullptr) {
      turn.emplace(*order_);
    }
    const access_for access_to(owner_.memory(), blocks, order_ != nullptr);
    by.queue.begin(id);
    try {
      write(by.queue, r);
      written = true;
    } catch (...) {
      end();
      throw;
    }
    end();
    by.queue.synchronize();
  }
  void write(typename memory_type::stream_type& queue, const range& r) {
    std::byte* const to = owner_.memory().base() + r.begin;
    if (r.with == filling::zero) {
      queue.fill(to, 0, r.end - r.begin);
      return;
    }
    std::vector<std::byte> pattern(std::min(r.end - r.begin, most_at_once.count));
    write_filling(pattern.data(), r.begin, pattern.size(), r.with);  // pieces are multiples of it
    for (std::uint64_t at = r.begin; at < r.end; at += pattern.size()) {
      queue.copy(to + (at - r.begin), pattern.data(), std::min<std::uint64_t>(pattern.size(), r.end - at));
    }
  }

  static auto outside_captures() {
    if constexpr (requires { typename memory_type::capture_guard; }) {
      return typename memory_type::capture_guard();
    } else {
      return 0;
    }
  }

  Arena& owner_;
  const filling fill_new_with_;
  launch_order* const order_;

  std::mutex mutex_;  // what follows. Innermost
  std::vector<std::unique_ptr<filler>> idle_{};
  unfilled_bytes unfilled_{};
  std::vector<range> being_filled_{};
  std::condition_variable filled_{};
  std::vector<bool> handed_out_;  // blocks, where memory is filled before it is handed out
};

}  // namespace detail
}  // namespace v0
}  // namespace deepum
