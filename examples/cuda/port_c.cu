// Porting with the C header: the program of port_before.cu, still C++17, on an arena that may hold four of the ten
// buffers on the device. docs/porting.md goes from that one to this one line by line. Link deepum::c.

#include <deepum/deepum.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

using word = std::uint32_t;

__global__ void mix(word* y, const word* x, std::size_t n) {
  for (std::size_t i = blockIdx.x * std::size_t{blockDim.x} + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
    y[i] = 3 * y[i] + x[i];
  }
}

void check(deepum_status result) {
  if (result != DEEPUM_OK) {
    std::fprintf(stderr, "%s\n", deepum_last_error());
    std::exit(1);
  }
}

int main() {
  constexpr std::size_t n = std::size_t{4} << 20;  // 16 MiB in each of ten buffers
  std::vector<word*> x(10);
  std::vector<word> host(n);

  deepum_arena_options options = DEEPUM_DEFAULT_OPTIONS;
  options.capacity = 192U << 20U;
  options.budget = 64U << 20U;
  deepum_arena* arena = nullptr;
  check(deepum_arena_create(&options, &arena));
  deepum_stream* s = nullptr;
  check(deepum_stream_create(arena, nullptr, &s));
  for (std::size_t i = 0; i < x.size(); ++i) {
    check(deepum_malloc(arena, reinterpret_cast<void**>(&x[i]), n * sizeof(word)));
    host.assign(n, static_cast<word>(i));
    check(deepum_memcpy_and_wait(s, x[i], host.data(), n * sizeof(word)));
  }

  for (int step = 0; step < 4; ++step) {
    for (std::size_t i = 0; i < x.size(); ++i) {
      word* const next = x[(i + 1) % x.size()];
      const deepum_operand operands[] = {deepum_updates(x[i], DEEPUM_WHOLE), deepum_reads(next, DEEPUM_WHOLE)};
      const void* arguments[] = {&x[i], &next, &n};
      check(deepum_launch(s, "mix", operands, 2, reinterpret_cast<const void*>(mix), 256, 256,
                          const_cast<void**>(arguments), 0));
    }
  }

  check(deepum_memcpy_and_wait(s, host.data(), x.back(), n * sizeof(word)));
  for (word* p : x) {
    check(deepum_free(arena, p));
  }
  check(deepum_stream_destroy(s));
  check(deepum_arena_destroy(arena));

  // The same on the host, where one word stands for a buffer.
  std::vector<word> expected(x.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    expected[i] = static_cast<word>(i);
  }
  for (int step = 0; step < 4; ++step) {
    for (std::size_t i = 0; i < expected.size(); ++i) {
      expected[i] = 3 * expected[i] + expected[(i + 1) % expected.size()];
    }
  }
  const bool right = host == std::vector<word>(n, expected.back());
  std::printf("%s: the last buffer holds %u, expected %u\n", right ? "right" : "WRONG", host[0], expected.back());
  return right ? 0 : 1;
}
