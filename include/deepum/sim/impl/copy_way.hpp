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
  link& used = inward_ ? host_link_->in() : host_link_->out();
  if (beside_ < 0) {
    over_host_link([&used, done = std::move(done), next = std::move(next)] {
      done(used.began());
      next();
    });
  } else if (inward_) {
    over_host_link([way = *this, &used, done = std::move(done), next = std::move(next)] {
      way.between_devices([done, began = used.began()] { done(began); });
      next();
    });
  } else {
    link& sent = owner_->connections().out_of(owner_->ordinal());
    between_devices([way = *this, &sent, done = std::move(done), next = std::move(next)] {
      way.over_host_link([done, began = sent.began()] { done(began); });
      next();
    });
  }
}

DEEPUM_SEPARATE void copy_way::over_host_link(event_loop::action then) const {
  link& used = inward_ ? host_link_->in() : host_link_->out();
  const link& other = inward_ ? host_link_->out() : host_link_->in();
  used.submit(
      urgency::command,
      [&other, &p = owner_->properties()] { return time_at(block_size, other.busy() ? p.pinned_both : p.pinned); },
      std::move(then));
}

DEEPUM_SEPARATE void copy_way::between_devices(event_loop::action then) const {
  fabric& all = owner_->connections();
  all.out_of(inward_ ? beside_ : owner_->ordinal())
      .submit(
          urgency::command, [&p = owner_->properties()] { return time_at(block_size, p.peer); }, std::move(then),
          &all.into(inward_ ? owner_->ordinal() : beside_));
}

DEEPUM_SEPARATE topology places_with(const device& owner, const std::vector<neighbour>& beside) {
  const profile& p = owner.properties();
  std::vector<bytes> budgets(2 + beside.size());
  constexpr location home = location::host();
  constexpr location here = location::device();
  std::vector<place_link> links{{home, here, p.pinned}, {here, home, p.pinned}};
  std::vector<std::pair<std::uint8_t, std::uint8_t>> detours;
  for (std::size_t i = 0; i != beside.size(); ++i) {
    if (!beside[i].link) {
      continue;
    }
    const location other = location::device(static_cast<unsigned>(i) + 1);
    const auto first = static_cast<std::uint8_t>(links.size());
    for (const place_link& l : {place_link{home, other, p.pinned}, place_link{other, home, p.pinned},
                                place_link{other, here, p.peer}, place_link{here, other, p.peer}}) {
      links.push_back(l);
    }
    detours.emplace_back(first, static_cast<std::uint8_t>(first + 2));
    detours.emplace_back(static_cast<std::uint8_t>(first + 3), static_cast<std::uint8_t>(first + 1));
  }
  return {here, std::move(budgets), std::move(links), detours};
}

namespace detail {

[[nodiscard]] inline driver& driver_of(device& owner, const neighbour& other) {
  for (executor* e : owner.connections().executors()) {
    if (e->ordinal() == other.device.value() && e != &owner.operations()) {
      return e->memory_driver();
    }
  }
  throw error(status::invalid_argument, "device " + std::to_string(other.device.value()) +
                                            " is no neighbour of device " + std::to_string(owner.ordinal()) +
                                            ": it is the same one, or of another machine");
}

}  // namespace detail

DEEPUM_SEPARATE std::vector<copy_way> ways_of(device& owner, const topology& all,
                                              const std::vector<neighbour>& beside) {
  std::vector<copy_way> ways;
  for (const route& r : all.routes()) {
    const bool inward = r.to == all.runs_on();
    if (r.direct()) {
      ways.emplace_back(owner, owner.memory_driver(), -1, inward);
    } else {
      const neighbour& other = beside[all.links()[r.links[0]].to.index() - location::device(1).index()];
      ways.emplace_back(owner, detail::driver_of(owner, other), other.device.value(), inward);
    }
  }
  return ways;
}

}  // namespace sim
}  // namespace v0
}  // namespace deepum
