#pragma once

#include <deepum/core/sequence.hpp>
#include <deepum/cxx20.hpp>

#include <algorithm>
#include <cstdint>
#include <numeric>
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
  link_calendar(std::uint32_t windows, std::uint32_t blocks_each) : room_(windows, blocks_each), open_(windows + 1) {
    std::iota(open_.begin(), open_.end(), 0U);
    for (std::uint32_t w = 0; w != windows && blocks_each == 0; ++w) {
      open_[w] = windows;
    }
  }

  /// For how many of `count` blocks there is time from one window to another, both included. From a later one to an
  /// earlier one: around the end of the step.
  [[nodiscard]] std::uint32_t room(std::uint32_t first, std::uint32_t last, std::uint32_t count) {
    return visit(first, last, count, [](std::uint32_t, std::uint32_t) {});
  }
  /// Takes that time, the earliest there is.
  std::uint32_t take(std::uint32_t first, std::uint32_t last, std::uint32_t count) {
    return visit(first, last, count, [&](std::uint32_t w, std::uint32_t blocks) {
      room_[w] -= blocks;
      open_[w] = room_[w] == 0 ? w + 1 : w;
    });
  }

 private:
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
  std::uint32_t next_open(std::uint32_t w) {
    std::uint32_t found = w;
    while (open_[found] != found) {
      found = open_[found];
    }
    while (open_[w] != found) {
      w = std::exchange(open_[w], found);
    }
    return found;
  }

  sequence<std::uint32_t> room_{};  // by window: blocks that it still has the time for
  sequence<std::uint32_t> open_{};  // by window: itself while there is room, else a later one; and one more
};

}  // namespace detail
}  // namespace v0
}  // namespace deepum
