#pragma once

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "gpu/library/bench_system.hpp"
#include "gpu/library/hand_memory.hpp"
#include "gpu/library/kernels.hpp"
#include "gpu/programs/model_runs.hpp"
#include "tests/property/random_program.hpp"
#include <deepum/arena.hpp>
#include <deepum/cuda/check.hpp>
#include <deepum/cuda/device.hpp>
#include <deepum/cuda/managed_memory.hpp>
#include <deepum/cuda/stream.hpp>
#include <deepum/error.hpp>
#include <deepum/host_view.hpp>
#include <deepum/units.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

namespace deepum::gpu_bench {

/// A random program on a GPU.
template <class Memory>
class random_program_run {
 public:
  static constexpr bool managed = std::is_same_v<Memory, cuda::managed_memory>;
  /// Blocks of 2 MiB: little, some, and all there is. A launch of three buffers has to fit memory that never faults.
  static constexpr std::array<std::uint64_t, 3> budgets{managed ? 6 : 16, managed ? 14 : 24, 128};

  random_program_run(cuda::fault_source feed, const std::string& policy, bytes budget)
      : gpu_(0, {.faults = feed, .chunk = block_size}),
        arena_(gpu_, {.capacity = block_size * 128, .device_budget = budget, .policy = policy, .log = {}}),
        streams_{stream_type(arena_), stream_type(arena_)} {}

  std::uint64_t run(const deepum_test::random_program& program) {
    buffers_.resize(program.buffers);
    slot_ = arena_.template allocate<word*>(1);
    std::uint64_t sum = 0xcbf29ce484222325ULL;
    for (const deepum_test::operation& op : program.operations) {
      step(op, sum);
    }
    synchronize();
    for (const std::span<word> buffer : buffers_) {
      if (!buffer.empty()) {
        fold(buffer.data(), buffer.size(), sum);
      }
    }
    return sum;
  }

  /// What the threads of a GPU cannot do in order, as the reference does: a gather from what it updates is a mix. And
  /// so is, on memory that never faults, a launch that does not declare what it touches.
  static void make_parallel(deepum_test::random_program& program) {
    using kind = deepum_test::operation::kind;
    for (deepum_test::operation& op : program.operations) {
      if ((op.what == kind::gather && (op.a == op.b || op.a == op.c)) || (op.what == kind::chase && !managed)) {
        op.what = kind::mix;
      }
    }
  }

 private:
  using word = deepum_gpu_bench_kernels::word;
  using stream_type = deepum::stream<Memory>;

  void synchronize() {
    for (stream_type& s : streams_) {
      s.synchronize();
    }
  }
  void fold(const word* p, std::size_t n, std::uint64_t& sum) {
    const host_view<const word> view(arena_, p, n, access::read);
    for (const word w : view) {
      sum = deepum_test::folded(sum, w);
    }
  }
  /// The stream of the operation, made to wait for whatever ran last on the other one.
  stream_type& on(const deepum_test::operation& op) {
    if (op.stream != last_) {
      cuda::event done;
      streams_[last_].record(done);
      streams_[op.stream].wait(done);
      last_ = op.stream;
    }
    return streams_[op.stream];
  }

