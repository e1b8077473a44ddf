#pragma once

#include <deepum/core/sequence.hpp>
#include <deepum/cxx20.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>

namespace deepum {
inline namespace v0 {
namespace detail {

/// Numbers that intervals are added to and whose least is asked for, both in logarithmic time.
class range_minimum {
 public:
  explicit range_minimum(const sequence<std::int64_t>& numbers) {
    while (leaves_ < numbers.size()) {
      leaves_ *= 2;
    }
    nodes_.resize(2 * leaves_);
    for (std::size_t i = 0; i != numbers.size(); ++i) {
      nodes_[leaves_ + i].least = numbers[i];
    }
    for (std::size_t i = leaves_; i-- > 1;) {
      nodes_[i].least = std::min(nodes_[2 * i].least, nodes_[2 * i + 1].least);
    }
  }

  /// Adds to the numbers [begin, end).
  void add(std::size_t begin, std::size_t end, std::int64_t by) { add(1, 0, leaves_, begin, end, by); }
  /// The least of the numbers [begin, end); the greatest number there is where there are none.
  [[nodiscard]] std::int64_t least(std::size_t begin, std::size_t end) const {
    return least(1, 0, leaves_, begin, end);
  }

 private:
  static constexpr std::int64_t greatest = std::numeric_limits<std::int64_t>::max() / 2;
  struct node {
    std::int64_t least = greatest;  // of the numbers below
    std::int64_t added = 0;         // to all of them, and not to the nodes below
  };

  void add(std::size_t n, std::size_t low, std::size_t high, std::size_t begin, std::size_t end, std::int64_t by) {
    if (high <= begin || end <= low) {
      return;
    }
    if (begin <= low && high <= end) {
      nodes_[n].least += by;
      nodes_[n].added += by;
      return;
    }
    const std::size_t middle = (low + high) / 2;
    add(2 * n, low, middle, begin, end, by);
    add(2 * n + 1, middle, high, begin, end, by);
    nodes_[n].least = nodes_[n].added + std::min(nodes_[2 * n].least, nodes_[2 * n + 1].least);
  }
  [[nodiscard]] std::int64_t least(std::size_t n, std::size_t low, std::size_t high, std::size_t begin,
                                   std::size_t end) const {
    if (high <= begin || end <= low) {
      return greatest;
    }
    if (begin <= low && high <= end) {
      return nodes_[n].least;
    }
    const std::size_t middle = (low + high) / 2;
    return nodes_[n].added +
           std::min(least(2 * n, low, middle, begin, end), least(2 * n + 1, middle, high, begin, end));
  }

  std::size_t leaves_ = 1;
  sequence<node> nodes_{};
};

}  // namespace detail
}  // namespace v0
}  // namespace deepum
