#pragma once

#include "gpu/library/layered_step.hpp"
#include "replay/oracle.hpp"
#include <deepum/core/block.hpp>
#include <deepum/core/launch.hpp>
#include <deepum/core/live_bytes.hpp>
#include <deepum/core/range_allocator.hpp>
#include <deepum/cuda/check.hpp>
#include <deepum/error.hpp>
#include <deepum/planning/step_segments.hpp>
#include <deepum/units.hpp>

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

// What the system `oracle` is told before a step begins: all that its launches use, how long each runs where everything
// is resident, which contents are of no value when, and what the link delivers.
namespace deepum::gpu_bench {

/// The system whose policy is told each step beforehand. Only layered programs can tell.
inline constexpr const char* oracle_name = "oracle";

/// How long launches run: the median of what was measured of launches that do the same with tensors of the same sizes.
class launch_times {
 public:
  void add(const layered_step& s, std::size_t launch, nanoseconds time) { all_[key_of(s, launch)].push_back(time); }
  /// Nothing for a launch whose like has not been measured.
  [[nodiscard]] std::optional<nanoseconds> of(const layered_step& s, std::size_t launch) const {
    const auto found = all_.find(key_of(s, launch));
    if (found == all_.end()) {
      return std::nullopt;
    }
    std::vector<nanoseconds> times = found->second;
    const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
    std::nth_element(times.begin(), middle, times.end());
    return *middle;
  }
  [[nodiscard]] bool empty() const { return all_.empty(); }

 private:
  using key = std::tuple<work, std::int64_t, std::int64_t, std::int64_t, std::uint64_t>;
  static key key_of(const layered_step& s, std::size_t launch) {
    const layer_launch& l = s.launches[launch];
    return {l.what, l.rows, l.inputs, l.outputs, s.tensors[l.tensors[0]].element};
  }

  std::map<key, std::vector<nanoseconds>> all_{};
};

/// Takes the time of each launch of a step on one stream with an event before each and one behind the last.
///
/// Threads: one.
class launch_timer {
 public:
  /// @errors  `status::device_failure`.
  explicit launch_timer(std::size_t launches) : events_(launches + 1) {
    for (cudaEvent_t& e : events_) {
      cuda::check(cudaEventCreateWithFlags(&e, cudaEventDefault), "cudaEventCreateWithFlags");
    }
  }
  ~launch_timer() {
    for (const cudaEvent_t e : events_) {
      (void)cuda::succeeded(cudaEventDestroy(e));
    }
  }
  launch_timer(const launch_timer&) = delete;
  launch_timer& operator=(const launch_timer&) = delete;

  /// So many launches are enqueued.
  void mark(std::size_t launches, cudaStream_t q) {
    cuda::check(cudaEventRecord(events_[launches], q), "cudaEventRecord");
  }
  /// By launch. All of them have finished.
  [[nodiscard]] std::vector<nanoseconds> times() const {
    std::vector<nanoseconds> all;
    for (std::size_t i = 0; i + 1 < events_.size(); ++i) {
      float ms = 0;
      cuda::check(cudaEventElapsedTime(&ms, events_[i], events_[i + 1]), "cudaEventElapsedTime");
      all.emplace_back(static_cast<std::int64_t>(static_cast<double>(ms) * 1e6));
    }
    return all;
  }
  void add_to(launch_times& to, const layered_step& s) const {
    const std::vector<nanoseconds> all = times();
    for (std::size_t i = 0; i < all.size(); ++i) {
      to.add(s, i, all[i]);
    }
  }

 private:
  std::vector<cudaEvent_t> events_;
};

/// What is measured for an oracle before its run.
struct oracle_facts {
  launch_times times{};
  double in = 0;   ///< bytes a second that the link brings
  double out = 0;  ///< and that it takes away
};

/// After how many launches a step recurs: at most all of them. Cost: linear.
[[nodiscard]] inline std::size_t period_of(const std::vector<layer_launch>& launches) {
  if (launches.empty()) {
    return 0;
  }
  // The longest beginning that is an end too (Knuth, Morris, Pratt).
  std::vector<std::size_t> same(launches.size());
  for (std::size_t i = 1; i < launches.size(); ++i) {
    std::size_t k = same[i - 1];
    while (k != 0 && !(launches[k] == launches[i])) {
      k = same[k - 1];
    }
    same[i] = k + (launches[k] == launches[i] ? 1 : 0);
  }
  const std::size_t period = launches.size() - same.back();
  return launches.size() % period == 0 ? period : launches.size();
}

/// The blocks whose contents die as a whole after each launch of a step that is repeated, when an arena is told what is
/// of no value.
/// @param offsets  Of the tensors in the arena.
/// @param block    Of its memory.
[[nodiscard]] inline std::vector<std::vector<block_range>> last_uses_in(const std::vector<tensor>& tensors,
                                                                        const std::vector<bytes>& offsets,
                                                                        const unvalued& none, bytes block) {
  bytes end{};
  for (std::size_t t = 0; t < tensors.size(); ++t) {
    end = std::max(end, offsets[t] + range_allocator::rounded(tensors[t].size()));
  }
  live_bytes live(static_cast<std::uint32_t>(end / block) + 1, block_grid{block});
  std::vector<block_range> changed;
  for (std::size_t t = 0; t < tensors.size(); ++t) {
    live.allocate(offsets[t], range_allocator::rounded(tensors[t].size()), changed);
  }
  std::vector<std::vector<block_range>> last_uses;
  for (int round = 0; round < 2; ++round) {  // in the first one some are alive that are not when the step recurs
    last_uses.assign(none.after.size(), {});
    for (std::size_t i = 0; i < none.after.size(); ++i) {
      for (const std::uint32_t t : none.before[i]) {
        live.mark_active(offsets[t], tensors[t].size(), changed);
      }
      for (const std::uint32_t t : none.after[i]) {
        live.mark_inactive(offsets[t], tensors[t].size(), last_uses[i]);
      }
    }
  }
  return last_uses;
}

/// A step as an oracle is told it.
/// @param launches         The first ones, which recur.
/// @param uses             Called as `uses(launch)`: the blocks that a launch declares.
/// @param last_uses        By launch: blocks whose contents are of no use after it. Empty: there are none.
/// @param keeps_home_copy  The host's copy stays while contents are on the device, so that blocks which a launch
///                         overwrites need not come.
/// @errors                 `status::invalid_argument` where the time of a launch was not measured.
template <class Uses>
[[nodiscard]] step_description told_step(const layered_step& s, std::size_t launches, Uses&& uses,
                                         const std::vector<std::vector<block_range>>& last_uses,
                                         const launch_times& times, bool keeps_home_copy) {
  step_description step;
  for (std::size_t i = 0; i < launches; ++i) {
    const std::optional<nanoseconds> time = times.of(s, i);
    if (!time) {
      throw error(status::invalid_argument, "the oracle is told a launch whose time was not measured");
    }
    step.add_launch(*time);
    for (const block_access& use : uses(s.launches[i])) {
      step.add_use(use.range, use.mode == access::overwrite && !keeps_home_copy ? access::update : use.mode);
    }
    if (!last_uses.empty()) {
      for (const block_range& dead : last_uses[i]) {
        step.add_last_use(dead);
      }
    }
  }
  return step;
}

/// Time that a link needs for a block.
[[nodiscard]] inline nanoseconds time_of(bytes block, double rate) {
  return nanoseconds{static_cast<std::int64_t>(1e9 * static_cast<double>(block.count) / std::max(1.0, rate))};
}

}  // namespace deepum::gpu_bench
