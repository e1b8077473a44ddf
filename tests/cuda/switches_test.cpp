#include "cuda/fake_gpu.hpp"
#include <deepum/arena.hpp>
#include <deepum/cuda.hpp>

#include <doctest/doctest.h>

#include <string>

namespace switches_test {

using namespace deepum::literals;
using deepum_test::environment;
using deepum_test::fake_gpu;

TEST_CASE("DEEPUM_CHUNK goes before the program's chunk; what is no chunk is ignored") {
  const fake_gpu fake;
  {
    const environment set("DEEPUM_CHUNK", "4MiB");
    deepum::cuda::device gpu{0, {.chunk = 8_MiB}};
    CHECK(gpu.options().chunk == 4_MiB);
    deepum::arena<deepum::cuda::paged_memory> arena{gpu, {.capacity = 64_MiB, .device_budget = 32_MiB}};
    CHECK(arena.block() == 4_MiB);
  }
  const environment quiet("DEEPUM_LOG", "0");
  for (const char* bad : {"", "big", "1MiB", "3MiB", "64MiB", "16"}) {
    CAPTURE(std::string(bad));
    const environment set("DEEPUM_CHUNK", bad);
    CHECK(deepum::cuda::device(0, {.chunk = 8_MiB}).options().chunk == 8_MiB);
  }
}

}  // namespace switches_test
