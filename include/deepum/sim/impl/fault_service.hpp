#pragma once

#include <deepum/core/block.hpp>
#include <deepum/core/launch.hpp>
#include <deepum/core/plan.hpp>
#include <deepum/core/sequence.hpp>
#include <deepum/engine/device_event.hpp>
#include <deepum/separate.hpp>
#include <deepum/sim/address_space.hpp>
#include <deepum/sim/device_memory.hpp>
#include <deepum/sim/fault_service.hpp>
#include <deepum/sim/link.hpp>
#include <deepum/sim/managed_space.hpp>
#include <deepum/sim/profile.hpp>
#include <deepum/units.hpp>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace deepum {
inline namespace v0 {
namespace sim {

DEEPUM_SEPARATE void fault_service::fault(walk& w, result resume) {
  requests_.push_back({&w, std::move(resume)});
  if (!serving_) {
    next_batch();
  }
}

DEEPUM_SEPARATE std::uint32_t fault_service::with_neighbours(std::uint32_t wanted, std::uint32_t there) {
  std::uint32_t result = wanted;
  for (std::uint32_t rest = wanted; rest != 0; rest &= rest - 1) {
    const auto page = static_cast<std::uint32_t>(std::countr_zero(rest));
    for (std::uint32_t size = 2; size <= 32; size *= 2) {
      const std::uint32_t part = (all_pages >> (32 - size)) << (page / size * size);
      if (2 * static_cast<std::uint32_t>(std::popcount((wanted | there) & part)) > size) {
        result |= part;
      }
    }
  }
  return result & ~there;
}

DEEPUM_SEPARATE void fault_service::next_batch() {
  serving_ = !requests_.empty();
  if (!serving_) {
    return;
  }
  collect(*requests_.front().who);
  if (batch_.empty()) {  // all of it came while the request waited
    end_batch(0);
    return;
  }
  ++memory_.counters().fault_batches;
  memory_.counters().faulted_blocks += batch_.size();
  sequence<managed_block> served;
  for (const faulted_block& f : batch_) {
    served.push_back(f.at);
    device_event e;
    e.what = device_event::kind::fault;
    e.mode = f.mode == access::read ? access::read : access::update;
    e.range = {f.at.block, 1};
    e.pages = f.pages;
    f.at.space->emit(e);
  }
  memory_.keep(std::move(served));
  memory_.loop().after(memory_.costs().fault_batch, [this] { serve(0); });
}

DEEPUM_SEPARATE void fault_service::collect(const walk& w) {
  const profile& costs = memory_.costs();
  auto entries = static_cast<int>(std::max(1U, costs.fault_entries / std::max(1U, costs.fault_duplicates)));
  std::uint64_t window = std::max<std::uint64_t>(1, costs.fault_window.count);
  const std::uint32_t rooms = std::max(1U, memory_.rooms_to_have());
  const executor* const home = w.position < w.segments.size() ? w.segments[w.position].space->home() : nullptr;
  for (std::size_t i = w.position; i < w.segments.size() && entries > 0; ++i) {
    const segment& s = w.segments[i];
    managed_space* const space = s.space != nullptr ? s.space->managed() : nullptr;
    if (space != nullptr && space->home() == home && (*space)[s.block].moving == block_record::motion::none) {
      std::uint32_t pages = 0;
      for (std::uint32_t rest = (*space)[s.block].missing(s.pages, s.mode); rest != 0 && entries > 0;
           rest &= rest - 1, --entries) {
        pages |= rest & (~rest + 1);
      }
      const managed_block at{space, s.block};
      const auto same = std::find_if(batch_.begin(), batch_.end(), [&](const faulted_block& f) { return f.at == at; });
      if (pages != 0 && same != batch_.end()) {
        same->pages |= pages;
        same->mode = s.mode == access::read ? same->mode : s.mode;
      } else if (pages != 0) {
        if (batch_.size() == rooms) {
          return;
        }
        batch_.push_back({at, pages, s.mode});
      }
    }
    if (s.size >= window) {
      return;
    }
    window -= s.size;
  }
}

DEEPUM_SEPARATE void fault_service::serve(std::size_t i) {
  if (i == batch_.size()) {
    end_batch(i);
    return;
  }
  const faulted_block& f = batch_[i];
  block_record& r = f.at.record();
  if (r.moving != block_record::motion::none) {
    memory_.loop().on_motion_end([this, i] { serve(i); });
    return;
  }
  if (r.missing(f.pages, f.mode) == 0) {
    serve(i + 1);
    return;
  }
  if (r.preferred == block_record::preference::host && (f.pages & r.on_device) == 0) {
    const std::uint32_t fresh = f.pages & ~r.on_host;
    r.on_host |= fresh;
    r.mapped = true;  // it is where it should be, or comes to be there: a mapping is all that is missing then
    memory_.loop().after(memory_.costs().fault_block + memory_.costs().host_populate_block * std::popcount(fresh) / 32,
                         [this, i] { serve(i + 1); });
    return;
  }
  if (!r.room) {
    const device_memory::room answer = memory_.take_room_for(f.at, urgency::fault, [this, i] { serve(i); });
    if (answer == device_memory::room::later) {
      return;
    }
    if (answer == device_memory::room::refused) {
      end_batch(i);
      return;
    }
  }
  bring_in(i);
}

DEEPUM_SEPARATE void fault_service::bring_in(std::size_t i) {
  const profile& costs = memory_.costs();
  const managed_block at = batch_[i].at;
  block_record& r = at.record();
  const std::uint32_t pages = with_neighbours(batch_[i].pages & ~r.on_device, r.on_device);
  memory_.start(r, block_record::motion::arriving);
  memory_.loop().after(costs.fault_block + costs.fault_page * std::popcount(pages), [=, this, &r, &costs] {
    const bytes n = device_memory::size_of(pages & r.on_host);
    const nanoseconds populate = costs.populate_block * std::popcount(pages & ~r.on_host) / 32;
    const auto arrived = [=, this, &r] {
      memory_.stop(r);
      memory_.settle(at, pages, batch_[i].mode, reason::fault, 0, n.count == 0 ? nanoseconds{} : memory_.in().began());
      memory_.loop().motion_ended();
      serve(i + 1);
    };
    if (n.count == 0) {
      memory_.loop().after(populate, arrived);
      return;
    }
    memory_.counters().in_by_fault += n;
    memory_.in().submit(
        urgency::fault, [=, this] { return time_at(n, memory_.costs().link_in) + populate; }, arrived);
  });
}

DEEPUM_SEPARATE void fault_service::end_batch(std::size_t served) {
  request ended = std::move(requests_.front());
  requests_.pop_front();
  walk& w = *ended.who;
  if (served > 0 && w.position < w.segments.size()) {
    // The faulting threads run before anything can be taken from them again: an operation always gets on.
    segment& s = w.segments[w.position];
    if (s.space == batch_.front().at.space && s.block == batch_.front().at.block) {
      s.pages &= ~batch_.front().pages;
    }
  }
  const bool unsatisfiable = served == 0 && batch_.size() == 1;
  batch_.clear();
  memory_.keep({});
  ended.resume(!unsatisfiable);
  memory_.loop().motion_ended();
  next_batch();
}

}  // namespace sim
}  // namespace v0
}  // namespace deepum
