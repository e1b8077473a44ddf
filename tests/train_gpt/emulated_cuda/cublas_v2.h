#pragma once

#include "../../../examples/train_gpt/bf16.hpp"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

// The part of cuBLAS that train_gpt uses, by its documentation: matrices are column-major.

enum cublasStatus_t { CUBLAS_STATUS_SUCCESS = 0, CUBLAS_STATUS_INVALID_VALUE = 7 };
enum cublasAtomicsMode_t { CUBLAS_ATOMICS_NOT_ALLOWED = 0 };
enum cublasMath_t { CUBLAS_DEFAULT_MATH = 0, CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION = 16 };
enum cublasComputeType_t { CUBLAS_COMPUTE_32F = 68, CUBLAS_COMPUTE_32F_PEDANTIC = 69 };
enum cublasOperation_t { CUBLAS_OP_N = 0, CUBLAS_OP_T = 1 };
enum cudaDataType_t { CUDA_R_32F = 0, CUDA_R_16BF = 14 };
enum cublasGemmAlgo_t { CUBLAS_GEMM_DEFAULT = -1 };
using cublasHandle_t = void*;

inline const char* cublasGetStatusString(cublasStatus_t /*s*/) { return "an error of the emulation"; }
inline cublasStatus_t cublasCreate(cublasHandle_t* /*handle*/) { return CUBLAS_STATUS_SUCCESS; }
inline cublasStatus_t cublasDestroy(cublasHandle_t /*handle*/) { return CUBLAS_STATUS_SUCCESS; }
inline cublasStatus_t cublasSetAtomicsMode(cublasHandle_t /*handle*/, cublasAtomicsMode_t /*mode*/) {
  return CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t cublasSetMathMode(cublasHandle_t /*handle*/, cublasMath_t /*mode*/) {
  return CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t cublasSetStream(cublasHandle_t /*handle*/, cudaStream_t /*stream*/) {
  return CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t cublasSetWorkspace(cublasHandle_t /*handle*/, void* /*p*/, std::size_t /*size*/) {
  return CUBLAS_STATUS_SUCCESS;
}

namespace emulated {

inline float element(const void* p, cudaDataType_t type, long long i) {
  return type == CUDA_R_32F ? static_cast<const float*>(p)[i]
                            : train_gpt::widened(static_cast<const train_gpt::bf16*>(p)[i]);
}
inline const void* moved(const void* p, cudaDataType_t type, long long elements) {
  return static_cast<const char*>(p) + elements * (type == CUDA_R_32F ? 4 : 2);
}

}  // namespace emulated

inline cublasStatus_t cublasGemmEx_64(cublasHandle_t /*handle*/, cublasOperation_t op_a, cublasOperation_t op_b,
                                      std::int64_t m, std::int64_t n, std::int64_t k, const void* alpha, const void* a,
                                      cudaDataType_t type_a, std::int64_t lda, const void* b, cudaDataType_t type_b,
                                      std::int64_t ldb, const void* beta, void* c, cudaDataType_t type_c,
                                      std::int64_t ldc, cublasComputeType_t /*compute*/,
                                      cublasGemmAlgo_t /*algorithm*/) {
  if (lda < std::max<std::int64_t>(1, op_a == CUBLAS_OP_N ? m : k) ||
      ldb < std::max<std::int64_t>(1, op_b == CUBLAS_OP_N ? k : n) || ldc < std::max<std::int64_t>(1, m) ||
      type_a != type_b) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  const float old = *static_cast<const float*>(beta);
  for (long long j = 0; j < n; ++j) {
    for (long long i = 0; i < m; ++i) {
      float sum = 0;
      for (long long l = 0; l < k; ++l) {
        sum += emulated::element(a, type_a, op_a == CUBLAS_OP_N ? l * lda + i : i * lda + l) *
               emulated::element(b, type_b, op_b == CUBLAS_OP_N ? j * ldb + l : l * ldb + j);
      }
      sum *= *static_cast<const float*>(alpha);
      if (old != 0) sum += old * emulated::element(c, type_c, j * ldc + i);  // beta 0: C may hold anything
      if (type_c == CUDA_R_32F) {
        static_cast<float*>(c)[j * ldc + i] = sum;
      } else {
        train_gpt::store(static_cast<train_gpt::bf16*>(c)[j * ldc + i], sum);
      }
    }
  }
  return CUBLAS_STATUS_SUCCESS;
}

inline cublasStatus_t cublasSaxpy_64(cublasHandle_t /*handle*/, std::int64_t n, const float* alpha, const float* x,
                                     std::int64_t step_x, float* y, std::int64_t step_y) {
  for (std::int64_t i = 0; i < n; ++i) {
    y[i * step_y] += *alpha * x[i * step_x];
  }
  return CUBLAS_STATUS_SUCCESS;
}

inline cublasStatus_t cublasGemmStridedBatchedEx_64(
    cublasHandle_t handle, cublasOperation_t op_a, cublasOperation_t op_b, std::int64_t m, std::int64_t n,
    std::int64_t k, const void* alpha, const void* a, cudaDataType_t type_a, std::int64_t lda, long long stride_a,
    const void* b, cudaDataType_t type_b, std::int64_t ldb, long long stride_b, const void* beta, void* c,
    cudaDataType_t type_c, std::int64_t ldc, long long stride_c, std::int64_t count, cublasComputeType_t compute,
    cublasGemmAlgo_t algorithm) {
  for (std::int64_t i = 0; i < count; ++i) {
    const cublasStatus_t result =
        cublasGemmEx_64(handle, op_a, op_b, m, n, k, alpha, emulated::moved(a, type_a, i * stride_a), type_a, lda,
                        emulated::moved(b, type_b, i * stride_b), type_b, ldb, beta,
                        const_cast<void*>(emulated::moved(c, type_c, i * stride_c)), type_c, ldc, compute, algorithm);
    if (result != CUBLAS_STATUS_SUCCESS) return result;
  }
  return CUBLAS_STATUS_SUCCESS;
}
