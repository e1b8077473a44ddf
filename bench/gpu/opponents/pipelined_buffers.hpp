#pragma once

#include "gpu/library/hand_memory.hpp"
#include "gpu/library/step_program.hpp"
#include "gpu/opponents/pipeline_planner.hpp"
#include <deepum/cuda/check.hpp>
#include <deepum/error.hpp>
#include <deepum/units.hpp>

#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <utility>
#include <vector>

namespace deepum::gpu_bench {

/// What a careful program does by hand: contents live in pinned host memory, and slots of plain device memory have
/// those that are in use. One stream copies in, as far ahead of the launches as a window allows, and one copies out;
/// each copy waits for nothing but the launches and copies that have its memory, by events, and the host for nothing.
///
/// It knows the whole program beforehand. Moves can be planned before a step is timed (`plan`).
///
/// Threads: one, that of the stream.
class pipelined_buffers {
 public:
  static constexpr std::uint64_t alignment = 512;

  /// @param home     By unit: its place in pinned memory, which has the newest contents.
  /// @param slots    Device memory.
  /// @param program  What each launch uses.
  /// @errors         `status::invalid_argument` where a launch needs more than the slots, `status::device_failure`.
  pipelined_buffers(std::span<std::byte* const> home, const memory_pool& slots, unit_program program,
                    std::uint64_t window, afterwards then, cudaStream_t stream)
      : home_(home.begin(), home.end()),
        size_(program.size),
        slots_(slots),
        planner_(aligned(std::move(program)), slots.size().count, window, then),
        stream_(stream),
        at_(home.size(), nullptr),
        last_launch_(home.size(), 0),
        awaited_(home.size()) {
    for (cudaStream_t* q : {&inward_, &outward_}) {
      cuda::check(cudaStreamCreateWithFlags(q, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    }
    for (cudaEvent_t& e : ended_) {
      e = make_event();
    }
    left_ = make_event();
    arrived_.resize(home.size());
    for (cudaEvent_t& e : arrived_) {
      e = make_event();
    }
  }
  /// Brings all that the device alone has home.
  ~pipelined_buffers() {
    (void)cuda::succeeded(cudaStreamSynchronize(stream_));
    for (std::size_t i = 0; i < at_.size(); ++i) {
      if (at_[i] != nullptr && last_launch_[i] != 0 && dirty_[i]) {
        (void)cuda::succeeded(cudaMemcpyAsync(home_[i], at_[i], size_[i], cudaMemcpyDeviceToHost, outward_));
      }
    }
    for (const cudaStream_t q : {inward_, outward_}) {
      (void)cuda::succeeded(cudaStreamSynchronize(q));
    }
    (void)cuda::succeeded(cudaEventDestroy(left_));
    for (const cudaEvent_t e : arrived_) {
      (void)cuda::succeeded(cudaEventDestroy(e));
    }
    for (const cudaEvent_t e : ended_) {
      (void)cuda::succeeded(cudaEventDestroy(e));
    }
    for (const cudaStream_t q : {inward_, outward_}) {
      (void)cuda::succeeded(cudaStreamDestroy(q));
    }
  }
  pipelined_buffers(const pipelined_buffers&) = delete;
  pipelined_buffers& operator=(const pipelined_buffers&) = delete;

  /// Plans the moves of so many launches.
  void plan(std::size_t launches) {
    while (planned_.size() < launches) {
      planned_.push_back(planner_.next());
    }
  }

  /// The next launch is about to be enqueued. @returns  By unit: where it is, if the launch uses it.
  [[nodiscard]] std::span<std::byte* const> before(std::size_t i) {
    plan(1);
    for (const move& m : planned_.front()) {
      m.inward ? arrive(m) : leave(m);
    }
    planned_.pop_front();
    for (const unit_use& u : planner_.program().launches[i]) {
      if (awaited_[u.unit]) {
        cuda::check(cudaStreamWaitEvent(stream_, arrived_[u.unit], 0), "cudaStreamWaitEvent");
        awaited_[u.unit] = false;
      }
    }
    return at_;
  }
  void after(std::size_t i) {
    ++launches_;
    cuda::check(cudaEventRecord(ended_[launches_ % ended_.size()], stream_), "cudaEventRecord");
    for (const unit_use& u : planner_.program().launches[i]) {
      last_launch_[u.unit] = launches_;
      dirty_[u.unit] = dirty_[u.unit] || u.written;
    }
  }

  [[nodiscard]] hand_traffic traffic() const { return traffic_; }

 private:
  static cudaEvent_t make_event() {
    cudaEvent_t e = nullptr;
    cuda::check(cudaEventCreateWithFlags(&e, cudaEventDisableTiming), "cudaEventCreateWithFlags");
    return e;
  }
  static unit_program aligned(unit_program p) {
    for (std::uint64_t& size : p.size) {
      size = (size + alignment - 1) / alignment * alignment;
    }
    return p;
  }

  /// A stream waits for the launches that have used a unit. Of launches long ago no event is kept; a later one tells
  /// as much.
  void await_launches(cudaStream_t q, std::uint32_t unit) {
    if (last_launch_[unit] != 0) {
      const std::uint64_t oldest = launches_ < ended_.size() ? 1 : launches_ - ended_.size() + 1;
      cuda::check(cudaStreamWaitEvent(q, ended_[std::max(last_launch_[unit], oldest) % ended_.size()], 0),
                  "cudaStreamWaitEvent");
    }
  }
  void leave(const move& m) {
    if (m.copies) {
      await_launches(outward_, m.unit);
      cuda::check(cudaMemcpyAsync(home_[m.unit], at_[m.unit], size_[m.unit], cudaMemcpyDeviceToHost, outward_),
                  "cudaMemcpyAsync");
      cuda::check(cudaEventRecord(left_, outward_), "cudaEventRecord");
      cuda::check(cudaStreamWaitEvent(inward_, left_, 0), "cudaStreamWaitEvent");
      traffic_.out += size_[m.unit];
    } else {
      await_launches(inward_, m.unit);
      traffic_.discarded += size_[m.unit];
    }
    at_[m.unit] = nullptr;
    awaited_[m.unit] = false;
    last_launch_[m.unit] = 0;
    dirty_[m.unit] = false;
  }
  /// The inward stream has waited for its room when others left it, and for the unit itself when that left.
  void arrive(const move& m) {
    at_[m.unit] = slots_.base() + m.at;
    if (m.copies) {
      cuda::check(cudaMemcpyAsync(at_[m.unit], home_[m.unit], size_[m.unit], cudaMemcpyHostToDevice, inward_),
                  "cudaMemcpyAsync");
      traffic_.in += size_[m.unit];
    }
    cuda::check(cudaEventRecord(arrived_[m.unit], inward_), "cudaEventRecord");
    awaited_[m.unit] = true;
    last_launch_[m.unit] = 0;
  }

  std::vector<std::byte*> home_;     // by unit, like all that follows
  std::vector<std::uint64_t> size_;  // as the program has it, not rounded up
  const memory_pool& slots_;
  pipeline_planner planner_;
  cudaStream_t stream_;
  cudaStream_t inward_ = nullptr;
  cudaStream_t outward_ = nullptr;
  std::vector<std::byte*> at_;
  std::vector<std::uint64_t> last_launch_;  // that used it since it came, counted from 1; 0: none
  std::vector<bool> awaited_;               // no launch has waited for its arrival yet
  std::vector<bool> dirty_ = std::vector<bool>(home_.size());
  std::vector<cudaEvent_t> arrived_{};
  cudaEvent_t left_ = nullptr;
  std::array<cudaEvent_t, 1024> ended_{};  // of the last launches
  std::uint64_t launches_ = 0;
  std::deque<std::vector<move>> planned_{};
  hand_traffic traffic_{};
};

}  // namespace deepum::gpu_bench
