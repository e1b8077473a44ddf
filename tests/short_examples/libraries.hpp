#pragma once

// What the short examples call of cuBLAS and cuDNN, on the fake GPU. These compute what the real ones do, and touch
// what a GPU would: memory that never faults breaks there where something is not declared.

#include "interop/recorded_arena.hpp"

#include <doctest/doctest.h>

#include <cublas_v2.h>
#include <cudnn.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

namespace example_libraries {

using deepum::access;
using deepum_test::device_touch;

inline void run(std::function<void()>* job) {
  const std::unique_ptr<std::function<void()>> owner(job);
  (*job)();
}
/// Puts something that the GPU does into a stream.
inline void put(cudaStream_t stream, std::function<void()> job) {
  deepum_test::enqueue(stream, run, new std::function<void()>(std::move(job)));
}

inline const float* in(const void* p, std::size_t n) {
  device_touch(p, n * sizeof(float), access::read);
  return static_cast<const float*>(p);
}
/// What is overwritten holds nothing of value before that.
inline float* out(void* p, std::size_t n, bool overwritten) {
  device_touch(p, n * sizeof(float), overwritten ? access::overwrite : access::update);
  if (overwritten) {
    std::fill_n(static_cast<float*>(p), n, std::nanf(""));
  }
  return static_cast<float*>(p);
}
inline void scratch(void* p, std::size_t size) {
  if (size != 0) {
    device_touch(p, size, access::overwrite);
    std::fill_n(static_cast<unsigned char*>(p), size, static_cast<unsigned char>(0xEE));
  }
}
/// What was there counts only where beta is not 0.
inline void blend(float& to, float value, float alpha, float beta) {
  to = alpha * value + (beta == 0 ? 0.0F : beta * to);
}

// --- What handles and descriptors point to. ---

struct handle_state {
  cudaStream_t stream = nullptr;
  void* workspace = nullptr;
  std::size_t workspace_size = 0;
};
struct shape {
  int n = 0;  // images; outputs of a filter
  int c = 0;
  int h = 0;
  int w = 0;
  [[nodiscard]] std::size_t size() const { return static_cast<std::size_t>(n * c * h * w); }
  [[nodiscard]] std::size_t at(int i, int j, int y, int x) const {
    return static_cast<std::size_t>(((i * c + j) * h + y) * w + x);
  }
};
struct window {
  int padding = 0;
  int stride = 0;
};
inline int live = 0;                                   // handles and descriptors
constexpr std::size_t needed = std::size_t{1} << 20U;  // workspace of a convolution, in bytes

template <class T, class Handle>
const T& the(Handle h) {
  return *reinterpret_cast<const T*>(h);
}
template <class T, class Handle>
void make(Handle* h) {
  *h = reinterpret_cast<Handle>(new T);
  ++live;
}
template <class T, class Handle>
void end(Handle h) {
  delete reinterpret_cast<T*>(h);
  --live;
}
inline float scalar(const void* p) { return *static_cast<const float*>(p); }

/// The first and the last but one of `results` positions whose window element `offset` lies on one of `length` pixels.
struct positions {
  positions(int offset, const window& how, int length, int results)
      : begin(std::max(0, (how.padding - offset + how.stride - 1) / how.stride)),
        end(std::min(results, (length - 1 + how.padding - offset) / how.stride + 1)) {}
  int begin;
  int end;
};
/// Calls `term(index in x, index in w, index in y)` for each product that a convolution sums.
template <class Term>
void each_term(const shape& x, const shape& w, window how, const shape& y, Term&& term) {
  for (int i = 0; i < y.n; ++i) {
    for (int k = 0; k < y.c; ++k) {
      for (int j = 0; j < x.c; ++j) {
        for (int b = 0; b < w.h; ++b) {
          const positions rows(b, how, x.h, y.h);
          for (int a = 0; a < w.w; ++a) {
            const positions columns(a, how, x.w, y.w);
            for (int v = rows.begin; v < rows.end; ++v) {
              const std::size_t in_x = x.at(i, j, v * how.stride - how.padding + b, 0);
              const std::size_t in_y = y.at(i, k, v, 0);
              const std::size_t in_w = w.at(k, j, b, a);
              for (int u = columns.begin; u < columns.end; ++u) {
                term(in_x + static_cast<std::size_t>(u * how.stride - how.padding + a), in_w,
                     in_y + static_cast<std::size_t>(u));
              }
            }
          }
        }
      }
    }
  }
}

}  // namespace example_libraries

