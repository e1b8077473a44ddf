// train_gpt on a CUDA runtime without a GPU, whose kernels are functions of the host: in a program of its own. They do
// not compute what the model is, but what they write depends on all that they read, so that contents that are wrong, or
// that were not there, show in the losses.

#include "cuda/fake_gpu.hpp"

#include "../../examples/train_gpt/backend_cuda.hpp"
#include "../../examples/train_gpt/model.hpp"
#include "../../examples/train_gpt/options.hpp"
#include "../../examples/train_gpt/training.hpp"
#include "cuda/fake_cuda.hpp"
#include "gpu_bench/host_kernels.hpp"
#include <deepum/error.hpp>
#include <deepum/policy/make_policy.hpp>
#include <deepum/units.hpp>

#include <doctest/doctest.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace {

using namespace train_gpt;
using namespace deepum::literals;
using deepum_test::environment;
using deepum_test::fake_gpu;
namespace fake_cuda = deepum_test::fake_cuda;

using on_managed = cuda_backend<float, deepum::cuda::managed_memory>;
using on_paged = cuda_backend<float, deepum::cuda::paged_memory>;

constexpr model_shape shape{.layers = 3, .width = 256, .heads = deepum_test::model_heads, .context = 32, .batch = 4};
static_assert(shape.batch * shape.context == deepum_test::model_rows);

template <class Backend>
policy_run run(const char* policy, bytes budget, bytes chunk, purpose use = purpose::training,
               bool host_mapped = false) {
  const environment no_feed("DEEPUM_FAULT_FEED", "none");
  std::string text;
  for (int i = 0; i < 500; ++i)
    text.push_back(static_cast<char>('a' + i * 7 % 26));
  run_options options{.cuda = true,
                      .chunk = chunk,
                      .host_mapped = host_mapped,
                      .use = use,
                      .budget = budget,
                      .shape = shape,
                      .steps = 3,
                      .learning_rate = 1e-2F,
                      .seed = 2};
  return train<Backend>(
      options, policy, text, [](const policy_run&) {}, nullptr);
}

}  // namespace

TEST_CASE("on both kinds of memory a GPU finds the same losses, under every policy and with every chunk") {
  deepum_test::register_host_kernels();
  const fake_gpu gpu;
  const policy_run expected = run<on_managed>("ideal", 1_GiB, {});
  CHECK(expected.loss[0] != expected.loss[2]);
  CHECK(run<on_managed>("auto", 20_MiB, {}).loss == expected.loss);
  for (const std::string_view policy : deepum::policy_names()) {
    CAPTURE(policy);
    const policy_run found = run<on_paged>(policy.data(), 20_MiB, 2_MiB);
    CHECK(found.loss == expected.loss);
    CHECK((found.bytes_out.back() == 0) == (policy == "ideal"));
    CHECK(found.fault_feed.empty());
    if (policy != "ideal") CHECK(fake_cuda::stats().device_handles.count == 0);
  }
  CHECK(run<on_paged>("auto", 36_MiB, 4_MiB).loss == expected.loss);
  CHECK(run<on_paged>("auto", 20_MiB, 2_MiB, purpose::training, true).loss == expected.loss);  // host-mapped
  fake_cuda::set_delays(7, std::chrono::microseconds(200));
  CHECK(run<on_paged>("auto", 20_MiB, 2_MiB).loss == expected.loss);
}

TEST_CASE("the forward pass alone finds the same losses on both kinds of memory") {
  deepum_test::register_host_kernels();
  const fake_gpu gpu;
  const std::vector<float> expected = run<on_managed>("ideal", 1_GiB, {}, purpose::evaluation).loss;
  CHECK(run<on_paged>("auto", 10_MiB, 2_MiB, purpose::evaluation).loss == expected);
}

TEST_CASE("paged memory takes no managed memory, and of the device no more than the budget") {
  deepum_test::register_host_kernels();
  const fake_gpu gpu;
  (void)run<on_paged>("auto", 20_MiB, 2_MiB);
  CHECK(fake_cuda::stats().managed_peak.count == 0);
  CHECK(fake_cuda::stats().device_handles_peak == 20_MiB);
}

TEST_CASE("each launch of a GPU does what it declares and nothing else") {
  deepum_test::register_host_kernels();
  const fake_gpu gpu;
  deepum::cuda::device device{0, {.chunk = 2_MiB}};
  on_paged::arena arena{device, {.capacity = 96_MiB, .device_budget = 96_MiB, .checked = true, .log = {}}};
  on_paged::stream stream{arena};
  gpt<on_paged> model{arena, stream, shape, 3};
  const std::vector<std::int32_t> text(static_cast<std::size_t>(shape.rows()), 65);
  for (int step = 0; step < 2; ++step) {
    model.differentiate(text, text);
    model.update(1e-3F);
    CHECK_NOTHROW((void)model.loss());
  }
}

TEST_CASE("a budget in which the largest launch does not fit is refused with the numbers") {
  deepum_test::register_host_kernels();
  const fake_gpu gpu;
  CHECK_THROWS_WITH_AS(run<on_paged>("auto", 8_MiB, 4_MiB), doctest::Contains("the budget is 8388608: raise it"),
                       deepum::error);
}

TEST_CASE("a GPU whose driver moves no pages beside kernels is one for paged memory") {
  const fake_gpu gpu;
  std::string why_not;
  CHECK(find_cuda_gpu(why_not));
  CHECK(find_cuda_gpu(why_not, memory_choice::paged));
  fake_cuda::set_attribute(cudaDevAttrConcurrentManagedAccess, 0);
  CHECK_FALSE(find_cuda_gpu(why_not));
  CHECK(why_not.find("--memory paged") != std::string::npos);
  CHECK(find_cuda_gpu(why_not, memory_choice::paged));
  fake_cuda::set_attribute(cudaDevAttrConcurrentManagedAccess, 1);
  fake_cuda::fail_all_calls("cudaGetDriverEntryPointByVersion", cudaErrorNotSupported);
  CHECK(find_cuda_gpu(why_not));
  CHECK_FALSE(find_cuda_gpu(why_not, memory_choice::paged));
  CHECK(why_not.find("virtual memory management") != std::string::npos);
  fake_cuda::set_device_count(0);
  CHECK_FALSE(find_cuda_gpu(why_not, memory_choice::paged));
}
