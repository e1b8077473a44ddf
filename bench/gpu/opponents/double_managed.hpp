#pragma once

#include "gpu/library/hand_memory.hpp"
#include "gpu/library/idle_streams.hpp"
#include "gpu/library/step_program.hpp"
#include "gpu/opponents/residency_planner.hpp"
#include <deepum/core/block.hpp>
#include <deepum/core/block_grid.hpp>
#include <deepum/cuda/api.hpp>
#include <deepum/cuda/check.hpp>
#include <deepum/cuda/completion/gpu_clock.hpp>
#include <deepum/cuda/driver_context.hpp>
#include <deepum/error.hpp>
#include <deepum/units.hpp>

#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace deepum::gpu_bench {

/// Double buffering by hand on managed memory, for a program whose step is known: what a performance engineer would
/// write with prefetches and discards.
///
/// While a segment computes, one thread brings what the next one needs, and two take away what is needed last.
/// Each has a context of its own, because a migration keeps all launches of its context waiting. Blocks that follow one
/// another move together, in pieces of 64 MiB. Contents that will be overwritten as a whole are discarded.
///
/// Threads: the stream's alone.
class double_managed final : public hand_system {
 public:
  static constexpr std::uint32_t piece = 32;  // blocks: 64 MiB

  /// @param base    Of the managed range; what is in it may be anywhere.
  /// @param stream  The one that the launches go to.
  /// @param share   A segment may use the budget divided by it.
  /// @errors        `status::invalid_argument` where the step does not fit, `status::device_failure`.
  double_managed(int ordinal, std::byte* base, const step_program& program, bytes budget, unsigned share,
                 cudaStream_t stream)
      : ordinal_(ordinal),
        base_(base),
        program_(program),
        planner_(plan_residency(in_blocks(program), block_size.count * (budget / block_size), share, false)),
        stream_(stream),
        budget_(static_cast<std::int64_t>(budget / block_size)),
        room_(budget_),
        least_room_(budget_) {
    // All of it to the host, so that nothing is resident but what is brought.
    cuda::check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
    cuda::check(cuda::api::prefetch(base, program.capacity.count, {}, stream), "cudaMemPrefetchAsync");
    cuda::check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
    for (cudaEvent_t& e : ended_) {
      cuda::check(cudaEventCreateWithFlags(&e, cudaEventDisableTiming), "cudaEventCreateWithFlags");
    }
    inward_ = std::thread([this] { run_lane(inward_jobs_, true); });
    for (std::size_t i = 0; i != outward_.size(); ++i) {
      outward_[i] = std::thread([this, i] { run_lane(outward_jobs_[i], false); });
    }
    plan();
  }
  ~double_managed() override {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    inward_.join();
    for (std::thread& t : outward_) {
      t.join();
    }
    (void)cuda::succeeded(cudaStreamSynchronize(stream_));
    for (const cudaEvent_t e : ended_) {
      (void)cuda::succeeded(cudaEventDestroy(e));
    }
  }

