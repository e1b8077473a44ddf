// cuda_arena.cu with matrices.
#include <deepum/arena.hpp>
#include <deepum/cuda.hpp>
#include <deepum/operand.hpp>
#include <deepum/stream.hpp>

#include <cstdint>

using deepum::reads;
using deepum::updates;
using memory = deepum::cuda::managed_memory;

void in_function(deepum::arena<memory>& arena, deepum::stream<memory>& s, int m, int n, int k, int t, int d, int heads,
                 const float* w, const float* keys, const float* queries, float* scores, float* x, float* y) {
  const float a = 1;
  // In a scope of its own, so that it may have its own names for what is there.
  {
    // the block
  }
}
