#pragma once

#include "gpu/library/hand_memory.hpp"
#include "gpu/library/idle_streams.hpp"
#include "gpu/library/least_traffic.hpp"
#include <deepum/cuda/api.hpp>
#include <deepum/cuda/check.hpp>
#include <deepum/cuda/driver_context.hpp>
#include <deepum/units.hpp>

#include <cuda_runtime_api.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <thread>

namespace deepum::gpu_bench {

namespace detail {

class seconds_since {
 public:
  [[nodiscard]] double operator()() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - began_).count();
  }

 private:
  std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
};

/// Moves memory in pieces of 64 MiB, on a thread and in a context of its own: to the host each one when the last one is
/// done, to the device while the last ones move.
class mover {
 public:
  mover(int ordinal, std::byte* first, std::size_t size, bool inward, std::atomic<bool>& go)
      : thread_([=, this, &go] {
          try {
            cuda::check(cudaSetDevice(ordinal), "cudaSetDevice");
            const cuda::driver_context context(ordinal);
            (void)context.make_current();
            move(ordinal, first, size, inward, go);
            (void)cuda::succeeded(cudaSetDevice(ordinal));
          } catch (...) {
            failure_ = std::current_exception();
            ready_ = true;
          }
        }) {
    while (!ready_.load()) {
      std::this_thread::yield();
    }
  }
  ~mover() {
    if (thread_.joinable()) {
      thread_.join();
    }
  }
  mover(const mover&) = delete;
  mover& operator=(const mover&) = delete;

  void stop() { stopped_ = true; }
  /// Bytes a second, once it is done.
  [[nodiscard]] double rate() {
    thread_.join();
    if (failure_) {
      std::rethrow_exception(failure_);
    }
    return static_cast<double>(moved_.load()) / seconds_;
  }

 private:
  static constexpr std::size_t piece = std::size_t{64} << 20;

  void move(int ordinal, std::byte* first, std::size_t size, bool inward, const std::atomic<bool>& go) {
    idle_streams streams;
    ready_ = true;
    while (!go.load()) {
      std::this_thread::yield();
    }
    const seconds_since elapsed;
    for (std::size_t at = 0; at < size && (at == 0 || !stopped_.load()); at += piece) {  // one piece at least
      cuda::check(cuda::api::prefetch(first + at, std::min(piece, size - at), {.on_host = !inward, .device = ordinal},
                                      streams.next()),
                  "cudaMemPrefetchAsync");
      if (!inward) {
        streams.synchronize();
      }
      moved_ += std::min(piece, size - at);
    }
    streams.synchronize();
    seconds_ = elapsed();
  }

  std::atomic<bool> ready_{false};
  std::atomic<bool> stopped_{false};
  std::atomic<std::size_t> moved_{0};
  double seconds_ = 1;
  std::exception_ptr failure_{};
  std::thread thread_;
};

}  // namespace detail

/// What managed memory reaches when nothing else happens: the best of some attempts, to the host with one thread and
/// with two.
/// @param size  Managed memory to use; 3/2 of it are allocated.
[[nodiscard]] inline link_rates managed_rates(int ordinal, bytes size) {
  constexpr int attempts = 4;
  const std::size_t n = size.count;
  const memory_pool pool(memory_pool::kind::managed, bytes{n + n / 2});
  std::byte* large = pool.base();
  std::byte* small = pool.base() + n;
  // Pages are given out by the device, which is quick.
  cuda::check(cudaMemsetAsync(pool.base(), 1, n + n / 2, nullptr), "cudaMemsetAsync");
  cuda::check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  link_rates best;
  using movers = std::deque<detail::mover>;
  const auto add = [&](movers& to, std::byte* first, std::size_t count, bool inward, int threads,
                       std::atomic<bool>& go) {
    const std::size_t part = count / static_cast<std::size_t>(threads) / block_size.count * block_size.count;
    for (int i = 0; i < threads; ++i, first += part, count -= part) {
      to.emplace_back(ordinal, first, i + 1 == threads ? count : part, inward, go);
    }
  };
  const auto sum = [](movers& of) {
    double rate = 0;
    for (detail::mover& m : of) {
      rate += m.rate();
    }
    return rate;
  };
  const auto alone = [&](std::byte* first, std::size_t count, bool inward, int threads = 1) {
    std::atomic<bool> go{false};
    movers all;
    add(all, first, count, inward, threads, go);
    go = true;
    return sum(all);
  };
  (void)alone(large, n, false);
  for (int i = 0; i < attempts; ++i) {
    const int threads = 1 + i % 2;
    best.in = std::max(best.in, alone(large, n, true));
    best.out = std::max(best.out, alone(large, n, false, threads));
    {
      // The small one leaves for as long as the large one comes, or a little longer.
      std::atomic<bool> go{false};
      movers in;
      movers out;
      add(in, large, n, true, 1, go);
      add(out, small, n / 2, false, threads, go);
      go = true;
      const double rate_in = sum(in);
      for (detail::mover& m : out) {
        m.stop();
      }
      const double rate_out = sum(out);
      // Of one attempt, because they get in each other's way: that in which as much both ways takes the least time.
      if (std::min(rate_in, rate_out) > std::min(best.in_both, best.out_both)) {
        best.in_both = rate_in;
        best.out_both = rate_out;
      }
    }
    (void)alone(large, n, false);
    (void)alone(small, n / 2, true);
  }
  return best;
}

/// What copies from and to pinned memory reach.
[[nodiscard]] inline link_rates pinned_rates(bytes size) {
  constexpr int attempts = 3;
  const memory_pool host_in(memory_pool::kind::pinned, size);
  const memory_pool host_out(memory_pool::kind::pinned, size);
  const memory_pool device_in(memory_pool::kind::device, size);
  const memory_pool device_out(memory_pool::kind::device, size);
  cudaStream_t inward = nullptr;
  cudaStream_t outward = nullptr;
  cuda::check(cudaStreamCreateWithFlags(&inward, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
  cuda::check(cudaStreamCreateWithFlags(&outward, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
  const auto attempt = [&](bool in, bool out) {
    const detail::seconds_since elapsed;
    if (in) {
      cuda::check(cudaMemcpyAsync(device_in.base(), host_in.base(), size.count, cudaMemcpyHostToDevice, inward),
                  "cudaMemcpyAsync");
    }
    if (out) {
      cuda::check(cudaMemcpyAsync(host_out.base(), device_out.base(), size.count, cudaMemcpyDeviceToHost, outward),
                  "cudaMemcpyAsync");
    }
    cuda::check(cudaStreamSynchronize(inward), "cudaStreamSynchronize");
    cuda::check(cudaStreamSynchronize(outward), "cudaStreamSynchronize");
    return static_cast<double>(size.count) / elapsed();
  };
  (void)attempt(true, true);
  link_rates best;
  for (int i = 0; i < attempts; ++i) {
    best.in = std::max(best.in, attempt(true, false));
    best.out = std::max(best.out, attempt(false, true));
    const double both = attempt(true, true);
    best.in_both = std::max(best.in_both, both);
    best.out_both = std::max(best.out_both, both);
  }
  (void)cuda::succeeded(cudaStreamDestroy(inward));
  (void)cuda::succeeded(cudaStreamDestroy(outward));
  return best;
}

}  // namespace deepum::gpu_bench
