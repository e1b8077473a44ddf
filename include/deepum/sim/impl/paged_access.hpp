#pragma once

#include <deepum/core/block.hpp>
#include <deepum/core/launch.hpp>
#include <deepum/core/location.hpp>
#include <deepum/core/plan.hpp>
#include <deepum/engine/device_event.hpp>
#include <deepum/separate.hpp>
#include <deepum/sim/paged_memory.hpp>

#include <vector>

namespace deepum {
inline namespace v0 {
namespace sim {

// ---- blocks that launches find on the host -----------------------------------------------------------------------

DEEPUM_SEPARATE bool paged_memory::advise(block_range range, advice hint, location /*where*/) {
  if (hint == advice::set_in_place || hint == advice::unset_in_place) {
    const auto lock = loop().lock();
    for (const block_id b : range) {
      at(b).in_place = hint == advice::set_in_place;
    }
    tell_reached(range);
  }
  return true;
}

DEEPUM_SEPARATE void paged_memory::tell_reached(block_range range) {
  const auto tell = [this](block_range of, bool reached) {
    emit({.what = reached ? device_event::kind::reachable : device_event::kind::unreachable, .range = of});
  };
  for_each_run(
      range, [this](block_id b) { return at(b).in_place && !at(b).mapped; },
      [&](block_range run) {
        for (const block_id b : run) {
          at(b).shown = give_host_memory(b);
        }
        for_each_split(
            run, [this](block_id b) { return at(b).shown; }, tell);
      });
}

// ---- checked mode --------------------------------------------------------------------------------------------------

DEEPUM_SEPARATE void paged_memory::guard() {
  const auto lock = loop().lock();
  guarded_ = true;
  data().guard();
}

DEEPUM_SEPARATE void paged_memory::let_in(const std::vector<block_access>& blocks) {
  const auto lock = loop().lock();
  for (const block_access& a : blocks) {
    for (const block_id b : a.range) {
      ++at(b).let_in;
      data().let_in(b);
    }
  }
}

DEEPUM_SEPARATE void paged_memory::keep_out(const std::vector<block_access>& blocks) {
  const auto lock = loop().lock();
  for (const block_access& a : blocks) {
    for (const block_id b : a.range) {
      --at(b).let_in;
      data().keep_out(b);
    }
  }
}

DEEPUM_SEPARATE void paged_memory::let_host_in(block_range range) {
  const auto lock = loop().lock();
  for (const block_id b : range) {
    data().let_in(b);
  }
}

DEEPUM_SEPARATE void paged_memory::keep_host_out(block_range range) {
  const auto lock = loop().lock();
  for (const block_id b : range) {
    data().keep_out(b);
  }
}

}  // namespace sim
}  // namespace v0
}  // namespace deepum
