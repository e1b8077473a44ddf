#pragma once

#include "bf16.hpp"
#include "blas_layout.hpp"
#include "gemm.hpp"
#include <deepum/error.hpp>
#include <deepum/interop/cublas_gemm.hpp>
#include <deepum/units.hpp>

#include <cublas_v2.h>
#include <cuda_runtime_api.h>

#include <cstdint>
#include <string>
#include <type_traits>

namespace train_gpt {

/// @errors  `deepum::status::device_failure`.
inline void check_cuda(cudaError_t result, const char* api) {
  if (result == cudaSuccess) return;
  (void)cudaGetLastError();
  throw deepum::error(deepum::status::device_failure, std::string(api) + ": " + cudaGetErrorString(result), api,
                      static_cast<int>(result));
}
using deepum::interop::check_cublas;

/// Several products of matrices of one shape, whose elements lie this far apart from one product to the next.
struct product_batch {
  std::int64_t count = 1;
  std::int64_t a = 0;
  std::int64_t b = 0;
  std::int64_t c = 0;
};

/// Matrix products on the GPU, by cuBLAS: single precision without shortcuts (no TF32) unless it is asked for others,
/// or bf16 with sums in single precision.
///
/// The same in every run on one kind of GPU: one stream, no atomics, and a workspace of its own, which lies beside the
/// arena and its budget.
class cublas_products {
 public:
  static constexpr deepum::bytes workspace_size{std::uint64_t{32} << 20};  // what cuBLAS recommends for Hopper

  /// @param of_floats  How floats are multiplied.
  /// @errors           `deepum::status::device_failure`.
  explicit cublas_products(cublasComputeType_t of_floats = CUBLAS_COMPUTE_32F_PEDANTIC) : of_floats_(of_floats) {
    check_cuda(cudaMalloc(&workspace_, workspace_size.count), "cudaMalloc");
    if (const cublasStatus_t result = cublasCreate(&handle_); result != CUBLAS_STATUS_SUCCESS) {
      (void)cudaFree(workspace_);
      check_cublas(result, "cublasCreate");
    }
    check_cublas(cublasSetAtomicsMode(handle_, CUBLAS_ATOMICS_NOT_ALLOWED), "cublasSetAtomicsMode");
    check_cublas(
        cublasSetMathMode(
            handle_, static_cast<cublasMath_t>(CUBLAS_DEFAULT_MATH | CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION)),
        "cublasSetMathMode");
  }
  ~cublas_products() {
    (void)cublasDestroy(handle_);  // waits for the device
    (void)cudaFree(workspace_);
  }
  cublas_products(const cublas_products&) = delete;
  cublas_products& operator=(const cublas_products&) = delete;

  /// Enqueues C = A * B or C += A * B.
  /// @param c        Its rows are contiguous.
  /// @param batches  More than one of them.
  /// @errors         `deepum::status::device_failure`.
  template <class C, class T>
  void multiply(cudaStream_t stream, result how, matrix<C> c, matrix<const T> a, matrix<const T> b,
                product_batch batch = {}) {
    use(stream);
    const blas_layout left = layout_of_transposed(b);  // C^T = B^T * A^T
    const blas_layout right = layout_of_transposed(a);
    const blas_layout out = layout_of_transposed(c);
    deepum::expects(!out.transposed && a.columns == b.rows && c.rows == a.rows && c.columns == b.columns,
                    "a matrix product of shapes that do not fit");
    constexpr float one = 1.0F;
    const float old = how == result::add ? 1.0F : 0.0F;
    const cublasComputeType_t compute = std::is_same_v<T, float> ? of_floats_ : CUBLAS_COMPUTE_32F;
    deepum::interop::enqueue_gemm(handle_, {c.columns, c.rows, a.columns, operation(left), operation(right)},
                                  {batch.count, batch.count != 1}, &one, {b.data, type_of<T>, left.stride, batch.b},
                                  {a.data, type_of<T>, right.stride, batch.a}, &old,
                                  {c.data, type_of<C>, out.stride, batch.c}, compute);
  }
  /// Enqueues y += alpha * x.
  /// @errors  `deepum::status::device_failure`.
  void add_scaled(cudaStream_t stream, std::int64_t n, float alpha, const float* x, float* y) {
    use(stream);
    check_cublas(cublasSaxpy_64(handle_, n, &alpha, x, 1, y, 1), "cublasSaxpy_64");
  }

 private:
  template <class T>
  static constexpr cudaDataType_t type_of = std::is_same_v<T, float> ? CUDA_R_32F : CUDA_R_16BF;

  static cublasOperation_t operation(const blas_layout& l) { return l.transposed ? CUBLAS_OP_T : CUBLAS_OP_N; }

  void use(cudaStream_t stream) {
    if (used_ && stream == stream_) return;
    check_cublas(cublasSetStream(handle_, stream), "cublasSetStream");
    // A new stream comes with cuBLAS's own workspace.
    check_cublas(cublasSetWorkspace(handle_, workspace_, workspace_size.count), "cublasSetWorkspace");
    stream_ = stream;
    used_ = true;
  }

  cublasComputeType_t of_floats_;
  void* workspace_ = nullptr;
  cublasHandle_t handle_ = nullptr;
  cudaStream_t stream_ = nullptr;
  bool used_ = false;
};

}  // namespace train_gpt
