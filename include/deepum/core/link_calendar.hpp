#pragma once

#include <deepum/core/sequence.hpp>
#include <deepum/cxx20.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <optional>
#include <utility>

namespace deepum {
inline namespace v0 {
namespace detail {

/// When one direction of the link has time for copies: in windows of equal length, each for so many blocks.
///
/// Cost: amortised, logarithmic in the number of windows for each call and window that becomes full.
class link_calendar {
 public:
  link_calendar() = default;
  link_calendar(std::uint32_t windows, std::uint32_t blocks_each)
      : room_(windows, blocks_each),
        open_(std::size_t{windows} + 1),
        open_before_(std::size_t{windows} + 1) {
    std::iota(open_.begin(), open_.end(), 0U);
    std::iota(open_before_.begin(), open_before_.end(), 0U);
    for (std::uint32_t w = 0; w != windows && blocks_each == 0; ++w) {
      close(w);
    }
  }

  [[nodiscard]] std::uint32_t windows() const { return static_cast<std::uint32_t>(room_.size()); }

  /// For how many of `count` blocks there is time from one window to another, both included. From a later one to an
  /// earlier one: around the end of the step.
  [[nodiscard]] std::uint32_t room(std::uint32_t first, std::uint32_t last, std::uint32_t count) {
    return visit(first, last, count, [](std::uint32_t, std::uint32_t) {});
  }
  /// Takes that time, the earliest there is.
  std::uint32_t take(std::uint32_t first, std::uint32_t last, std::uint32_t count) {
    return visit(first, last, count, [&](std::uint32_t w, std::uint32_t blocks) { take_in(w, blocks); });
  }

  /// The last window that has time left, up to this one; nothing where none has.
  [[nodiscard]] std::optional<std::uint32_t> last_open(std::uint32_t window) {
    const std::uint32_t found = find(open_before_, window + 1);
    return found != 0 ? std::optional{found - 1} : std::nullopt;
  }
  /// For how many blocks a window has time.
  [[nodiscard]] std::uint32_t room_in(std::uint32_t window) const { return room_[window]; }
  /// Takes that time for so many at most.
  void take_in(std::uint32_t window, std::uint32_t count) {
    room_[window] -= count;
    if (room_[window] == 0) {
      close(window);
    }
  }

 private:
  void close(std::uint32_t window) {
    open_[window] = window + 1;
    open_before_[window + 1] = window;
  }
  template <class Visit>
  std::uint32_t visit(std::uint32_t first, std::uint32_t last, std::uint32_t count, Visit&& each) {
    std::uint32_t got = 0;
    const auto visit_from = [&](std::uint32_t begin, std::uint32_t end) {
      for (std::uint32_t window = next_open(begin); window <= end && got != count; window = next_open(window + 1)) {
        const std::uint32_t taken = std::min(count - got, room_[window]);
        got += taken;
        each(window, taken);
      }
    };
    if (first <= last) {
      visit_from(first, last);
    } else {
      visit_from(first, static_cast<std::uint32_t>(room_.size() - 1));
      visit_from(0, last);
    }
    return got;
  }
  // The first window from this one on that has time left; the number of windows where none has.
  std::uint32_t next_open(std::uint32_t w) { return find(open_, w); }
  // Follows the links to their end, and makes them lead there.
  static std::uint32_t find(sequence<std::uint32_t>& links, std::uint32_t at) {
    std::uint32_t found = at;
    while (links[found] != found) {
      found = links[found];
    }
    while (links[at] != found) {
      at = std::exchange(links[at], found);
    }
    return found;
  }

  sequence<std::uint32_t> room_{};  // by window: blocks that it still has the time for
  sequence<std::uint32_t> open_{};  // by window: itself while there is room, else a later one; and one more
  sequence<std::uint32_t>
      open_before_{};  // by window + 1: itself while there is room, else one before; 0: there is none
};

}  // namespace detail
}  // namespace v0
}  // namespace deepum
