// cuBLAS and the kernels of the benchmark, on the fake CUDA runtime. They do not compute what the real ones do; they
// touch the same memory, and what they write depends on all that they are given, so that wrong contents are seen.

#include "gpu_bench/host_kernels.hpp"

#include "cuda/fake_cuda.hpp"
#include "examples/train_gpt/bf16.hpp"
#include "examples/train_gpt/kernels_cuda.hpp"
#include "gpu/library/kernels.hpp"
#include "gpu/library/layer_kernels.hpp"
#include "property/random_program.hpp"

#include <cublas_v2.h>

#include <cmath>
#include <cstddef>
#include <cstdint>

using deepum_test::device_touch;

namespace {

using access = deepum::access;  // POSIX has one, too

using index = std::int64_t;
constexpr index rows = deepum_test::model_rows;

// Keeps numbers small, and nothing of them lost at once.
float wrap(float x) { return 0.75F * (x - static_cast<float>(static_cast<std::int64_t>(x))); }

template <class T>
const T* in(const T* p, index n) {
  device_touch(p, static_cast<std::size_t>(n) * sizeof(T), access::read);
  return p;
}
template <class T>
T* out(T* p, index n, access mode = access::update) {
  device_touch(p, static_cast<std::size_t>(n) * sizeof(T), mode);
  return p;
}

void embed_forward(float* x, const std::int32_t* tokens, const float* token_table, const float* position_table, index r,
                   index context, index width) {
  in(tokens, r);
  in(token_table, 256 * width);
  in(position_table, context * width);
  out(x, r * width);
  for (index i = 0; i < r * width; ++i)
    x[i] = wrap(token_table[tokens[i / width] * width + i % width] + position_table[i / width % context * width]);
}
void embed_backward(float* d_token, float* d_position, const float* dx, const std::int32_t* tokens, index r,
                    index context, index width, index vocabulary) {
  in(tokens, r);
  in(dx, r * width);
  out(d_token, vocabulary * width);
  out(d_position, context * width);
  for (index i = 0; i < r * width; ++i) {
    d_token[tokens[i / width] * width + i % width] += wrap(dx[i]);
    d_position[i / width % context * width + i % width] += wrap(dx[i]);
  }
}
void layernorm_forward(float* y, float* moments, const float* x, const float* scale, const float* shift, index width) {
  in(x, rows * width);
  in(scale, width);
  in(shift, width);
  out(y, rows * width);
  out(moments, 2 * rows);
  for (index i = 0; i < rows * width; ++i)
    y[i] = wrap(x[i] * scale[i % width] + shift[i % width] + 0.1F);
  for (index r = 0; r < 2 * rows; ++r)
    moments[r] = wrap(x[r / 2 * width] + 0.3F);
}
void layernorm_backward_input(float* dx, const float* dy, const float* x, const float* moments, const float* scale,
                              index width) {
  in(dy, rows * width);
  in(x, rows * width);
  in(moments, 2 * rows);
  in(scale, width);
  out(dx, rows * width);
  for (index i = 0; i < rows * width; ++i)
    dx[i] = wrap(dx[i] + dy[i] * scale[i % width] + x[i] * moments[i / width]);
}
void layernorm_backward_weight(float* d_scale, float* d_shift, const float* dy, const float* x, const float* moments,
                               index r, index width) {
  in(dy, r * width);
  in(x, r * width);
  in(moments, 2 * r);
  out(d_scale, width);
  out(d_shift, width);
  for (index i = 0; i < r * width; ++i) {
    d_scale[i % width] += wrap(dy[i] * x[i] + moments[i / width]);
    d_shift[i % width] += wrap(dy[i]);
  }
}
void bias_forward(float* y, const float* bias, index r, index width) {
  in(bias, width);
  out(y, r * width);
  for (index i = 0; i < r * width; ++i)
    y[i] = bias[i % width];
}
void bias_backward(float* d_bias, const float* dy, index r, index width) {
  in(dy, r * width);
  out(d_bias, width);
  for (index i = 0; i < r * width; ++i)
    d_bias[i % width] += wrap(dy[i]);
}
void residual_forward(float* y, const float* a, const float* b, index n) {
  in(a, n);
  in(b, n);
  out(y, n);
  for (index i = 0; i < n; ++i)
    y[i] = wrap(a[i] + b[i] + 0.2F);
}
void gelu_forward(float* y, const float* x, index n) {
  in(x, n);
  out(y, n);
  for (index i = 0; i < n; ++i)
    y[i] = wrap(2 * x[i] + 0.7F);
}
void gelu_backward(float* d, const float* x, index n) {
  in(x, n);
  out(d, n);
  for (index i = 0; i < n; ++i)
    d[i] = wrap(d[i] * 3 + x[i]);
}
void softmax_forward(float* scores, index context, float scale) {
  const index n = deepum_test::model_heads * context * rows;
  out(scores, n);
  for (index i = 0; i < n; ++i)
    scores[i] = wrap(scores[i] * scale + 0.4F);
}
void softmax_backward(float* d, const float* p, index context, float scale) {
  const index n = deepum_test::model_heads * context * context;  // of one sequence
  in(p, n);
  out(d, n);
  for (index i = 0; i < n; ++i)
    d[i] = wrap(d[i] * scale + p[i]);
}
void cross_entropy(float* losses, float* d_logits, const float* logits, const std::int32_t* targets, index r,
                   index vocabulary) {
  in(logits, r * vocabulary);
  in(targets, r);
  out(losses, r);
  out(d_logits, r * vocabulary);
  for (index i = 0; i < r; ++i)
    losses[i] = 0;
  for (index i = 0; i < r * vocabulary; ++i) {
    d_logits[i] = wrap(logits[i] + static_cast<float>(targets[i / vocabulary]) * 0.01F);
    losses[i / vocabulary] += logits[i];
  }
}
void adamw(float* weight, float* /*copy*/, const float* gradient, float* first, float* second, index n, float rate,
           float decay, float correction1, float correction2) {
  in(gradient, n);
  out(weight, n);
  out(first, n);
  out(second, n);
  for (index i = 0; i < n; ++i) {
    first[i] = wrap(first[i] * 0.9F + gradient[i]);
    second[i] = wrap(second[i] * 0.8F + first[i] + correction1);
    weight[i] = wrap(weight[i] + rate * first[i] + second[i] * correction2 - decay * weight[i]);
  }
}
void sum_of_floats(double* total, const float* values, index n) {
  in(values, n);
  out(total, 1);
  *total = 0;
  for (index i = 0; i < n; ++i)
    *total += values[i];
}

template <class T>
struct operand_of_product {
  const T* data;
  std::int64_t stride;
  std::int64_t batch_stride;
  bool transposed;
};
template <class C, class T>
void gemm(index m, index n, index k, operand_of_product<T> a, operand_of_product<T> b, float beta, C* c,
          std::int64_t c_stride, std::int64_t c_batch, index batches) {
  using train_gpt::widened;
  for (index s = 0; s < batches; ++s) {
    const T* x = a.data + s * a.batch_stride;
    const T* y = b.data + s * b.batch_stride;
    C* z = c + s * c_batch;
    in(x, (a.transposed ? m - 1 : k - 1) * a.stride + (a.transposed ? k : m));
    in(y, (b.transposed ? k - 1 : n - 1) * b.stride + (b.transposed ? n : k));
    out(z, (n - 1) * c_stride + m);
    for (index j = 0; j < n; ++j) {
      for (index i = 0; i < m; ++i) {
        float sum = beta == 0 ? 0 : widened(z[j * c_stride + i]);
        for (index l = (i + j) % 7; l < k; l += 1 + k / 4) {
          sum += widened(x[a.transposed ? i * a.stride + l : l * a.stride + i]) *
                 widened(y[b.transposed ? l * b.stride + j : j * b.stride + l]);
        }
        train_gpt::store(z[j * c_stride + i], wrap(sum + 0.6F));
      }
    }
  }
}

template <class C, class T>
cublasStatus_t multiply_as(cudaStream_t stream, cublasOperation_t ta, cublasOperation_t tb, index m, index n, index k,
                           const void* a, index lda, index sa, const void* b, index ldb, index sb, const void* beta,
                           void* c, index ldc, index sc, index batches) {
  operand_of_product<T> left{static_cast<const T*>(a), lda, sa, ta != CUBLAS_OP_N};
  operand_of_product<T> right{static_cast<const T*>(b), ldb, sb, tb != CUBLAS_OP_N};
  float old = *static_cast<const float*>(beta);
  auto* to = static_cast<C*>(c);
  void* arguments[] = {&m, &n, &k, &left, &right, &old, &to, &ldc, &sc, &batches};
  return cudaLaunchKernel(reinterpret_cast<const void*>(gemm<C, T>), dim3(1), dim3(1), arguments, 0, stream) ==
                 cudaSuccess
             ? CUBLAS_STATUS_SUCCESS
             : CUBLAS_STATUS_EXECUTION_FAILED;
}
cublasStatus_t multiply(cudaStream_t stream, cublasOperation_t ta, cublasOperation_t tb, index m, index n, index k,
                        const void* a, cudaDataType of_operands, index lda, index sa, const void* b, index ldb,
                        index sb, const void* beta, void* c, cudaDataType of_result, index ldc, index sc,
                        index batches) {
  using train_gpt::bf16;
  const auto as = [&](auto chosen) {
    return chosen(stream, ta, tb, m, n, k, a, lda, sa, b, ldb, sb, beta, c, ldc, sc, batches);
  };
  if (of_operands == CUDA_R_32F) return as(multiply_as<float, float>);
  return of_result == CUDA_R_32F ? as(multiply_as<float, bf16>) : as(multiply_as<bf16, bf16>);
}
void add_scaled(float* y, const float* x, index n, float factor) {
  in(x, n);
  out(y, n);
  for (index i = 0; i < n; ++i)
    y[i] += factor * x[i];
}
// What a handle points at.
cudaStream_t& stream_of(cublasHandle_t handle) { return *reinterpret_cast<cudaStream_t*>(handle); }

}  // namespace

