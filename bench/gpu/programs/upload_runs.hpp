#pragma once

#include "absl/strings/str_format.h"
#include "gpu/library/kernels.hpp"
#include "gpu/library/upload_kernels.hpp"
#include "gpu/opponents/upload_pipeline.hpp"
#include "nlohmann/json.hpp"
#include <deepum/arena.hpp>
#include <deepum/cuda.hpp>
#include <deepum/stream.hpp>
#include <deepum/units.hpp>

#include <fcntl.h>
#include <unistd.h>

#include <cuda_runtime_api.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace deepum::gpu_bench {

using deepum_gpu_bench_kernels::upload_program;

/// What a way of bringing inputs took, in one program.
struct upload_time {
  std::string way{};
  std::vector<double> ms{};       ///< from inputs that are ready in host memory to the checksum of the output
  std::vector<double> blocked{};  ///< of that, until the copies have given the host back
};

/// Twelve programs whose inputs lie in ordinary host memory, brought to the device in each of the ways that there are.
class upload_runs {
 public:
  using word = std::uint32_t;
  using clock = std::chrono::steady_clock;

  /// @param gpu    The device.
  /// @param size   Bytes of each input.
  /// @param managed  Managed memory may be used.
  upload_runs(cuda::device& gpu, bytes size, unsigned threads, bool managed)
      : gpu_(gpu),
        words_(size.count / sizeof(word)),
        threads_(threads),
        managed_(managed) {
    for (unsigned i = 0; i != 2; ++i) {
      sources_[i].resize(words_);
      word random = 2463534242U + i;
      for (word& w : sources_[i]) {
        random ^= random << 13U;
        random ^= random >> 17U;
        random ^= random << 5U;
        w = random;
      }
    }
  }

  static constexpr const char* ways[] = {"pageable",         "pageable async", "pinned",
                                         "registered",       "managed",        "managed, prefetched",
                                         "pipeline by hand", "deepum",         "deepum, borrowed"};

  /// @param rounds  That count; one more comes before them.
  [[nodiscard]] std::vector<upload_time> run(const upload_program& p, int rounds) {
    std::vector<upload_time> out;
    explicit_ways(p, rounds, out);
    if (managed_) {
      managed_way(p, rounds, false, out);
      managed_way(p, rounds, true, out);
    }
    deepum_way(p, rounds, false, out);
    deepum_way(p, rounds, true, out);
    return out;
  }

 private:
  static constexpr unsigned grid = 1056;
  static constexpr unsigned block = 256;

  static double ms_since(clock::time_point begin) {
    return std::chrono::duration<double, std::milli>(clock::now() - begin).count();
  }
  void host_work(const upload_program& p) {
    for (unsigned pass = 0; pass < p.host_work; ++pass) {
      for (std::size_t i = pass; i < words_ / 100; ++i) {
        scratch_ = scratch_ * 33U + sources_[0][i];
      }
    }
  }
  void check(unsigned long long sum, const std::string& way) {
    if (expected_ == 0) {
      expected_ = sum;
    } else if (sum != expected_) {
      throw std::runtime_error("'" + way + "' computed something else");
    }
  }
  static void launch(const upload_program& p, word* out, const word* a, const word* b, std::uint64_t n,
                     cudaStream_t on) {
    for (unsigned i = 0; i < p.launches; ++i) {
      void* arguments[] = {static_cast<void*>(&out), static_cast<void*>(&a), static_cast<void*>(&b),
                           static_cast<void*>(&n)};
      cuda::check(cudaLaunchKernel(reinterpret_cast<const void*>(p.kernel), dim3{grid}, dim3{block}, arguments, 0, on),
                  "cudaLaunchKernel");
    }
  }
  static unsigned long long sum_of(const word* x, std::uint64_t n, unsigned long long* total, cudaStream_t on) {
    cuda::check(cudaMemsetAsync(total, 0, sizeof(*total), on), "cudaMemsetAsync");
    void* arguments[] = {static_cast<void*>(&x), static_cast<void*>(&n), static_cast<void*>(&total)};
    cuda::check(cudaLaunchKernel(reinterpret_cast<const void*>(deepum_gpu_bench_kernels::all().checksum), dim3{grid},
                                 dim3{block}, arguments, 0, on),
                "cudaLaunchKernel");
    unsigned long long sum = 0;
    cuda::check(cudaMemcpyAsync(&sum, total, sizeof(sum), cudaMemcpyDefault, on), "cudaMemcpyAsync");
    cuda::check(cudaStreamSynchronize(on), "cudaStreamSynchronize");
    return sum;
  }
  template <class T>
  static T* device_memory(std::size_t n) {
    void* p = nullptr;
    cuda::check(cudaMalloc(&p, n * sizeof(T)), "cudaMalloc");
    return static_cast<T*>(p);
  }

