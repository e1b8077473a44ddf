#pragma once

#include <deepum/core/block.hpp>
#include <deepum/core/launch.hpp>
#include <deepum/core/plan.hpp>
#include <deepum/engine/device_event.hpp>
#include <deepum/separate.hpp>
#include <deepum/sim/device_memory.hpp>
#include <deepum/sim/event_loop.hpp>
#include <deepum/sim/link.hpp>
#include <deepum/sim/managed_space.hpp>
#include <deepum/sim/profile.hpp>
#include <deepum/units.hpp>

#include <algorithm>
#include <bit>
#include <cstdint>

namespace deepum {
inline namespace v0 {
namespace sim {

DEEPUM_SEPARATE device_memory::device_memory(event_loop& loop, const profile& rates, host_bandwidth* shared)
    : loop_(loop),
      profile_(rates),
      in_(loop, shared),
      out_(loop, shared),
      rooms_(blocks(rates.memory)) {}

// ---- rooms ------------------------------------------------------------------------------------------------------

DEEPUM_SEPARATE void device_memory::set_foreign(bytes size) {
  foreign_ = blocks(size + block_size - bytes{1});
  loop_.motion_ended();
}

DEEPUM_SEPARATE device_memory::room device_memory::take_room(urgency who, const action_type& retry) {
  if (free_rooms() > 0) {
    ++used_;
    return room::taken;
  }
  for (const auto& entry : migrated_) {
    const managed_block victim = entry.second;
    if (victim.record().moving == block_record::motion::none && !is_kept(victim)) {
      ++counters_.driver_evictions;
      bring_out(who, victim, counters_.out_by_driver, reason::make_room, 0, retry);
      return room::later;
    }
  }
  if (moving_ > 0 || (who == urgency::command && !kept_.empty())) {
    loop_.on_motion_end(retry);
    return room::later;
  }
  return room::refused;
}

DEEPUM_SEPARATE void device_memory::give_room() {
  --used_;
  loop_.motion_ended();
}

DEEPUM_SEPARATE device_memory::room device_memory::take_room_for(managed_block b, urgency who,
                                                                 const action_type& retry) {
  const room answer = take_room(who, retry);
  if (answer == room::taken) {
    b.record().room = true;
    make_newest(b);
  }
  return answer;
}

DEEPUM_SEPARATE bool device_memory::is_kept(managed_block b) const {
  return std::find(kept_.begin(), kept_.end(), b) != kept_.end();
}

// ---- motion -----------------------------------------------------------------------------------------------------

DEEPUM_SEPARATE void device_memory::start(block_record& r, block_record::motion m) {
  r.moving = m;
  ++moving_;
}

DEEPUM_SEPARATE void device_memory::stop(block_record& r) {
  r.moving = block_record::motion::none;
  --moving_;
}

DEEPUM_SEPARATE void device_memory::make_newest(managed_block b) {
  block_record& r = b.record();
  migrated_.erase(r.migrated);
  r.migrated = ++order_;
  migrated_.emplace(r.migrated, b);
}

DEEPUM_SEPARATE void device_memory::release(managed_block b) {
  block_record& r = b.record();
  r.on_device = 0;
  if (r.room) {
    migrated_.erase(r.migrated);
    r.migrated = 0;
    r.room = false;
    --used_;
  }
}

DEEPUM_SEPARATE void device_memory::copy_out(urgency who, managed_block b, bytes& counter, const action_type& done) {
  block_record& r = b.record();
  const bytes n = size_of(r.on_device & ~r.on_host);
  const auto finish = [=, this, &r] {
    r.on_host |= r.on_device;
    stop(r);
    copied_since_ = n.count == 0 ? nanoseconds{} : out_.began();
    done();
    loop_.motion_ended();
  };
  start(r, block_record::motion::leaving);
  if (n.count == 0) {
    finish();
    return;
  }
  counter += n;
  out_.submit(
      who, [this, n] { return out_time(n); }, finish);
}

DEEPUM_SEPARATE void device_memory::bring_out(urgency who, managed_block b, bytes& counter, reason why,
                                              std::uint64_t ticket, const action_type& done) {
  copy_out(who, b, counter, [=, this] {
    release(b);
    tell_departed(b, why, ticket, copied_since_);
    done();
  });
}

DEEPUM_SEPARATE void device_memory::settle(managed_block b, std::uint32_t pages, access mode, reason why,
                                           std::uint64_t ticket, nanoseconds began) {
  block_record& r = b.record();
  r.on_device |= pages;
  if (!r.read_mostly || mode != access::read) {
    r.on_host &= ~r.on_device;
  }
  if (!r.accessed_by) {
    r.mapped = false;
  }
  make_newest(b);
  device_event e;
  e.what = device_event::kind::arrived;
  e.why = why;
  e.range = {b.block, 1};
  e.began = began;
  e.ticket = ticket;
  e.host_copy_stays = r.on_host == all_pages;
  b.space->emit(e);
}

DEEPUM_SEPARATE void device_memory::tell_departed(managed_block b, reason why, std::uint64_t ticket,
                                                  nanoseconds began) {
  device_event e;
  e.what = device_event::kind::departed;
  e.why = why;
  e.range = {b.block, 1};
  e.began = began;
  e.ticket = ticket;
  b.space->emit(e);
}

DEEPUM_SEPARATE bytes device_memory::size_of(std::uint32_t pages) {
  return page_size * static_cast<std::uint64_t>(std::popcount(pages));
}

DEEPUM_SEPARATE std::uint32_t device_memory::blocks(bytes size) {
  return static_cast<std::uint32_t>(size / block_size);
}

DEEPUM_SEPARATE nanoseconds device_memory::out_time(bytes n) const {
  return time_at(n, in_.busy() ? profile_.prefetch_out_beside_in : profile_.prefetch_out);
}

}  // namespace sim
}  // namespace v0
}  // namespace deepum
