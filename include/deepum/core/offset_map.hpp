#pragma once

#include <deepum/core/sequence.hpp>
#include <deepum/error.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <utility>

namespace deepum {
inline namespace v0 {
namespace detail {

/// Values by their offsets, in order: finds the last one at or before an offset.
///
/// A tree of two levels whose keys lie side by side: a search among 100,000 touches three or four cache lines, where a
/// binary tree touches one for each of its 17 levels. Results are valid until the next change.
///
/// Not synchronised. Cost: a search is logarithmic; a change moves the 128 values of a page at most, and now and then
/// the list of pages.
template <class Value>
class offset_map {
 public:
  /// A value and its offset, or nothing.
  template <class V>
  struct found {
    std::uint64_t offset = 0;
    V* value = nullptr;
    explicit operator bool() const { return value != nullptr; }
  };

  /// @param offset  One that has no value.
  Value& insert(std::uint64_t offset, Value value) {
    if (pages_.empty()) {
      first_.push_back(offset);
      pages_.emplace_back();
    }
    std::size_t p = page_of(offset);
    if (pages_[p].offsets.size() == most) {
      p = split(p, offset);
    }
    page& to = pages_[p];
    const auto at = std::lower_bound(to.offsets.begin(), to.offsets.end(), offset);
    expects(at == to.offsets.end() || *at != offset, "an offset has one value");
    const auto value_at = to.values.begin() + (at - to.offsets.begin());
    to.offsets.insert(at, offset);
    first_[p] = to.offsets.front();
    ++size_;
    return *to.values.insert(value_at, std::move(value));
  }
  /// @param offset  One that has a value.
  void erase(std::uint64_t offset) {
    expects(!pages_.empty(), "an offset is erased from an empty map");
    const std::size_t p = page_of(offset);
    page& of = pages_[p];
    const auto at = std::lower_bound(of.offsets.begin(), of.offsets.end(), offset);
    expects(at != of.offsets.end() && *at == offset, "an offset is erased that has no value");
    of.values.erase(of.values.begin() + (at - of.offsets.begin()));
    of.offsets.erase(at);
    --size_;
    if (of.offsets.empty()) {
      remove(p);
      return;
    }
    first_[p] = of.offsets.front();
    if (of.offsets.size() < most / 4) {  // else pages with little in them would remain
      if (p + 1 < pages_.size() && of.offsets.size() + pages_[p + 1].offsets.size() <= most / 2) {
        join(p);
      } else if (p > 0 && of.offsets.size() + pages_[p - 1].offsets.size() <= most / 2) {
        join(p - 1);
      }
    }
  }

  /// The last value at or before an offset.
  [[nodiscard]] found<Value> at_or_before(std::uint64_t offset) { return find<found<Value>>(*this, offset); }
  [[nodiscard]] found<const Value> at_or_before(std::uint64_t offset) const {
    return find<found<const Value>>(*this, offset);
  }

  [[nodiscard]] std::size_t size() const { return size_; }
  /// Pages that it has; they hold a quarter of what they could, or more, but for the last one.
  [[nodiscard]] std::size_t pages() const { return pages_.size(); }

  static constexpr std::size_t most = 128;  ///< values of a page

 private:
  struct page {
    sequence<std::uint64_t> offsets{};
    sequence<Value> values{};
  };

  template <class Found, class Map>
  static Found find(Map& map, std::uint64_t offset) {
    if (map.size_ == 0 || map.first_.front() > offset) {
      return {};
    }
    auto& in = map.pages_[last_up_to(map.first_, offset)];
    const std::size_t at = last_up_to(in.offsets, offset);
    return {in.offsets[at], &in.values[at]};
  }
  /// The last of ascending offsets that is not above this one; the first where all are. Without a branch that depends
  /// on them: which way a search goes cannot be predicted.
  [[nodiscard]] static std::size_t last_up_to(const sequence<std::uint64_t>& offsets, std::uint64_t offset) {
    const std::uint64_t* from = offsets.data();
    for (std::size_t n = offsets.size(); n > 1;) {
      const std::size_t half = n / 2;
      from = from[half] <= offset ? from + half : from;
      n -= half;
    }
    return static_cast<std::size_t>(from - offsets.data());
  }
  /// The page where an offset is, or would be.
  [[nodiscard]] std::size_t page_of(std::uint64_t offset) const { return last_up_to(first_, offset); }
  /// Makes room in a full page. @returns  The page where the offset belongs.
  std::size_t split(std::size_t p, std::uint64_t offset) {
    // Values handed out in the order of addresses leave full pages behind.
    const bool at_end = p + 1 == pages_.size() && offset > pages_[p].offsets.back();
    const auto kept = static_cast<std::ptrdiff_t>(at_end ? most : most / 2);
    page made;
    page& full = pages_[p];
    made.offsets.assign(full.offsets.begin() + kept, full.offsets.end());
    made.values.assign(std::make_move_iterator(full.values.begin() + kept), std::make_move_iterator(full.values.end()));
    full.offsets.erase(full.offsets.begin() + kept, full.offsets.end());
    full.values.erase(full.values.begin() + kept, full.values.end());
    const std::uint64_t first = at_end ? offset : made.offsets.front();
    pages_.insert(pages_.begin() + static_cast<std::ptrdiff_t>(p) + 1, std::move(made));
    first_.insert(first_.begin() + static_cast<std::ptrdiff_t>(p) + 1, first);
    return offset < first ? p : p + 1;
  }
  /// Moves what the next page holds to the end of this one.
  void join(std::size_t p) {
    page& to = pages_[p];
    page& from = pages_[p + 1];
    to.offsets.insert(to.offsets.end(), from.offsets.begin(), from.offsets.end());
    to.values.append(std::make_move_iterator(from.values.begin()), std::make_move_iterator(from.values.end()));
    remove(p + 1);
  }
  void remove(std::size_t p) {
    pages_.erase(pages_.begin() + static_cast<std::ptrdiff_t>(p));
    first_.erase(first_.begin() + static_cast<std::ptrdiff_t>(p));
  }

  sequence<std::uint64_t> first_{};  // offset of each page
  sequence<page> pages_{};
  std::size_t size_ = 0;
};

}  // namespace detail
}  // namespace v0
}  // namespace deepum
