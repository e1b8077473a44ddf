#pragma once

#include <deepum/core/launch.hpp>
#include <deepum/units.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <optional>
#include <utility>
#include <vector>

namespace deepum {
inline namespace v0 {

/// The launches in flight, stream by stream, and which of them was executing when something happened.
///
/// Launches of a stream execute in order, so the oldest unfinished one of each stream is taken to be executing. Not
/// synchronised: the engine calls it under its state lock.
class launch_tracker {
 public:
  void open(stream_id s) { (void)at(s); }
  /// Forgets a stream's history, as soon as its last launch is known to have finished.
  void close(stream_id s) {
    at(s).closed = true;
    forget_if_over(at(s));
  }

  /// A launch was issued. Numbers grow from call to call.
  /// @returns  The record where it is kept until the launch finishes.
  const launch_record& issue(launch_record record) {
    last_ = record.id;
    ++in_flight_;
    if (!record.complete) {
      incomplete_.push_back(record.id.value);
    }
    auto& launches = at(record.stream).launches;
    launches.push_back(std::move(record));
    return launches.back();
  }

  /// A launch finished.
  /// @param began, when  On the device clock; `began` is 0 where it is not known.
  /// @param timed        `when` is when it finished. Else it had finished by then, and no fault is said to be its.
  /// @returns            Its record; nothing where the launch is not in flight.
  [[nodiscard]] std::optional<launch_record> finish(launch_id id, nanoseconds began, nanoseconds when,
                                                    bool timed = true) {
    for (one_stream& s : streams_) {
      const auto it = std::lower_bound(s.launches.begin(), s.launches.end(), id,
                                       [](const launch_record& r, launch_id wanted) { return r.id < wanted; });
      if (it == s.launches.end() || it->id != id) {
        continue;
      }
      launch_record record = std::move(*it);
      s.launches.erase(it);
      s.remember({timed ? id : launch_id{}, began, when});
      --in_flight_;
      if (!record.complete) {
        incomplete_.erase(std::lower_bound(incomplete_.begin(), incomplete_.end(), id.value));
      }
      forget_if_over(s);
      return record;
    }
    return std::nullopt;
  }

  /// The launch that was executing at a time on the device clock; invalid where none was, or more than one may have
  /// been.
  ///
  /// Fault feeds deliver late: a time before the last finish of a stream belongs to one of its finished launches, of
  /// which the last few are remembered.
  [[nodiscard]] launch_id executing_at(nanoseconds when) const {
    launch_id found{};
    for (const one_stream& s : streams_) {
      const std::optional<launch_id> here = s.executing_at(when);
      if (!here || (here->valid() && found.valid())) {
        return {};
      }
      found = here->valid() ? *here : found;
    }
    return found;
  }

  /// A launch in flight; nullptr where it is not.
  [[nodiscard]] const launch_record* find(launch_id id, stream_id stream) const {
    if (stream.value >= streams_.size()) {
      return nullptr;
    }
    const auto& launches = streams_[stream.value].launches;
    const auto it = std::lower_bound(launches.begin(), launches.end(), id,
                                     [](const launch_record& r, launch_id wanted) { return r.id < wanted; });
    return it != launches.end() && it->id == id ? &*it : nullptr;
  }
  /// Whether a launch that is executing now declares the block.
  [[nodiscard]] bool executing_on(block_id b) const {
    return std::any_of(streams_.begin(), streams_.end(), [b](const one_stream& s) {
      return !s.launches.empty() && std::any_of(s.launches.front().accesses.begin(), s.launches.front().accesses.end(),
                                                [b](const block_access& a) { return a.range.contains(b); });
    });
  }

  [[nodiscard]] bool empty() const { return in_flight_ == 0; }
  [[nodiscard]] std::size_t in_flight() const { return in_flight_; }
  /// Whether a launch up to this one is in flight that may touch blocks it does not declare.
  [[nodiscard]] bool incomplete_up_to(launch_id last) const {
    return !incomplete_.empty() && incomplete_.front() <= last.value;
  }
  /// All launches up to this one have finished. Holds do not count: they use no memory themselves.
  [[nodiscard]] launch_id finished_up_to() const {
    launch_id up_to = last_;
    for (const one_stream& s : streams_) {
      if (!s.launches.empty() && !s.launches.front().hold) {
        up_to = std::min(up_to, launch_id{s.launches.front().id.value - 1});
      }
    }
    return up_to;
  }
  /// The launch that was issued last.
  [[nodiscard]] launch_id last() const { return last_; }

 private:
  struct finished_launch {
    launch_id id{};  // invalid: not timed
    nanoseconds began{};
    nanoseconds at{};
  };
  struct one_stream {
    static constexpr std::size_t history = 1024;  // launches that a late fault may still belong to

    std::deque<launch_record> launches{};
    std::vector<finished_launch> finished{};  // ring of `history`
    std::size_t count = 0;                    // finished launches so far
    bool closed = false;

    void remember(finished_launch f) {
      if (finished.size() < history) {
        finished.push_back(f);
        ++count;
      } else {
        finished[count++ % history] = f;
      }
    }

    /// The launch that was executing, invalid where none was; nothing where that is not known.
    [[nodiscard]] std::optional<launch_id> executing_at(nanoseconds when) const {
      if (count == 0 || when >= finished[(count - 1) % history].at) {
        return launches.empty() ? launch_id{} : launches.front().id;
      }
      std::size_t i = count - finished.size();  // after the loop: the launch that finished next after that time
      for (std::size_t end = count - 1; i != end;) {
        const std::size_t middle = i + (end - i) / 2;
        if (finished[middle % history].at > when) {
          end = middle;
        } else {
          i = middle + 1;
        }
      }
      if (count - i == history) {
        return std::nullopt;  // longer ago than is remembered
      }
      const finished_launch& next = finished[i % history];
      if (!next.id.valid()) {
        return std::nullopt;
      }
      return when < next.began ? launch_id{} : next.id;
    }
  };

  static void forget_if_over(one_stream& s) {
    if (s.closed && s.launches.empty()) {
      s = {};
    }
  }
  one_stream& at(stream_id s) {
    if (s.value >= streams_.size()) {
      streams_.resize(static_cast<std::size_t>(s.value) + 1);
    }
    return streams_[s.value];
  }

  std::deque<one_stream> streams_{};
  std::deque<std::uint64_t> incomplete_{};  // numbers of the launches in flight that are not complete, ascending
  std::size_t in_flight_ = 0;
  launch_id last_{};
};

}  // namespace v0
}  // namespace deepum
