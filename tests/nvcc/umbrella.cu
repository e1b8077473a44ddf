#include <deepum/cuda.hpp>
#include <deepum/deepum.hpp>

#include <cstddef>
#include <type_traits>

// One kernel, so that the device compiler has work too.
__global__ void fill(float* x, float value) { x[threadIdx.x] = value; }

// What a launch sees of its kernel: parameters by value, restricted ones, templates.
template <class T>
__global__ void axpy(T* __restrict__ y, const T* __restrict__ x, const T a, const float4* bias) {
  y[threadIdx.x] += a * x[threadIdx.x] + (bias != nullptr ? bias->x : 0);
}
__global__ void sum(float* result, float* only_read) { *result += only_read[threadIdx.x]; }

template <class Kernel>
deepum::detail::kernel_parameters<Kernel> parameters_of(const Kernel&);
static_assert(std::is_same_v<decltype(parameters_of(axpy<float>)),
                             deepum::detail::parameter_list<float*, const float*, float, const float4*>>);

static_assert(!deepum::version.empty());

// The public face, on the device that this compiler is for.
void launch_one() {
  deepum::cuda::device gpu{0};
  deepum::arena arena{gpu, {.device_budget = deepum::bytes{1U << 30U}}};
  deepum::stream stream{arena};
  auto* x = arena.allocate<float>(32);
  stream.launch("fill", 1, 32, 0, fill, deepum::overwrites(x, 32), 1.0F);
  auto* y = arena.allocate<float>(32);
  stream.launch("axpy", dim3(1), dim3(32), 0, axpy<float>, y, x, 2.0F, nullptr);
  stream.launch("axpy", 1, 32, 0, axpy<float>, y, deepum::reads(x, 32), 2, NULL);
  stream.launch("axpy", 1, 32, 0, &axpy<float>, deepum::updates(y), static_cast<const float*>(x), 2.0, 0);
  stream.launch("sum", 1, 32, 0, sum, y, deepum::reads_as_mutable(x, 32));
  stream.synchronize();
}
