#pragma once

#include <deepum/arena/enqueuing.hpp>
#include <deepum/arena/front.hpp>
#include <deepum/core/block_grid.hpp>
#include <deepum/separate.hpp>

#include <string>
#include <utility>

namespace deepum {
inline namespace v0 {
namespace detail {

DEEPUM_SEPARATE allocation_front::allocation_front(arena_back& of, new_memory* fills)
    : back_(of),
      fills_(fills),
      base_(reinterpret_cast<std::uintptr_t>(of.memory().base())),
      capacity_(of.memory().capacity()),
      table_(base_, capacity_, of.block()) {}

DEEPUM_SEPARATE block_range allocation_front::blocks_at(const void* p, bytes size) const {
  return size.count == 0 ? block_range{} : back_.grid().blocks_of(table_.checked(address_of(p), size), size);
}

// --- allocation ------------------------------------------------------------------------------------------------------

DEEPUM_SEPARATE void* allocation_front::allocate(bytes size, bytes alignment, std::optional<stream_id> on) {
  if (alignment.count == 0 || (alignment.count & (alignment.count - 1)) != 0 || alignment > block_size) {
    throw error(status::invalid_argument,
                "an alignment has to be a power of two of at most 2 MiB, not " + std::to_string(alignment.count));
  }
  if (size.count == 0) {
    return nullptr;
  }
  if (fills_ != nullptr) {
    on.reset();  // what fills new memory is in nobody's order
  }
  back_.keep_pace();
  launch_id finished = back_.engine().finished_up_to();
  for (bool rest = false;;) {
    std::vector<block_range> unsettled;
    std::optional<std::uintptr_t> address;
    std::optional<launch_id> awaited;
    {
      const std::lock_guard lock(mutex_);
      std::vector<liveness_change> changes;
      table_.reclaim(finished, changes);
      if (std::exchange(rest, false)) {
        table_.take_kept(finished, changes);
      }
      address = table_.try_allocate(size, alignment, changes, on);
      unsettled = back_.tell(changes);
      awaited = table_.awaited();
      if (!address && !awaited) {
        awaited = table_.kept_until();
        rest = true;
      }
      if (!address && (!awaited || *awaited >= enqueuing::oldest(&back_))) {
        throw out_of_space(size, awaited.has_value());
      }
    }
    back_.settle(unsettled);
    if (address) {
      return handed_out(reinterpret_cast<void*>(*address), size);
    }
    back_.await_finish(*awaited, size);
    finished = *awaited;
  }
}

DEEPUM_SEPARATE void allocation_front::deallocate(const void* p, std::optional<stream_id> on) {
  if (p == nullptr) {
    return;
  }
  if (fills_ != nullptr) {
    forget_new(p);
    on.reset();
  }
  back_.keep_pace();
  const std::lock_guard lock(mutex_);
  std::vector<liveness_change> changes;
  const launch_id last = back_.engine().last_launch();
  table_.free(address_of(p), last, back_.engine().finished(last), changes, on);
  (void)back_.tell(changes);  // nothing comes alive
}

DEEPUM_SEPARATE void allocation_front::retire(stream_id ended) {
  const std::lock_guard lock(mutex_);
  table_.retire(ended);
}

DEEPUM_SEPARATE void allocation_front::split(const void* p, std::span<const bytes> parts) {
  const std::lock_guard lock(mutex_);
  table_.split(address_of(p), parts);
}
DEEPUM_SEPARATE void allocation_front::name_part(const void* p, bytes size) {
  const std::lock_guard lock(mutex_);
  table_.name_part(address_of(p), size);
}
DEEPUM_SEPARATE void allocation_front::cut(const void* p, bytes unit) {
  constexpr std::size_t most_parts = 4096;
  const std::lock_guard lock(mutex_);
  (void)table_.cut(address_of(p), unit, most_parts);
}

DEEPUM_SEPARATE arena_footprint allocation_front::footprint() const {
  const std::lock_guard lock(mutex_);
  return {table_.allocated(), table_.peak()};
}

DEEPUM_SEPARATE error allocation_front::out_of_space(bytes asked, bool waits) const {
  return error(status::out_of_arena_space,
               "no room for " + std::to_string(asked.count) + " bytes in the arena: the largest gap has " +
                   std::to_string(table_.largest_gap().count) + ", " + std::to_string(table_.free_space().count) +
                   " of " + std::to_string(table_.capacity().count) + " bytes are free; " +
                   (waits ? "what was given back cannot be reused before the launch ends that this thread is "
                            "enqueuing: allocate before stream::call, or make arena_options::capacity larger"
                          : "make arena_options::capacity larger"));
}

DEEPUM_SEPARATE void* allocation_front::handed_out(void* p, bytes size) {
  if (fills_ != nullptr) {
    try {
      fills_->allocated(span_at(p, size));
    } catch (...) {
      deallocate(p);
      throw;
    }
  }
  return p;
}

DEEPUM_SEPARATE void allocation_front::forget_new(const void* p) {
  std::optional<byte_span> whole;
  {
    const std::lock_guard lock(mutex_);
    whole = table_.whole(address_of(p));
  }
  if (whole) {
    fills_->freed(*whole);
  }
}

// --- contents that are of no value -----------------------------------------------------------------------------------

DEEPUM_SEPARATE void allocation_front::discard(const void* p, bytes size) {
  give_up(p, size);
  block_range range{};
  {
    const std::lock_guard lock(mutex_);
    range = size.count == 0 ? block_range{}
                            : back_.grid().whole_blocks_of(table_.checked_in_allocation(address_of(p), size), size);
  }
  if (!range.empty()) {
    back_.engine().discard(range);
    back_.settle({&range, 1});
  }
}

DEEPUM_SEPARATE void allocation_front::mark_inactive(const void* p, bytes size) {
  if (size.count == 0) {
    return;
  }
  give_up(p, size);
  back_.keep_pace();
  const std::lock_guard lock(mutex_);
  std::vector<liveness_change> changes;
  table_.mark_inactive(address_of(p), size, back_.engine().last_launch(), changes);
  (void)back_.tell(changes);
}

DEEPUM_SEPARATE void allocation_front::mark_active(const void* p, bytes size) {
  if (size.count == 0) {
    return;
  }
  back_.keep_pace();
  std::vector<block_range> unsettled;
  {
    const std::lock_guard lock(mutex_);
    std::vector<liveness_change> changes;
    table_.mark_active(address_of(p), size, changes);
    unsettled = back_.tell(changes);
  }
  back_.settle(unsettled);
}

DEEPUM_SEPARATE byte_span allocation_front::used_by_host(const void* p, bytes size, access mode) {
  back_.keep_pace();
  std::vector<block_range> unsettled;
  bytes offset{};
  {
    const std::lock_guard lock(mutex_);
    offset = table_.checked_in_allocation(address_of(p), size);
    if (const bytes lost = table_.given_up({offset, size}); lost.count != 0) {
      if (mode == access::read) {
        throw error(status::invalid_argument, "the host reads " + std::to_string(size.count) + " bytes at offset " +
                                                  std::to_string(offset.count) + " of the arena, of which " +
                                                  std::to_string(lost.count) +
                                                  " were given up (mark_inactive) and not written since");
      }
      std::vector<liveness_change> changes;
      table_.use_again({offset, size}, changes);
      unsettled = back_.tell(changes);
    }
  }
  back_.settle(unsettled);
  return {offset, size};
}

DEEPUM_SEPARATE void allocation_front::give_up(const void* p, bytes size) {
  if (fills_ != nullptr && fills_->poisons() && size.count != 0) {
    {
      const std::lock_guard lock(mutex_);
      (void)table_.checked_in_allocation(address_of(p), size);
    }
    fills_->given_up(span_at(p, size));
  }
}

}  // namespace detail
}  // namespace v0
}  // namespace deepum
