#include "replay/gpu.hpp"

#include <deepum/error.hpp>

#include <algorithm>
#include <numeric>
#include <utility>

namespace deepum::replay {
namespace {

// The blocks at the beginning of a range for which the predicate holds.
template <class Predicate>
block_range prefix(block_range range, Predicate&& holds) {
  return {range.first, count_prefix(range, holds)};
}

}  // namespace

gpu::gpu(std::uint32_t blocks, const machine& what, bool keeps_home_copy, schedule_sink sink)
    : map_(blocks, what.places, um_grid),
      placed_at_(blocks, -least_stay),
      in_place_(blocks),
      machine_(what),
      keeps_home_copy_(keeps_home_copy),
      sink_(std::move(sink)),
      lanes_(what.places.routes().size()),
      links_(machine_) {
  expects(what.places.runs_on() == location::device(), "launches run on device 0");
  map_.set_budget(static_cast<std::uint32_t>(what.budget / block_size));
  // Room is made before it is taken. Of routes that share a link the slower ones begin first, and leave some of it.
  order_.resize(lanes_.size());
  std::iota(order_.begin(), order_.end(), std::uint8_t{0});
  const auto key = [this](std::uint8_t way) {
    const location to = machine_.places.routes()[way].to;
    return std::pair{to.is_host() ? 0 : to == here() ? 2 : 1, machine_.places.rate(way)};
  };
  std::stable_sort(order_.begin(), order_.end(), [&](std::uint8_t a, std::uint8_t b) { return key(a) < key(b); });
}

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

void gpu::note(schedule_entry entry, nanoseconds length) {
  if (sink_) {
    entry.start = now();
    entry.end = now() + length;
    sink_(entry);
  }
}

// Whatever happened may let something else begin. Faults go first, then room is made, then it is taken.
void gpu::make_progress() {
  progress_again_ = true;
  if (std::exchange(progressing_, true)) {
    return;
  }
  while (std::exchange(progress_again_, false)) {
    serve_fault();
    for (const std::uint8_t way : order_) {
      machine_.places.routes()[way].to.is_host() ? work_out(way) : work_in(way);
    }
    try_begin();
  }
  progressing_ = false;
}

// --- commands ------------------------------------------------------------------------------------------------------

bool gpu::start(const transfer& t, std::uint64_t ticket) {
  if (t.forgets()) {
    discard(t, ticket);
  } else if (t.copies()) {
    lanes_[t.via].queue.push_back({t, t.blocks, ticket});
    make_progress();
  } else if (t.takes_room()) {
    populate(t.blocks, ticket);
  } else {
    drop(t, ticket);
  }
  return true;
}

void gpu::populate(block_range range, std::uint64_t ticket) {
  const bool done = place_where_room(range, ticket);
  complete({transfer::populate(here(), reason::issued, range), range, ticket}, done);
  make_progress();
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
      all_there = all_there && map_.resident(range.first) && map_.moving(range.first) != motion::leaving;
    }
    advance(range, std::max(fits.count, 1U));
  }
  return all_there;
}

// What could not be done, because a fault took the room, or a launch or the driver has the blocks, is reported when
// something has ended. The engine learns nothing before: told at once it would ask for the same, and so on without end.
void gpu::complete(const operation& op, bool done) {
  if (done || !(copying() || running_ || fault_)) {
    report(device_event::kind::completed, op.rest, op.ticket);
  } else {
    left_out_.push_back(op);
  }
}

void gpu::complete_left_out() {
  for (const operation& op : std::exchange(left_out_, {})) {
    if (op.what.takes_room() && !op.what.copies()) {
      (void)place_where_room(op.rest, op.ticket);
    }
    report(device_event::kind::completed, op.rest, op.ticket);
  }
}

void gpu::drop(const transfer& t, std::uint64_t ticket) {
  if (just_placed(t.blocks, t.from)) {
    after(least_stay, [this, t, ticket] { drop(t, ticket); });
    return;
  }
  complete({t, t.blocks, ticket}, give_up(t.blocks, t.from, ticket, reason::make_room));
  make_progress();
}

void gpu::discard(const transfer& t, std::uint64_t ticket) {
  if (just_placed(t.blocks, here())) {
    after(least_stay, [this, t, ticket] { discard(t, ticket); });
    return;
  }
  bool done = true;
  for (unsigned l = 1; l != map_.places(); ++l) {
    done = give_up(t.blocks, location::at(l), ticket, reason::dead) && done;
  }
  for (const block_id b : t.blocks) {
    if (!map_.of(b).on_any_device()) {
      map_.discard(b);
    }
  }
  complete({t, t.blocks, ticket}, done);
  make_progress();
}

