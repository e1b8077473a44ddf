// As host.cpp, for nvcc, which looks at launches only where all before them is right.

#include <deepum/cuda.hpp>
#include <deepum/deepum.hpp>

#include <vector>

__global__ void scale(float* y, const float* x, int n) { y[n] = 2 * x[n]; }

void program(deepum::cuda::device& gpu, deepum::arena<deepum::cuda::managed_memory>& arena,
             deepum::stream<deepum::cuda::managed_memory>& s, float* y, float* x, int* indices, int n) {
#ifdef OPERANDS
  // error: overwrites(p) does not say how much is overwritten: write overwrites(p, n)
  s.launch("scale", 1, 1, 0, scale, deepum::overwrites(y), x, n);
  // error: a number is not a size: write deepum::bytes{n}, or 1_GiB
  deepum::arena other{gpu, {.capacity = 1 << 30}};
#endif
#ifdef LAUNCHES
  // error: wrong_number_of_arguments_in_launch<given,kernel_takes>() [with given=2{ul}, kernel_takes=3{ul}]
  s.launch("scale", 1, 1, 0, scale, y, x);
  // error: argument_of_launch_does_not_convert<position,given,kernel_takes>() [with position=2{ul}, given=int *,
  s.launch("scale", dim3(1), dim3(32), 0, scale, y, indices, n);
  // error: argument_is_declared_as_read_but_kernel_may_write<position,given,kernel_takes>() [with position=1{ul},
  s.launch("scale", 1, 1, 0, scale, deepum::reads(y, 4), x, n);
  // error: allocate<T>(n) is for plain data
  (void)arena.allocate<std::vector<float>>(4);
#endif
}
