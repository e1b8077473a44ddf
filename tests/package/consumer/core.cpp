// The parts of the library that are quick to compile.
#include <deepum/sim/profile.hpp>
#include <deepum/version.hpp>

#include <cstdio>

#if __cplusplus < 202002L
#error "the library did not bring C++20"
#endif

int main() {
  const auto& gpu = deepum::sim::find_profile("h200_pcie5");
  std::printf("core: deepum %s, %s\n", deepum::version.data(), gpu.name.c_str());
  return deepum::version == EXPECTED_VERSION && gpu.memory.count != 0 ? 0 : 1;
}
