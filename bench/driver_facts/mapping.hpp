#pragma once

#include "absl/strings/str_cat.h"
#include "moves.hpp"
#include "probe.hpp"
#include "report.hpp"
#include <deepum/cuda/check.hpp>
#include <deepum/cuda/virtual_memory.hpp>
#include <deepum/error.hpp>
#include <deepum/units.hpp>

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace deepum::driver_facts {

/// Chunks of the device and more addresses than they fill.
class mapped_chunks {
 public:
  static constexpr std::uint32_t count = 32;

  /// @errors  `status::unsupported`, `status::out_of_arena_space`, `status::device_failure`.
  mapped_chunks(int ordinal, bytes chunk)
      : virtual_(ordinal),
        chunk_(chunk),
        begin_(virtual_.reserve(chunk * places, chunk)) {
    for (std::uint32_t i = 0; i < count; ++i) {
      cuda::virtual_memory::handle made = 0;
      if (virtual_.create(false, chunk, made) != CUDA_SUCCESS) {
        break;
      }
      handles_.push_back(made);
      (void)virtual_.map(at(i), chunk, made);
      (void)virtual_.allow(at(i), chunk);
    }
  }
  ~mapped_chunks() {
    for (std::uint64_t i = 0; i < handles_.size(); ++i) {
      (void)virtual_.unmap(at(first_ + i), chunk_);
      virtual_.release(handles_[i]);
    }
    virtual_.give_back(begin_, chunk_ * places);
  }
  mapped_chunks(const mapped_chunks&) = delete;
  mapped_chunks& operator=(const mapped_chunks&) = delete;

  /// Maps the chunk that was mapped first somewhere else.
  /// @param unmapping, making_accessible  Microseconds of the driver's calls.
  /// @errors  `status::device_failure`.
  void move_one(double& unmapping, double& making_accessible) {
    if (handles_.size() != count) {
      throw error(status::device_failure, "the device has no memory for chunks");
    }
    const stopwatch first;
    bool well = virtual_.unmap(at(first_), chunk_) == CUDA_SUCCESS;
    unmapping = 1e6 * first();
    well = well && virtual_.map(at(first_ + count), chunk_, handles_[first_ % count]) == CUDA_SUCCESS;
    const stopwatch second;
    well = well && virtual_.allow(at(first_ + count), chunk_) == CUDA_SUCCESS;
    making_accessible = 1e6 * second();
    ++first_;
    if (!well) {
      throw error(status::device_failure, "a chunk could not be mapped");
    }
  }

 private:
  static constexpr std::uint32_t places = 4 * count;

  [[nodiscard]] std::byte* at(std::uint64_t place) const { return begin_ + (chunk_ * (place % places)).count; }

  cuda::virtual_memory virtual_;
  bytes chunk_;
  std::byte* begin_;
  std::vector<cuda::virtual_memory::handle> handles_{};
  std::uint64_t first_ = 0;  // of `count` places that follow one another, which are mapped
};

/// Copies in one direction, over and over, by a thread of its own.
class copies {
 public:
  /// @param queued  Copies that are in the stream at a time; with one the link pauses between two.
  copies(int ordinal, bool in, bytes piece, std::uint64_t queued) : piece_(piece) {
    void* made = nullptr;
    cuda::check(cudaMallocHost(&made, piece.count), "cudaMallocHost");
    host_.reset(made);
    cuda::check(cudaMalloc(&made, piece.count), "cudaMalloc");
    device_.reset(made);
    thread_.emplace(ordinal, nullptr, go_, [this, in, queued](cudaStream_t q) { work(in, queued, q); });
  }
  ~copies() { stop_ = true; }
  copies(const copies&) = delete;
  copies& operator=(const copies&) = delete;

  /// Ends them. Once.
  double gigabytes_per_second() {
    stop_ = true;
    const double seconds = thread_->seconds();
    return driver_facts::gigabytes_per_second(piece_ * done_, seconds);
  }

 private:
  struct free_host {
    void operator()(void* p) const { (void)cuda::worked(cudaFreeHost(p)); }
  };
  struct free_device {
    void operator()(void* p) const { (void)cuda::worked(cudaFree(p)); }
  };

  void work(bool in, std::uint64_t queued, cudaStream_t q) {
    std::deque<event> ends;
    for (std::uint64_t i = 0; i < queued; ++i) {
      ends.emplace_back(cudaEventDisableTiming);
    }
    for (; !stop_.load() || done_ == 0; ++done_) {
      if (done_ >= queued) {
        ends[done_ % queued].wait();
      }
      cuda::check(cudaMemcpyAsync(in ? device_.get() : host_.get(), in ? host_.get() : device_.get(), piece_.count,
                                  cudaMemcpyDefault, q),
                  "cudaMemcpyAsync");
      ends[done_ % queued].record(q);
    }
  }

  bytes piece_;
  std::unique_ptr<void, free_host> host_{};
  std::unique_ptr<void, free_device> device_{};
  const std::atomic<bool> go_{true};
  std::atomic<bool> stop_{false};
  std::uint64_t done_ = 0;
  std::optional<worker> thread_{};  // uses the others
};

/// What it costs to map a chunk somewhere else, and how copies that go on meanwhile matter. Plain memory alone.
inline void mapping(probe& p) {
  constexpr bytes chunk = 16_MiB;
  constexpr int chunks = 64;
  struct load {
    const char* name;
    std::uint64_t in;  // copies queued at a time; 0: none
    std::uint64_t out;
  };
  for (const load l : {load{"nothing", 0, 0}, load{"copies in", 4, 0}, load{"copies out, one behind the other", 0, 4},
                       load{"copies out, with a pause after each", 0, 1}, load{"copies both ways", 4, 4},
                       load{"copies both ways, out with a pause after each", 4, 1}}) {
    for (int r = 0; r < p.repeats(); ++r) {
      mapped_chunks moved(p.ordinal(), chunk);
      std::unique_ptr<copies> in = l.in != 0 ? std::make_unique<copies>(p.ordinal(), true, chunk, l.in) : nullptr;
      std::unique_ptr<copies> out = l.out != 0 ? std::make_unique<copies>(p.ordinal(), false, chunk, l.out) : nullptr;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      std::vector<double> unmapping(chunks);
      std::vector<double> allowing(chunks);
      for (int i = 0; i < chunks; ++i) {
        moved.move_one(unmapping[static_cast<std::size_t>(i)], allowing[static_cast<std::size_t>(i)]);
      }
      const std::string beside = absl::StrCat(in_mib(chunk), " beside ", l.name);
      p.out().add(absl::StrCat(beside, ": cuMemUnmap"), "us", quantile(unmapping, 0.5));
      p.out().add(absl::StrCat(beside, ": cuMemSetAccess"), "us", quantile(allowing, 0.5));
      if (out != nullptr) {
        p.out().add(absl::StrCat(beside, ": the copies out"), "GB/s", out->gigabytes_per_second());
      }
    }
  }
}

}  // namespace deepum::driver_facts
