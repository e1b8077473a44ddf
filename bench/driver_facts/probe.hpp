#pragma once

#include "absl/strings/str_cat.h"
#include "gpu/library/idle_streams.hpp"
#include "kernels.hpp"
#include "report.hpp"
#include <deepum/cuda/api.hpp>
#include <deepum/cuda/check.hpp>
#include <deepum/cuda/driver_context.hpp>
#include <deepum/cuda/managed_limit.hpp>
#include <deepum/error.hpp>
#include <deepum/units.hpp>

#include <cuda_runtime_api.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

namespace deepum::driver_facts {

using deepum_driver_facts_kernels::word;

inline constexpr bytes whole = 1_GiB;         ///< of an area
inline constexpr bytes most_managed = 2_GiB;  ///< that the program ever has
inline constexpr bytes um_block = 2_MiB;

/// Seconds since it was made.
class stopwatch {
 public:
  [[nodiscard]] double operator()() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - began_).count();
  }

 private:
  std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
};

[[nodiscard]] inline double mebibytes(bytes size) { return static_cast<double>(size.count) / (1 << 20); }
[[nodiscard]] inline double gigabytes_per_second(bytes size, double seconds) {
  return static_cast<double>(size.count) / seconds / 1e9;
}
/// Of the time that a part took.
[[nodiscard]] inline double ms_per_gib(bytes size, double seconds) {
  return seconds * 1e3 * static_cast<double>(whole.count) / static_cast<double>(size.count);
}

