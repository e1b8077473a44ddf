// Thrust and CUB: vectors in an arena, and algorithms on them as launches whose temporary storage lies in the arena
// too. The six vectors need twice the device memory that the arena may hold.
//
//     nvcc -O2 -std=c++20 -I../../include thrust_sort.cu -o thrust_sort && ./thrust_sort

#include <deepum/arena.hpp>
#include <deepum/cuda.hpp>
#include <deepum/interop/cub.hpp>
#include <deepum/interop/thrust.hpp>
#include <deepum/stream.hpp>

#include <cub/device/device_reduce.cuh>
#include <thrust/copy.h>
#include <thrust/device_vector.h>
#include <thrust/sort.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <random>
#include <vector>

using namespace deepum::literals;
using word = std::uint32_t;
using in_arena = deepum::interop::thrust_allocator<word, deepum::cuda::managed_memory>;

int main() try {
  constexpr std::size_t n = std::size_t{2} << 20;  // 8 MiB in each vector
  deepum::cuda::device gpu{0};
  deepum::arena arena{gpu, {.capacity = 96_MiB, .device_budget = 24_MiB}};
  deepum::stream s{arena};

  // Vectors as ever. What Thrust runs to fill them it runs on its own, and they find their memory by page faults.
  std::mt19937 random{1};
  std::vector<std::vector<word>> expected(6, std::vector<word>(n));
  std::vector<thrust::device_vector<word, in_arena>> vectors;
  vectors.reserve(expected.size());
  for (std::vector<word>& host : expected) {
    std::generate(host.begin(), host.end(), [&] { return static_cast<word>(random() % 1000); });
    vectors.emplace_back(n, in_arena{arena});
    thrust::copy(host.begin(), host.end(), vectors.back().begin());
    std::sort(host.begin(), host.end());
  }

  // Algorithms as launches: raw pointers, and the policy that is handed in. What they touch is declared, so it is there
  // before they run.
  deepum::interop::thrust_calls thrust_on{arena, s, 10_MiB};
  for (thrust::device_vector<word, in_arena>& v : vectors) {
    word* const x = thrust::raw_pointer_cast(v.data());
    thrust_on.call("sort", {deepum::updates(x, n)}, [&](auto& policy) { thrust::sort(policy, x, x + n); });
  }

  // CUB wants to be called twice: for the size of its storage, and to do the work. cub_calls does that, in one launch.
  deepum::interop::cub_calls cub_on{arena, s};
  word* const sums = arena.allocate<word>(vectors.size());
  for (std::size_t i = 0; i < vectors.size(); ++i) {
    const word* const x = thrust::raw_pointer_cast(vectors[i].data());
    cub_on.call("sum", {deepum::reads(x, n), deepum::overwrites(sums + i, 1)},
                [&](void* storage, std::size_t& size, cudaStream_t q) {
                  return cub::DeviceReduce::Sum(storage, size, x, sums + i, static_cast<int>(n), q);
                });
  }
  s.synchronize();  // Thrust's own copies run on another stream

  bool right = true;
  const auto found_sums = arena.host_read(sums, vectors.size());
  for (std::size_t i = 0; i < vectors.size(); ++i) {
    word sum = 0;
    for (const word value : expected[i]) {
      sum += value;
    }
    std::vector<word> found(n);
    thrust::copy(vectors[i].begin(), vectors[i].end(), found.begin());
    right = right && found == expected[i] && found_sums[i] == sum;
  }
  std::printf("%s: six sorted vectors and their sums\n", right ? "right" : "WRONG");
  return right ? 0 : 1;
} catch (const std::exception& e) {
  std::fprintf(stderr, "thrust_sort: %s\n", e.what());
  return 1;
}
