#pragma once

#include <deepum/core/sequence.hpp>
#include <deepum/units.hpp>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace deepum {
inline namespace v0 {
namespace detail {

/// Marks on launches that lie in a row, to be looked at again. The first and the last one are found without a look at
/// those between them.
///
/// Positions count on and wrap. Marks are set within one row of positions, the length of which `cover` says.
/// Cost: of a mark, constant; of a search, a 64th of the positions, and nothing where there is no mark.
class launch_marks {
 public:
  using position = std::uint32_t;

  /// The row is `[begin, begin + length)` from now on; it was shorter, or had another beginning.
  /// Cost: linear in the length where it is longer than ever before; else none.
  void cover(position begin, std::size_t length) {
    if (length <= words_.size() * word_bits) {
      return;
    }
    sequence<std::uint64_t> old(std::bit_ceil(length + word_bits) / word_bits);
    old.swap(words_);
    if (count_ != 0) {
      for (std::size_t i = 0; i != old.size() * word_bits; ++i) {
        const position at = begin + static_cast<position>(i);
        if ((old[slot(at, old)] & bit(at)) != 0) {
          words_[slot(at, words_)] |= bit(at);
        }
      }
    }
  }
  void set(position at) {
    count_ += test(at) ? 0 : 1;
    words_[slot(at, words_)] |= bit(at);
  }
  void clear(position at) {
    count_ -= test(at) ? 1 : 0;
    words_[slot(at, words_)] &= ~bit(at);
  }
  [[nodiscard]] bool test(position at) const { return (words_[slot(at, words_)] & bit(at)) != 0; }

  /// The first mark in `[begin, end)`; `end` where there is none.
  [[nodiscard]] position first(position begin, position end) const {
    for (position at = begin; at != end && count_ != 0;) {
      if (const std::uint64_t rest = words_[slot(at, words_)] >> (at % word_bits); rest != 0) {
        const position found = at + static_cast<position>(std::countr_zero(rest));
        return found - begin < end - begin ? found : end;
      }
      at += std::min<position>(word_bits - at % word_bits, end - at);
    }
    return end;
  }
  /// The position behind the last mark in `[begin, end)`; `begin` where there is none.
  [[nodiscard]] position behind_last(position begin, position end) const {
    for (position at = end; at != begin && count_ != 0;) {
      const position in_word = (at - 1) % word_bits;
      if (const std::uint64_t rest = words_[slot(at - 1, words_)] << (word_bits - 1 - in_word); rest != 0) {
        const position found = at - 1 - static_cast<position>(std::countl_zero(rest));
        return found - begin < end - begin ? found + 1 : begin;
      }
      at -= std::min<position>(in_word + 1, at - begin);
    }
    return begin;
  }

  [[nodiscard]] bytes memory() const { return bytes{words_.capacity() * sizeof(std::uint64_t)}; }

 private:
  static constexpr position word_bits = 64;

  static std::size_t slot(position at, const sequence<std::uint64_t>& words) {
    return (at / word_bits) & (words.size() - 1);
  }
  static std::uint64_t bit(position at) { return std::uint64_t{1} << (at % word_bits); }

  sequence<std::uint64_t> words_ = sequence<std::uint64_t>(1);  // a power of two, around
  std::size_t count_ = 0;
};

}  // namespace detail
}  // namespace v0
}  // namespace deepum
