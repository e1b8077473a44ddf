#pragma once

#include "gpu/library/kernels.hpp"
#include <deepum/arena.hpp>
#include <deepum/cuda.hpp>
#include <deepum/stream.hpp>
#include <deepum/units.hpp>

#include <fcntl.h>
#include <unistd.h>

#include <cuda_runtime_api.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <vector>

namespace deepum::gpu_bench {

/// Seconds from a file in the page cache to the end of a launch that reads all of it.
struct cold_start_times {
  double read_and_copy = 0;  ///< read() into ordinary memory, 64 MiB at a time, and cudaMemcpy
  double deepum = 0;         ///< in an arena that is new
  double deepum_again = 0;   ///< into the same memory once more: the host's chunks are there
  double returned = 0;       ///< of the first upload: until the program went on
};

/// @param directory  Where a file of that size is made, which is removed at once.
/// @errors  Those of the device; `std::runtime_error` where the file cannot be made, or something else is computed.
inline cold_start_times cold_start(cuda::device& gpu, bytes size, unsigned threads, const std::string& directory) {
  using word = std::uint32_t;
  using clock = std::chrono::steady_clock;
  const auto seconds_since = [](clock::time_point t) {
    return std::chrono::duration<double>(clock::now() - t).count();
  };
  const std::uint64_t words = size.count / sizeof(word);
  std::string name = directory + "/deepum_weights_XXXXXX";
  const int file_number = mkstemp(name.data());
  if (file_number < 0) throw std::runtime_error("no file can be made in " + directory);
  ::unlink(name.c_str());
  constexpr std::size_t piece = std::size_t{64} << 20;
  std::vector<word> part(piece / sizeof(word));
  word random = 88172645U;
  for (std::uint64_t done = 0; done < size.count; done += piece) {
    for (word& w : part) {
      random ^= random << 13U;
      random ^= random >> 17U;
      random ^= random << 5U;
      w = random;
    }
    const std::size_t n = std::min<std::uint64_t>(piece, size.count - done);
    if (::write(file_number, part.data(), n) != static_cast<ssize_t>(n)) {
      ::close(file_number);
      throw std::runtime_error("no room for the file in " + directory);
    }
  }
  cold_start_times out;
  unsigned long long expected = 0;
  const auto& kernels = deepum_gpu_bench_kernels::all();
  {
    word* x = nullptr;
    unsigned long long* total = nullptr;
    cuda::check(cudaMalloc(reinterpret_cast<void**>(&x), size.count), "cudaMalloc");
    cuda::check(cudaMalloc(reinterpret_cast<void**>(&total), sizeof(*total)), "cudaMalloc");
    cuda::check(cudaMemsetAsync(total, 0, sizeof(*total), nullptr), "cudaMemsetAsync");
    cuda::check(cudaStreamSynchronize(nullptr), "cudaStreamSynchronize");
    const clock::time_point begin = clock::now();
    for (std::uint64_t done = 0; done < size.count; done += piece) {
      const std::size_t n = std::min<std::uint64_t>(piece, size.count - done);
      if (::pread(file_number, part.data(), n, static_cast<off_t>(done)) != static_cast<ssize_t>(n)) {
        throw std::runtime_error("the file cannot be read");
      }
      cuda::check(cudaMemcpy(reinterpret_cast<std::byte*>(x) + done, part.data(), n, cudaMemcpyHostToDevice),
                  "cudaMemcpy");
    }
    std::uint64_t n = words;
    void* arguments[] = {static_cast<void*>(&x), static_cast<void*>(&n), static_cast<void*>(&total)};
    cuda::check(
        cudaLaunchKernel(reinterpret_cast<const void*>(kernels.checksum), dim3{1056}, dim3{256}, arguments, 0, nullptr),
        "cudaLaunchKernel");
    cuda::check(cudaMemcpy(&expected, total, sizeof(expected), cudaMemcpyDeviceToHost), "cudaMemcpy");
    out.read_and_copy = seconds_since(begin);
    (void)cudaFree(x);
    (void)cudaFree(total);
  }
  arena<cuda::paged_memory> memory(
      gpu, {.capacity = size + 1_GiB, .device_budget = size + 512_MiB, .uploads = {.threads = threads}, .log = {}});
  stream<cuda::paged_memory> s(memory);
  word* const x = memory.allocate<word>(words);
  auto* const total = memory.allocate<unsigned long long>(1);
  for (double* const took : {&out.deepum, &out.deepum_again}) {
    const clock::time_point begin = clock::now();
    (void)s.upload(x, file{file_number, 0}, words);
    out.returned = took == &out.deepum ? seconds_since(begin) : out.returned;
    (void)s.memset(total, 0, bytes{sizeof(*total)});
    s.launch("checksum", 1056, 256, 0, kernels.checksum, reads(x, words), words, updates(total, 1));
    unsigned long long sum = 0;
    (void)s.memcpy_and_wait(&sum, total, bytes{sizeof(sum)});
    *took = seconds_since(begin);
    if (sum != expected) throw std::runtime_error("what was uploaded is something else");
  }
  ::close(file_number);
  return out;
}

}  // namespace deepum::gpu_bench
