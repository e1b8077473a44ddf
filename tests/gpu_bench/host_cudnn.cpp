// cuDNN on the fake CUDA runtime, as far as the benchmark of convolutional nets calls it. It does not compute what the
// real one does; it touches the same memory, and what it writes depends on all that it is given, so that wrong contents
// are seen.

#include "cuda/fake_cuda.hpp"

#include <cudnn.h>

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <utility>
#include <vector>

namespace {

using access = deepum::access;  // POSIX has one, too
using deepum_test::device_touch;

// What handles and descriptors point to. Of a convolution and of pooling: padding and stride, with the kind of math.
struct handle_state {
  cudaStream_t stream = nullptr;
};
struct shape {
  std::array<int, 4> lengths{};
  [[nodiscard]] std::size_t count() const {
    std::size_t n = 1;
    for (const int l : lengths)
      n *= static_cast<std::size_t>(l);
    return n;
  }
};
struct window {
  int padding = 0;
  int stride = 1;
  cudnnMathType_t math = CUDNN_DEFAULT_MATH;
};

template <class T, class Handle>
cudnnStatus_t make(Handle* h) {
  *h = reinterpret_cast<Handle>(new T{});
  return CUDNN_STATUS_SUCCESS;
}
template <class T, class Handle>
cudnnStatus_t end(Handle h) {
  delete reinterpret_cast<T*>(h);
  return CUDNN_STATUS_SUCCESS;
}
template <class T, class Handle>
T& the(Handle h) {
  return *reinterpret_cast<T*>(h);
}
template <class Handle>
std::size_t count_of(Handle h) {
  return the<shape>(h).count();
}

void run(std::function<void()>* job) {
  const std::unique_ptr<std::function<void()>> owner(job);
  (*job)();
}

struct piece {
  const void* p;
  std::size_t n;  // floats
};
// result[i] = old * result[i] + a number of -1 to 1 that depends on its place, on `what`, and on a word of each page of
// what is read.
cudnnStatus_t compute(cudnnHandle_t h, float what, std::vector<piece> in, piece result, float old,
                      piece scratch = {nullptr, 0}) {
  deepum_test::fake_cuda::register_kernel(run);
  auto* job = new std::function<void()>([=] {
    float mixed = what;
    for (const piece& each : in) {
      device_touch(each.p, each.n * sizeof(float), access::read);
      const auto* const p = static_cast<const float*>(each.p);
      for (std::size_t i = 0; i < each.n; i += 1024) {
        mixed = 0.75F * mixed + p[i] + 0.125F;
        mixed -= static_cast<float>(static_cast<std::int64_t>(mixed));
      }
    }
    if (scratch.n != 0) {
      device_touch(scratch.p, scratch.n * sizeof(float), access::overwrite);
      static_cast<float*>(const_cast<void*>(scratch.p))[0] = mixed;
    }
    device_touch(result.p, result.n * sizeof(float), old == 0 ? access::overwrite : access::update);
    auto* const to = static_cast<float*>(const_cast<void*>(result.p));
    for (std::size_t i = 0; i < result.n; ++i) {
      const float drawn = mixed * (1.0F - static_cast<float>(i & 63U) / 64.0F);
      to[i] = old == 0 ? drawn : 0.5F * old * to[i] + 0.5F * drawn;
    }
  });
  void* arguments[] = {&job};
  return cudaLaunchKernel(reinterpret_cast<const void*>(run), dim3(1), dim3(1), arguments, 0,
                          the<handle_state>(h).stream) == cudaSuccess
             ? CUDNN_STATUS_SUCCESS
             : CUDNN_STATUS_EXECUTION_FAILED;
}
float scalar(const void* p) { return *static_cast<const float*>(p); }
piece floats_of(void* p, std::size_t size) { return {p, size / sizeof(float)}; }

// Three algorithms: one without a workspace, one that is faster and needs what the result takes, and the fastest one,
// which does not give the same bits each time.
template <class Perf>
cudnnStatus_t tell_found(int most, int* count, Perf* found, std::array<int, 3> numbers, std::size_t result,
                         cudnnMathType_t math) {
  *count = 0;
  for (const std::size_t i : {2U, 1U, 0U}) {
    if (*count == most) break;
    Perf& f = found[*count];
    f = {};
    f.algo = static_cast<decltype(f.algo)>(numbers[i]);
    f.status = CUDNN_STATUS_SUCCESS;
    f.time = 3.0F - static_cast<float>(i);
    f.memory = i == 1 ? result * sizeof(float) : 0;
    f.determinism = i == 2 ? CUDNN_NON_DETERMINISTIC : CUDNN_DETERMINISTIC;
    f.mathType = math;
    ++*count;
  }
  return CUDNN_STATUS_SUCCESS;
}

}  // namespace

