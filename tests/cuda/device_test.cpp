#include "cuda/fake_gpu.hpp"
#include <deepum/cuda.hpp>
#include <deepum/error.hpp>

#include <doctest/doctest.h>

#include <string>

namespace device_test {

using namespace deepum_test;
using namespace deepum::literals;
using deepum::status;

/// What `make` throws.
template <class Make>
deepum::error thrown_by(Make&& make) {
  try {
    make();
  } catch (const deepum::error& e) {
    return e;
  }
  FAIL("nothing was thrown");
  return deepum::error(status::unsupported, "");
}
bool contains(const deepum::error& e, const char* words) {
  return std::string(e.what()).find(words) != std::string::npos;
}

TEST_CASE("a device says what it is") {
  const fake_gpu gpu(3_GiB);
  const deepum::cuda::device device{0};
  CHECK(device.properties().name == "fake GPU");
  CHECK(device.properties().memory == 3_GiB);
  CHECK(device.properties().ordinal == 0);
  CHECK(device.properties().compute_capability == 90);
  CHECK(device.properties().concurrent_managed_access);
  CHECK(device.properties().runtime_version >= 13000);
  CHECK(device.properties().driver_version >= 13000);
}

TEST_CASE("without a device the error says so, and leaves none behind in the runtime") {
  const fake_gpu gpu;
  fake_cuda::set_device_count(0);
  const deepum::error e = thrown_by([] { const deepum::cuda::device device; });
  CHECK(e.code() == status::unsupported);
  CHECK(e.native_code() == cudaErrorNoDevice);
  CHECK(contains(e, "deepum::sim::device"));
  CHECK(cudaPeekAtLastError() == cudaSuccess);
}

TEST_CASE("a device that is not there is named with how many there are") {
  const fake_gpu gpu;
  for (const int ordinal : {-1, 1, 7}) {
    const deepum::error e = thrown_by([&] { const deepum::cuda::device device{ordinal}; });
    CHECK(e.code() == status::unsupported);
    CHECK(contains(e, ("device " + std::to_string(ordinal) + ": there are 1").c_str()));
  }
}

TEST_CASE("any call of the set-up that fails is thrown with its number and cleared") {
  for (const char* name :
       {"cudaSetDevice", "cudaGetDeviceProperties", "cudaDriverGetVersion", "cudaRuntimeGetVersion"}) {
    CAPTURE(std::string(name));
    const fake_gpu gpu;
    fake_cuda::fail_call(name, 1, cudaErrorInvalidValue);
    const deepum::error e = thrown_by([] { const deepum::cuda::device device; });
    CHECK(e.code() == status::device_failure);
    CHECK(e.native_code() == cudaErrorInvalidValue);
    CHECK(contains(e, name));
    CHECK(cudaPeekAtLastError() == cudaSuccess);
  }
}

TEST_CASE("where pages cannot move while kernels run, managed memory says so before it allocates any") {
  const fake_gpu gpu;
  fake_cuda::set_attribute(cudaDevAttrConcurrentManagedAccess, 0);
  deepum::cuda::device device;
  const deepum::error e = thrown_by([&] { const deepum::cuda::managed_memory memory(device, 4_MiB); });
  CHECK(e.code() == status::unsupported);
  CHECK(contains(e, "concurrentManagedAccess"));
  CHECK(fake_cuda::calls("cudaMallocManaged") == 0);
}

}  // namespace device_test