  /// cudaMalloc, and copies.
  void explicit_ways(const upload_program& p, int rounds, std::vector<upload_time>& out) {
    word* const in[2] = {device_memory<word>(words_), p.inputs == 2 ? device_memory<word>(words_) : nullptr};
    word* const result = device_memory<word>(words_);
    auto* const total = device_memory<unsigned long long>(1);
    cudaStream_t on = nullptr;
    cuda::check(cudaStreamCreateWithFlags(&on, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    const std::size_t size = words_ * sizeof(word);
    const auto measure = [&](const char* way, const std::function<void(word*, const word*)>& copy,
                             const std::function<void()>& after) {
      upload_time t{.way = way};
      for (int r = 0; r <= rounds; ++r) {
        const clock::time_point begin = clock::now();
        for (unsigned i = 0; i != p.inputs; ++i)
          copy(in[i], sources_[i].data());
        const double blocked = ms_since(begin);
        launch(p, result, in[0], p.inputs == 2 ? in[1] : in[0], words_, on);
        host_work(p);
        check(sum_of(result, words_, total, on), way);
        after();
        if (r != 0) {
          t.ms.push_back(ms_since(begin));
          t.blocked.push_back(blocked);
        }
      }
      out.push_back(std::move(t));
    };
    const auto nothing = [] {};
    measure(
        "pageable",
        [&](word* to, const word* from) {
          cuda::check(cudaMemcpy(to, from, size, cudaMemcpyHostToDevice), "cudaMemcpy");
        },
        nothing);
    const auto async = [&](word* to, const word* from) {
      cuda::check(cudaMemcpyAsync(to, from, size, cudaMemcpyHostToDevice, on), "cudaMemcpyAsync");
    };
    measure("pageable async", async, nothing);
    {
      upload_pipeline by_hand(threads_);
      measure(
          "pipeline by hand", [&](word* to, const word* from) { by_hand.copy(to, from, size, on); }, nothing);
    }
    measure(
        "registered",
        [&](word* to, const word* from) {
          cuda::check(cudaHostRegister(const_cast<word*>(from), size, cudaHostRegisterDefault), "cudaHostRegister");
          async(to, from);
        },
        [&] {
          for (unsigned i = 0; i != p.inputs; ++i) {
            cuda::check(cudaHostUnregister(sources_[i].data()), "cudaHostUnregister");
          }
        });
    for (unsigned i = 0; i != p.inputs; ++i) {
      cuda::check(cudaHostRegister(sources_[i].data(), size, cudaHostRegisterDefault), "cudaHostRegister");
    }
    measure("pinned", async, nothing);
    for (unsigned i = 0; i != p.inputs; ++i) {
      cuda::check(cudaHostUnregister(sources_[i].data()), "cudaHostUnregister");
    }
    for (void* each : {static_cast<void*>(in[0]), static_cast<void*>(in[1]), static_cast<void*>(result),
                       static_cast<void*>(total)}) {
      (void)cudaFree(each);
    }
    (void)cudaStreamDestroy(on);
  }

  /// Inputs that lie in managed memory, on the host.
  void managed_way(const upload_program& p, int rounds, bool prefetched, std::vector<upload_time>& out) {
    const std::size_t size = words_ * sizeof(word);
    const auto managed_memory = [&] {
      void* made = nullptr;
      cuda::check(cudaMallocManaged(&made, size), "cudaMallocManaged");
      return static_cast<word*>(made);
    };
    word* const in[2] = {managed_memory(), p.inputs == 2 ? managed_memory() : nullptr};
    word* const result = managed_memory();
    auto* const total = device_memory<unsigned long long>(1);
    cudaStream_t on = nullptr;
    cuda::check(cudaStreamCreateWithFlags(&on, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    upload_time t{.way = prefetched ? "managed, prefetched" : "managed"};
    for (int r = 0; r <= rounds; ++r) {
      for (unsigned i = 0; i != p.inputs; ++i) {  // the program makes its inputs there
        std::copy(sources_[i].begin(), sources_[i].end(), in[i]);
      }
      const cuda::api::place here{.on_host = false, .device = gpu_.properties().ordinal};
      const clock::time_point begin = clock::now();
      if (prefetched) {
        cuda::check(cuda::api::prefetch(result, size, here, on), "cudaMemPrefetchAsync");
        for (unsigned i = 0; i != p.inputs; ++i) {
          cuda::check(cuda::api::prefetch(in[i], size, here, on), "cudaMemPrefetchAsync");
        }
      }
      const double blocked = ms_since(begin);
      launch(p, result, in[0], p.inputs == 2 ? in[1] : in[0], words_, on);
      host_work(p);
      check(sum_of(result, words_, total, on), t.way);
      if (r != 0) {
        t.ms.push_back(ms_since(begin));
        t.blocked.push_back(blocked);
      }
    }
    out.push_back(std::move(t));
    for (void* each : {static_cast<void*>(in[0]), static_cast<void*>(in[1]), static_cast<void*>(result),
                       static_cast<void*>(total)}) {
      (void)cudaFree(each);
    }
    (void)cudaStreamDestroy(on);
  }

  void deepum_way(const upload_program& p, int rounds, bool borrows, std::vector<upload_time>& out) {
    const bytes room = bytes{words_ * sizeof(word)} * 4;
    arena<cuda::paged_memory> memory(
        gpu_, {.capacity = room, .device_budget = room, .uploads = {.threads = threads_}, .log = {}});
    stream<cuda::paged_memory> s(memory);
    word* const in[2] = {memory.allocate<word>(words_), p.inputs == 2 ? memory.allocate<word>(words_) : nullptr};
    word* const result = memory.allocate<word>(words_);
    auto* const total = memory.allocate<unsigned long long>(1);
    upload_time t{.way = borrows ? "deepum, borrowed" : "deepum"};
    for (int r = 0; r <= rounds; ++r) {
      const clock::time_point begin = clock::now();
      for (unsigned i = 0; i != p.inputs; ++i) {
        if (borrows) {
          (void)s.upload(in[i], borrowed(sources_[i].data()), words_);
        } else {
          s.upload(in[i], sources_[i].data(), words_);
        }
      }
      const double blocked = ms_since(begin);
      const word* const b = p.inputs == 2 ? in[1] : in[0];
      for (unsigned i = 0; i < p.launches; ++i) {
        s.launch(p.name, grid, block, 0, p.kernel, overwrites(result, words_), reads(in[0], words_), reads(b, words_),
                 std::uint64_t{words_});
      }
      host_work(p);
      (void)s.memset(total, 0, bytes{sizeof(*total)});
      s.launch("checksum", grid, block, 0, deepum_gpu_bench_kernels::all().checksum, reads(result, words_),
               std::uint64_t{words_}, updates(total, 1));
      unsigned long long sum = 0;
      (void)s.memcpy_and_wait(&sum, total, bytes{sizeof(sum)});
      check(sum, t.way);
      if (r != 0) {
        t.ms.push_back(ms_since(begin));
        t.blocked.push_back(blocked);
      }
    }
    out.push_back(std::move(t));
  }

  cuda::device& gpu_;
  const std::size_t words_;
  const unsigned threads_;
  const bool managed_;
  std::vector<word> sources_[2]{};
  unsigned long long expected_ = 0;

 public:
  /// Each program has a result of its own. Called between two of them.
  void next_program() { expected_ = 0; }
  word scratch_ = 0;  ///< so that the compiler keeps the host's work
};

}  // namespace deepum::gpu_bench
