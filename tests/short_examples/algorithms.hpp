#pragma once

// What the short examples call of Thrust and CUB, where nvcc does not compile them. Vectors are Thrust's own, on its
// system for the host; algorithms are functions of the host in a stream of the fake GPU.

#include "short_examples/libraries.hpp"

#include <doctest/doctest.h>

#include <cuda_runtime_api.h>
#include <thrust/copy.h>
#include <thrust/device_ptr.h>
#include <thrust/device_vector.h>
#include <thrust/memory.h>
#include <thrust/system/cuda/execution_policy.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>

namespace example_algorithms {

using ::thrust::copy;
using ::thrust::device_vector;
using ::thrust::raw_pointer_cast;
using word = std::uint32_t;

/// Takes temporary storage as Thrust does.
template <class Policy>
void sort(Policy& policy, word* first, word* last) {
  const auto n = static_cast<std::size_t>(last - first);
  const auto storage = ::thrust::get_temporary_buffer<word>(policy, static_cast<std::ptrdiff_t>(n));
  CHECK(static_cast<std::size_t>(storage.second) == n);
  example_libraries::put(::thrust::cuda_cub::stream(policy), [=, spare = storage.first.get()] {
    example_libraries::scratch(spare, n * sizeof(word));
    deepum_test::device_touch(first, n * sizeof(word), deepum::access::update);
    std::copy(first, last, spare);
    std::sort(spare, spare + n);
    std::copy(spare, spare + n, first);
  });
  ::thrust::return_temporary_buffer(policy, storage.first, storage.second);
}

struct DeviceReduce {
  static cudaError_t Sum(void* storage, std::size_t& size, const word* x, word* sum, int n, cudaStream_t stream) {
    if (storage == nullptr) {
      size = std::size_t{1} << 20U;
      return cudaSuccess;
    }
    example_libraries::put(stream, [=] {
      example_libraries::scratch(storage, size);
      deepum_test::device_touch(x, static_cast<std::size_t>(n) * sizeof(word), deepum::access::read);
      deepum_test::device_touch(sum, sizeof(word), deepum::access::overwrite);
      *sum = std::accumulate(x, x + n, word{0});
    });
    return cudaSuccess;
  }
};

}  // namespace example_algorithms

// CUDA's pool, which the fake runtime does not have: the examples' storage is large enough.
extern "C" {
cudaError_t cudaMallocAsync(void**, std::size_t, cudaStream_t) { return cudaErrorMemoryAllocation; }
cudaError_t cudaFreeAsync(void*, cudaStream_t) { return cudaErrorInvalidValue; }
}
