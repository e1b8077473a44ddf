// A program on a CUDA device, with the names that fragments leave out.
#include <deepum/arena.hpp>
#include <deepum/cuda.hpp>
#include <deepum/operand.hpp>
#include <deepum/stream.hpp>
#include <deepum/units.hpp>

#include <cublas_v2.h>

#include <cstddef>

using namespace deepum::literals;
using deepum::overwrites;
using deepum::reads;
using deepum::updates;

__global__ void relu_kernel(float* y, const float* x, std::size_t n);

void in_function(std::size_t n, deepum::dim grid, deepum::dim block, float* y, float* a, float* b, float* c,
                 cublasHandle_t h) {
  const int rows = 1024;
  const float one = 1;
  const float zero = 0;
  // In a scope of its own, so that it may have its own names for what is there.
  {
    // the block
  }
}
