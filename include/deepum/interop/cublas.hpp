#pragma once

#include <deepum/arena.hpp>
#include <deepum/core/launch.hpp>
#include <deepum/error.hpp>
#include <deepum/interop/cublas_gemm.hpp>
#include <deepum/interop/scratch.hpp>
#include <deepum/operand.hpp>
#include <deepum/stream.hpp>
#include <deepum/units.hpp>

#include <cuComplex.h>
#include <library_types.h>

#include <cublas_v2.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace deepum {
inline namespace v0 {
namespace interop {

/// How a product is computed.
struct gemm_options {
  /// Nothing: sums in the precision of `scalar_of<C>`.
  std::optional<cublasComputeType_t> compute{};
  cublasGemmAlgo_t algorithm = CUBLAS_GEMM_DEFAULT;
};

namespace detail {

template <class T>
struct blas_element;  // of matrices that cublasGemmEx takes
template <>
struct blas_element<float> {
  using scalar = float;
  static constexpr cudaDataType_t type = CUDA_R_32F;
  static constexpr cublasComputeType_t compute = CUBLAS_COMPUTE_32F;
};
template <>
struct blas_element<double> {
  using scalar = double;
  static constexpr cudaDataType_t type = CUDA_R_64F;
  static constexpr cublasComputeType_t compute = CUBLAS_COMPUTE_64F;
};
template <>
struct blas_element<__half> : blas_element<float> {
  static constexpr cudaDataType_t type = CUDA_R_16F;
};
template <>
struct blas_element<__nv_bfloat16> : blas_element<float> {
  static constexpr cudaDataType_t type = CUDA_R_16BF;
};
template <>
struct blas_element<std::int8_t> {
  static constexpr cudaDataType_t type = CUDA_R_8I;
};
template <>
struct blas_element<std::int32_t> {
  using scalar = std::int32_t;
  static constexpr cudaDataType_t type = CUDA_R_32I;
  static constexpr cublasComputeType_t compute = CUBLAS_COMPUTE_32I;
};
template <>
struct blas_element<cuComplex> {
  using scalar = cuComplex;
  static constexpr cudaDataType_t type = CUDA_C_32F;
  static constexpr cublasComputeType_t compute = CUBLAS_COMPUTE_32F;
};
template <>
struct blas_element<cuDoubleComplex> {
  using scalar = cuDoubleComplex;
  static constexpr cudaDataType_t type = CUDA_C_64F;
  static constexpr cublasComputeType_t compute = CUBLAS_COMPUTE_64F;
};

template <class Scalar>
[[nodiscard]] bool is_zero(const Scalar& s) {
  if constexpr (std::is_arithmetic_v<Scalar>) {
    return s == 0;
  } else {
    return s.x == 0 && s.y == 0;
  }
}

/// A stored matrix: `columns` columns of `rows` elements, the first ones `leading` elements apart.
struct stored_matrix {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t leading = 0;
  std::int64_t stride = 0;  // from one matrix of a batch to the next

  [[nodiscard]] bool valid(std::int64_t count) const {
    return rows >= 0 && columns >= 0 && leading >= std::max<std::int64_t>(1, rows) && stride >= 0 && countable(count);
  }
  /// Elements from the first to the last one.
  [[nodiscard]] std::uint64_t extent(std::int64_t count = 1) const {
    if (rows == 0 || columns == 0 || count == 0) {
      return 0;
    }
    return static_cast<std::uint64_t>((count - 1) * stride + (columns - 1) * leading + rows);
  }
  /// Its elements can be counted.
  [[nodiscard]] bool countable(std::int64_t count) const {
    std::int64_t batch = 0;
    std::int64_t matrix = 0;
    std::int64_t all = 0;
    return !__builtin_mul_overflow(std::max<std::int64_t>(count, 1), std::max(stride, rows), &batch) &&
           !__builtin_mul_overflow(std::max<std::int64_t>(columns, 1), leading, &matrix) &&
           !__builtin_add_overflow(batch, matrix, &all) && !__builtin_add_overflow(all, rows, &all);
  }
  /// No element of others lies between its own.
  [[nodiscard]] bool dense(std::int64_t count = 1) const {
    return (leading == rows || columns == 1) && (count == 1 || stride == rows * columns);
  }
};

}  // namespace detail

/// What alpha and beta are for a C of these elements: float for half precision, the type itself otherwise.
template <class C>
using scalar_of = typename detail::blas_element<C>::scalar;

/// cuBLAS on one stream of an arena: every call is a launch that declares what it touches, the workspace too.
///
/// The workspace lies in the arena, within its budget. It belongs to this object, so launches of other streams, which
/// may run at the same time, need an object of their own.
///
/// Threads: those of the stream. Ends before the stream and the arena.
///
///     deepum::interop::cublas_calls blas{arena, s};
///     blas.gemm("fc1", {.m = m, .n = n, .k = k}, 1.0F, w, m, x, k, 0.0F, y, m);
template <memory_kind Memory>
class cublas_calls {
 public:
  static constexpr bytes default_workspace = 32_MiB;  // what NVIDIA recommends for Hopper

  /// Creates a handle. Cost: some milliseconds.
  /// @param workspace  0: none, cuBLAS then takes memory of its own beside the arena.
  /// @errors  `status::device_failure`, those of `arena::allocate`.
  cublas_calls(arena<Memory>& owner, stream<Memory>& s, bytes workspace = default_workspace)
      : cublas_calls(owner, s, workspace, create()) {}
  /// Uses a handle of the program's, which is bound to this stream and workspace until this ends, and to the default
  /// stream and its workspace then. Its pointer mode becomes that of the host.
  /// @errors  As above.
  cublas_calls(arena<Memory>& owner, stream<Memory>& s, cublasHandle_t handle, bytes workspace = default_workspace)
      : cublas_calls(owner, s, workspace, owned_handle(handle, release{false})) {}
  cublas_calls(const cublas_calls&) = delete;
  cublas_calls& operator=(const cublas_calls&) = delete;

  /// C = alpha * op(A) * op(B) + beta * C, by cublasGemmEx.
  ///
  /// Declares A and B as read, from their first to their last element. With beta = 0 cuBLAS does not read C, which is
  /// then overwritten if its columns lie side by side (`ldc` = m, or one column); otherwise, since what lies between
  /// them stays as it is, and with any other beta, it is updated.
  /// @param lda, ldb, ldc  Elements from one column as it is stored to the next.
  /// @errors  `status::invalid_argument` for sizes that do not fit, before anything is launched;
  ///          `status::device_failure`; those of `stream::call`. Cost beside cuBLAS's: that of a launch.
  template <class A, class B, class C>
  launch_id gemm(std::string_view name, const gemm_shape& shape, scalar_of<C> alpha, const A* a, std::int64_t lda,
                 const B* b, std::int64_t ldb, scalar_of<C> beta, C* c, std::int64_t ldc,
                 const gemm_options& options = {}) {
    return multiply(name, shape, {}, alpha, a, {lda}, b, {ldb}, beta, c, {ldc}, options);
  }

  /// `count` products of one shape, by cublasGemmStridedBatchedEx, as one launch. Declares as `gemm` does: each matrix
  /// of the batch, and what lies between them; C is overwritten if its matrices lie side by side too.
  /// @param stride_a, stride_b, stride_c  Elements from the first one of a matrix to that of the next; 0 for an A or a
  /// B
  ///        that all products share.
  template <class A, class B, class C>
  launch_id gemm_strided_batched(std::string_view name, const gemm_shape& shape, std::int64_t count, scalar_of<C> alpha,
                                 const A* a, std::int64_t lda, std::int64_t stride_a, const B* b, std::int64_t ldb,
                                 std::int64_t stride_b, scalar_of<C> beta, C* c, std::int64_t ldc,
                                 std::int64_t stride_c, const gemm_options& options = {}) {
    return multiply(name, shape, {count, true}, alpha, a, {lda, stride_a}, b, {ldb, stride_b}, beta, c, {ldc, stride_c},
                    options);
  }

  /// Any other calls of cuBLAS, as one launch.
  /// @param operands  All that they touch beside the workspace. An empty list means that this is not known.
  /// @param enqueue   `enqueue(cublasHandle_t) -> cublasStatus_t`. The handle is set to the stream; leave it so.
  /// @errors  `status::device_failure`, what `enqueue` throws, those of `stream::call`.
  template <class Enqueue>
  launch_id call(std::string_view name, std::initializer_list<operand> operands, Enqueue&& enqueue) {
    return call(name, std::span<const operand>(operands.begin(), operands.size()), std::forward<Enqueue>(enqueue));
  }
  /// The same with operands that are counted at run time.
  template <class Enqueue>
  launch_id call(std::string_view name, std::span<const operand> operands, Enqueue&& enqueue) {
    declared_.assign(operands.begin(), operands.end());
    if (!declared_.empty()) {  // of a launch that may touch anything nothing is said
      declared_.push_back(workspace_.operand());
    }
    workspace_.used_by(stream_);
    return stream_.call(name, declared_, [&](cudaStream_t) { check_cublas(enqueue(handle()), "cuBLAS"); });
  }

  /// For settings: math mode, atomics. Stream, workspace and pointer mode stay as they are.
  [[nodiscard]] cublasHandle_t handle() const { return handle_.get(); }

 private:
  template <class T>
  static constexpr cudaDataType_t type = detail::blas_element<T>::type;

  /// Ends a handle of its own. One of the program's no longer knows the workspace: setting a stream takes it away.
  struct release {
    bool owns = true;
    void operator()(cublasHandle_t h) const { (void)(owns ? cublasDestroy(h) : cublasSetStream(h, nullptr)); }
  };
  using owned_handle = std::unique_ptr<std::remove_pointer_t<cublasHandle_t>, release>;

  struct layout {
    std::int64_t leading = 0;
    std::int64_t stride = 0;
  };
  struct stored_shape {
    detail::stored_matrix a{};
    detail::stored_matrix b{};
    detail::stored_matrix c{};
  };

  cublas_calls(arena<Memory>& owner, stream<Memory>& s, bytes workspace, owned_handle handle)
      : stream_(s),
        workspace_(owner, workspace),
        handle_(std::move(handle)) {
    check_cublas(cublasSetStream(handle_.get(), s.native().native()), "cublasSetStream");
    if (workspace.count != 0) {
      check_cublas(cublasSetWorkspace(handle_.get(), workspace_.data(), workspace.count), "cublasSetWorkspace");
    }
    check_cublas(cublasSetPointerMode(handle_.get(), CUBLAS_POINTER_MODE_HOST), "cublasSetPointerMode");
  }
  static owned_handle create() {
    cublasHandle_t made = nullptr;
    check_cublas(cublasCreate(&made), "cublasCreate");
    return owned_handle(made);
  }

  static stored_shape checked(const gemm_shape& s, layout a, layout b, layout c, std::int64_t count) {
    const bool a_as_is = s.op_a == CUBLAS_OP_N;
    const bool b_as_is = s.op_b == CUBLAS_OP_N;
    const stored_shape stored{{a_as_is ? s.m : s.k, a_as_is ? s.k : s.m, a.leading, a.stride},
                              {b_as_is ? s.k : s.n, b_as_is ? s.n : s.k, b.leading, b.stride},
                              {s.m, s.n, c.leading, c.stride}};
    if (s.k < 0 || count < 0 || !stored.a.valid(count) || !stored.b.valid(count) || !stored.c.valid(count)) {
      throw error(
          status::invalid_argument,
          "a matrix product whose sizes are negative or too large to count, or whose leading dimensions are less "
          "than the rows: m " +
              std::to_string(s.m) + ", n " + std::to_string(s.n) + ", k " + std::to_string(s.k) + ", lda " +
              std::to_string(a.leading) + ", ldb " + std::to_string(b.leading) + ", ldc " + std::to_string(c.leading) +
              ", count " + std::to_string(count));
    }
    return stored;
  }

  template <class A, class B, class C>
  launch_id multiply(std::string_view name, const gemm_shape& shape, gemm_batch batch, const scalar_of<C>& alpha,
                     const A* a, layout of_a, const B* b, layout of_b, const scalar_of<C>& beta, C* c, layout of_c,
                     const gemm_options& options) {
    const std::int64_t products = batch.count;
    const stored_shape stored = checked(shape, of_a, of_b, of_c, products);
    const std::uint64_t n = stored.c.extent(products);
    const bool overwritten = detail::is_zero(beta) && stored.c.dense(products);
    workspace_.used_by(stream_);
    return stream_.call(name,
                        {reads(a, stored.a.extent(products)), reads(b, stored.b.extent(products)),
                         overwritten ? operand(overwrites(c, n)) : operand(updates(c, n)), workspace_.operand()},
                        [&](cudaStream_t) {
                          with_scalars<C>(
                              options, alpha, beta,
                              [&](const void* p_alpha, const void* p_beta, cublasComputeType_t compute) {
                                enqueue_gemm(handle(), shape, batch, p_alpha, {a, type<A>, of_a.leading, of_a.stride},
                                             {b, type<B>, of_b.leading, of_b.stride}, p_beta,
                                             {c, type<C>, of_c.leading, of_c.stride}, compute, options.algorithm);
                              });
                        });
  }

  /// cuBLAS takes the scalars in the type that it computes with, which for half precision is chosen at run time.
  template <class C, class Enqueue>
  static void with_scalars(const gemm_options& options, const scalar_of<C>& alpha, const scalar_of<C>& beta,
                           Enqueue&& enqueue) {
    const cublasComputeType_t compute = options.compute.value_or(detail::blas_element<C>::compute);
    if constexpr (std::is_same_v<scalar_of<C>, float>) {
      if (compute == CUBLAS_COMPUTE_16F || compute == CUBLAS_COMPUTE_16F_PEDANTIC) {
        const __half half_alpha = __float2half(alpha);
        const __half half_beta = __float2half(beta);
        enqueue(&half_alpha, &half_beta, compute);
        return;
      }
    }
    enqueue(&alpha, &beta, compute);
  }

  stream<Memory>& stream_;
  scratch<Memory> workspace_;
  owned_handle handle_;
  std::vector<operand> declared_{};
};

}  // namespace interop
}  // namespace v0
}  // namespace deepum