[[nodiscard]] inline double free_mib() {
  std::size_t free = 0;
  std::size_t total = 0;
  cuda::check(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
  return mebibytes(bytes{free});
}

/// A stream that waits for no other, of the context in which it was made.
class stream {
 public:
  stream() { cuda::check(cudaStreamCreateWithFlags(&handle_, cudaStreamNonBlocking), "cudaStreamCreateWithFlags"); }
  ~stream() { (void)cuda::succeeded(cudaStreamDestroy(handle_)); }
  stream(const stream&) = delete;
  stream& operator=(const stream&) = delete;

  [[nodiscard]] cudaStream_t get() const { return handle_; }
  void wait() const { cuda::check(cudaStreamSynchronize(handle_), "cudaStreamSynchronize"); }

 private:
  cudaStream_t handle_ = nullptr;
};

class event {
 public:
  /// @param flags  cudaEventDefault has a time, cudaEventDisableTiming none.
  explicit event(unsigned flags) { cuda::check(cudaEventCreateWithFlags(&handle_, flags), "cudaEventCreateWithFlags"); }
  ~event() { (void)cuda::succeeded(cudaEventDestroy(handle_)); }
  event(const event&) = delete;
  event& operator=(const event&) = delete;

  [[nodiscard]] cudaEvent_t get() const { return handle_; }
  void record(const stream& q) const { record(q.get()); }
  void record(cudaStream_t q) const { cuda::check(cudaEventRecord(handle_, q), "cudaEventRecord"); }
  void wait() const { cuda::check(cudaEventSynchronize(handle_), "cudaEventSynchronize"); }
  /// Nanoseconds, of timed events that have passed. The runtime tells them as a float: 1 in 16 million is lost.
  [[nodiscard]] std::int64_t since(const event& earlier) const {
    float ms = 0;
    cuda::check(cudaEventElapsedTime(&ms, earlier.handle_, handle_), "cudaEventElapsedTime");
    return static_cast<std::int64_t>(static_cast<double>(ms) * 1e6 + 0.5);
  }

 private:
  cudaEvent_t handle_ = nullptr;
};

/// Words that hold what `kernels::fill` wrote with their seed.
struct region {
  word* first = nullptr;
  std::uint64_t n = 0;
  word seed = 0;

  [[nodiscard]] bytes size() const { return bytes{n * sizeof(word)}; }
  [[nodiscard]] std::byte* address() const { return reinterpret_cast<std::byte*>(first); }
  /// @param offset, size  Bytes.
  [[nodiscard]] region part(bytes offset, bytes length) const {
    return {first + offset.count / sizeof(word), length.count / sizeof(word), seed};
  }
};

/// What the host and kernels.cu agree on.
[[nodiscard]] inline word content(std::uint64_t i, word seed) { return (static_cast<word>(i) * 2654435761U) ^ seed; }

/// Managed memory, within DEEPUM_MANAGED_LIMIT and `most_managed`.
class area {
 public:
  /// @errors  `status::out_of_arena_space`, before anything is allocated.
  explicit area(bytes size) : size_(within(size)), share_(size) {
    void* p = nullptr;
    cuda::check(cudaMallocManaged(&p, size.count, cudaMemAttachGlobal), "cudaMallocManaged");
    all_ = {static_cast<word*>(p), size.count / sizeof(word), 0};
    taken() += size;
  }
  ~area() {
    taken() -= size_;
    (void)cuda::succeeded(cudaFree(all_.first));
  }
  area(const area&) = delete;
  area& operator=(const area&) = delete;

  [[nodiscard]] region& all() { return all_; }

 private:
  static bytes& taken() {
    static bytes now{};
    return now;
  }
  static bytes within(bytes size) {
    if (taken() + size > most_managed) {
      throw error(status::out_of_arena_space, "deepum-driver-facts never has more than 2 GiB of managed memory");
    }
    return size;
  }

  bytes size_;
  cuda::managed_limit::share share_;
  region all_{};
};

/// What all measurements need: one GPU, a stream for work and one for moves, and the report. One thread.
class probe {
 public:
  probe(int ordinal, int repeats, report& out) : ordinal_(ordinal), repeats_(repeats), report_(out) {
    void* p = nullptr;
    cuda::check(cudaMallocHost(&p, 4096), "cudaMallocHost");
    pinned_.reset(p);
    cuda::check(cudaMalloc(&p, 4096), "cudaMalloc");
    device_.reset(p);
  }

  [[nodiscard]] int ordinal() const { return ordinal_; }
  [[nodiscard]] int repeats() const { return repeats_; }
  [[nodiscard]] report& out() const { return report_; }
  [[nodiscard]] const stream& work() const { return work_; }
  [[nodiscard]] const stream& moves() const { return moves_; }
  /// Memory of the host that kernels can write.
  [[nodiscard]] unsigned long long* pinned() const { return static_cast<unsigned long long*>(pinned_.get()); }

  /// The program's own areas. Made when first asked for, and then brought to life: their host pages have been written.
  [[nodiscard]] region& a() { return alive(a_, 1); }
  [[nodiscard]] region& b() { return alive(b_, 2); }

  /// Seconds, from a device that is idle to one that is idle again.
  template <class F>
  [[nodiscard]] double timed(F&& what) const {
    settle();
    const stopwatch elapsed;
    what();
    settle();
    return elapsed();
  }
  void settle() const { cuda::check(cudaDeviceSynchronize(), "cudaDeviceSynchronize"); }

  template <class... Parameters>
  static void launch(const stream& q, unsigned grid, unsigned block, void (*kernel)(Parameters...),
                     std::type_identity_t<Parameters>... values) {
    void* arguments[sizeof...(Parameters) + 1] = {const_cast<void*>(static_cast<const void*>(&values))..., nullptr};
    cuda::check(cudaLaunchKernel(reinterpret_cast<const void*>(kernel), dim3(grid), dim3(block), arguments, 0, q.get()),
                "cudaLaunchKernel");
  }
  /// The GPU reads all of it.
  void read(const region& r) const { launch(work_, grid, block, kernels().read, r.first, r.n, sink()); }
  /// The GPU writes all of it: something that was not there before.
  void write(region& r) {
    r.seed = ++last_seed_;
    launch(work_, grid, block, kernels().fill, r.first, r.n, r.seed);
  }

  /// @name Rows of a region, picked at random
  /// @param pieces  Of 16 bytes, in a row.
  /// @param picks   Rows. One may be picked several times.
  /// @{
  void gather(const region& r, std::uint32_t pieces, std::uint64_t picks) const {
    launch(work_, grid, block, kernels().gather, r.first, r.n, pieces, picks, sink());
  }
  /// Writes what is there.
  void scatter(const region& r, std::uint32_t pieces, std::uint64_t picks) const {
    launch(work_, grid, block, kernels().scatter, r.first, r.n, r.seed, pieces, picks);
  }
  /// Adds `value` to each word, atomically. @param row  Bytes.
  void add_to_rows(const region& r, std::uint32_t row, std::uint64_t picks, word value) const {
    launch(work_, grid, block, kernels().add_to_rows, r.first, r.n, row / static_cast<std::uint32_t>(sizeof(word)),
           picks, value);
  }
  /// @}

  /// @name Moves, by the calling thread's context
  /// @param piece  For each call.
  /// @{
  void in(const region& r, bytes piece, cudaStream_t q) const {
    move(r, piece, false, [q] { return q; });
  }
  void in(const region& r, bytes piece, gpu_bench::idle_streams& turns) const {
    move(r, piece, false, [&turns] { return turns.next(); });
  }
  void out(const region& r, bytes piece, cudaStream_t q) const {
    move(r, piece, true, [q] { return q; });
  }
  void in(const region& r) const { in(r, r.size(), moves_.get()); }
  void out(const region& r) const { out(r, r.size(), moves_.get()); }
  /// The same behind all that is going on, and waited for.
  void settle_in(const region& r) const {
    settle();
    in(r);
    settle();
  }
  void settle_out(const region& r) const {
    settle();
    out(r);
    settle();
  }
  void advise(const region& r, cudaMemoryAdvise hint, bool host = false) const {
    cuda::check(cuda::api::advise(r.first, r.size().count, hint, {.on_host = host, .device = ordinal_}),
                "cudaMemAdvise");
  }
  /// @}

  /// Compares every word. Brings the region to the device first, unless it is to be read `in_place`.
  void verify(const region& r, const std::string& after, bool in_place = false) {
    if (in_place) {
      settle();
    } else {
      settle_in(r);
    }
    auto* wrong = static_cast<unsigned long long*>(device_.get()) + 1;
    unsigned long long count = 0;
    cuda::check(cudaMemsetAsync(wrong, 0, sizeof count, work_.get()), "cudaMemsetAsync");
    launch(work_, grid, block, kernels().count_wrong, r.first, r.n, r.seed, wrong);
    cuda::check(cudaMemcpyAsync(&count, wrong, sizeof count, cudaMemcpyDeviceToHost, work_.get()), "cudaMemcpyAsync");
    work_.wait();
    if (count != 0) {
      report_.fail(absl::StrCat("after ", after, ", ", count, " of ", r.n, " words are wrong"));
    }
  }
  /// The same by the host, one word in each 256 bytes. Maps the pages there.
  void verify_on_host(const region& r, const std::string& after) const {
    std::uint64_t count = 0;
    for (std::uint64_t i = 0; i < r.n; i += 64) {
      count += r.first[i] != content(i, r.seed) ? 1 : 0;
    }
    if (count != 0) {
      report_.fail(absl::StrCat("after ", after, ", ", count, " of ", r.n / 64, " words are wrong for the host"));
    }
  }

  static const deepum_driver_facts_kernels::kernels& kernels() { return deepum_driver_facts_kernels::all(); }

 private:
  static constexpr unsigned grid = 1056;
  static constexpr unsigned block = 512;

  struct free_pinned {
    void operator()(void* p) const { (void)cuda::succeeded(cudaFreeHost(p)); }
  };
  struct free_device {
    void operator()(void* p) const { (void)cuda::succeeded(cudaFree(p)); }
  };

  [[nodiscard]] word* sink() const { return static_cast<word*>(device_.get()); }

  /// @param next_stream  Of each piece.
  template <class NextStream>
  void move(const region& r, bytes piece, bool host, NextStream&& next_stream) const {
    for (bytes at{}; at < r.size(); at += piece) {
      cuda::check(cuda::api::prefetch(r.address() + at.count, std::min(piece, r.size() - at).count,
                                      {.on_host = host, .device = ordinal_}, next_stream()),
                  "cudaMemPrefetchAsync");
    }
  }
  region& alive(std::unique_ptr<area>& which, word seed) {
    if (which == nullptr) {
      which = std::make_unique<area>(whole);
      region& r = which->all();
      r.seed = seed;
      settle_in(r);
      write(r);
      settle_out(r);
      verify(r, "the first write");
    }
    return which->all();
  }

  int ordinal_;
  int repeats_;
  report& report_;
  stream work_{};
  stream moves_{};
  std::unique_ptr<void, free_pinned> pinned_{};
  std::unique_ptr<void, free_device> device_{};
  std::unique_ptr<area> a_{};
  std::unique_ptr<area> b_{};
  word last_seed_ = 1000;
};

/// What to measure in turn: the program's context, and one beside it where there is one.
[[nodiscard]] inline std::vector<const cuda::driver_context*> contexts(const cuda::driver_context* own) {
  return own == nullptr ? std::vector<const cuda::driver_context*>{nullptr}
                        : std::vector<const cuda::driver_context*>{nullptr, own};
}

/// A thread with a stream, in the program's context or one of its own. It begins its work when `go` becomes true.
class worker {
 public:
  /// @param own  nullptr: the program's context.
  worker(int ordinal, const cuda::driver_context* own, const std::atomic<bool>& go,
         std::function<void(cudaStream_t)> work)
      : thread_([=, this, &go, task = std::move(work)] {
          try {
            cuda::check(cudaSetDevice(ordinal), "cudaSetDevice");
            if (own != nullptr && !own->make_current()) {
              throw error(status::unsupported, "the driver gives no further context");
            }
            const stream q;
            ready_ = true;
            while (!go.load(std::memory_order_acquire) && !cancelled_) {
              std::this_thread::yield();
            }
            const stopwatch elapsed;
            if (!cancelled_) {
              task(q.get());
              q.wait();
            }
            seconds_ = elapsed();
          } catch (...) {
            failure_ = std::current_exception();
          }
          ready_ = true;
          done_ = true;
        }) {
    while (!ready_) {
      std::this_thread::yield();
    }
  }
  ~worker() {
    cancelled_ = true;  // where its maker has failed before it could begin
    if (thread_.joinable()) {
      thread_.join();
    }
  }
  worker(const worker&) = delete;
  worker& operator=(const worker&) = delete;

  [[nodiscard]] bool done() const { return done_.load(std::memory_order_acquire); }
  /// Waits for its end. @returns  What the work took.
  [[nodiscard]] double seconds() {
    thread_.join();
    if (failure_) {
      std::rethrow_exception(failure_);
    }
    return seconds_;
  }

 private:
  std::atomic<bool> ready_{false};
  std::atomic<bool> done_{false};
  std::atomic<bool> cancelled_{false};
  double seconds_ = 0;
  std::exception_ptr failure_{};
  std::thread thread_;
};

}  // namespace deepum::driver_facts
