#pragma once

#include "replay/machine.hpp"
#include <deepum/core/block.hpp>
#include <deepum/core/topology.hpp>
#include <deepum/units.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace deepum::replay {

/// What the links of a machine carry at the moment, and what one copy more would get.
///
/// A copy has the same rate from beginning to end: what is left on the fullest of its links when it begins.
class shared_links {
 public:
  /// @param of  Outlives it.
  explicit shared_links(const machine& of)
      : machine_(of),
        loads_(of.places.links().size()),
        shared_(of.places.links().size()) {
    for (const route& way : of.places.routes()) {
      way.for_each_link([&](std::uint8_t l) { shared_[l] = shared_[l] || !way.direct(); });
    }
  }

  /// The rate that a copy by this route would have now. 0 where that is less than half of what it could be: it waits.
  [[nodiscard]] double rate_on(std::uint8_t way) const {
    const double most = machine_.places.rate(way);
    double rate = most;
    each_link(way, [&](std::uint8_t l) { rate = std::min(rate, machine_.places.links()[l].rate - loads_[l].gbps); });
    for (const link_cap& cap : machine_.caps) {
      double left = cap.gbps;
      unsigned counted = 0;
      for (const std::uint8_t l : cap.links) {
        left -= loads_[l].gbps;
        each_link(way, [&](std::uint8_t mine) { counted += mine == l ? 1U : 0U; });
      }
      rate = counted == 0 ? rate : std::min(rate, left / counted);
    }
    return rate < most / 2 ? 0 : rate;
  }
  /// The latency occupies the links, too.
  [[nodiscard]] nanoseconds copy_time(std::uint8_t way, double gbps, std::uint32_t count) const {
    const double transfer = static_cast<double>(count) * static_cast<double>(block_size.count) / gbps;
    const double latency = static_cast<double>(machine_.copy_latency.count()) * machine_.places.rate(way) / gbps;
    return nanoseconds{static_cast<std::int64_t>(std::ceil(latency)) + static_cast<std::int64_t>(std::ceil(transfer))};
  }
  void begin(std::uint8_t way, double gbps) {
    each_link(way, [&](std::uint8_t l) {
      loads_[l].gbps += gbps;
      ++loads_[l].copies;
    });
  }
  void end(std::uint8_t way, double gbps) {
    each_link(way, [&](std::uint8_t l) { loads_[l].gbps = --loads_[l].copies == 0 ? 0 : loads_[l].gbps - gbps; });
  }
  /// Blocks of one copy by this route at most. One that fills a link which slower ways lead over as well is short, so
  /// that those do not wait for long.
  [[nodiscard]] std::uint32_t most_at_once(std::uint8_t way) const {
    const route& by = machine_.places.routes()[way];
    return by.direct() && shared_[by.links[0]] ? few : all;
  }

 private:
  static constexpr std::uint32_t few = 16;
  static constexpr std::uint32_t all = 0xffffffffU;
  struct load {
    double gbps = 0;
    unsigned copies = 0;
  };

  template <class Visit>
  void each_link(std::uint8_t way, Visit&& visit) const {
    machine_.places.routes()[way].for_each_link(visit);
  }

  const machine& machine_;
  std::vector<load> loads_;
  std::vector<bool> shared_;  // by link: it is one of several on a way
};

}  // namespace deepum::replay
