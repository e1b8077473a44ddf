// The CUDA kernels of examples/train_gpt. Without cuBLAS the program has none of them, and this file has no tests.
#if defined(TRAIN_GPT_CUDA)

#include "../../examples/train_gpt/backend_cuda.hpp"
#include "../../examples/train_gpt/backend_sim.hpp"
#include "../../examples/train_gpt/model.hpp"
#include "../train_gpt/operation_checks.hpp"
#include "alone.hpp"
#include <deepum/error.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

using namespace train_gpt;
using namespace train_gpt_test;
using namespace deepum::literals;

namespace {

bool usable(precision p, memory_choice memory = memory_choice::managed) {
  std::string why_not;
  const std::optional<cuda_gpu> gpu = find_cuda_gpu(why_not, memory);
  return gpu && (p == precision::fp32 || gpu->bf16);
}
const bool no_fp32 = !usable(precision::fp32);
const bool no_bf16 = !usable(precision::bf16);
const bool no_paged = !usable(precision::fp32, memory_choice::paged);
const bool no_paged_bf16 = !usable(precision::bf16, memory_choice::paged);

constexpr model_shape small{.layers = 3, .width = 96, .heads = 3, .context = 37, .batch = 3};

// An arena on a GPU, and a stream.
template <class T>
struct on_gpu {
  explicit on_gpu(const std::string& policy = "ideal", bytes budget = 192_MiB)
      : arena{gpu, {.capacity = 192_MiB, .device_budget = budget, .policy = policy, .log = [](std::string_view) {}}} {}

  typename cuda_backend<T>::device gpu{0};
  typename cuda_backend<T>::arena arena;
  typename cuda_backend<T>::stream stream{arena};
};

template <class T>
using paged_backend = cuda_backend<T, deepum::cuda::paged_memory>;

// The same on memory that never faults.
template <class T>
struct on_paged_gpu {
  on_paged_gpu(const std::string& policy, bytes budget, deepum::cuda::device_options options, bool checked)
      : gpu{0, std::move(options)},
        arena{gpu,
              {.capacity = 512_MiB,
               .device_budget = budget,
               .policy = policy,
               .checked = checked,
               .log = [](std::string_view) {}}} {}

  deepum::cuda::device gpu;
  typename paged_backend<T>::arena arena;
  typename paged_backend<T>::stream stream{arena};
};

constexpr model_shape over_budget{.layers = 6, .width = 192, .heads = 4, .context = 64, .batch = 4};

template <class T>
outcome on_paged(const std::string& policy, bytes budget, const deepum::cuda::device_options& options, int steps = 4,
                 bool checked = false) {
  on_paged_gpu<T> f{policy, budget, options, checked};
  return train_shortly<paged_backend<T>>(f.arena, f.stream, over_budget, steps);
}

// In a third of the memory, with chunks of several sizes, against all of it on the device.
template <class T>
void check_paged() {
  const outcome expected = on_paged<T>("ideal", 512_MiB, {.chunk = 2_MiB});
  for (const std::string policy : {"um", "lru", "deepum", "auto"}) {
    for (const auto& [chunk, budget] : {std::pair{2_MiB, 26_MiB}, std::pair{4_MiB, 48_MiB}}) {
      CAPTURE(policy);
      CAPTURE(chunk.count);
      const outcome found = on_paged<T>(policy, budget, {.chunk = chunk});
      CHECK(found.losses == expected.losses);
      CHECK(found.gradients == expected.gradients);
      CHECK(found.weights == expected.weights);
    }
  }
}

template <class T>
void check_declarations() {
  try {
    (void)on_paged<T>("auto", 512_MiB, {.chunk = 2_MiB}, 2, true);
    gpu_alone::say("every launch was right");
  } catch (const deepum::error& e) {
    gpu_alone::say(std::string("a launch was wrong: ") + e.what());
  }
}

outcome simulated(int steps) {
  sim_backend::device gpu{deepum::sim::find_profile("h200_pcie5"), {.memory = 192_MiB}};
  sim_backend::arena arena{gpu, {.capacity = 192_MiB, .device_budget = 192_MiB, .policy = "ideal"}};
  sim_backend::stream stream{arena};
  return train_shortly<sim_backend>(arena, stream, small, steps);
}

template <class T>
void check_operations() {
  const std::uint64_t seed = std::random_device{}();
  CAPTURE(seed);
  std::vector<model_shape> shapes = shapes_to_check();
  shapes.push_back({.layers = 1, .width = 1000, .heads = 8, .context = 300, .batch = 2});
  for (const model_shape& shape : shapes) {
    CAPTURE(shape.width);
    CAPTURE(shape.context);
    on_gpu<T> f;
    operation_checks<cuda_backend<T>>{f.arena, f.stream, shape, seed}.all();
  }
}

// Twice, and in a third of the memory under policies that move blocks.
template <class T>
void check_repetition() {
  const outcome first = [] {
    on_gpu<T> f;
    return train_shortly<cuda_backend<T>>(f.arena, f.stream, small, 4);
  }();
  for (const char* policy : {"ideal", "lru", "deepum", "auto"}) {
    CAPTURE(policy);
    const bytes needed = gpt<cuda_backend<T>>::footprint(small);
    const bytes third = deepum::block_size * (needed / deepum::block_size / 3);
    on_gpu<T> again(policy, policy == std::string{"ideal"} ? 192_MiB : third);
    const outcome found = train_shortly<cuda_backend<T>>(again.arena, again.stream, small, 4);
    CHECK(found.losses == first.losses);
    CHECK(found.gradients == first.gradients);
    CHECK(found.weights == first.weights);
  }
}

template <class T>
void check_evaluation() {
  on_gpu<T> f;
  std::mt19937_64 random{5};
  std::vector<std::int32_t> text(static_cast<std::size_t>(small.rows()));
  for (std::int32_t& v : text)
    v = static_cast<std::int32_t>(random() % 256);
  const auto loss = [&](purpose use) {
    gpt<cuda_backend<T>> model{f.arena, f.stream, small, 3, use};
    model.evaluate(text, text);
    return model.loss();
  };
  CHECK(loss(purpose::evaluation) == loss(purpose::training));
}

}  // namespace

