#pragma once

#include <deepum/core/block.hpp>
#include <deepum/core/block_grid.hpp>
#include <deepum/core/launch.hpp>
#include <deepum/core/location.hpp>
#include <deepum/core/plan.hpp>
#include <deepum/cuda/check.hpp>
#include <deepum/cuda/current_device.hpp>
#include <deepum/cuda/find_fault_feed.hpp>
#include <deepum/cuda/gpu_clock.hpp>
#include <deepum/cuda/handles.hpp>
#include <deepum/cuda/launch_log.hpp>
#include <deepum/cuda/managed_memory.hpp>
#include <deepum/engine/device_event.hpp>
#include <deepum/error.hpp>
#include <deepum/separate.hpp>
#include <deepum/units.hpp>

#include <cuda_runtime_api.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace deepum {
inline namespace v0 {
namespace cuda {

DEEPUM_SEPARATE managed_memory::managed_memory(device& owner, bytes capacity)
    : memory_space(traits),
      owner_(checked(owner)),
      share_(capacity),
      capacity_(capacity),
      base_(allocate(owner, capacity)),
      marks_(static_cast<std::uint32_t>(capacity / block_size)),
      watch_(owner),
      inward_(owner, base_.get(), marks_, [this](const device_event& e) { emit(e); }) {
  // In one context they would wait for each other.
  for (int i = 0; i < (owner.options().migrations == migration_context::own ? 2 : 1); ++i) {
    outward_.emplace_back(owner, base_.get(), marks_, [this](const device_event& e) { emit(e); });
  }
  found_feed found = find_fault_feed(owner.options(), owner.properties().ordinal, base_.get(), capacity,
                                     [this](cuda::fault_feed& feed) { return calibrate(feed); });
  feed_ = std::move(found.feed);
  feed_name_ = feed_ ? feed_->name() : "none";
  feed_alive_.store(feed_ != nullptr, std::memory_order_relaxed);
  description_ = std::move(found.description);
}

DEEPUM_SEPARATE managed_memory::~managed_memory() { detach(); }

DEEPUM_SEPARATE bytes managed_memory::free_memory() const {
  const own_calls calls(owner_.context());
  std::size_t free = 0;
  std::size_t total = 0;
  if (!worked(cudaMemGetInfo(&free, &total))) {
    return {};
  }
  return std::min(bytes{free} + block_size * kept_chunks(bytes{free}), bytes{total});
}

DEEPUM_SEPARATE bool managed_memory::prefetch(block_range range, std::uint64_t ticket) {
  return submit(inward_, {.what = action::prefetch, .range = range, .ticket = ticket});
}

DEEPUM_SEPARATE bool managed_memory::evict(block_range range, std::uint64_t ticket) {
  return submit(outward(), {.what = action::evict, .why = reason::requested, .range = range, .ticket = ticket});
}

DEEPUM_SEPARATE bool managed_memory::discard(block_range range, std::uint64_t ticket) {
  return submit(inward_, {.what = action::discard, .range = range, .ticket = ticket});
}

DEEPUM_SEPARATE bool managed_memory::advise(block_range range, advice hint, location l) {
  if (hint == advice::unset_read_mostly) {
    inward_.end_duplication(range);
    return true;
  }
  return submit(inward_, {.what = action::advise,
                          .hint = hint,
                          .where = {.on_host = l.is_host(), .device = owner_.properties().ordinal},
                          .range = range});
}

DEEPUM_SEPARATE void managed_memory::renew(block_range range) {
  for_each_run(
      range, [this](block_id b) { return marks_.has(b, mark::discarded); },
      [this](block_range run) {
        for (; !run.empty(); run.first.value += migration_lane::blocks_outward) {
          const std::uint32_t count = std::min(run.count, migration_lane::blocks_outward);
          outward_.front().renew_when_idle({run.first, count});
          run.count -= count;
        }
      });
}

DEEPUM_SEPARATE void managed_memory::host_access(bytes offset, bytes size, access mode) {
  expects(offset + size <= capacity_, "the host touches bytes outside the arena");
  const block_range range = um_grid.blocks_of(offset, size);
  if (range.empty()) {
    return;
  }
  if (mode != access::read) {
    inward_.end_duplication(range);
  }
  // What is duplicated is current on the host already.
  for_each_run(
      range, [this](block_id b) { return !marks_.has(b, mark::duplicated); },
      [this](block_range run) { outward().submit({.what = action::evict, .why = reason::host, .range = run}); });
  wait_for_outward();
}

DEEPUM_SEPARATE void managed_memory::poll(std::vector<device_event>& events) {
  const std::lock_guard lock(watch_.mutex());
  const own_calls calls(owner_.context());
  std::size_t first = events.size();
  happened_.take(events);
  watch_.clock().keep_up();
  const nanoseconds looked = gpu_clock::host_now();
  const bool launched = watch_.take_launched();
  std::size_t front = events.size();
  const bool in_flight = watch_.collect(events, [&](std::size_t from) {
    // A launch that was over at an unknown time goes before the faults: else they were taken to be its own, all of
    // them. Of the stream's launches the order stays.
    std::size_t until = events.size();
    while (until != from && events[until - 1].timed) {
      --until;
    }
    if (until != from) {
      const auto begin = events.begin();
      std::rotate(begin + static_cast<std::ptrdiff_t>(front), begin + static_cast<std::ptrdiff_t>(from),
                  begin + static_cast<std::ptrdiff_t>(until));
      front += until - from;
      first = front;
    }
  });
  // The driver knows of a fault before the launch goes on, so that after the ends of launches come all their faults.
  take_faults(in_flight, launched, looked, events);
  watch_.note_in_flight(in_flight);
  std::stable_sort(events.begin() + static_cast<std::ptrdiff_t>(first), events.end(),
                   [](const device_event& a, const device_event& b) { return a.at < b.at; });
}

DEEPUM_SEPARATE void managed_memory::detach() {
  watch_.detach();
  inward_.wait();
  wait_for_outward();
}

DEEPUM_SEPARATE void managed_memory::remove(launch_log& log) {
  const own_calls calls(owner_.context());
  std::vector<device_event> events;
  watch_.remove(log, events);
  for (const device_event& e : events) {
    emit(e);
  }
}

DEEPUM_SEPARATE device& managed_memory::checked(device& owner) {
  if (!owner.properties().concurrent_managed_access) {
    throw error(
        status::unsupported,
        owner.properties().name +
            " cannot move managed memory while kernels run (concurrentManagedAccess is 0, as on Windows, WSL and "
            "Tegra), so nothing can be brought ahead there; allocate with cudaMalloc what fits the device");
  }
  return owner;
}

DEEPUM_SEPARATE managed_memory::allocation managed_memory::allocate(const device& owner, bytes capacity) {
  const own_calls calls(owner.context());
  void* p = nullptr;
  check(cudaMallocManaged(&p, capacity.count, cudaMemAttachGlobal), "cudaMallocManaged");
  allocation memory(static_cast<std::byte*>(p), release{&owner.context()});
  if (reinterpret_cast<std::uintptr_t>(p) % block_size.count != 0) {
    throw error(status::unsupported, "the driver's managed memory does not begin at a block of 2 MiB");
  }
  return memory;
}

DEEPUM_SEPARATE bool managed_memory::submit(migration_lane& lane, const migration& m) {
  expects(!m.range.empty() && m.range.end_value() <= capacity_ / block_size, "a command for blocks outside the arena");
  watch_.command_submitted(m.ticket);
  lane.submit(m);
  return true;
}

DEEPUM_SEPARATE migration_lane& managed_memory::outward() {
  migration_lane* least = &outward_.front();
  for (migration_lane& lane : outward_) {
    least = lane.load() < least->load() ? &lane : least;
  }
  return *least;
}

DEEPUM_SEPARATE void managed_memory::wait_for_outward() {
  for (migration_lane& lane : outward_) {
    lane.wait();
  }
}

DEEPUM_SEPARATE std::uint64_t managed_memory::kept_chunks(bytes free) const {
  const std::uint64_t chunks = chunks_.load(std::memory_order_relaxed);
  return free < nearly_full ? 0 : chunks - std::min(chunks, present_.load(std::memory_order_relaxed));
}

DEEPUM_SEPARATE void managed_memory::note_arrival(block_range range) {
  chunks_.fetch_add(marks_.set(range, mark::chunk), std::memory_order_relaxed);
  present_.fetch_add(marks_.set(range, mark::present), std::memory_order_relaxed);
}

DEEPUM_SEPARATE void managed_memory::emit(const device_event& e) {
  if (e.what == device_event::kind::arrived) {
    note_arrival(e.range);
  } else if (e.what == device_event::kind::departed) {
    present_.fetch_sub(marks_.clear(e.range, mark::present), std::memory_order_relaxed);
  } else if (e.what == device_event::kind::completed || e.what == device_event::kind::failed) {
    watch_.command_ended();
  }
  happened_.put(e);
  hurry();
}

// --- faults --------------------------------------------------------------------------------------------------------

DEEPUM_SEPARATE bool managed_memory::calibrate(cuda::fault_feed& feed) {
  const own_calls calls(owner_.context());
  const unique_stream q = try_make_stream();
  const unique_event before = q ? try_make_event(event_use::time) : unique_event();
  const unique_event after = before ? try_make_event(event_use::time) : unique_event();
  std::vector<fault_sample> faults;
  int prompt = 0;
  for (int i = 0; after && prompt < calibrations && i < most_calibrations; ++i) {
    *static_cast<volatile std::byte*>(base_.get()) = std::byte{0};  // to the host
    faults.clear();
    feed.take_all(faults);
    faults.clear();
    if (!worked(cudaEventRecord(before.get(), q.get())) || !worked(cudaMemsetAsync(base_.get(), 0, 64, q.get()))) {
      continue;
    }
    const bool ended = worked(cudaEventRecord(after.get(), q.get()));
    // Twice where that fails: what is still to be written then would be written into the program's data.
    if (worked(cudaStreamSynchronize(q.get())) || worked(cudaStreamSynchronize(q.get()))) {
      const nanoseconds patience = gpu_clock::host_now() + (feed.late() ? longest_lateness : nanoseconds{});
      for (feed.take_all(faults); faults.empty() && gpu_clock::host_now() < patience; feed.take_all(faults)) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
      for (const fault_sample& f : faults) {
        if (holds(f.address)) {
          watch_.clock().learn_fault(f.at, watch_.clock().time_of(before.get()));
        }
      }
      if (!watch_.clock().knows_faults()) {
        break;
      }
      prompt += ended && watch_.clock().time_of(after.get()) - watch_.clock().time_of(before.get()) < promptly ? 1 : 0;
    }
  }
  *static_cast<volatile std::byte*>(base_.get()) = std::byte{0};
  faults.clear();
  feed.take_all(faults);
  return watch_.clock().knows_faults();
}

DEEPUM_SEPARATE bool managed_memory::holds(std::uintptr_t address) const {
  const auto first = reinterpret_cast<std::uintptr_t>(base_.get());
  return address >= first && address - first < capacity_.count;
}

DEEPUM_SEPARATE void managed_memory::take_faults(bool in_flight, bool launched, nanoseconds looked,
                                                 std::vector<device_event>& events) {
  if (!feed_) {
    return;
  }
  if (in_flight) {
    feed_->take(samples_);
  } else if (launched || feed_->late()) {
    feed_->take_all(samples_);  // the last launch has just finished
  }
  lost_.store(feed_->lost(), std::memory_order_relaxed);
  if (!feed_->alive()) {
    feed_alive_.store(false, std::memory_order_relaxed);
  }
  const bool certain = std::none_of(watch_.busy_logs().begin(), watch_.busy_logs().end(),
                                    [](const launch_log* l) { return l->some_unmarked(); });
  const auto later = std::stable_partition(samples_.begin(), samples_.end(), [&](const fault_sample& f) {
    return !in_flight || watch_.clock().time_of_fault(f.at) <= looked;
  });
  for (auto f = samples_.begin(); f != later; ++f) {
    if (!holds(f->address)) {
      continue;
    }
    if (timed_left_.load(std::memory_order_relaxed) <= 0) {  // they recur after longer than that
      timed_ahead_ = std::min(4 * timed_ahead_, most_launches_timed);
    }
    timed_left_.store(timed_ahead_, std::memory_order_relaxed);
    const block_range block{block_id{static_cast<std::uint32_t>(
                                (f->address - reinterpret_cast<std::uintptr_t>(base_.get())) / block_size.count)},
                            1};
    const nanoseconds at = watch_.clock().time_of_fault(f->at);
    events.push_back({.what = device_event::kind::fault, .mode = f->mode, .timed = certain, .range = block, .at = at});
    note_arrival(block);
    marks_.clear(block, mark::discarded);
    events.push_back({.what = device_event::kind::arrived,
                      .why = reason::fault,
                      .host_copy_stays = f->mode == access::read && marks_.has(block.first, mark::duplicated),
                      .range = block,
                      .at = at});
  }
  samples_.erase(samples_.begin(), later);
}

}  // namespace cuda
}  // namespace v0
}  // namespace deepum
