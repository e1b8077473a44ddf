#pragma once

#include "absl/strings/str_cat.h"
#include "probe.hpp"
#include <deepum/cuda/check.hpp>
#include <deepum/cuda/driver_context.hpp>
#include <deepum/units.hpp>

#include <cuda_runtime_api.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

namespace deepum::driver_facts {

/// What the host pays for a launch and for an event behind it when the device has enough to do.
inline void launch_costs(probe& p) {
  constexpr int at_once = 400;  // the driver's queue has room for 1024
  constexpr int rounds = 5;
  const auto per_call = [&](auto&& call) {
    double seconds = 0;
    for (int r = 0; r < rounds; ++r) {
      p.settle();
      const stopwatch elapsed;
      for (int i = 0; i < at_once; ++i) {
        call(static_cast<std::size_t>(i));
      }
      seconds += elapsed();
    }
    p.settle();
    return 1e6 * seconds / (at_once * rounds);
  };
  std::deque<event> timed;
  std::deque<event> untimed;
  for (int i = 0; i < at_once; ++i) {
    timed.emplace_back(cudaEventDefault);
    untimed.emplace_back(cudaEventDisableTiming);
  }
  const auto nothing = [&] { probe::launch(p.work(), 1, 1, probe::kernels().nothing); };
  const auto untimed_end = [&](std::size_t i) { untimed[i].record(p.work()); };
  const auto timed_end = [&](std::size_t i) { timed[i].record(p.work()); };
  (void)per_call([&](std::size_t i) {  // the first calls of each kind set things up
    nothing();
    untimed_end(i);
    timed_end(i);
  });
  for (int r = 0; r < p.repeats(); ++r) {
    p.out().add("launch", "us", per_call([&](std::size_t) { nothing(); }));
    p.out().add("launch and event record without timing", "us", per_call([&](std::size_t i) {
                  nothing();
                  untimed_end(i);
                }));
    p.out().add("launch and event record with timing", "us", per_call([&](std::size_t i) {
                  nothing();
                  timed_end(i);
                }));
    p.out().add("event record without timing, alone", "us", per_call(untimed_end));
    p.out().add("event record with timing, alone", "us", per_call(timed_end));
  }
}

/// How fine the times of events are.
inline void event_times(probe& p) {
  std::deque<event> events;
  for (int i = 0; i < 200; ++i) {
    events.emplace_back(cudaEventDefault);
  }
  for (int r = 0; r < p.repeats(); ++r) {
    for (const event& e : events) {
      e.record(p.work());
    }
    p.work().wait();
    std::vector<std::int64_t> steps;
    std::vector<double> distances;
    for (std::size_t i = 1; i < events.size(); ++i) {
      steps.push_back(events[i].since(events[i - 1]));
      distances.push_back(static_cast<double>(steps.back()));
    }
    std::sort(steps.begin(), steps.end());
    std::int64_t finest = 0;
    for (std::size_t i = 1; i < steps.size(); ++i) {
      const std::int64_t difference = steps[i] - steps[i - 1];
      // Floats of milliseconds are off by a nanosecond or so.
      if (difference > 2 && (finest == 0 || difference < finest)) {
        finest = difference;
      }
    }
    p.out().add("resolution: least difference between two distances", "ns", static_cast<double>(finest));
    p.out().add("distance of two events recorded one behind the other", "ns", quantile(distances, 0.5));
  }
}

/// Launches, each waited for, while memory moves.
class launches_beside {
 public:
  explicit launches_beside(probe& p) : p_(p) {}

  /// The end of a launch, with an event behind it as the library records one, until `more` says no.
  template <class More>
  void go_on_while(More&& more) {
    const event behind(cudaEventDisableTiming);
    const stopwatch all;
    do {
      const stopwatch elapsed;
      probe::launch(p_.work(), 1, 1, probe::kernels().nothing);
      launch_.push_back(1e6 * elapsed());
      behind.record(p_.work());
      p_.work().wait();
      synchronised_.push_back(1e6 * elapsed());
    } while (more());
    seconds_ += all();
  }
  /// @param beside  Name of what went on meanwhile.
  void add_to(report& out, const std::string& beside) const {
    const auto three = [&](const std::string& what, const std::vector<double>& us) {
      out.add(absl::StrCat("beside ", beside, ": ", what, ", p50"), "us", quantile(us, 0.5));
      out.add(absl::StrCat("beside ", beside, ": ", what, ", p99"), "us", quantile(us, 0.99));
      out.add(absl::StrCat("beside ", beside, ": ", what, ", max"), "us", quantile(us, 1));
    };
    three("launch", launch_);
    three("launch to synchronised", synchronised_);
    out.add(absl::StrCat("beside ", beside, ": launches"), "1/s", static_cast<double>(launch_.size()) / seconds_);
  }

 private:
  probe& p_;
  std::vector<double> launch_{};
  std::vector<double> synchronised_{};
  double seconds_ = 0;
};

inline void launches_beside_moves(probe& p, const cuda::driver_context* own) {
  constexpr bytes piece = 64_MiB;
  constexpr int passes = 3;
  for (int r = 0; r < p.repeats(); ++r) {
    launches_beside alone(p);
    const stopwatch elapsed;
    alone.go_on_while([&] { return elapsed() < 0.2; });
    alone.add_to(p.out(), "nothing");
  }
  region& moving = p.a();
  for (const cuda::driver_context* context : contexts(own)) {
    const std::string where = context == nullptr ? " in the same context" : " in their own context";
    for (int r = 0; r < p.repeats(); ++r) {
      launches_beside evictions(p);
      launches_beside prefetches(p);
      for (int i = 0; i < passes; ++i) {
        p.settle_in(moving);
        p.write(moving);
        p.settle();
        for (const bool inward : {false, true}) {
          std::atomic<bool> go{false};
          worker mover(p.ordinal(), context, go, [&](cudaStream_t q) {
            for (bytes at{}; at < moving.size(); at += piece) {
              const region part = moving.part(at, piece);
              inward ? p.in(part, piece, q) : p.out(part, piece, q);
              cuda::check(cudaStreamSynchronize(q), "cudaStreamSynchronize");
            }
          });
          go = true;
          (inward ? prefetches : evictions).go_on_while([&] { return !mover.done(); });
          (void)mover.seconds();
        }
        p.verify(moving, "moves beside launches");
      }
      evictions.add_to(p.out(), absl::StrCat("evictions", where));
      prefetches.add_to(p.out(), absl::StrCat("prefetches", where));
    }
  }
}

/// Device memory and time of a context.
inline void context_costs(probe& p) {
  for (int r = 0; r < p.repeats(); ++r) {
    const double before = free_mib();
    const stopwatch elapsed;
    const cuda::driver_context one(p.ordinal());
    const double seconds = elapsed();
    if (!one.exists()) {
      p.out().leave_out("the driver gives no further context");
      return;
    }
    p.out().add("device memory that a further context takes", "MiB", before - free_mib());
    p.out().add("time to make one", "ms", 1e3 * seconds);
  }
}

}  // namespace deepum::driver_facts
