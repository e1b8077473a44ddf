#pragma once

#include <deepum/arena/declaration.hpp>
#include <deepum/arena/launch_access.hpp>
#include <deepum/arena/new_memory.hpp>
#include <deepum/core/signature.hpp>
#include <deepum/separate.hpp>

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <string>

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

struct new_memory::filler {
  explicit filler(arena_back& of) : back(of), queue(of.queues().make()), stream(of.engine().open_stream({})) {}
  ~filler() { back.engine().close_stream(stream); }
  filler(const filler&) = delete;
  filler& operator=(const filler&) = delete;

  arena_back& back;
  std::unique_ptr<device_queue> queue;
  stream_id stream;
};

DEEPUM_SEPARATE new_memory::new_memory(arena_back& of, host_contents& on_host, bool reads_as_zero,
                                       launch_order* one_at_a_time)
    : back_(of),
      on_host_(on_host),
      fill_new_with_(reads_as_zero ? filling::zero : filling::poison),
      order_(one_at_a_time),
      lazy_(!of.faults()),
      handed_out_(static_cast<std::size_t>(of.memory().capacity() / of.block())) {}

DEEPUM_SEPARATE new_memory::~new_memory() = default;

inline constexpr bytes most_poisoned_at_once = 4_MiB;  // the host writes it

DEEPUM_SEPARATE void new_memory::allocated(byte_span bytes_of) {
  const range all{bytes_of.offset.count, (bytes_of.offset + bytes_of.size).count, fill_new_with_};
  if (lazy_) {
    const std::lock_guard lock(mutex_);
    unfilled_.add(all);
  } else {
    for (const range& r : used_before(all)) {
      fill(r);
    }
  }
}

DEEPUM_SEPARATE void new_memory::given_up(byte_span bytes_of) noexcept {
  if (order_ == nullptr) {
    return;
  }
  try {
    if (!lazy_ && order_->within()) {
      return;  // what is being enqueued may still use it
    }
    const range all{bytes_of.offset.count, (bytes_of.offset + bytes_of.size).count, filling::poison};
    if (lazy_) {
      const std::lock_guard lock(mutex_);
      unfilled_.add(all);
    } else {
      fill(all);
    }
  } catch (...) {  // NOLINT(bugprone-empty-catch): the next use of the device reports it
  }
}

DEEPUM_SEPARATE void new_memory::freed(byte_span bytes_of) noexcept {
  given_up(bytes_of);
  const std::lock_guard lock(mutex_);
  (void)unfilled_.take(bytes_of.offset.count, (bytes_of.offset + bytes_of.size).count);  // it has no name any more
}

DEEPUM_SEPARATE new_memory::spared new_memory::before_launch(std::span<const named_operand> used, bool complete) {
  if (lazy_) {
    std::vector<byte_span> read;
    for (const named_operand& o : used) {
      if (o.mode != access::overwrite) {
        read.push_back(o.where.span);
      }
    }
    spared overwritten(*this, take_overwritten(used, read));
    if (!complete) {
      read.assign(1, {bytes{}, back_.memory().capacity()});
    }
    for (const byte_span& r : read) {
      fill_all_of(r);
    }
    return overwritten;
  } else {
    return {};
  }
}

DEEPUM_SEPARATE void new_memory::before_host(byte_span bytes_of) {
  if (lazy_) {
    fill_all_of(bytes_of, true);
  }
}

DEEPUM_SEPARATE void new_memory::host_overwrites(byte_span bytes_of, std::byte* found) {
  {
    const std::lock_guard lock(mutex_);
    (void)unfilled_.take(bytes_of.offset.count, (bytes_of.offset + bytes_of.size).count);
  }
  if (order_ != nullptr) {
    write_filling(found, bytes_of.offset.count, bytes_of.size.count, filling::poison);
  }
}

DEEPUM_SEPARATE void new_memory::add(const std::vector<range>& ranges) {
  const std::lock_guard lock(mutex_);
  for (const range& r : ranges) {
    unfilled_.add(r);
  }
}

