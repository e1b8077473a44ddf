#pragma once

#include <deepum/core/block.hpp>
#include <deepum/core/block_grid.hpp>
#include <deepum/cuda/check.hpp>
#include <deepum/cuda/completion/gpu_clock.hpp>
#include <deepum/cuda/handles.hpp>
#include <deepum/cuda/paged/command.hpp>
#include <deepum/cuda/paged/departures.hpp>
#include <deepum/separate.hpp>
#include <deepum/units.hpp>

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

namespace deepum {
inline namespace v0 {
namespace cuda {

DEEPUM_SEPARATE void departures::close() {
  if (stream_) {
    (void)settle(stream_.get());
  }
  in_flight_.clear();
  ended_.clear();
  events_.clear();
  stream_.reset();
}

DEEPUM_SEPARATE void departures::keep_sending(bool waits_for_map) {
  while (!in_flight_.empty() &&
         (!in_flight_.front().copied || reached(cudaEventQuery, in_flight_.front().copied.get()))) {
    ended_.push_back(std::move(in_flight_.front()));
    in_flight_.pop_front();
  }
  if (may_send(waits_for_map)) {
    send_next();
  }
}

DEEPUM_SEPARATE std::vector<departures::piece> departures::take_ended() {
  for (piece& p : ended_) {
    events_.give(std::move(p.copied));
  }
  return std::exchange(ended_, {});
}

DEEPUM_SEPARATE void departures::send_next() {
  pace_.sent(in_flight_.size());
  const paged_command c = waiting_.front();
  const nanoseconds now = gpu_clock::host_now();
  sending_since_ = begun_ == 0 ? now : sending_since_;
  const block_range left{block_id{c.what.blocks.first.value + begun_}, c.what.blocks.count - begun_};
  block_range part{left.first, std::min(left.count, block_grid{chunk_}.blocks_in(piece_size))};
  // As many as the host has memory for; the others stay.
  std::uint32_t found = 0;
  for (; stream_ && found < part.count && with_.host.give(block_id{part.first.value + found}); ++found) {
    with_.incoming.await(block_id{part.first.value + found});
  }
  bool ok = found == part.count;
  part.count = found;
  unique_event copied = found != 0 ? copy(part) : unique_event();
  if (!copied) {
    ok = false;
    part.count = 0;
  }
  begun_ += part.count;
  const bool last = !ok || begun_ == c.what.blocks.count;
  const bool clean = c.what.cleans();
  in_flight_.push_back({c, part, last, ok, clean ? sending_since_ : now, std::move(copied)});
  if (last) {
    waiting_.pop_front();
    begun_ = 0;
  }
}

DEEPUM_SEPARATE unique_event departures::copy(block_range part) {
  bool ok = true;
  for (const block_id b : part) {
    ok = ok && succeeded(cudaMemcpyAsync(with_.host.at(b), with_.device.at(with_.view.slot_of(b)), chunk_.count,
                                         cudaMemcpyDefault, stream_.get()));
  }
  unique_event copied = ok ? events_.take() : unique_event();
  if (!copied || !succeeded(cudaEventRecord(copied.get(), stream_.get()))) {
    with_.failure.set("a copy to the host failed");
    (void)settle(stream_.get());  // some may be on their way
    events_.give(std::move(copied));
    return {};
  }
  return copied;
}

}  // namespace cuda
}  // namespace v0
}  // namespace deepum
