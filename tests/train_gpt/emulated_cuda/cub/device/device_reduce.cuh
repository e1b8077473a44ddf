#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstring>

namespace cub {

struct DeviceReduce {
  template <class In, class Out, class Number, class Operation, class Value>
  static cudaError_t Reduce(void* storage, std::size_t& size, In in, Out out, Number n, Operation operation,
                            Value value, cudaStream_t /*stream*/) {
    constexpr std::size_t needed = 1000;
    if (storage == nullptr) {
      size = needed;
      return cudaSuccess;
    }
    if (size < needed) return cudaErrorInvalidValue;
    std::memset(storage, 0xFF, needed);
    for (Number i = 0; i < n; ++i)
      value = operation(value, in[i]);
    *out = value;
    return cudaSuccess;
  }
};

}  // namespace cub
