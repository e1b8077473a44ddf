// What uses an arena and a stream on a CUDA device beside another library, with the names that fragments leave out.
#include <deepum/arena.hpp>
#include <deepum/cuda.hpp>
#include <deepum/operand.hpp>
#include <deepum/stream.hpp>
#include <deepum/units.hpp>

#include <cstddef>
#include <cstdint>

using namespace deepum::literals;
using deepum::overwrites;
using deepum::reads;
using deepum::updates;
using memory = deepum::cuda::managed_memory;

__global__ void relu_kernel(float* y, const float* x, std::size_t n);

void in_function(deepum::cuda::device& gpu, deepum::arena<memory>& arena, deepum::stream<memory>& s, deepum::dim grid,
                 deepum::dim block, int n, float* x, float* y, float* sum) {
  // In a scope of its own, so that it may have its own names for what is there.
  {
    // the block
  }
}
