#pragma once

#include "cuda/fake/state.hpp"

#include <cuda_runtime_api.h>

#include <functional>
#include <memory>
#include <vector>

/// Streams of the fake: a FIFO each, with a worker of its own. All of it needs the mutex.
namespace fake_runtime {

/// Of the default stream of a device in `state::streams`.
inline const void* legacy_key(int device) { return primary(device); }
inline bool is_legacy(cudaStream_t stream) {
  return stream == nullptr || stream == cudaStreamLegacy || stream == cudaStreamPerThread;
}

/// Begins a stream of the current context; `legacy`: the device's default one.
std::shared_ptr<fifo> start_stream(const void* handle, bool blocking, bool legacy = false);
/// nullptr where there is no such stream. The default stream is that of the current device.
[[nodiscard]] std::shared_ptr<fifo> find_stream(cudaStream_t stream);
/// It takes nothing new, and ends when it has done its work.
void end_stream(std::map<const void*, std::shared_ptr<fifo>>::iterator it);

void put(fifo& f, std::function<void()> work, std::vector<use> uses = {});

/// Whether it is done (without one: yes, there is nothing to wait for).
[[nodiscard]] bool done(const std::shared_ptr<recording>& r);
/// Waits until it is done or the device is broken.
cudaError_t wait(guard& lock, const std::shared_ptr<recording>& r);
/// Waits for what has been put into the stream so far. On a broken device that is only taken out.
cudaError_t drain(guard& lock, const std::shared_ptr<fifo>& f);
/// The same for all streams of a device; for those of all where it is `cudaInvalidDeviceId`.
cudaError_t drain_all(guard& lock, int device = cudaInvalidDeviceId);

/// What a captured stream answers whoever asks how far it is, in any mode.
cudaError_t spoiled_capture(fifo& f);
/// Whether this is the legacy stream, and cannot be used because a stream that is ordered with it is captured.
[[nodiscard]] bool legacy_is_blocked(cudaStream_t stream);
cudaError_t spoiled_by_legacy();

}  // namespace fake_runtime
