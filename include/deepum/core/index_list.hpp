#pragma once

#include <deepum/core/sequence.hpp>
#include <deepum/units.hpp>

#include <cstddef>
#include <cstdint>
#include <limits>

namespace deepum {
inline namespace v0 {
namespace detail {

/// Some of the numbers 0, 1, 2, ... in an order, each at most once: the blocks by their last use, the slots of a table
/// by age. A doubly linked list whose links are kept by number, eight bytes for each number up to the highest.
///
/// Not synchronised. Cost of each call: constant, as a rule (`push_back` may grow the links).
class index_list {
 public:
  static constexpr std::uint32_t none = std::numeric_limits<std::uint32_t>::max();

  /// @param indices  The numbers below it take no more memory later.
  explicit index_list(std::size_t indices = 0) : links_(indices + 1) { links_[ends] = {ends, ends}; }

  [[nodiscard]] bool empty() const { return links_[ends].after == ends; }
  [[nodiscard]] bool contains(std::uint32_t i) const {
    return std::size_t{i} + 1 < links_.size() && links_[place(i)].before != unlinked;
  }
  /// The first number of the list; `none` where it is empty.
  [[nodiscard]] std::uint32_t front() const { return links_[ends].after - 1; }
  /// The number behind one that is in the list; `none` behind the last one.
  [[nodiscard]] std::uint32_t after(std::uint32_t i) const { return links_[place(i)].after - 1; }

  /// The number becomes the last one, wherever it was, if it was.
  void move_to_back(std::uint32_t i) {
    erase(i);
    if (std::size_t{i} + 1 >= links_.size()) {
      links_.resize(std::size_t{i} + 2);
    }
    const std::uint32_t last = links_[ends].before;
    links_[place(i)] = {last, ends};
    links_[last].after = place(i);
    links_[ends].before = place(i);
  }
  /// Takes a number out, if it is there.
  void erase(std::uint32_t i) {
    if (contains(i)) {
      link& l = links_[place(i)];
      links_[l.before].after = l.after;
      links_[l.after].before = l.before;
      l = {};
    }
  }

  [[nodiscard]] bytes memory() const { return bytes{links_.capacity() * sizeof(link)}; }

 private:
  static constexpr std::uint32_t unlinked = none;
  static constexpr std::uint32_t ends = 0;  // the place of the link that closes the ring; `none` + 1

  struct link {
    std::uint32_t before = unlinked;  // places
    std::uint32_t after = unlinked;
  };
  [[nodiscard]] static std::uint32_t place(std::uint32_t i) { return i + 1; }

  sequence<link> links_;
};

}  // namespace detail
}  // namespace v0
}  // namespace deepum
