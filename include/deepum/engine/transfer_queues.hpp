#pragma once

#include <deepum/core/block.hpp>
#include <deepum/core/block_map.hpp>
#include <deepum/core/block_record.hpp>
#include <deepum/core/location.hpp>
#include <deepum/core/plan.hpp>
#include <deepum/core/topology.hpp>
#include <deepum/core/transfer.hpp>
#include <deepum/engine/transfer_queue.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace deepum {
inline namespace v0 {
namespace detail {

/// All transfers of an engine: a queue for each link of the topology, and one for what needs no link. It says where
/// blocks come from, and in which queue and by which route.
///
/// Not synchronised: used under the engine's state lock.
class transfer_queues {
 public:
  explicit transfer_queues(topology places)
      : places_(std::move(places)),
        links_(places_.links().size()),
        in_order_(places_.links().size()) {
    std::iota(in_order_.begin(), in_order_.end(), std::uint8_t{0});
    const auto distance = [&](std::uint8_t l) { return places_.rank(places_.links()[l].to); };
    std::stable_sort(in_order_.begin(), in_order_.end(),
                     [&](std::uint8_t a, std::uint8_t b) { return distance(a) > distance(b); });
  }

  /// What is given up everywhere needs no link.
  transfer_queue forgotten{};
  /// Hints that have to be given before launches begin: when the state lock is given back.
  std::vector<driver_hint> urgent{};

  [[nodiscard]] const topology& places() const { return places_; }
  [[nodiscard]] transfer_queue& link(std::uint8_t number) { return links_[number]; }
  /// The links in the order in which they are worked on: those into the farthest places first, so that what leaves is
  /// on its way when others ask for its room.
  [[nodiscard]] const std::vector<std::uint8_t>& in_order() const { return in_order_; }

  /// @name Where to and where from
  /// @{

  /// Where a block comes from: the place that a policy names, or the nearest current copy. What only gives room up does
  /// so on the device where launches run, or where that has nothing of the block, at the place that has.
  [[nodiscard]] location source(const block_map& map, const transfer& t, block_id b) const {
    const location here = places_.runs_on();
    const location usual = t.to == here ? location::host() : here;
    if (!t.from.is_any()) {
      return t.from;
    }
    if (places_.places() == 2) {
      return usual;
    }
    return t.releases() && t.to != here ? holder(map.of(b), t.to) : nearest_copy(map.of(b), t.to, usual);
  }
  /// Where a transfer waits, as its first block lies now.
  [[nodiscard]] transfer_queue& of(const block_map& map, const transfer& t) {
    return t.forgets() ? forgotten : between(source(map, t, t.blocks.first), t.to);
  }
  [[nodiscard]] transfer_queue& of(const block_map&, const driver_hint&) { return inward(); }
  [[nodiscard]] transfer_queue& between(location from, location to) {
    const std::uint8_t way = from == to ? route::none : places_.cheapest(from, to);
    return way == route::none ? inward() : links_[places_.routes()[way].links[0]];
  }
  /// The route that would be over first, of those that have room for one transfer more; nothing where none has.
  /// @param most_transfers, most_blocks  That a link is given at a time.
  [[nodiscard]] std::optional<std::uint8_t> choose(location from, location to, std::size_t most_transfers,
                                                   std::uint64_t most_blocks) const {
    std::optional<std::uint8_t> best;
    double least = 0;
    for (const std::uint8_t way : places_.between(from, to)) {
      bool full = false;
      double time = 0;
      places_.routes()[way].for_each_link([&](std::uint8_t l) {
        full = full || links_[l].moving() >= most_transfers || links_[l].blocks >= most_blocks;
        time = std::max(time, static_cast<double>(links_[l].blocks + 1) / places_.links()[l].rate);
      });
      if (!full && (!best || time < least)) {
        best = way;
        least = time;
      }
    }
    return best;
  }
  /// Blocks of one piece of a transfer of `count`, where it goes by one of several routes: the route's share by its
  /// rate, so that all of them work on what is needed first. Where there is one route, all of it.
  /// @param most  That are worth a piece.
  [[nodiscard]] std::uint32_t piece(std::uint8_t way, std::uint32_t count, std::uint32_t most) const {
    const route& by = places_.routes()[way];
    const std::span<const std::uint8_t> ways = places_.between(by.from, by.to);
    if (ways.size() < 2) {
      return count;
    }
    double all = 0;
    for (const std::uint8_t each : ways) {
      all += places_.rate(each);
    }
    const auto share = static_cast<std::uint32_t>(std::ceil(count * (places_.rate(way) / all)));
    return std::clamp(share, 1U, std::max(1U, most));
  }
  /// Blocks that a route is on its way with, on the link that has most.
  [[nodiscard]] std::uint64_t blocks_on(std::uint8_t way) const {
    std::uint64_t most = 0;
    places_.routes()[way].for_each_link([&](std::uint8_t l) { most = std::max(most, links_[l].blocks); });
    return most;
  }
  /// @}

  /// @name What the device has
  /// @{

  /// It has taken a transfer. @param q  Where that waited.
  void begin(transfer_queue& q, std::uint64_t ticket, const transfer& t) {
    count(q, t, 1);
    (t.copies() ? links_[places_.routes()[t.via].links[0]] : q).issued.push_back({ticket, t});
  }
  /// It is done with it. @returns  Which one; nothing where it has none under that ticket.
  std::optional<transfer> end(std::uint64_t ticket) {
    std::optional<transfer> ended;
    for_each([&](transfer_queue& q) {
      const auto it =
          std::find_if(q.issued.begin(), q.issued.end(), [ticket](const outstanding& o) { return o.ticket == ticket; });
      if (!ended && it != q.issued.end()) {
        ended = it->what;
        q.issued.erase(it);
        count(q, *ended, -1);
      }
    });
    return ended;
  }
  /// The transfer that it has under a ticket; nullptr where it has none.
  [[nodiscard]] const transfer* find(std::uint64_t ticket) const {
    const transfer* found = nullptr;
    if (ticket != 0) {
      for_each([&](const transfer_queue& q) {
        for (const outstanding& o : q.issued) {
          found = o.ticket == ticket ? &o.what : found;
        }
      });
    }
    return found;
  }
  /// @}

  /// @name Of several queues
  /// @{

  /// Calls `visit(transfer_queue&)` for each.
  template <class Visit>
  void for_each(Visit&& visit) {
    for (transfer_queue& q : links_) {
      visit(q);
    }
    visit(forgotten);
  }
  template <class Visit>
  void for_each(Visit&& visit) const {
    for (const transfer_queue& q : links_) {
      visit(q);
    }
    visit(forgotten);
  }
  /// Calls `visit(transfer_queue&)` for each link into a place.
  template <class Visit>
  void for_each_into(location place, Visit&& visit) {
    for (std::size_t l = 0; l != links_.size(); ++l) {
      if (places_.links()[l].to == place) {
        visit(links_[l]);
      }
    }
  }
  template <class Visit>
  void for_each_into(location place, Visit&& visit) const {
    for (std::size_t l = 0; l != links_.size(); ++l) {
      if (places_.links()[l].to == place) {
        visit(links_[l]);
      }
    }
  }
  /// Whether `holds(transfer_queue)` for each link, for those from a place, or those into it.
  template <class Predicate>
  [[nodiscard]] bool all(Predicate&& holds) const {
    return std::all_of(links_.begin(), links_.end(), holds);
  }
  template <class Predicate>
  [[nodiscard]] bool all_from(location place, Predicate&& holds) const {
    return all_where([&](const place_link& link) { return link.from == place; }, holds);
  }
  template <class Predicate>
  [[nodiscard]] bool all_into(location place, Predicate&& holds) const {
    return all_where([&](const place_link& link) { return link.to == place; }, holds);
  }
  [[nodiscard]] bool idle_from(location place) const {
    return all_from(place, [](const transfer_queue& q) { return q.idle(); });
  }
  [[nodiscard]] bool idle_into(location place) const {
    return all_into(place, [](const transfer_queue& q) { return q.idle(); });
  }
  [[nodiscard]] bool idle() const {
    return forgotten.idle() && all([](const transfer_queue& q) { return q.idle(); });
  }
  /// No link has a transfer.
  [[nodiscard]] bool links_free() const {
    return all([](const transfer_queue& q) { return q.moving() == 0; });
  }
  /// @}

 private:
  template <class Chosen, class Predicate>
  [[nodiscard]] bool all_where(Chosen&& chosen, Predicate&& holds) const {
    for (std::size_t l = 0; l != links_.size(); ++l) {
      if (chosen(places_.links()[l]) && !holds(links_[l])) {
        return false;
      }
    }
    return true;
  }
  /// From the host to the device where launches run: also for what no link leads to.
  [[nodiscard]] transfer_queue& inward() {
    return links_[places_.routes()[places_.cheapest(location::host(), places_.runs_on())].links[0]];
  }
  [[nodiscard]] location holder(const block_view& block, location but) const {
    for (unsigned l = 1; l != places_.places() && !block.at(places_.runs_on()).takes_room(); ++l) {
      if (location::at(l) != but && block.at(location::at(l)).takes_room()) {
        return location::at(l);
      }
    }
    return places_.runs_on();
  }
  [[nodiscard]] location nearest_copy(const block_view& block, location to, location otherwise) const {
    location best = otherwise;
    double rate = 0;
    for (unsigned l = 0; l != places_.places(); ++l) {
      const location at = location::at(l);
      if (at != to && block.state(at) == copy_state::current) {
        if (const double r = places_.rate(places_.cheapest(at, to)); r > rate) {
          best = at;
          rate = r;
        }
      }
    }
    return best;
  }
  /// A transfer begins or ends.
  void count(transfer_queue& q, const transfer& t, int one) {
    const auto change = static_cast<std::uint64_t>(one) * t.blocks.count;
    if (!t.copies()) {
      q.blocks += change;
      return;
    }
    const route& way = places_.routes()[t.via];
    way.for_each_link([&](std::uint8_t l) { links_[l].blocks += change; });
    if (!way.direct()) {
      links_[way.links[1]].passing += static_cast<std::size_t>(one);
    }
  }

  topology places_;
  std::vector<transfer_queue> links_;  // by the number of the link
  std::vector<std::uint8_t> in_order_;
};

}  // namespace detail
}  // namespace v0
}  // namespace deepum
