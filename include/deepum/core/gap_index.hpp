#pragma once

#include <deepum/core/hash.hpp>
#include <deepum/core/sequence.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>

namespace deepum {
inline namespace v0 {
namespace detail {

/// The gaps of a `range_allocator`, the shortest first, those of equal length by address; it finds the first one in
/// which a range has room.
///
/// A gap offers a different room for each alignment, since a large range begins at a block and a small one straddles
/// none. The gaps are a search tree (a treap) that knows the most room in each of its parts.
///
/// Not synchronised. Cost of each call: logarithmic in the number of gaps, as a rule.
class gap_index {
 public:
  struct gap {
    std::uint64_t begin = 0;
    std::uint64_t length = 0;

    [[nodiscard]] std::uint64_t end() const { return begin + length; }
    /// Whether this one comes first.
    [[nodiscard]] bool before(const gap& o) const { return length != o.length ? length < o.length : begin < o.begin; }
  };

  /// @param granularity, block  Powers of two. Every gap begins and ends at a multiple of the first.
  gap_index(std::uint64_t granularity, std::uint64_t unit)
      : granularity_(granularity),
        block_(unit),
        alignments_(
            std::min<std::size_t>(most_alignments, static_cast<std::size_t>(std::countr_zero(unit)) -
                                                       static_cast<std::size_t>(std::countr_zero(granularity)))) {}

  void insert(gap g) {
    std::uint32_t made = free_;
    if (made != none) {
      free_ = nodes_[made].left;
    } else {
      made = static_cast<std::uint32_t>(nodes_.size());
      nodes_.emplace_back();
    }
    node& n = nodes_[made];
    n = {.what = g, .priority = absorb(g.begin, g.length, 0)};
    for (std::size_t a = 0; a != alignments_; ++a) {
      const std::uint64_t units = room_of_small(g, granularity_ << a) / granularity_;
      n.small[a] =
          static_cast<std::uint32_t>(std::min<std::uint64_t>(units, std::numeric_limits<std::uint32_t>::max()));
    }
    n.large = room_at(g, block_);
    note_most(n);
    root_ = insert(root_, made);
  }
  /// One that is there.
  void erase(gap g) { root_ = erase(root_, g); }

  /// The first gap in which a range fits that straddles no block. Less than half a block.
  /// @param alignment  A power of two.
  [[nodiscard]] std::optional<gap> find_small(std::uint64_t need, std::uint64_t alignment) const {
    const auto a =
        static_cast<std::size_t>(std::countr_zero(std::max(alignment, granularity_)) - std::countr_zero(granularity_));
    if (a >= alignments_) {
      return find_large(need, alignment);
    }
    const std::uint64_t units = (need + granularity_ - 1) / granularity_;
    return first([&](const node& n) { return n.most_small[a] >= units; },
                 [&](const node& n) { return n.small[a] >= units; });
  }
  /// The first gap in which a range fits that begins at a block.
  /// @param alignment  A power of two. One that is larger than a block costs a look at each gap that is large enough.
  [[nodiscard]] std::optional<gap> find_large(std::uint64_t need, std::uint64_t alignment) const {
    return first(
        [&](const node& n) { return n.most_large >= need; },
        [&](const node& n) { return n.large >= need && (alignment <= block_ || room_at(n.what, alignment) >= need); });
  }
  /// The longest gap; nothing where there is none.
  [[nodiscard]] std::optional<gap> longest() const {
    std::uint32_t at = root_;
    while (at != none && nodes_[at].right != none) {
      at = nodes_[at].right;
    }
    return at == none ? std::nullopt : std::optional<gap>(nodes_[at].what);
  }

  /// Gaps that all calls of `find_small` and `find_large` so far have looked at.
  [[nodiscard]] std::uint64_t looked_at() const { return looked_at_; }

 private:
  static constexpr std::uint32_t none = 0xffffffffU;
  static constexpr std::size_t most_alignments = 17;  // of small ranges, from 256 bytes to half a block of 32 MiB

  struct node {
    gap what{};
    std::uint64_t priority = 0;
    std::uint32_t left = none;  // or the next free one
    std::uint32_t right = none;
    std::uint64_t large = 0;  // bytes
    std::uint64_t most_large = 0;
    std::array<std::uint32_t, most_alignments> small{};  // by alignment; in units of the granularity
    std::array<std::uint32_t, most_alignments> most_small{};
  };

  [[nodiscard]] static std::uint64_t align_up(std::uint64_t x, std::uint64_t to) { return (x + to - 1) & ~(to - 1); }
  /// From the first multiple of `alignment` on.
  [[nodiscard]] static std::uint64_t room_at(gap g, std::uint64_t alignment) {
    const std::uint64_t begin = align_up(g.begin, alignment);
    return begin < g.end() ? g.end() - begin : 0;
  }
  /// The same up to the end of that block, or from the next block on.
  [[nodiscard]] std::uint64_t room_of_small(gap g, std::uint64_t alignment) const {
    const std::uint64_t begin = align_up(g.begin, alignment);
    if (begin >= g.end()) {
      return 0;
    }
    const std::uint64_t boundary = (begin / block_ + 1) * block_;
    return boundary >= g.end() ? g.end() - begin : std::max(boundary - begin, g.end() - boundary);
  }

  /// The first node for which `is_it`, where `may_be` says of a subtree whether there is one, as far as is known.
  template <class MayBe, class IsIt>
  [[nodiscard]] std::optional<gap> first(const MayBe& may_be, const IsIt& is_it) const {
    path_.clear();
    for (std::uint32_t at = root_; at != none || !path_.empty();) {
      if (at != none) {
        ++looked_at_;
        if (!may_be(nodes_[at])) {
          at = none;
          continue;
        }
        path_.push_back(at);
        at = nodes_[at].left;
        continue;
      }
      const node& n = nodes_[path_.back()];
      path_.pop_back();
      if (is_it(n)) {
        return n.what;
      }
      at = n.right;
    }
    return std::nullopt;
  }

  void note_most(node& n) const {
    n.most_large = n.large;
    n.most_small = n.small;
    for (const std::uint32_t child : {n.left, n.right}) {
      if (child != none) {
        const node& c = nodes_[child];
        n.most_large = std::max(n.most_large, c.most_large);
        for (std::size_t a = 0; a != most_alignments; ++a) {
          n.most_small[a] = std::max(n.most_small[a], c.most_small[a]);
        }
      }
    }
  }

  // The depth of a treap is logarithmic, so that recursion is fine.
  std::uint32_t insert(std::uint32_t tree, std::uint32_t made) {
    if (tree == none) {
      return made;
    }
    node& t = nodes_[tree];
    node& n = nodes_[made];
    if (n.priority > t.priority) {
      split(tree, n.what, n.left, n.right);
      note_most(n);
      return made;
    }
    if (n.what.before(t.what)) {
      t.left = insert(t.left, made);
    } else {
      t.right = insert(t.right, made);
    }
    note_most(t);
    return tree;
  }
  void split(std::uint32_t tree, gap at, std::uint32_t& before, std::uint32_t& after) {
    if (tree == none) {
      before = after = none;
      return;
    }
    node& t = nodes_[tree];
    if (t.what.before(at)) {
      split(t.right, at, t.right, after);
      before = tree;
    } else {
      split(t.left, at, before, t.left);
      after = tree;
    }
    note_most(t);
  }
  std::uint32_t erase(std::uint32_t tree, gap g) {
    node& t = nodes_[tree];
    if (t.what.begin == g.begin) {
      const std::uint32_t rest = join(t.left, t.right);
      t.left = free_;
      free_ = tree;
      return rest;
    }
    if (g.before(t.what)) {
      t.left = erase(t.left, g);
    } else {
      t.right = erase(t.right, g);
    }
    note_most(t);
    return tree;
  }
  std::uint32_t join(std::uint32_t before, std::uint32_t after) {
    if (before == none || after == none) {
      return before == none ? after : before;
    }
    node& b = nodes_[before];
    node& a = nodes_[after];
    if (b.priority > a.priority) {
      b.right = join(b.right, after);
      note_most(b);
      return before;
    }
    a.left = join(before, a.left);
    note_most(a);
    return after;
  }

  std::uint64_t granularity_;
  std::uint64_t block_;
  std::size_t alignments_;  // of small ranges that are told apart; larger ones begin at a block
  sequence<node> nodes_{};
  std::uint32_t root_ = none;
  std::uint32_t free_ = none;
  mutable sequence<std::uint32_t> path_{};  // of a search; kept for its memory
  mutable std::uint64_t looked_at_ = 0;
};

}  // namespace detail
}  // namespace v0
}  // namespace deepum
