#pragma once

#include <deepum/core/location.hpp>
#include <deepum/error.hpp>
#include <deepum/units.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

namespace deepum {
inline namespace v0 {

/// One direction of a connection between two places.
struct place_link {
  location from = location::host();
  location to = location::device();
  double rate = 1;  ///< bytes a second, or by any other measure that all links of a topology share

  friend constexpr bool operator==(const place_link&, const place_link&) = default;
};

/// A way from one place to another: a link, or one after the other.
struct route {
  static constexpr std::uint8_t none = 0xff;

  location from = location::host();
  location to = location::device();
  std::array<std::uint8_t, 2> links{none, none};  ///< by their number in the topology, the first one first

  [[nodiscard]] constexpr bool direct() const { return links[1] == none; }
  /// Calls `visit(link)` for each of them.
  template <class Visit>
  constexpr void for_each_link(Visit&& visit) const {
    visit(links[0]);
    if (!direct()) {
      visit(links[1]);
    }
  }
};

/// Places that can hold blocks, the links between them, and the routes that blocks can take.
///
/// A memory space has one; the engine takes sources and routes from it. Policies see places, budgets and ranks through
/// the map of blocks. Every link is a route, of the same number; routes over two links come behind them. Constant.
class topology {
 public:
  /// A device, and the host with a link each way.
  topology() : topology(location::device(), {bytes{}, bytes{}}, {{}, {location::device(), location::host()}}) {}
  /// @param runs_on  Where launches run.
  /// @param budgets  What a place may hold at most, by `location::index`. Of no account for the host and for the device
  ///                 where launches run, for which the engine's options say it.
  /// @param links    Between which places blocks can be copied.
  /// @param detours  Pairs of these that can be taken one after the other.
  topology(location runs_on, std::vector<bytes> budgets, std::vector<place_link> links,
           const std::vector<std::pair<std::uint8_t, std::uint8_t>>& detours = {})
      : runs_on_(runs_on),
        budgets_(std::move(budgets)),
        links_(std::move(links)),
        between_(budgets_.size() * budgets_.size()) {
    expects(budgets_.size() <= location::limit && links_.size() < route::none, "a topology has few places and links");
    for (std::size_t l = 0; l != links_.size(); ++l) {
      add({links_[l].from, links_[l].to, {static_cast<std::uint8_t>(l), route::none}});
    }
    for (const auto& [first, second] : detours) {
      expects(links_[first].to == links_[second].from, "the second link of a route begins where the first one ends");
      add({links_[first].from, links_[second].to, {first, second}});
    }
    expects(cheapest(location::host(), runs_on) != route::none && cheapest(runs_on, location::host()) != route::none,
            "blocks can be copied between the host and the device where launches run");
    rank();
  }

  /// Where launches run.
  [[nodiscard]] location runs_on() const { return runs_on_; }
  /// The host and devices.
  [[nodiscard]] unsigned places() const { return static_cast<unsigned>(budgets_.size()); }
  [[nodiscard]] bytes budget(location at) const { return budgets_[at.index()]; }
  /// How far a place is from where launches run: 0 for that one, the slower the way from there the more. Places at the
  /// same rate have the same rank.
  [[nodiscard]] std::uint32_t rank(location at) const { return ranks_[at.index()]; }

  [[nodiscard]] const std::vector<place_link>& links() const { return links_; }
  [[nodiscard]] const std::vector<route>& routes() const { return routes_; }
  /// Routes between two places, by number, the fastest first. May be none.
  [[nodiscard]] std::span<const std::uint8_t> between(location from, location to) const {
    return between_[from.index() * places() + to.index()];
  }
  /// The fastest of them; `route::none` where there is none.
  [[nodiscard]] std::uint8_t cheapest(location from, location to) const {
    const std::span<const std::uint8_t> ways = between(from, to);
    return ways.empty() ? route::none : ways.front();
  }
  /// That of its slowest link; 0 for no route.
  [[nodiscard]] double rate(std::uint8_t way) const {
    if (way == route::none) {
      return 0;
    }
    double slowest = links_[routes_[way].links[0]].rate;
    routes_[way].for_each_link([&](std::uint8_t l) { slowest = std::min(slowest, links_[l].rate); });
    return slowest;
  }

 private:
  void add(const route& way) {
    expects(way.from.index() < places() && way.to.index() < places() && way.from != way.to,
            "a route goes from one place of the topology to another");
    const auto number = static_cast<std::uint8_t>(routes_.size());
    expects(number != route::none, "a topology has few places and links");
    routes_.push_back(way);
    std::vector<std::uint8_t>& ways = between_[way.from.index() * places() + way.to.index()];
    ways.insert(std::find_if(ways.begin(), ways.end(), [&](std::uint8_t w) { return rate(w) < rate(number); }), number);
  }
  void rank() {
    const auto rate_from = [&](unsigned l) { return rate(cheapest(location::at(l), runs_on_)); };
    std::vector<double> rates;
    for (unsigned l = 0; l != places(); ++l) {
      if (location::at(l) != runs_on_) {
        rates.push_back(rate_from(l));
      }
    }
    std::sort(rates.begin(), rates.end(), std::greater<>{});
    rates.erase(std::unique(rates.begin(), rates.end()), rates.end());
    for (unsigned l = 0; l != places(); ++l) {
      ranks_.push_back(
          location::at(l) == runs_on_
              ? 0
              : 1 + static_cast<std::uint32_t>(std::find(rates.begin(), rates.end(), rate_from(l)) - rates.begin()));
    }
  }

  location runs_on_;
  std::vector<bytes> budgets_;
  std::vector<place_link> links_;
  std::vector<route> routes_{};
  std::vector<std::vector<std::uint8_t>> between_;  // by place and place
  std::vector<std::uint32_t> ranks_{};
};

}  // namespace v0
}  // namespace deepum
