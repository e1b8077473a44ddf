#pragma once

#include <deepum/core/sequence.hpp>
#include <deepum/error.hpp>
#include <deepum/units.hpp>

#include <cstddef>
#include <cstdint>
#include <limits>

namespace deepum {
inline namespace v0 {
namespace detail {

/// A hash index over the slots of some vector, by chains of slot numbers. The keys stay in that vector.
///
/// The tables of this folder keep their contents in vectors with links by slot number, so that the memory they report
/// is the memory they hold. Eight bytes a slot and four to eight for its bucket.
class slot_index {
 public:
  static constexpr std::uint32_t none = std::numeric_limits<std::uint32_t>::max();

  /// The slot with this hash for which `matches(slot)` holds; `none` where there is none.
  template <class Matches>
  [[nodiscard]] std::uint32_t find(std::uint64_t hash, Matches&& matches) const {
    if (heads_.empty()) {
      return none;
    }
    const std::uint32_t h = shorten(hash);
    for (std::uint32_t slot = heads_[bucket_of(h)]; slot != none; slot = nodes_[slot].next) {
      if (nodes_[slot].hash == h && matches(slot)) {
        return slot;
      }
    }
    return none;
  }

  /// Adds a slot that is not in the index.
  void insert(std::uint64_t hash, std::uint32_t slot) {
    if (size_ == heads_.size()) {
      grow();
    }
    if (slot >= nodes_.size()) {
      nodes_.resize(std::size_t{slot} + 1);
    }
    nodes_[slot].hash = shorten(hash);
    link(slot);
    ++size_;
  }

  /// Takes a slot out that was inserted with this hash.
  void erase(std::uint64_t hash, std::uint32_t slot) {
    expects(!heads_.empty(), "a slot is taken from an empty index");
    std::uint32_t* at = &heads_[bucket_of(shorten(hash))];
    while (*at != slot) {
      expects(*at != none, "a slot is taken from an index that does not hold it");
      at = &nodes_[*at].next;
    }
    *at = nodes_[slot].next;
    --size_;
  }

  [[nodiscard]] bytes memory() const {
    return bytes{heads_.capacity() * sizeof(std::uint32_t) + nodes_.capacity() * sizeof(node)};
  }

 private:
  struct node {
    std::uint32_t hash = 0;
    std::uint32_t next = none;
  };

  [[nodiscard]] static std::uint32_t shorten(std::uint64_t hash) {
    return static_cast<std::uint32_t>(hash ^ (hash >> 32U));
  }
  [[nodiscard]] std::size_t bucket_of(std::uint32_t h) const { return h & (heads_.size() - 1); }

  void link(std::uint32_t slot) {
    std::uint32_t& head = heads_[bucket_of(nodes_[slot].hash)];
    nodes_[slot].next = head;
    head = slot;
  }
  void grow() {
    sequence<std::uint32_t> old(heads_.empty() ? 4 : heads_.size() * 2, none);
    old.swap(heads_);
    for (std::uint32_t slot : old) {
      while (slot != none) {
        const std::uint32_t next = nodes_[slot].next;
        link(slot);
        slot = next;
      }
    }
  }

  sequence<std::uint32_t> heads_;  // a power of two of them, at least one for each slot in the index
  sequence<node> nodes_;           // by slot number
  std::size_t size_ = 0;
};

}  // namespace detail
}  // namespace v0
}  // namespace deepum
