#pragma once

#include "absl/strings/str_cat.h"
#include "gpu/library/hand_memory.hpp"
#include "moves.hpp"
#include "probe.hpp"
#include "report.hpp"
#include <deepum/cuda/check.hpp>
#include <deepum/cuda/virtual_memory.hpp>
#include <deepum/error.hpp>
#include <deepum/units.hpp>

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>
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

using gpu_bench::memory_pool;

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

/// How copies follow one another.
struct pace {
  std::uint64_t queued = 1;  ///< that are in the stream at a time; with one the link pauses between two
  std::uint64_t run = 0;     ///< after so many of them it pauses too; 0: never
  std::uint64_t most = 0;    ///< copies in all; 0: until they are stopped
};

/// Copies in one direction, over and over, by a thread of its own.
class copies {
 public:
  copies(int ordinal, bool in, bytes piece, pace how)
      : piece_(piece),
        host_(memory_pool::kind::pinned, piece),
        device_(memory_pool::kind::device, piece) {
    thread_.emplace(ordinal, nullptr, go_, [this, in, how](cudaStream_t q) { work(in, how, q); });
  }
  ~copies() { stop_ = true; }
  copies(const copies&) = delete;
  copies& operator=(const copies&) = delete;

  /// All of them have been done.
  [[nodiscard]] bool over() const { return over_.load(); }
  /// Ends them. Once.
  double gigabytes_per_second() {
    stop_ = true;
    const double seconds = thread_->seconds();
    return driver_facts::gigabytes_per_second(piece_ * done_, seconds);
  }

 private:
  void work(bool in, const pace& how, cudaStream_t q) {
    std::deque<event> ends;
    for (std::uint64_t i = 0; i < how.queued; ++i) {
      ends.emplace_back(cudaEventDisableTiming);
    }
    for (; (!stop_.load() && (how.most == 0 || done_ < how.most)) || done_ == 0; ++done_) {
      if (how.run != 0 && done_ % how.run == 0) {
        cuda::check(cudaStreamSynchronize(q), "cudaStreamSynchronize");
      }
      if (done_ >= how.queued) {
        ends[done_ % how.queued].wait();
      }
      cuda::check(cudaMemcpyAsync(in ? device_.base() : host_.base(), in ? host_.base() : device_.base(), piece_.count,
                                  cudaMemcpyDefault, q),
                  "cudaMemcpyAsync");
      ends[done_ % how.queued].record(q);
    }
    cuda::check(cudaStreamSynchronize(q), "cudaStreamSynchronize");
    over_ = true;
  }

  bytes piece_;
  memory_pool host_;
  memory_pool device_;
  const std::atomic<bool> go_{true};
  std::atomic<bool> stop_{false};
  std::atomic<bool> over_{false};
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
      std::unique_ptr<copies> in = l.in != 0 ? std::make_unique<copies>(p.ordinal(), true, chunk, pace{l.in}) : nullptr;
      std::unique_ptr<copies> out =
          l.out != 0 ? std::make_unique<copies>(p.ordinal(), false, chunk, pace{l.out}) : nullptr;
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

/// How long a program waits for eight bytes while large copies go the same way, in a stream of their own.
inline void small_copies(probe& p) {
  constexpr bytes piece = 16_MiB;
  constexpr std::uint64_t pieces = 200;
  for (const bool in : {false, true}) {
    for (const bool pinned : {false, true}) {
      for (const pace how : {pace{1}, pace{2, 2}, pace{2, 4}, pace{2, 8}, pace{2}, pace{8, 8}, pace{8}}) {
        std::vector<double> waits;
        double rate = 0;
        for (int r = 0; r < p.repeats(); ++r) {
          std::array<std::byte, 8> pageable{};
          const memory_pool page_locked(memory_pool::kind::pinned, um_block);
          const memory_pool device(memory_pool::kind::device, um_block);
          std::byte* const here = pinned ? page_locked.base() : pageable.data();
          const stream q;
          copies beside(p.ordinal(), in, piece, {how.queued, how.run, pieces});
          std::this_thread::sleep_for(std::chrono::milliseconds(5));
          while (!beside.over()) {
            const stopwatch elapsed;
            cuda::check(cudaMemcpyAsync(in ? device.base() : here, in ? here : device.base(), pageable.size(),
                                        cudaMemcpyDefault, q.get()),
                        "cudaMemcpyAsync");
            cuda::check(cudaStreamSynchronize(q.get()), "cudaStreamSynchronize");
            waits.push_back(1e6 * elapsed());
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
          }
          rate = std::max(rate, beside.gigabytes_per_second());
        }
        const std::string what = absl::StrCat(in ? "in, " : "out, ", pinned ? "pinned" : "pageable",
                                              ", beside copies of ", in_mib(piece), ", ", how.queued, " queued",
                                              how.run != 0      ? absl::StrCat(", a pause after ", how.run)
                                              : how.queued == 1 ? ""
                                                                : ", no pause");
        p.out().add(absl::StrCat(what, ": eight bytes"), "us", quantile(waits, 0.5));
        p.out().add(absl::StrCat(what, ": eight bytes, at most"), "us", quantile(waits, 1.0));
        p.out().add(absl::StrCat(what, ": the copies"), "GB/s", rate);
      }
    }
  }
}

}  // namespace deepum::driver_facts
