#pragma once

#include <deepum/core/block.hpp>
#include <deepum/core/block_grid.hpp>
#include <deepum/core/launch.hpp>
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

#include <cstdint>
#include <deque>
#include <string>
#include <utility>
#include <vector>

namespace deepum {
inline namespace v0 {
namespace sim {

DEEPUM_SEPARATE paged_memory::paged_memory(device& owner, bytes capacity, const std::vector<neighbour>& beside)
    : device_space(traits, owner, capacity, places_with(owner, beside)),
      blocks_(capacity / block_size) {
  const auto lock = loop().lock();
  for (copy_way& way : ways_of(owner, memory_space::places(), beside)) {
    queues_.push_back({.way = way});
  }
}

DEEPUM_SEPARATE paged_memory::~paged_memory() {
  detach();
  event_loop::host_call call(loop());
  call.wait([&] { return copies_ == 0; });
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
    drop(what.blocks, ticket);
  }
  return true;
}

DEEPUM_SEPARATE std::string paged_memory::last_failure() const {
  const auto lock = loop().lock();
  return last_failure_;
}

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
  return at(s.block).mapped && admits(s.block) ? touch_result::ready : touch_result::refused;
}

DEEPUM_SEPARATE std::string paged_memory::refusal(const segment& s) const {
  return blocks_[s.block.value].mapped ? "block " + std::to_string(s.block.value) + " is not declared"
                                       : unmapped(s.block);
}

DEEPUM_SEPARATE void paged_memory::before_body(const segment& s) {
  one_block& b = at(s.block);
  if (b.copy == state::garbage) {
    data().keep_older(s.block);
    data().poison(s.block);
    b.copy = state::newer;
  } else if (b.copy == state::same && s.mode != access::read) {
    data().keep_older(s.block);
    b.copy = state::newer;
  }
}

DEEPUM_SEPARATE void paged_memory::after_body(const segment& s) {
  if (s.mode != access::read) {
    ++at(s.block).writes;
  }
}

DEEPUM_SEPARATE void paged_memory::give_up(block_id b) {
  if (at(b).copy == state::newer) {
    data().restore_older(b);
  }
  at(b).copy = state::garbage;
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
    expects(at(b).mapped, "a block is copied that is not mapped");
    ++at(b).copies;
    ++copies_;
  }
  q.copies.push_back({.range = range, .ticket = ticket, .leaves = leaves, .part = part});
  if (!q.sending) {
    next(q);
  }
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
  if (q.way.inward()) {
    finish_in(b, q.copies.front().ticket, began);
  } else {
    finish_out(b, writes_at_start);
  }
  --at(b).copies;
  --copies_;
  end_block(q);
}

DEEPUM_SEPARATE std::uint8_t paged_memory::route_of(const transfer& what) const {
  const topology& all = memory_space::places();
  const location from = what.to.is_host() ? place() : location::host();
  const route& said = all.routes()[what.via];
  return said.from == from && said.to == what.to ? what.via : all.cheapest(from, what.to);
}

DEEPUM_SEPARATE void paged_memory::finish_in(block_id b, std::uint64_t ticket, nanoseconds began) {
  owner_.memory_driver().counters().in_by_command += block_size;
  give_up(b);
  at(b).copy = state::same;
  device_event e;
  e.what = device_event::kind::arrived;
  e.why = reason::predicted;
  e.range = {b, 1};
  e.began = began;
  e.ticket = ticket;
  e.host_copy_stays = true;
  emit(e);
}

DEEPUM_SEPARATE void paged_memory::finish_out(block_id b, std::uint64_t writes_at_start) {
  owner_.memory_driver().counters().out_by_command += block_size;
  one_block& copied = at(b);
  if (copied.writes != writes_at_start) {
    return;  // written meanwhile: which bytes the host got is not known
  }
  if (copied.copy == state::garbage) {
    data().poison(b);
  } else if (copied.copy == state::newer) {
    data().forget_older(b);
  }
  copied.copy = state::same;
}

DEEPUM_SEPARATE void paged_memory::end_block(queue& q) {
  if (++q.copies.front().done == q.copies.front().range.count) {
    const queued_copy ended = q.copies.front();
    q.copies.pop_front();
    if (ended.leaves) {
      take_memory(ended.range);
      report(device_event::kind::departed, ended.range, ended.ticket, ended.began);
    }
    const bool start_reported = ended.leaves || q.way.inward();
    report(ended.part ? device_event::kind::failed : device_event::kind::completed, ended.range, ended.ticket,
           start_reported ? nanoseconds{} : ended.began);
  }
}

// ---- transfers of an engine ---------------------------------------------------------------------------------------

DEEPUM_SEPARATE void paged_memory::forget(block_range range, std::uint64_t ticket) {
  for (const block_id b : range) {
    if (at(b).mapped) {
      take_memory({b, 1});
    }
  }
  report(device_event::kind::completed, range, ticket);
}

DEEPUM_SEPARATE void paged_memory::drop(block_range range, std::uint64_t ticket) {
  take_memory(range);
  report(device_event::kind::departed, range, ticket);
  report(device_event::kind::completed, range, ticket);
}

DEEPUM_SEPARATE void paged_memory::bring(const transfer& what, std::uint64_t ticket) {
  if (!give_memory(what.blocks, ticket)) {
    return;
  }
  if (what.copies()) {
    queue_copy(queues_[route_of(what)], what.blocks, ticket, false);
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
    if (!other.on_host || !other.stale || other.copies != 0) {
      continue;
    }
    if (!other.mapped || other.copy == state::garbage) {
      data().poison(b);
    } else {
      if (other.copy == state::same) {
        data().keep_older(b);
        other.copy = state::newer;
      }
      data().poison_older(b);
    }
    other.on_host = false;
    --host_blocks_;
    return true;
  }
  return false;
}

DEEPUM_SEPARATE bool paged_memory::give_memory(block_range range, std::uint64_t ticket) {
  driver& rooms = owner_.memory_driver();
  if (rooms.free_rooms() < range.count) {
    last_failure_ = "no device memory to map " + std::to_string(range.count) + " blocks; " +
                    std::to_string(rooms.free_rooms()) + " are free";
    host_is_full_ = false;
    report(device_event::kind::failed, range, ticket);
    return false;
  }
  for (const block_id b : range) {
    expects(!at(b).mapped, "a block is mapped that is mapped already");
    (void)rooms.take_room(urgency::command, {});
    at(b).mapped = true;
    at(b).copy = state::garbage;
  }
  return true;
}

DEEPUM_SEPARATE void paged_memory::take_memory(block_range range) {
  for (const block_id b : range) {
    expects(at(b).mapped, "a block is unmapped that is not mapped");
    expects(at(b).copies == 0, "a block is unmapped that is being copied");
    give_up(b);
    at(b).mapped = false;
    owner_.memory_driver().give_room();
    if (const walk* user = owner_.memory_driver().active_with(*this, b)) {
      owner_.operations().fail(status::invalid_argument, unmapped(b) + " any more, while kernel '" + user->name +
                                                             "' (launch " + std::to_string(user->launch) + ") uses it");
    }
  }
}

}  // namespace sim
}  // namespace v0
}  // namespace deepum
