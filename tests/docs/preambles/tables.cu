// A step of a recommendation model on a CUDA device, with the names that fragments leave out.
#include <deepum/arena.hpp>
#include <deepum/cuda.hpp>
#include <deepum/operand.hpp>
#include <deepum/stream.hpp>

#include <cstddef>

__global__ void embed(float* found, const float* table, const int* indices, std::size_t rows);
__global__ void adagrad(float* table, const float* gradients, const int* indices, std::size_t rows);

void step(deepum::stream<deepum::cuda::managed_memory>& s, deepum::dim grid, deepum::dim block, float* table,
          std::size_t table_rows, std::size_t width, float* found, const int* indices, std::size_t rows) {
  // the block
}
