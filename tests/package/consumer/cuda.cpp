// What deepum::cuda brings: the headers and the library of the CUDA runtime, and the reader of the driver's fault
// events. No device is needed.
#include <deepum/cuda/faults/driver_fault_feed.hpp>
#include <deepum/version.hpp>

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdio>
#include <string_view>

int main() {
  int runtime = 0;
  if (cudaRuntimeGetVersion(&runtime) != cudaSuccess || runtime / 1000 != CUDART_VERSION / 1000) {
    std::printf("cuda: runtime %d, headers %d\n", runtime, CUDART_VERSION);
    return 1;
  }
  std::byte here{};
  try {
    (void)deepum::cuda::make_driver_fault_feed(&here, deepum::bytes{1});
    std::puts("cuda: a feed without a context");
    return 1;
  } catch (const deepum::error& e) {
    std::printf("cuda: runtime %d; %s\n", runtime, e.what());
    const bool without_reader = std::string_view{e.what()}.find("built without") != std::string_view::npos;
    return !without_reader && deepum::version == EXPECTED_VERSION ? 0 : 1;
  }
}
