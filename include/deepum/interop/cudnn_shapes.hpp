#pragma once

#if __has_include(<cudnn.h>)  // it does not come with the toolkit; without it this header has nothing

#include <deepum/interop/library_status.hpp>

#include <cudnn.h>

#include <array>
#include <cstddef>
#include <source_location>

namespace deepum {
inline namespace v0 {
namespace interop {

/// @errors  `status::device_failure`, with the number and words of cuDNN.
inline void check_cudnn(cudnnStatus_t result, const char* api,
                        std::source_location where = std::source_location::current()) {
  detail::check_library(result, CUDNN_STATUS_SUCCESS, cudnnGetErrorString, api, where);
}

/// What a descriptor of a tensor says.
struct tensor_shape {
  cudnnDataType_t type = CUDNN_DATA_FLOAT;
  int dimensions = 0;
  std::array<int, CUDNN_DIM_MAX> lengths{};
  std::array<int, CUDNN_DIM_MAX> strides{};
};
/// @errors  `status::device_failure`. Cost: a query.
[[nodiscard]] inline tensor_shape shape_of(cudnnTensorDescriptor_t of) {
  tensor_shape s;
  check_cudnn(cudnnGetTensorNdDescriptor(of, CUDNN_DIM_MAX, &s.type, &s.dimensions, s.lengths.data(), s.strides.data()),
              "cudnnGetTensorNdDescriptor");
  return s;
}

/// What a descriptor of a filter says. Filters have no strides.
struct filter_shape {
  cudnnDataType_t type = CUDNN_DATA_FLOAT;
  cudnnTensorFormat_t format = CUDNN_TENSOR_NCHW;
  int dimensions = 0;
  std::array<int, CUDNN_DIM_MAX> lengths{};
};
/// @errors  `status::device_failure`. Cost: a query.
[[nodiscard]] inline filter_shape shape_of(cudnnFilterDescriptor_t of) {
  filter_shape s;
  check_cudnn(cudnnGetFilterNdDescriptor(of, CUDNN_DIM_MAX, &s.type, &s.format, &s.dimensions, s.lengths.data()),
              "cudnnGetFilterNdDescriptor");
  return s;
}

}  // namespace interop
}  // namespace v0
}  // namespace deepum

#endif
