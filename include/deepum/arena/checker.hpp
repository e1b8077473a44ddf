#pragma once

#include <deepum/arena/allocation_table.hpp>
#include <deepum/arena/unfilled_bytes.hpp>
#include <deepum/core/block.hpp>
#include <deepum/core/hash.hpp>
#include <deepum/core/launch.hpp>
#include <deepum/engine/engine.hpp>
#include <deepum/engine/memory_kind.hpp>
#include <deepum/engine/memory_space.hpp>
#include <deepum/error.hpp>
#include <deepum/units.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace deepum {
inline namespace v0 {
namespace detail {

/// Bytes of an arena, from the first to before the last, counted from its base.
struct byte_interval {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

/// What is left of a range without others.
[[nodiscard]] inline std::vector<byte_interval> without(byte_interval all, std::vector<byte_interval> others) {
  std::sort(others.begin(), others.end(), [](byte_interval a, byte_interval b) { return a.begin < b.begin; });
  std::vector<byte_interval> left;
  for (const byte_interval& o : others) {
    if (o.end <= all.begin) {
      continue;
    }
    if (o.begin >= all.end) {
      break;
    }
    if (o.begin > all.begin) {
      left.push_back({all.begin, o.begin});
    }
    all.begin = o.end;
  }
  if (all.begin < all.end) {
    left.push_back(all);
  }
  return left;
}
[[nodiscard]] inline byte_interval interval_of(const byte_span& s) {
  return {s.offset.count, (s.offset + s.size).count};
}

/// The order in which launches of an arena run in checked mode: one at a time, each between two looks at its operands
/// (`launch_check`). One that is made within another, in the body of `stream::call`, interrupts that.
///
/// Threads: every call, any thread.
class launch_order {
 public:
  /// A launch whose turn it is.
  class turn {
   public:
    /// Waits for it.
    explicit turn(launch_order& of) : order_(of) {
      order_.mutex_.lock();
      outer_ = std::exchange(order_.current_, this);
    }
    virtual ~turn() {
      order_.current_ = outer_;
      order_.mutex_.unlock();
    }
    turn(const turn&) = delete;
    turn& operator=(const turn&) = delete;

   protected:
    [[nodiscard]] turn* outer() const { return outer_; }

   private:
    friend class launch_order;
    friend class interruption;
    /// Waits for what was enqueued; from then on it may touch nothing.
    virtual void pause() {}
    virtual void go_on() {}

    launch_order& order_;
    turn* outer_ = nullptr;
  };
  /// The launch around another one, for as long as that lives.
  class interruption {
   public:
    explicit interruption(turn* outer) : outer_(outer) {
      if (outer_ != nullptr) {
        outer_->pause();
      }
    }
    ~interruption() { end(); }
    interruption(const interruption&) = delete;
    interruption& operator=(const interruption&) = delete;

    void end() {
      if (turn* const outer = std::exchange(outer_, nullptr)) {
        outer->go_on();
      }
    }

   private:
    turn* outer_;
  };

  /// Whether the calling thread is within a launch.
  [[nodiscard]] bool within() {
    const std::unique_lock lock(mutex_, std::try_to_lock);
    return lock.owns_lock() && current_ != nullptr;
  }

  /// A launch has broken the device. The first one counts.
  void accuse(const std::string& what) {
    const std::lock_guard lock(accusation_mutex_);
    if (accusation_.empty()) {
      accusation_ = what;
    }
  }
  /// What broke the device, for people; empty: nothing did.
  [[nodiscard]] std::string accusation() const {
    const std::lock_guard lock(accusation_mutex_);
    return accusation_;
  }
  /// Nothing can be launched any more behind a launch that broke the device.
  /// @errors  `status::device_failure`, which names it.
  void refuse_after_failure() const {
    if (const std::string accused = accusation(); !accused.empty()) {
      throw error(status::device_failure, accused);
    }
  }

 private:
  std::recursive_mutex mutex_;
  turn* current_ = nullptr;  // of its holder
  mutable std::mutex accusation_mutex_;
  std::string accusation_{};
};

/// For as long as it lives, launches find these blocks. They find them anyway out of checked mode, and where memory is
/// not guarded.
class access_for {
 public:
  /// @param checked  Whether the arena is in checked mode.
  access_for(memory_space& space, std::vector<block_access> wanted, bool checked)
      : memory_(checked ? &space : nullptr),
        blocks_(std::move(wanted)) {
    begin();
  }
  ~access_for() { end(); }
  access_for(const access_for&) = delete;
  access_for& operator=(const access_for&) = delete;

  void begin() {
    if (memory_ != nullptr && !std::exchange(there_, true)) {
      memory_->let_in(blocks_);
    }
  }
  void end() {
    if (std::exchange(there_, false)) {
      memory_->keep_out(blocks_);
    }
  }

 private:
  memory_space* memory_;
  std::vector<block_access> blocks_;
  bool there_ = false;
};

/// For as long as it lives, the blocks of a launch that was admitted stay on the device, also when it has finished.
class kept_on_device {
 public:
  /// @param pager  Outlives it. So do the blocks.
  kept_on_device(engine& pager, launch_id of, stream_id on, std::span<const block_access> touched)
      : engine_(pager),
        id_(of),
        blocks_(touched) {
    engine_.keep(id_, on, blocks_);
  }
  ~kept_on_device() { engine_.let_go(id_, blocks_); }
  kept_on_device(const kept_on_device&) = delete;
  kept_on_device& operator=(const kept_on_device&) = delete;

 private:
  engine& engine_;
  launch_id id_;
  std::span<const block_access> blocks_;
};

/// One launch in checked mode (`arena_options::checked`): from when its memory is there until it has run.
///
/// Operands that it only reads are summed up before and after. Operands that it overwrites are made unrecognisable
/// before, and must not be found so after. Where memory never faults, the blocks that it only reads are summed up as a
/// whole, because what is written there beside its operands would be lost; and it gets access to the blocks that it
/// declares and to no others (`memory_space::guard`).
///
/// A launch that was made within it, in the body of `stream::call`, is checked by itself; the outer one then is not.
template <class Arena>
class launch_check : private launch_order::turn {
 public:
  using memory_type = typename Arena::memory_type;
  using stream_type = typename memory_type::stream_type;

  /// Waits for its turn.
  /// @param admitted  The launch.
  /// @param on        Where it is going to be. Outlives this.
  /// @param touched   That it may touch.
  /// @param complete  It touches nothing else, so that what it reads is not reached in another way.
  /// @param copies    It is the library's own copy or fill, which does what it says.
  /// @errors          Those of the device. Then nothing has changed.
  launch_check(Arena& holder, launch_order& one_at_a_time, std::pair<launch_id, stream_id> admitted, stream_type& on,
               std::string_view launch_name, std::span<const named_operand> operands, std::vector<block_access> touched,
               bool complete, bool copies)
      : turn(one_at_a_time),
        owner_(holder),
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
          note_read();
        }
      }
    } catch (...) {
      restore();
      throw;
    }
  }
  ~launch_check() override {
    if (!ended_) {
      (void)settle();
      restore();
    }
  }
  launch_check(const launch_check&) = delete;
  launch_check& operator=(const launch_check&) = delete;

  /// All of it was given to the device. Waits until it has run.
  /// @errors  `status::wrong_declaration` where it did what it does not declare; `status::device_failure`, with its
  ///          name, where it failed.
  void finish() {
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

 private:
  static constexpr bool guarded = paged_memory_kind<memory_type>;
  static constexpr std::size_t piece = std::size_t{1} << 20;   // of what is read back at a time
  static constexpr std::size_t summed = std::size_t{1} << 16;  // bytes for each sum
  /// What is to be overwritten, before: no number in any floating-point format, and not what new memory is filled with,
  /// which a launch may well copy.
  static constexpr std::uint32_t mark = 0xfff3fff9;

  struct watched {
    byte_interval where{};
    std::size_t operand = none;
    std::vector<std::uint64_t> sums{};
  };
  struct overwritten {
    byte_interval where{};
    std::size_t operand = none;
    std::vector<std::byte> before{};
  };
  static constexpr std::size_t none = static_cast<std::size_t>(-1);

  void pause() override {
    interrupted_once_ = true;
    (void)settle();
    access_.end();
  }
  void go_on() override { access_.begin(); }

  /// Waits for what was enqueued. @returns  How it failed, for people.
  std::optional<error> settle() noexcept {
    try {
      queue_.synchronize();
    } catch (const error& e) {
      order_.accuse("launch '" + name_ + "' failed when it ran alone" +
                    (guarded ? ", with access to what it declares and nothing else: " : ": ") + e.what());
      return error(status::device_failure, order_.accusation(), e.api(), e.native_code());
    } catch (...) {
      order_.accuse("launch '" + name_ + "' failed when it ran alone");
      return error(status::device_failure, order_.accusation());
    }
    return std::nullopt;
  }

  [[nodiscard]] std::vector<byte_interval> intervals(bool (*wanted)(access)) const {
    std::vector<byte_interval> found;
    for (const named_operand& o : operands_) {
      if (wanted(o.mode)) {
        found.push_back(interval_of(o.where.span));
      }
    }
    return found;
  }

  // --- what is only read -------------------------------------------------------------------------------------------

  void note_read() {
    const std::vector<byte_interval> written = intervals([](access how) { return how != access::read; });
    for (std::size_t i = 0; i < operands_.size(); ++i) {
      if (operands_[i].mode == access::read) {
        for (const byte_interval& w : without(interval_of(operands_[i].where.span), written)) {
          watched_.push_back({w, i, sums_of(w)});
        }
      }
    }
    if constexpr (guarded) {
      const std::vector<byte_interval> named = intervals([](access) { return true; });
      const std::uint64_t block = owner_.block().count;
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
  [[nodiscard]] std::optional<error> written_though_read() {
    for (const watched& w : watched_) {
      const std::vector<std::uint64_t> now = sums_of(w.where);
      const auto changed = std::mismatch(w.sums.begin(), w.sums.end(), now.begin()).first;
      if (changed == w.sums.end()) {
        continue;
      }
      const std::uint64_t from =
          w.where.begin + static_cast<std::uint64_t>(changed - w.sums.begin()) * std::uint64_t{summed};
      const byte_interval where{from, std::min<std::uint64_t>(w.where.end, from + summed)};
      return error(status::wrong_declaration,
                   "launch '" + name_ + "' wrote " +
                       (w.operand != none ? "to " + text_of(w.operand) + ", in " + text_of(where, w.operand)
                                          : "beside its operands, between " + address(where.begin) + " and " +
                                                address(where.end) + ", in a block of which it declares to read only") +
                       ": declare updates(p, n) for what it writes, or overwrites(p, n) where it writes all of it");
    }
    return std::nullopt;
  }
  [[nodiscard]] std::vector<std::uint64_t> sums_of(byte_interval where) {
    std::vector<std::uint64_t> sums;
    for_each_piece(where, [&](std::uint64_t /*at*/, std::span<const std::byte> bytes_there) {
      for (std::size_t at = 0; at < bytes_there.size(); at += summed) {
        const std::size_t length_there = std::min(summed, bytes_there.size() - at);
        sums.push_back(absorb_bytes(hash_key_c, length_there, bytes_there.data() + at, length_there));
      }
    });
    return sums;
  }

  // --- what is overwritten -----------------------------------------------------------------------------------------

  void note_overwritten() {
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
  /// The launch does not run after all.
  void restore() noexcept {
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
  /// Elements have four bytes, as a rule. Two that follow each other cannot be there by chance, nor can the first or
  /// the last one, which are what is forgotten most often.
  [[nodiscard]] std::optional<error> left_unwritten() {
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

  // -----------------------------------------------------------------------------------------------------------------

  [[nodiscard]] std::byte* here(std::uint64_t offset) const { return owner_.memory().base() + offset; }
  template <class Visit>
  void for_each_piece(byte_interval where, Visit&& visit) {
    std::vector<std::byte> found(std::min<std::uint64_t>(piece, where.end - where.begin));
    for (std::uint64_t at = where.begin; at < where.end; at += found.size()) {
      const std::size_t n = std::min<std::uint64_t>(found.size(), where.end - at);
      queue_.copy(found.data(), here(at), n);
      queue_.synchronize();
      visit(at, std::span<const std::byte>(found.data(), n));
    }
  }

  /// An operand, for people.
  [[nodiscard]] std::string text_of(std::size_t i) const {
    const named_operand& o = operands_[i];
    const char* const how = o.mode == access::read ? "reads" : o.mode == access::overwrite ? "overwrites" : "updates";
    return "operand " + std::to_string(i + 1) + ", which it declares as " + how + " of " +
           std::to_string(o.where.span.size.count) + " bytes at " + address(o.where.span.offset.count);
  }
  /// A part of an operand.
  [[nodiscard]] std::string text_of(byte_interval part, std::size_t of) const {
    const std::uint64_t start = operands_[of].where.span.offset.count;
    return "its bytes from " + std::to_string(part.begin - start) + " to " + std::to_string(part.end - start);
  }
  [[nodiscard]] std::string address(std::uint64_t offset) const {
    constexpr const char* digits = "0123456789abcdef";
    std::string s;
    for (auto a = reinterpret_cast<std::uintptr_t>(here(offset)); a != 0; a /= 16) {
      s.insert(s.begin(), digits[a % 16]);
    }
    return "0x" + s;
  }

  Arena& owner_;
  launch_order& order_;
  launch_order::interruption interrupted_;
  stream_type& queue_;
  std::string name_;
  std::vector<named_operand> operands_;
  std::vector<block_access> blocks_;
  access_for access_;
  kept_on_device kept_;
  std::vector<watched> watched_{};
  std::vector<overwritten> overwritten_{};
  bool interrupted_once_ = false;  // by a launch within it
  bool ended_ = false;
};

}  // namespace detail
}  // namespace v0
}  // namespace deepum