extern "C" {
cublasStatus_t cublasCreate_v2(cublasHandle_t* h) {
  example_libraries::make<example_libraries::handle_state>(h);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasDestroy_v2(cublasHandle_t h) {
  example_libraries::end<example_libraries::handle_state>(h);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetStream_v2(cublasHandle_t h, cudaStream_t stream) {
  *reinterpret_cast<example_libraries::handle_state*>(h) = {.stream = stream};  // takes the workspace away
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetWorkspace_v2(cublasHandle_t h, void* workspace, std::size_t size) {
  auto& state = *reinterpret_cast<example_libraries::handle_state*>(h);
  state.workspace = workspace;
  state.workspace_size = size;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetPointerMode_v2(cublasHandle_t, cublasPointerMode_t) { return CUBLAS_STATUS_SUCCESS; }
const char* cublasGetStatusString(cublasStatus_t) { return "words of cuBLAS"; }
cublasStatus_t cublasGemmEx_64(cublasHandle_t h, cublasOperation_t op_a, cublasOperation_t op_b, std::int64_t m,
                               std::int64_t n, std::int64_t k, const void* p_alpha, const void* a, cudaDataType,
                               std::int64_t lda, const void* b, cudaDataType, std::int64_t ldb, const void* p_beta,
                               void* c, cudaDataType, std::int64_t ldc, cublasComputeType_t, cublasGemmAlgo_t) {
  using namespace example_libraries;
  CHECK(op_a == CUBLAS_OP_N);
  CHECK(op_b == CUBLAS_OP_N);
  CHECK((lda == m && ldb == k && ldc == m));
  const handle_state state = the<handle_state>(h);
  put(state.stream, [=, alpha = scalar(p_alpha), beta = scalar(p_beta)] {
    const float* const from_a = in(a, static_cast<std::size_t>(m * k));
    const float* const from_b = in(b, static_cast<std::size_t>(k * n));
    scratch(state.workspace, state.workspace_size);
    float* const to = out(c, static_cast<std::size_t>(m * n), beta == 0);
    std::vector<float> sums(static_cast<std::size_t>(m * n));
    for (std::int64_t i = 0; i < m * k; ++i) {
      if (from_a[i] != 0) {  // most are
        for (std::int64_t column = 0; column < n; ++column) {
          sums[static_cast<std::size_t>(column * m + i % m)] += from_a[i] * from_b[column * k + i / m];
        }
      }
    }
    for (std::size_t i = 0; i < sums.size(); ++i) {
      blend(to[i], sums[i], alpha, beta);
    }
  });
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasGemmStridedBatchedEx_64(cublasHandle_t h, cublasOperation_t op_a, cublasOperation_t op_b,
                                             std::int64_t m, std::int64_t n, std::int64_t k, const void* alpha,
                                             const void* a, cudaDataType type_a, std::int64_t lda, long long stride_a,
                                             const void* b, cudaDataType type_b, std::int64_t ldb, long long stride_b,
                                             const void* beta, void* c, cudaDataType type_c, std::int64_t ldc,
                                             long long stride_c, std::int64_t count, cublasComputeType_t compute,
                                             cublasGemmAlgo_t algorithm) {
  for (std::int64_t i = 0; i < count; ++i) {
    cublasGemmEx_64(h, op_a, op_b, m, n, k, alpha, static_cast<const float*>(a) + i * stride_a, type_a, lda,
                    static_cast<const float*>(b) + i * stride_b, type_b, ldb, beta,
                    static_cast<float*>(c) + i * stride_c, type_c, ldc, compute, algorithm);
  }
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSaxpy_v2(cublasHandle_t h, int n, const float* alpha, const float* x, int, float* y, int) {
  using namespace example_libraries;
  put(the<handle_state>(h).stream, [=, a = *alpha] {
    const float* const from = in(x, static_cast<std::size_t>(n));
    float* const to = out(y, static_cast<std::size_t>(n), false);
    for (int i = 0; i < n; ++i) {
      to[i] += a * from[i];
    }
  });
  return CUBLAS_STATUS_SUCCESS;
}

cudnnStatus_t cudnnCreate(cudnnHandle_t* h) {
  example_libraries::make<example_libraries::handle_state>(h);
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnDestroy(cudnnHandle_t h) {
  example_libraries::end<example_libraries::handle_state>(h);
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetStream(cudnnHandle_t h, cudaStream_t stream) {
  reinterpret_cast<example_libraries::handle_state*>(h)->stream = stream;
  return CUDNN_STATUS_SUCCESS;
}
const char* cudnnGetErrorString(cudnnStatus_t) { return "words of cuDNN"; }
cudnnStatus_t cudnnCreateTensorDescriptor(cudnnTensorDescriptor_t* d) {
  example_libraries::make<example_libraries::shape>(d);
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnDestroyTensorDescriptor(cudnnTensorDescriptor_t d) {
  example_libraries::end<example_libraries::shape>(d);
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetTensor4dDescriptor(cudnnTensorDescriptor_t d, cudnnTensorFormat_t, cudnnDataType_t, int n, int c,
                                         int h, int w) {
  *reinterpret_cast<example_libraries::shape*>(d) = {n, c, h, w};
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnGetTensorSizeInBytes(cudnnTensorDescriptor_t d, std::size_t* size) {
  *size = example_libraries::the<example_libraries::shape>(d).size() * sizeof(float);
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnGetTensorNdDescriptor(cudnnTensorDescriptor_t d, int, cudnnDataType_t* type, int* n, int lengths[],
                                         int[]) {
  const auto& s = example_libraries::the<example_libraries::shape>(d);
  *type = CUDNN_DATA_FLOAT;
  *n = 4;
  std::copy_n(&s.n, 1, lengths);
  std::copy_n(&s.c, 1, lengths + 1);
  std::copy_n(&s.h, 1, lengths + 2);
  std::copy_n(&s.w, 1, lengths + 3);
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnCreateFilterDescriptor(cudnnFilterDescriptor_t* d) {
  example_libraries::make<example_libraries::shape>(d);
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnDestroyFilterDescriptor(cudnnFilterDescriptor_t d) {
  example_libraries::end<example_libraries::shape>(d);
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetFilter4dDescriptor(cudnnFilterDescriptor_t d, cudnnDataType_t, cudnnTensorFormat_t, int n, int c,
                                         int h, int w) {
  *reinterpret_cast<example_libraries::shape*>(d) = {n, c, h, w};
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnGetFilterSizeInBytes(cudnnFilterDescriptor_t d, std::size_t* size) {
  *size = example_libraries::the<example_libraries::shape>(d).size() * sizeof(float);
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnGetFilterNdDescriptor(cudnnFilterDescriptor_t, int, cudnnDataType_t* type,
                                         cudnnTensorFormat_t* format, int* n, int[]) {
  *type = CUDNN_DATA_FLOAT;
  *format = CUDNN_TENSOR_NCHW;
  *n = 4;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnCreateConvolutionDescriptor(cudnnConvolutionDescriptor_t* d) {
  example_libraries::make<example_libraries::window>(d);
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnDestroyConvolutionDescriptor(cudnnConvolutionDescriptor_t d) {
  example_libraries::end<example_libraries::window>(d);
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetConvolution2dDescriptor(cudnnConvolutionDescriptor_t d, int padding, int, int stride, int, int,
                                              int, cudnnConvolutionMode_t, cudnnDataType_t) {
  *reinterpret_cast<example_libraries::window*>(d) = {padding, stride};
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetConvolutionMathType(cudnnConvolutionDescriptor_t, cudnnMathType_t type) {
  CHECK(type == CUDNN_FMA_MATH);
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnCreateActivationDescriptor(cudnnActivationDescriptor_t* d) {
  example_libraries::make<example_libraries::window>(d);
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnDestroyActivationDescriptor(cudnnActivationDescriptor_t d) {
  example_libraries::end<example_libraries::window>(d);
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetActivationDescriptor(cudnnActivationDescriptor_t, cudnnActivationMode_t mode,
                                           cudnnNanPropagation_t, double) {
  CHECK(mode == CUDNN_ACTIVATION_RELU);
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnGetConvolutionForwardWorkspaceSize(cudnnHandle_t, cudnnTensorDescriptor_t, cudnnFilterDescriptor_t,
                                                      cudnnConvolutionDescriptor_t, cudnnTensorDescriptor_t,
                                                      cudnnConvolutionFwdAlgo_t, std::size_t* size) {
  *size = example_libraries::needed;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnGetConvolutionBackwardDataWorkspaceSize(cudnnHandle_t, cudnnFilterDescriptor_t,
                                                           cudnnTensorDescriptor_t, cudnnConvolutionDescriptor_t,
                                                           cudnnTensorDescriptor_t, cudnnConvolutionBwdDataAlgo_t,
                                                           std::size_t* size) {
  *size = 0;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnGetConvolutionBackwardFilterWorkspaceSize(cudnnHandle_t, cudnnTensorDescriptor_t,
                                                             cudnnTensorDescriptor_t, cudnnConvolutionDescriptor_t,
                                                             cudnnFilterDescriptor_t, cudnnConvolutionBwdFilterAlgo_t,
                                                             std::size_t* size) {
  *size = example_libraries::needed;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnConvolutionForward(cudnnHandle_t h, const void* p_alpha, cudnnTensorDescriptor_t xd, const void* x,
                                      cudnnFilterDescriptor_t wd, const void* w, cudnnConvolutionDescriptor_t how,
                                      cudnnConvolutionFwdAlgo_t, void* workspace, std::size_t size, const void* p_beta,
                                      cudnnTensorDescriptor_t yd, void* y) {
  using namespace example_libraries;
  put(the<handle_state>(h).stream, [=, xs = the<shape>(xd), ws = the<shape>(wd), ys = the<shape>(yd),
                                    win = the<window>(how), alpha = scalar(p_alpha), beta = scalar(p_beta)] {
    const float* const from = in(x, xs.size());
    const float* const weights = in(w, ws.size());
    scratch(workspace, size);
    float* const to = out(y, ys.size(), beta == 0);
    std::vector<float> sums(ys.size());
    each_term(xs, ws, win, ys, [&](std::size_t i, std::size_t j, std::size_t k) { sums[k] += from[i] * weights[j]; });
    for (std::size_t k = 0; k < sums.size(); ++k) {
      blend(to[k], sums[k], alpha, beta);
    }
  });
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnConvolutionBackwardData(cudnnHandle_t h, const void* p_alpha, cudnnFilterDescriptor_t wd,
                                           const void* w, cudnnTensorDescriptor_t dyd, const void* dy,
                                           cudnnConvolutionDescriptor_t how, cudnnConvolutionBwdDataAlgo_t algorithm,
                                           void* workspace, std::size_t size, const void* p_beta,
                                           cudnnTensorDescriptor_t dxd, void* dx) {
  using namespace example_libraries;
  CHECK(algorithm == CUDNN_CONVOLUTION_BWD_DATA_ALGO_1);  // ALGO_0 is not deterministic
  put(the<handle_state>(h).stream, [=, xs = the<shape>(dxd), ws = the<shape>(wd), ys = the<shape>(dyd),
                                    win = the<window>(how), alpha = scalar(p_alpha), beta = scalar(p_beta)] {
    const float* const weights = in(w, ws.size());
    const float* const from = in(dy, ys.size());
    scratch(workspace, size);
    float* const to = out(dx, xs.size(), beta == 0);
    std::vector<float> sums(xs.size());
    each_term(xs, ws, win, ys, [&](std::size_t i, std::size_t j, std::size_t k) { sums[i] += weights[j] * from[k]; });
    for (std::size_t i = 0; i < sums.size(); ++i) {
      blend(to[i], sums[i], alpha, beta);
    }
  });
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnConvolutionBackwardFilter(cudnnHandle_t h, const void* p_alpha, cudnnTensorDescriptor_t xd,
                                             const void* x, cudnnTensorDescriptor_t dyd, const void* dy,
                                             cudnnConvolutionDescriptor_t how,
                                             cudnnConvolutionBwdFilterAlgo_t algorithm, void* workspace,
                                             std::size_t size, const void* p_beta, cudnnFilterDescriptor_t dwd,
                                             void* dw) {
  using namespace example_libraries;
  CHECK(algorithm == CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1);  // ALGO_0 and ALGO_3 are not deterministic
  put(the<handle_state>(h).stream, [=, xs = the<shape>(xd), ws = the<shape>(dwd), ys = the<shape>(dyd),
                                    win = the<window>(how), alpha = scalar(p_alpha), beta = scalar(p_beta)] {
    const float* const from = in(x, xs.size());
    const float* const d = in(dy, ys.size());
    scratch(workspace, size);
    float* const to = out(dw, ws.size(), beta == 0);
    std::vector<float> sums(ws.size());
    each_term(xs, ws, win, ys, [&](std::size_t i, std::size_t j, std::size_t k) { sums[j] += from[i] * d[k]; });
    for (std::size_t j = 0; j < sums.size(); ++j) {
      blend(to[j], sums[j], alpha, beta);
    }
  });
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnActivationForward(cudnnHandle_t h, cudnnActivationDescriptor_t, const void*,
                                     cudnnTensorDescriptor_t xd, const void* x, const void*, cudnnTensorDescriptor_t,
                                     void* y) {
  using namespace example_libraries;
  CHECK(x == y);  // in place
  put(the<handle_state>(h).stream, [=, n = the<shape>(xd).size()] {
    float* const to = out(y, n, false);
    for (std::size_t i = 0; i < n; ++i) {
      to[i] = std::max(to[i], 0.0F);
    }
  });
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnActivationBackward(cudnnHandle_t h, cudnnActivationDescriptor_t, const void*,
                                      cudnnTensorDescriptor_t yd, const void* y, cudnnTensorDescriptor_t,
                                      const void* dy, cudnnTensorDescriptor_t, const void*, const void*,
                                      cudnnTensorDescriptor_t, void* dx) {
  using namespace example_libraries;
  CHECK(dy == dx);  // in place
  put(the<handle_state>(h).stream, [=, n = the<shape>(yd).size()] {
    const float* const result = in(y, n);
    float* const d = out(dx, n, false);
    for (std::size_t i = 0; i < n; ++i) {
      d[i] = result[i] > 0 ? d[i] : 0.0F;
    }
  });
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSoftmaxForward(cudnnHandle_t h, cudnnSoftmaxAlgorithm_t, cudnnSoftmaxMode_t mode, const void*,
                                  cudnnTensorDescriptor_t xd, const void* x, const void*, cudnnTensorDescriptor_t,
                                  void* y) {
  using namespace example_libraries;
  CHECK(mode == CUDNN_SOFTMAX_MODE_CHANNEL);
  put(the<handle_state>(h).stream, [=, s = the<shape>(xd)] {
    CHECK(s.h * s.w == 1);
    const float* const from = in(x, s.size());
    float* const to = out(y, s.size(), true);
    const auto channels = static_cast<std::size_t>(s.c);
    for (std::size_t i = 0; i < s.size(); i += channels) {
      const float most = *std::max_element(from + i, from + i + channels);
      float sum = 0;
      for (std::size_t k = i; k < i + channels; ++k) {
        sum += std::exp(from[k] - most);
      }
      for (std::size_t k = i; k < i + channels; ++k) {
        to[k] = std::exp(from[k] - most) / sum;
      }
    }
  });
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnAddTensor(cudnnHandle_t h, const void* p_alpha, cudnnTensorDescriptor_t, const void* a,
                             const void* p_beta, cudnnTensorDescriptor_t cd, void* c) {
  using namespace example_libraries;
  put(the<handle_state>(h).stream, [=, n = the<shape>(cd).size(), alpha = scalar(p_alpha), beta = scalar(p_beta)] {
    const float* const from = in(a, n);
    float* const to = out(c, n, beta == 0);
    for (std::size_t i = 0; i < n; ++i) {
      blend(to[i], from[i], alpha, beta);
    }
  });
  return CUDNN_STATUS_SUCCESS;
}
}