extern "C" {
cublasStatus_t cublasCreate_v2(cublasHandle_t* handle) {
  *handle = reinterpret_cast<cublasHandle_t>(new cudaStream_t{});
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasDestroy_v2(cublasHandle_t handle) {
  delete &stream_of(handle);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetStream_v2(cublasHandle_t handle, cudaStream_t stream) {
  stream_of(handle) = stream;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetWorkspace_v2(cublasHandle_t, void*, std::size_t) { return CUBLAS_STATUS_SUCCESS; }
cublasStatus_t cublasSetAtomicsMode(cublasHandle_t, cublasAtomicsMode_t) { return CUBLAS_STATUS_SUCCESS; }
cublasStatus_t cublasSetMathMode(cublasHandle_t, cublasMath_t) { return CUBLAS_STATUS_SUCCESS; }
const char* cublasGetStatusString(cublasStatus_t) { return "a status"; }
cublasStatus_t cublasSaxpy_v2_64(cublasHandle_t handle, std::int64_t n, const float* alpha, const float* x,
                                 std::int64_t, float* y, std::int64_t) {
  float factor = *alpha;
  void* arguments[] = {&y, &x, &n, &factor};
  return cudaLaunchKernel(reinterpret_cast<const void*>(add_scaled), dim3(1), dim3(1), arguments, 0,
                          stream_of(handle)) == cudaSuccess
             ? CUBLAS_STATUS_SUCCESS
             : CUBLAS_STATUS_EXECUTION_FAILED;
}
cublasStatus_t cublasGemmEx_64(cublasHandle_t handle, cublasOperation_t ta, cublasOperation_t tb, std::int64_t m,
                               std::int64_t n, std::int64_t k, const void*, const void* a, cudaDataType type,
                               std::int64_t lda, const void* b, cudaDataType, std::int64_t ldb, const void* beta,
                               void* c, cudaDataType of_result, std::int64_t ldc, cublasComputeType_t,
                               cublasGemmAlgo_t) {
  return multiply(stream_of(handle), ta, tb, m, n, k, a, type, lda, 0, b, ldb, 0, beta, c, of_result, ldc, 0, 1);
}
cublasStatus_t cublasGemmStridedBatchedEx_64(cublasHandle_t handle, cublasOperation_t ta, cublasOperation_t tb,
                                             std::int64_t m, std::int64_t n, std::int64_t k, const void*, const void* a,
                                             cudaDataType type, std::int64_t lda, long long sa, const void* b,
                                             cudaDataType, std::int64_t ldb, long long sb, const void* beta, void* c,
                                             cudaDataType of_result, std::int64_t ldc, long long sc,
                                             std::int64_t batches, cublasComputeType_t, cublasGemmAlgo_t) {
  return multiply(stream_of(handle), ta, tb, m, n, k, a, type, lda, sa, b, ldb, sb, beta, c, of_result, ldc, sc,
                  batches);
}
}

namespace train_gpt {

template <>
const cuda_kernels<float>& kernels_for<float>() {
  static const cuda_kernels<float> made{::embed_forward,
                                        ::embed_backward,
                                        ::layernorm_forward,
                                        ::layernorm_backward_input,
                                        ::layernorm_backward_weight,
                                        ::bias_forward,
                                        ::bias_backward,
                                        ::residual_forward,
                                        ::gelu_forward,
                                        ::gelu_backward,
                                        ::softmax_forward,
                                        ::softmax_backward,
                                        ::cross_entropy,
                                        ::adamw};
  return made;
}

cudaError_t sum_of(void* storage, std::size_t& size, double* total, const float* values, std::int64_t n,
                   cudaStream_t stream) {
  if (storage == nullptr) {
    size = 64;
    return cudaSuccess;
  }
  void* arguments[] = {&total, &values, &n};
  return cudaLaunchKernel(reinterpret_cast<const void*>(sum_of_floats), dim3(1), dim3(1), arguments, 0, stream);
}

}  // namespace train_gpt

namespace deepum_gpu_bench_kernels {
namespace {

void tiny(float* x, std::uint64_t n) {
  out(x, static_cast<std::int64_t>(n));
  for (std::uint64_t i = 0; i < n; ++i)
    x[i] += 1;
}
void touch_pieces(word* table, const word* which, word n, word value) {
  in(which, n);
  for (word p = 0; p < n; ++p) {
    word* piece = out(table + which[p] * piece_words, static_cast<std::int64_t>(piece_words));
    for (std::uint64_t i = 0; i < piece_words; ++i)
      piece[i] = 3U * piece[i] + value + static_cast<word>(i);
  }
}
void checksum(const word* x, std::uint64_t n, unsigned long long* total) {
  in(x, static_cast<std::int64_t>(n));
  out(total, 1);
  for (std::uint64_t i = 0; i < n; ++i)
    *total += x[i] * (i + 1);
}
void read_strided(const word* x, std::uint64_t n, std::uint64_t stride, unsigned long long* total) {
  in(x, static_cast<std::int64_t>(n));
  out(total, 1);
  for (std::uint64_t i = 0; i < n; i += stride)
    *total += x[i];
}
void advance(word* x, std::uint64_t n, word value) {
  out(x, static_cast<std::int64_t>(n));
  for (std::uint64_t i = 0; i < n; ++i)
    x[i] = 3U * x[i] + value + static_cast<word>(i);
}
void compute(float* x, word rounds) {
  out(x, 1);
  for (word i = 0; i < rounds; ++i)
    *x = *x * 0.999F + 1;
}
void adamw(float* weight, float* first, float* second, const float* gradient, std::uint64_t n, float rate) {
  const auto count = static_cast<std::int64_t>(n);
  in(gradient, count);
  out(weight, count);
  out(first, count);
  out(second, count);
  for (std::uint64_t i = 0; i < n; ++i) {
    first[i] = 0.9F * first[i] + 0.1F * gradient[i];
    second[i] = 0.999F * second[i] + 0.001F * gradient[i] * gradient[i];
    weight[i] -= rate * first[i] / (std::sqrt(second[i]) + 1e-8F);
  }
}
void fill(word* a, word n, word value) {
  out(a, n);
  for (word i = 0; i < n; ++i)
    a[i] = deepum_test::filled(i, value);
}
void mix(word* a, word n, const word* b, word m, word value) {
  in(b, std::min(n, m));
  out(a, n);
  for (word i = 0; i < n; ++i)
    a[i] = deepum_test::mixed(a[i], b[i % m], value);
}
void gather(word* a, word n, const word* b, word m, const word* places, word k, word value) {
  in(places, std::min(n, k));
  in(b, m);
  out(a, n);
  for (word i = 0; i < n; ++i)
    a[i] = deepum_test::mixed(a[i], b[places[i % k] % m], value);
}
void chase(word* a, word n, word* const* where, word m, word value) {
  in(where, 1);
  mix(a, n, *where, m, value);
}

}  // namespace

const kernels& all() {
  static const kernels made{tiny,  touch_pieces, checksum, read_strided, advance, compute,
                            adamw, fill,         mix,      gather,       chase};
  return made;
}

}  // namespace deepum_gpu_bench_kernels

namespace deepum_gpu_bench_kernels {
namespace {

using train_gpt::store;
using train_gpt::widened;

// The bits that are read count, whatever number they are.
template <class T>
void draw(T* x, count n, std::uint64_t seed, float scale) {
  out(x, n, access::overwrite);
  for (count i = 0; i < n; ++i)
    store(x[i], scale * drawn(static_cast<std::uint64_t>(i), seed));
}
template <class T>
void normalise(T* y, const T* x, count r, count width) {
  in(x, r * width);
  out(y, r * width, access::overwrite);
  for (count i = 0; i < r * width; ++i)
    store(y[i], wrap(2.5F * widened(x[i]) + widened(x[i / width * width]) + 0.1F));
}
template <class T>
void normalise_backward(T* d, const T* dy, const T* x, count r, count width) {
  in(dy, r * width);
  in(x, r * width);
  out(d, r * width);
  for (count i = 0; i < r * width; ++i)
    store(d[i], wrap(widened(d[i]) + 1.5F * widened(dy[i]) + widened(x[i]) + 0.2F));
}
template <class T>
void gate(T* y, const T* qkv, count r, count width) {
  in(qkv, 3 * r * width);
  out(y, r * width, access::overwrite);
  for (count i = 0; i < r * width; ++i) {
    const T* row = qkv + i / width * 3 * width + i % width;
    store(y[i], wrap(widened(row[0]) + 2 * widened(row[width]) + 3 * widened(row[2 * width])));
  }
}
template <class T>
void gate_backward(T* d_qkv, const T* dy, const T* qkv, count r, count width) {
  in(dy, r * width);
  in(qkv, 3 * r * width);
  out(d_qkv, 3 * r * width, access::overwrite);
  for (count i = 0; i < 3 * r * width; ++i)
    store(d_qkv[i], wrap(widened(dy[i / (3 * width) * width + i % width]) + 2 * widened(qkv[i])));
}
template <class T>
void gelu(T* y, const T* x, count n) {
  in(x, n);
  out(y, n);
  for (count i = 0; i < n; ++i)
    store(y[i], wrap(2 * widened(x[i]) + 0.7F));
}
template <class T>
void gelu_backward(T* d, const T* x, count n) {
  in(x, n);
  out(d, n);
  for (count i = 0; i < n; ++i)
    store(d[i], wrap(3 * widened(d[i]) + widened(x[i])));
}
template <class T>
void add(T* y, const T* a, const T* b, count n) {
  in(a, n);
  in(b, n);
  out(y, n, access::overwrite);
  for (count i = 0; i < n; ++i)
    store(y[i], wrap(widened(a[i]) + 2 * widened(b[i]) + 0.2F));
}
template <class T>
void loss(T* d, const T* x, count n, float factor) {
  in(x, n);
  out(d, n, access::overwrite);
  for (count i = 0; i < n; ++i)
    store(d[i], wrap(widened(x[i]) + factor));
}
template <class T>
void adamw_of_layer(float* master, T* copy, const float* gradient, float* moment1, float* moment2, count n, float rate,
                    float correction1, float correction2) {
  in(gradient, n);
  out(master, n);
  out(copy, n, access::overwrite);
  out(moment1, n);
  out(moment2, n);
  for (count i = 0; i < n; ++i) {
    moment1[i] = wrap(moment1[i] * 0.9F + gradient[i] + 0.3F);
    moment2[i] = wrap(moment2[i] * 0.8F + moment1[i] + correction1);
    master[i] = wrap(master[i] + rate * moment1[i] + moment2[i] * correction2);
    store(copy[i], master[i]);
  }
}

template <class T>
const layer_kernels<T> table{draw<T>, draw<float>,      normalise<T>,     normalise_backward<T>,
                             gate<T>, gate_backward<T>, gelu<T>,          gelu_backward<T>,
                             add<T>,  loss<T>,          adamw_of_layer<T>};

template <class T>
void register_layer_kernels() {
  const layer_kernels<T>& k = layer_kernels_for<T>();
  deepum_test::fake_cuda::register_kernel(k.draw);
  deepum_test::fake_cuda::register_kernel(k.draw_floats);
  deepum_test::fake_cuda::register_kernel(k.normalise);
  deepum_test::fake_cuda::register_kernel(k.normalise_backward);
  deepum_test::fake_cuda::register_kernel(k.gate);
  deepum_test::fake_cuda::register_kernel(k.gate_backward);
  deepum_test::fake_cuda::register_kernel(k.gelu);
  deepum_test::fake_cuda::register_kernel(k.gelu_backward);
  deepum_test::fake_cuda::register_kernel(k.add);
  deepum_test::fake_cuda::register_kernel(k.loss);
  deepum_test::fake_cuda::register_kernel(k.adamw);
}

}  // namespace

template <>
const layer_kernels<float>& layer_kernels_for<float>() {
  return table<float>;
}
template <>
const layer_kernels<train_gpt::bf16>& layer_kernels_for<train_gpt::bf16>() {
  return table<train_gpt::bf16>;
}

}  // namespace deepum_gpu_bench_kernels

void deepum_test::register_host_kernels() {
  const auto& k = deepum_gpu_bench_kernels::all();
  fake_cuda::register_kernel(k.tiny);
  fake_cuda::register_kernel(k.touch_pieces);
  fake_cuda::register_kernel(k.checksum);
  fake_cuda::register_kernel(k.read_strided);
  fake_cuda::register_kernel(k.advance);
  fake_cuda::register_kernel(k.compute);
  fake_cuda::register_kernel(k.adamw);
  fake_cuda::register_kernel(k.fill);
  fake_cuda::register_kernel(k.mix);
  fake_cuda::register_kernel(k.gather);
  fake_cuda::register_kernel(k.chase);
  const auto& m = train_gpt::kernels_for<float>();
  fake_cuda::register_kernel(m.embed_forward);
  fake_cuda::register_kernel(m.embed_backward);
  fake_cuda::register_kernel(m.layernorm_forward);
  fake_cuda::register_kernel(m.layernorm_backward_input);
  fake_cuda::register_kernel(m.layernorm_backward_weight);
  fake_cuda::register_kernel(m.bias_forward);
  fake_cuda::register_kernel(m.bias_backward);
  fake_cuda::register_kernel(m.residual_forward);
  fake_cuda::register_kernel(m.gelu_forward);
  fake_cuda::register_kernel(m.gelu_backward);
  fake_cuda::register_kernel(m.softmax_forward);
  fake_cuda::register_kernel(m.softmax_backward);
  fake_cuda::register_kernel(m.cross_entropy);
  fake_cuda::register_kernel(m.adamw);
  fake_cuda::register_kernel(sum_of_floats);
  fake_cuda::register_kernel(add_scaled);
  using train_gpt::bf16;
  fake_cuda::register_kernel(gemm<float, float>);
  fake_cuda::register_kernel(gemm<float, bf16>);
  fake_cuda::register_kernel(gemm<bf16, bf16>);
  deepum_gpu_bench_kernels::register_layer_kernels<float>();
  deepum_gpu_bench_kernels::register_layer_kernels<bf16>();
}
