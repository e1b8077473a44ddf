// The short examples on CUDA, on the fake GPU: the programs as they are, whose kernels and libraries are functions of
// the host. tests/gpu/examples_test.cpp runs them on a real one.

#include "cuda/fake_cuda.hpp"
#include "cuda/fake_gpu.hpp"
#include "short_examples/algorithms.hpp"
#include "short_examples/libraries.hpp"
#include <deepum/arena.hpp>
#include <deepum/c/src.hpp>
#include <deepum/cuda.hpp>
#include <deepum/interop/cub.hpp>
#include <deepum/interop/cublas.hpp>
#include <deepum/interop/cudnn.hpp>
#include <deepum/interop/thrust.hpp>
#include <deepum/stream.hpp>

#include <doctest/doctest.h>

#include <cub/device/device_reduce.cuh>
#include <thrust/copy.h>
#include <thrust/device_vector.h>
#include <thrust/sort.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <iterator>
#include <list>
#include <random>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace port_example {
constexpr struct {
  unsigned x;
} blockIdx{0}, threadIdx{0}, blockDim{1}, gridDim{1};  // one thread does it all
#include "../../examples/cuda/port_after.cu"
}  // namespace port_example
namespace c_port_example {
using port_example::blockDim, port_example::blockIdx, port_example::gridDim, port_example::threadIdx;
#include "../../examples/cuda/port_c.cu"
}  // namespace c_port_example
namespace thrust_example {
namespace thrust = example_algorithms;
namespace cub = example_algorithms;
#include "../../examples/cuda/thrust_sort.cu"
}  // namespace thrust_example
namespace cublas_example {
#include "../../examples/cuda/cublas_layers.cpp"
}
namespace cudnn_example {
#include "../../examples/cuda/cudnn_cnn.cpp"
}