  void before(std::string_view name, std::span<const operand> /*operands*/) override {
    expects(name == program_.launches[launch_].name, "a step that is not the one that was recorded");
    if (launch_ != current().first) {
      return;
    }
    const nanoseconds began = cuda::gpu_clock::host_now();
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return prepared_ > begun_ || failure_; });
      if (failure_) {
        std::rethrow_exception(failure_);
      }
      ++begun_;
    }
    stalled_ += cuda::gpu_clock::host_now() - began;
    plan();
  }
  void after() override {
    ++launch_;
    if (launch_ == current().first + current().count) {
      cuda::check(cudaEventRecord(ended_[segment_number_ % events], stream_), "cudaEventRecord");
      {
        const std::lock_guard lock(mutex_);
        ++recorded_;
      }
      changed_.notify_all();
      ++segment_number_;
      launch_ = launch_ == program_.launches.size() ? 0 : launch_;
    }
  }

  [[nodiscard]] hand_traffic traffic() const override {
    return {in_.load(std::memory_order_relaxed), out_.load(std::memory_order_relaxed),
            discarded_.load(std::memory_order_relaxed)};
  }
  [[nodiscard]] nanoseconds stalled() const override { return stalled_; }
  [[nodiscard]] std::size_t segments() const { return planner_.segments().size(); }
  /// At most so far, as it counts itself.
  [[nodiscard]] std::uint64_t peak_bytes() const {
    const std::lock_guard lock(mutex_);
    return block_size.count * static_cast<std::uint64_t>(budget_ - least_room_);
  }

 private:
  /// What one direction has to do for a segment.
  struct job {
    struct run {
      block_range range{};
      bool copies = true;
    };
    std::uint64_t segment = 0;
    std::vector<run> runs{};  ///< by address
  };
  static constexpr std::size_t outward_threads = 2;  // what they reach together, the library's lanes do
  static constexpr std::size_t events = 4;           // the segment that computes, the one before it, and some to spare

  [[nodiscard]] const segment& current() const {
    return planner_.segments()[static_cast<std::size_t>(segment_number_ % planner_.segments().size())];
  }

  /// Gives all threads what has to be done for the next segment that has not been planned.
  void plan() {
    job in{.segment = planned_};
    job out{};
    std::vector<move> moves = planner_.next();
    std::sort(moves.begin(), moves.end(), [](const move& a, const move& b) { return a.unit < b.unit; });
    for (const move& m : moves) {
      std::vector<job::run>& runs = (m.inward ? in : out).runs;
      // Inwards all blocks are alike: those without contents only get room.
      const bool copies = m.inward || m.copies;
      if (!runs.empty() && runs.back().copies == copies && runs.back().range.end_value() == m.unit &&
          runs.back().range.count < piece) {
        ++runs.back().range.count;
      } else {
        runs.push_back({{block_id{m.unit}, 1}, copies});
      }
      std::atomic<std::uint64_t>& count = !m.copies ? discarded_ : m.inward ? in_ : out_;
      if (m.copies || !m.inward) {
        count.fetch_add(block_size.count, std::memory_order_relaxed);
      }
    }
    // What is discarded leaves at once.
    std::stable_partition(out.runs.begin(), out.runs.end(), [](const job::run& r) { return !r.copies; });
    std::array<job, outward_threads> out_of{};
    for (std::size_t i = 0; i != out.runs.size(); ++i) {
      out_of[i % outward_threads].runs.push_back(out.runs[i]);
    }
    {
      const std::lock_guard lock(mutex_);
      inward_jobs_.push_back(std::move(in));
      for (std::size_t i = 0; i != outward_threads; ++i) {
        out_of[i].segment = planned_;
        outward_jobs_[i].push_back(std::move(out_of[i]));
      }
    }
    ++planned_;
    changed_.notify_all();
  }

  [[nodiscard]] std::byte* address(block_range r) const { return base_ + r.begin_value() * block_size.count; }

  // --- the threads -------------------------------------------------------------------------------------------------

  void run_lane(std::deque<job>& jobs, bool inward) {
    try {
      cuda::check(cudaSetDevice(ordinal_), "cudaSetDevice");
      const cuda::driver_context context(ordinal_);
      (void)context.make_current();
      run_jobs(jobs, inward, context);
      (void)cuda::succeeded(cudaSetDevice(ordinal_));  // the context ends, and is not current then
    } catch (...) {
      {
        const std::lock_guard lock(mutex_);
        failure_ = std::current_exception();
        stopping_ = true;
      }
      changed_.notify_all();
    }
  }
  void run_jobs(std::deque<job>& jobs, bool inward, const cuda::driver_context& context) {
    idle_streams streams;
    for (;;) {
      job next;
      {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return stopping_ || !jobs.empty(); });
        if (stopping_) {
          return;
        }
        next = std::move(jobs.front());
        jobs.pop_front();
      }
      if (inward) {
        bring(next, streams);
        continue;
      }
      if (next.segment >= 2) {
        await_end(next.segment - 2, context);
      }
      send(next, streams.next());
    }
  }
  /// What leaves for a segment was used by the second before it at the latest.
  void await_end(std::uint64_t segment, const cuda::driver_context& context) {
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return stopping_ || recorded_ > segment; });
      if (stopping_) {
        return;
      }
    }
    if (context.exists()) {
      cuda::check(cudaSetDevice(ordinal_), "cudaSetDevice");
    }
    cuda::check(cudaEventSynchronize(ended_[segment % events]), "cudaEventSynchronize");
    (void)context.make_current();
  }
  void bring(const job& j, idle_streams& streams) {
    for (const job::run& r : j.runs) {
      {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return stopping_ || room_ >= std::int64_t{r.range.count}; });
        if (stopping_) {
          return;
        }
        room_ -= r.range.count;
        least_room_ = std::min(least_room_, room_);
      }
      cuda::check(cuda::api::prefetch(address(r.range), um_grid.size_of(r.range).count,
                                      {.on_host = false, .device = ordinal_}, streams.next()),
                  "cudaMemPrefetchAsync");
    }
    streams.synchronize();
    {
      const std::lock_guard lock(mutex_);
      prepared_ = j.segment + 1;
    }
    changed_.notify_all();
  }
  void send(const job& j, cudaStream_t q) {
    for (const job::run& r : j.runs) {
      {
        const std::lock_guard lock(mutex_);
        if (stopping_) {
          return;
        }
      }
      std::vector<void*> first{address(r.range)};
      std::vector<std::size_t> size{um_grid.size_of(r.range).count};
      if (r.copies || !cuda::api::has_discard) {
        cuda::check(cuda::api::prefetch(first[0], size[0], {}, q), "cudaMemPrefetchAsync");
      } else {
        cuda::check(cuda::api::discard(first, size, q), "cudaMemDiscardBatchAsync");
      }
      cuda::check(cudaStreamSynchronize(q), "cudaStreamSynchronize");
      {
        const std::lock_guard lock(mutex_);
        room_ += r.range.count;
      }
      changed_.notify_all();
    }
  }

  int ordinal_;
  std::byte* base_;
  const step_program& program_;
  residency_planner planner_;
  cudaStream_t stream_;
  cudaEvent_t ended_[events]{};
  std::size_t launch_ = 0;
  std::uint64_t segment_number_ = 0;  // of the launch; grows over the steps
  std::uint64_t planned_ = 0;         // segments
  nanoseconds stalled_{};
  std::atomic<std::uint64_t> in_{0};
  std::atomic<std::uint64_t> out_{0};
  std::atomic<std::uint64_t> discarded_{0};

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<job> inward_jobs_{};
  std::array<std::deque<job>, outward_threads> outward_jobs_{};
  std::int64_t budget_;  // blocks
  std::int64_t room_;    // blocks that may come
  std::int64_t least_room_;
  std::uint64_t prepared_ = 0;  // segments whose blocks are there
  std::uint64_t begun_ = 0;     // segments that have begun to be launched
  std::uint64_t recorded_ = 0;  // segments whose end is recorded
  bool stopping_ = false;
  std::exception_ptr failure_{};
  std::thread inward_;
  std::array<std::thread, outward_threads> outward_{};
};

}  // namespace deepum::gpu_bench
