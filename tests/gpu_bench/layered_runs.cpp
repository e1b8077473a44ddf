// The layered programs of the GPU benchmark on managed memory, by hand, and what they are made of.

#include "cuda/fake_cuda.hpp"
#include "gpu/library/gpt_layers.hpp"
#include "gpu/library/hand_memory.hpp"
#include "gpu/library/infer_layers.hpp"
#include "gpu/library/layer_executor.hpp"
#include "gpu/library/layered_step.hpp"
#include "gpu/library/layered_systems.hpp"
#include "gpu/library/memory_kinds.hpp"
#include "gpu/opponents/by_hand.hpp"
#include "gpu_bench/layered_checks.hpp"
#include <deepum/error.hpp>
#include <deepum/units.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace layered_runs {

using namespace layered_checks;

// Launches every step of a program on plain memory and writes down what its streams are told.
template <class T>
void check_declared(const layered_step& set_up, const layered_step& step) {
  layer_executor<T> executor(1000);
  const memory_pool pool(memory_pool::kind::device, footprint_of(step.tensors));
  hand_arena arena(pool);
  hand_stream stream(arena);
  const std::vector<std::byte*> at = detail::allocated(arena, step.tensors);
  for (const layered_step* s : {&set_up, &step}) {
    step_recorder recorder(arena);
    stream.set_hook(&recorder);
    for (const layer_launch& l : s->launches)
      executor.launch(stream, s->tensors, l, at, {.number = 1, .seed = 2});
    stream.set_hook(nullptr);
    const step_program told = recorder.take();
    const step_program expected = in_memory(*s);
    REQUIRE(told.launches.size() == expected.launches.size());
    const auto sorted = [](std::vector<touch> touches) {
      std::sort(touches.begin(), touches.end(), [](const touch& a, const touch& b) { return a.offset < b.offset; });
      return touches;
    };
    for (std::size_t i = 0; i < told.launches.size(); ++i) {
      CAPTURE(told.launches[i].name);
      const std::vector<touch> a = sorted(told.launches[i].touches);
      const std::vector<touch> b = sorted(expected.launches[i].touches);
      const bool in_place = told.launches[i].name == "gelu in place";  // declared once for each argument
      REQUIRE(a.size() == b.size() + (in_place ? 1 : 0));
      for (std::size_t k = 0; k < b.size(); ++k) {
        CHECK(a[k].offset == b[k].offset);
        CHECK(a[k].size == b[k].size);
        CHECK(a[k].mode == b[k].mode);
      }
    }
  }
  stream.synchronize();
}

TEST_CASE("launches declare what their step says that they touch") {
  const without_gpu setting;
  for (const bool at_end : {false, true}) {
    gpt_shape shape = shape_for<bf16>();
    shape.update_at_end = at_end;
    check_declared<bf16>(set_up_of(shape), step_of(shape, summed::everything));
  }
  check_declared<float>(set_up_of(shape_for<float>()), step_of(shape_for<float>()));
  const infer_shape calls{.models = 2, .layers = 2, .width = 256, .most_tokens = 64};
  check_declared<bf16>(set_up_of(calls), call_of(calls, 1, 16));
}

TEST_CASE("copies by hand compute the same, with whatever window and however long everything takes") {
  const without_gpu setting;
  const gpt_shape shape = shape_for<bf16>();
  const layered_step set_up = set_up_of(shape);
  const layered_step plain = step_of(shape);
  const layered_step checked = step_of(shape, summed::everything);
  layer_executor<bf16> executor(sums_in(checked));
  const auto all = [&](auto& model) {
    std::vector<std::vector<std::uint64_t>> sums;
    model.use(set_up, 3, afterwards::ends);
    (void)model.run({.number = 0, .seed = 5});
    for (std::int64_t step = 0; step < 4; ++step) {
      const bool checks = step % 2 == 1;
      model.use(checks ? checked : plain, 0, afterwards::repeats);
      sums.push_back(model.run({.number = step, .seed = 5}));
    }
    model.use(plain, 2 * plain.launches.size(), afterwards::repeats);
    for (std::int64_t step = 4; step < 6; ++step)
      sums.push_back(model.run({.number = step, .seed = 5}));
    return sums;
  };
  std::vector<std::vector<std::uint64_t>> expected;
  {
    resident_model<bf16> model(executor, plain.tensors);
    expected = all(model);
  }
  CHECK(expected[1].size() == sums_in(checked));
  CHECK(expected[4] != expected[5]);
  const bytes footprint = footprint_of(shape);
  for (const std::uint64_t seed : {0U, 1U, 2U, 3U}) {
    CAPTURE(seed);
    fake_cuda::set_delays(seed, std::chrono::microseconds(seed == 0 ? 0 : 300));
    hand_model<bf16> model(executor, plain.tensors, bytes{footprint.count * (30 + 10 * seed) / 100});
    model.set_window(window_shares[seed]);
    CHECK(all(model) == expected);
    const counters did = model.count();
    CHECK(did.in > 0);
    CHECK(did.out > 0);
    CHECK(did.discarded > 0);
  }
}

