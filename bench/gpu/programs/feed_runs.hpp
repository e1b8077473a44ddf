#pragma once

#include "absl/strings/str_format.h"
#include "gpu/library/bench_system.hpp"
#include "gpu/library/kernels.hpp"
#include "nlohmann/json.hpp"
#include <deepum/cuda/faults/cupti_fault_feed.hpp>
#include <deepum/cuda/faults/driver_fault_feed.hpp>
#include <deepum/cuda/faults/uvm_events.hpp>
#include <deepum/error.hpp>
#include <deepum/units.hpp>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace deepum::gpu_bench {

/// What a feed of page faults costs: the time of demand paging with it, and what it loses.
struct feed_cost {
  std::string feed{};
  std::string skipped{};
  std::vector<double> ms{};  ///< of a kernel that reads everything from the host, by attempt
  std::uint64_t faults = 0;  ///< that the library was told of, in all attempts
  std::uint64_t lost = 0;
  nlohmann::ordered_json counts = nlohmann::ordered_json::object();  ///< of the reader of the driver's events, the last
};

/// The feeds take turns, round by round, so that a processor that is slower for a while is so for all of them: the
/// driver serves faults on it. Each turn has an arena of its own, because a feed costs all faults of its process.
class feed_runs {
 public:
  /// @param size  Memory that faults.
  feed_runs(const bench_settings& settings, bytes size) : settings_(settings), size_(size) {}

  /// That of no feed comes first. Where records are unread the driver writes them and nobody looks at them, which tells
  /// what is the driver's own part.
  [[nodiscard]] std::vector<feed_cost> run() {
    constexpr std::array ways{way{"none", cuda::fault_source::none}, way{"driver", cuda::fault_source::driver},
                              way{"driver, unread", cuda::fault_source::none, true},
                              way{"cupti", cuda::fault_source::cupti}};
    std::vector<feed_cost> out(ways.size());
    for (int r = 0; r < rounds; ++r) {
      settings_.say(absl::StrFormat("fault feeds, round %d", r + 1));
      for (std::size_t i = 0; i < ways.size(); ++i) {
        feed_cost& cost = out[i];
        cost.feed = ways[i].name;
        if (!cost.skipped.empty()) {
          continue;
        }
        try {
          one(cost, ways[i]);
        } catch (const error& e) {
          if (e.code() != status::unsupported) {
            throw;
          }
          cost.skipped = e.what();
        }
      }
    }
    return out;
  }

  [[nodiscard]] std::string table_of(const std::vector<feed_cost>& all) const {
    std::string text =
        absl::StrFormat("\nDemand paging of %d MiB with a feed of its faults\n  %-15s %10s %10s %10s %10s %10s %10s\n",
                        size_.count >> 20, "", "median", "least", "median", "least", "faults", "lost");
    for (const feed_cost& c : all) {
      if (!c.skipped.empty()) {
        absl::StrAppendFormat(&text, "  %-15s %s\n", c.feed, c.skipped);
        continue;
      }
      const auto more = [&](double share) {  // per cent
        return 100 * (quantile(c.ms, share) / quantile(all.front().ms, share) - 1);
      };
      absl::StrAppendFormat(&text, "  %-15s %7.2f ms %7.2f ms %+8.1f %% %+8.1f %% %10d %10d\n", c.feed,
                            quantile(c.ms, 0.5), quantile(c.ms, 0), more(0.5), more(0), c.faults, c.lost);
    }
    return text;
  }
  [[nodiscard]] nlohmann::ordered_json json_of(const std::vector<feed_cost>& all) const {
    nlohmann::ordered_json out = nlohmann::ordered_json::array();
    for (const feed_cost& c : all) {
      out.push_back({{"feed", c.feed},
                     {"skipped", c.skipped},
                     {"bytes", size_.count},
                     {"ms", c.ms},
                     {"faults", c.faults},
                     {"lost", c.lost},
                     {"counts", c.counts}});
    }
    return out;
  }

