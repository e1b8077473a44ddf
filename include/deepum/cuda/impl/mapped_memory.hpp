#pragma once

#include <deepum/core/block.hpp>
#include <deepum/core/block_grid.hpp>
#include <deepum/core/launch.hpp>
#include <deepum/core/plan.hpp>
#include <deepum/cuda/check.hpp>
#include <deepum/cuda/current_device.hpp>
#include <deepum/cuda/gpu_clock.hpp>
#include <deepum/cuda/launch_log.hpp>
#include <deepum/cuda/mapped_memory.hpp>
#include <deepum/cuda/relaxed_capture.hpp>
#include <deepum/engine/device_event.hpp>
#include <deepum/error.hpp>
#include <deepum/library_thread.hpp>
#include <deepum/separate.hpp>
#include <deepum/units.hpp>

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace deepum {
inline namespace v0 {
namespace cuda {

DEEPUM_SEPARATE mapped_memory::mapped_memory(device& owner, bytes capacity)
    : memory_space(traits, checked(owner.options().chunk)),
      owner_(owner),
      chunk_(block()),
      blocks_(static_cast<std::uint32_t>((capacity + chunk_ - bytes{1}) / chunk_)),
      slots_(static_cast<std::uint32_t>((owner.properties().memory + chunk_ - bytes{1}) / chunk_)),
      virtual_(owner.properties().ordinal),
      base_(virtual_, chunk_ * blocks_, chunk_),
      on_device_(virtual_, chunk_ * slots_, chunk_),
      on_host_(virtual_, chunk_ * blocks_, chunk_),
      watch_(owner),
      slot_of_(std::make_unique<std::atomic<std::uint32_t>[]>(blocks_)),
      host_(blocks_),
      arrival_(std::make_unique<std::atomic<std::uint64_t>[]>(blocks_)),
      stale_(std::make_unique<std::atomic<bool>[]>(blocks_)),
      limit_(slots_),
      let_in_(blocks_) {
  for (std::uint32_t b = 0; b < blocks_; ++b) {
    slot_of_[b].store(none, std::memory_order_relaxed);
  }
  thread_ = deepum::detail::start_thread([this] { run(); });
}

DEEPUM_SEPARATE mapped_memory::~mapped_memory() {
  detach();
  {
    const std::lock_guard lock(jobs_mutex_);
    stopping_ = true;
  }
  changed_.notify_one();
  thread_.join();
  give_all_back();
}

DEEPUM_SEPARATE bytes mapped_memory::free_memory() const {
  const own_calls calls(owner_.context());
  std::size_t free = 0;
  std::size_t total = 0;
  if (!worked(cudaMemGetInfo(&free, &total))) {
    return {};
  }
  return bytes{free} + chunk_ * empty_slots_.load(std::memory_order_relaxed);
}

DEEPUM_SEPARATE bool mapped_memory::prefetch(block_range range, std::uint64_t ticket) {
  return submit(inward_, {job::kind::prefetch, range, ticket});
}

DEEPUM_SEPARATE bool mapped_memory::populate(block_range range, std::uint64_t ticket) {
  return submit(inward_, {job::kind::populate, range, ticket});
}

DEEPUM_SEPARATE bool mapped_memory::evict(block_range range, std::uint64_t ticket) {
  return submit(outward_, {job::kind::evict, range, ticket});
}

DEEPUM_SEPARATE bool mapped_memory::clean(block_range range, std::uint64_t ticket) {
  return submit(outward_, {job::kind::clean, range, ticket});
}

DEEPUM_SEPARATE bool mapped_memory::drop(block_range range, std::uint64_t ticket) {
  return submit(outward_, {job::kind::drop, range, ticket});
}

DEEPUM_SEPARATE bool mapped_memory::discard(block_range range, std::uint64_t ticket) {
  return submit(outward_, {job::kind::discard, range, ticket});
}

DEEPUM_SEPARATE void mapped_memory::set_limit(std::uint64_t blocks) {
  limit_.store(static_cast<std::uint32_t>(std::min<std::uint64_t>(blocks, slots_)), std::memory_order_relaxed);
  wake();
}

DEEPUM_SEPARATE void mapped_memory::outdated(block_range range) {
  for (std::uint32_t b = range.begin_value(); b < range.end_value(); ++b) {
    stale_[b].store(true, std::memory_order_relaxed);
  }
}

DEEPUM_SEPARATE std::byte* mapped_memory::host_address(bytes offset, bytes size) {
  const block_range range = block_grid{chunk_}.blocks_of(offset, size);
  for (std::uint32_t b = range.begin_value(); b < range.end_value(); ++b) {
    if (!give_host_chunk(block_id{b})) {
      return nullptr;
    }
  }
  return on_host_.begin + offset.count;
}

DEEPUM_SEPARATE std::string mapped_memory::last_failure() const {
  const std::lock_guard lock(failure_mutex_);
  return last_failure_;
}

DEEPUM_SEPARATE bool mapped_memory::host_is_full() const {
  const std::lock_guard lock(failure_mutex_);
  return host_is_full_;
}

DEEPUM_SEPARATE void mapped_memory::poll(std::vector<device_event>& events) {
  const std::lock_guard lock(watch_.mutex());
  const own_calls calls(owner_.context());
  {
    const std::lock_guard happened(happened_mutex_);
    events.insert(events.end(), happened_.begin(), happened_.end());
    happened_.clear();
  }
  (void)watch_.take_launched();
  watch_.note_in_flight(watch_.collect(events, [](std::size_t) {}));
}

DEEPUM_SEPARATE void mapped_memory::detach() {
  watch_.detach();
  wait();
}

DEEPUM_SEPARATE void mapped_memory::remove(launch_log& log) {
  const own_calls calls(owner_.context());
  std::vector<device_event> events;
  watch_.remove(log, events);
  for (const device_event& e : events) {
    emit(e);
  }
}

DEEPUM_SEPARATE void mapped_memory::order_after_arrival(cudaStream_t queue, const std::vector<block_access>& blocks,
                                                        bool complete) {
  std::uint64_t last = complete ? 0 : last_arrival_.load(std::memory_order_acquire);
  for (const block_access& a : blocks) {
    for (std::uint32_t b = a.range.begin_value(); b < a.range.end_value(); ++b) {
      last = std::max(last, arrival_[b].load(std::memory_order_acquire));
    }
  }
  if (last <= arrived_.load(std::memory_order_acquire)) {
    return;
  }
  const std::lock_guard lock(arrivals_mutex_);
  if (!arrivals_.empty() && last >= arrivals_.front().number) {
    const current_device on(owner_.context());
    check(cudaStreamWaitEvent(queue, arrivals_[last - arrivals_.front().number].copied, 0), "cudaStreamWaitEvent");
  }
}

DEEPUM_SEPARATE void mapped_memory::let_in(const std::vector<block_access>& blocks) {
  const std::lock_guard lock(guard_mutex_);
  for (const block_access& a : blocks) {
    for (std::uint32_t b = a.range.begin_value(); b < a.range.end_value(); ++b) {
      if (let_in_[b]++ == 0) {
        (void)virtual_.allow(at(base_, block_id{b}), chunk_);
      }
    }
  }
}

DEEPUM_SEPARATE void mapped_memory::keep_out(const std::vector<block_access>& blocks) {
  const std::lock_guard lock(guard_mutex_);
  for (const block_access& a : blocks) {
    for (std::uint32_t b = a.range.begin_value(); b < a.range.end_value(); ++b) {
      if (--let_in_[b] == 0) {
        (void)virtual_.forbid(at(base_, block_id{b}), chunk_);  // fails where it has left since the launch ended
      }
    }
  }
}

DEEPUM_SEPARATE bytes mapped_memory::checked(bytes chunk) {
  if (chunk < smallest_chunk || chunk > largest_chunk || (chunk.count & (chunk.count - 1)) != 0) {
    throw error(status::invalid_argument, "a chunk of mapped memory is a power of two from 2 MiB to 32 MiB, not " +
                                              std::to_string(chunk.count) + " bytes");
  }
  return chunk;
}

DEEPUM_SEPARATE std::byte* mapped_memory::at(const addresses& range, block_id b) const {
  return range.begin + (chunk_ * b.value).count;
}

// --- the program's threads -----------------------------------------------------------------------------------------

DEEPUM_SEPARATE bool mapped_memory::submit(std::deque<job>& queue, const job& j) {
  expects(!j.range.empty() && j.range.end_value() <= blocks_, "a command for blocks outside the arena");
  watch_.command_submitted(j.ticket);
  {
    const std::lock_guard lock(jobs_mutex_);
    queue.push_back(j);
    ++jobs_;
  }
  changed_.notify_one();
  return true;
}

DEEPUM_SEPARATE void mapped_memory::wake() {
  {
    const std::lock_guard lock(jobs_mutex_);
    wanted_ = true;
  }
  changed_.notify_one();
}

DEEPUM_SEPARATE void mapped_memory::wait() {
  std::unique_lock lock(jobs_mutex_);
  idle_.wait(lock, [this] { return jobs_ == 0; });
}

DEEPUM_SEPARATE void mapped_memory::emit(const device_event& e) {
  {
    const std::lock_guard lock(happened_mutex_);
    happened_.push_back(e);
  }
  watch_.hurry();
}

DEEPUM_SEPARATE void mapped_memory::report(device_event::kind what, block_range range, std::uint64_t ticket,
                                           nanoseconds began) {
  device_event e{.what = what, .why = reason::predicted, .range = range, .at = gpu_clock::host_now(), .began = began};
  e.ticket = ticket;
  emit(e);
}

DEEPUM_SEPARATE void mapped_memory::end(const job& j, bool well, nanoseconds began) {
  watch_.command_ended();
  report(well ? device_event::kind::completed : device_event::kind::failed, j.range, j.ticket, began);
  {
    const std::lock_guard lock(jobs_mutex_);
    --jobs_;
  }
  idle_.notify_all();
}

DEEPUM_SEPARATE void mapped_memory::note_failure(std::string what, bool host) {
  const std::lock_guard lock(failure_mutex_);
  last_failure_ = std::move(what);
  host_is_full_ = host;
}

// --- host memory ---------------------------------------------------------------------------------------------------

DEEPUM_SEPARATE bool mapped_memory::give_host_chunk(block_id b) {
  const std::lock_guard lock(host_mutex_);
  stale_[b.value].store(false, std::memory_order_relaxed);
  host_chunk& mine = host_[b.value];
  if (mine.exists) {
    return true;
  }
  const bytes limit = owner_.options().host_limit;
  CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
  if (limit.count == 0 || chunk_ * (host_chunks_.load(std::memory_order_relaxed) + 1) <= limit) {
    result = virtual_.create(true, chunk_, mine.memory);
    host_chunks_.fetch_add(result == CUDA_SUCCESS ? 1 : 0, std::memory_order_relaxed);
  }
  if (result != CUDA_SUCCESS && !take_outdated_chunk(mine.memory)) {
    note_failure("the host has no chunk left: " + std::to_string(host_memory().count) + " bytes are held" +
                     (limit.count != 0 ? ", device_options::host_limit is " + std::to_string(limit.count)
                                       : ", cuMemCreate says " + std::to_string(static_cast<int>(result))),
                 true);
    return false;
  }
  std::byte* const here = at(on_host_, b);
  if (virtual_.map(here, chunk_, mine.memory) != CUDA_SUCCESS) {
    return no_host_chunk(mine);
  }
  if (virtual_.allow(here, chunk_, true) != CUDA_SUCCESS) {
    (void)virtual_.unmap(here, chunk_);
    return no_host_chunk(mine);
  }
  mine.exists = true;
  if (host_mapped() && slot_of_[b.value].load(std::memory_order_relaxed) == none) {
    map_to_host(b);
  }
  return true;
}

DEEPUM_SEPARATE void mapped_memory::map_to_host(block_id b) {
  std::byte* const here = at(base_, b);
  if (!mapped_to_host_.contains(b.value) && virtual_.map(here, chunk_, host_[b.value].memory) == CUDA_SUCCESS) {
    mapped_to_host_.insert(b.value);
    if (!guarded_) {
      (void)virtual_.allow(here, chunk_);
    }
  }
}

DEEPUM_SEPARATE bool mapped_memory::no_host_chunk(host_chunk& c) {
  virtual_.release(c.memory);
  host_chunks_.fetch_sub(1, std::memory_order_relaxed);
  note_failure("a chunk of the host could not be mapped", true);
  return false;
}

DEEPUM_SEPARATE bool mapped_memory::take_outdated_chunk(handle& out) {
  for (std::uint32_t n = 0; n < blocks_; ++n) {
    outdated_next_ = outdated_next_ + 1 < blocks_ ? outdated_next_ + 1 : 0;
    host_chunk& c = host_[outdated_next_];
    const bool read =
        arrival_[outdated_next_].load(std::memory_order_acquire) > arrived_.load(std::memory_order_acquire);
    if (c.exists && stale_[outdated_next_].load(std::memory_order_relaxed) && !read && !host_mapped() &&
        virtual_.unmap(at(on_host_, block_id{outdated_next_}), chunk_) == CUDA_SUCCESS) {
      c.exists = false;
      out = c.memory;
      return true;
    }
  }
  return false;
}

DEEPUM_SEPARATE bool mapped_memory::has_host_chunk(block_id b) {
  const std::lock_guard lock(host_mutex_);
  return host_[b.value].exists;
}

// --- the thread that copies and maps -------------------------------------------------------------------------------

DEEPUM_SEPARATE void mapped_memory::run() {
  (void)worked(cudaSetDevice(owner_.properties().ordinal));
  const relaxed_capture relaxed;
  sleep_precisely();
  for (cudaStream_t* s : {&in_, &out_}) {
    if (!worked(cudaStreamCreateWithFlags(s, cudaStreamNonBlocking))) {
      *s = nullptr;  // then copies fail, and say so
    }
  }
  std::deque<job> in;
  for (;;) {
    {
      std::unique_lock lock(jobs_mutex_);
      const auto something = [this] { return stopping_ || wanted_ || !inward_.empty() || !outward_.empty(); };
      const bool at_once = !coming_.empty() || !departed_.empty() || may_send();
      if (!at_once && commands_.empty() && departures_.empty() && in.empty()) {
        changed_.wait(lock, something);
      } else if (!at_once && !something()) {
        lock.unlock();
        std::this_thread::sleep_for(look_every);
        lock.lock();
      }
      if (stopping_) {
        break;  // after `wait`: nothing is left
      }
      wanted_ = false;
      in.insert(in.end(), inward_.begin(), inward_.end());
      inward_.clear();
      for (; !outward_.empty(); outward_.pop_front()) {
        (needs_no_copy(outward_.front()) ? given_up_ : leaving_).push_back(outward_.front());
      }
    }
    keep_sending();
    end_departures();
    end_arrivals();
    give_up_contents();
    trim();
    while (!in.empty() && begin_inward(in.front())) {
      in.pop_front();
    }
    // One block at a time, so that what happens meanwhile is seen.
    if (!coming_.empty()) {
      map_next();
    }
  }
  for (const cudaStream_t s : {in_, out_}) {
    if (s != nullptr) {
      (void)settle(s);
      (void)worked(cudaStreamDestroy(s));
    }
  }
  for (const cudaEvent_t e : spare_events_) {
    (void)worked(cudaEventDestroy(e));
  }
}

// Inward.

DEEPUM_SEPARATE bool mapped_memory::begin_inward(const job& j) {
  std::vector<std::uint32_t> got;
  while (got.size() < j.range.count) {
    const std::uint32_t s = take_slot();
    if (s == none) {
      for (; !got.empty(); got.pop_back()) {
        give_slot(got.back());
      }
      if (!departures_.empty() || !leaving_.empty()) {
        return false;
      }
      end(j, false);
      return true;
    }
    got.push_back(s);
  }
  const bringing_ref command = commands_.insert(commands_.end(), {.what = j, .left = j.range.count});
  for (std::uint32_t i = 0; i < j.range.count; ++i) {
    const block_id b{j.range.first.value + i};
    std::uint64_t copy = 0;
    if (j.what == job::kind::prefetch && has_host_chunk(b) && !begin_copy(b, got[i], command, copy)) {
      give_slot(got[i]);
      command->well = false;
      has_come(command);
      continue;
    }
    coming_.push_back({b, got[i], copy, command});
  }
  return true;
}

DEEPUM_SEPARATE bool mapped_memory::begin_copy(block_id b, std::uint32_t s, bringing_ref command, std::uint64_t& copy) {
  cudaEvent_t e = spare_event();
  if (e == nullptr || !worked(cudaMemcpyAsync(at_slot(s), at(on_host_, b), chunk_.count, cudaMemcpyDefault, in_)) ||
      !worked(cudaEventRecord(e, in_))) {
    note_failure("a copy to the device failed", false);
    if (e != nullptr) {
      (void)settle(in_);  // it may be on its way
      spare_events_.push_back(e);
    }
    return false;
  }
  const std::lock_guard lock(arrivals_mutex_);
  copy = last_arrival_.load(std::memory_order_relaxed) + 1;
  arrivals_.push_back({copy, e, command, b, gpu_clock::host_now()});
  arrival_[b.value].store(copy, std::memory_order_release);
  last_arrival_.store(copy, std::memory_order_release);
  return true;
}

DEEPUM_SEPARATE void mapped_memory::map_next() {
  const coming c = coming_.front();
  coming_.pop_front();
  ++mapped_since_sent_;
  const bool mapped = map_block(c.block, c.slot);
  keep_sending();  // the copy that went before is likely to have ended with that
  if (mapped) {
    slot_of_[c.block.value].store(c.slot, std::memory_order_relaxed);
    report(device_event::kind::arrived, {c.block, 1}, c.command->what.ticket);
  } else {
    c.command->well = false;
    if (c.copy != 0) {
      (void)settle(in_);
    }
    give_slot(c.slot);
  }
  if (c.copy == 0) {
    has_come(c.command);
  } else {
    mapped_up_to_ = c.copy;
  }
}

DEEPUM_SEPARATE void mapped_memory::has_come(bringing_ref command) {
  if (--command->left == 0) {
    end(command->what, command->well);
    commands_.erase(command);
  }
}

DEEPUM_SEPARATE bool mapped_memory::map_block(block_id b, std::uint32_t s) {
  std::byte* const here = at(base_, b);
  if (host_mapped()) {
    const std::lock_guard lock(host_mutex_);
    if (mapped_to_host_.erase(b.value) != 0) {
      (void)virtual_.unmap(here, chunk_);
    }
  }
  CUresult result = virtual_.map(here, chunk_, slot_handles_[s].memory);
  if (result == CUDA_SUCCESS && !guarded_) {
    result = virtual_.allow(here, chunk_);
    if (result != CUDA_SUCCESS) {
      (void)virtual_.unmap(here, chunk_);
    }
  }
  if (result != CUDA_SUCCESS) {
    note_failure("a chunk could not be mapped: the driver says " + std::to_string(static_cast<int>(result)), false);
  }
  return result == CUDA_SUCCESS;
}

DEEPUM_SEPARATE void mapped_memory::end_arrivals() {
  for (;;) {
    arrival a;
    {
      const std::lock_guard lock(arrivals_mutex_);
      if (arrivals_.empty() || arrivals_.front().number > mapped_up_to_ ||
          !reached(cudaEventQuery, arrivals_.front().copied)) {
        return;
      }
      a = arrivals_.front();
      arrivals_.pop_front();
      arrived_.store(a.number, std::memory_order_release);
      spare_events_.push_back(a.copied);
    }
    report(device_event::kind::copied, {a.block, 1}, a.command->what.ticket, a.began);
    has_come(a.command);
  }
}

DEEPUM_SEPARATE void mapped_memory::await_arrival(block_id b) {
  if (arrival_[b.value].load(std::memory_order_relaxed) > arrived_.load(std::memory_order_relaxed)) {
    (void)settle(in_);
  }
}

// Outward.

DEEPUM_SEPARATE bool mapped_memory::needs_no_copy(const job& j) {
  return j.what == job::kind::drop || j.what == job::kind::discard;
}

DEEPUM_SEPARATE void mapped_memory::give_up_contents() {
  for (; !given_up_.empty(); given_up_.pop_front()) {
    const job& j = given_up_.front();
    take_away(j.range);
    if (j.what == job::kind::drop) {
      report(device_event::kind::departed, j.range, j.ticket);
    }
    end(j, true);
  }
}

DEEPUM_SEPARATE bool mapped_memory::may_send() const {
  if (leaving_.empty()) {
    return false;
  }
  if (departures_.empty()) {
    return coming_.empty() || mapped_since_sent_ >= most_mapped_between;
  }
  return coming_.empty() && mapped_since_sent_ == 0 && !maps_between_ && departures_.size() < pieces_in_flight &&
         sent_in_a_row_ < most_in_a_row;
}

DEEPUM_SEPARATE void mapped_memory::send_next() {
  maps_between_ = std::exchange(mapped_since_sent_, 0) != 0;
  sent_in_a_row_ = departures_.empty() ? 1 : sent_in_a_row_ + 1;
  const job j = leaving_.front();
  const nanoseconds now = gpu_clock::host_now();
  sending_since_ = begun_ == 0 ? now : sending_since_;
  const block_range left{block_id{j.range.first.value + begun_}, j.range.count - begun_};
  block_range part{left.first, std::min(left.count, std::max(1U, static_cast<std::uint32_t>(piece / chunk_)))};
  // As many as the host has memory for; the others stay.
  std::uint32_t found = 0;
  bool well = out_ != nullptr;
  for (; well && found < part.count && give_host_chunk(block_id{part.first.value + found}); ++found) {
    await_arrival(block_id{part.first.value + found});
  }
  const bool all = found == part.count;
  part.count = found;
  for (std::uint32_t b = part.begin_value(); well && b < part.end_value(); ++b) {
    well = worked(cudaMemcpyAsync(at(on_host_, block_id{b}), at_slot(slot_of_[b].load(std::memory_order_relaxed)),
                                  chunk_.count, cudaMemcpyDefault, out_));
  }
  cudaEvent_t e = well && found != 0 ? spare_event() : nullptr;
  if (found != 0 && (e == nullptr || !worked(cudaEventRecord(e, out_)))) {
    note_failure("a copy to the host failed", false);
    (void)settle(out_);  // some may be on their way
    if (e != nullptr) {
      spare_events_.push_back(std::exchange(e, nullptr));
    }
    well = false;
  }
  if (!well) {
    part.count = 0;
  }
  well = well && all;
  begun_ += part.count;
  const bool last = !well || begun_ == j.range.count;
  departures_.push_back({j, part, e, last, well, j.what == job::kind::clean ? sending_since_ : now});
  if (last) {
    leaving_.pop_front();
    begun_ = 0;
  }
}

DEEPUM_SEPARATE void mapped_memory::keep_sending() {
  while (!departures_.empty() &&
         (departures_.front().copied == nullptr || reached(cudaEventQuery, departures_.front().copied))) {
    departed_.push_back(departures_.front());
    departures_.pop_front();
  }
  if (may_send()) {
    send_next();
  }
}

DEEPUM_SEPARATE void mapped_memory::end_departures() {
  for (const departure& d : departed_) {
    if (d.copied != nullptr) {
      spare_events_.push_back(d.copied);
    }
    if (d.what.what == job::kind::evict && !d.part.empty()) {
      take_away(d.part);
      report(device_event::kind::departed, d.part, d.what.ticket, d.began);
    }
    if (d.last) {
      end(d.what, d.well, d.what.what == job::kind::clean ? d.began : nanoseconds{});
    }
  }
  departed_.clear();
}

DEEPUM_SEPARATE void mapped_memory::take_away(block_range range) {
  for (std::uint32_t b = range.begin_value(); b < range.end_value(); ++b) {
    const std::uint32_t s = slot_of_[b].exchange(none, std::memory_order_relaxed);
    if (s == none) {
      continue;
    }
    await_arrival(block_id{b});
    std::byte* const here = at(base_, block_id{b});
    (void)virtual_.unmap(here, chunk_);
    if (host_mapped()) {
      const std::lock_guard lock(host_mutex_);
      if (host_[b].exists) {
        map_to_host(block_id{b});
      }
    }
    give_slot(s);
  }
}

// Chunks of the device.

DEEPUM_SEPARATE std::uint32_t mapped_memory::take_slot() {
  if (!empty_.empty()) {
    const std::uint32_t s = empty_.back();
    empty_.pop_back();
    empty_slots_.fetch_sub(1, std::memory_order_relaxed);
    return s;
  }
  if (created_.load(std::memory_order_relaxed) >= limit_.load(std::memory_order_relaxed)) {
    note_failure("all " + std::to_string(created_.load(std::memory_order_relaxed)) + " chunks of the budget are in use",
                 false);
    return none;
  }
  std::uint32_t s = static_cast<std::uint32_t>(slot_handles_.size());
  if (!unused_.empty()) {
    s = unused_.back();
  }
  handle made = 0;
  if (const CUresult result = virtual_.create(false, chunk_, made); result != CUDA_SUCCESS) {
    note_failure("the device has no memory for another chunk of " + std::to_string(chunk_.count) +
                     " bytes beside the " + std::to_string(created_.load(std::memory_order_relaxed)) +
                     " that are there; the driver says " + std::to_string(static_cast<int>(result)),
                 false);
    return none;
  }
  std::byte* const here = at_slot(s);
  if (virtual_.map(here, chunk_, made) != CUDA_SUCCESS) {
    virtual_.release(made);
    note_failure("a chunk of the device could not be mapped", false);
    return none;
  }
  if (virtual_.allow(here, chunk_) != CUDA_SUCCESS) {
    (void)virtual_.unmap(here, chunk_);
    virtual_.release(made);
    note_failure("a chunk of the device could not be made accessible", false);
    return none;
  }
  if (s == slot_handles_.size()) {
    slot_handles_.push_back({});
  } else {
    unused_.pop_back();
  }
  slot_handles_[s] = {made, true};
  created_.fetch_add(1, std::memory_order_relaxed);
  return s;
}

DEEPUM_SEPARATE void mapped_memory::give_slot(std::uint32_t s) {
  empty_.push_back(s);
  empty_slots_.fetch_add(1, std::memory_order_relaxed);
}

DEEPUM_SEPARATE void mapped_memory::trim() {
  while (!empty_.empty() && created_.load(std::memory_order_relaxed) > limit_.load(std::memory_order_relaxed)) {
    destroy_slot(empty_.back());
    unused_.push_back(empty_.back());
    empty_.pop_back();
    empty_slots_.fetch_sub(1, std::memory_order_relaxed);
  }
}

DEEPUM_SEPARATE void mapped_memory::destroy_slot(std::uint32_t s) {
  (void)settle(in_);  // a copy into it that nobody waited for
  (void)virtual_.unmap(at_slot(s), chunk_);
  virtual_.release(slot_handles_[s].memory);
  slot_handles_[s] = {};
  created_.fetch_sub(1, std::memory_order_relaxed);
}

DEEPUM_SEPARATE cudaEvent_t mapped_memory::spare_event() {
  cudaEvent_t e = nullptr;
  if (!spare_events_.empty()) {
    e = spare_events_.back();
    spare_events_.pop_back();
  } else if (!worked(cudaEventCreateWithFlags(&e, cudaEventDisableTiming))) {
    e = nullptr;
  }
  return e;
}

DEEPUM_SEPARATE void mapped_memory::give_all_back() {
  for (std::uint32_t b = 0; b < blocks_; ++b) {
    if (slot_of_[b].load(std::memory_order_relaxed) != none || mapped_to_host_.contains(b)) {
      (void)virtual_.unmap(at(base_, block_id{b}), chunk_);
    }
    if (host_[b].exists) {
      (void)virtual_.unmap(at(on_host_, block_id{b}), chunk_);
      virtual_.release(host_[b].memory);
    }
  }
  for (std::uint32_t s = 0; s < slot_handles_.size(); ++s) {
    if (slot_handles_[s].exists) {
      (void)virtual_.unmap(at_slot(s), chunk_);
      virtual_.release(slot_handles_[s].memory);
    }
  }
}

}  // namespace cuda
}  // namespace v0
}  // namespace deepum
