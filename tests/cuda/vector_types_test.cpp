// What the launches of a CUDA program are given by value and point to.

#include <deepum/dim.hpp>
#include <deepum/operand.hpp>

#include <cuComplex.h>
#include <doctest/doctest.h>

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <cuda_runtime_api.h>

#include <type_traits>

namespace vector_types_test {

template <class... T>
constexpr bool hide_no_pointers = (deepum::hides_no_pointers<T> && ...);

TEST_CASE("CUDA's vectors, complex numbers and small floats hide no pointers") {
  CHECK(hide_no_pointers<char4, uchar2, short4, ushort3, int1, int2, int3, int4, uint2, uint3, uint4>);
  CHECK(hide_no_pointers<long1, ulong2, long3, longlong1, longlong2, ulonglong3>);
  CHECK(hide_no_pointers<float1, float2, float3, float4, double1, double2, double3, dim3, const float4>);
  CHECK(hide_no_pointers<long4_16a, ulong4_32a, longlong4_16a, ulonglong4_32a, double4_16a, double4_32a>);
  CHECK(hide_no_pointers<cuComplex, cuFloatComplex, cuDoubleComplex>);
  CHECK(hide_no_pointers<__half, __half2, __nv_bfloat16, __nv_bfloat162, __nv_fp8_e5m2, __nv_fp8x4_e4m3>);
  CHECK_FALSE(hide_no_pointers<cudaPitchedPtr>);
}

TEST_CASE("a dim3 is an extent, and what has four numbers or signed ones is none") {
  CHECK(deepum::dim(dim3(4, 5, 6)) == deepum::dim(4, 5, 6));
  CHECK(std::is_convertible_v<uint3, deepum::dim>);
  CHECK_FALSE(std::is_convertible_v<int3, deepum::dim>);
  CHECK_FALSE(std::is_convertible_v<uint4, deepum::dim>);
}

}  // namespace vector_types_test
