#pragma once

#include <deepum/interop/cudnn_shapes.hpp>

#include <cudnn.h>

#include <utility>

// Descriptors of cuDNN that end by themselves.
namespace deepum::gpu_bench {

template <class T, cudnnStatus_t (*Create)(T*), cudnnStatus_t (*Destroy)(T)>
class cudnn_descriptor {
 public:
  /// @errors  `status::device_failure`.
  cudnn_descriptor() { interop::check_cudnn(Create(&made_), "cudnnCreate*Descriptor"); }
  ~cudnn_descriptor() {
    if (made_ != nullptr) {
      (void)Destroy(made_);
    }
  }
  cudnn_descriptor(cudnn_descriptor&& other) noexcept : made_(std::exchange(other.made_, nullptr)) {}
  cudnn_descriptor(const cudnn_descriptor&) = delete;
  cudnn_descriptor& operator=(const cudnn_descriptor&) = delete;
  operator T() const { return made_; }  // NOLINT(google-explicit-constructor): cuDNN takes it as that

 private:
  T made_ = nullptr;
};

/// Floats in NCHW, packed.
class tensor_of_floats
    : public cudnn_descriptor<cudnnTensorDescriptor_t, cudnnCreateTensorDescriptor, cudnnDestroyTensorDescriptor> {
 public:
  tensor_of_floats(int images, int channels, int side) {
    interop::check_cudnn(
        cudnnSetTensor4dDescriptor(*this, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, images, channels, side, side),
        "cudnnSetTensor4dDescriptor");
  }
};
class filter_of_floats
    : public cudnn_descriptor<cudnnFilterDescriptor_t, cudnnCreateFilterDescriptor, cudnnDestroyFilterDescriptor> {
 public:
  filter_of_floats(int outputs, int inputs, int side) {
    interop::check_cudnn(
        cudnnSetFilter4dDescriptor(*this, CUDNN_DATA_FLOAT, CUDNN_TENSOR_NCHW, outputs, inputs, side, side),
        "cudnnSetFilter4dDescriptor");
  }
};
class convolution_of_floats : public cudnn_descriptor<cudnnConvolutionDescriptor_t, cudnnCreateConvolutionDescriptor,
                                                      cudnnDestroyConvolutionDescriptor> {
 public:
  convolution_of_floats(int padding, int stride, cudnnMathType_t math) {
    interop::check_cudnn(cudnnSetConvolution2dDescriptor(*this, padding, padding, stride, stride, 1, 1,
                                                         CUDNN_CROSS_CORRELATION, CUDNN_DATA_FLOAT),
                         "cudnnSetConvolution2dDescriptor");
    interop::check_cudnn(cudnnSetConvolutionMathType(*this, math), "cudnnSetConvolutionMathType");
  }
};
/// The largest of each window; the gradient is the same in each run.
class max_pooling
    : public cudnn_descriptor<cudnnPoolingDescriptor_t, cudnnCreatePoolingDescriptor, cudnnDestroyPoolingDescriptor> {
 public:
  max_pooling(int window, int stride) {
    interop::check_cudnn(cudnnSetPooling2dDescriptor(*this, CUDNN_POOLING_MAX_DETERMINISTIC, CUDNN_NOT_PROPAGATE_NAN,
                                                     window, window, 0, 0, stride, stride),
                         "cudnnSetPooling2dDescriptor");
  }
};
class rectification : public cudnn_descriptor<cudnnActivationDescriptor_t, cudnnCreateActivationDescriptor,
                                              cudnnDestroyActivationDescriptor> {
 public:
  rectification() {
    interop::check_cudnn(cudnnSetActivationDescriptor(*this, CUDNN_ACTIVATION_RELU, CUDNN_NOT_PROPAGATE_NAN, 0),
                         "cudnnSetActivationDescriptor");
  }
};
class addition : public cudnn_descriptor<cudnnOpTensorDescriptor_t, cudnnCreateOpTensorDescriptor,
                                         cudnnDestroyOpTensorDescriptor> {
 public:
  addition() {
    interop::check_cudnn(
        cudnnSetOpTensorDescriptor(*this, CUDNN_OP_TENSOR_ADD, CUDNN_DATA_FLOAT, CUDNN_NOT_PROPAGATE_NAN),
        "cudnnSetOpTensorDescriptor");
  }
};

/// A handle.
class cudnn_handle {
 public:
  /// @errors  `status::device_failure`.
  cudnn_handle() { interop::check_cudnn(cudnnCreate(&made_), "cudnnCreate"); }
  ~cudnn_handle() { (void)cudnnDestroy(made_); }
  cudnn_handle(const cudnn_handle&) = delete;
  cudnn_handle& operator=(const cudnn_handle&) = delete;
  operator cudnnHandle_t() const { return made_; }  // NOLINT(google-explicit-constructor): cuDNN takes it as that

 private:
  cudnnHandle_t made_ = nullptr;
};

}  // namespace deepum::gpu_bench
