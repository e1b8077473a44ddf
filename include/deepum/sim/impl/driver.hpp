#pragma once

#include <deepum/core/block.hpp>
#include <deepum/core/launch.hpp>
#include <deepum/core/location.hpp>
#include <deepum/engine/memory_kind.hpp>
#include <deepum/error.hpp>
#include <deepum/policy/plan.hpp>
#include <deepum/separate.hpp>
#include <deepum/sim/address_space.hpp>
#include <deepum/sim/driver.hpp>
#include <deepum/sim/event_loop.hpp>
#include <deepum/sim/link.hpp>
#include <deepum/sim/profile.hpp>
#include <deepum/units.hpp>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <utility>
#include <vector>

namespace deepum {
inline namespace v0 {
namespace sim {

DEEPUM_SEPARATE std::uint32_t block_record::missing(std::uint32_t pages, access mode) const {
  std::uint32_t missing = pages & ~on_device;
  if (accessed_by || mapped) {
    missing &= ~on_host;
  }
  if (mode != access::read) {
    missing |= pages & on_device & on_host;  // the copies have to become one first
  }
  return missing;
}

DEEPUM_SEPARATE touch_result managed_space::touch(const segment& s) {
  const block_record& r = blocks_[s.block.value];
  if (r.moving == block_record::motion::leaving) {
    return touch_result::moving;
  }
  if (r.missing(s.pages, s.mode) != 0) {
    return r.moving == block_record::motion::arriving ? touch_result::moving : touch_result::missing;
  }
  return (s.pages & ~r.on_device) != 0 ? touch_result::remote : touch_result::ready;
}

DEEPUM_SEPARATE driver::driver(event_loop& loop, const profile& p)
    : loop_(loop),
      profile_(p),
      in_(loop),
      out_(loop),
      rooms_(blocks(p.memory)) {}

DEEPUM_SEPARATE void driver::set_foreign(bytes size) {
  foreign_ = blocks(size + block_size - bytes{1});
  loop_.motion_ended();
}

DEEPUM_SEPARATE void driver::begin(const walk& w) { active_.push_back(&w); }

DEEPUM_SEPARATE void driver::end(const walk& w) { std::erase(active_, &w); }

DEEPUM_SEPARATE const walk* driver::active_with(const address_space& space, block_id b) const {
  for (const walk* w : active_) {
    if (w->touches(space, b)) {
      return w;
    }
  }
  return nullptr;
}

// ---- room -------------------------------------------------------------------------------------------------------

DEEPUM_SEPARATE driver::room driver::take_room(urgency who, const action_type& retry) {
  if (free_rooms() > 0) {
    ++used_;
    return room::taken;
  }
  for (const auto& entry : migrated_) {
    const resident_block victim = entry.second;
    if ((*victim.space)[victim.block].moving == block_record::motion::none && !in_batch(victim)) {
      ++counters_.driver_evictions;
      bring_out(who, victim.space, victim.block, counters_.out_by_driver, [this, victim, retry] {
        victim.space->emit(departed(victim.block, reason::make_room, 0, copied_since_));
        retry();
      });
      return room::later;
    }
  }
  if (moving_ > 0 || (who == urgency::command && !batch_.empty())) {
    loop_.on_motion_end(retry);
    return room::later;
  }
  return room::refused;
}

DEEPUM_SEPARATE void driver::give_room() {
  --used_;
  loop_.motion_ended();
}

// ---- faults -----------------------------------------------------------------------------------------------------

DEEPUM_SEPARATE void driver::fault(walk& w, fault_result resume) {
  requests_.push_back({&w, std::move(resume)});
  if (!serving_) {
    next_batch();
  }
}

// ---- commands ---------------------------------------------------------------------------------------------------

DEEPUM_SEPARATE void driver::submit(const device_command& c) {
  const bool inward = c.what == action::prefetch || c.what == action::advise;
  direction& d = inward ? inward_ : outward_;
  d.queue.push_back(c);
  if (!d.busy) {
    next_command(d);
  }
}

DEEPUM_SEPARATE bool driver::quiet(managed_space& space) const {
  const auto of_space = [&](const device_command& c) { return c.space == &space; };
  if (std::any_of(inward_.queue.begin(), inward_.queue.end(), of_space) ||
      std::any_of(outward_.queue.begin(), outward_.queue.end(), of_space)) {
    return false;
  }
  for (std::uint32_t b = 0; b < space.size(); ++b) {
    if (space[block_id{b}].moving != block_record::motion::none) {
      return false;
    }
  }
  return true;
}

DEEPUM_SEPARATE void driver::forget(managed_space& space) {
  for (std::uint32_t b = 0; b < space.size(); ++b) {
    release(space, block_id{b});
  }
  loop_.motion_ended();
}

// ---- the host ---------------------------------------------------------------------------------------------------

DEEPUM_SEPARATE void driver::host_access(event_loop::host_call& call, managed_space& space, block_id b,
                                         std::uint32_t pages, access mode) {
  block_record& r = space[b];
  for (;;) {
    call.wait([&] { return r.moving == block_record::motion::none; });
    const bool writes = mode != access::read;
    const std::uint32_t fetch = pages & r.on_device & (writes ? all_pages : ~r.on_host);
    if (fetch == 0) {
      break;
    }
    const bool keep = r.read_mostly && !writes;
    call.spend(profile_.host_fault);
    if (r.moving != block_record::motion::none || (pages & r.on_device) == 0) {
      continue;
    }
    bool arrived = false;
    const auto done = [&] { arrived = true; };
    if (keep) {
      copy_out(urgency::fault, &space, b, counters_.out_by_host, done);
    } else {
      bring_out(urgency::fault, &space, b, counters_.out_by_host, [&, done] {
        space.emit(departed(b, reason::host, 0, copied_since_));
        done();
      });
    }
    call.wait([&] { return arrived; });
  }
  const std::uint32_t fresh = pages & ~r.on_host & ~r.on_device;
  if (fresh != 0) {
    call.spend(profile_.host_populate_block * std::popcount(fresh) / 32);
  }
  // Another thread may have had the turn meanwhile; its access and this one race, as they would on hardware.
  r.on_host |= pages & ~r.on_device;
}

DEEPUM_SEPARATE std::uint32_t driver::blocks(bytes size) { return static_cast<std::uint32_t>(size / block_size); }

DEEPUM_SEPARATE bytes driver::size_of(std::uint32_t pages) {
  return page_size * static_cast<std::uint64_t>(std::popcount(pages));
}

DEEPUM_SEPARATE device_event driver::departed(block_id b, reason why, std::uint64_t ticket, nanoseconds began) {
  device_event e;
  e.what = device_event::kind::departed;
  e.why = why;
  e.range = {b, 1};
  e.began = began;
  e.ticket = ticket;
  return e;
}

DEEPUM_SEPARATE void driver::finish(const device_command& c, bool failed) {
  device_event e;
  e.what = failed ? device_event::kind::failed : device_event::kind::completed;
  e.range = c.range;
  e.ticket = c.ticket;
  c.space->emit(e);
}

// ---- motion -----------------------------------------------------------------------------------------------------

DEEPUM_SEPARATE void driver::start(block_record& r, block_record::motion m) {
  r.moving = m;
  ++moving_;
}

DEEPUM_SEPARATE void driver::stop(block_record& r) {
  r.moving = block_record::motion::none;
  --moving_;
}

DEEPUM_SEPARATE void driver::make_newest(managed_space& space, block_id b) {
  block_record& r = space[b];
  migrated_.erase(r.migrated);
  r.migrated = ++order_;
  migrated_.emplace(r.migrated, resident_block{&space, b});
}

DEEPUM_SEPARATE void driver::release(managed_space& space, block_id b) {
  block_record& r = space[b];
  r.on_device = 0;
  if (r.room) {
    migrated_.erase(r.migrated);
    r.migrated = 0;
    r.room = false;
    --used_;
  }
}

DEEPUM_SEPARATE nanoseconds driver::out_time(bytes n) const {
  return time_at(n, in_.busy() ? profile_.prefetch_out_beside_in : profile_.prefetch_out);
}

DEEPUM_SEPARATE void driver::copy_out(urgency who, managed_space* space, block_id b, bytes& counter,
                                      const action_type& done) {
  block_record& r = (*space)[b];
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

DEEPUM_SEPARATE void driver::bring_out(urgency who, managed_space* space, block_id b, bytes& counter,
                                       const action_type& done) {
  copy_out(who, space, b, counter, [=, this] {
    release(*space, b);
    done();
  });
}

DEEPUM_SEPARATE void driver::settle(managed_space& space, block_id b, std::uint32_t pages, access mode, reason why,
                                    std::uint64_t ticket, nanoseconds began) {
  block_record& r = space[b];
  r.on_device |= pages;
  if (!r.read_mostly || mode != access::read) {
    r.on_host &= ~r.on_device;
  }
  if (!r.accessed_by) {
    r.mapped = false;
  }
  make_newest(space, b);
  device_event e;
  e.what = device_event::kind::arrived;
  e.why = why;
  e.range = {b, 1};
  e.began = began;
  e.ticket = ticket;
  e.host_copy_stays = r.on_host == all_pages;
  space.emit(e);
}

// ---- fault service ----------------------------------------------------------------------------------------------

DEEPUM_SEPARATE bool driver::in_batch(const resident_block& x) const {
  return std::any_of(batch_.begin(), batch_.end(),
                     [&](const faulted_block& f) { return f.at.space == x.space && f.at.block == x.block; });
}

DEEPUM_SEPARATE std::uint32_t driver::with_neighbours(std::uint32_t wanted, std::uint32_t there) {
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

DEEPUM_SEPARATE void driver::next_batch() {
  serving_ = !requests_.empty();
  if (!serving_) {
    return;
  }
  collect(*requests_.front().who);
  if (batch_.empty()) {  // all of it came while the request waited
    end_batch(0);
    return;
  }
  ++counters_.fault_batches;
  counters_.faulted_blocks += batch_.size();
  for (const faulted_block& f : batch_) {
    device_event e;
    e.what = device_event::kind::fault;
    e.mode = f.mode == access::read ? access::read : access::update;
    e.range = {f.at.block, 1};
    f.at.space->emit(e);
  }
  loop_.after(profile_.fault_batch, [this] { serve(0); });
}

DEEPUM_SEPARATE void driver::collect(const walk& w) {
  auto entries = static_cast<int>(std::max(1U, profile_.fault_entries / std::max(1U, profile_.fault_duplicates)));
  std::uint64_t window = std::max<std::uint64_t>(1, profile_.fault_window.count);
  const std::uint32_t rooms = std::max(1U, free_rooms() + static_cast<std::uint32_t>(migrated_.size()));
  for (std::size_t i = w.position; i < w.segments.size() && entries > 0; ++i) {
    const segment& s = w.segments[i];
    managed_space* const space = s.space != nullptr ? s.space->managed() : nullptr;
    if (space != nullptr && (*space)[s.block].moving == block_record::motion::none) {
      std::uint32_t pages = 0;
      for (std::uint32_t rest = (*space)[s.block].missing(s.pages, s.mode); rest != 0 && entries > 0;
           rest &= rest - 1, --entries) {
        pages |= rest & (~rest + 1);
      }
      const auto same = std::find_if(batch_.begin(), batch_.end(), [&](const faulted_block& f) {
        return f.at.space == space && f.at.block == s.block;
      });
      if (pages != 0 && same != batch_.end()) {
        same->pages |= pages;
        same->mode = s.mode == access::read ? same->mode : s.mode;
      } else if (pages != 0) {
        if (batch_.size() == rooms) {
          return;
        }
        batch_.push_back({{space, s.block}, pages, s.mode});
      }
    }
    if (s.size >= window) {
      return;
    }
    window -= s.size;
  }
}

DEEPUM_SEPARATE void driver::serve(std::size_t i) {
  if (i == batch_.size()) {
    end_batch(i);
    return;
  }
  const faulted_block& f = batch_[i];
  managed_space& space = *f.at.space;
  const block_id b = f.at.block;
  block_record& r = space[b];
  if (r.moving != block_record::motion::none) {
    loop_.on_motion_end([this, i] { serve(i); });
    return;
  }
  if (r.missing(f.pages, f.mode) == 0) {
    serve(i + 1);
    return;
  }
  if (r.preferred == block_record::preference::host && (f.pages & ~r.on_host & ~r.on_device) == 0 &&
      (f.pages & r.on_device) == 0) {
    r.mapped = true;  // it is where it should be: a mapping is all that was missing
    loop_.after(profile_.fault_block, [this, i] { serve(i + 1); });
    return;
  }
  if (!r.room) {
    const room answer = take_room(urgency::fault, [this, i] { serve(i); });
    if (answer == room::later) {
      return;
    }
    if (answer == room::refused) {
      end_batch(i);
      return;
    }
    r.room = true;
    make_newest(space, b);
  }
  const std::uint32_t pages = with_neighbours(f.pages & ~r.on_device, r.on_device);
  start(r, block_record::motion::arriving);
  loop_.after(profile_.fault_block + profile_.fault_page * std::popcount(pages), [=, this, &r, &space] {
    const bytes n = size_of(pages & r.on_host);
    const nanoseconds populate = profile_.populate_block * std::popcount(pages & ~r.on_host) / 32;
    const auto arrived = [=, this, &r, &space] {
      stop(r);
      settle(space, b, pages, batch_[i].mode, reason::fault, 0, n.count == 0 ? nanoseconds{} : in_.began());
      loop_.motion_ended();
      serve(i + 1);
    };
    if (n.count == 0) {
      loop_.after(populate, arrived);
      return;
    }
    counters_.in_by_fault += n;
    in_.submit(
        urgency::fault, [=, this] { return time_at(n, profile_.link_in) + populate; }, arrived);
  });
}

DEEPUM_SEPARATE void driver::end_batch(std::size_t served) {
  fault_request request = std::move(requests_.front());
  requests_.pop_front();
  walk& w = *request.who;
  if (served > 0 && w.position < w.segments.size()) {
    // The faulting threads run before anything can be taken from them again: an operation always gets on.
    segment& s = w.segments[w.position];
    if (s.space == batch_.front().at.space && s.block == batch_.front().at.block) {
      s.pages &= ~batch_.front().pages;
    }
  }
  const bool hopeless = served == 0 && batch_.size() == 1;
  batch_.clear();
  request.resume(!hopeless);
  loop_.motion_ended();
  next_batch();
}

// ---- commands ---------------------------------------------------------------------------------------------------

DEEPUM_SEPARATE void driver::next_command(direction& d) {
  d.busy = !d.queue.empty();
  if (!d.busy) {
    return;
  }
  device_command& c = d.queue.front();
  if (c.done == c.stop_at) {
    end_command(d, true);
    return;
  }
  if (c.done == c.range.count) {
    end_command(d, false);
    return;
  }
  const block_id b{c.range.first.value + c.done};
  if ((*c.space)[b].moving != block_record::motion::none) {
    loop_.on_motion_end([this, &d] { next_command(d); });
    return;
  }
  switch (c.what) {
    case action::prefetch:
      prefetch_block(d, c, b);
      return;
    case action::evict:
      evict_block(d, c, b);
      return;
    case action::discard:
      loop_.after(profile_.discard_block, [=, this, &d] { discard_block(d, b); });
      return;
    case action::advise:
      loop_.after((c.done == 0 ? profile_.advise_call : nanoseconds{}) +
                      (c.hint == advice::set_read_mostly ? profile_.duplicate_block : nanoseconds{}),
                  [=, this, &d] { advise_block(d, b); });
      return;
    case action::clean:
    case action::drop:
      break;
  }
  expects(false, "managed memory has neither clean nor drop");
}

DEEPUM_SEPARATE void driver::end_command(direction& d, bool failed) {
  const device_command c = d.queue.front();
  d.queue.pop_front();
  if (c.what != action::advise) {  // a hint has no ticket
    finish(c, failed);
  }
  next_command(d);
}

DEEPUM_SEPARATE void driver::next_block(direction& d) {
  ++d.queue.front().done;
  next_command(d);
}

DEEPUM_SEPARATE void driver::prefetch_block(direction& d, device_command& c, block_id b) {
  managed_space& space = *c.space;
  block_record& r = space[b];
  if (r.on_device == all_pages) {  // nothing to move, but it becomes the most recently migrated one
    settle(space, b, all_pages, access::read, reason::predicted, c.ticket);
    loop_.after(profile_.pass_block, [this, &d] { next_block(d); });
    return;
  }
  if (!r.room) {
    const room answer = take_room(urgency::command, [this, &d] { next_command(d); });
    if (answer == room::later) {
      return;
    }
    if (answer == room::refused) {
      end_command(d, true);
      return;
    }
    r.room = true;
    make_newest(space, b);
  }
  const std::uint32_t pages = ~r.on_device;
  const bytes n = size_of(pages & r.on_host);
  const nanoseconds populate = profile_.populate_block * std::popcount(pages & ~r.on_host) / 32;
  const nanoseconds time = prefetch_time(profile_, c.moved + n) - prefetch_time(profile_, c.moved) + populate;
  const auto arrived = [=, this, &d, &r, &space] {
    stop(r);
    settle(space, b, pages, access::read, reason::predicted, d.queue.front().ticket,
           n.count == 0 ? nanoseconds{} : in_.began());
    loop_.motion_ended();
    next_block(d);
  };
  start(r, block_record::motion::arriving);
  if (n.count == 0) {
    loop_.after(time, arrived);
    return;
  }
  c.moved += n;
  counters_.in_by_command += n;
  in_.submit(
      urgency::command, [time] { return time; }, arrived);
}

DEEPUM_SEPARATE void driver::evict_block(direction& d, device_command& c, block_id b) {
  managed_space* const space = c.space;
  block_record& r = (*space)[b];
  const std::uint64_t ticket = c.ticket;
  if (!r.room) {
    loop_.after(profile_.pass_block, [this, &d] { next_block(d); });
    return;
  }
  if (r.read_mostly && (r.on_device & ~r.on_host) == 0) {  // its duplication ends, and with it the device's copy
    release(*space, b);
    space->emit(departed(b, reason::make_room, ticket));
    loop_.motion_ended();
    loop_.after(profile_.drop_block, [this, &d] { next_block(d); });
    return;
  }
  bring_out(urgency::command, space, b, counters_.out_by_command, [=, this, &d] {
    space->emit(departed(b, reason::make_room, ticket, copied_since_));
    next_block(d);
  });
}

DEEPUM_SEPARATE void driver::discard_block(direction& d, block_id b) {
  device_command& c = d.queue.front();
  managed_space& space = *c.space;
  block_record& r = space[b];
  if (r.moving != block_record::motion::none) {
    next_command(d);
    return;
  }
  const bool had_room = r.room;
  release(space, b);
  r.on_host = 0;
  space.data().poison(b);
  for (const walk* w : active_) {
    if (w->touches(space, b)) {
      poison_later_.push_back({w, {&space, b}});
    }
  }
  if (had_room) {
    space.emit(departed(b, reason::dead, c.ticket));
    loop_.motion_ended();
  }
  next_block(d);
}

DEEPUM_SEPARATE void driver::advise_block(direction& d, block_id b) {
  const device_command& c = d.queue.front();
  managed_space& space = *c.space;
  block_record& r = space[b];
  using preference = block_record::preference;
  switch (c.hint) {
    case advice::none:
      break;
    case advice::set_read_mostly:
      r.read_mostly = true;
      break;
    case advice::unset_read_mostly:
      if (r.moving != block_record::motion::none) {
        next_command(d);
        return;
      }
      r.read_mostly = false;
      if ((r.on_device & r.on_host) != 0) {  // one copy stays: the preferred one, else the host's
        if (r.preferred == preference::device || (r.on_device & ~r.on_host) != 0) {
          r.on_host &= ~r.on_device;
        } else {
          release(space, b);
          space.emit(departed(b, reason::learned, c.ticket));
          loop_.motion_ended();
        }
      }
      break;
    case advice::set_preferred_location:
      r.preferred = c.to.is_host() ? preference::host : preference::device;
      break;
    case advice::unset_preferred_location:
      r.preferred = preference::none;
      break;
    case advice::set_accessed_by:
      r.accessed_by = r.accessed_by || !c.to.is_host();
      break;
    case advice::unset_accessed_by:
      if (!c.to.is_host()) {
        r.accessed_by = r.mapped = false;
      }
      break;
  }
  next_block(d);
}

DEEPUM_SEPARATE void driver::poison_after(const walk& w) {
  std::erase_if(poison_later_, [&](const auto& entry) {
    if (entry.first != &w) {
      return false;
    }
    entry.second.space->data().poison(entry.second.block);
    return true;
  });
}

}  // namespace sim
}  // namespace v0
}  // namespace deepum