// Room is taken without a copy.
void gpu::place_new(block_range range, std::uint64_t ticket) {
  note({.what = schedule_event::make_new, .blocks = range});
  for (const block_id b : range) {
    keeps_home_copy_ ? map_.arrive_empty(b) : map_.arrive(b, false);
    placed_at_[b.value] = now();
  }
  peak_ = std::max(peak_, map_.occupied());
  report(device_event::kind::arrived, range, ticket);
}

// Whether room was taken without a copy just now. A schedule cannot say that it was freed in the same moment, and a
// policy that takes it and frees it in turn would do so without end before anything else happens. Nor can it say that
// older contents went in the moment when the launch began that writes newer ones.
bool gpu::just_placed(block_range range, location at) const {
  bool any = at != here() && running_ && began_ == now() && std::any_of(range.begin(), range.end(), [&](block_id b) {
               return contains(queue_.front().touched->writes, b);
             });
  for (const block_id b : range) {
    any = any || (map_.resident(b) && placed_at_[b.value] + least_stay > now());
  }
  return any;
}

// Room is freed without a copy, by those blocks that have any and that nothing uses. Returns whether that was all.
bool gpu::give_up(block_range range, location at, std::uint64_t ticket, reason why) {
  bool all_gone = true;
  // The room of older contents was free for a referee when the launch began that wrote newer ones.
  const auto has_room = [&](block_id b) {
    return at == here() || (map_.current(b, at) && !(running_ && contains(queue_.front().touched->writes, b)));
  };
  while (!range.empty()) {
    const bool counts = has_room(range.first);
    const block_range gone = prefix(range, [&](block_id b) {
      // The driver may have taken the device's copy meanwhile.
      const bool only_copy =
          why != reason::dead && at != here() && map_.current(b, at) && !map_.of(b).current_beside(at);
      return !only_copy && map_.of(b).at(at).holds() && !map_.of(b).in_motion(at) && !(at == here() && in_use(b)) &&
             has_room(b) == counts;
    });
    if (!gone.empty()) {
      if (counts) {
        note({.what = schedule_event::drop, .blocks = gone, .from = at});
      }
      for (const block_id b : gone) {
        map_.release(b, at);
      }
      report(device_event::kind::departed, gone, ticket, why);
    } else {
      all_gone = all_gone && !map_.present(range.first, at);
    }
    advance(range, std::max(gone.count, 1U));
  }
  return all_gone;
}

bool gpu::copying() const {
  return std::any_of(lanes_.begin(), lanes_.end(), [](const lane& l) { return l.busy; });
}

// A neighbour's copy may be older by now, or on its way out. What a launch writes is copied from nowhere.
bool gpu::may_be_read(block_id b, location from, bool released) const {
  const bool used =
      (running_ && contains(queue_.front().touched->writes, b)) || (from == here() && released && in_use(b));
  return map_.of(b).at(from).is == block_copy::phase::there && !used && (!released || !map_.of(b).in_motion(from)) &&
         (from == here() || map_.current(b, from));
}

// The driver makes room on the path of a command, block by block: whether it is about to.
bool gpu::waits_for_driver(const operation& op, location from, location to) {
  const bool makes_room = machine_.driver_makes_room && !keeps_home_copy_ && to == here() && map_.room() == 0;
  if (!makes_room || op.rest.empty() ||
      !(map_.nowhere(op.rest.first) || may_be_read(op.rest.first, from, op.what.releases()))) {
    return false;
  }
  if (const std::optional<block_id> victim = next_victim()) {
    drive_out(*victim);
    return true;
  }
  return map_.leaving() != 0 || running_;
}

void gpu::work_in(std::uint8_t way) {
  const location to = machine_.places.routes()[way].to;
  lane& mine = lanes_[way];
  while (!mine.busy && !awaits_links_ && !(fault_due_ && to == here()) && !mine.queue.empty() &&
         links_.rate_on(way) > 0) {
    operation& op = mine.queue.front();
    const location from = op.what.from;
    if (const block_range there = prefix(op.rest, [&](block_id b) { return map_.of(b).at(to).holds(); });
        !there.empty()) {
      report(device_event::kind::arrived, there, op.ticket);
      advance(op.rest, there.count);
    }
    advance(op.rest, prefix(op.rest, [&](block_id b) { return map_.present(b, to); }).count);
    if (waits_for_driver(op, from, to)) {
      return;
    }
    const std::uint32_t most = std::min({op.rest.count, map_.room(to), links_.most_at_once(way)});
    const block_range fresh = prefix({op.rest.first, to == here() ? most : 0},
                                     [&](block_id b) { return !map_.present(b) && map_.nowhere(b); });
    if (!fresh.empty()) {
      advance(op.rest, fresh.count);
      place_new(fresh, op.ticket);
      continue;
    }
    const block_range piece = prefix({op.rest.first, most}, [&](block_id b) {
      return !map_.present(b, to) && !map_.nowhere(b) && may_be_read(b, from, op.what.releases());
    });
    const bool fits = op.rest.empty() || !piece.empty();
    advance(op.rest, piece.empty() ? op.rest.count : piece.count);  // what does not fit is left out
    const operation now = op;
    if (op.rest.empty()) {
      mine.queue.pop_front();
    }
    if (piece.empty()) {
      complete(now, fits);
    } else {
      transfer t = now.what;
      t.blocks = piece;
      t.via = way;
      begin_copy(t, now.ticket, now.rest.empty());
    }
  }
}

