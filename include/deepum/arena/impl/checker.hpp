#pragma once

#include <deepum/arena/checker.hpp>
#include <deepum/core/hash.hpp>
#include <deepum/separate.hpp>

#include <algorithm>
#include <cstring>
#include <exception>

namespace deepum {
inline namespace v0 {
namespace detail {

DEEPUM_SEPARATE launch_check::launch_check(arena_back& holder, launch_order& one_at_a_time,
                                           std::pair<launch_id, stream_id> admitted, device_queue& on,
                                           std::string_view launch_name, std::span<const named_operand> operands,
                                           std::vector<block_access> touched, bool complete, bool copies,
                                           std::span<const byte_interval> sliced)
    : turn(one_at_a_time),
      back_(holder),
      order_(one_at_a_time),
      interrupted_(outer()),
      queue_(on),
      name_(launch_name),
      operands_(operands.begin(), operands.end()),
      blocks_(std::move(touched)),
      access_(holder.memory(), blocks_, true),
      kept_(holder.engine(), admitted.first, admitted.second, blocks_) {
  try {
    order_.refuse_after_failure();  // of the launch that this one has interrupted
    if (!copies) {
      note_overwritten();
      if (complete) {
        note_other_slices(sliced);
        note_read();
      }
    }
  } catch (...) {
    restore();
    throw;
  }
}

DEEPUM_SEPARATE launch_check::~launch_check() {
  if (!ended_) {
    (void)settle();
    restore();
  }
}

DEEPUM_SEPARATE void launch_check::finish() {
  ended_ = true;
  std::optional<error> found = settle();
  if (!found && !interrupted_once_) {
    try {
      found = written_though_read();
      if (!found) {
        found = left_unwritten();
      }
    } catch (const error& e) {
      found = e;
    }
  }
  access_.end();
  if (found) {
    throw error(*found);
  }
}

DEEPUM_SEPARATE void launch_check::pause() {
  interrupted_once_ = true;
  (void)settle();
  access_.end();
}

DEEPUM_SEPARATE void launch_check::go_on() { access_.begin(); }

DEEPUM_SEPARATE std::optional<error> launch_check::settle() noexcept {
  try {
    queue_.synchronize();
  } catch (const error& e) {
    order_.accuse("launch '" + name_ + "' failed when it ran alone" +
                  (!back_.faults() ? ", with access to what it declares and nothing else: " : ": ") + e.what());
    return error(status::device_failure, order_.accusation(), e.api(), e.native_code());
  } catch (...) {
    order_.accuse("launch '" + name_ + "' failed when it ran alone");
    return error(status::device_failure, order_.accusation());
  }
  return std::nullopt;
}

DEEPUM_SEPARATE std::vector<byte_interval> launch_check::intervals(bool (*wanted)(access)) const {
  std::vector<byte_interval> found;
  for (const named_operand& o : operands_) {
    if (wanted(o.mode)) {
      found.push_back(interval_of(o.where.span));
    }
  }
  return found;
}

// --- what is only read -----------------------------------------------------------------------------------------------

DEEPUM_SEPARATE void launch_check::note_read() {
  const std::vector<byte_interval> written = intervals([](access how) { return how != access::read; });
  for (std::size_t i = 0; i < operands_.size(); ++i) {
    if (operands_[i].mode == access::read) {
      for (const byte_interval& w : without(interval_of(operands_[i].where.span), written)) {
        watched_.push_back({w, i, sums_of(w)});
      }
    }
  }
  if (!back_.faults()) {
    const std::vector<byte_interval> named = intervals([](access) { return true; });
    const std::uint64_t block = back_.block().count;
    for (const block_access& a : blocks_) {
      const bool only_read = std::none_of(blocks_.begin(), blocks_.end(), [&](const block_access& opened) {
        return opened.mode != access::read && opened.range.overlaps(a.range);
      });
      if (a.mode == access::read && only_read) {
        for (const byte_interval& w : without({a.range.begin_value() * block, a.range.end_value() * block}, named)) {
          watched_.push_back({w, none, sums_of(w)});
        }
      }
    }
  }
}

DEEPUM_SEPARATE void launch_check::note_other_slices(std::span<const byte_interval> sliced) {
  const std::vector<byte_interval> own = intervals([](access) { return true; });
  const std::uint64_t block = back_.block().count;
  for (const byte_interval& operand_there : sliced) {
    for (const byte_interval& other : without(operand_there, own)) {
      if (back_.faults()) {
        watched_.push_back({other, another_slice, sums_of(other)});
        continue;
      }
      for (const block_access& a : blocks_) {
        const byte_interval there{std::max(other.begin, a.range.begin_value() * block),
                                  std::min(other.end, a.range.end_value() * block)};
        if (there.begin < there.end) {
          watched_.push_back({there, another_slice, sums_of(there)});
        }
      }
    }
  }
}

DEEPUM_SEPARATE std::optional<error> launch_check::written_though_read() {
  for (const watched& w : watched_) {
    const std::vector<std::uint64_t> now = sums_of(w.where);
    const auto changed = std::mismatch(w.sums.begin(), w.sums.end(), now.begin()).first;
    if (changed == w.sums.end()) {
      continue;
    }
    const std::uint64_t from =
        w.where.begin + static_cast<std::uint64_t>(changed - w.sums.begin()) * std::uint64_t{summed};
    const byte_interval where{from, std::min<std::uint64_t>(w.where.end, from + summed)};
    if (w.operand == another_slice) {
      return error(status::wrong_declaration,
                   "launch '" + name_ + "' wrote to elements that belong to another slice, between " +
                       address(where.begin) + " and " + address(where.end) +
                       ": correct how many elements of the operand each thread block has (by_x, by_y, by_z, by_slice), "
                       "or declare everywhere(updates(p, n))");
    }
    return error(status::wrong_declaration,
                 "launch '" + name_ + "' wrote " +
                     (w.operand != none ? "to " + text_of(w.operand) + ", in " + text_of(where, w.operand)
                                        : "beside its operands, between " + address(where.begin) + " and " +
                                              address(where.end) + ", in a block of which it declares to read only") +
                     ": declare updates(p, n) for what it writes, or overwrites(p, n) where it writes all of it");
  }
  return std::nullopt;
}

DEEPUM_SEPARATE std::vector<std::uint64_t> launch_check::sums_of(byte_interval where) {
  std::vector<std::uint64_t> sums;
  for_each_piece(where, [&](std::uint64_t /*at*/, std::span<const std::byte> bytes_there) {
    for (std::size_t at = 0; at < bytes_there.size(); at += summed) {
      const std::size_t length_there = std::min(summed, bytes_there.size() - at);
      sums.push_back(absorb_bytes(hash_key_c, length_there, bytes_there.data() + at, length_there));
    }
  });
  return sums;
}

// --- what is overwritten ---------------------------------------------------------------------------------------------

DEEPUM_SEPARATE void launch_check::note_overwritten() {
  const std::vector<byte_interval> kept = intervals([](access how) { return how != access::overwrite; });
  for (std::size_t i = 0; i < operands_.size(); ++i) {
    if (operands_[i].mode == access::overwrite) {
      for (const byte_interval& w : without(interval_of(operands_[i].where.span), kept)) {
        overwritten_.push_back({w, i, {}});
        overwritten& o = overwritten_.back();
        o.before.reserve(w.end - w.begin);
        for_each_piece(w, [&](std::uint64_t /*at*/, std::span<const std::byte> bytes_there) {
          o.before.insert(o.before.end(), bytes_there.begin(), bytes_there.end());
        });
      }
    }
  }
  for (const overwritten& o : overwritten_) {
    std::vector<std::byte> marks(std::min<std::uint64_t>(piece, o.where.end - o.where.begin));
    for (std::uint64_t at = o.where.begin; at < o.where.end; at += marks.size()) {
      const std::size_t n = std::min<std::uint64_t>(marks.size(), o.where.end - at);
      for (std::size_t i = 0; i < n; ++i) {
        marks[i] = std::byte{static_cast<unsigned char>(mark >> ((at + i) % sizeof mark * 8))};
      }
      queue_.copy(here(at), marks.data(), n);
    }
  }
  queue_.synchronize();
}

DEEPUM_SEPARATE void launch_check::restore() noexcept {
  try {
    for (const overwritten& o : overwritten_) {
      if (o.before.size() == o.where.end - o.where.begin) {
        queue_.copy(here(o.where.begin), o.before.data(), o.before.size());
      }
    }
  } catch (...) {  // NOLINT(bugprone-empty-catch): the device is broken, and says so
  }
  (void)settle();
}

DEEPUM_SEPARATE std::optional<error> launch_check::left_unwritten() {
  for (const overwritten& o : overwritten_) {
    if (operands_[o.operand].scratch) {
      continue;
    }
    const std::uint64_t first = (o.where.begin + sizeof mark - 1) / sizeof mark * sizeof mark;
    const std::uint64_t last = o.where.end / sizeof mark * sizeof mark - sizeof mark;
    byte_interval run{};
    std::optional<byte_interval> found;
    const auto end_run = [&] {
      if (!found && run.begin != run.end &&
          (run.end - run.begin > sizeof mark || run.begin == first || run.begin == last)) {
        found = run;
      }
    };
    for_each_piece({first, std::max(first, o.where.end / sizeof mark * sizeof mark)},
                   [&](std::uint64_t at, std::span<const std::byte> bytes_there) {
                     for (std::size_t from_here = 0; from_here < bytes_there.size(); from_here += sizeof mark) {
                       std::uint32_t four_bytes = 0;
                       std::memcpy(&four_bytes, bytes_there.data() + from_here, sizeof four_bytes);
                       if (four_bytes == mark && run.end == at + from_here) {
                         run.end += sizeof mark;
                       } else if (four_bytes == mark) {
                         end_run();
                         run = {at + from_here, at + from_here + sizeof mark};
                       }
                     }
                   });
    end_run();
    if (found) {
      return error(status::wrong_declaration,
                   "launch '" + name_ + "' did not write all of " + text_of(o.operand) + ": it left out " +
                       text_of(*found, o.operand) +
                       ", so that what was there is lost; declare overwrites(p, n) of what it writes, or "
                       "updates(p, n)");
    }
  }
  return std::nullopt;
}

// --------------------------------------------------------------------------------------------------------------------

DEEPUM_SEPARATE void launch_check::for_each_piece(byte_interval where, const visitor& visit) {
  std::vector<std::byte> found(std::min<std::uint64_t>(piece, where.end - where.begin));
  for (std::uint64_t at = where.begin; at < where.end; at += found.size()) {
    const std::size_t n = std::min<std::uint64_t>(found.size(), where.end - at);
    queue_.copy(found.data(), here(at), n);
    queue_.synchronize();
    visit(at, std::span<const std::byte>(found.data(), n));
  }
}

DEEPUM_SEPARATE std::string launch_check::text_of(std::size_t i) const {
  const named_operand& o = operands_[i];
  const char* const how = o.mode == access::read ? "reads" : o.mode == access::overwrite ? "overwrites" : "updates";
  return "operand " + std::to_string(i + 1) + ", which it declares as " + how + " of " +
         std::to_string(o.where.span.size.count) + " bytes at " + address(o.where.span.offset.count);
}

DEEPUM_SEPARATE std::string launch_check::text_of(byte_interval part, std::size_t of) const {
  const std::uint64_t start = operands_[of].where.span.offset.count;
  return "its bytes from " + std::to_string(part.begin - start) + " to " + std::to_string(part.end - start);
}

DEEPUM_SEPARATE std::string launch_check::address(std::uint64_t offset) const {
  constexpr const char* digits = "0123456789abcdef";
  std::string s;
  for (auto a = reinterpret_cast<std::uintptr_t>(here(offset)); a != 0; a /= 16) {
    s.insert(s.begin(), digits[a % 16]);
  }
  return "0x" + s;
}

}  // namespace detail
}  // namespace v0
}  // namespace deepum
