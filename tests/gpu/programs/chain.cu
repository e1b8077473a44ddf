// A CUDA program that knows nothing of deepum, for tests/gpu/programs/run_programs.py: buffers of 64 MiB, each step a
// chain of kernels over all of them, with copies, fills, a graph, stream-ordered memory and a hidden operand. Prints
// one line of JSON.
//
//   nvcc -O2 -std=c++17 -arch=sm_90 chain.cu -lcublas -o chain
#include <cublas_v2.h>
#include <cuda_runtime.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

#define OK(call)                                                                   \
  do {                                                                             \
    const auto result_ = (call);                                                   \
    if (static_cast<int>(result_) != 0) {                                          \
      std::printf("{\"failed\": \"%s: %d\"}\n", #call, static_cast<int>(result_)); \
      std::exit(1);                                                                \
    }                                                                              \
  } while (0)

__global__ void mix(float* y, const float* x, float a, std::size_t n) {
  for (std::size_t i = blockIdx.x * std::size_t{blockDim.x} + threadIdx.x; i < n;
       i += std::size_t{gridDim.x} * blockDim.x) {
    y[i] = 0.5f * y[i] + a * x[i] + 1;
  }
}
struct hidden {
  float* to;
  const float* const* table;
};
/// What is read is known from memory alone.
__global__ void through_table(hidden h, int row, std::size_t n) {
  for (std::size_t i = blockIdx.x * std::size_t{blockDim.x} + threadIdx.x; i < n;
       i += std::size_t{gridDim.x} * blockDim.x) {
    h.to[i] += h.table[row][i];
  }
}
__global__ void sum_up(const float* x, std::size_t n, unsigned long long* sum) {
  unsigned long long mine = 0;
  for (std::size_t i = blockIdx.x * std::size_t{blockDim.x} + threadIdx.x; i < n;
       i += std::size_t{gridDim.x} * blockDim.x) {
    mine += __float_as_uint(x[i]);
  }
  atomicAdd(sum, mine);
}

int main(int argc, char** argv) {
  const std::size_t count = argc > 1 ? std::strtoul(argv[1], nullptr, 10) : 24;
  const int steps = argc > 2 ? std::atoi(argv[2]) : 12;
  const std::size_t n = (std::size_t{64} << 20) / sizeof(float);
  std::size_t free_memory = 0;
  std::size_t total = 0;
  OK(cudaMemGetInfo(&free_memory, &total));
  std::vector<float*> x(count);
  for (float*& each : x)
    OK(cudaMalloc(&each, n * sizeof(float)));
  unsigned long long untouched = 0;
  unsigned long long* sum = nullptr;
  OK(cudaMalloc(&sum, sizeof *sum));
  OK(cudaMemset(sum, 0, sizeof *sum));
  sum_up<<<128, 256>>>(x[count - 1], n, sum);  // memory of a fresh process reads as zero
  OK(cudaMemcpy(&untouched, sum, sizeof untouched, cudaMemcpyDeviceToHost));
  std::vector<float> host(n);
  for (std::size_t i = 0; i < n; ++i)
    host[i] = static_cast<float>(i % 1000);
  OK(cudaMemcpy(x[0], host.data(), n * sizeof(float), cudaMemcpyHostToDevice));
  for (std::size_t i = 1; i < count; ++i)
    OK(cudaMemset(x[i], 0, n * sizeof(float)));
  const float** table = nullptr;
  OK(cudaMalloc(&table, count * sizeof(float*)));
  OK(cudaMemcpy(table, x.data(), count * sizeof(float*), cudaMemcpyHostToDevice));
  cublasHandle_t blas = nullptr;
  OK(cublasCreate(&blas));
  cudaStream_t s = nullptr;
  OK(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
  OK(cublasSetStream(blas, s));
  OK(cudaDeviceSynchronize());
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t ready = nullptr;
  OK(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal));
  for (std::size_t i = 1; i < count / 2; ++i)
    mix<<<528, 256, 0, s>>>(x[i], x[i - 1], 0.25f, n);
  OK(cudaStreamEndCapture(s, &graph));
  OK(cudaGraphInstantiate(&ready, graph, 0));
  std::vector<double> times;
  const float one = 1;
  const float zero = 0;
  for (int step = 0; step < steps; ++step) {
    const auto begin = std::chrono::steady_clock::now();
    OK(cudaGraphLaunch(ready, s));
    for (std::size_t i = count / 2; i < count; ++i)
      mix<<<528, 256, 0, s>>>(x[i], x[i - 1], 0.25f, n);
    float* temporary = nullptr;
    OK(cudaMallocAsync(&temporary, n * sizeof(float), s));
    OK(cudaMemcpyAsync(temporary, x[count - 1], n * sizeof(float), cudaMemcpyDeviceToDevice, s));
    through_table<<<528, 256, 0, s>>>(hidden{temporary, table}, static_cast<int>(count / 2), n);
    OK(cublasSgemm(blas, CUBLAS_OP_N, CUBLAS_OP_N, 1024, 1024, 1024, &one, temporary, 1024, x[1], 1024, &zero, x[2],
                   1024));
    mix<<<528, 256, 0, s>>>(x[0], temporary, 0.001f, n);
    OK(cudaFreeAsync(temporary, s));
    OK(cudaMemset2DAsync(x[3], 4096, 0, 128, 1000, s));
    OK(cudaStreamSynchronize(s));
    times.push_back(std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count());
  }
  OK(cudaMemset(sum, 0, sizeof *sum));
  for (float* each : x)
    sum_up<<<528, 256>>>(each, n, sum);
  unsigned long long all = 0;
  OK(cudaMemcpy(&all, sum, sizeof all, cudaMemcpyDeviceToHost));
  std::printf(
      "{\"sum\": %llu, \"untouched\": %llu, \"total_mib\": %zu, \"free_mib\": %zu, \"footprint_mib\": %zu, \"ms\": [",
      all, untouched, total >> 20, free_memory >> 20, count * 64);
  for (std::size_t i = 0; i < times.size(); ++i)
    std::printf("%s%.2f", i == 0 ? "" : ", ", times[i]);
  // The cost of a launch when everything is there.
  OK(cudaDeviceSynchronize());
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < 20000; ++i)
    mix<<<1, 32, 0, s>>>(x[0], x[1], 0, 1);
  const double us = std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count() / 20000;
  OK(cudaDeviceSynchronize());
  std::printf("], \"launch_us\": %.3f}\n", us);
  OK(cudaGraphExecDestroy(ready));
  OK(cudaStreamDestroy(s));
  for (float* each : x)
    OK(cudaFree(each));
  return 0;
}
