#pragma once

#include "cuda/fake_cuda.hpp"
#include <deepum/core/block.hpp>
#include <deepum/core/launch.hpp>
#include <deepum/units.hpp>

#include <doctest/doctest.h>

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <array>
#include <cstddef>
#include <map>
#include <string>
#include <type_traits>

/// For the tests of the fake CUDA itself.
namespace fake_bench {

using namespace deepum_test;
using namespace deepum::literals;
using deepum::access;  // not the one of POSIX

inline constexpr std::size_t block_bytes = deepum::block_size.count;
inline constexpr cudaMemLocation gpu{cudaMemLocationTypeDevice, 0};
inline constexpr cudaMemLocation host{cudaMemLocationTypeHost, 0};

/// The tests of this file expect success of the calls that are not under test.
inline void ok(cudaError_t e) { CHECK(std::string(cudaGetErrorName(e)) == "cudaSuccess"); }

inline cudaStream_t new_stream() {
  cudaStream_t s = nullptr;
  ok(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
  return s;
}
inline cudaEvent_t new_event(unsigned flags = cudaEventDefault) {
  cudaEvent_t e = nullptr;
  ok(cudaEventCreateWithFlags(&e, flags));
  return e;
}

inline void add(int* p, int n, int what) {
  device_touch(p, static_cast<std::size_t>(n) * sizeof(int), access::update);
  for (int i = 0; i < n; ++i) {
    p[i] += what;
  }
}
inline void copy(int* to, const int* from) {
  device_touch(from, sizeof(int), access::read);
  device_touch(to, sizeof(int), access::update);
  *to = *from;
}
inline void touch(const void* p, std::size_t size, access mode) { device_touch(p, size, mode); }
inline void nothing() {}
inline void unknown_kernel() {}

template <class... P>
cudaError_t launch(cudaStream_t s, void (*f)(P...), std::type_identity_t<P>... values) {
  std::array<void*, sizeof...(P) + 1> args{&values..., nullptr};
  return cudaLaunchKernel(reinterpret_cast<const void*>(f), dim3(1), dim3(1), args.data(), 0, s);
}

/// A device of four blocks, a stream, and eight blocks of managed memory. Ends with the leak check.
struct bench {
  bench() {
    CHECK(fake_cuda::reset().empty());
    fake_cuda::register_kernel(add);
    fake_cuda::register_kernel(copy);
    fake_cuda::register_kernel(touch);
    fake_cuda::register_kernel(nothing);
    fake_cuda::set_device_memory(8_MiB);
    ok(cudaMallocManaged(reinterpret_cast<void**>(&base), 8 * block_bytes, cudaMemAttachGlobal));
    stream = new_stream();
  }
  ~bench() {
    (void)cudaStreamDestroy(stream);
    (void)cudaFree(base);
    CHECK(fake_cuda::reset() == "");
  }
  bench(const bench&) = delete;
  bench& operator=(const bench&) = delete;

  [[nodiscard]] std::byte* at(std::size_t block) const { return base + block * block_bytes; }
  [[nodiscard]] int* ints(std::size_t block) const { return reinterpret_cast<int*>(at(block)); }
  void touch_blocks(std::size_t first, std::size_t count, access mode = access::read) const {
    ok(launch(stream, touch, at(first), count * block_bytes, mode));
    sync();
  }
  void prefetch(std::size_t first, std::size_t count, cudaMemLocation to) const {
    ok(cudaMemPrefetchAsync(at(first), count * block_bytes, to, 0, stream));
    sync();
  }
  void sync() const { ok(cudaStreamSynchronize(stream)); }
  /// Which of the eight blocks are where: d, h, b (both) or -.
  [[nodiscard]] std::string places() const {
    std::string s;
    for (std::size_t i = 0; i < 8; ++i) {
      const auto b = fake_cuda::block_at(at(i));
      s += b.on_device ? (b.on_host ? 'b' : 'd') : (b.on_host ? 'h' : '-');
    }
    return s;
  }

  std::byte* base = nullptr;
  cudaStream_t stream = nullptr;
};

/// A function of the driver, which is looked up once by each thread: a broken device answers no more.
inline void* driver_function(const char* name) {
  thread_local std::map<std::string, void*> known;
  void*& f = known[name];
  if (f == nullptr) {
    cudaDriverEntryPointQueryResult found{};
    ok(cudaGetDriverEntryPointByVersion(name, &f, 4000, cudaEnableDefault, &found));
    REQUIRE(found == cudaDriverEntryPointSuccess);
  }
  return f;
}
/// Calls it.
template <class... P>
CUresult driver(const char* name, P... arguments) {
  return reinterpret_cast<CUresult (*)(P...)>(driver_function(name))(arguments...);
}

}  // namespace fake_bench
