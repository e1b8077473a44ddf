#include "cuda/fake_cuda.hpp"
#include <deepum/arena.hpp>
#include <deepum/cuda.hpp>
#include <deepum/stream.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <vector>

namespace {

using namespace deepum_test;
using namespace deepum::literals;

void add(std::uint32_t* to, const std::uint32_t* from, std::uint64_t n) {
  device_touch(from, n * 4, deepum::access::read);
  device_touch(to, n * 4, deepum::access::update);
  for (std::uint64_t i = 0; i < n; ++i)
    to[i] += from[i];
}

TEST_CASE("a loop computes the same under every policy and stays inside its budget") {
  fake_cuda::register_kernel(add);
  for (const char* policy : {"um", "lru", "deepum", "auto"}) {
    CAPTURE(policy);
    {
      deepum::cuda::device gpu{0};
      deepum::arena arena{gpu, {.capacity = 64_MiB, .device_budget = 24_MiB, .policy = policy, .log = {}}};
      deepum::stream stream{arena};
      constexpr std::uint64_t n = (4U << 20U) / 4;
      std::vector<std::uint32_t*> x;
      for (std::uint32_t i = 0; i < 12; ++i) {
        x.push_back(arena.allocate<std::uint32_t>(n));
        stream.memset(x.back(), 0, deepum::bytes{n * 4});
      }
      const std::vector<std::uint32_t> ones(n, 1);
      stream.memcpy(x[0], ones.data(), deepum::bytes{n * 4});
      for (int step = 0; step < 5; ++step) {
        for (std::size_t i = 1; i < x.size(); ++i)
          stream.launch("add", 1, 1, 0, add, x[i], x[i - 1], n);
      }
      stream.synchronize();
      std::vector<std::uint32_t> last(n);
      stream.memcpy(last.data(), x.back(), deepum::bytes{n * 4});
      stream.synchronize();
      CHECK(last[0] == 1365);
      CHECK(last[n - 1] == last[0]);
      const deepum::statistics s = arena.statistics();
      CHECK(s.finished == s.launches);
      MESSAGE(policy << ": faults " << fake_cuda::stats().faults << " in " << fake_cuda::stats().to_device << " out "
                     << fake_cuda::stats().to_host);
    }
    CHECK(fake_cuda::reset() == "");
  }
}

}  // namespace
