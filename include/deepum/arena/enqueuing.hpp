#pragma once

#include <deepum/core/launch.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

namespace deepum {
inline namespace v0 {
namespace detail {

/// While it lives, this thread is enqueuing what belongs to a launch: nothing that it does meanwhile may wait for that
/// launch. They nest.
class enqueuing {
 public:
  /// @param holder  The arena of the launch.
  enqueuing(const void* holder, launch_id which, stream_id on)
      : owner_(holder),
        id_(which),
        stream_(on),
        outer_(innermost()) {
    innermost() = this;
  }
  ~enqueuing() { innermost() = outer_; }
  enqueuing(const enqueuing&) = delete;
  enqueuing& operator=(const enqueuing&) = delete;

  /// The oldest launch that this thread is enqueuing for an arena; one that never comes where it is none.
  [[nodiscard]] static launch_id oldest(const void* owner) {
    launch_id found{std::numeric_limits<std::uint64_t>::max()};
    for (const enqueuing* e = innermost(); e != nullptr; e = e->outer_) {
      found = e->owner_ == owner && e->id_.valid() ? std::min(found, e->id_) : found;
    }
    return found;
  }
  /// How many they are.
  [[nodiscard]] static std::size_t count(const void* owner) {
    std::size_t found = 0;
    for (const enqueuing* e = innermost(); e != nullptr; e = e->outer_) {
      found += e->owner_ == owner && e->id_.valid() ? 1 : 0;
    }
    return found;
  }

  /// Those that this thread is enqueuing for an arena.
  [[nodiscard]] static std::vector<std::pair<launch_id, stream_id>> all(const void* owner) {
    std::vector<std::pair<launch_id, stream_id>> found;
    for (const enqueuing* e = innermost(); e != nullptr; e = e->outer_) {
      if (e->owner_ == owner && e->id_.valid()) {
        found.emplace_back(e->id_, e->stream_);
      }
    }
    return found;
  }

 private:
  static const enqueuing*& innermost() {
    thread_local const enqueuing* current = nullptr;
    return current;
  }
  const void* owner_;
  launch_id id_;
  stream_id stream_;
  const enqueuing* outer_;
};

}  // namespace detail
}  // namespace v0
}  // namespace deepum
