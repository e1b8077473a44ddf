// What `./run bench compile` compiles by nvcc: ten kernels, each launched, on memory of an arena or, without
// WITH_DEEPUM, on memory of cudaMalloc.

#ifdef WITH_DEEPUM
#include <deepum/arena.hpp>
#include <deepum/cuda.hpp>
#include <deepum/stream.hpp>
#endif

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdio>
#include <exception>
#include <vector>

namespace {

__device__ std::size_t place() { return std::size_t{blockIdx.x} * blockDim.x + threadIdx.x; }

__global__ void fill(float* y, float value, std::size_t n) {
  if (place() < n) y[place()] = value;
}
__global__ void scale(float* y, float a, std::size_t n) {
  if (place() < n) y[place()] *= a;
}
__global__ void add(float* y, const float* x, std::size_t n) {
  if (place() < n) y[place()] += x[place()];
}
__global__ void saxpy(float* y, const float* x, float a, std::size_t n) {
  if (place() < n) y[place()] += a * x[place()];
}
__global__ void multiply(float* y, const float* a, const float* b, std::size_t n) {
  if (place() < n) y[place()] = a[place()] * b[place()];
}
__global__ void relu(float* y, const float* x, std::size_t n) {
  if (place() < n) y[place()] = x[place()] > 0.0F ? x[place()] : 0.0F;
}
__global__ void relu_backward(float* dx, const float* dy, const float* x, std::size_t n) {
  if (place() < n) dx[place()] = x[place()] > 0.0F ? dy[place()] : 0.0F;
}
__global__ void bias(float* y, const float* b, int columns, std::size_t n) {
  if (place() < n) y[place()] += b[place() % static_cast<std::size_t>(columns)];
}
__global__ void momentum(float* w, float* m, const float* g, float rate, float keep, std::size_t n) {
  if (place() < n) {
    m[place()] = keep * m[place()] + g[place()];
    w[place()] -= rate * m[place()];
  }
}
__global__ void clamp(float* y, float low, float high, std::size_t n) {
  if (place() < n) y[place()] = fminf(fmaxf(y[place()], low), high);
}

constexpr std::size_t n = std::size_t{1} << 20;
constexpr unsigned threads = 256;
constexpr unsigned blocks = n / threads;

}  // namespace

#ifdef WITH_DEEPUM

int main() try {
  using namespace deepum::literals;
  deepum::cuda::device gpu{0};
  deepum::arena arena{gpu, {.capacity = 64_MiB}};
  deepum::stream s{arena, {.lookahead = 32}};
  std::vector<float*> v;
  for (int i = 0; i != 5; ++i)
    v.push_back(arena.allocate<float>(n));
  for (int step = 0; step != 4; ++step) {
    for (float* y : v)
      s.launch("fill", blocks, threads, 0, fill, y, 1.0F, n);
    s.launch("scale", blocks, threads, 0, scale, v[0], 0.5F, n);
    s.launch("add", blocks, threads, 0, add, v[1], v[0], n);
    s.launch("saxpy", blocks, threads, 0, saxpy, v[2], v[1], 2.0F, n);
    s.launch("multiply", blocks, threads, 0, multiply, v[3], v[1], v[2], n);
    s.launch("relu", blocks, threads, 0, relu, v[4], v[3], n);
    s.launch("relu_backward", blocks, threads, 0, relu_backward, v[3], v[4], v[2], n);
    s.launch("bias", blocks, threads, 0, bias, v[2], v[0], 128, n);
    s.launch("momentum", blocks, threads, 0, momentum, v[0], v[1], v[3], 0.1F, 0.9F, n);
    s.launch("clamp", blocks, threads, 0, clamp, v[0], 0.0F, 1.0F, n);
  }
  s.synchronize();
  std::printf("%f\n", static_cast<double>(arena.host_read(v[0], 1)[0]));
  return 0;
} catch (const std::exception& e) {
  std::fprintf(stderr, "program: %s\n", e.what());
  return 1;
}

#else

int main() {
  std::vector<float*> v(5);
  for (float*& y : v)
    if (cudaMalloc(&y, n * sizeof(float)) != cudaSuccess) return 1;
  for (int step = 0; step != 4; ++step) {
    for (float* y : v)
      fill<<<blocks, threads>>>(y, 1.0F, n);
    scale<<<blocks, threads>>>(v[0], 0.5F, n);
    add<<<blocks, threads>>>(v[1], v[0], n);
    saxpy<<<blocks, threads>>>(v[2], v[1], 2.0F, n);
    multiply<<<blocks, threads>>>(v[3], v[1], v[2], n);
    relu<<<blocks, threads>>>(v[4], v[3], n);
    relu_backward<<<blocks, threads>>>(v[3], v[4], v[2], n);
    bias<<<blocks, threads>>>(v[2], v[0], 128, n);
    momentum<<<blocks, threads>>>(v[0], v[1], v[3], 0.1F, 0.9F, n);
    clamp<<<blocks, threads>>>(v[0], 0.0F, 1.0F, n);
  }
  float first = 0.0F;
  if (cudaMemcpy(&first, v[0], sizeof first, cudaMemcpyDeviceToHost) != cudaSuccess) return 1;
  std::printf("%f\n", static_cast<double>(first));
  return 0;
}

#endif
