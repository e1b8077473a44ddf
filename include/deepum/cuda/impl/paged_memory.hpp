#pragma once

#include <deepum/core/block.hpp>
#include <deepum/core/block_grid.hpp>
#include <deepum/core/launch.hpp>
#include <deepum/core/plan.hpp>
#include <deepum/cuda/completion/gpu_clock.hpp>
#include <deepum/cuda/device_thread.hpp>
#include <deepum/cuda/paged/arrivals.hpp>
#include <deepum/cuda/paged/command.hpp>
#include <deepum/cuda/paged/departures.hpp>
#include <deepum/cuda/paged/device_chunks.hpp>
#include <deepum/cuda/paged_memory.hpp>
#include <deepum/engine/device_event.hpp>
#include <deepum/error.hpp>
#include <deepum/separate.hpp>
#include <deepum/units.hpp>

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace deepum {
inline namespace v0 {
namespace cuda {

DEEPUM_SEPARATE paged_memory::paged_memory(device& owner, bytes capacity)
    : device_space(traits, owner, checked(owner.options().chunk)),
      chunk_(block()),
      blocks_(static_cast<std::uint32_t>((capacity + chunk_ - bytes{1}) / chunk_)),
      virtual_(owner.properties().ordinal),
      arrivals_(blocks_),
      view_(virtual_, chunk_, blocks_),
      device_(virtual_, chunk_, static_cast<std::uint32_t>((owner.properties().memory + chunk_ - bytes{1}) / chunk_),
              failure_),
      host_({.memory = virtual_,
             .copies = arrivals_,
             .shown_in = owner.options().evicted == evicted_chunks::host_mapped ? &view_ : nullptr,
             .failure = failure_,
             .in_place = &view_},
            chunk_, blocks_, owner.options().host_limit),
      departures_({.device = device_, .host = host_, .view = view_, .incoming = arrivals_, .failure = failure_},
                  chunk_) {
  thread_ = start_device_thread(owner.properties().ordinal, nullptr, [this] { run(); });
}

DEEPUM_SEPARATE paged_memory::~paged_memory() {
  detach();
  {
    const std::lock_guard lock(jobs_mutex_);
    stopping_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

DEEPUM_SEPARATE bytes paged_memory::free_memory() const {
  const std::optional<memory_left> left = device_memory_left();
  return left ? left->free + chunk_ * device_.empty() : bytes{};
}

DEEPUM_SEPARATE bool paged_memory::start(const transfer& what, std::uint64_t ticket) {
  expects(!what.blocks.empty() && what.blocks.end_value() <= blocks_, "a command for blocks outside the arena");
  watch_.command_submitted(ticket);
  {
    const std::lock_guard lock(jobs_mutex_);
    queued_.push_back({what, ticket});
    ++jobs_;
  }
  changed_.notify_one();
  return true;
}

DEEPUM_SEPARATE bool paged_memory::advise(block_range range, advice hint, location /*where*/) {
  if (hint == advice::set_in_place || hint == advice::unset_in_place) {
    {
      const std::lock_guard lock(jobs_mutex_);
      placings_.push_back({range, hint == advice::set_in_place});
      ++jobs_;
    }
    wake();
  }
  return true;
}

DEEPUM_SEPARATE void paged_memory::set_limit(std::uint64_t blocks) {
  device_.set_limit(blocks);
  wake();
}

DEEPUM_SEPARATE void paged_memory::mark_stale(block_range range) { host_.mark_stale(range); }

DEEPUM_SEPARATE std::byte* paged_memory::host_address(bytes offset, bytes size) {
  const block_range range = block_grid{chunk_}.blocks_of(offset, size);
  for (const block_id b : range) {
    if (!host_.give(b)) {
      return nullptr;
    }
  }
  return host_.at(block_id{0}) + offset.count;
}

DEEPUM_SEPARATE std::string paged_memory::last_failure() const { return failure_.what(); }

DEEPUM_SEPARATE bool paged_memory::host_is_full() const { return failure_.host_is_full(); }

DEEPUM_SEPARATE void paged_memory::order_after_arrival(cudaStream_t queue, const std::vector<block_access>& blocks,
                                                       bool complete) {
  arrivals_.order_after(queue, owner_.context(), blocks, complete);
}

DEEPUM_SEPARATE void paged_memory::let_in(const std::vector<block_access>& blocks) { view_.exclusive().let_in(blocks); }

DEEPUM_SEPARATE void paged_memory::keep_out(const std::vector<block_access>& blocks) {
  view_.exclusive().keep_out(blocks);
}

DEEPUM_SEPARATE bytes paged_memory::checked(bytes chunk) {
  if (chunk < smallest_chunk || chunk > largest_chunk || (chunk.count & (chunk.count - 1)) != 0) {
    throw error(status::invalid_argument, "a chunk of paged memory is a power of two from 2 MiB to 32 MiB, not " +
                                              std::to_string(chunk.count) + " bytes");
  }
  return chunk;
}

// --- the program's threads -----------------------------------------------------------------------------------------

DEEPUM_SEPARATE void paged_memory::wake() {
  {
    const std::lock_guard lock(jobs_mutex_);
    wanted_ = true;
  }
  changed_.notify_one();
}

DEEPUM_SEPARATE void paged_memory::wait_for_commands() {
  std::unique_lock lock(jobs_mutex_);
  idle_.wait(lock, [this] { return jobs_ == 0; });
}

DEEPUM_SEPARATE void paged_memory::report(device_event::kind what, block_range range, std::uint64_t ticket,
                                          nanoseconds began) {
  device_event e{.what = what, .why = reason::predicted, .range = range, .at = gpu_clock::host_now(), .began = began};
  e.ticket = ticket;
  put(e);
}

DEEPUM_SEPARATE void paged_memory::end(const paged_command& c, bool ok, nanoseconds began) {
  watch_.command_ended();
  report(ok ? device_event::kind::completed : device_event::kind::failed, c.what.blocks, c.ticket, began);
  {
    const std::lock_guard lock(jobs_mutex_);
    --jobs_;
  }
  idle_.notify_all();
}

// --- the thread that copies and maps -------------------------------------------------------------------------------

DEEPUM_SEPARATE void paged_memory::run() {
  arrivals_.open();
  departures_.open();
  std::deque<paged_command> inward;
  while (take_commands(inward)) {
    departures_.keep_sending(!coming_.empty());
    end_departures();
    end_arrivals();
    give_up_contents();
    if (device_.has_too_many()) {
      arrivals_.await_all();  // a copy into an empty chunk, that was not waited for
      device_.trim();
    }
    while (!inward.empty() && begin_inward(inward.front())) {
      inward.pop_front();
    }
    // One block at a time, so that what happens meanwhile is seen.
    if (!coming_.empty()) {
      map_next();
    } else {
      place_next();
    }
  }
  departures_.close();
  arrivals_.close();
}

DEEPUM_SEPARATE void paged_memory::place_next() {
  placing next;
  {
    const std::lock_guard lock(jobs_mutex_);
    if (placings_.empty()) {
      return;
    }
    placing& p = placings_.front();
    next = {{p.range.first, std::min(p.range.count, placed_at_once)}, p.in_place};
    advance(p.range, next.range.count);
    if (p.range.empty()) {
      placings_.pop_front();
      --jobs_;
    }
  }
  for (const block_id b : next.range) {
    (void)host_.set_in_place(b, next.in_place);
    host_.show(b);
  }
  tell_reached(next.range);
  idle_.notify_all();
}

DEEPUM_SEPARATE void paged_memory::tell_reached(block_range range) {
  for_each_run(
      range, [this](block_id b) { return host_.is_in_place(b) && view_.slot_of(b) == device_chunks::none; },
      [this](block_range run) {
        for_each_split(
            run, [this](block_id b) { return view_.shows_host(b); },
            [this](block_range part, bool reached) {
              report(reached ? device_event::kind::reachable : device_event::kind::unreachable, part, 0);
            });
      });
}

DEEPUM_SEPARATE bool paged_memory::take_commands(std::deque<paged_command>& inward) {
  const bool at_once = !coming_.empty() || departures_.has_ended_some() || departures_.may_send(!coming_.empty());
  const bool under_way = !commands_.empty() || departures_.some_in_flight() || !inward.empty();
  const auto something = [this] { return stopping_ || wanted_ || !queued_.empty() || !placings_.empty(); };
  std::unique_lock lock(jobs_mutex_);
  if (!at_once && !under_way) {
    changed_.wait(lock, something);
  } else if (!at_once && !something()) {
    lock.unlock();
    std::this_thread::sleep_for(look_every);
    lock.lock();
  }
  if (stopping_) {
    return false;  // after `wait_for_commands`
  }
  wanted_ = false;
  for (; !queued_.empty(); queued_.pop_front()) {
    const paged_command& c = queued_.front();
    if (c.what.takes_room()) {
      inward.push_back(c);
    } else if (c.what.copies()) {
      departures_.add(c);
    } else {
      given_up_.push_back(c);
    }
  }
  return true;
}

DEEPUM_SEPARATE bool paged_memory::begin_inward(const paged_command& c) {
  const std::vector<std::uint32_t> slots = take_slots(c.what.blocks.count);
  if (slots.empty()) {
    if (!departures_.idle()) {
      return false;
    }
    end(c, false);
    tell_reached(c.what.blocks);
    return true;
  }
  const bringing_ref command = commands_.insert(commands_.end(), {.what = c, .left = c.what.blocks.count});
  for (std::uint32_t i = 0; i < c.what.blocks.count; ++i) {
    const block_id b{c.what.blocks.first.value + i};
    std::uint64_t copy = 0;
    if (c.what.copies() && host_.has(b)) {
      copy = arrivals_.begin(b, device_.at(slots[i]), host_.at(b), chunk_);
      if (copy == 0) {
        failure_.set("a copy to the device failed");
        device_.give(slots[i]);
        command->ok = false;
        has_come(command);
        continue;
      }
      copying_.push_back(command);
    }
    coming_.push_back({b, slots[i], copy, command});
  }
  return true;
}

DEEPUM_SEPARATE std::vector<std::uint32_t> paged_memory::take_slots(std::uint32_t count) {
  for (const launch_view::kept_chunk& gone : view_.take_kept()) {
    device_.give(gone.slot);
    host_.show(gone.block);
    tell_reached({gone.block, 1});
  }
  std::vector<std::uint32_t> got;
  while (got.size() < count) {
    const std::uint32_t s = device_.take();
    if (s == device_chunks::none) {
      if (const CUresult result = view_.why_kept(); result != CUDA_SUCCESS) {
        failure_.set("a chunk could not be unmapped: the driver says " + std::to_string(static_cast<int>(result)));
      }
      for (; !got.empty(); got.pop_back()) {
        device_.give(got.back());
      }
      break;
    }
    got.push_back(s);
  }
  return got;
}

DEEPUM_SEPARATE void paged_memory::map_next() {
  const coming c = coming_.front();
  coming_.pop_front();
  departures_.mapped();
  const CUresult result = view_.map_device(c.block, c.slot, device_.memory_of(c.slot));
  departures_.keep_sending(!coming_.empty());  // the copy that went before is likely to have ended with that
  if (result == CUDA_SUCCESS) {
    report(device_event::kind::arrived, {c.block, 1}, c.command->what.ticket);
  } else {
    failure_.set("a chunk could not be mapped: the driver says " + std::to_string(static_cast<int>(result)));
    c.command->ok = false;
    if (c.copy != 0) {
      arrivals_.await_all();
    }
    give_back(c.slot);
  }
  if (c.copy == 0) {
    has_come(c.command);
  } else {
    mapped_up_to_ = c.copy;
  }
}

DEEPUM_SEPARATE void paged_memory::has_come(bringing_ref command) {
  if (--command->left == 0) {
    end(command->what, command->ok);
    if (!command->ok) {
      for (const block_id b : command->what.what.blocks) {
        host_.show(b);
      }
      tell_reached(command->what.what.blocks);
    }
    commands_.erase(command);
  }
}

DEEPUM_SEPARATE void paged_memory::end_arrivals() {
  while (const std::optional<arrivals::ended> a = arrivals_.take_ended(mapped_up_to_)) {
    const bringing_ref command = copying_.front();
    copying_.pop_front();
    report(device_event::kind::copied, {a->block, 1}, command->what.ticket, a->began);
    has_come(command);
  }
}

DEEPUM_SEPARATE void paged_memory::give_up_contents() {
  for (; !given_up_.empty(); given_up_.pop_front()) {
    const paged_command& c = given_up_.front();
    take_away(c.what.blocks);
    if (c.what.releases()) {
      report(device_event::kind::departed, c.what.blocks, c.ticket);
    }
    end(c, true);
    tell_reached(c.what.blocks);
  }
}

DEEPUM_SEPARATE void paged_memory::end_departures() {
  for (const departures::piece& p : departures_.take_ended()) {
    if (p.what.what.releases() && !p.part.empty()) {
      take_away(p.part);
      report(device_event::kind::departed, p.part, p.what.ticket, p.began);
    }
    if (p.last) {
      end(p.what, p.ok, p.what.what.cleans() ? p.began : nanoseconds{});
    }
    tell_reached(p.part);
  }
}

DEEPUM_SEPARATE void paged_memory::take_away(block_range range) {
  for (const block_id b : range) {
    const std::uint32_t slot = view_.slot_of(b);
    if (slot != device_chunks::none) {
      arrivals_.await(b);
      view_.unmap_device(b);
      host_.show(b);
      give_back(slot);
    }
  }
}

DEEPUM_SEPARATE void paged_memory::give_back(std::uint32_t slot) {
  if (!view_.keeps(slot)) {
    device_.give(slot);
  }
}

}  // namespace cuda
}  // namespace v0
}  // namespace deepum
