#pragma once

#include <deepum/core/launch.hpp>
#include <deepum/core/sequence.hpp>
#include <deepum/units.hpp>

#include <algorithm>
#include <cstddef>

namespace deepum {
inline namespace v0 {
namespace detail {

/// A launch that is not given to the device yet.
struct held_launch {
  launch_id id{};
  nanoseconds since{};
  stream_id stream{};
  bool hold = false;           // an `arena::hold`
  std::size_t outer = 0;       // launches that it is made within: they do not finish before it has begun
  bool forced = false;         // the policy is not waited for any more
  bool faulted = false;        // memory that never faults: the policy knows what it misses
  bool unsatisfiable = false;  // memory that never faults: it will never begin
};

/// The launches that are held back, in the order in which they asked, and what in flight executes nothing.
class held_launches {
 public:
  using iterator = sequence<held_launch>::iterator;

  [[nodiscard]] iterator begin() { return held_.begin(); }
  [[nodiscard]] iterator end() { return held_.end(); }
  [[nodiscard]] bool empty() const { return held_.empty(); }
  [[nodiscard]] held_launch& front() { return held_.front(); }
  [[nodiscard]] iterator find(launch_id id) {
    return std::find_if(held_.begin(), held_.end(), [id](const held_launch& h) { return h.id == id; });
  }
  /// Launches in flight that execute nothing: those that are held back, those whose bodies are making one of these, and
  /// each `arena::hold` that has begun.
  [[nodiscard]] std::size_t not_executing() const { return held_.size() + outer_ + holds_; }
  /// Each `arena::hold` that has begun. It is in flight until the program says.
  [[nodiscard]] std::size_t holds() const { return holds_; }

  /// A launch was submitted, and counts as begun until it is held back.
  void submitted(const launch_record& record) { holds_ += record.hold ? 1 : 0; }
  /// A launch that had begun has finished.
  void finished(const launch_record& record) { holds_ -= record.hold ? 1 : 0; }
  /// A launch will not be given to the device now.
  void hold_back(const launch_record& record, nanoseconds now, std::size_t outer) {
    held_.push_back({.id = record.id, .since = now, .stream = record.stream, .hold = record.hold, .outer = outer});
    holds_ -= record.hold ? 1 : 0;
    outer_ += outer;
  }
  /// It is now.
  void start(iterator it) {
    holds_ += it->hold ? 1 : 0;
    take_back(it);
  }
  /// It will not be given to the device at all.
  void take_back(iterator it) {
    outer_ -= it->outer;
    held_.erase(it);
  }

 private:
  sequence<held_launch> held_{};
  std::size_t outer_ = 0;  // launches whose bodies are making one that is held back
  std::size_t holds_ = 0;
};

}  // namespace detail
}  // namespace v0
}  // namespace deepum
