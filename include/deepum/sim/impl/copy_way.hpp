#pragma once

#include <deepum/core/block.hpp>
#include <deepum/core/location.hpp>
#include <deepum/core/neighbour.hpp>
#include <deepum/core/topology.hpp>
#include <deepum/error.hpp>
#include <deepum/separate.hpp>
#include <deepum/sim/copy_way.hpp>
#include <deepum/sim/device.hpp>
#include <deepum/sim/driver.hpp>
#include <deepum/sim/event_loop.hpp>
#include <deepum/sim/executor.hpp>
#include <deepum/sim/fabric.hpp>
#include <deepum/sim/link.hpp>
#include <deepum/sim/profile.hpp>
#include <deepum/units.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace deepum {
inline namespace v0 {
namespace sim {

DEEPUM_SEPARATE void copy_way::send(std::function<void(nanoseconds)> done, event_loop::action next) const {
  over(first_, [way = *this, done = std::move(done), next = std::move(next)] {
    const nanoseconds began = way.first_.line->began();
    if (way.second_.line != nullptr) {
      way.over(way.second_, [done, began] { done(began); });
    } else {
      done(began);
    }
    next();
  });
}

DEEPUM_SEPARATE void copy_way::over(const leg& by, event_loop::action then) const {
  by.line->submit(
      urgency::command,
      [by, &p = *costs_] {
        return time_at(block_size, by.opposite == nullptr ? p.peer : by.opposite->busy() ? p.pinned_both : p.pinned);
      },
      std::move(then), by.into);
}

DEEPUM_SEPARATE driver& driver_of(device& owner, const neighbour& other) {
  for (executor* e : owner.connections().executors()) {
    if (e->ordinal() == other.device.value() && e != &owner.operations()) {
      return e->memory_driver();
    }
  }
  throw error(status::invalid_argument, "device " + std::to_string(other.device.value()) +
                                            " is no neighbour of device " + std::to_string(owner.ordinal()) +
                                            ": it is the same one, or of another machine");
}

DEEPUM_SEPARATE topology places_with(const device& owner, const std::vector<neighbour>& beside) {
  const profile& p = owner.properties();
  std::vector<bytes> budgets(2 + beside.size());
  constexpr location home = location::host();
  constexpr location here = location::device();
  std::vector<place_link> links{{home, here, p.pinned}, {here, home, p.pinned}};
  std::vector<std::pair<std::uint8_t, std::uint8_t>> detours;
  for (std::size_t i = 0; i != beside.size(); ++i) {
    const neighbour& n = beside[i];
    if (!n.link && n.memory.count == 0) {
      continue;
    }
    const location other = location::device(static_cast<unsigned>(i) + 1);
    const auto first = static_cast<std::uint8_t>(links.size());
    for (const place_link& l : {place_link{home, other, p.pinned}, place_link{other, home, p.pinned},
                                place_link{other, here, p.peer}, place_link{here, other, p.peer}}) {
      links.push_back(l);
    }
    if (n.link) {
      detours.emplace_back(first, static_cast<std::uint8_t>(first + 2));
      detours.emplace_back(static_cast<std::uint8_t>(first + 3), static_cast<std::uint8_t>(first + 1));
    }
    budgets[other.index()] = n.memory;
  }
  return {here, std::move(budgets), std::move(links), detours};
}

DEEPUM_SEPARATE std::vector<copy_way> ways_of(device& owner, const topology& all,
                                              const std::vector<neighbour>& beside) {
  const auto neighbour_at = [&](location l) -> const neighbour& {
    return beside[l.index() - location::device(1).index()];
  };
  const auto memory_at = [&](location l) -> driver& {
    return l == all.runs_on() ? owner.memory_driver() : driver_of(owner, neighbour_at(l));
  };
  const auto number_of = [&](location l) {
    return l == all.runs_on() ? owner.ordinal() : neighbour_at(l).device.value();
  };
  const auto leg_of = [&](std::uint8_t number) -> copy_way::leg {
    if (number == route::none) {
      return {};
    }
    const place_link& l = all.links()[number];
    if (l.from.is_host()) {
      return {.line = &memory_at(l.to).in(), .opposite = &memory_at(l.to).out()};
    }
    if (l.to.is_host()) {
      return {.line = &memory_at(l.from).out(), .opposite = &memory_at(l.from).in()};
    }
    fabric& lines = owner.connections();
    (void)memory_at(l.from);  // is there such a device?
    (void)memory_at(l.to);
    return {.line = &lines.out_of(number_of(l.from)), .into = &lines.into(number_of(l.to))};
  };
  std::vector<copy_way> ways;
  for (const route& r : all.routes()) {
    ways.emplace_back(owner.properties(), leg_of(r.links[0]), leg_of(r.links[1]));
  }
  return ways;
}

}  // namespace sim
}  // namespace v0
}  // namespace deepum
