#include "examples/train_gpt/element_math.hpp"
#include "gpu/library/layer_kernels.hpp"

#include <cstdint>

namespace deepum_gpu_bench_kernels {
namespace {

using train_gpt::bf16;
using train_gpt::store;
using train_gpt::widened;

constexpr unsigned all_lanes = 0xFFFFFFFFU;
constexpr unsigned warp = 32;

__device__ count first() { return static_cast<count>(blockIdx.x) * blockDim.x + threadIdx.x; }
__device__ count step() { return static_cast<count>(gridDim.x) * blockDim.x; }

// The sum of one value of each thread of a block, whose number is a multiple of the warp's, for all of them.
__device__ float over_block(float x) {
  __shared__ float of_warp[warp];
  for (unsigned offset = warp / 2; offset != 0; offset /= 2)
    x += __shfl_xor_sync(all_lanes, x, static_cast<int>(offset));
  if (threadIdx.x % warp == 0) of_warp[threadIdx.x / warp] = x;
  __syncthreads();
  x = threadIdx.x % warp < blockDim.x / warp ? of_warp[threadIdx.x % warp] : 0.0F;
  for (unsigned offset = warp / 2; offset != 0; offset /= 2)
    x += __shfl_xor_sync(all_lanes, x, static_cast<int>(offset));
  __syncthreads();  // the next one may write `of_warp`
  return x;
}

template <class T>
__global__ void draw(T* x, count n, std::uint64_t seed, float scale) {
  for (count i = first(); i < n; i += step())
    store(x[i], scale * drawn(static_cast<std::uint64_t>(i), seed));
}

// 1 / root of the mean square of a row.
template <class T>
__device__ float inverse_of(const T* row, count width) {
  float squares = 0.0F;
  for (count c = threadIdx.x; c < width; c += blockDim.x) {
    const float v = widened(row[c]);
    squares += v * v;
  }
  return 1.0F / sqrtf(over_block(squares) / static_cast<float>(width) + 1e-5F);
}

template <class T>
__global__ void normalise(T* y, const T* x, count rows, count width) {
  for (count r = blockIdx.x; r < rows; r += gridDim.x) {
    const T* row = x + r * width;
    const float inverse = inverse_of(row, width);
    for (count c = threadIdx.x; c < width; c += blockDim.x)
      store(y[r * width + c], widened(row[c]) * inverse);
  }
}

template <class T>
__global__ void normalise_backward(T* d, const T* dy, const T* x, count rows, count width) {
  for (count r = blockIdx.x; r < rows; r += gridDim.x) {
    const T* row = x + r * width;
    const T* from = dy + r * width;
    const float inverse = inverse_of(row, width);
    float along = 0.0F;
    for (count c = threadIdx.x; c < width; c += blockDim.x)
      along += widened(from[c]) * widened(row[c]);
    along = over_block(along) * inverse * inverse / static_cast<float>(width);
    for (count c = threadIdx.x; c < width; c += blockDim.x) {
      T& to = d[r * width + c];
      store(to, widened(to) + (widened(from[c]) - widened(row[c]) * along) * inverse);
    }
  }
}

__device__ float logistic(float x) { return 1.0F / (1.0F + expf(-x)); }

template <class T>
__global__ void gate(T* y, const T* qkv, count rows, count width) {
  for (count i = first(); i < rows * width; i += step()) {
    const T* row = qkv + i / width * 3 * width + i % width;
    store(y[i], widened(row[2 * width]) * logistic(widened(row[0]) * widened(row[width])));
  }
}

template <class T>
__global__ void gate_backward(T* d_qkv, const T* dy, const T* qkv, count rows, count width) {
  for (count i = first(); i < rows * width; i += step()) {
    const count at = i / width * 3 * width + i % width;
    const float q = widened(qkv[at]);
    const float k = widened(qkv[at + width]);
    const float v = widened(qkv[at + 2 * width]);
    const float open = logistic(q * k);
    const float d = widened(dy[i]);
    const float slope = d * v * open * (1.0F - open);
    store(d_qkv[at], slope * k);
    store(d_qkv[at + width], slope * q);
    store(d_qkv[at + 2 * width], d * open);
  }
}

template <class T>
__global__ void gelu(T* y, const T* x, count n) {
  for (count i = first(); i < n; i += step())
    store(y[i], train_gpt::element_math::gelu(widened(x[i])));
}

template <class T>
__global__ void gelu_backward(T* d, const T* x, count n) {
  for (count i = first(); i < n; i += step())
    store(d[i], widened(d[i]) * train_gpt::element_math::gelu_slope(widened(x[i])));
}

template <class T>
__global__ void add(T* y, const T* a, const T* b, count n) {
  for (count i = first(); i < n; i += step())
    store(y[i], widened(a[i]) + widened(b[i]));
}

template <class T>
__global__ void loss(T* d, const T* x, count n, float factor) {
  for (count i = first(); i < n; i += step())
    store(d[i], factor * widened(x[i]));
}

template <class T>
__global__ void adamw(float* master, T* copy, const float* gradient, float* moment1, float* moment2, count n,
                      float rate, float correction1, float correction2) {
  const train_gpt::element_math::adamw_step s{rate, 0.01F, correction1, correction2};
  for (count i = first(); i < n; i += step()) {
    train_gpt::element_math::adamw(master[i], gradient[i], moment1[i], moment2[i], s);
    store(copy[i], master[i]);
  }
}

template <class T>
constexpr layer_kernels<T> table{draw<T>, draw<float>,      normalise<T>, normalise_backward<T>,
                                 gate<T>, gate_backward<T>, gelu<T>,      gelu_backward<T>,
                                 add<T>,  loss<T>,          adamw<T>};

}  // namespace

template <>
const layer_kernels<float>& layer_kernels_for<float>() {
  return table<float>;
}
template <>
const layer_kernels<bf16>& layer_kernels_for<bf16>() {
  return table<bf16>;
}

}  // namespace deepum_gpu_bench_kernels
