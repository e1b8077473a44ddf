#pragma once

#include <deepum/cuda/check.hpp>
#include <deepum/cuda/handles.hpp>

#include <cuda_runtime_api.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstring>
#include <mutex>
#include <thread>
#include <vector>

namespace deepum::gpu_bench {

/// Copies from pageable memory as one writes it by hand: threads fill pinned pieces of a ring, and each piece is copied
/// by the device's copy engine when it is full.
///
/// Threads: one.
class upload_pipeline {
 public:
  /// @param threads  That copy; each has `slots` pieces and a stream of its own.
  explicit upload_pipeline(unsigned threads, unsigned slots = 4, std::size_t piece = std::size_t{2} << 20)
      : piece_(piece),
        lanes_(threads) {
    for (lane& l : lanes_) {
      cuda::check(cudaStreamCreateWithFlags(&l.stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
      l.slots.resize(slots);
      for (slot& s : l.slots) {
        void* pinned = nullptr;
        cuda::check(cudaMallocHost(&pinned, piece_), "cudaMallocHost");
        s.memory = static_cast<std::byte*>(pinned);
        cuda::check(cudaEventCreateWithFlags(&s.copied, cudaEventDisableTiming), "cudaEventCreateWithFlags");
      }
      cuda::check(cudaEventCreateWithFlags(&l.done, cudaEventDisableTiming), "cudaEventCreateWithFlags");
    }
    cuda::check(cudaGetDevice(&device_), "cudaGetDevice");
    for (lane& l : lanes_) {
      l.thread = std::thread([this, &l] { run(l); });
    }
  }
  ~upload_pipeline() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    for (lane& l : lanes_) {
      l.thread.join();
      for (slot& s : l.slots) {
        (void)cudaFreeHost(s.memory);
        (void)cudaEventDestroy(s.copied);
      }
      (void)cudaEventDestroy(l.done);
      (void)cudaStreamDestroy(l.stream);
    }
  }
  upload_pipeline(const upload_pipeline&) = delete;
  upload_pipeline& operator=(const upload_pipeline&) = delete;

  /// Returns when the source has been read; work put into `before` from now on comes behind the copy.
  void copy(void* to, const void* from, std::size_t size, cudaStream_t before) {
    {
      const std::lock_guard lock(mutex_);
      to_ = static_cast<std::byte*>(to);
      from_ = static_cast<const std::byte*>(from);
      size_ = size;
      next_ = 0;
      left_ = lanes_.size();
      ++copies_;
    }
    changed_.notify_all();
    std::unique_lock lock(mutex_);
    ended_.wait(lock, [this] { return left_ == 0; });
    for (lane& l : lanes_) {
      cuda::check(cudaStreamWaitEvent(before, l.done, 0), "cudaStreamWaitEvent");
    }
  }

 private:
  struct slot {
    std::byte* memory = nullptr;
    cudaEvent_t copied = nullptr;
  };
  struct lane {
    cudaStream_t stream = nullptr;
    std::vector<slot> slots{};
    cudaEvent_t done = nullptr;
    std::thread thread{};
  };

  void run(lane& l) {
    (void)cudaSetDevice(device_);
    std::size_t seen = 0;
    std::size_t turn = 0;
    for (;;) {
      {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return stopping_ || copies_ != seen; });
        if (stopping_) return;
        seen = copies_;
      }
      for (std::size_t begin = next_.fetch_add(piece_); begin < size_; begin = next_.fetch_add(piece_)) {
        const std::size_t n = std::min(piece_, size_ - begin);
        slot& s = l.slots[turn++ % l.slots.size()];
        (void)cudaEventSynchronize(s.copied);
        std::memcpy(s.memory, from_ + begin, n);
        (void)cudaMemcpyAsync(to_ + begin, s.memory, n, cudaMemcpyHostToDevice, l.stream);
        (void)cudaEventRecord(s.copied, l.stream);
      }
      (void)cudaEventRecord(l.done, l.stream);
      const std::lock_guard lock(mutex_);
      if (--left_ == 0) ended_.notify_all();
    }
  }

  const std::size_t piece_;
  int device_ = 0;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::condition_variable ended_;
  std::byte* to_ = nullptr;
  const std::byte* from_ = nullptr;
  std::size_t size_ = 0;
  std::atomic<std::size_t> next_{0};
  std::size_t left_ = 0;
  std::size_t copies_ = 0;
  bool stopping_ = false;
  std::vector<lane> lanes_;
};

}  // namespace deepum::gpu_bench
