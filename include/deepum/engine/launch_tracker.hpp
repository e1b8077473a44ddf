#pragma once

#include <deepum/core/block.hpp>
#include <deepum/core/fifo.hpp>
#include <deepum/core/launch.hpp>
#include <deepum/core/sequence.hpp>
#include <deepum/units.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <set>
#include <utility>

namespace deepum {
inline namespace v0 {

/// The launches in flight, stream by stream, and which of them was executing when something happened.
///
/// Launches of a stream execute in order, so the oldest unfinished one of each stream is taken to be executing. The
/// number of a closed stream may be opened again: launches have numbers of their own, so that a late fault of the old
/// stream's launches is never taken for one of the new stream's.
///
/// Not synchronised: the engine calls it under its state lock. Cost: no call walks streams that have no launch in
/// flight and had none at the time it is asked about.
class launch_tracker {
 public:
  void open(stream_id s) { at(s).closed = false; }
  /// No more launches come. Few of its finished launches are remembered from now on.
  void close(stream_id s) {
    one_stream& closing = at(s);
    closing.closed = true;
    closing.keep(closing.launches.empty() ? history_of_closed : history);
  }
  /// The stream is closed and its launches have finished, so that its number may mean another one.
  [[nodiscard]] bool over(stream_id s) const {
    return s.value < streams_.size() && streams_[s.value].closed && streams_[s.value].launches.empty();
  }

  /// A launch was issued. Numbers grow from call to call.
  /// @returns  The record where it is kept until the launch finishes.
  const launch_record& issue(launch_record record) {
    last_ = record.id;
    (record.hold ? holds_ : in_flight_).push_back({record.id, record.stream});
    uploads_ += record.upload ? 1 : 0;
    if (!record.complete) {
      incomplete_.push_back(record.id.value);
    }
    one_stream& s = at(record.stream);
    if (s.launches.empty()) {
      begin_work(record.stream);
    }
    s.launches.push_back(std::move(record));
    return s.launches.back();
  }

  /// A launch finished.
  /// @param began, when  On the device clock; `began` is 0 where it is not known.
  /// @param timed        `when` is when it finished. Else it had finished by then, and no fault is said to be its.
  /// @returns            Its record; nothing where the launch is not in flight.
  [[nodiscard]] std::optional<launch_record> finish(launch_id id, nanoseconds began, nanoseconds when,
                                                    bool timed = true) {
    std::optional<stream_id> stream = take(in_flight_, id);
    if (!stream) {
      stream = take(holds_, id);
    }
    if (!stream) {
      return std::nullopt;
    }
    one_stream& s = at(*stream);
    const auto it = find_in(s.launches, id);
    launch_record record = std::move(*it);
    s.launches.erase(it);
    uploads_ -= record.upload ? 1 : 0;
    if (!record.hold && !record.upload) {  // one executes nothing
      s.finished.push_back({timed ? id : launch_id{}, began, when});
    }
    s.keep(s.closed && s.launches.empty() ? history_of_closed : history);
    if (!record.complete) {
      incomplete_.erase(std::lower_bound(incomplete_.begin(), incomplete_.end(), id.value));
    }
    if (s.launches.empty()) {
      end_work(*stream);
    }
    return record;
  }

  /// The launch that was executing at a time on the device clock; invalid where none was, or more than one may have
  /// been.
  ///
  /// Fault feeds deliver late: a time before the last finish of a stream belongs to one of its finished launches, of
  /// which the last few are remembered.
  [[nodiscard]] launch_id executing_at(nanoseconds when) const {
    launch_id found{};
    const auto only = [&](std::uint16_t s) {
      ++streams_visited_;
      const std::optional<launch_id> here = streams_[s].executing_at(when);
      if (!here || (here->valid() && found.valid())) {
        return false;
      }
      found = here->valid() ? *here : found;
      return true;
    };
    for (const std::uint16_t s : busy_) {
      if (!only(s)) {
        return {};
      }
    }
    for (auto idle = idle_since_.rbegin(); idle != idle_since_.rend() && idle->first > when; ++idle) {
      if (!only(idle->second)) {
        return {};
      }
    }
    return found;
  }

  /// A launch in flight; nullptr where it is not.
  [[nodiscard]] const launch_record* find(launch_id id, stream_id stream) const {
    if (stream.value >= streams_.size()) {
      return nullptr;
    }
    const auto& launches = streams_[stream.value].launches;
    const auto it = find_in(launches, id);
    return it != launches.end() && it->id == id ? &*it : nullptr;
  }
  /// Whether a launch that is executing now declares the block. Holds execute nothing.
  [[nodiscard]] bool executing_on(block_id b) const {
    return std::any_of(busy_.begin(), busy_.end(), [&](std::uint16_t s) {
      ++streams_visited_;
      const launch_record& front = streams_[s].launches.front();
      return !front.hold && !front.upload &&
             std::any_of(front.accesses.begin(), front.accesses.end(),
                         [b](const block_access& a) { return a.range.contains(b); });
    });
  }

  /// Whether an `arena::hold` declares the block.
  [[nodiscard]] bool held_on(block_id b) const {
    return std::any_of(holds_.begin(), holds_.end(), [&](const in_flight_launch& h) {
      const launch_record* record = find(h.id, h.stream);
      return std::any_of(record->accesses.begin(), record->accesses.end(),
                         [b](const block_access& a) { return a.range.contains(b); });
    });
  }

  /// Each `arena::hold` that declares the block.
  [[nodiscard]] std::uint32_t holds_on(block_id b) const {
    std::uint32_t found = 0;
    for (const in_flight_launch& h : holds_) {
      for (const block_access& a : find(h.id, h.stream)->accesses) {
        found += a.range.contains(b) ? 1 : 0;
      }
    }
    return found;
  }

  [[nodiscard]] bool empty() const { return in_flight() == 0; }
  /// Uploads in flight, which execute nothing.
  [[nodiscard]] std::size_t uploads() const { return uploads_; }
  [[nodiscard]] std::size_t in_flight() const { return in_flight_.size() + holds_.size(); }
  /// Whether a launch up to this one is in flight that may touch blocks it does not declare.
  [[nodiscard]] bool incomplete_up_to(launch_id last) const {
    return !incomplete_.empty() && incomplete_.front() <= last.value;
  }
  /// Whether a launch is in flight that may touch blocks it does not declare.
  [[nodiscard]] bool incomplete_in_flight() const { return !incomplete_.empty(); }
  /// All launches up to this one have finished. Holds do not count: they use no memory themselves.
  [[nodiscard]] launch_id finished_up_to() const {
    return in_flight_.empty() ? last_ : launch_id{in_flight_.front().id.value - 1};
  }
  /// The launch that was issued last.
  [[nodiscard]] launch_id last() const { return last_; }
  /// Streams that all calls so far have looked at, beside those that they name: what they cost.
  [[nodiscard]] std::uint64_t streams_visited() const { return streams_visited_; }

 private:
  static constexpr std::size_t history = 1024;          // launches of a stream that a late fault may still belong to
  static constexpr std::size_t history_of_closed = 16;  // of one that is closed

  struct in_flight_launch {
    launch_id id{};
    stream_id stream{};
  };
  struct finished_launch {
    launch_id id{};  // invalid: not timed
    nanoseconds began{};
    nanoseconds at{};
  };
  struct one_stream {
    std::deque<launch_record> launches{};
    fifo<finished_launch> finished{};  // the last ones
    bool forgotten = false;            // there were more
    bool closed = false;
    std::size_t place = 0;  // in `busy_`, while launches are in flight

    void keep(std::size_t most) {
      while (finished.size() > most) {
        finished.pop_front();
        forgotten = true;
      }
    }

    /// The launch that was executing, invalid where none was; nothing where that is not known.
    [[nodiscard]] std::optional<launch_id> executing_at(nanoseconds when) const {
      if (finished.empty() || when >= finished.back().at) {
        return launches.empty() || launches.front().hold || launches.front().upload ? launch_id{} : launches.front().id;
      }
      const auto next = std::upper_bound(finished.begin(), finished.end(), when,
                                         [](nanoseconds time, const finished_launch& f) { return time < f.at; });
      if (next == finished.begin() && (forgotten || finished.size() == history)) {
        return std::nullopt;  // longer ago than is remembered
      }
      if (!next->id.valid()) {
        return std::nullopt;
      }
      return when < next->began ? launch_id{} : next->id;
    }
  };

  template <class Launches>
  static auto find_in(Launches& launches, launch_id id) -> decltype(launches.begin()) {
    return std::lower_bound(launches.begin(), launches.end(), id,
                            [](const launch_record& kept, launch_id wanted) { return kept.id < wanted; });
  }
  // Where a launch is in flight; it is not any more.
  [[nodiscard]] static std::optional<stream_id> take(fifo<in_flight_launch>& launches, launch_id id) {
    const auto it = std::lower_bound(launches.begin(), launches.end(), id,
                                     [](const in_flight_launch& f, launch_id wanted) { return f.id < wanted; });
    if (it == launches.end() || it->id != id) {
      return std::nullopt;
    }
    const stream_id stream = it->stream;
    launches.erase(it);
    return stream;
  }
  one_stream& at(stream_id s) {
    if (s.value >= streams_.size()) {
      streams_.resize(static_cast<std::size_t>(s.value) + 1);
    }
    return streams_[s.value];
  }

  // From a stream's first launch in flight to the end of its last one it is in `busy_`, then in `idle_since_`.
  void begin_work(stream_id stream) {
    one_stream& s = streams_[stream.value];
    if (!s.finished.empty()) {
      idle_since_.erase({s.finished.back().at, stream.value});
    }
    s.place = busy_.size();
    busy_.push_back(stream.value);
  }
  void end_work(stream_id stream) {
    one_stream& s = streams_[stream.value];
    if (!s.finished.empty()) {
      idle_since_.emplace(s.finished.back().at, stream.value);
    }
    streams_[busy_.back()].place = s.place;
    busy_[s.place] = busy_.back();
    busy_.pop_back();
  }

  std::deque<one_stream> streams_{};
  fifo<in_flight_launch> in_flight_{};                            // ascending; without holds
  fifo<in_flight_launch> holds_{};                                // ascending
  sequence<std::uint16_t> busy_{};                                // streams with launches in flight
  std::set<std::pair<nanoseconds, std::uint16_t>> idle_since_{};  // the others: when their last launch finished
  fifo<std::uint64_t> incomplete_{};  // numbers of the launches in flight that are not complete, ascending
  std::size_t uploads_ = 0;
  launch_id last_{};
  mutable std::uint64_t streams_visited_ = 0;
};

}  // namespace v0
}  // namespace deepum
