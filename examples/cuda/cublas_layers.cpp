// cuBLAS with declared spans: all weights of a network lie in one allocation, and each product declares the one matrix
// that it reads. So a matrix at a time comes ahead of its product, in half of the memory that the weights need.
//
//     cmake --preset release && cmake --build build --target cublas_layers && build/bin/cublas_layers

#include <deepum/arena.hpp>
#include <deepum/cuda.hpp>
#include <deepum/interop/cublas.hpp>
#include <deepum/stream.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <exception>
#include <vector>

using namespace deepum::literals;

int main() try {
  constexpr int width = 1024;
  constexpr int columns = 32;
  constexpr std::size_t layers = 12;
  constexpr std::size_t matrix = std::size_t{width} * width;  // 4 MiB
  constexpr std::size_t batch = std::size_t{width} * columns;

  deepum::cuda::device gpu{0};
  deepum::arena arena{gpu, {.capacity = 96_MiB, .device_budget = 24_MiB}};
  deepum::stream s{arena};
  deepum::interop::cublas_calls blas{arena, s, 4_MiB};  // a workspace in the arena

  // Every layer moves each element down by one row, so that results are exact whatever the order of the sums.
  float* const weights = arena.allocate<float>(layers * matrix);
  float* const x = arena.allocate<float>(batch);
  float* const y = arena.allocate<float>(batch);
  {
    const auto w = arena.host_overwrite(weights, layers * matrix);
    std::fill(w.begin(), w.end(), 0.0F);
    for (std::size_t i = 0; i < layers * width; ++i) {
      const std::size_t column = i % width;
      w[i * width + (column + 1) % width] = 1.0F;  // matrices are column-major
    }
    const auto input = arena.host_overwrite(x, batch);
    for (std::size_t i = 0; i < batch; ++i)
      input[i] = static_cast<float>(i % 7);
  }

  // y = W x, then x = x + y, layer by layer, three times.
  for (int pass = 1; pass <= 3; ++pass) {
    const deepum::statistics before = arena.statistics();
    for (std::size_t layer = 0; layer < layers; ++layer) {
      blas.gemm("layer", {.m = width, .n = columns, .k = width}, 1.0F, weights + layer * matrix, width, x, width, 0.0F,
                y, width);
      blas.call("add", {deepum::reads(y, batch), deepum::updates(x, batch)}, [&](cublasHandle_t handle) {
        const float one = 1.0F;
        return cublasSaxpy(handle, static_cast<int>(batch), &one, y, 1, x, 1);
      });
    }
    s.synchronize();
    const deepum::statistics moved = arena.statistics() - before;
    std::printf("pass %d: %llu launches, %.0f MiB in, %.0f MiB out\n", pass,
                static_cast<unsigned long long>(moved.launches), static_cast<double>(moved.in().all_bytes()) / 1048576,
                static_cast<double>(moved.out().all_bytes()) / 1048576);
    // The numbers would outgrow what a float counts exactly: keep their last bits.
    for (float& value : arena.host_write(x, batch))
      value = static_cast<float>(static_cast<int>(value) % 8);
  }

  // The same on the host.
  std::vector<float> expected(batch);
  for (std::size_t i = 0; i < batch; ++i)
    expected[i] = static_cast<float>(i % 7);
  for (int pass = 1; pass <= 3; ++pass) {
    for (std::size_t layer = 0; layer < layers; ++layer) {
      const std::vector<float> from = expected;
      for (std::size_t i = 0; i < batch; ++i) {
        const std::size_t row = i % width;
        expected[i] += from[row == 0 ? i + width - 1 : i - 1];
      }
    }
    for (float& value : expected)
      value = static_cast<float>(static_cast<int>(value) % 8);
  }
  const auto found = arena.host_read(x, batch);
  const bool right = std::equal(found.begin(), found.end(), expected.begin());
  std::puts(right ? "right" : "WRONG");
  return right ? 0 : 1;
} catch (const std::exception& e) {
  std::fprintf(stderr, "cublas_layers: %s\n", e.what());
  return 1;
}
