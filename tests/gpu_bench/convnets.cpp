// Convolutional nets of the GPU benchmark, on a CUDA runtime and a cuDNN without a GPU.

#include "cuda/fake_cuda.hpp"
#include "gpu/programs/convnet_runs.hpp"
#include "gpu_bench/host_kernels.hpp"
#include "replay/convnet_nets.hpp"
#include "replay/workload.hpp"
#include <deepum/core/plan.hpp>
#include <deepum/cuda/paged_memory.hpp>
#include <deepum/units.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace convnets {

using namespace deepum::gpu_bench;
using namespace deepum::literals;
using namespace deepum_test;
using deepum::bytes;

// Every kind of layer, and a fork. Feature maps of blocks of their own.
deepum::replay::convnet small_net() {
  deepum::replay::convnet_builder b("small", 32);
  for (int i = 0; i != 4; ++i)
    b.conv(16, 3, 1, 1);
  b.pool(2, 2);
  const std::size_t from = b.conv(16, 3, 1, 1);
  b.add(b.conv(16, 3, 1, 1), from);
  b.pool(4, 4);
  b.full(10);
  b.softmax();
  return b.take();
}

bench_settings settings_of(std::vector<std::string> systems) {
  bench_settings s;
  s.systems = std::move(systems);
  s.choices.chunk = 2_MiB;
  s.steps = 1;
  s.warm_up = 2;
  s.audit = 0;
  s.seed = 3;
  s.feed = deepum::cuda::fault_source::none;
  s.pinned = {.in = 55e9, .out = 55e9, .in_both = 50e9, .out_both = 50e9};
  return s;
}

const system_run& run_of(const program_report& r, const std::string& name, std::size_t nth = 0) {
  for (const system_run& run : r.runs) {
    if (run.name == name && nth-- == 0) return run;
  }
  FAIL("there is no run ", name);
  return r.runs.front();
}
double out_of(const system_run& run) {
  return median(run, [](const measured_step& m) { return m.did.out; });
}

TEST_CASE("a net computes the same under vdnn, vdnn_ext and auto at equal peaks, and each moves what it should") {
  register_host_kernels();
  std::string text;
  {
    convnet_runs<deepum::cuda::paged_memory> runs(
        settings_of({"resident", "vdnn", "vdnn_ext", "auto", "um"}),
        {.net = small_net(), .batch = 64, .products = float_products::tf32, .choice_percent = 85},
        [&](const std::string& name, const std::string& step) {
          CHECK(name == "small_b64_tf32");
          text = step;
        });
    const program_report r = runs.run();
    for (const system_run& run : r.runs) {
      CAPTURE(run.name);
      CHECK(run.skipped == "");
      CHECK(run.steps.size() == 1);
      CHECK((run.budget == 0 || run.peak_bytes <= run.budget));
      CHECK(run.steps[0].sum != run.warm_up[0].sum);  // the net learns
    }
    const system_run& none = run_of(r, "vdnn none");
    const system_run& conv = run_of(r, "vdnn conv");
    const system_run& all = run_of(r, "vdnn all");
    CHECK(out_of(none) == 0);
    CHECK(out_of(conv) > 0);
    CHECK(out_of(all) > out_of(conv));  // the pools' and the sum's inputs, too
    CHECK(out_of(run_of(r, "vdnn_ext all")) == out_of(all));
    CHECK(all.peak_bytes < none.peak_bytes);
    CHECK(run_of(r, "vdnn_ext all").budget == all.peak_bytes);
    CHECK(run_of(r, "auto").budget == conv.peak_bytes);
    CHECK(run_of(r, "auto", 1).budget == all.peak_bytes);
    CHECK(run_of(r, "um").budget == all.peak_bytes);

    // Little is left for workspaces: the choice takes algorithms without any, and its step is another one.
    const auto& choice = runs.facts()["choice"];
    CHECK(choice["outcome"] == "conv_memory_optimal");
    CHECK(choice["predicted_peak_bytes"] <= choice["budget_bytes"]);
    const std::string chosen = ", chosen algorithms";
    for (const char* const system : {"vdnn choice", "vdnn_ext choice", "auto"})
      CHECK(run_of(r, system + chosen).budget == choice["budget_bytes"]);
    CHECK(run_of(r, "resident" + chosen).steps[0].sum != run_of(r, "resident").steps[0].sum);
    CHECK(runs.facts()["layers"].size() == small_net().layers.size());
    CHECK(runs.facts()["layers"][0]["algorithms"][0]["workspace_bytes"] > 0);
  }
  const deepum::replay::workload step = deepum::replay::parse_workload("the step", text);
  CHECK(step.launches.front().kernel == "conv0_forward");
  CHECK(step.launches.front().layer->kind == deepum::layer_kind::conv);
  CHECK(step.compute > deepum::nanoseconds{});
  CHECK(fake_cuda::reset() == "");
}

}  // namespace convnets