  void step(const deepum_test::operation& op, std::uint64_t& sum) {
    using kind = deepum_test::operation::kind;
    const deepum_gpu_bench_kernels::kernels& k = deepum_gpu_bench_kernels::all();
    constexpr unsigned grid = 64;
    constexpr unsigned block = 256;
    const std::span<word> a = buffers_[op.a];
    const std::span<word> b = buffers_[op.b];
    const std::span<word> c = buffers_[op.c];
    const auto size = static_cast<word>(a.size());
    const auto other = static_cast<word>(b.size());
    switch (op.what) {
      case kind::allocate:
        buffers_[op.a] = {arena_.template allocate<word>(op.n), op.n};
        break;
      case kind::release:
        arena_.deallocate(a.data());  // with work in flight: the arena's matter, not the program's
        buffers_[op.a] = {};
        break;
      case kind::fill:
        on(op).launch("fill", grid, block, 0, k.fill, overwrites(a), size, op.value);
        break;
      case kind::fill_part:
        on(op).launch("fill_part", grid, block, 0, k.fill, a.data() + op.first, op.n, op.value);
        break;
      case kind::mix:
        on(op).launch("mix", grid, block, 0, k.mix, a.data(), size, static_cast<const word*>(b.data()), other,
                      op.value);
        break;
      case kind::gather:
        on(op).launch("gather", grid, block, 0, k.gather, a.data(), size, static_cast<const word*>(b.data()), other,
                      static_cast<const word*>(c.data()), static_cast<word>(c.size()), op.value);
        break;
      case kind::chase:
        synchronize();
        {
          const host_view<word*> view(arena_, slot_, 1, access::overwrite);
          view[0] = b.data();
        }
        on(op).launch("chase", grid, block, 0, k.chase, a.data(), size, static_cast<word* const*>(slot_), other,
                      op.value);
        break;
      case kind::copy:
        if (op.a != op.b) {
          on(op).memcpy(a.data(), b.data(), bytes{op.n * sizeof(word)});
        }
        break;
      case kind::set_bytes:
        on(op).memset(a.data(), static_cast<int>(op.value & 0xffU), bytes{op.n * sizeof(word)});
        break;
      case kind::host_read:
        synchronize();
        fold(a.data() + op.first, op.n, sum);
        break;
      case kind::host_write: {
        synchronize();
        const host_view<word> view(arena_, a.data() + op.first, op.n, access::update);
        for (word i = 0; i < op.n; ++i) {
          view[i] = deepum_test::filled(i, op.value);
        }
        break;
      }
      case kind::forget:
        if (op.value % 2 == 0) {
          arena_.mark_inactive(a.data(), bytes{a.size_bytes()});
          arena_.mark_active(a.data(), bytes{a.size_bytes()});
        } else {
          arena_.discard(a.data(), bytes{a.size_bytes()});
        }
        on(op).launch("fill", grid, block, 0, k.fill, overwrites(a), size, op.value);
        break;
      case kind::hint:
        switch (op.value % 4) {
          case 0:
            arena_.prefetch(a.data(), bytes{a.size_bytes()}, location::device());
            break;
          case 1:
            arena_.prefetch(a.data(), bytes{a.size_bytes()}, location::host());
            break;
          case 2:
            arena_.advise(a.data(), bytes{a.size_bytes()}, advice::set_read_mostly);
            break;
          default:
            arena_.advise(a.data(), bytes{a.size_bytes()}, advice::unset_read_mostly);
            break;
        }
        break;
      case kind::synchronize:
        synchronize();
        break;
    }
  }

  cuda::device gpu_;
  deepum::arena<Memory> arena_;
  std::array<stream_type, 2> streams_;
  std::vector<std::span<word>> buffers_{};
  word** slot_ = nullptr;
  std::uint16_t last_ = 0;
};

/// The model whose losses are compared.
inline constexpr train_gpt::model_shape checked_shape{.layers = 6, .width = 512, .heads = 8, .context = 64, .batch = 8};

/// Copies beside a program, of random sizes and at random times, so that its own take longer, now and then by much.
class disturbance {
 public:
  explicit disturbance(std::uint64_t seed) : thread_([this, seed] { work(seed); }) {}
  ~disturbance() {
    stop_ = true;
    thread_.join();
  }
  disturbance(const disturbance&) = delete;
  disturbance& operator=(const disturbance&) = delete;

 private:
  static constexpr bytes most{std::uint64_t{32} << 20};

