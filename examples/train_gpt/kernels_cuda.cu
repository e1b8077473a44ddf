#include "element_math.hpp"
#include "kernels_cuda.hpp"

#include <cub/device/device_reduce.cuh>

#include <cstdint>

namespace train_gpt {
namespace {

constexpr unsigned all_lanes = 0xFFFFFFFFU;
constexpr unsigned warp = 32;

__device__ index first_element() { return static_cast<index>(blockIdx.x) * blockDim.x + threadIdx.x; }

struct plus {
  __device__ static float of(float a, float b) { return a + b; }
  static constexpr float neutral = 0.0F;
};
struct greater {
  __device__ static float of(float a, float b) { return fmaxf(a, b); }
  static constexpr float neutral = -3.402823466e38F;
};

// One value for all threads of a block, whose number is a multiple of the warp's.
template <class Operation>
__device__ float combined(float x) {
  __shared__ float of_warp[warp];
  const unsigned lane = threadIdx.x % warp;
  for (unsigned offset = warp / 2; offset != 0; offset /= 2)
    x = Operation::of(x, __shfl_xor_sync(all_lanes, x, static_cast<int>(offset)));
  if (lane == 0) of_warp[threadIdx.x / warp] = x;
  __syncthreads();
  x = lane < blockDim.x / warp ? of_warp[lane] : Operation::neutral;
  for (unsigned offset = warp / 2; offset != 0; offset /= 2)
    x = Operation::of(x, __shfl_xor_sync(all_lanes, x, static_cast<int>(offset)));
  __syncthreads();  // the next one may write `of_warp`
  return x;
}

// Sum or maximum of f(0) ... f(n - 1), for all threads of the block.
template <class Operation, class F>
__device__ float over_row(index n, F f) {
  float x = Operation::neutral;
  for (index i = threadIdx.x; i < n; i += blockDim.x)
    x = Operation::of(x, f(i));
  return combined<Operation>(x);
}

// Adds the sum of f(row, column) over all rows to each of a block's 32 columns.
template <class F>
__device__ void add_rows(float* to, index rows, index width, F f) {
  __shared__ float part[columns_block][columns_block];
  const index column = static_cast<index>(blockIdx.x) * columns_block + threadIdx.x;
  float total = 0.0F;
  if (column < width) {
    for (index r = threadIdx.y; r < rows; r += columns_block)
      total += f(r, column);
  }
  part[threadIdx.y][threadIdx.x] = total;
  for (unsigned half = columns_block / 2; half != 0; half /= 2) {
    __syncthreads();
    if (threadIdx.y < half) part[threadIdx.y][threadIdx.x] += part[threadIdx.y + half][threadIdx.x];
  }
  if (threadIdx.y == 0 && column < width) to[column] += part[0][threadIdx.x];
  __syncthreads();  // the next one may write `part`
}

template <class T>
__global__ void embed_forward(T* x, const std::int32_t* tokens, const T* token_table, const T* position_table,
                              index rows, index context, index width) {
  const index i = first_element();
  if (i >= rows * width) return;
  const index r = i / width;
  const index c = i % width;
  store(x[i], widened(token_table[tokens[r] * width + c]) + widened(position_table[r % context * width + c]));
}

template <class T>
__global__ void embed_backward(float* d_token_table, float* d_position_table, const T* dx, const std::int32_t* tokens,
                               index rows, index context, index width, index vocabulary) {
  const index entry = blockIdx.x;
  const index c = static_cast<index>(blockIdx.y) * blockDim.x + threadIdx.x;
  if (entry < vocabulary) {
    // Each warp looks for the rows of this token, 32 at once; so no thread may leave.
    float total = c < width ? d_token_table[entry * width + c] : 0.0F;
    for (index begin = 0; begin < rows; begin += warp) {
      const index r = begin + threadIdx.x % warp;
      unsigned found = __ballot_sync(all_lanes, r < rows && tokens[r] == entry);
      for (; found != 0; found &= found - 1) {
        const index hit = begin + __ffs(static_cast<int>(found)) - 1;
        if (c < width) total += widened(dx[hit * width + c]);
      }
    }
    if (c < width) d_token_table[entry * width + c] = total;
  } else if (c < width) {
    const index position = entry - vocabulary;
    float total = d_position_table[position * width + c];
    for (index r = position; r < rows; r += context)
      total += widened(dx[r * width + c]);
    d_position_table[position * width + c] = total;
  }
}

template <class T>
__global__ void layernorm_forward(T* y, float* moments, const T* x, const T* scale, const T* shift, index width) {
  const index r = blockIdx.x;
  const T* from = x + r * width;
  const auto n = static_cast<float>(width);
  const float mean = over_row<plus>(width, [&](index c) { return widened(from[c]); }) / n;
  const float variance = over_row<plus>(width,
                                        [&](index c) {
                                          const float off = widened(from[c]) - mean;
                                          return off * off;
                                        }) /
                         n;
  const float inverse = element_math::inverse_deviation(variance);
  for (index c = threadIdx.x; c < width; c += blockDim.x)
    store(y[r * width + c], (widened(from[c]) - mean) * inverse * widened(scale[c]) + widened(shift[c]));
  if (threadIdx.x == 0) {
    moments[2 * r] = mean;
    moments[2 * r + 1] = inverse;
  }
}

template <class T>
__global__ void layernorm_backward_input(T* dx, const T* dy, const T* x, const float* moments, const T* scale,
                                         index width) {
  const index r = blockIdx.x;
  const auto n = static_cast<float>(width);
  const float mean = moments[2 * r];
  const float inverse = moments[2 * r + 1];
  const auto slope = [&](index c) { return widened(dy[r * width + c]) * widened(scale[c]); };
  const auto normal = [&](index c) { return (widened(x[r * width + c]) - mean) * inverse; };
  const float direct = over_row<plus>(width, slope) / n;
  const float along = over_row<plus>(width, [&](index c) { return slope(c) * normal(c); }) / n;
  for (index c = threadIdx.x; c < width; c += blockDim.x) {
    T& to = dx[r * width + c];
    store(to, widened(to) + element_math::layernorm_slope(slope(c), normal(c), direct, along, inverse));
  }
}

template <class T>
__global__ void layernorm_backward_weight(float* d_scale, float* d_shift, const T* dy, const T* x, const float* moments,
                                          index rows, index width) {
  add_rows(d_scale, rows, width, [&](index r, index c) {
    return widened(dy[r * width + c]) * ((widened(x[r * width + c]) - moments[2 * r]) * moments[2 * r + 1]);
  });
  add_rows(d_shift, rows, width, [&](index r, index c) { return widened(dy[r * width + c]); });
}

template <class T>
__global__ void bias_forward(T* y, const T* bias, index rows, index width) {
  const index i = first_element();
  if (i < rows * width) y[i] = bias[i % width];
}

template <class T>
__global__ void bias_backward(float* d_bias, const T* dy, index rows, index width) {
  add_rows(d_bias, rows, width, [&](index r, index c) { return widened(dy[r * width + c]); });
}

template <class T>
__global__ void residual_forward(T* y, const T* a, const T* b, index n) {
  const index i = first_element();
  if (i < n) store(y[i], widened(a[i]) + widened(b[i]));
}

template <class T>
__global__ void gelu_forward(T* y, const T* x, index n) {
  const index i = first_element();
  if (i < n) store(y[i], element_math::gelu(widened(x[i])));
}

template <class T>
__global__ void gelu_backward(T* d, const T* x, index n) {
  const index i = first_element();
  if (i < n) store(d[i], widened(d[i]) * element_math::gelu_slope(widened(x[i])));
}

template <class T>
__global__ void softmax_forward(T* scores, index context, float scale) {
  T* row = scores + static_cast<index>(blockIdx.x) * context;
  const index seen = static_cast<index>(blockIdx.x) % context + 1;
  const float most = over_row<greater>(seen, [&](index j) { return widened(row[j]); });
  const float total = over_row<plus>(seen, [&](index j) { return expf((widened(row[j]) - most) * scale); });
  for (index j = threadIdx.x; j < context; j += blockDim.x)
    store(row[j], j < seen ? expf((widened(row[j]) - most) * scale) / total : 0.0F);
}

template <class T>
__global__ void softmax_backward(T* d, const T* probabilities, index context, float scale) {
  T* d_row = d + static_cast<index>(blockIdx.x) * context;
  const T* row = probabilities + static_cast<index>(blockIdx.x) * context;
  const float along = over_row<plus>(context, [&](index j) { return widened(row[j]) * widened(d_row[j]); });
  for (index j = threadIdx.x; j < context; j += blockDim.x)
    store(d_row[j], element_math::softmax_slope(widened(row[j]), widened(d_row[j]), along, scale));
}

template <class T>
__global__ void cross_entropy(float* losses, T* d_logits, const T* logits, const std::int32_t* targets, index rows,
                              index vocabulary) {
  const index r = blockIdx.x;
  const T* in = logits + r * vocabulary;
  const index target = targets[r];
  const float share = 1.0F / static_cast<float>(rows);
  const float most = over_row<greater>(vocabulary, [&](index v) { return widened(in[v]); });
  const float total = over_row<plus>(vocabulary, [&](index v) { return expf(widened(in[v]) - most); });
  for (index v = threadIdx.x; v < vocabulary; v += blockDim.x) {
    const float probability = expf(widened(in[v]) - most) / total;
    store(d_logits[r * vocabulary + v], (v == target ? probability - 1.0F : probability) * share);
  }
  if (threadIdx.x == 0) losses[r] = logf(total) + most - widened(in[target]);
}

template <class T>
__global__ void adamw(float* weight, T* copy, const float* gradient, float* first, float* second, index n,
                      float learning_rate, float weight_decay, float correction1, float correction2) {
  const index i = first_element();
  if (i >= n) return;
  element_math::adamw(weight[i], gradient[i], first[i], second[i],
                      {learning_rate, weight_decay, correction1, correction2});
  if (copy != nullptr) store(copy[i], weight[i]);
}

// nvcc gives the host's side of these templates internal linkage, so that their addresses are the way to them. In the
// order of the members.
template <class T>
constexpr cuda_kernels<T> table{embed_forward<T>,
                                embed_backward<T>,
                                layernorm_forward<T>,
                                layernorm_backward_input<T>,
                                layernorm_backward_weight<T>,
                                bias_forward<T>,
                                bias_backward<T>,
                                residual_forward<T>,
                                gelu_forward<T>,
                                gelu_backward<T>,
                                softmax_forward<T>,
                                softmax_backward<T>,
                                cross_entropy<T>,
                                adamw<T>};

struct plus_in_double {
  __host__ __device__ double operator()(double a, double b) const { return a + b; }
};

}  // namespace

template <>
const cuda_kernels<float>& kernels_for<float>() {
  return table<float>;
}
template <>
const cuda_kernels<bf16>& kernels_for<bf16>() {
  return table<bf16>;
}

cudaError_t sum_of(void* storage, std::size_t& size, double* total, const float* values, index n, cudaStream_t stream) {
  return cub::DeviceReduce::Reduce(storage, size, values, total, n, plus_in_double{}, 0.0, stream);
}

}  // namespace train_gpt
