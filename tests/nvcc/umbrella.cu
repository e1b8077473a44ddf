#include <deepum/cuda.hpp>
#include <deepum/deepum.hpp>

// One kernel, so that the device compiler has work too.
__global__ void fill(float* x, float value) { x[threadIdx.x] = value; }

static_assert(!deepum::version.empty());

// The public face, on the device that this compiler is for.
void launch_one() {
  deepum::cuda::device gpu{0};
  deepum::arena arena{gpu, {.device_budget = deepum::bytes{1U << 30U}}};
  deepum::stream stream{arena};
  auto* x = arena.allocate<float>(32);
  stream.launch("fill", 1, 32, 0, fill, deepum::overwrites(x, 32), 1.0F);
  stream.synchronize();
}
