// The whole of the library on the CUDA device, by the C++ compiler alone.
#include <deepum/arena.hpp>
#include <deepum/cuda.hpp>
#include <deepum/stream.hpp>

int main() {
  deepum::cuda::device gpu{0};
  deepum::arena arena{gpu, {.device_budget = deepum::bytes{1U << 25U}}};
  deepum::stream stream{arena};
  stream.memset(arena.allocate<float>(32), 0, deepum::bytes{128});
  stream.synchronize();
}
