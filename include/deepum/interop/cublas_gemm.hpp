#pragma once

#include <deepum/interop/library_status.hpp>

#include <cublas_v2.h>

#include <cstdint>
#include <source_location>

namespace deepum {
inline namespace v0 {
namespace interop {

/// @errors  `status::device_failure`, with the number and words of cuBLAS.
inline void check_cublas(cublasStatus_t result, const char* api,
                         std::source_location where = std::source_location::current()) {
  detail::check_library(result, CUBLAS_STATUS_SUCCESS, cublasGetStatusString, api, where);
}

/// C = alpha * op(A) * op(B) + beta * C: C has m rows and n columns, op(A) k columns. Matrices are column-major.
struct gemm_shape {
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
  cublasOperation_t op_a = CUBLAS_OP_N;
  cublasOperation_t op_b = CUBLAS_OP_N;
};

/// A matrix of a product, or the first one of a batch.
template <class Pointer>
struct gemm_matrix {
  Pointer data{};            ///< `const void*`, or `void*` for C
  cudaDataType_t type{};     ///< of its elements
  std::int64_t leading = 0;  ///< elements from one column as it is stored to the next
  std::int64_t stride = 0;   ///< elements to the next matrix of the batch
};

/// Products of one shape that are enqueued as one.
struct gemm_batch {
  std::int64_t count = 1;
  bool strided = false;  ///< by cublasGemmStridedBatchedEx, also where there is only one; else by cublasGemmEx
};

/// Enqueues a product to the stream of the handle, or a batch of products of one shape. Declares nothing.
/// @param alpha, beta  In the type that it computes with.
/// @errors             `status::device_failure`.
inline void enqueue_gemm(cublasHandle_t handle, const gemm_shape& shape, gemm_batch batch, const void* alpha,
                         const gemm_matrix<const void*>& a, const gemm_matrix<const void*>& b, const void* beta,
                         const gemm_matrix<void*>& c, cublasComputeType_t compute,
                         cublasGemmAlgo_t algorithm = CUBLAS_GEMM_DEFAULT) {
  if (!batch.strided) {
    check_cublas(
        cublasGemmEx_64(handle, shape.op_a, shape.op_b, shape.m, shape.n, shape.k, alpha, a.data, a.type, a.leading,
                        b.data, b.type, b.leading, beta, c.data, c.type, c.leading, compute, algorithm),
        "cublasGemmEx_64");
    return;
  }
  check_cublas(cublasGemmStridedBatchedEx_64(handle, shape.op_a, shape.op_b, shape.m, shape.n, shape.k, alpha, a.data,
                                             a.type, a.leading, a.stride, b.data, b.type, b.leading, b.stride, beta,
                                             c.data, c.type, c.leading, c.stride, batch.count, compute, algorithm),
               "cublasGemmStridedBatchedEx_64");
}

}  // namespace interop
}  // namespace v0
}  // namespace deepum
