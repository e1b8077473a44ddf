#pragma once

#include <deepum/core/block.hpp>
#include <deepum/core/block_grid.hpp>
#include <deepum/core/launch.hpp>
#include <deepum/core/location.hpp>
#include <deepum/core/plan.hpp>
#include <deepum/core/topology.hpp>
#include <deepum/core/transfer.hpp>
#include <deepum/engine/device_event.hpp>
#include <deepum/error.hpp>
#include <deepum/separate.hpp>
#include <deepum/sim/address_space.hpp>
#include <deepum/sim/device.hpp>
#include <deepum/sim/driver.hpp>
#include <deepum/sim/event_loop.hpp>
#include <deepum/sim/link.hpp>
#include <deepum/sim/paged_memory.hpp>
#include <deepum/sim/profile.hpp>
#include <deepum/units.hpp>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace deepum {
inline namespace v0 {
namespace sim {

DEEPUM_SEPARATE paged_memory::paged_memory(device& owner, bytes capacity, const std::vector<neighbour>& beside)
    : device_space(traits, owner, capacity, places_with(owner, beside)),
      blocks_(capacity / block_size),
      held_(data(), capacity / block_size) {
  const auto lock = loop().lock();
  const std::vector<copy_way> ways = ways_of(owner, memory_space::places(), beside);
  for (std::size_t w = 0; w != ways.size(); ++w) {
    const route& r = memory_space::places().routes()[w];
    queues_.push_back({.way = ways[w], .from = r.from, .to = r.to});
  }
  for (const neighbour& n : beside) {
    lent_.push_back(n.memory.count != 0 ? std::make_unique<lent_memory>(driver_of(owner, n), capacity, n.reserve)
                                        : nullptr);
  }
}

DEEPUM_SEPARATE paged_memory::~paged_memory() {
  detach();
  event_loop::host_call call(loop());
  call.wait([&] { return copies_ == 0; });
  lent_.clear();
  for (one_block& b : blocks_) {
    if (b.mapped) {
      owner_.memory_driver().give_room();
    }
  }
}

DEEPUM_SEPARATE bool paged_memory::start(const transfer& what, std::uint64_t ticket) {
  const auto lock = loop().lock();
  if (what.forgets()) {
    forget(what.blocks, ticket);
  } else if (what.takes_room()) {
    bring(what, ticket);
  } else if (what.copies()) {
    queue_copy_out(what, ticket);
  } else {
    drop(what.blocks, what.from.is_device() ? what.from : place(), ticket);
  }
  return true;
}

DEEPUM_SEPARATE std::string paged_memory::last_failure() const {
  const auto lock = loop().lock();
  return last_failure_;
}

DEEPUM_SEPARATE bool paged_memory::host_is_full() const {
  const auto lock = loop().lock();
  return host_is_full_;
}

DEEPUM_SEPARATE void paged_memory::mark_stale(block_range range) {
  const auto lock = loop().lock();
  for (const block_id b : range) {
    at(b).stale = true;
  }
}

DEEPUM_SEPARATE std::byte* paged_memory::host_address(bytes offset, bytes size) {
  const auto lock = loop().lock();
  const block_range range = um_grid.blocks_of(offset, size);
  for (const block_id b : range) {
    if (!give_host_memory(b)) {
      return nullptr;
    }
  }
  return base() + offset.count;
}

DEEPUM_SEPARATE paged_memory::one_block& paged_memory::at(block_id b) {
  expects(b.value < blocks_.size(), "a block outside the arena");
  return blocks_[b.value];
}

// ---- what operations find ---------------------------------------------------------------------------------------

DEEPUM_SEPARATE touch_result paged_memory::touch(const segment& s) {
  const one_block& b = at(s.block);
  return !admits(s.block) ? touch_result::refused
         : b.mapped       ? touch_result::ready
         : b.shown        ? touch_result::remote
                          : touch_result::refused;
}

DEEPUM_SEPARATE std::string paged_memory::refusal(const segment& s) const {
  return blocks_[s.block.value].mapped ? "block " + std::to_string(s.block.value) + " is not declared"
                                       : unmapped(s.block);
}

DEEPUM_SEPARATE void paged_memory::before_body(const segment& s) {
  expects(s.block.value < blocks_.size(), "a block outside the arena");
  if (at(s.block).mapped) {
    held_.use(s.block, s.mode);  // else it is the host's copy that the operation finds
  }
}

DEEPUM_SEPARATE void paged_memory::after_body(const segment& s) {
  if (s.mode != access::read) {
    ++at(s.block).writes;
  }
}

// ---- copies -----------------------------------------------------------------------------------------------------

DEEPUM_SEPARATE void paged_memory::queue_copy_out(const transfer& what, std::uint64_t ticket) {
  std::uint32_t found = 0;
  while (found < what.blocks.count && give_host_memory(block_id{what.blocks.first.value + found})) {
    ++found;
  }
  if (found == 0) {
    report(device_event::kind::failed, what.blocks, ticket);
  } else {
    queue_copy(queues_[route_of(what)], {what.blocks.first, found}, ticket, what.releases(), found < what.blocks.count);
  }
}

DEEPUM_SEPARATE void paged_memory::queue_copy(queue& q, block_range range, std::uint64_t ticket, bool leaves,
                                              bool part) {
  expects(!range.empty(), "a copy of no blocks");
  for (const block_id b : range) {
    count_copy(q, b, 1);
  }
  q.copies.push_back({.range = range, .ticket = ticket, .leaves = leaves, .part = part});
  if (!q.sending) {
    next(q);
  }
}

DEEPUM_SEPARATE void paged_memory::count_copy(const queue& q, block_id b, std::int32_t one) {
  const auto change = static_cast<std::uint32_t>(one);
  one_block& mine = at(b);
  if (q.from == place() || q.to == place()) {
    expects(mine.mapped, "a block is copied that is not mapped");
    mine.copies += change;
  } else {
    mine.host_copies += change;
  }
  for (const location l : {q.from, q.to}) {
    if (lent_memory* const lent = lent_at(l)) {
      (void)lent->at(b);
      one > 0 ? lent->begin_copy(b) : lent->end_copy(b);
    }
  }
  copies_ += change;
}

DEEPUM_SEPARATE paged_memory::queued_copy* paged_memory::to_begin(queue& q) {
  for (queued_copy& c : q.copies) {
    if (c.begun != c.range.count) {
      return &c;
    }
  }
  return nullptr;
}

DEEPUM_SEPARATE void paged_memory::next(queue& q) {
  queued_copy* const c = to_begin(q);
  q.sending = c != nullptr;
  if (!q.sending) {
    return;
  }
  const block_id b{c->range.first.value + c->begun++};
  const std::uint64_t writes = at(b).writes;
  q.way.send([this, &q, b, writes](nanoseconds began) { finish(q, b, writes, began); }, [this, &q] { next(q); });
}

DEEPUM_SEPARATE void paged_memory::finish(queue& q, block_id b, std::uint64_t writes_at_start, nanoseconds began) {
  if (q.copies.front().done == 0) {
    q.copies.front().began = began;
  }
  copy_bytes(q, b, at(b).writes != writes_at_start);
  if (q.to.is_device()) {
    tell_arrived(b, q.copies.front().ticket, began);
  }
  count_copy(q, b, -1);
  end_block(q);
}

DEEPUM_SEPARATE std::uint8_t paged_memory::route_of(const transfer& what) const {
  const topology& all = memory_space::places();
  const location from = what.from.is_any() ? (what.to == place() ? location::host() : place()) : what.from;
  const route& said = all.routes()[what.via];
  return said.from == from && said.to == what.to ? what.via : all.cheapest(from, what.to);
}

DEEPUM_SEPARATE void paged_memory::copy_bytes(const queue& q, block_id b, bool written_meanwhile) {
  device_counters& counted = owner_.memory_driver().counters();
  if (q.from.is_host() && q.to == place()) {
    counted.in_by_command += block_size;
    held_.host_to_device(b);
  } else if (q.from == place() && q.to.is_host()) {
    counted.out_by_command += block_size;
    if (!written_meanwhile) {  // else which bytes the host got is not known
      held_.device_to_host(b);
    }
  } else if (q.from == place()) {
    counted.to_peers += block_size;
    held_.device_to(b, lent_at(q.to)->at(b), written_meanwhile);
  } else if (q.to == place()) {
    held_.to_device(b, lent_at(q.from)->at(b));
  } else if (q.to.is_host()) {
    held_.to_host(b, lent_at(q.from)->at(b));
  } else {
    held_.host_to(b, lent_at(q.to)->at(b));
  }
}

DEEPUM_SEPARATE void paged_memory::tell_arrived(block_id b, std::uint64_t ticket, nanoseconds began) {
  device_event e;
  e.what = device_event::kind::arrived;
  e.why = reason::predicted;
  e.range = {b, 1};
  e.began = began;
  e.ticket = ticket;
  e.host_copy_stays = true;
  emit(e);
}

DEEPUM_SEPARATE void paged_memory::end_block(queue& q) {
  if (++q.copies.front().done == q.copies.front().range.count) {
    const queued_copy ended = q.copies.front();
    q.copies.pop_front();
    if (ended.leaves) {
      take_memory(ended.range, q.from);
      report(device_event::kind::departed, ended.range, ended.ticket, ended.began);
    }
    const bool start_reported = ended.leaves || q.to.is_device();
    report(ended.part ? device_event::kind::failed : device_event::kind::completed, ended.range, ended.ticket,
           start_reported ? nanoseconds{} : ended.began);
    tell_reached(ended.range);
  }
}

// ---- transfers of an engine ---------------------------------------------------------------------------------------

DEEPUM_SEPARATE void paged_memory::forget(block_range range, std::uint64_t ticket) {
  for (const block_id b : range) {
    if (at(b).mapped) {
      take_memory({b, 1});
    }
    for (const std::unique_ptr<lent_memory>& lent : lent_) {
      if (lent && lent->holds(b)) {
        lent->give({b, 1});
      }
    }
  }
  report(device_event::kind::completed, range, ticket);
  tell_reached(range);
}

DEEPUM_SEPARATE void paged_memory::drop(block_range range, location from, std::uint64_t ticket) {
  take_memory(range, from);
  report(device_event::kind::departed, range, ticket);
  report(device_event::kind::completed, range, ticket);
  tell_reached(range);
}

DEEPUM_SEPARATE void paged_memory::bring(const transfer& what, std::uint64_t ticket) {
  if (!give_memory(what.blocks, what.to, ticket)) {
    return;
  }
  if (what.copies()) {
    queue_copy(queues_[route_of(what)], what.blocks, ticket, what.releases() && what.from.is_device());
  } else {
    report(device_event::kind::arrived, what.blocks, ticket);
    report(device_event::kind::completed, what.blocks, ticket);
  }
}

DEEPUM_SEPARATE void paged_memory::report(device_event::kind what, block_range range, std::uint64_t ticket,
                                          nanoseconds began) {
  emit({.what = what, .why = reason::predicted, .range = range, .began = began, .ticket = ticket});
}

DEEPUM_SEPARATE bool paged_memory::give_host_memory(block_id b) {
  const bytes limit = owner_.options().host_limit;
  one_block& mine = at(b);
  mine.stale = false;
  if (limit.count == 0 || mine.on_host) {
    return true;
  }
  if (block_size * (host_blocks_ + 1) > limit && !take_stale_memory()) {
    last_failure_ = "the host has no memory left: device_options::host_limit is " + std::to_string(limit.count);
    host_is_full_ = true;
    return false;
  }
  mine.on_host = true;
  ++host_blocks_;
  return true;
}

DEEPUM_SEPARATE bool paged_memory::take_stale_memory() {
  const auto count = static_cast<std::uint32_t>(blocks_.size());
  for (std::uint32_t n = 0; n < count; ++n) {
    taken_last_ = taken_last_ + 1 < count ? taken_last_ + 1 : 0;
    const block_id b{taken_last_};
    one_block& other = at(b);
    if (!other.on_host || !other.stale || other.in_place || other.shown || other.copies != 0 ||
        other.host_copies != 0) {
      continue;
    }
    held_.lose_host(b);
    other.on_host = false;
    --host_blocks_;
    return true;
  }
  return false;
}

DEEPUM_SEPARATE bytes paged_memory::lendable(location at) const {
  const auto lock = loop().lock();
  const lent_memory* const lent = lent_at(at);
  return lent != nullptr ? lent->free() : bytes{};
}

DEEPUM_SEPARATE bool paged_memory::give_memory(block_range range, location at, std::uint64_t ticket) {
  if (lent_memory* const lent = lent_at(at)) {
    if (!lent->take(range)) {
      last_failure_ =
          "the neighbour at " + to_string(at) + " has no memory left for " + std::to_string(range.count) + " blocks";
      host_is_full_ = false;
      report(device_event::kind::failed, range, ticket);
      return false;
    }
    return true;
  }
  driver& rooms = owner_.memory_driver();
  if (rooms.free_rooms() < range.count) {
    last_failure_ = "no device memory to map " + std::to_string(range.count) + " blocks; " +
                    std::to_string(rooms.free_rooms()) + " are free";
    host_is_full_ = false;
    report(device_event::kind::failed, range, ticket);
    tell_reached(range);
    return false;
  }
  for (const block_id b : range) {
    expects(!blocks_[b.value].mapped, "a block is mapped that is mapped already");
    if (const walk* const user = rooms.active_with(*this, b)) {
      owner_.operations().fail(status::invalid_argument,
                               "block " + std::to_string(b.value) + " comes to the device while kernel '" + user->name +
                                   "' (launch " + std::to_string(user->launch) + ") touches it in place");
    }
    blocks_[b.value].shown = false;
    (void)rooms.take_room(urgency::command, {});
    blocks_[b.value].mapped = true;
  }
  return true;
}

DEEPUM_SEPARATE void paged_memory::take_memory(block_range range, location at) {
  if (lent_memory* const lent = lent_at(at)) {
    lent->give(range);
  } else {
    take_memory(range);
  }
}

DEEPUM_SEPARATE void paged_memory::take_memory(block_range range) {
  for (const block_id b : range) {
    expects(at(b).mapped, "a block is unmapped that is not mapped");
    expects(at(b).copies == 0, "a block is unmapped that is being copied");
    held_.give_up(b);
    at(b).mapped = false;
    owner_.memory_driver().give_room();
    if (const walk* user = owner_.memory_driver().active_with(*this, b)) {
      owner_.operations().fail(status::invalid_argument, unmapped(b) + " any more, while kernel '" + user->name +
                                                             "' (launch " + std::to_string(user->launch) + ") uses it");
    }
  }
}

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
