// Runs the tests on a GPU: 77 where there is none that they can use, 2 where nobody has said how much managed memory
// they may take.
#define DOCTEST_CONFIG_IMPLEMENT

#include <deepum/cuda/device.hpp>
#include <deepum/cuda/managed_limit.hpp>
#include <deepum/error.hpp>
#include <deepum/units.hpp>

#include <doctest/doctest.h>

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdio>
#include <optional>

int main(int argc, char** argv) {
  using namespace deepum::literals;
  try {
    const deepum::cuda::device gpu{0};
    const std::optional<deepum::bytes> limit = deepum::cuda::managed_limit::from_environment();
    std::size_t free = 0;
    std::size_t total = 0;
    deepum::cuda::check(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
    if (!limit || *limit > 4_GiB || *limit > deepum::bytes{free / 8}) {
      std::fprintf(stderr,
                   "the tests on a GPU take managed memory: set DEEPUM_MANAGED_LIMIT, to at most 4GiB and at most an "
                   "eighth of the %zu MiB that are free on the device; without it none runs, not even those of paged "
                   "memory, which take none\n",
                   free >> 20U);
      return 2;
    }
    std::printf("%s, compute capability %d, driver %d, runtime %d, %zu MiB free\n", gpu.properties().name.c_str(),
                gpu.properties().compute_capability, gpu.properties().driver_version, gpu.properties().runtime_version,
                free >> 20U);
  } catch (const deepum::error& e) {
    std::fprintf(stderr, "no test on a GPU: %s\n", e.what());
    return e.code() == deepum::status::unsupported ? 77 : 1;
  }
  doctest::Context context(argc, argv);
  return context.run();
}