void gpu::work_out(std::uint8_t way) {
  lane& mine = lanes_[way];
  while (!mine.busy && !awaits_links_ && !mine.queue.empty() && links_.rate_on(way) > 0) {
    operation& op = mine.queue.front();
    const location from = op.what.from;
    const bool leaves = op.what.releases();
    const auto may_go = [&](block_id b) {
      // What is copied from a neighbour to the device meanwhile stays there all the same.
      const bool moves = (leaves || from == here()) && map_.of(b).in_motion(from);
      return may_be_read(b, from, leaves) && !moves && !map_.of(b).in_motion(location::host());
    };
    bool gone = true;
    advance(op.rest, prefix(op.rest, [&](block_id b) {
                       const bool stuck = !may_go(b);
                       gone = gone && !(stuck && map_.of(b).at(from).holds());
                       return stuck;
                     }).count);
    const block_range piece = prefix({op.rest.first, std::min(op.rest.count, links_.most_at_once(way))}, may_go);
    advance(op.rest, piece.count);
    const operation now = op;
    if (op.rest.empty()) {
      mine.queue.pop_front();
    }
    if (piece.empty()) {
      complete(now, gone);
    } else {
      transfer t = now.what;
      t.blocks = piece;
      t.via = way;
      begin_copy(t, now.ticket, now.rest.empty());
    }
  }
}

// Ticket 0: for a fault.
void gpu::begin_copy(const transfer& t, std::uint64_t ticket, bool last) {
  const double gbps = links_.rate_on(t.via);
  const nanoseconds time = links_.copy_time(t.via, gbps, t.blocks.count);
  const bool in = t.from.is_host() && t.to == here();
  const bool out = t.from == here() && t.to.is_host();
  note({.what = in                    ? schedule_event::copy_in
                : out && t.releases() ? schedule_event::copy_out
                : out                 ? schedule_event::copy_clean
                                      : schedule_event::move,
        .blocks = t.blocks,
        .from = t.from,
        .to = t.to,
        .via = t.via,
        .then = t.then},
       time);
  for (const block_id b : t.blocks) {
    if (!t.to.is_host() || !t.releases()) {
      map_.start_arriving(b, t.to, t.from);
    }
    if (t.releases()) {
      map_.start_leaving(b, t.from);
    }
  }
  peak_ = std::max(peak_, map_.occupied());
  links_.begin(t.via, gbps);
  lanes_[t.via].busy = true;
  after(time, [this, t, ticket, last, gbps, began = now()] {
    links_.end(t.via, gbps);
    lanes_[t.via].busy = false;
    end_copy(t, ticket, last, began);
    complete_left_out();
    make_progress();
  });
}

void gpu::end_copy(const transfer& t, std::uint64_t ticket, bool last, nanoseconds began) {
  for (const block_id b : t.blocks) {
    if (t.from.is_host()) {
      map_.arrive(b, t.to, keeps_home_copy_);
    } else if (!t.to.is_host()) {
      map_.arrive_at(b, t.to);
    } else if (!t.releases()) {
      (void)map_.clean(b);
    }
    if (t.releases()) {
      t.to.is_host() ? map_.depart(b, t.from) : map_.release(b, t.from);
    }
  }
  if (!t.to.is_host()) {
    report(device_event::kind::arrived, t.blocks, ticket, reason::fault, began);
  }
  if (t.releases() && t.from.is_device()) {
    report(device_event::kind::departed, t.blocks, ticket, reason::make_room, began);
  }
  if (ticket == 0 && t.to == here()) {
    end_fault();
  } else if (ticket != 0 && last) {
    report(device_event::kind::completed, {}, ticket, reason::fault, t.cleans() ? began : nanoseconds{});
  }
}

}  // namespace deepum::replay