namespace cuda_test {

namespace fake_cuda = deepum_test::fake_cuda;
using deepum::access;
using deepum_test::device_touch;
using deepum_test::environment;
using deepum_test::fake_gpu;

std::string text_of(const std::string& path) {
  std::ifstream file{DEEPUM_SOURCE_DIR "/" + path};
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

void mix_on_gpu(port_example::word* y, const port_example::word* x, std::size_t n) {
  device_touch(x, n * sizeof *x, access::read);
  device_touch(y, n * sizeof *y, access::update);
  port_example::mix(y, x, n);
}

void register_mix() {
  for (auto* const kernel : {&port_example::mix, &c_port_example::mix}) {
    fake_cuda::register_kernel(reinterpret_cast<const void*>(kernel), [](void** args) {
      return [y = *static_cast<port_example::word**>(args[0]), x = *static_cast<const port_example::word**>(args[1]),
              n = *static_cast<std::size_t*>(args[2])] { mix_on_gpu(y, x, n); };
    });
  }
}

TEST_CASE("the program that was ported from cudaMalloc is right, with a budget for four of its ten buffers") {
  const fake_gpu gpu;
  const environment no_feed("DEEPUM_FAULT_FEED", "none");
  register_mix();
  CHECK(port_example::main() == 0);
  CHECK(fake_cuda::stats().to_host > 0);
}

TEST_CASE("the same program is right on the header for C") {
  const fake_gpu gpu;
  const environment no_feed("DEEPUM_FAULT_FEED", "none");
  register_mix();
  CHECK(c_port_example::main() == 0);
  CHECK(fake_cuda::stats().to_host > 0);
}

TEST_CASE("an example that would take more managed memory than is allowed takes none") {
  const fake_gpu gpu;
  const environment limit("DEEPUM_MANAGED_LIMIT", "128MiB");
  CHECK_THROWS_WITH_AS(port_example::main(), doctest::Contains("DEEPUM_MANAGED_LIMIT"), deepum::error);
  CHECK(fake_cuda::stats().managed_peak.count == 0);
}

TEST_CASE("the ports keep their kernel, and their documentation tells every other line that differs") {
  const std::string before = text_of("examples/cuda/port_before.cu");
  const auto kernel = [](const std::string& text) {
    const std::size_t begin = text.find("__global__");
    REQUIRE(begin != std::string::npos);
    return text.substr(begin, text.find("\n}\n", begin) - begin);
  };
  const auto lines = [](const std::string& text) {
    std::set<std::string> all;
    std::istringstream in{text};
    for (std::string line; std::getline(in, line);) {
      all.insert(line);
    }
    return all;
  };
  const std::set<std::string> documented = lines(text_of("docs/porting.md"));
  const auto check_told = [&](const std::string& sign, const std::set<std::string>& from,
                              const std::set<std::string>& other) {
    for (const std::string& line : from) {
      if (!other.contains(line) && !line.starts_with("//") && !line.starts_with("#include <cstd")) {
        CAPTURE(line);
        CHECK(documented.contains(sign + line));
      }
    }
  };
  for (const char* ported : {"examples/cuda/port_after.cu", "examples/cuda/port_c.cu"}) {
    CAPTURE(ported);
    const std::string after = text_of(ported);
    CHECK(kernel(before) == kernel(after));
    check_told("-", lines(before), lines(after));
    check_told("+", lines(after), lines(before));
  }
}

TEST_CASE("vectors of Thrust in an arena are sorted and summed, in half of the memory that they need") {
  const fake_gpu gpu;
  const environment no_feed("DEEPUM_FAULT_FEED", "none");
  CHECK(thrust_example::main() == 0);
  CHECK(fake_cuda::stats().to_host > 0);
}

TEST_CASE("layers of cuBLAS are right, in half of the memory of their weights") {
  const fake_gpu gpu;
  const environment no_feed("DEEPUM_FAULT_FEED", "none");
  CHECK(cublas_example::main() == 0);
  CHECK(example_libraries::live == 0);
  CHECK(fake_cuda::stats().to_host > 0);
}

TEST_CASE("the examples on CUDA are right under every policy that the environment may name, and under none") {
  for (const char* policy : {"ideal", "um", "lru", "deepum", "auto", "off", "nonsense"}) {
    CAPTURE(policy);
    const fake_gpu gpu;
    const environment no_feed("DEEPUM_FAULT_FEED", "none");
    const environment chosen("DEEPUM_POLICY", policy);
    register_mix();
    CHECK(port_example::main() == 0);
    CHECK(cublas_example::main() == 0);
    if (policy == std::string("um")) {  // which takes long on the host
      CHECK(thrust_example::main() == 0);
    }
  }
}

TEST_CASE("a network of cuDNN trains to the same weights under every policy and on both memory kinds") {
  const fake_gpu gpu;
  const environment no_feed("DEEPUM_FAULT_FEED", "none");
  char program[] = "cudnn_cnn";
  char images[] = "16";
  char budget[] = "6";
  char* arguments[] = {program, images, budget, nullptr};
  CHECK(cudnn_example::main(3, arguments) == 0);
  CHECK(example_libraries::live == 0);
  CHECK(fake_cuda::stats().to_host > 0);
}

TEST_CASE("each launch of the network does what it declares, and nothing else") {
  const fake_gpu gpu;
  using memory = deepum::cuda::paged_memory;
  deepum::cuda::device device{0, {.chunk = deepum::block_size}};
  deepum::arena<memory> arena{device, {.capacity = deepum::block_size * 80, .checked = true, .log = {}}};
  deepum::stream<memory> s{arena};
  cudnn_example::network<memory> net{arena, s, 128};  // tensors in blocks of their own
  for (float& pixel : arena.host_overwrite(net.x.data, net.x.size)) {
    pixel = 1;
  }
  for (float& answer : arena.host_overwrite(net.answers.data, net.answers.size)) {
    answer = 0;
  }
  net.forward();
  net.backward_and_update(0.1);
  CHECK_NOTHROW(s.synchronize());
}

}  // namespace cuda_test
