#pragma once

#include <deepum/core/block.hpp>
#include <deepum/core/launch.hpp>
#include <deepum/core/range_allocator.hpp>
#include <deepum/error.hpp>
#include <deepum/units.hpp>

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

namespace deepum {
inline namespace v0 {
namespace detail {

/// Ranges that were given back in the order of a stream: that stream may use them again at once, whoever else after the
/// launches that were issued before (docs/adr/0018).
///
/// Each stream keeps what it got, and looks there first. So the addresses that it gets depend on its own calls alone,
/// not on when launches end: a step that recurs gets the same ones. Small ranges lie in blocks of their own, since one
/// that lives on in a large range's last block would keep that from being given up.
///
/// Not synchronised. Cost: that of a `range_allocator`.
class stream_gaps {
 public:
  /// @param reach, unit  The capacity and the unit of the `range_allocator` that ranges come from.
  stream_gaps(bytes reach, bytes unit) : capacity_(reach), unit_(unit) {}

  /// A range of what a stream keeps, for a launch of that stream. Nothing where no gap is large enough.
  [[nodiscard]] std::optional<bytes> try_allocate(stream_id on, bytes size, bytes alignment) {
    const auto it = kept_.find(on.value);
    return it == kept_.end() ? std::nullopt : it->second.of(is_small(size)).try_allocate(size, alignment);
  }
  /// What to ask everyone's space for, where a stream has no room for so many bytes: whole blocks.
  [[nodiscard]] bytes wanted_for(bytes size) const { return unit_ * ((size.count + unit_.count - 1) / unit_.count); }
  /// Whether a range lies among small ones.
  [[nodiscard]] bool is_small(bytes size) const { return size < bytes{unit_.count / 2}; }

  /// A stream keeps a range from now on.
  /// @param size  Of what was allocated there, which may have been rounded up.
  /// @param last  The last launch that may use it.
  void keep(stream_id on, bytes offset, bytes size, bool small, launch_id last) {
    auto it = kept_.find(on.value);
    if (it == kept_.end()) {
      it = kept_.emplace(on.value, gaps(capacity_, unit_)).first;
    }
    it->second.of(small).release(offset, size);
    it->second.last = std::max(it->second.last, last);
  }
  /// A stream ends: what it keeps is anyone's when the launches before have ended.
  void retire(stream_id on) {
    if (const auto it = kept_.find(on.value); it != kept_.end()) {
      retired_.push_back(std::move(it->second));
      kept_.erase(it);
    }
  }

  /// The launch after which all that is kept could be anyone's; nothing where nothing is kept.
  [[nodiscard]] std::optional<launch_id> last() const {
    std::optional<launch_id> found;
    const auto look = [&](const gaps& g) {
      if (g.free().count != 0) {
        found = std::max(found.value_or(g.last), g.last);
      }
    };
    for (const auto& [stream, g] : kept_) {
      look(g);
    }
    for (const gaps& g : retired_) {
      look(g);
    }
    return found;
  }
  /// Whether a stream has ended and left something behind. Cost: constant.
  [[nodiscard]] bool any_retired() const { return !retired_.empty(); }
  /// Takes away what no launch uses any more: of streams that have ended, or of all.
  /// @param taken  (offset, size, last launch that could use it).
  template <class Taken>
  void take(launch_id finished_up_to, bool of_all, Taken&& taken) {
    const auto empty = [&](gaps& there) {
      if (there.last <= finished_up_to) {
        const auto each = [&](bytes begin, bytes extent) { taken(begin, extent, there.last); };
        there.small.take_all(each);
        there.large.take_all(each);
      }
      return there.free().count == 0;
    };
    for (auto it = kept_.begin(); of_all && it != kept_.end();) {
      it = empty(it->second) ? kept_.erase(it) : std::next(it);
    }
    retired_.erase(std::remove_if(retired_.begin(), retired_.end(), empty), retired_.end());
  }

 private:
  struct gaps {
    gaps(bytes reach, bytes unit)
        : small(range_allocator::without_any(reach, unit)),
          large(range_allocator::without_any(reach, unit)) {}
    [[nodiscard]] range_allocator& of(bool is_small) { return is_small ? small : large; }
    [[nodiscard]] bytes free() const { return small.free() + large.free(); }

    range_allocator small;
    range_allocator large;
    launch_id last{};
  };

  bytes capacity_;
  bytes unit_;
  std::map<std::uint32_t, gaps> kept_{};
  std::vector<gaps> retired_{};
};

}  // namespace detail
}  // namespace v0
}  // namespace deepum
