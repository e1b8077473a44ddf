// Launches of the replay's GPU, and the faults that they take.
#include "replay/gpu.hpp"
#include <deepum/error.hpp>

#include <algorithm>
#include <cmath>
#include <utility>

namespace deepum::replay {

// --- faults --------------------------------------------------------------------------------------------------------

void gpu::serve_fault() {
  if (!fault_due_) {
    return;
  }
  const block_id b = *fault_;
  if (map_.present(b)) {
    if (map_.moving(b) != motion::leaving && map_.resident(b)) {
      end_fault();
    } else if (machine_.fault_overlap && map_.moving(b) == motion::arriving && map_.room() == 0 && head_misses_more()) {
      (void)make_room_for_fault();
    }
    return;  // else it is on its way, or will come back when it has left
  }
  if (map_.room() == 0 && !make_room_for_fault()) {
    return;
  }
  if (map_.nowhere(b)) {
    place_new({b, 1}, 0);
    end_fault();
    progress_again_ = true;
  } else if (const std::optional<std::uint8_t> way = free_route_to(b)) {
    transfer t = transfer::prefetch(here(), reason::fault, {b, 1});
    t.from = machine_.places.routes()[*way].from;
    t.via = *way;
    begin_copy(t, 0, true);
    progress_again_ = progress_again_ || machine_.fault_overlap;
  }
}

std::optional<std::uint8_t> gpu::free_route(location from, location to) const {
  for (const std::uint8_t way : machine_.places.between(from, to)) {
    if (!lanes_[way].busy && links_.rate_on(way) > 0) {
      return way;
    }
  }
  return std::nullopt;
}

std::optional<std::uint8_t> gpu::free_route_to(block_id b) const {
  std::optional<std::uint8_t> best;
  for (unsigned l = 0; l != map_.places(); ++l) {
    if (location::at(l) == here() || !map_.current(b, location::at(l)) || !may_be_read(b, location::at(l), false)) {
      continue;
    }
    const std::optional<std::uint8_t> way = free_route(location::at(l), here());
    if (way && (!best || machine_.places.rate(*way) > machine_.places.rate(*best))) {
      best = way;
    }
  }
  return best;
}

bool gpu::head_misses_more() const {
  return std::any_of(queue_.front().all.begin(), queue_.front().all.end(), [&](block_range r) {
    return count_prefix(r, [&](block_id b) { return map_.present(b); }) != r.count;
  });
}

void gpu::end_fault() {
  fault_.reset();
  fault_due_ = false;
  complete_left_out();
}

// As the driver does it: the least recently migrated block leaves. It knows nothing of what contents are worth.
std::optional<block_id> gpu::next_victim() const {
  std::optional<block_id> victim;
  map_.for_each_least_recently_migrated([&](block_id b) {
    if (map_.moving(b) == motion::none && !used_by_head(b)) {
      victim = b;
    }
    return !victim;
  });
  return victim;
}

// One after another.
void gpu::drive_out(block_id victim) {
  const std::optional<std::uint8_t> out = free_route(here(), location::host());
  if (out && map_.leaving() == 0) {
    transfer t = transfer::evict(location::host(), reason::make_room, {victim, 1});
    t.from = here();
    t.via = *out;
    begin_copy(t, 0, true);
  }
}

bool gpu::make_room_for_fault() {
  const std::optional<block_id> victim = next_victim();
  if (!victim) {
    return false;  // something is on its way out, or will be
  }
  if (keeps_home_copy_ && !map_.dirty(*victim)) {
    if (!map_.nowhere(*fault_) && !free_route_to(*fault_)) {
      return false;  // room that is freed before it can be taken is taken by others
    }
    if (just_placed({*victim, 1}, here())) {
      after(least_stay, [this] { make_progress(); });
      return false;
    }
    (void)give_up({*victim, 1}, here(), 0, reason::make_room);
    return true;
  }
  drive_out(*victim);
  return false;
}

// --- launches ------------------------------------------------------------------------------------------------------

void gpu::set_in_place(block_range range, bool on) {
  for (const block_id b : range) {
    in_place_[b.value] = on;
  }
  make_progress();
}

void gpu::launch(device_launch l) {
  expects(block_count(l.all) <= map_.budget(), "a launch uses more blocks than the device has room for");
  l.given = now();
  queue_.push_back(std::move(l));
  make_progress();
}

std::vector<executed_launch> gpu::take_finished() { return std::exchange(finished_, {}); }

bool gpu::used_by_head(block_id b) const { return !queue_.empty() && contains(queue_.front().all, b); }

// A launch that has faulted executes as far as the driver is concerned. What it has got stays, or launches that fault
// on blocks of which nobody knows would lose one for the other without end.
bool gpu::in_use(block_id b) const { return (running_ || faulted_) && used_by_head(b); }

// Blocks that were there when the check came by may have left: the last look is at all of them.
bool gpu::all_there() {
  const device_launch& head = queue_.front();
  const auto ready = [&](block_id b) {
    return (map_.resident(b) && map_.moving(b) != motion::leaving) || reached(head, b);
  };
  for (bool from_the_beginning = checked_range_ == 0 && checked_block_ == 0;; from_the_beginning = true) {
    for (; checked_range_ != head.all.size(); ++checked_range_, checked_block_ = 0) {
      const block_range r = head.all[checked_range_];
      for (; checked_block_ != r.count; ++checked_block_) {
        const block_id b{r.first.value + checked_block_};
        if (!ready(b)) {
          if (!fault_ && !map_.present(b)) {
            fault_ = b;
            faulted_ = true;
            const bool write = contains(head.touched->writes, b);
            device_event e;
            e.what = device_event::kind::fault;
            e.mode = write ? deepum::access::update : deepum::access::read;
            e.range = {b, 1};
            e.at = now();
            report(e);
            after(machine_.fault_latency, [this] {
              fault_due_ = true;
              make_progress();
            });
          }
          return false;
        }
      }
    }
    checked_range_ = 0;
    checked_block_ = 0;
    if (from_the_beginning) {
      break;
    }
  }
  for (const block_range r : head.touched->writes) {
    for (std::uint32_t b = r.begin_value(); b != r.end_value(); ++b) {
      if (map_.of(block_id{b}).in_motion()) {
        return false;  // a copy of it is under way
      }
    }
  }
  return true;
}

bool gpu::reached(const device_launch& l, block_id b) const {
  return in_place_[b.value] && !map_.present(b) && map_.current(b, location::host()) &&
         contains(l.touched->looked_up, b);
}

// As the referee counts: rows are spread evenly over the blocks that they lie in.
gpu::away gpu::what_is_away(const device_launch& l) const {
  away all;
  for (const block_range r : l.touched->looked_up) {
    for_each_run(
        r, [&](block_id b) { return reached(l, b); },
        [&](block_range run) {
          double in = 0;
          double out = 0;
          for (const touched_tensor& t : l.touched->rows) {
            const auto here = static_cast<std::uint32_t>(
                std::count_if(run.begin(), run.end(), [&](block_id b) { return contains(t.blocks, b); }));
            if (here == 0) {
              continue;
            }
            const double rate = machine_.row_rate(t.row_bytes);
            all.slowest = all.slowest == 0 ? rate : std::min(all.slowest, rate);
            in += t.read ? t.bytes_of(here) : 0;
            out += t.written ? t.bytes_of(here) : 0;
          }
          all.parts.push_back(
              {run, static_cast<std::uint64_t>(std::ceil(in)), static_cast<std::uint64_t>(std::ceil(out))});
          all.in += std::ceil(in);
          all.out += std::ceil(out);
        });
  }
  return all;
}

std::optional<nanoseconds> gpu::time_with(const away& a, nanoseconds alone) const {
  double longest = 0;
  for (const auto& [way, amount] : {std::pair{way_in(), a.in}, {way_out(), a.out}}) {
    const double left = amount == 0 ? a.slowest : links_.rate_on(way);
    if (left <= 0) {
      return std::nullopt;
    }
    longest = std::max(longest, amount / std::min(left, a.slowest));
  }
  return alone + nanoseconds{static_cast<std::int64_t>(std::ceil(longest))};
}

void gpu::try_begin() {
  if (running_ || queue_.empty() || !all_there()) {
    return;
  }
  const device_launch& head = queue_.front();
  away rows = what_is_away(head);
  const std::optional<nanoseconds> time =
      rows.parts.empty() ? std::optional(head.duration) : time_with(rows, head.duration);
  awaits_links_ = !time;
  if (!time) {
    return;
  }
  running_ = true;
  began_ = now();
  if (!rows.parts.empty() && time->count() != 0) {
    rows_in_ = rows.in / static_cast<double>(time->count());
    rows_out_ = rows.out / static_cast<double>(time->count());
    links_.begin(way_in(), rows_in_);
    links_.begin(way_out(), rows_out_);
    progress_again_ = true;  // copies that had to wait
  }
  if (sink_) {
    sink_({.what = schedule_event::launch,
           .kernel = head.kernel,
           .step = head.step,
           .start = now(),
           .end = now() + *time,
           .in_place = std::move(rows.parts)});
  }
  after(*time, [this] { finish(); });
}

void gpu::finish() {
  const device_launch head = std::move(queue_.front());
  queue_.pop_front();
  running_ = false;
  faulted_ = false;
  if (rows_in_ + rows_out_ > 0) {
    links_.end(way_in(), std::exchange(rows_in_, 0));
    links_.end(way_out(), std::exchange(rows_out_, 0));
  }
  for (const block_range r : head.touched->writes) {
    for (const block_id b : r) {
      if (map_.resident(b)) {
        map_.write(b);
      } else {
        map_.write(b, location::host());  // in place
      }
    }
  }
  device_event e;
  e.what = device_event::kind::launch_finished;
  e.launch = head.id;
  e.at = now();
  e.began = began_;
  const nanoseconds could_begin = finished_at_ > head.given ? finished_at_ : head.given;
  e.stalled = began_ - could_begin;
  finished_at_ = now();
  report(e);
  finished_.push_back({head.id, began_, now()});
  complete_left_out();
  make_progress();
}

}  // namespace deepum::replay
