#pragma once

#include <deepum/core/block.hpp>
#include <deepum/core/block_grid.hpp>
#include <deepum/core/launch.hpp>
#include <deepum/core/location.hpp>
#include <deepum/core/plan.hpp>
#include <deepum/cuda/check.hpp>
#include <deepum/cuda/completion/gpu_clock.hpp>
#include <deepum/cuda/current_device.hpp>
#include <deepum/cuda/managed_memory.hpp>
#include <deepum/engine/device_event.hpp>
#include <deepum/error.hpp>
#include <deepum/separate.hpp>
#include <deepum/units.hpp>

#include <cuda_runtime_api.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

namespace deepum {
inline namespace v0 {
namespace cuda {

DEEPUM_SEPARATE managed_memory::managed_memory(device& owner, bytes capacity)
    : device_space(traits, checked(owner), block_size),
      share_(capacity),
      capacity_(capacity),
      base_(allocate(owner, capacity)),
      marks_(static_cast<std::uint32_t>(capacity / block_size)),
      inward_(owner, base_.get(), marks_, [this](const device_event& e) { emit(e); }),
      outward_(make_outward()),
      faults_(owner, watch_, base_.get(), capacity) {}

DEEPUM_SEPARATE managed_memory::~managed_memory() { detach(); }

DEEPUM_SEPARATE bytes managed_memory::free_memory() const {
  const std::optional<memory_left> left = device_memory_left();
  return left ? std::min(left->free + block_size * kept_chunks(left->free), left->total) : bytes{};
}

DEEPUM_SEPARATE bool managed_memory::start(const transfer& what, std::uint64_t ticket) {
  return !what.cleans() && submit(what.releases() ? outward() : inward_, {.what = what, .ticket = ticket});
}

DEEPUM_SEPARATE bool managed_memory::advise(block_range range, advice hint, location l) {
  if (hint == advice::unset_read_mostly) {
    inward_.end_duplication(range);
    return true;
  }
  return submit(inward_, {.what = {.blocks = range},
                          .is_hint = true,
                          .hint = hint,
                          .where = {.on_host = l.is_host(), .device = owner_.properties().ordinal}});
}

DEEPUM_SEPARATE void managed_memory::repopulate(block_range range) {
  for_each_run(
      range, [this](block_id b) { return marks_.has(b, mark::discarded); },
      [this](block_range run) {
        for (; !run.empty(); run.first.value += migration_lane::blocks_outward) {
          const std::uint32_t count = std::min(run.count, migration_lane::blocks_outward);
          outward_.front().repopulate_when_idle({run.first, count});
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
  // A duplicated block is current on the host already.
  for_each_run(
      range, [this](block_id b) { return !marks_.has(b, mark::duplicated); },
      [this](block_range run) { outward().submit({.what = transfer::evict(location::host(), reason::host, run)}); });
  wait_for_outward();
}

DEEPUM_SEPARATE std::byte* managed_memory::fill_address(bytes offset, bytes size) {
  bool submitted = false;
  for_each_run(
      um_grid.blocks_of(offset, size), [this](block_id b) { return marks_.has(b, mark::discarded); },
      [&](block_range run) {
        outward().submit({.what = transfer::evict(location::host(), reason::host, run)});
        submitted = true;
      });
  if (submitted) {
    wait_for_outward();
  }
  return base() + offset.count;
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

DEEPUM_SEPARATE void managed_memory::wait_for_commands() {
  inward_.wait();
  wait_for_outward();
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
  expects(!m.what.blocks.empty() && m.what.blocks.end_value() <= capacity_ / block_size,
          "a command for blocks outside the arena");
  watch_.command_submitted(m.ticket);
  lane.submit(m);
  return true;
}

DEEPUM_SEPARATE std::deque<migration_lane> managed_memory::make_outward() {
  std::deque<migration_lane> lanes;
  // In one context they would wait for each other.
  for (int i = 0; i < (owner_.options().migrations == migration_context::own ? 2 : 1); ++i) {
    lanes.emplace_back(owner_, base_.get(), marks_, [this](const device_event& e) { emit(e); });
  }
  return lanes;
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
  put(e);
}

// --- faults --------------------------------------------------------------------------------------------------------

DEEPUM_SEPARATE void managed_memory::take_faults(bool in_flight, bool launched, nanoseconds looked,
                                                 std::vector<device_event>& events) {
  for (const fault_intake::fault& f : faults_.take(in_flight, launched, looked)) {
    const block_range block{f.block, 1};
    events.push_back({.what = device_event::kind::fault,
                      .mode = f.mode,
                      .pages = f.pages,
                      .timed = f.certain,
                      .range = block,
                      .at = f.at});
    if (marks_.has(f.block, mark::in_place) && !marks_.has(f.block, mark::present)) {
      continue;  // it was mapped where it is
    }
    note_arrival(block);
    marks_.clear(block, mark::discarded);
    events.push_back({.what = device_event::kind::arrived,
                      .why = reason::fault,
                      .host_copy_stays = f.mode == access::read && marks_.has(f.block, mark::duplicated),
                      .range = block,
                      .at = f.at});
  }
}

}  // namespace cuda
}  // namespace v0
}  // namespace deepum