 private:
  using word = deepum_gpu_bench_kernels::word;
  static constexpr int rounds = 6;
  static constexpr int attempts = 5;  // in a round

  struct way {
    const char* name = "";
    cuda::fault_source source{};
    bool unread = false;  // the driver writes records of faults beside it
  };

  // Its queue takes all records of a turn, and its thread looks once in a second.
  [[nodiscard]] static cuda::uvm_events open_unread() {
    deepum_uvm_options options{};
    options.queue_records = 1U << 21;
    options.kinds = 1U << DEEPUM_UVM_FAULT;
    options.poll_ms = 1000;
    return cuda::open_uvm_events(options);
  }
  [[nodiscard]] static nlohmann::ordered_json json_of(const deepum_uvm_counts& c) {
    return {{"read", c.read},
            {"collapsed", c.collapsed},
            {"filtered", c.filtered},
            {"unknown", c.unknown},
            {"dropped_by_driver", c.dropped_by_driver},
            {"dropped_faults", c.dropped_faults},
            {"dropped_by_ring", c.dropped_by_ring},
            {"dropped_by_resync", c.dropped_by_resync},
            {"resyncs", c.resyncs},
            {"wake_ups", c.wake_ups},
            {"thread_alive", c.thread_alive},
            {"driver_branch", c.driver_branch}};
  }

  void one(feed_cost& cost, const way& w) {
    const cuda::fault_source source = w.source;
    const cuda::driver_fault_feed* driver = nullptr;
    cuda::fault_feed_maker seen_feed;
    if (source == cuda::fault_source::driver) {
      seen_feed = [&driver](std::byte* base, bytes size) {
        auto feed = std::make_unique<cuda::driver_fault_feed>(base, size);
        driver = feed.get();
        return feed;
      };
    }
    cuda::device gpu(0, {.faults = source}, std::move(seen_feed));
    library_arena arena(
        gpu, {.capacity = capacity_of(size_), .device_budget = capacity_of(size_), .policy = "um", .log = {}});
    if (source != cuda::fault_source::none && !arena.memory().sees_faults()) {
      throw error(status::unsupported, arena.memory().description());
    }
    library_stream stream(arena);
    const std::size_t n = size_.count / sizeof(word);
    word* x = arena.allocate<word>(n);
    auto* total = arena.allocate<unsigned long long>(1);
    stream.memset(x, 1, size_);
    stream.memset(total, 0, bytes{sizeof *total});
    stream.synchronize();
    const cuda::uvm_events unread = w.unread ? open_unread() : nullptr;
    const std::uint64_t before = arena.statistics().faults;
    for (int i = 0; i < attempts; ++i) {
      arena.host_access(x, size_, access::update);  // all of it to the host
      const auto began = std::chrono::steady_clock::now();
      stream.launch("read", 2048, 256, 0, deepum_gpu_bench_kernels::all().read_strided, reads(x),
                    static_cast<std::uint64_t>(n), std::uint64_t{1}, updates(total, 1));
      stream.synchronize();
      cost.ms.push_back(std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - began).count());
    }
    unsigned long long sum = 0;
    stream.memcpy(&sum, total, bytes{sizeof sum});
    stream.synchronize();
    expects(sum == std::uint64_t{attempts} * n * 0x01010101U, "demand paging has read something else");
    const statistics s = arena.statistics();
    cost.faults += s.faults - before;
    cost.lost += s.lost_faults;
    if (driver != nullptr) {
      cost.counts = json_of(driver->counts());
    } else if (unread != nullptr) {
      static_cast<void>(deepum_uvm_events_take(unread.get(), nullptr, 0));
      cost.counts = json_of(cuda::counts_of(unread.get()));
    }
  }

  const bench_settings& settings_;
  bytes size_;
};

}  // namespace deepum::gpu_bench
