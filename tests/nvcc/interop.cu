// nvcc compiles the headers for Thrust, CUB and CCCL with what they are for: vectors, algorithms, resources.
#include <deepum/arena.hpp>
#include <deepum/cuda.hpp>
#include <deepum/interop/cccl.hpp>
#include <deepum/interop/cub.hpp>
#include <deepum/interop/cublas.hpp>
#include <deepum/interop/cudnn.hpp>
#include <deepum/interop/nvtx.hpp>
#include <deepum/interop/pmr.hpp>
#include <deepum/interop/thrust.hpp>
#include <deepum/stream.hpp>

#include <cub/device/device_reduce.cuh>
#include <thrust/device_vector.h>
#include <thrust/reduce.h>
#include <thrust/sort.h>

#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <vector>

using managed = deepum::cuda::managed_memory;
using paged = deepum::cuda::paged_memory;

// What CCCL calls them has changed with version 3.1.
template <class R>
#if CCCL_VERSION >= 3001000
constexpr bool in_stream_order = cuda::mr::resource<R>;
template <class R>
constexpr bool without_a_stream = cuda::mr::synchronous_resource<R>;
#else
constexpr bool in_stream_order = cuda::mr::async_resource<R>;
template <class R>
constexpr bool without_a_stream = cuda::mr::resource<R>;
#endif
using managed_resource = deepum::interop::arena_resource<managed>;
using paged_resource = deepum::interop::arena_resource<paged>;
static_assert(in_stream_order<managed_resource> && without_a_stream<managed_resource>);
static_assert(in_stream_order<paged_resource> && without_a_stream<paged_resource>);
static_assert(cuda::has_property<managed_resource, cuda::mr::device_accessible>);
static_assert(cuda::has_property<managed_resource, cuda::mr::host_accessible>);
static_assert(cuda::has_property<paged_resource, cuda::mr::device_accessible>);
static_assert(!cuda::has_property<paged_resource, cuda::mr::host_accessible>);

template <class Memory>
void algorithms(deepum::arena<Memory>& arena, deepum::stream<Memory>& stream) {
  using deepum::overwrites;
  using deepum::reads;
  using deepum::updates;
  constexpr std::size_t n = 1000;
  auto* const x = arena.template allocate<std::uint32_t>(n);
  auto* const sum = arena.template allocate<std::uint32_t>(1);

  deepum::interop::thrust_calls thrust_on{arena, stream};
  thrust_on.call("sort", {updates(x, n)}, [&](auto& policy) { thrust::sort(policy, x, x + n); });
  thrust_on.call("reduce", {reads(x, n)}, [&](auto& policy) { (void)thrust::reduce(policy, x, x + n); });

  deepum::interop::cub_calls cub_on{arena, stream};
  cub_on.call("sum", {reads(x, n), overwrites(sum, 1)}, [&](void* storage, std::size_t& size, cudaStream_t q) {
    return cub::DeviceReduce::Sum(storage, size, x, sum, static_cast<int>(n), q);
  });
}

void with_resource(deepum::arena<managed>& arena) {
  deepum::interop::arena_resource resource{arena};
#if CCCL_VERSION >= 3001000
  cuda::mr::resource_ref<cuda::mr::device_accessible, cuda::mr::host_accessible> ref{resource};
  cuda::mr::resource_ref<cuda::mr::device_accessible> device_only{resource};
  ref.deallocate_sync(ref.allocate_sync(64, 256), 64, 256);
#else
  cuda::mr::async_resource_ref<cuda::mr::device_accessible, cuda::mr::host_accessible> ref{resource};
  cuda::mr::async_resource_ref<cuda::mr::device_accessible> device_only{resource};
  ref.deallocate(ref.allocate(64, 256), 64, 256);
#endif
  (void)device_only;
}

void use_all() {
  deepum::cuda::device gpu{0};
  deepum::interop::nvtx_marks marks;
  deepum::arena arena{gpu, {.device_budget = deepum::bytes{1U << 30U}, .observer = marks.observer()}};
  deepum::stream stream{arena};
  algorithms(arena, stream);
  with_resource(arena);

  deepum::interop::thrust_allocator<float, managed> from{arena};
  thrust::device_vector<float, deepum::interop::thrust_allocator<float, managed>> v(100, 1.0F, from);
  v.resize(200);
  thrust::sort(v.begin(), v.end());

  deepum::interop::pmr_resource resource{arena};
  const std::pmr::vector<float> host(100, 1.0F, &resource);

  deepum::arena<paged> other{gpu};
  deepum::stream<paged> other_stream{other};
  algorithms(other, other_stream);

  deepum::interop::cublas_calls blas{arena, stream};
  blas.gemm("gemm", {.m = 4, .n = 4, .k = 4}, 1.0F, v.data().get(), 4, v.data().get() + 16, 4, 0.0F,
            v.data().get() + 32, 4);
}
