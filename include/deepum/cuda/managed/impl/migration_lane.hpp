#pragma once

#include <deepum/core/block.hpp>
#include <deepum/core/block_grid.hpp>
#include <deepum/core/plan.hpp>
#include <deepum/cuda/api.hpp>
#include <deepum/cuda/check.hpp>
#include <deepum/cuda/completion/gpu_clock.hpp>
#include <deepum/cuda/current_device.hpp>
#include <deepum/cuda/device.hpp>
#include <deepum/cuda/device_thread.hpp>
#include <deepum/cuda/managed/block_marks.hpp>
#include <deepum/cuda/managed/migration_lane.hpp>
#include <deepum/engine/device_event.hpp>
#include <deepum/separate.hpp>
#include <deepum/units.hpp>

#include <cuda_runtime_api.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

namespace deepum {
inline namespace v0 {
namespace cuda {

DEEPUM_SEPARATE migration_lane::migration_lane(const device& of, std::byte* first_byte, block_marks& marks, report tell)
    : gpu_(of),
      base_(first_byte),
      marks_(marks),
      tell_(std::move(tell)) {
  const own_calls calls(of.context());
  if (of.options().migrations == migration_context::own) {
    context_.emplace(of.properties().ordinal);
  }
  try {
    enter_device(of.properties().ordinal, beside());
    for (unique_stream& s : streams_) {
      s = make_stream();
    }
    of.context().enter();
    thread_ = start_device_thread(of.properties().ordinal, beside(), [this] { run(); });
  } catch (...) {
    close();
    of.context().enter();
    throw;
  }
}

DEEPUM_SEPARATE migration_lane::~migration_lane() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

DEEPUM_SEPARATE void migration_lane::submit(const migration& m) {
  {
    const std::lock_guard lock(mutex_);
    queue_.push_back(m);
    ++busy_;
  }
  changed_.notify_all();
}

DEEPUM_SEPARATE void migration_lane::repopulate_when_idle(block_range range) {
  {
    const std::lock_guard lock(mutex_);
    to_repopulate_.push_back(range);
  }
  changed_.notify_all();
}

DEEPUM_SEPARATE void migration_lane::wait() {
  std::unique_lock lock(mutex_);
  settled_.wait(lock, [this] { return busy_ == 0; });
}

DEEPUM_SEPARATE std::size_t migration_lane::load() const {
  const std::lock_guard lock(mutex_);
  return busy_;
}

DEEPUM_SEPARATE void migration_lane::run() {
  for (;;) {
    std::optional<block_range> renewal;
    {
      std::unique_lock lock(mutex_);
      if (pieces_.empty() && todo_.empty()) {
        changed_.wait(lock, [this] { return !queue_.empty() || !to_repopulate_.empty() || stopping_; });
        // Who prefetches what came alive does it soon, and then nothing has to be renewed.
        changed_.wait_for(lock, idle_before_renewal, [this] { return !queue_.empty() || stopping_; });
      }
      for (const migration& m : queue_) {
        todo_.push_back(m);
      }
      queue_.clear();
      if (todo_.empty() && pieces_.empty()) {
        if (stopping_) {
          break;
        }
        renewal = to_repopulate_.front();
        to_repopulate_.pop_front();
      }
    }
    if (renewal) {
      repopulate(*renewal);
      continue;
    }
    while (!todo_.empty() && pieces_.size() < pieces_in_flight && begin_next()) {
    }
    // While the first piece moves, new commands may come.
    if (!pieces_.empty() && !end_first()) {
      std::this_thread::sleep_for(look_every);
    }
  }
  close();
}

DEEPUM_SEPARATE void migration_lane::close() {
  for (unique_stream& s : streams_) {
    if (s) {
      (void)succeeded(cudaStreamSynchronize(s.get()));
      s.reset();
    }
  }
}

DEEPUM_SEPARATE bool migration_lane::begin_next() {
  const migration& m = todo_.front();
  if (m.prefetches()) {
    begin_prefetch();
    return true;
  }
  if (m.is_hint) {
    advise(m);
    finish_first(true);
    return true;
  }
  if (m.what.cleans()) {
    finish_first(false);  // nothing that managed memory can do
    return true;
  }
  if (!pieces_.empty()) {
    return false;
  }
  if (m.what.forgets()) {
    discard();
    return true;
  }
  evict_piece();
  return false;
}

// --- to the device -------------------------------------------------------------------------------------------------

DEEPUM_SEPARATE void migration_lane::begin_prefetch() {
  piece p;
  p.range = {todo_.front().what.blocks.first, 0};
  // As far as the next commands go on where this one ends.
  while (!todo_.empty() && todo_.front().prefetches() && p.range.count < blocks_inward &&
         todo_.front().what.blocks.begin_value() == p.range.end_value()) {
    migration& m = todo_.front();
    migration part = m;
    part.what.blocks.count = std::min(m.what.blocks.count, blocks_inward - p.range.count);
    p.range.count += part.what.blocks.count;
    p.parts.push_back(part);
    m.what.blocks.first.value += part.what.blocks.count;
    m.what.blocks.count -= part.what.blocks.count;
    if (m.what.blocks.empty()) {
      p.ended.push_back(m.ticket);
      todo_.pop_front();
    }
  }
  duplicate_again(p.range);
  p.began = gpu_clock::host_now();
  p.stream = streams_[next_stream_++ % streams_.size()].get();
  p.ok = succeeded(api::prefetch(address(p.range.first), um_grid.size_of(p.range).count,
                                 {.on_host = false, .device = gpu_.properties().ordinal}, p.stream));
  pieces_.push_back(std::move(p));
}

DEEPUM_SEPARATE void migration_lane::duplicate_again(block_range range) {
  for_each_run(
      range, [this](block_id b) { return marks_.has(b, mark::read_mostly) && !marks_.has(b, mark::duplicated); },
      [this](block_range run) {
        if (advise_driver(run, cudaMemAdviseSetReadMostly)) {
          marks_.set(run, mark::duplicated);
        }
        // Another thread may have ended it meanwhile, and has not found anything to end.
        for_each_run(
            run, [this](block_id b) { return !marks_.has(b, mark::read_mostly); },
            [this](block_range ended) { end_duplication(ended); });
      });
}

DEEPUM_SEPARATE bool migration_lane::end_first() {
  const piece& p = pieces_.front();
  bool ok = p.ok;
  if (ok) {
    const cudaError_t state = cudaStreamQuery(p.stream);
    if (state != cudaSuccess) {
      (void)cudaGetLastError();
      if (state == cudaErrorNotReady) {
        return false;
      }
      ok = false;
    }
  }
  const nanoseconds began = std::max(p.began, last_ended_);  // one moves, the next is ready
  last_ended_ = gpu_clock::host_now();
  for (const migration& part : p.parts) {
    if (ok) {
      arrived(part, began);
    }
  }
  if (!ok) {
    for (const migration& part : p.parts) {
      failed_.push_back(part.ticket);
    }
  }
  for (const std::uint64_t ticket : p.ended) {
    const bool whole = std::erase(failed_, ticket) == 0;
    tell_end(ticket, whole);
  }
  pieces_.pop_front();
  return true;
}

DEEPUM_SEPARATE void migration_lane::arrived(const migration& part, nanoseconds began) {
  marks_.clear(part.what.blocks, mark::discarded);
  // Those that are duplicated keep the host's copy.
  for_each_split(
      part.what.blocks, [this](block_id b) { return marks_.has(b, mark::duplicated); },
      [&](block_range run, bool duplicated) {
        tell_({.what = device_event::kind::arrived,
               .host_copy_stays = duplicated,
               .range = run,
               .at = gpu_clock::host_now(),
               .began = began,
               .ticket = part.ticket});
      });
}

// --- to the host ---------------------------------------------------------------------------------------------------

DEEPUM_SEPARATE void migration_lane::evict_piece() {
  migration& m = todo_.front();
  const block_range part{m.what.blocks.first, std::min(m.what.blocks.count, blocks_outward)};
  // A duplicated block is given up without a copy: the end of the duplication drops the device's one. The prefetch
  // then finds it on the host already, unless a launch has written it meanwhile.
  for_each_run(
      part, [this](block_id b) { return marks_.has(b, mark::duplicated); },
      [this](block_range run) {
        if (advise_driver(run, cudaMemAdviseUnsetReadMostly)) {
          marks_.clear(run, mark::duplicated);
        }
      });
  const nanoseconds began = gpu_clock::host_now();
  const bool ok =
      succeeded(api::prefetch(address(part.first), um_grid.size_of(part).count, {}, streams_.front().get())) &&
      settle(streams_.front().get());
  if (ok) {
    marks_.clear(part, mark::discarded);
    tell_({.what = device_event::kind::departed,
           .why = m.what.why,
           .range = part,
           .at = gpu_clock::host_now(),
           .began = began,
           .ticket = m.ticket});
  } else {
    failed_.push_back(m.ticket);
  }
  m.what.blocks.first.value += part.count;
  m.what.blocks.count -= part.count;
  if (m.what.blocks.empty()) {
    finish_first(std::erase(failed_, m.ticket) == 0);
  }
}

DEEPUM_SEPARATE void migration_lane::discard() {
  const migration m = todo_.front();
  std::vector<void*> first{address(m.what.blocks.first)};
  std::vector<std::size_t> size{um_grid.size_of(m.what.blocks).count};
  // An old toolkit cannot discard: then the contents move like others, and nothing is lost.
  const bool ok = (api::has_discard ? succeeded(api::discard(first, size, streams_.front().get()))
                                    : succeeded(api::prefetch(first[0], size[0], {}, streams_.front().get()))) &&
                  settle(streams_.front().get());  // one that is not over would come behind what is written next
  if (ok) {
    if (api::has_discard) {
      marks_.set(m.what.blocks, mark::discarded);
    }
    tell_({.what = device_event::kind::departed,
           .range = m.what.blocks,
           .at = gpu_clock::host_now(),
           .ticket = m.ticket});
  }
  finish_first(ok);
}

DEEPUM_SEPARATE void migration_lane::repopulate(block_range range) {
  for_each_run(
      range, [this](block_id b) { return marks_.has(b, mark::discarded); },
      [this](block_range run) {
        run.count = std::min(run.count, blocks_outward);
        if (succeeded(api::prefetch(address(run.first), um_grid.size_of(run).count, {}, streams_.front().get()))) {
          marks_.clear(run, mark::discarded);
        }
      });
  (void)settle(streams_.front().get());
}

// --- hints ---------------------------------------------------------------------------------------------------------

DEEPUM_SEPARATE void migration_lane::advise(const migration& m) {
  if (m.hint == advice::set_read_mostly) {
    marks_.set(m.what.blocks, mark::read_mostly);  // the driver is told with the next prefetch
    return;
  }
  if (m.hint == advice::unset_read_mostly) {
    end_duplication(m.what.blocks);
    return;
  }
  if (m.hint == advice::set_in_place || m.hint == advice::unset_in_place) {
    touch_in_place(m.what.blocks, m.hint == advice::set_in_place);
    return;
  }
  (void)succeeded(
      api::advise(address(m.what.blocks.first), um_grid.size_of(m.what.blocks).count, api::advice_of(m.hint), m.where));
}

DEEPUM_SEPARATE void migration_lane::touch_in_place(block_range range, bool on) {
  const auto tell = [&](cudaMemoryAdvise hint, bool host) {
    return succeeded(api::advise(address(range.first), um_grid.size_of(range).count, hint,
                                 {.on_host = host, .device = gpu_.properties().ordinal}));
  };
  if (!on) {
    marks_.clear(range, mark::in_place);
    (void)tell(cudaMemAdviseUnsetAccessedBy, false);
    (void)tell(cudaMemAdviseUnsetPreferredLocation, true);
    return;
  }
  // Where only one of them is taken, pages move as they do without.
  if (tell(cudaMemAdviseSetPreferredLocation, true) && tell(cudaMemAdviseSetAccessedBy, false)) {
    marks_.set(range, mark::in_place);
  } else {
    tell_({.what = device_event::kind::unreachable, .range = range, .at = gpu_clock::host_now()});
  }
}

DEEPUM_SEPARATE bool migration_lane::advise_driver(block_range range, cudaMemoryAdvise hint) {
  const own_calls calls(gpu_.context());
  return succeeded(api::advise(address(range.first), um_grid.size_of(range).count, hint,
                               {.on_host = false, .device = gpu_.properties().ordinal}));
}

DEEPUM_SEPARATE void migration_lane::end_duplication(block_range range) {
  marks_.clear(range, mark::read_mostly);
  for_each_run(
      range, [this](block_id b) { return marks_.has(b, mark::duplicated); },
      [this](block_range run) {
        if (advise_driver(run, cudaMemAdviseUnsetReadMostly)) {
          marks_.clear(run, mark::duplicated);
          tell_({.what = device_event::kind::departed,
                 .why = reason::learned,
                 .range = run,
                 .at = gpu_clock::host_now()});
        }
      });
}

DEEPUM_SEPARATE void migration_lane::finish_first(bool ok) {
  const std::uint64_t ticket = todo_.front().ticket;
  todo_.pop_front();
  tell_end(ticket, ok);
}

DEEPUM_SEPARATE void migration_lane::tell_end(std::uint64_t ticket, bool ok) {
  if (ticket != 0) {
    tell_({.what = ok ? device_event::kind::completed : device_event::kind::failed,
           .at = gpu_clock::host_now(),
           .ticket = ticket});
  }
  {
    const std::lock_guard lock(mutex_);
    --busy_;
  }
  settled_.notify_all();
}

}  // namespace cuda
}  // namespace v0
}  // namespace deepum
