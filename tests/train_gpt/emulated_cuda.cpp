// The CUDA kernels of examples/train_gpt, and all that is around them, on the host: in a program of its own, whose
// CUDA is that of emulated_cuda/. What cuBLAS and CUB do on a GPU, tests/gpu/train_gpt_test.cpp checks.

#include "../../examples/train_gpt/backend_sim.hpp"
#include "../../examples/train_gpt/kernels_cuda.cu"
#include "../../examples/train_gpt/model.hpp"
#include "../../examples/train_gpt/operations_cuda.hpp"
#include "operation_checks.hpp"
#include <deepum/dim.hpp>
#include <deepum/operand.hpp>
#include <deepum/stream.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <cstring>
#include <initializer_list>
#include <list>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

using namespace train_gpt;
using namespace train_gpt_test;
using namespace deepum::literals;

namespace {

/// Memory that holds nothing of value at first.
class host_arena {
 public:
  template <class T>
  T* allocate(std::size_t n) {
    return static_cast<T*>(allocate_bytes(bytes{n * sizeof(T)}));
  }
  void* allocate_bytes(bytes size) {
    if (size.count == 0) return nullptr;
    allocated += size;
    memory_.push_back(std::make_unique<std::max_align_t[]>(size.count / sizeof(std::max_align_t) + 1));
    std::memset(memory_.back().get(), 0xFF, size.count);
    return memory_.back().get();
  }
  void split(const void* /*p*/, std::span<const bytes> /*parts*/) {}

  bytes allocated{};

 private:
  std::list<std::unique_ptr<std::max_align_t[]>> memory_{};
};

/// Launches at once. What a launch declares to overwrite is gone before it begins: it has to write every byte of it.
class host_stream {
 public:
  template <class... Parameters, class... Args>
  void launch(const std::string& /*name*/, deepum::dim grid, deepum::dim block, unsigned /*shared*/,
              void (*kernel)(Parameters...), Args... arguments) {
    (forget(arguments), ...);
    enqueue(nullptr, grid, block, kernel, deepum::detail::kernel_argument(arguments)...);
  }
  template <class Enqueue>
  void call(const std::string& /*name*/, std::initializer_list<deepum::operand> operands, const Enqueue& enqueue_all) {
    for (const deepum::operand& o : operands)
      forget(o);
    enqueue_all(cudaStream_t{});
  }
  void memcpy(void* to, const void* from, bytes n) { std::memcpy(to, from, n.count); }
  void memset(void* to, int value, bytes n) { std::memset(to, value, n.count); }
  void synchronize() {}

 private:
  template <class Argument>
  static void forget(const Argument& argument) {
    if constexpr (std::is_class_v<Argument>) {
      const deepum::operand o = argument;
      if (o.mode == deepum::access::overwrite) std::memset(const_cast<void*>(o.address), 0xFF, o.size.count);
    }
  }
};

template <class T>
struct host_backend {
  using arena = host_arena;
  using stream = host_stream;
  using operations = cuda_operations<stream, T>;
};

template <class T>
void add_kernels() {
  const cuda_kernels<T>& k = kernels_for<T>();
  emulated::add(k.embed_forward);
  emulated::add(k.embed_backward);
  emulated::add(k.layernorm_forward);
  emulated::add(k.layernorm_backward_input);
  emulated::add(k.layernorm_backward_weight);
  emulated::add(k.bias_forward);
  emulated::add(k.bias_backward);
  emulated::add(k.residual_forward);
  emulated::add(k.gelu_forward);
  emulated::add(k.gelu_backward);
  emulated::add(k.softmax_forward);
  emulated::add(k.softmax_backward);
  emulated::add(k.cross_entropy);
  emulated::add(k.adamw);
}

// What a backend needs, in one place.
template <class T>
struct fixture {
  fixture() { add_kernels<T>(); }
  host_arena arena{};
  host_stream stream{};
};

template <class T>
void check_operations() {
  for (const model_shape& shape : shapes_to_check()) {
    CAPTURE(shape.width);
    CAPTURE(shape.context);
    fixture<T> f;
    operation_checks<host_backend<T>>{f.arena, f.stream, shape, std::random_device{}()}.all();
  }
}

constexpr model_shape small{.layers = 3, .width = 20, .heads = 2, .context = 13, .batch = 2};

outcome simulated(int steps) {
  sim_backend::device gpu{deepum::sim::find_profile("h200_pcie5"), {.memory = 64_MiB}};
  sim_backend::arena arena{gpu, {.capacity = 64_MiB, .device_budget = 64_MiB, .policy = "ideal"}};
  sim_backend::stream stream{arena};
  return train_shortly<sim_backend>(arena, stream, small, steps);
}

template <class T>
void check_training(tolerance t) {
  fixture<T> f;
  const outcome found = train_shortly<host_backend<T>>(f.arena, f.stream, small, 3);
  check_agreement(found, simulated(3), t);
  fixture<T> again;
  const outcome twice = train_shortly<host_backend<T>>(again.arena, again.stream, small, 3);
  CHECK(twice.losses == found.losses);
  CHECK(twice.gradients == found.gradients);
  CHECK(twice.weights == found.weights);
}

template <class T>
void check_footprint(purpose use) {
  fixture<T> f;
  gpt<host_backend<T>> model{f.arena, f.stream, small, 1, use};
  CHECK(f.arena.allocated == gpt<host_backend<T>>::footprint(small, use));
  std::vector<std::int32_t> text(static_cast<std::size_t>(small.rows()), 65);
  model.evaluate(text, text);
  fixture<T> other;
  gpt<host_backend<T>> for_training{other.arena, other.stream, small, 1};
  for_training.evaluate(text, text);
  CHECK(model.loss() == for_training.loss());
  CHECK(model.predict(std::span{text}.first(3)) == for_training.predict(std::span{text}.first(3)));
}

}  // namespace

TEST_CASE("every CUDA operation in fp32 is that of the host") { check_operations<float>(); }
TEST_CASE("every CUDA operation in bf16 is that of the host, rounded") { check_operations<bf16>(); }
TEST_CASE("the CUDA kernels train as the simulated GPU does, the same in every run") {
  check_training<float>(in_fp32);
  check_training<bf16>(in_bf16);
}
TEST_CASE("the footprint is what is allocated, and evaluation finds the loss that training finds") {
  for (const purpose use : {purpose::training, purpose::evaluation}) {
    check_footprint<float>(use);
    check_footprint<bf16>(use);
  }
}