  void work(std::uint64_t seed) const {
    const memory_pool host(memory_pool::kind::pinned, most);
    const memory_pool device(memory_pool::kind::device, most);
    std::mt19937_64 random(seed);
    cudaStream_t q = nullptr;
    cuda::check(cudaStreamCreateWithFlags(&q, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    while (!stop_.load()) {
      const bool in = random() % 2 == 0;
      for (std::uint64_t n = random() % 4; n-- != 0;) {
        (void)cuda::succeeded(cudaMemcpyAsync(in ? device.base() : host.base(), in ? host.base() : device.base(),
                                              random() % most.count, cudaMemcpyDefault, q));
      }
      (void)cuda::succeeded(cudaStreamSynchronize(q));
      std::this_thread::sleep_for(std::chrono::microseconds(random() % 1000));
    }
    (void)cuda::succeeded(cudaStreamDestroy(q));
  }

  std::atomic<bool> stop_{false};
  std::thread thread_;
};

/// Policies that are checked, of those that the settings name.
[[nodiscard]] inline std::vector<std::string> checked_policies(const bench_settings& settings) {
  std::vector<std::string> policies{"um", "lru", "deepum", "auto"};
  std::erase_if(policies, [&](const std::string& name) { return !settings.wants(name); });
  return policies;
}

/// Random programs whose memory is compared with that of the host, each under all policies of the settings.
/// @param wrong  What differs is appended, one a line.
template <class Memory>
void check_random_programs(const bench_settings& settings, std::uint64_t programs, std::string& wrong) {
  using run_type = random_program_run<Memory>;
  const std::vector<std::string> policies = checked_policies(settings);
  for (std::uint64_t seed = 1; seed <= programs; ++seed) {
    deepum_test::random_program program = deepum_test::make_random_program(seed, {.max_words = 1U << 20});
    run_type::make_parallel(program);
    const std::uint64_t expected = deepum_test::reference_run{}.run(program);
    if (seed % 10 == 1) {
      settings.say(absl::StrFormat("random program %d of %d", seed, programs));
    }
    // Each policy at another budget with each program.
    for (std::size_t p = 0; p < policies.size(); ++p) {
      const bytes budget = block_size * run_type::budgets[(seed + p) % run_type::budgets.size()];
      const disturbance beside(seed + p);
      if (run_type(settings.feed, policies[p], budget).run(program) != expected) {
        absl::StrAppendFormat(&wrong, "random program %d computes something else under %s with %d MiB\n", seed,
                              policies[p], budget.count >> 20);
      }
    }
  }
}

/// Whether the library trains to the same losses under every policy and budget of the settings.
/// @param steps     Training steps whose losses are compared.
/// @param wrong     What differs is appended, one a line.
inline void check_losses(const bench_settings& settings, std::int64_t steps, std::string& wrong) {
  constexpr auto use = train_gpt::purpose::training;
  model_runs<float> model(settings, checked_shape, use);
  const std::vector<float> expected = model.resident_losses(steps);
  const auto footprint = static_cast<double>(model_runs<float>::footprint(checked_shape, use).count);
  for (const double percent : settings.budgets) {
    for (const std::string& policy : checked_policies(settings)) {
      settings.say(absl::StrFormat("losses of %d steps, budget %.0f %%: %s", steps, percent, policy));
      const std::vector<float> losses = model.losses_of(policy, whole_blocks(footprint * percent / 100), steps);
      for (std::size_t i = 0; i < losses.size(); ++i) {
        if (std::bit_cast<std::uint32_t>(losses[i]) != std::bit_cast<std::uint32_t>(expected[i])) {
          const std::string difference =
              absl::StrFormat("the loss of step %d is %.9g under %s at %.0f %%, but %.9g resident", i, losses[i],
                              policy, percent, expected[i]);
          settings.say(difference);  // at once: the whole check takes minutes
          absl::StrAppend(&wrong, difference, "\n");
          break;
        }
      }
    }
  }
}

}  // namespace deepum::gpu_bench