TEST_CASE("a training step of layers computes the same under all systems") {
  const without_gpu setting;
  check_gpt_step<managed_memory, bf16>(false, true);
}
TEST_CASE("so it does with all updates at the end, in single precision, and when nobody forgets anything") {
  const without_gpu setting;
  check_gpt_step<managed_memory, float>(true, false);
}

TEST_CASE("a system that computes something else ends the run") {
  const without_gpu setting;
  // The reference is that of the first run; a second one with other weights is wrong.
  const gpt_shape shape = shape_for<bf16>();
  const layered_step set_up = set_up_of(shape);
  layer_executor<bf16> executor(sums_in(step_of(shape, summed::everything)));
  resident_model<bf16> model(executor, set_up.tensors);
  std::vector<std::vector<std::uint64_t>> sums;
  for (const std::uint64_t seed : {1U, 2U}) {
    model.use(set_up, 3, afterwards::ends);
    (void)model.run({.number = 0, .seed = seed});
    model.use(step_of(shape, summed::everything), 0, afterwards::repeats);
    sums.push_back(model.run({.number = 0, .seed = 1}));  // the same input, other weights
  }
  // Activations behind the first product, and all that stays: weights and moments.
  for (std::size_t i = 0; i < sums[0].size(); ++i) {
    const bool input = i == 1 || i == 2;  // of the first layer, and its norm
    CAPTURE(i);
    CHECK((sums[0][i] == sums[1][i]) == input);
  }
}

TEST_CASE("calls of one and of two models give the same under all systems, and weights never leave by a copy by hand") {
  const without_gpu setting;
  check_infer<managed_memory>();
}

TEST_CASE("a sweep through a small budget leaves what it should, beside launches that compute") {
  const without_gpu setting;
  check_churn<managed_memory>(0_B);
}

TEST_CASE("managed memory runs without chunks of its own, and with the choice of one") {
  const without_gpu setting;
  churn_runs<managed_memory> churn(settings_for<managed_memory>({"auto"}),
                                   {.size = 16_MiB, .budget = 8_MiB, .group = 2_MiB, .sweeps = 1}, {0_B, 4_MiB}, 10);
  const std::vector<churn_result> all = churn.run();
  REQUIRE(all.size() == 3);
  CHECK(all[1].skipped == "");
}

TEST_CASE("what a run chooses of memory and policies reaches the device and the policy") {
  bench_settings settings;
  const bytes chunk = deepum::cuda::device_options{}.chunk;
  CHECK(device_options_of(settings).chunk == chunk);
  CHECK(device_options_of(settings).evicted == deepum::cuda::evicted_chunks::unmapped);
  CHECK(tuning_of(settings).write_back == deepum::policy_options{}.write_back);
  settings.choices = {.chunk = 4_MiB, .host_mapped = true, .host_limit = 1_GiB, .write_back_early = false};
  settings.feed = deepum::cuda::fault_source::none;
  CHECK(device_options_of(settings).chunk == 4_MiB);
  CHECK(device_options_of(settings).evicted == deepum::cuda::evicted_chunks::host_mapped);
  CHECK(device_options_of(settings).host_limit == 1_GiB);
  CHECK(device_options_of(settings).faults == deepum::cuda::fault_source::none);
  CHECK(!tuning_of(settings).write_back);
  CHECK_THROWS_AS(with_memory("unknown", []<class Memory>() {}), deepum::error);
}

TEST_CASE("the largest batch follows from host memory, device memory and the cap of managed memory") {
  const without_gpu setting;
  gpt_shape shape = shape_for<bf16>();
  shape.batch = 1;
  const auto footprint = [&](std::int64_t batch) {
    gpt_shape s = shape;
    s.batch = batch;
    return footprint_of(s);
  };
  const bytes budget{footprint(1).count * 7 / 10};
  const bytes host{footprint(5).count};
  gpt_shape capped = shape;
  capped.batch = 3;
  const bytes cap = library_model<managed_memory, bf16>::capacity_of(step_of(capped).tensors, {}) + 1_MiB;
  largest_batch_runs<managed_memory, bf16> runs(settings_for<managed_memory>({"resident", "lru", "by_hand"}), shape,
                                                {budget}, host, cap, 8);
  const std::vector<batch_result> all = runs.run();
  REQUIRE(all.size() == 3);
  CHECK(all[0].found.batch == 0);  // resident memory is more than the budget
  CHECK(all[1].found.batch >= 3);
  CHECK(all[1].found.batch < 8);
  CHECK(all[2].found.batch >= 5);
  CHECK(all[2].found.batch < 8);
  CHECK(footprint(all[2].found.batch) <= host);
  CHECK(footprint(all[2].found.batch + 1) > host);
  MESSAGE(runs.table_of(all));
  CHECK(runs.json_of(all).size() == 3);
}

}  // namespace layered_runs
