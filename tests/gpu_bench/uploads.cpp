// What deepum-bench-uploads measures, on a CUDA runtime without a GPU: that all ways compute the same.

#include "cuda/fake_cuda.hpp"
#include "cuda/fake_gpu.hpp"
#include "gpu/programs/cold_start_runs.hpp"
#include "gpu/programs/upload_runs.hpp"
#include "gpu_bench/host_kernels.hpp"
#include <deepum/cuda.hpp>
#include <deepum/units.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace uploads {

using namespace deepum::gpu_bench;
using namespace deepum::literals;
using word = std::uint32_t;
using deepum_test::device_touch;

void both(word* out, const word* a, const word* b, std::uint64_t n) {
  device_touch(a, n * sizeof(word), deepum::access::read);
  device_touch(b, n * sizeof(word), deepum::access::read);
  device_touch(out, n * sizeof(word), deepum::access::overwrite);
  for (std::uint64_t i = 0; i < n; ++i)
    out[i] = a[i] * 3U + b[n - 1 - i];
}

TEST_CASE("programs compute the same in whatever way their inputs come, and so does one that starts cold") {
  deepum_test::register_host_kernels();
  deepum_test::fake_cuda::register_kernel(both);
  {
    deepum::cuda::device gpu(0, {.chunk = 2_MiB});
    upload_runs runs(gpu, 4_MiB, 3, true);
    for (const unsigned inputs : {1U, 2U}) {
      runs.next_program();
      const std::vector<upload_time> times = runs.run({"both", both, inputs, 2, 1}, 2);
      CHECK(times.size() == 9);
      for (const upload_time& t : times) {
        CAPTURE(t.way);
        CHECK(t.ms.size() == 2);
        CHECK(t.blocked.size() == 2);
      }
    }
    const cold_start_times cold = cold_start(gpu, 6_MiB, 3, "/tmp");
    CHECK(cold.read_and_copy > 0);
    CHECK(cold.deepum > 0);
    CHECK(cold.deepum_again > 0);
    CHECK(cold.returned <= cold.deepum);
  }
  CHECK(deepum_test::fake_cuda::reset() == "");
}

}  // namespace uploads