DEEPUM_SEPARATE std::vector<new_memory::range> new_memory::used_before(const range& all) {
  std::vector<range> found;
  const std::lock_guard lock(mutex_);
  const std::uint64_t block = back_.block().count;
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

DEEPUM_SEPARATE std::vector<new_memory::range> new_memory::take_overwritten(std::span<const named_operand> used,
                                                                            std::span<const byte_span> except) {
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

DEEPUM_SEPARATE void new_memory::fill_all_of(byte_span bytes_of, bool by_host) {
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

DEEPUM_SEPARATE void new_memory::end_fill(const range& r, bool done) {
  {
    const std::lock_guard lock(mutex_);
    being_filled_.erase(std::find(being_filled_.begin(), being_filled_.end(), r));
    if (!done) {
      unfilled_.add(r);
    }
  }
  filled_.notify_all();
}

DEEPUM_SEPARATE void new_memory::fill_on_host(const range& r) {
  const byte_span where{bytes{r.begin}, bytes{r.end - r.begin}};
  write_filling(on_host_.bring(where, access::overwrite), r.begin, where.size.count, r.with);
  on_host_.give_back(where, access::overwrite);
}

DEEPUM_SEPARATE void new_memory::fill(const range& r) {
  if (order_ != nullptr) {
    order_->refuse_after_failure();
  }
  [[maybe_unused]] const auto guard = back_.queues().outside_captures();
  std::unique_ptr<filler> by;
  {
    const std::lock_guard lock(mutex_);
    if (!idle_.empty()) {
      by = std::move(idle_.back());
      idle_.pop_back();
    }
  }
  if (!by) {
    by = std::make_unique<filler>(back_);
  }
  // A part of the budget at a time, so that the rest of it need not leave; where memory never faults, it must not be
  // more than all of it.
  const bytes most = back_.most_at_once();
  for (std::uint64_t at = r.begin; at < r.end; at += most.count) {
    launch_fill(*by, {at, std::min(r.end, at + most.count), r.with});
  }
  const std::lock_guard lock(mutex_);
  idle_.push_back(std::move(by));
}

DEEPUM_SEPARATE void new_memory::launch_fill(filler& by, const range& r) {
  const std::array<named_operand, 1> target{
      named_operand{{{bytes{r.begin}, bytes{r.end - r.begin}}}, access::overwrite, true}};
  launch_record record;
  record.stream = by.stream;
  record.name = r.with == filling::zero ? "zero_new" : "poison";
  signature_builder signature(record.name);
  signature.operand(r.begin, r.end - r.begin, access::overwrite);
  record.signature = signature.finish();
  blocks_of(target, back_.grid(), record.accesses);
  const std::vector<block_access> blocks = record.accesses;
  const std::string name = record.name;
  // Not through the arena: what was given up is poisoned, and not in use again by that.
  const launch_id id = back_.engine().submit(std::move(record));
  back_.await_admission(id, by.stream, name);
  bool written = false;
  const auto end = [&] {  // a launch that is known has to end, or it holds its memory for ever
    if (!written) {
      back_.engine().abandon(id, by.stream);
    }
    by.queue->end(id);
  };
  try {
    by.queue->order_after_arrival(blocks, true);
  } catch (...) {
    by.queue->begin(id);
    end();
    throw;
  }
  std::optional<launch_order::turn> turn;
  if (order_ != nullptr) {
    turn.emplace(*order_);
  }
  const access_for access_to(back_.memory(), blocks, order_ != nullptr);
  by.queue->begin(id);
  try {
    write(*by.queue, r);
    written = true;
  } catch (...) {
    end();
    throw;
  }
  end();
  by.queue->synchronize();
}

DEEPUM_SEPARATE void new_memory::write(device_queue& queue, const range& r) {
  std::byte* const to = back_.memory().base() + r.begin;
  if (r.with == filling::zero) {
    queue.fill(to, 0, r.end - r.begin);
    return;
  }
  std::vector<std::byte> pattern(std::min(r.end - r.begin, most_poisoned_at_once.count));
  write_filling(pattern.data(), r.begin, pattern.size(), r.with);  // pieces are multiples of it
  for (std::uint64_t at = r.begin; at < r.end; at += pattern.size()) {
    queue.copy(to + (at - r.begin), pattern.data(), std::min<std::uint64_t>(pattern.size(), r.end - at));
  }
}

}  // namespace detail
}  // namespace v0
}  // namespace deepum
