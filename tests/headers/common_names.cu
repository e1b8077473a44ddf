// Compiled by nvcc with -Wshadow -Werror by the test nvcc.common_names.
#include "common_names.hpp"
#include <deepum/cuda.hpp>
#include <deepum/deepum.hpp>

// Brings templates to life, and with them what is said only then.
namespace in_use {

__global__ void add(float* to_these, const float* from_these) { to_these[threadIdx.x] += from_these[threadIdx.x]; }

__global__ void half(deepum::grid_slice where, float* these) { these[where.block().x] /= 2; }

template <class Memory>
void use(deepum::cuda::device& my_gpu) {
  deepum::arena<Memory> my_arena(my_gpu, {.device_budget = deepum::bytes(std::uint64_t{64} << 20)});
  deepum::stream<Memory> my_stream(my_arena);
  auto my_floats = my_arena.template make_array<float>(32);
  auto my_sums = my_arena.template make_array<float>(32);
  (void)my_stream.memset(my_floats.data(), 0, deepum::bytes(128));
  (void)my_stream.memcpy(my_sums.data(), my_floats.data(), deepum::bytes(128));
  my_stream.launch("add", 1, 32, 0, add, my_sums.data(), deepum::reads(my_floats.data(), 32));
  my_stream.launch("half", 32, 1, 0, deepum::sliced(half), deepum::by_x(deepum::updates(my_sums.data(), 32), 1));
  my_stream.synchronize();
  (void)my_arena.host_write(my_floats.data(), 32);
}
template void use<deepum::cuda::managed_memory>(deepum::cuda::device&);
template void use<deepum::cuda::paged_memory>(deepum::cuda::device&);

}  // namespace in_use