TEST_CASE("every operation in fp32 is that of the host" * doctest::skip(no_fp32)) { check_operations<float>(); }
TEST_CASE("every operation in bf16 is that of the host, rounded" * doctest::skip(no_bf16)) { check_operations<bf16>(); }

TEST_CASE("a GPU trains as the simulated one does, within the stated tolerance" * doctest::skip(no_fp32)) {
  on_gpu<float> f;
  check_agreement(train_shortly<cuda_backend<float>>(f.arena, f.stream, small, 10), simulated(10), in_fp32);
}
TEST_CASE("a GPU trains in bf16 as the simulated one does in fp32, within the stated tolerance" *
          doctest::skip(no_bf16)) {
  on_gpu<bf16> f;
  check_agreement(train_shortly<cuda_backend<bf16>>(f.arena, f.stream, small, 10), simulated(10), in_bf16);
}

TEST_CASE("losses, gradients and weights are the same bit by bit, in every run and under every policy" *
          doctest::skip(no_fp32)) {
  check_repetition<float>();
  if (!no_bf16) check_repetition<bf16>();
}

TEST_CASE("on memory that never faults the results are the same bit by bit, under every policy" *
          doctest::skip(no_paged)) {
  check_paged<float>();
  if (!no_paged_bf16) check_paged<bf16>();
  if (no_fp32) return;
  on_gpu<float> managed;
  const outcome expected = train_shortly<cuda_backend<float>>(managed.arena, managed.stream, over_budget, 4);
  CHECK(on_paged<float>("auto", 26_MiB, {.chunk = 2_MiB}).losses == expected.losses);
}

TEST_CASE("alone: train_gpt in checked mode" * doctest::skip()) {
  if (!gpu_alone::is_child()) return;
  check_declarations<float>();
  if (!no_paged_bf16) check_declarations<bf16>();
}
TEST_CASE("kernels and libraries touch what the launches declare and nothing else" * doctest::skip(no_paged)) {
  const gpu_alone::child_result r = gpu_alone::run_alone("alone: train_gpt in checked mode");
  INFO(r.output);
  CHECK(r.said("every launch was right"));
  CHECK_FALSE(r.said("a launch was wrong"));
  CHECK(r.status == 0);
}

TEST_CASE("a model for evaluation, whose layers share their activations, finds the loss of the one for training" *
          doctest::skip(no_fp32)) {
  check_evaluation<float>();
  if (!no_bf16) check_evaluation<bf16>();
}

TEST_CASE("the footprint is what the model allocates on a GPU" * doctest::skip(no_fp32)) {
  for (const purpose use : {purpose::training, purpose::evaluation}) {
    on_gpu<float> f;
    const gpt<cuda_backend<float>> model{f.arena, f.stream, small, 1, use};
    CHECK(f.arena.footprint().allocated == gpt<cuda_backend<float>>::footprint(small, use));
  }
}

#endif
