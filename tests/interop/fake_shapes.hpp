#pragma once

#include <cudnn.h>

#include <cstddef>
#include <vector>

namespace deepum_test {

/// What a descriptor of the stand-ins for cuDNN points to.
struct shape {
  std::size_t size = 0;
  std::vector<int> lengths{};
  cudnnDataType_t type = CUDNN_DATA_FLOAT;

  cudnnTensorDescriptor_t tensor() { return reinterpret_cast<cudnnTensorDescriptor_t>(this); }
  cudnnFilterDescriptor_t filter() { return reinterpret_cast<cudnnFilterDescriptor_t>(this); }
};
template <class Descriptor>
const shape& shape_of(Descriptor d) {
  return *reinterpret_cast<const shape*>(d);
}

}  // namespace deepum_test
