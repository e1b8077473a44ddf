#pragma once

#include <deepum/core/block.hpp>
#include <deepum/core/launch.hpp>
#include <deepum/core/location.hpp>
#include <deepum/core/plan.hpp>
#include <deepum/engine/device_event.hpp>
#include <deepum/separate.hpp>
#include <deepum/sim/active_walks.hpp>
#include <deepum/sim/command_queue.hpp>
#include <deepum/sim/device_memory.hpp>
#include <deepum/sim/link.hpp>
#include <deepum/sim/managed_space.hpp>
#include <deepum/sim/profile.hpp>
#include <deepum/units.hpp>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <deque>

namespace deepum {
inline namespace v0 {
namespace sim {

DEEPUM_SEPARATE void command_queue::submit(const device_command& c) {
  queue_.push_back(c);
  if (!busy_) {
    next_command();
  }
}

DEEPUM_SEPARATE bool command_queue::has_any_of(const managed_space& space) const {
  return std::any_of(queue_.begin(), queue_.end(), [&](const device_command& c) { return c.space == &space; });
}

DEEPUM_SEPARATE void command_queue::next_command() {
  busy_ = !queue_.empty();
  if (!busy_) {
    return;
  }
  device_command& c = queue_.front();
  if (c.done == c.stop_at) {
    end_command(true);
    return;
  }
  if (c.done == c.range.count) {
    end_command(false);
    return;
  }
  const managed_block b{c.space, block_id{c.range.first.value + c.done}};
  if (b.record().moving != block_record::motion::none) {
    memory_.loop().on_motion_end([this] { next_command(); });
    return;
  }
  const profile& costs = memory_.costs();
  if (c.is_hint) {
    memory_.loop().after((c.done == 0 ? costs.advise_call : nanoseconds{}) +
                             (c.hint == advice::set_read_mostly ? costs.duplicate_block : nanoseconds{}),
                         [this, b] { advise_block(b); });
  } else if (c.what.forgets()) {
    memory_.loop().after(costs.discard_block, [this, b] { discard_block(b); });
  } else if (c.what.releases()) {
    evict_block(c, b);
  } else {
    prefetch_block(c, b);
  }
}

DEEPUM_SEPARATE void command_queue::end_command(bool failed) {
  const device_command c = queue_.front();
  queue_.pop_front();
  if (!c.is_hint) {  // which has no ticket
    device_event e;
    e.what = failed ? device_event::kind::failed : device_event::kind::completed;
    e.range = c.range;
    e.ticket = c.ticket;
    c.space->emit(e);
  }
  next_command();
}

DEEPUM_SEPARATE void command_queue::next_block() {
  ++queue_.front().done;
  next_command();
}

DEEPUM_SEPARATE void command_queue::pass_block() {
  memory_.loop().after(memory_.costs().pass_block, [this] { next_block(); });
}

DEEPUM_SEPARATE void command_queue::prefetch_block(device_command& c, managed_block b) {
  const profile& costs = memory_.costs();
  block_record& r = b.record();
  if (r.on_device == all_pages) {  // nothing to move, but it becomes the most recently migrated one
    memory_.settle(b, all_pages, access::read, reason::predicted, c.ticket);
    pass_block();
    return;
  }
  if (!r.room) {
    const device_memory::room answer = memory_.take_room_for(b, urgency::command, [this] { next_command(); });
    if (answer == device_memory::room::later) {
      return;
    }
    if (answer == device_memory::room::refused) {
      end_command(true);
      return;
    }
  }
  const std::uint32_t pages = ~r.on_device;
  const bytes n = device_memory::size_of(pages & r.on_host);
  const nanoseconds populate = costs.populate_block * std::popcount(pages & ~r.on_host) / 32;
  const nanoseconds time = prefetch_time(costs, c.moved + n) - prefetch_time(costs, c.moved) + populate;
  const auto arrived = [=, this, &r] {
    memory_.stop(r);
    memory_.settle(b, pages, access::read, reason::predicted, queue_.front().ticket,
                   n.count == 0 ? nanoseconds{} : memory_.in().began());
    memory_.loop().motion_ended();
    next_block();
  };
  memory_.start(r, block_record::motion::arriving);
  if (n.count == 0) {
    memory_.loop().after(time, arrived);
    return;
  }
  c.moved += n;
  memory_.counters().in_by_command += n;
  memory_.in().submit(
      urgency::command, [time] { return time; }, arrived);
}

DEEPUM_SEPARATE void command_queue::evict_block(const device_command& c, managed_block b) {
  const block_record& r = b.record();
  if (!r.room) {
    pass_block();
    return;
  }
  if (r.read_mostly && (r.on_device & ~r.on_host) == 0) {  // its duplication ends, and with it the device's copy
    memory_.release(b);
    device_memory::tell_departed(b, reason::make_room, c.ticket);
    memory_.loop().motion_ended();
    memory_.loop().after(memory_.costs().drop_block, [this] { next_block(); });
    return;
  }
  memory_.bring_out(urgency::command, b, memory_.counters().out_by_command, reason::make_room, c.ticket,
                    [this] { next_block(); });
}

DEEPUM_SEPARATE void command_queue::discard_block(managed_block b) {
  block_record& r = b.record();
  if (r.moving != block_record::motion::none) {
    next_command();
    return;
  }
  const bool had_room = r.room;
  memory_.release(b);
  r.on_host = 0;
  walks_.poison(b);
  if (had_room) {
    device_memory::tell_departed(b, reason::dead, queue_.front().ticket);
    memory_.loop().motion_ended();
  }
  next_block();
}

DEEPUM_SEPARATE void command_queue::advise_block(managed_block b) {
  const device_command& c = queue_.front();
  block_record& r = b.record();
  using preference = block_record::preference;
  switch (c.hint) {
    case advice::none:
      break;
    case advice::set_read_mostly:
      r.read_mostly = true;
      break;
    case advice::unset_read_mostly:
      if (r.moving != block_record::motion::none) {
        next_command();
        return;
      }
      end_duplication(b, c.ticket);
      break;
    case advice::set_preferred_location:
      r.preferred = c.what.to.is_host() ? preference::host : preference::device;
      break;
    case advice::unset_preferred_location:
      r.preferred = preference::none;
      break;
    case advice::set_accessed_by:
      r.accessed_by = r.accessed_by || !c.what.to.is_host();
      break;
    case advice::unset_accessed_by:
      if (!c.what.to.is_host()) {
        r.accessed_by = r.mapped = false;
      }
      break;
    case advice::set_in_place:
      r.preferred = preference::host;
      r.accessed_by = true;
      break;
    case advice::unset_in_place:
      r.preferred = preference::none;
      r.accessed_by = r.mapped = false;
      break;
  }
  next_block();
}

DEEPUM_SEPARATE void command_queue::end_duplication(managed_block b, std::uint64_t ticket) {
  block_record& r = b.record();
  r.read_mostly = false;
  if ((r.on_device & r.on_host) == 0) {
    return;
  }
  if (r.preferred == block_record::preference::device || (r.on_device & ~r.on_host) != 0) {
    r.on_host &= ~r.on_device;
  } else {
    memory_.release(b);
    device_memory::tell_departed(b, reason::learned, ticket);
    memory_.loop().motion_ended();
  }
}

}  // namespace sim
}  // namespace v0
}  // namespace deepum
