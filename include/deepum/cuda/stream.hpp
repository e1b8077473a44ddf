#pragma once

#include <deepum/core/launch.hpp>
#include <deepum/cuda/check.hpp>
#include <deepum/cuda/completion/launch_log.hpp>
#include <deepum/cuda/current_device.hpp>
#include <deepum/cuda/driver_function.hpp>
#include <deepum/cuda/graph.hpp>
#include <deepum/cuda/managed_memory.hpp>
#include <deepum/cuda/relaxed_capture.hpp>
#include <deepum/dim.hpp>
#include <deepum/error.hpp>

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <array>
#include <cstddef>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace deepum {
inline namespace v0 {
namespace cuda {

/// Marks a place in a stream. One that was never recorded counts as reached. Threads: one at a time.
class event {
 public:
  event() = default;
  ~event() {
    if (event_ != nullptr) {
      const own_calls calls(on_.get());
      (void)succeeded(cudaEventDestroy(event_));
    }
  }
  event(const event&) = delete;
  event& operator=(const event&) = delete;

  /// @errors  `status::device_failure`, where the work before it failed.
  [[nodiscard]] bool done() const {
    if (event_ == nullptr) {
      return true;
    }
    const own_calls calls(on_.get());
    const cudaError_t state = cudaEventQuery(event_);
    if (state == cudaErrorNotReady) {
      (void)cudaGetLastError();
      return false;
    }
    check(state, "cudaEventQuery");
    return true;
  }
  /// The host waits for the work before the mark.
  /// @errors  `status::device_failure`.
  void synchronize() const {
    if (event_ != nullptr) {
      const own_calls calls(on_.get());
      check(cudaEventSynchronize(event_), "cudaEventSynchronize");
    }
  }

  /// The runtime's own. One that was never recorded is made now, on the current device.
  /// @errors  `status::device_failure`.
  [[nodiscard]] cudaEvent_t native() const {
    if (event_ == nullptr) {
      check(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), "cudaEventCreateWithFlags");
    }
    return event_;
  }

 private:
  template <class Memory>
  friend class basic_stream;

  std::shared_ptr<const primary_context> on_{};  // of the stream that recorded it first
  mutable cudaEvent_t event_ = nullptr;
};

/// A stream of the device: what `deepum::stream` gives its launches to.
///
/// Threads: one at a time.
template <class Memory>
class basic_stream {
 public:
  /// A stream of its own.
  /// @param blocking  Ordered with the legacy default stream, as the streams of `cudaStreamCreate` are. Else not.
  /// @errors  `status::device_failure`.
  explicit basic_stream(Memory& of, bool blocking = false) : basic_stream(of, create(of, blocking)) {}
  /// A stream that the program has, the default stream (`cudaStreamLegacy`, nullptr) too. It outlives this.
  /// @param sole  See `stream_options`.
  /// @errors  `status::invalid_argument` for `cudaStreamPerThread`, but for `sole`; `status::device_failure`.
  basic_stream(Memory& memory, cudaStream_t existing, bool sole = false)
      : basic_stream(memory, handle(sole && existing == cudaStreamPerThread ? existing : same_everywhere(existing),
                                    destroy{.owned = false, .shared = !sole})) {}
  ~basic_stream() {
    const own_calls calls(context());
    if (!capturing()) {
      (void)succeeded(cudaStreamSynchronize(stream_.get()));
    }
    memory_.remove(*log_);
    log_.reset();
    stream_.reset();
  }
  basic_stream(const basic_stream&) = delete;
  basic_stream& operator=(const basic_stream&) = delete;

  /// Work enqueued until `end` belongs to this launch. `launch_finished` is reported when all of it is done.
  /// Launches may nest: what is enqueued belongs to the innermost one, and the inner ones end first. In between the
  /// device is the thread's current one.
  void begin(launch_id id) {
    if (!entered_) {
      entered_.emplace(context());
    } else {
      nested_.emplace_back(context());
    }
    const bool timed = memory_.time_launches();
    // Work of the program behind an unmarked launch would hide its end for as long as it runs.
    const bool marked = timed || stream_.get_deleter().shared || memory_.mark_launches();
    log_->begin(id, timed, memory_.several_streams(), marked);
  }
  void end(launch_id /*id*/) {
    memory_.issued(*log_, log_->end());
    if (nested_.empty()) {
      entered_.reset();
    } else {
      nested_.pop_back();
    }
  }

  /// Work enqueued from now on finds the contents of these blocks: where they are on their way to the device, it
  /// waits for them there. Comes before `begin`.
  /// @param complete  Nothing else is touched.
  /// @errors  `status::device_failure`.
  void order_after_arrival(const std::vector<block_access>& blocks, bool complete)
    requires requires(Memory& m, cudaStream_t s) { m.order_after_arrival(s, blocks, complete); }
  {
    memory_.order_after_arrival(stream_.get(), blocks, complete);
  }

  /// @name Graphs
  /// @{

  /// Work enqueued from now on is not executed, but becomes a graph.
  /// @errors  `status::device_failure`.
  void begin_capture() {
    recording_.emplace(context());
    const cudaError_t begun = cudaStreamBeginCapture(stream_.get(), cudaStreamCaptureModeThreadLocal);
    if (begun != cudaSuccess) {
      recording_.reset();
    }
    check(begun, "cudaStreamBeginCapture");
  }
  [[nodiscard]] graph end_capture() {
    cudaGraph_t captured = nullptr;
    const cudaError_t ended = cudaStreamEndCapture(stream_.get(), &captured);
    recording_.reset();
    check(ended, "cudaStreamEndCapture");
    return graph(captured, memory_.owner().shared_context());
  }
  /// Forgets what was captured.
  void abandon_capture() noexcept {
    cudaGraph_t captured = nullptr;
    if (succeeded(cudaStreamEndCapture(stream_.get(), &captured)) && captured != nullptr) {
      (void)succeeded(cudaGraphDestroy(captured));
    }
    recording_.reset();
  }
  /// Whether the stream is being captured. Asked for every launch on memory that never faults, so the driver is asked
  /// without the runtime between.
  [[nodiscard]] bool capturing() const {
    CUstreamCaptureStatus state = CU_STREAM_CAPTURE_STATUS_NONE;
    if (is_capturing_ == nullptr) {
      return false;
    }
    const CUresult result = is_capturing_(stream_.get(), &state);
    // The legacy stream cannot be used while a stream that is ordered with it is captured.
    return result == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT ||
           (result == CUDA_SUCCESS && state != CU_STREAM_CAPTURE_STATUS_NONE);
  }
  /// @errors  `status::device_failure`.
  void launch(const graph& g) { check(cudaGraphLaunch(g.native(), stream_.get()), "cudaGraphLaunch"); }
  /// @}

  /// Enqueues a `__global__` function. Its arguments are converted to its parameters, as in a call.
  /// @param shared_bytes  Dynamic shared memory.
  /// @errors  `status::device_failure`, with what the runtime says.
  template <class... Parameters, class... Args>
  void launch(dim grid, dim block, unsigned shared_bytes, void (*kernel)(Parameters...), Args&&... args) {
    static_assert(sizeof...(Parameters) == sizeof...(Args),
                  "a kernel is launched with one argument for each parameter");
    std::tuple<std::remove_cvref_t<Parameters>...> values{
        static_cast<std::remove_cvref_t<Parameters>>(std::forward<Args>(args))...};
    std::apply(
        [&](auto&... each) {
          std::array<void*, sizeof...(Parameters) + 1> places{const_cast<void*>(static_cast<const void*>(&each))...,
                                                              nullptr};
          check(cudaLaunchKernel(reinterpret_cast<const void*>(kernel), dim3{grid.x, grid.y, grid.z},
                                 dim3{block.x, block.y, block.z}, places.data(), shared_bytes, stream_.get()),
                "cudaLaunchKernel");
        },
        values);
  }

  /// Copies bytes; either side may lie outside of all arenas. As `cudaMemcpyAsync`: pageable memory has been read when
  /// the call returns, and has been written then.
  void copy(void* to, const void* from, std::size_t n) {
    if (n != 0) {
      check(cudaMemcpyAsync(to, from, n, cudaMemcpyDefault, stream_.get()), "cudaMemcpyAsync");
    }
  }
  /// Whether an address is of host memory that CUDA does not know. Cost: a call of the driver.
  [[nodiscard]] bool is_pageable(const void* p) const {
    const own_calls calls(context());
    cudaPointerAttributes found{};
    return succeeded(cudaPointerGetAttributes(&found, p)) && found.type == cudaMemoryTypeUnregistered;
  }
  void fill(void* to, int value, std::size_t n) {
    if (n != 0) {
      check(cudaMemsetAsync(to, value, n, stream_.get()), "cudaMemsetAsync");
    }
  }

  void record(event& e) {
    const current_device on(context());
    e.on_ = e.event_ == nullptr ? memory_.owner().shared_context() : e.on_;
    check(cudaEventRecord(e.native(), stream_.get()), "cudaEventRecord");
  }
  /// Work enqueued from now on starts when `e`, as it was last recorded, has been reached.
  void wait(const event& e) {
    const current_device on(context());
    check(cudaStreamWaitEvent(stream_.get(), e.native(), 0), "cudaStreamWaitEvent");
  }

  /// The host waits until the stream has nothing left to do.
  /// @errors  `status::device_failure`, where something in it failed; `status::unsupported` while it is captured.
  void synchronize() {
    if (capturing()) {
      throw error(status::unsupported, "a stream is waited for while it is captured, which would end the capture");
    }
    const own_calls calls(context());
    check(cudaStreamSynchronize(stream_.get()), "cudaStreamSynchronize");
  }
  [[nodiscard]] bool idle() {
    if (capturing()) {
      return false;  // to ask would spoil the capture
    }
    const own_calls calls(context());
    const cudaError_t state = cudaStreamQuery(stream_.get());
    if (state != cudaSuccess) {
      (void)cudaGetLastError();
    }
    return state != cudaErrorNotReady;
  }

  /// Waits for nothing, and may be asked while the program captures some stream.
  /// @errors  `status::device_failure`, where something has failed for good: it is asked twice.
  void check_device() const {
    if (capturing()) {
      return;  // to ask would spoil the capture
    }
    const own_calls calls(context());
    cudaError_t state = cudaStreamQuery(stream_.get());
    if (state != cudaSuccess && state != cudaErrorNotReady) {
      (void)cudaGetLastError();
      state = cudaStreamQuery(stream_.get());
    }
    if (state == cudaErrorNotReady) {
      (void)cudaGetLastError();
      return;
    }
    check(state, "cudaStreamQuery");
  }

  /// The stream to which library calls enqueue.
  [[nodiscard]] cudaStream_t native() const { return stream_.get(); }

 private:
  struct destroy {
    bool owned = true;
    bool shared = false;  // the program may enqueue there by itself
    void operator()(cudaStream_t s) const {
      if (owned) {
        (void)succeeded(cudaStreamDestroy(s));
      }
    }
  };
  using handle = std::unique_ptr<std::remove_pointer_t<cudaStream_t>, destroy>;

  basic_stream(Memory& of, handle own) : memory_(of), stream_(std::move(own)) {
    (void)find_driver_function("cuStreamIsCapturing", 10000, is_capturing_);
    log_.emplace(stream_.get());
    memory_.add(*log_);
  }

  /// The stream for all threads and source files: 0 may be another one where they are compiled for default streams of
  /// threads.
  static cudaStream_t same_everywhere(cudaStream_t existing) {
    if (existing == cudaStreamPerThread) {
      throw error(status::invalid_argument,
                  "cudaStreamPerThread is another stream on each thread; take one of cudaStreamCreate, or "
                  "cudaStreamLegacy, with which those are ordered");
    }
    return existing == nullptr ? cudaStreamLegacy : existing;
  }
  static handle create(Memory& memory, bool blocking) {
    const own_calls calls(memory.owner().context());
    cudaStream_t made = nullptr;
    check(cudaStreamCreateWithFlags(&made, blocking ? cudaStreamDefault : cudaStreamNonBlocking),
          "cudaStreamCreateWithFlags");
    return handle(made);
  }

  [[nodiscard]] const primary_context& context() const { return memory_.owner().context(); }

  Memory& memory_;
  handle stream_;
  std::optional<launch_log> log_{};
  std::optional<current_device> entered_{};    // between `begin` and `end`
  std::deque<current_device> nested_{};        // of launches within that one, the innermost last
  std::optional<current_device> recording_{};  // between `begin_capture` and its end
  CUresult(CUDAAPI* is_capturing_)(CUstream, CUstreamCaptureStatus*) = nullptr;
};

using stream = basic_stream<managed_memory>;

}  // namespace cuda
}  // namespace v0
}  // namespace deepum
