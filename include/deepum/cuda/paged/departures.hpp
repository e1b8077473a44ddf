#pragma once

#include <deepum/core/block.hpp>
#include <deepum/cuda/handles.hpp>
#include <deepum/cuda/paged/arrivals.hpp>
#include <deepum/cuda/paged/command.hpp>
#include <deepum/cuda/paged/copy_pace.hpp>
#include <deepum/cuda/paged/device_chunks.hpp>
#include <deepum/cuda/paged/failure_note.hpp>
#include <deepum/cuda/paged/host_chunks.hpp>
#include <deepum/cuda/paged/launch_view.hpp>
#include <deepum/units.hpp>

#include <cuda_runtime_api.h>

#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

namespace deepum {
inline namespace v0 {
namespace cuda {

/// Copies to the host: commands that wait for their turn, piece by piece, and the pieces that are on their way.
///
/// Threads: one at a time.
class departures {
 public:
  /// What it works with. All of it outlives it.
  struct surroundings {
    const device_chunks& device;
    host_chunks& host;
    const launch_view& view;
    arrivals& incoming;
    failure_note& failure;
  };
  /// A piece of a command, that has been copied.
  struct piece {
    paged_command what{};
    block_range part{};     // may be empty, where it failed
    bool last = false;      // of the command
    bool ok = true;         // all of the command that went before, and this
    nanoseconds began{};    // the copies; those of a clean: of all its pieces
    unique_event copied{};  // none: nothing is copied
  };

  departures(const surroundings& with, bytes chunk) : with_(with), chunk_(chunk) {}

  /// On the thread that copies, with the device current: before the first copy, and after the last one. A stream that
  /// cannot be made makes copies fail.
  void open() { stream_ = try_make_stream(); }
  void close();

  void add(const paged_command& c) { waiting_.push_back(c); }
  /// A block has been mapped. See `copy_pace`.
  void mapped() { pace_.mapped(); }
  /// Gives the copy engine the next piece, if it is time. First of all, because the link waits for it.
  /// @param waits_for_map  See `copy_pace`.
  void keep_sending(bool waits_for_map);
  /// The pieces that have ended since the last call, in order.
  [[nodiscard]] std::vector<piece> take_ended();

  [[nodiscard]] bool has_ended_some() const { return !ended_.empty(); }
  [[nodiscard]] bool may_send(bool waits_for_map) const {
    return !waiting_.empty() && pace_.may_send(in_flight_.size(), waits_for_map);
  }
  [[nodiscard]] bool some_in_flight() const { return !in_flight_.empty(); }
  /// Nothing waits or is on its way; pieces that have ended may be left.
  [[nodiscard]] bool idle() const { return waiting_.empty() && in_flight_.empty(); }

 private:
  static constexpr bytes piece_size = 16_MiB;

  void send_next();
  /// Gives the blocks' copies to the stream. @returns  The event behind them; empty where that failed.
  [[nodiscard]] unique_event copy(block_range part);

  const surroundings with_;
  const bytes chunk_;
  copy_pace pace_{};
  std::deque<paged_command> waiting_{};
  std::uint32_t begun_ = 0;      // blocks of the first of those
  nanoseconds sending_since_{};  // of that one
  std::deque<piece> in_flight_{};
  std::vector<piece> ended_{};
  unique_stream stream_{};
  event_pool events_{};
};

}  // namespace cuda
}  // namespace v0
}  // namespace deepum

#ifndef DEEPUM_SEPARATE_COMPILATION
#include <deepum/cuda/paged/impl/departures.hpp>  // what it declares
#endif
