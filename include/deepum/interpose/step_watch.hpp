#pragma once

#include <deepum/core/block.hpp>
#include <deepum/core/json_text.hpp>
#include <deepum/core/launch.hpp>
#include <deepum/engine/device_event.hpp>
#include <deepum/units.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace deepum {
inline namespace v0 {
namespace interpose {

/// Watches an arena's events for the step that recurs: how long it takes, and, if wanted, what each of its launches
/// uses and how long it ran.
///
/// The policy says what recurs (`device_event::period`). Where addresses come back in every second step alone, that is
/// two steps: parts of one length that launch the same names in order, and begin by reading the same memory, count as
/// the steps. A step is timed from its first launch to that of the next one, as the program issues them, so that only
/// the mean of many means something.
///
/// Threads: `see` by one at a time, the rest any.
class step_watch {
 public:
  /// @param records  Keeps the launches of the last steps, for `workload`.
  explicit step_watch(bool records) : records_(records) {}

  /// An event, as the arena's observer gets it.
  /// @param now  Host time.
  void see(const device_event& e, nanoseconds now) {
    const std::lock_guard lock(mutex_);
    if (e.what == device_event::kind::launch_issued && e.record != nullptr) {
      issued(*e.record, e.period, now);
    } else if (e.what == device_event::kind::launch_finished && records_) {
      finished(e);
    }
  }

  /// Launches of the step that took the program the most time; 0 where none recurred.
  [[nodiscard]] std::uint32_t period() const {
    const std::lock_guard lock(mutex_);
    const found_step found = longest();
    return found.period / found.steps;
  }
  /// How long it takes: the median of the last ones. Nothing where none recurred.
  [[nodiscard]] std::optional<nanoseconds> step_time() const {
    const std::lock_guard lock(mutex_);
    const found_step found = longest();
    return found.period == 0 ? std::nullopt : std::optional<nanoseconds>(found.time / found.steps);
  }
  /// That step as a workload for `deepum-replay` (format 1, JSON Lines), in blocks. A launch has the least time that it
  /// took in the last steps, so that waiting for blocks is in it as little as can be. Nothing where no step recurred or
  /// nothing was recorded.
  /// @param name  Of the workload.
  [[nodiscard]] std::optional<std::string> workload(std::string_view name) const {
    const std::lock_guard lock(mutex_);
    const found_step found = longest();
    if (found.launches.empty()) {
      return std::nullopt;
    }
    // A tensor for each range of blocks that a launch uses as one.
    std::map<std::pair<std::uint32_t, std::uint32_t>, std::size_t> tensors;
    for (const launch& l : found.launches) {
      for (const block_access& each : l.accesses) {
        tensors.emplace(std::pair(each.range.first.value, each.range.count), 0);
      }
    }
    std::string out = "{\"deepum_workload\":1,\"name\":";
    deepum::detail::append_json_string(out, name);
    out += ",\"kernels\":" + std::to_string(found.period) + ",\"tensors\":" + std::to_string(tensors.size()) +
           ",\"source\":\"deepum-run --record\"}\n";
    std::size_t number = 0;
    for (auto& [range, tensor] : tensors) {
      tensor = number++;
      out += "{\"tensor\":" + std::to_string(tensor) + ",\"bytes\":" + std::to_string(range.second * block_size.count) +
             ",\"addr\":" + std::to_string(range.first * block_size.count) + ",\"persistent\":true}\n";
    }
    for (const launch& l : found.launches) {
      out += "{\"kernel\":";
      deepum::detail::append_json_string(out, l.name);
      out += ",\"ns\":" + std::to_string(l.duration.count());
      append_list(out, "in", l, tensors, [](access mode) { return mode != access::overwrite; });
      append_list(out, "out", l, tensors, [](access mode) { return mode != access::read; });
      out += "}\n";
    }
    return out;
  }

 private:
  struct launch {
    launch_id id{};
    std::string name{};
    std::vector<block_access> accesses{};
    nanoseconds duration{};
  };
  /// What is compared of a launch.
  struct shape {
    std::size_t name = 0;
    std::vector<block_access> accesses{};
  };
  /// A step that recurs, or did.
  struct found_step {
    std::uint32_t period = 0;
    std::uint32_t steps = 1;  ///< of the program, in a period
    nanoseconds time{};       ///< of a period
    nanoseconds all_time{};
    std::vector<launch> launches{};
  };
  static constexpr std::size_t most_times = 64;
  static constexpr std::size_t most_launches = std::size_t{1} << 17;
  static constexpr std::size_t kept_steps = 4;
  static constexpr std::uint32_t most_parts = 8;

  void issued(const launch_record& record, std::uint32_t period, nanoseconds now) {
    if (period != period_) {
      before_ = longest();
      period_ = period;
      steps_ = 0;
      step_times_.clear();
      counted_ = 0;
      parts_ = 1;
      first_period_.clear();
    } else if (period_ != 0 && ++counted_ == period_) {
      counted_ = 0;
      if (steps_ == 0) {
        parts_ = parts_of_period();
        first_period_ = {};
      }
      ++steps_;
      step_times_.push_back(now - began_);
      if (step_times_.size() > most_times) {
        step_times_.pop_front();
      }
    }
    if (counted_ == 0) {
      began_ = now;
      first_of_step_ = record.id;
    }
    if (period_ != 0 && steps_ == 0) {
      first_period_.push_back({std::hash<std::string>{}(record.name), record.accesses});
    }
    if (records_) {
      launches_.push_back({record.id, record.name, record.accesses, {}});
      const std::size_t kept = period_ == 0 ? most_launches : (kept_steps + 1) * std::size_t{period_};
      while (launches_.size() > kept) {
        launches_.pop_front();
      }
    }
  }
  /// How many steps of the program the first period was: the most parts that are alike.
  [[nodiscard]] std::uint32_t parts_of_period() const {
    std::uint32_t most = 1;
    for (std::uint32_t parts = 2; parts <= most_parts && first_period_.size() == period_; ++parts) {
      if (period_ % parts == 0 && alike(period_ / parts)) {
        most = parts;
      }
    }
    return most;
  }
  [[nodiscard]] bool alike(std::uint32_t length) const {
    bool moved = false;  // else the policy would have said that the part recurs
    for (std::size_t i = length; i < first_period_.size(); ++i) {
      if (first_period_[i].name != first_period_[i - length].name) {
        return false;
      }
      moved = moved || first_period_[i].accesses != first_period_[i - length].accesses;
    }
    // A loop over layers has the same names, too, but each layer reads parameters of its own.
    const std::set<std::uint32_t> first = read_first(0, length);
    bool same = moved && !first.empty();
    for (std::size_t from = length; same && from < first_period_.size(); from += length) {
      same = read_first(from, length) == first;
    }
    return same;
  }
  /// Ranges that the launches of a part read before any of them writes there, by their first block.
  [[nodiscard]] std::set<std::uint32_t> read_first(std::size_t from, std::uint32_t length) const {
    std::set<std::uint32_t> seen;
    std::set<std::uint32_t> read;
    for (std::size_t i = from; i != from + length; ++i) {
      for (const block_access& a : first_period_[i].accesses) {
        if (seen.insert(a.range.first.value).second && a.mode == access::read) {
          read.insert(a.range.first.value);
        }
      }
    }
    return read;
  }

  void finished(const device_event& e) {
    const nanoseconds began = std::max(e.began, last_end_);
    last_end_ = std::max(last_end_, e.at);
    const auto it = launch_at(e.launch);
    if (it != launches_.end() && it->id == e.launch) {
      it->duration = std::max(nanoseconds{1}, e.at - began - e.stalled);
    }
  }
  [[nodiscard]] std::deque<launch>::iterator launch_at(launch_id wanted) {
    return std::lower_bound(launches_.begin(), launches_.end(), wanted,
                            [](const launch& l, launch_id earlier) { return l.id < earlier; });
  }
  /// The step that recurs now.
  [[nodiscard]] found_step current() const {
    found_step found;
    if (step_times_.empty()) {
      return found;
    }
    std::vector<nanoseconds> sorted(step_times_.begin(), step_times_.end());
    const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2);
    std::nth_element(sorted.begin(), middle, sorted.end());
    found.period = period_;
    found.steps = parts_;
    found.time = *middle;
    found.all_time = *middle * static_cast<std::int64_t>(steps_);
    const auto end =
        static_cast<std::size_t>(std::lower_bound(launches_.begin(), launches_.end(), first_of_step_,
                                                  [](const launch& l, launch_id wanted) { return l.id < wanted; }) -
                                 launches_.begin());
    for (std::size_t i = end - std::min<std::size_t>(end, period_); end >= period_ && i < end; ++i) {
      found.launches.push_back(launches_[i]);
      for (std::size_t earlier = 1; earlier < kept_steps && i >= earlier * period_; ++earlier) {
        const launch& same = launches_[i - earlier * period_];
        nanoseconds& least = found.launches.back().duration;
        if (same.name == found.launches.back().name && same.duration.count() != 0) {
          least = least.count() == 0 ? same.duration : std::min(least, same.duration);
        }
      }
    }
    return found;
  }
  /// That, or the one before, whichever took the program more time.
  [[nodiscard]] found_step longest() const {
    found_step now = current();
    return before_.period == 0 || now.all_time > before_.all_time ? now : before_;
  }
  template <class Tensors, class Wanted>
  static void append_list(std::string& out, const char* name, const launch& l, const Tensors& tensors,
                          const Wanted& wanted) {
    out += std::string(",\"") + name + "\":[";
    std::vector<std::size_t> ids;
    for (const block_access& a : l.accesses) {
      if (wanted(a.mode)) {
        ids.push_back(tensors.at(std::pair(a.range.first.value, a.range.count)));
      }
    }
    std::sort(ids.begin(), ids.end());
    ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
    for (std::size_t i = 0; i < ids.size(); ++i) {
      out += (i == 0 ? "" : ",") + std::to_string(ids[i]);
    }
    out += "]";
  }

  const bool records_;
  mutable std::mutex mutex_;
  std::uint32_t period_ = 0;
  std::uint32_t counted_ = 0;  // launches of the step that is being issued
  std::uint64_t steps_ = 0;
  nanoseconds began_{};
  launch_id first_of_step_{};
  std::deque<nanoseconds> step_times_{};
  std::uint32_t parts_ = 1;  // of the period: steps of the program
  std::vector<shape> first_period_{};
  std::deque<launch> launches_{};
  nanoseconds last_end_{};
  found_step before_{};
};

}  // namespace interpose
}  // namespace v0
}  // namespace deepum
