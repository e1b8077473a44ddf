#pragma once

#include <deepum/arena/allocation_table.hpp>
#include <deepum/arena/back.hpp>
#include <deepum/arena/host_contents.hpp>
#include <deepum/arena/launch_order.hpp>
#include <deepum/arena/unfilled_bytes.hpp>
#include <deepum/core/launch.hpp>
#include <deepum/units.hpp>

#include <condition_variable>
#include <cstddef>
#include <memory>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

namespace deepum {
inline namespace v0 {
namespace detail {

/// Fills memory whose contents were never written: with zeroes (`arena_options::zero_new`), or with a pattern that is
/// no number (`arena_options::checked`).
///
/// Managed memory is filled before `allocate` returns, because host and device may use it undeclared. Blocks that were
/// never handed out are zero already: the driver zeroes pages. Paged memory is filled before its first use, except
/// where that use overwrites it as a whole. Each user of unfilled memory waits for the fill (docs/adr/0009).
///
/// Threads: every call, any thread, none of them under the arena's lock.
class new_memory {
 public:
  using range = unfilled_bytes::range;

  /// @param reads_as_zero  New memory reads as zero.
  /// @param one_at_a_time  In checked mode; else null. There new memory that is not to read as zero reads as poison,
  ///                       and so does what is given up.
  new_memory(arena_back& of, host_contents& on_host, bool reads_as_zero, launch_order* one_at_a_time);
  ~new_memory();
  new_memory(const new_memory&) = delete;
  new_memory& operator=(const new_memory&) = delete;

  /// The program is about to be given these bytes.
  /// @errors  Where memory faults, those of a launch.
  void allocated(byte_span bytes_of);
  /// Whether what is given up is poisoned.
  [[nodiscard]] bool poisons() const { return order_ != nullptr; }
  /// The program is about to give up what these bytes hold; nothing in flight uses them. Poisons them in checked mode.
  /// Never throws: what could not be poisoned was given up all the same.
  void given_up(byte_span bytes_of) noexcept;
  /// An allocation is about to be given back.
  void freed(byte_span bytes_of) noexcept;

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
  [[nodiscard]] spared before_launch(std::span<const named_operand> used, bool complete);

  /// The host is about to use bytes, and not to overwrite them as a whole.
  /// @errors  Those of `arena::begin_host_access`.
  void before_host(byte_span bytes_of);
  /// The host overwrites the bytes, and may begin to.
  /// @param found  Where it finds them.
  void host_overwrites(byte_span bytes_of, std::byte* found);

 private:
  /// What a fill is given to: one for each thread that fills at the same time.
  struct filler;

  void add(const std::vector<range>& ranges);
  /// What of the bytes has to be filled where that is done before they are handed out.
  std::vector<range> used_before(const range& all);
  /// Takes out what a launch overwrites. @param except  What it reads as well stays in.
  std::vector<range> take_overwritten(std::span<const named_operand> used, std::span<const byte_span> except);
  /// Fills what has to be filled of these bytes, and waits for other threads that fill some of them.
  void fill_all_of(byte_span bytes_of, bool by_host = false);
  void end_fill(const range& r, bool done);
  void fill_on_host(const range& r);
  /// By launches of its own, and waits for them.
  void fill(const range& r);
  void launch_fill(filler& by, const range& r);
  void write(device_queue& queue, const range& r);

  arena_back& back_;
  host_contents& on_host_;
  const filling fill_new_with_;
  launch_order* const order_;
  const bool lazy_;  // memory is filled when it is used

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

#ifndef DEEPUM_SEPARATE_COMPILATION
#include <deepum/arena/impl/new_memory.hpp>  // what it declares
#endif
