#pragma once

#include "gpu/library/hand_memory.hpp"
#include "gpu/library/step_program.hpp"
#include "gpu/opponents/residency_planner.hpp"
#include <deepum/core/block.hpp>
#include <deepum/cuda/check.hpp>
#include <deepum/error.hpp>
#include <deepum/units.hpp>

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace deepum::gpu_bench {

/// Memory that stays on the device while everything else takes turns: small parts, scratch.
class resident_scratch {
 public:
  /// @param arena  Where the range goes on, so that later allocations have the offsets that they have elsewhere.
  explicit resident_scratch(hand_arena& arena) : arena_(arena) {}

  template <class T>
  [[nodiscard]] T* allocate(std::size_t n) {
    return static_cast<T*>(allocate_bytes(bytes{n * sizeof(T)}));
  }
  [[nodiscard]] void* allocate_bytes(bytes size) {
    void* in_range = arena_.allocate_bytes(size);
    if (in_range == nullptr) {
      return nullptr;
    }
    arena_.parts()[arena_.index_of(in_range)].resident = true;
    pools_.emplace_back(memory_pool::kind::device, size);
    return pools_.back().base();
  }

 private:
  hand_arena& arena_;
  std::deque<memory_pool> pools_{};
};

/// The host itself fills and copies within pinned memory: for what a program does before its first step.
class on_host final : public launch_hook {
 public:
  void copy(void* to, const void* from, std::size_t n, cudaStream_t q) override {
    cuda::check(cudaStreamSynchronize(q), "cudaStreamSynchronize");
    std::memcpy(to, from, n);
  }
  void fill(void* to, int value, std::size_t n, cudaStream_t q) override {
    cuda::check(cudaStreamSynchronize(q), "cudaStreamSynchronize");
    std::memset(to, value, n);
  }
};

/// Double buffering by hand with copies: contents live in pinned host memory, and a pool on the device has slots for
/// those that are in use.
///
/// While a segment computes, one stream copies what the next one needs into slots, and another one copies back what was
/// written and is needed last. Everything is in the order of events; the host waits for nothing. An address of the
/// program means the host's copy; the launch is given that of the slot. Parts below 1 MiB stay on the device.
///
/// Threads: the stream's alone.
class double_pinned final : public hand_system {
 public:
  /// Parts that are smaller stay on the device.
  static constexpr bytes smallest{std::uint64_t{1} << 20};
  static constexpr std::uint64_t alignment = 512;

  /// @param arena    On pinned memory, which holds all contents.
  /// @param program  As it was recorded with the same allocations.
  /// @param budget   Device memory for slots and all that stays.
  /// @errors         `status::invalid_argument` where the step does not fit, `status::device_failure`.
  double_pinned(hand_arena& arena, step_program program, bytes budget, unsigned share, cudaStream_t stream)
      : arena_(arena),
        program_(with_residents(std::move(program), arena)),
        small_(memory_pool::kind::device, std::max(bytes{1}, small_bytes(program_))),
        slots_(memory_pool::kind::device, slot_bytes(budget, small_.size() + resident_bytes(arena))),
        planner_(plan_residency(aligned(in_parts(program_)), slots_.size().count, share, true)),
        stream_(stream),
        at_(program_.parts.size(), nullptr) {
    for (cudaStream_t* q : {&inward_, &outward_}) {
      cuda::check(cudaStreamCreateWithFlags(q, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    }
    for (cudaEvent_t* e : {&ended_[0], &ended_[1], &arrived_, &left_}) {
      cuda::check(cudaEventCreateWithFlags(e, cudaEventDisableTiming), "cudaEventCreateWithFlags");
    }
    std::uint64_t next = 0;
    for (std::size_t i = 0; i < program_.parts.size(); ++i) {
      const part& p = program_.parts[i];
      if (p.resident && !arena.parts()[i].resident) {  // small; what was so before is the program's own
        at_[i] = small_.base() + next;
        next += round_up(p.size.count);
        cuda::check(cudaMemcpyAsync(at_[i], arena.base() + p.offset.count, p.size.count, cudaMemcpyDefault, stream),
                    "cudaMemcpyAsync");
      }
    }
    cuda::check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
    plan();
  }
  /// What the device alone has goes back to the host, so that another one can begin with it.
  ~double_pinned() override {
    for (const cudaStream_t q : {stream_, inward_, outward_}) {
      (void)cuda::succeeded(cudaStreamSynchronize(q));
    }
    for (std::size_t i = 0; i < next_at_.size(); ++i) {
      if (next_at_[i] != nullptr) {
        (void)cuda::succeeded(cudaMemcpyAsync(arena_.base() + program_.parts[i].offset.count, next_at_[i],
                                              program_.parts[i].size.count, cudaMemcpyDefault, outward_));
      }
    }
    (void)cuda::succeeded(cudaStreamSynchronize(outward_));
    for (const cudaEvent_t e : {ended_[0], ended_[1], arrived_, left_}) {
      (void)cuda::succeeded(cudaEventDestroy(e));
    }
    for (const cudaStream_t q : {inward_, outward_}) {
      (void)cuda::succeeded(cudaStreamDestroy(q));
    }
  }

  void before(std::string_view name, std::span<const operand> /*operands*/) override {
    expects(name.empty() || name == program_.launches[launch_].name, "a step that is not the one that was recorded");
    if (launch_ != current().first || begun_) {
      return;
    }
    begun_ = true;
    cuda::check(cudaStreamWaitEvent(stream_, arrived_, 0), "cudaStreamWaitEvent");
    std::swap(at_, next_at_);
    plan();
  }
  void after() override {
    ++launch_;
    if (launch_ == current().first + current().count) {
      cuda::check(cudaEventRecord(ended_[segment_number_ % 2], stream_), "cudaEventRecord");
      ++segment_number_;
      begun_ = false;
      launch_ = launch_ == program_.launches.size() ? 0 : launch_;
    }
  }
  [[nodiscard]] void* address(const void* p) override {
    if (!arena_.offset_of(p)) {
      return const_cast<void*>(p);
    }
    const std::size_t i = arena_.index_of(p);
    expects(at_[i] != nullptr, "a launch uses what it did not use when it was recorded");
    return at_[i] + (static_cast<const std::byte*>(p) - (arena_.base() + program_.parts[i].offset.count));
  }
  void copy(void* to, const void* from, std::size_t n, cudaStream_t q) override {
    cuda::check(cudaMemcpyAsync(address(to), address(from), n, cudaMemcpyDefault, q), "cudaMemcpyAsync");
  }
  /// Part by part: they are neighbours on the host alone.
  void fill(void* to, int value, std::size_t n, cudaStream_t q) override {
    auto* p = static_cast<std::byte*>(to);
    while (n != 0) {
      std::size_t here = n;
      if (arena_.offset_of(p)) {
        const part& in = program_.parts[arena_.index_of(p)];
        here = std::min<std::size_t>(n, (in.offset + in.size - *arena_.offset_of(p)).count);
      }
      cuda::check(cudaMemsetAsync(address(p), value, here, q), "cudaMemsetAsync");
      p += here;
      n -= here;
    }
  }

  [[nodiscard]] hand_traffic traffic() const override { return traffic_; }
  [[nodiscard]] nanoseconds stalled() const override { return {}; }  // the device waits, not the host
  [[nodiscard]] std::size_t segments() const { return planner_.segments().size(); }

 private:
  static std::uint64_t round_up(std::uint64_t n) { return (n + alignment - 1) / alignment * alignment; }
  static step_program with_residents(step_program p, const hand_arena& arena) {
    expects(p.parts.size() == arena.parts().size(), "the step was recorded with other allocations");
    for (std::size_t i = 0; i < p.parts.size(); ++i) {
      expects(p.parts[i].offset == arena.parts()[i].offset, "the step was recorded with other allocations");
      p.parts[i].resident = arena.parts()[i].resident || p.parts[i].size < smallest;
    }
    return p;
  }
  static bytes small_bytes(const step_program& p) {
    bytes total{};
    for (const part& each : p.parts) {
      total += bytes{each.size < smallest ? round_up(each.size.count) : 0};
    }
    return total;
  }
  static bytes resident_bytes(const hand_arena& arena) {
    bytes total{};
    for (const part& each : arena.parts()) {
      total += each.resident ? each.size : bytes{};
    }
    return total;
  }
  static bytes slot_bytes(bytes budget, bytes taken) {
    if (budget < taken + block_size) {
      throw error(status::invalid_argument, "the budget is used up by what stays on the device");
    }
    return block_size * ((budget - taken) / block_size);
  }
  static unit_program aligned(unit_program p) {
    for (std::uint64_t& size : p.size) {
      size = round_up(size);
    }
    return p;
  }

  [[nodiscard]] const segment& current() const {
    return planner_.segments()[static_cast<std::size_t>(segment_number_ % planner_.segments().size())];
  }

  /// Enqueues the copies for the next segment, while the current one is about to be enqueued. What leaves was used by
  /// the one before that at the latest.
  void plan() {
    if (segment_number_ != 0) {
      for (const cudaStream_t q : {inward_, outward_}) {
        cuda::check(cudaStreamWaitEvent(q, ended_[(segment_number_ - 1) % 2], 0), "cudaStreamWaitEvent");
      }
    }
    next_at_ = at_;
    bool leaving = false;
    for (const move& m : planner_.next()) {
      const part& p = program_.parts[m.unit];
      std::byte* slot = slots_.base() + m.at;
      std::byte* home = arena_.base() + p.offset.count;
      if (!m.inward) {
        next_at_[m.unit] = nullptr;
        if (m.copies) {
          cuda::check(cudaMemcpyAsync(home, slot, p.size.count, cudaMemcpyDeviceToHost, outward_), "cudaMemcpyAsync");
          traffic_.out += p.size.count;
          leaving = true;
        } else {
          traffic_.discarded += p.size.count;
        }
        continue;
      }
      next_at_[m.unit] = slot;
      if (std::exchange(leaving, false)) {
        cuda::check(cudaEventRecord(left_, outward_), "cudaEventRecord");
        cuda::check(cudaStreamWaitEvent(inward_, left_, 0), "cudaStreamWaitEvent");
      }
      if (m.copies) {
        cuda::check(cudaMemcpyAsync(slot, home, p.size.count, cudaMemcpyHostToDevice, inward_), "cudaMemcpyAsync");
        traffic_.in += p.size.count;
      }
    }
    cuda::check(cudaEventRecord(arrived_, inward_), "cudaEventRecord");
  }

  hand_arena& arena_;
  step_program program_;
  memory_pool small_;
  memory_pool slots_;
  residency_planner planner_;
  cudaStream_t stream_;
  cudaStream_t inward_ = nullptr;
  cudaStream_t outward_ = nullptr;
  cudaEvent_t ended_[2]{};  // of the last two segments
  cudaEvent_t arrived_ = nullptr;
  cudaEvent_t left_ = nullptr;
  std::vector<std::byte*> at_;         // by part: where it is while the current segment computes
  std::vector<std::byte*> next_at_{};  // and the next one
  std::size_t launch_ = 0;
  std::uint64_t segment_number_ = 0;
  bool begun_ = false;
  hand_traffic traffic_{};
};

}  // namespace deepum::gpu_bench