extern "C" {
const char* cudnnGetErrorString(cudnnStatus_t) { return "words of cuDNN"; }
cudnnStatus_t cudnnCreate(cudnnHandle_t* h) { return make<handle_state>(h); }
cudnnStatus_t cudnnDestroy(cudnnHandle_t h) { return end<handle_state>(h); }
cudnnStatus_t cudnnSetStream(cudnnHandle_t h, cudaStream_t stream) {
  the<handle_state>(h).stream = stream;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnCreateTensorDescriptor(cudnnTensorDescriptor_t* d) { return make<shape>(d); }
cudnnStatus_t cudnnDestroyTensorDescriptor(cudnnTensorDescriptor_t d) { return end<shape>(d); }
cudnnStatus_t cudnnSetTensor4dDescriptor(cudnnTensorDescriptor_t d, cudnnTensorFormat_t, cudnnDataType_t, int n, int c,
                                         int h, int w) {
  the<shape>(d).lengths = {n, c, h, w};
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnGetTensorNdDescriptor(cudnnTensorDescriptor_t d, int, cudnnDataType_t* type, int* n, int lengths[],
                                         int strides[]) {
  *type = CUDNN_DATA_FLOAT;
  *n = 4;
  int stride = 1;
  for (int i = 3; i >= 0; --i) {
    lengths[i] = the<shape>(d).lengths[static_cast<std::size_t>(i)];
    strides[i] = stride;
    stride *= lengths[i];
  }
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnCreateFilterDescriptor(cudnnFilterDescriptor_t* d) { return make<shape>(d); }
cudnnStatus_t cudnnDestroyFilterDescriptor(cudnnFilterDescriptor_t d) { return end<shape>(d); }
cudnnStatus_t cudnnSetFilter4dDescriptor(cudnnFilterDescriptor_t d, cudnnDataType_t, cudnnTensorFormat_t, int n, int c,
                                         int h, int w) {
  the<shape>(d).lengths = {n, c, h, w};
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnGetFilterNdDescriptor(cudnnFilterDescriptor_t d, int, cudnnDataType_t* type,
                                         cudnnTensorFormat_t* format, int* n, int lengths[]) {
  *type = CUDNN_DATA_FLOAT;
  *format = CUDNN_TENSOR_NCHW;
  *n = 4;
  for (std::size_t i = 0; i < 4; ++i)
    lengths[i] = the<shape>(d).lengths[i];
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnCreateConvolutionDescriptor(cudnnConvolutionDescriptor_t* d) { return make<window>(d); }
cudnnStatus_t cudnnDestroyConvolutionDescriptor(cudnnConvolutionDescriptor_t d) { return end<window>(d); }
cudnnStatus_t cudnnSetConvolution2dDescriptor(cudnnConvolutionDescriptor_t d, int padding, int, int stride, int, int,
                                              int, cudnnConvolutionMode_t, cudnnDataType_t) {
  the<window>(d).padding = padding;
  the<window>(d).stride = stride;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetConvolutionMathType(cudnnConvolutionDescriptor_t d, cudnnMathType_t math) {
  the<window>(d).math = math;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnGetConvolutionMathType(cudnnConvolutionDescriptor_t d, cudnnMathType_t* math) {
  *math = the<window>(d).math;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnGetConvolutionGroupCount(cudnnConvolutionDescriptor_t, int* groups) {
  *groups = 1;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnGetConvolutionNdDescriptor(cudnnConvolutionDescriptor_t d, int, int* n, int padding[], int stride[],
                                              int dilation[], cudnnConvolutionMode_t* mode, cudnnDataType_t* type) {
  *n = 2;
  for (int i = 0; i < 2; ++i) {
    padding[i] = the<window>(d).padding;
    stride[i] = the<window>(d).stride;
    dilation[i] = 1;
  }
  *mode = CUDNN_CROSS_CORRELATION;
  *type = CUDNN_DATA_FLOAT;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnCreatePoolingDescriptor(cudnnPoolingDescriptor_t* d) { return make<window>(d); }
cudnnStatus_t cudnnDestroyPoolingDescriptor(cudnnPoolingDescriptor_t d) { return end<window>(d); }
cudnnStatus_t cudnnSetPooling2dDescriptor(cudnnPoolingDescriptor_t, cudnnPoolingMode_t, cudnnNanPropagation_t, int, int,
                                          int, int, int, int) {
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnCreateActivationDescriptor(cudnnActivationDescriptor_t* d) { return make<window>(d); }
cudnnStatus_t cudnnDestroyActivationDescriptor(cudnnActivationDescriptor_t d) { return end<window>(d); }
cudnnStatus_t cudnnSetActivationDescriptor(cudnnActivationDescriptor_t, cudnnActivationMode_t, cudnnNanPropagation_t,
                                           double) {
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnCreateOpTensorDescriptor(cudnnOpTensorDescriptor_t* d) { return make<window>(d); }
cudnnStatus_t cudnnDestroyOpTensorDescriptor(cudnnOpTensorDescriptor_t d) { return end<window>(d); }
cudnnStatus_t cudnnSetOpTensorDescriptor(cudnnOpTensorDescriptor_t, cudnnOpTensorOp_t, cudnnDataType_t,
                                         cudnnNanPropagation_t) {
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnAddTensor(cudnnHandle_t h, const void* alpha, cudnnTensorDescriptor_t ad, const void* a,
                             const void* beta, cudnnTensorDescriptor_t cd, void* c) {
  return compute(h, 0.3F * scalar(alpha), {{a, count_of(ad)}}, {c, count_of(cd)}, scalar(beta));
}
cudnnStatus_t cudnnOpTensor(cudnnHandle_t h, cudnnOpTensorDescriptor_t, const void*, cudnnTensorDescriptor_t ad,
                            const void* a, const void*, cudnnTensorDescriptor_t bd, const void* b, const void* beta,
                            cudnnTensorDescriptor_t cd, void* c) {
  return compute(h, 0.4F, {{a, count_of(ad)}, {b, count_of(bd)}}, {c, count_of(cd)}, scalar(beta));
}
cudnnStatus_t cudnnActivationForward(cudnnHandle_t h, cudnnActivationDescriptor_t, const void*,
                                     cudnnTensorDescriptor_t xd, const void* x, const void*, cudnnTensorDescriptor_t,
                                     void* y) {
  return x == y ? compute(h, 0.5F, {}, {y, count_of(xd)}, 1) : CUDNN_STATUS_NOT_SUPPORTED;
}
cudnnStatus_t cudnnActivationBackward(cudnnHandle_t h, cudnnActivationDescriptor_t, const void*,
                                      cudnnTensorDescriptor_t yd, const void* y, cudnnTensorDescriptor_t,
                                      const void* dy, cudnnTensorDescriptor_t, const void*, const void*,
                                      cudnnTensorDescriptor_t, void* dx) {
  return dy == dx ? compute(h, 0.6F, {{y, count_of(yd)}}, {dx, count_of(yd)}, 1) : CUDNN_STATUS_NOT_SUPPORTED;
}
cudnnStatus_t cudnnPoolingForward(cudnnHandle_t h, cudnnPoolingDescriptor_t, const void*, cudnnTensorDescriptor_t xd,
                                  const void* x, const void* beta, cudnnTensorDescriptor_t yd, void* y) {
  return compute(h, 0.7F, {{x, count_of(xd)}}, {y, count_of(yd)}, scalar(beta));
}
cudnnStatus_t cudnnPoolingBackward(cudnnHandle_t h, cudnnPoolingDescriptor_t, const void*, cudnnTensorDescriptor_t yd,
                                   const void* y, cudnnTensorDescriptor_t, const void* dy, cudnnTensorDescriptor_t xd,
                                   const void* x, const void* beta, cudnnTensorDescriptor_t, void* dx) {
  return compute(h, 0.8F, {{y, count_of(yd)}, {dy, count_of(yd)}, {x, count_of(xd)}}, {dx, count_of(xd)}, scalar(beta));
}
cudnnStatus_t cudnnSoftmaxForward(cudnnHandle_t h, cudnnSoftmaxAlgorithm_t, cudnnSoftmaxMode_t, const void*,
                                  cudnnTensorDescriptor_t xd, const void* x, const void* beta,
                                  cudnnTensorDescriptor_t yd, void* y) {
  return compute(h, 0.9F, {{x, count_of(xd)}}, {y, count_of(yd)}, scalar(beta));
}
cudnnStatus_t cudnnConvolutionForward(cudnnHandle_t h, const void*, cudnnTensorDescriptor_t xd, const void* x,
                                      cudnnFilterDescriptor_t wd, const void* w, cudnnConvolutionDescriptor_t,
                                      cudnnConvolutionFwdAlgo_t algorithm, void* workspace, std::size_t size,
                                      const void* beta, cudnnTensorDescriptor_t yd, void* y) {
  return compute(h, 0.01F * static_cast<float>(algorithm), {{x, count_of(xd)}, {w, count_of(wd)}}, {y, count_of(yd)},
                 scalar(beta), floats_of(workspace, size));
}
cudnnStatus_t cudnnConvolutionBackwardData(cudnnHandle_t h, const void*, cudnnFilterDescriptor_t wd, const void* w,
                                           cudnnTensorDescriptor_t dyd, const void* dy, cudnnConvolutionDescriptor_t,
                                           cudnnConvolutionBwdDataAlgo_t algorithm, void* workspace, std::size_t size,
                                           const void* beta, cudnnTensorDescriptor_t dxd, void* dx) {
  return compute(h, 0.02F * static_cast<float>(algorithm), {{w, count_of(wd)}, {dy, count_of(dyd)}},
                 {dx, count_of(dxd)}, scalar(beta), floats_of(workspace, size));
}
cudnnStatus_t cudnnConvolutionBackwardFilter(cudnnHandle_t h, const void*, cudnnTensorDescriptor_t xd, const void* x,
                                             cudnnTensorDescriptor_t dyd, const void* dy, cudnnConvolutionDescriptor_t,
                                             cudnnConvolutionBwdFilterAlgo_t algorithm, void* workspace,
                                             std::size_t size, const void* beta, cudnnFilterDescriptor_t dwd,
                                             void* dw) {
  return compute(h, 0.03F * static_cast<float>(algorithm), {{x, count_of(xd)}, {dy, count_of(dyd)}},
                 {dw, count_of(dwd)}, scalar(beta), floats_of(workspace, size));
}
cudnnStatus_t cudnnConvolutionBackwardBias(cudnnHandle_t h, const void*, cudnnTensorDescriptor_t dyd, const void* dy,
                                           const void* beta, cudnnTensorDescriptor_t dbd, void* db) {
  return compute(h, 0.05F, {{dy, count_of(dyd)}}, {db, count_of(dbd)}, scalar(beta));
}
cudnnStatus_t cudnnFindConvolutionForwardAlgorithm(cudnnHandle_t, cudnnTensorDescriptor_t, cudnnFilterDescriptor_t,
                                                   cudnnConvolutionDescriptor_t how, cudnnTensorDescriptor_t yd,
                                                   int most, int* count, cudnnConvolutionFwdAlgoPerf_t* found) {
  return tell_found(
      most, count, found,
      {CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM, CUDNN_CONVOLUTION_FWD_ALGO_GEMM, CUDNN_CONVOLUTION_FWD_ALGO_FFT},
      count_of(yd), the<window>(how).math);
}
cudnnStatus_t cudnnFindConvolutionBackwardDataAlgorithm(cudnnHandle_t, cudnnFilterDescriptor_t, cudnnTensorDescriptor_t,
                                                        cudnnConvolutionDescriptor_t how, cudnnTensorDescriptor_t dxd,
                                                        int most, int* count,
                                                        cudnnConvolutionBwdDataAlgoPerf_t* found) {
  return tell_found(
      most, count, found,
      {CUDNN_CONVOLUTION_BWD_DATA_ALGO_1, CUDNN_CONVOLUTION_BWD_DATA_ALGO_FFT, CUDNN_CONVOLUTION_BWD_DATA_ALGO_0},
      count_of(dxd), the<window>(how).math);
}
cudnnStatus_t cudnnFindConvolutionBackwardFilterAlgorithm(cudnnHandle_t, cudnnTensorDescriptor_t xd,
                                                          cudnnTensorDescriptor_t, cudnnConvolutionDescriptor_t how,
                                                          cudnnFilterDescriptor_t, int most, int* count,
                                                          cudnnConvolutionBwdFilterAlgoPerf_t* found) {
  return tell_found(
      most, count, found,
      {CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1, CUDNN_CONVOLUTION_BWD_FILTER_ALGO_FFT, CUDNN_CONVOLUTION_BWD_FILTER_ALGO_0},
      count_of(xd), the<window>(how).math);
}
}
