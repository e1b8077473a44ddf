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
#include <map>
#include <mutex>
#include <optional>
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
/// The policy says what recurs (`device_event::period`). A step is timed from its first launch to that of the next one,
/// as the program issues them, so that only the mean of many means something.
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

  /// Launches of a step; 0 where none recurs, or has not for long enough.
  [[nodiscard]] std::uint32_t period() const {
    const std::lock_guard lock(mutex_);
    return step_times_.empty() ? 0 : period_;
  }
  /// How long a step takes: the median of the last ones. Nothing where none recurs.
  [[nodiscard]] std::optional<nanoseconds> step_time() const {
    const std::lock_guard lock(mutex_);
    if (step_times_.empty()) {
      return std::nullopt;
    }
    std::vector<nanoseconds> sorted(step_times_.begin(), step_times_.end());
    const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2);
    std::nth_element(sorted.begin(), middle, sorted.end());
    return *middle;
  }
  /// The last whole step as a workload for `deepum-replay` (format 1, JSON Lines), in blocks. Nothing where no step
  /// recurs or nothing was recorded.
  /// @param name  Of the workload.
  [[nodiscard]] std::optional<std::string> workload(std::string_view name) const {
    const std::lock_guard lock(mutex_);
    if (step_times_.empty() || launches_.size() < period_) {
      return std::nullopt;
    }
    // A tensor for each range of blocks that a launch uses as one.
    std::map<std::pair<std::uint32_t, std::uint32_t>, std::size_t> tensors;
    const auto first = launches_.end() - static_cast<std::ptrdiff_t>(period_);
    for (auto l = first; l != launches_.end(); ++l) {
      for (const block_access& a : l->accesses) {
        tensors.emplace(std::pair(a.range.first.value, a.range.count), 0);
      }
    }
    std::string out = "{\"deepum_workload\":1,\"name\":";
    deepum::detail::append_json_string(out, name);
    out += ",\"kernels\":" + std::to_string(period_) + ",\"tensors\":" + std::to_string(tensors.size()) +
           ",\"source\":\"deepum-run --record\"}\n";
    std::size_t number = 0;
    for (auto& [range, id] : tensors) {
      id = number++;
      out += "{\"tensor\":" + std::to_string(id) + ",\"bytes\":" + std::to_string(range.second * block_size.count) +
             ",\"addr\":" + std::to_string(range.first * block_size.count) + ",\"persistent\":true}\n";
    }
    for (auto l = first; l != launches_.end(); ++l) {
      out += "{\"kernel\":";
      deepum::detail::append_json_string(out, l->name);
      out += ",\"ns\":" + std::to_string(l->duration.count());
      append_list(out, "in", *l, tensors, [](access mode) { return mode != access::overwrite; });
      append_list(out, "out", *l, tensors, [](access mode) { return mode != access::read; });
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
  static constexpr std::size_t most_times = 64;
  static constexpr std::size_t most_launches = std::size_t{1} << 17;

  void issued(const launch_record& record, std::uint32_t period, nanoseconds now) {
    if (period != period_) {
      period_ = period;
      step_times_.clear();
      counted_ = 0;
    } else if (period_ != 0 && ++counted_ == period_) {
      counted_ = 0;
      step_times_.push_back(now - began_);
      if (step_times_.size() > most_times) {
        step_times_.pop_front();
      }
    }
    if (counted_ == 0) {
      began_ = now;
    }
    if (records_) {
      launches_.push_back({record.id, record.name, record.accesses, {}});
      const std::size_t kept = period_ == 0 ? most_launches : 3 * std::size_t{period_};
      while (launches_.size() > kept) {
        launches_.pop_front();
      }
    }
  }
  void finished(const device_event& e) {
    const nanoseconds began = std::max(e.began, last_end_);
    last_end_ = std::max(last_end_, e.at);
    const auto it = std::lower_bound(launches_.begin(), launches_.end(), e.launch,
                                     [](const launch& l, launch_id wanted) { return l.id < wanted; });
    if (it != launches_.end() && it->id == e.launch) {
      it->duration = std::max(nanoseconds{}, e.at - began - e.stalled);
    }
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
  std::uint32_t counted_ = 0;
  nanoseconds began_{};
  std::deque<nanoseconds> step_times_{};
  std::deque<launch> launches_{};
  nanoseconds last_end_{};
};

}  // namespace interpose
}  // namespace v0
}  // namespace deepum
