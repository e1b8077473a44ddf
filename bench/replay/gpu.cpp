#include "replay/gpu.hpp"

#include <deepum/error.hpp>

#include <algorithm>
#include <cmath>
#include <utility>

namespace deepum::replay {
namespace {

// The blocks at the beginning of a range for which the predicate holds.
template <class Predicate>
block_range prefix(block_range range, Predicate&& holds) {
  return {range.first, count_prefix(range, holds)};
}

}  // namespace

gpu::gpu(std::uint32_t blocks, std::uint32_t room, link_costs costs, bool keeps_home_copy, schedule_sink sink)
    : map_(blocks, location::device(), room, um_grid),
      placed_at_(blocks, -least_stay),
      costs_(costs),
      keeps_home_copy_(keeps_home_copy),
      sink_(std::move(sink)) {}

// --- the clock -----------------------------------------------------------------------------------------------------

void gpu::after(nanoseconds delay, std::function<void()> what) {
  ++due_;
  loop_.after(delay, [this, what = std::move(what)] {
    --due_;
    what();
  });
}

void gpu::run_next() {
  bool ran = false;
  sim::event_loop::host_call(loop_).wait([&] { return std::exchange(ran, true); });
}

void gpu::notify() {
  if (!pump_due_ && pump_) {
    pump_due_ = true;
    after(nanoseconds{}, [this] {
      pump_due_ = false;
      pump_();
    });
  }
}

void gpu::poll(std::vector<device_event>& events) {
  events.insert(events.end(), events_.begin(), events_.end());
  events_.clear();
}

void gpu::report(device_event::kind what, block_range range, std::uint64_t ticket, reason why, nanoseconds began) {
  device_event e;
  e.what = what;
  e.why = why;
  e.host_copy_stays = keeps_home_copy_;
  e.range = range;
  e.at = now();
  e.began = began;
  e.ticket = ticket;
  report(e);
}

void gpu::report(const device_event& e) {
  events_.push_back(e);
  ++reports_;
  notify();
}

void gpu::note(schedule_event what, block_range range, nanoseconds length) {
  if (sink_) {
    sink_({.what = what, .blocks = range, .start = now(), .end = now() + length});
  }
}

nanoseconds gpu::copy_time(double gbps, std::uint32_t count) const {
  const double transfer = static_cast<double>(count) * static_cast<double>(block_size.count) / gbps;
  return costs_.copy_latency + nanoseconds{static_cast<std::int64_t>(std::ceil(transfer))};
}

// Whatever happened may let something else begin. Faults go first, then room is made, then it is taken.
void gpu::make_progress() {
  progress_again_ = true;
  if (std::exchange(progressing_, true)) {
    return;
  }
  while (std::exchange(progress_again_, false)) {
    serve_fault();
    work_out();
    work_in();
    try_begin();
  }
  progressing_ = false;
}

// --- commands ------------------------------------------------------------------------------------------------------

bool gpu::prefetch(block_range range, std::uint64_t ticket) {
  in_.queue.push_back({schedule_event::copy_in, range, ticket});
  make_progress();
  return true;
}

bool gpu::populate(block_range range, std::uint64_t ticket) {
  const bool done = place_where_room(range, ticket);
  complete({schedule_event::make_new, range, ticket}, done);
  make_progress();
  return true;
}

// Returns whether all of it is there now.
bool gpu::place_where_room(block_range range, std::uint64_t ticket) {
  bool all_there = true;
  while (!range.empty()) {
    const block_range fits =
        prefix({range.first, std::min(range.count, map_.room())}, [&](block_id b) { return !map_.present(b); });
    if (!fits.empty()) {
      place_new(fits, ticket);
    } else {
      all_there = all_there && map_.resident(range.first) && map_[range.first].moving != motion::leaving;
    }
    advance(range, std::max(fits.count, 1U));
  }
  return all_there;
}

// What could not be done, because a fault took the room, or a launch or the driver has the blocks, is reported when
// something has ended. The engine learns nothing before: told at once it would ask for the same, and so on without end.
void gpu::complete(const operation& op, bool done) {
  if (done || !(in_.busy || out_.busy || running_ || fault_)) {
    report(device_event::kind::completed, op.rest, op.ticket);
  } else {
    left_out_.push_back(op);
  }
}

void gpu::complete_left_out() {
  for (const operation& op : std::exchange(left_out_, {})) {
    if (op.what == schedule_event::make_new) {
      (void)place_where_room(op.rest, op.ticket);
    }
    report(device_event::kind::completed, op.rest, op.ticket);
  }
}

bool gpu::evict(block_range range, std::uint64_t ticket) {
  out_.queue.push_back({schedule_event::copy_out, range, ticket});
  make_progress();
  return true;
}

bool gpu::clean(block_range range, std::uint64_t ticket) {
  out_.queue.push_back({schedule_event::copy_clean, range, ticket});
  make_progress();
  return true;
}

bool gpu::drop(block_range range, std::uint64_t ticket) {
  if (just_placed(range)) {
    after(least_stay, [this, range, ticket] { (void)drop(range, ticket); });
    return true;
  }
  complete({schedule_event::drop, range, ticket}, give_up(range, ticket, reason::make_room));
  make_progress();
  return true;
}

bool gpu::discard(block_range range, std::uint64_t ticket) {
  if (just_placed(range)) {
    after(least_stay, [this, range, ticket] { (void)discard(range, ticket); });
    return true;
  }
  const bool done = give_up(range, ticket, reason::dead);
  for (const block_id b : range) {
    if (!map_.present(b)) {
      map_.discard(b);
    }
  }
  complete({schedule_event::drop, range, ticket}, done);
  make_progress();
  return true;
}

// Room is taken without a copy.
void gpu::place_new(block_range range, std::uint64_t ticket) {
  note(schedule_event::make_new, range);
  for (const block_id b : range) {
    keeps_home_copy_ ? map_.arrive_empty(b) : map_.arrive(b, false);
    placed_at_[b.value] = now();
  }
  report(device_event::kind::arrived, range, ticket);
}

// Whether room was taken without a copy just now. A schedule cannot say that it was freed in the same moment, and a
// policy that takes it and frees it in turn would do so without end before anything else happens.
bool gpu::just_placed(block_range range) const {
  bool any = false;
  for (const block_id b : range) {
    any = any || (map_.resident(b) && placed_at_[b.value] + least_stay > now());
  }
  return any;
}

// Room is freed without a copy, by those blocks that have any and that nothing uses. Returns whether that was all.
bool gpu::give_up(block_range range, std::uint64_t ticket, reason why) {
  bool all_gone = true;
  while (!range.empty()) {
    const block_range gone =
        prefix(range, [&](block_id b) { return map_.resident(b) && map_[b].moving == motion::none && !in_use(b); });
    if (!gone.empty()) {
      note(schedule_event::drop, gone);
      for (const block_id b : gone) {
        map_.drop(b);
      }
      report(device_event::kind::departed, gone, ticket, why);
    } else {
      all_gone = all_gone && !map_.present(range.first);
    }
    advance(range, std::max(gone.count, 1U));
  }
  return all_gone;
}

void gpu::work_in() {
  while (!in_.busy && !fault_due_ && !in_.queue.empty()) {
    operation& op = in_.queue.front();
    if (const block_range there = prefix(op.rest, [&](block_id b) { return map_.resident(b); }); !there.empty()) {
      report(device_event::kind::arrived, there, op.ticket);
      advance(op.rest, there.count);
    }
    advance(op.rest, prefix(op.rest, [&](block_id b) { return map_.present(b); }).count);
    const std::uint32_t most = std::min(op.rest.count, map_.room());
    const block_range fresh =
        prefix({op.rest.first, most}, [&](block_id b) { return !map_.present(b) && map_[b].copies.empty(); });
    if (!fresh.empty()) {
      advance(op.rest, fresh.count);
      place_new(fresh, op.ticket);
      continue;
    }
    const block_range piece =
        prefix({op.rest.first, most}, [&](block_id b) { return !map_.present(b) && !map_[b].copies.empty(); });
    const bool fits = op.rest.empty() || !piece.empty();
    advance(op.rest, piece.empty() ? op.rest.count : piece.count);  // what does not fit is left out
    const operation now = op;
    if (op.rest.empty()) {
      in_.queue.pop_front();
    }
    if (piece.empty()) {
      complete(now, fits);
    } else {
      begin_copy_in(piece, now.ticket, now.rest.empty());
    }
  }
}

void gpu::begin_copy_in(block_range range, std::uint64_t ticket, bool last) {
  const nanoseconds time = copy_time(costs_.h2d_gbps, range.count);
  note(schedule_event::copy_in, range, time);
  for (const block_id b : range) {
    map_.start_arriving(b);
  }
  in_.busy = true;
  after(time, [this, range, ticket, last, began = now()] {
    in_.busy = false;
    for (const block_id b : range) {
      map_.arrive(b, keeps_home_copy_);
    }
    report(device_event::kind::arrived, range, ticket, reason::fault, began);
    if (ticket == 0) {
      end_fault();
    } else if (last) {
      report(device_event::kind::completed, {}, ticket);
    }
    complete_left_out();
    make_progress();
  });
}

void gpu::work_out() {
  while (!out_.busy && !out_.queue.empty()) {
    operation& op = out_.queue.front();
    const bool stays = op.what == schedule_event::copy_clean;
    const auto may_go = [&](block_id b) {
      const bool used = stays ? running_ && contains(queue_.front().touched->writes, b) : in_use(b);
      return map_.resident(b) && map_[b].moving == motion::none && !used;
    };
    bool gone = true;
    advance(op.rest, prefix(op.rest, [&](block_id b) {
                       const bool stuck = !may_go(b);
                       gone = gone && !(stuck && map_.resident(b));
                       return stuck;
                     }).count);
    const block_range piece = prefix(op.rest, may_go);
    advance(op.rest, piece.count);
    const operation now = op;
    if (op.rest.empty()) {
      out_.queue.pop_front();
    }
    if (piece.empty()) {
      complete(now, gone);
    } else {
      begin_copy_out(now.what, piece, now.ticket, now.rest.empty());
    }
  }
}

void gpu::begin_copy_out(schedule_event what, block_range range, std::uint64_t ticket, bool last) {
  const bool stays = what == schedule_event::copy_clean;
  const nanoseconds time = copy_time(costs_.d2h_gbps, range.count);
  note(what, range, time);
  for (const block_id b : range) {
    stays ? map_.start_cleaning(b) : map_.start_leaving(b);
  }
  out_.busy = true;
  after(time, [this, range, ticket, last, stays, began = now()] {
    out_.busy = false;
    for (const block_id b : range) {
      stays ? (void)map_.clean(b) : map_.depart(b);
    }
    if (!stays) {
      report(device_event::kind::departed, range, ticket, reason::make_room, began);
    }
    if (ticket != 0 && last) {
      report(device_event::kind::completed, {}, ticket, reason::fault, stays ? began : nanoseconds{});
    }
    complete_left_out();
    make_progress();
  });
}

}  // namespace deepum::replay
