// A recommendation model in the manner of DLRM whose tables are larger than the budget: 26 embedding tables, look-ups
// by Zipf's law, training with AdaGrad on the rows that a batch looks up. Shows what a step costs under each policy
// where launches say that they look rows up (docs/in_place.md), and where they do not.
//
//     cmake --preset release && cmake --build build --target recommender && build/bin/recommender

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "absl/strings/str_cat.h"
#include "backends.hpp"
#include "model.hpp"
#include <deepum/arena.hpp>
#include <deepum/engine/statistics.hpp>
#include <deepum/sim/device.hpp>
#include <deepum/sim/managed_memory.hpp>
#include <deepum/sim/paged_memory.hpp>
#include <deepum/sim/stream.hpp>

#if RECOMMENDER_CUDA
#include <deepum/cuda.hpp>
#endif

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <memory>
#include <random>
#include <string>
#include <vector>

ABSL_FLAG(std::string, device, "sim", "sim, or cuda");
ABSL_FLAG(std::string, memory, "both", "managed, paged or both");
ABSL_FLAG(std::int32_t, rows, 16384, "of each of the tables, of 256 bytes");
ABSL_FLAG(std::int32_t, tables, 26, "embedding tables");
ABSL_FLAG(std::int32_t, batch, 64, "samples of a step");
ABSL_FLAG(std::int32_t, bag, 4, "rows that a sample looks up in each table");
ABSL_FLAG(double, skew, 1.05, "of Zipf's law, above 1");
ABSL_FLAG(double, budget, 25, "device memory, in percent of the tables");
ABSL_FLAG(std::int32_t, steps, 8, "of each run");
ABSL_FLAG(bool, train, true, "off: inference");

namespace recommender {
namespace {

struct run_shape {
  sizes model{};
  deepum::bytes budget{};
  deepum::bytes tables{};
  std::int32_t steps = 0;
  double skew = 0;
  bool trains = true;
};

struct result {
  std::vector<float> losses{};
  double step_ms = 0;  // mean of the steps from the third one on
  deepum::statistics last{};
};

class stop_watch {
 public:
  [[nodiscard]] static double now(const deepum::sim::device& gpu) {
    return static_cast<double>(gpu.now().count()) / 1e6;
  }
  template <class Device>
  [[nodiscard]] static double now(const Device&) {
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now().time_since_epoch()).count();
  }
};

template <class Memory, class Kernels, class Device>
result run(Device& gpu, const run_shape& how, const std::string& policy, deepum::bytes budget, telling tells) {
  deepum::arena<Memory> arena{gpu,
                              {.capacity = how.tables + deepum::bytes{std::uint64_t{256} << 20U},
                               .device_budget = budget,
                               .policy = policy,
                               .log = {}}};
  model<Memory, Kernels> net(arena, how.model, tells);
  std::mt19937_64 random{7};
  const zipf_rows zipf(how.model.rows, how.skew);
  result r;
  double began = 0;
  for (std::int32_t step = 0; step != how.steps; ++step) {
    std::vector<look_ups> batch;
    for (index t = 0; t != how.model.tables; ++t) {
      batch.push_back(zipf.draw(random, how.model));
    }
    std::vector<float> dense(static_cast<std::size_t>(how.model.batch * how.model.features));
    std::vector<float> labels(static_cast<std::size_t>(how.model.batch));
    std::generate(dense.begin(), dense.end(), [&] { return static_cast<float>(random() >> 40U) * 0x1p-24F; });
    std::generate(labels.begin(), labels.end(), [&] { return random() % 4 == 0 ? 1.0F : 0.0F; });
    const deepum::statistics before = arena.statistics();
    began = step == std::min(2, how.steps - 1) ? stop_watch::now(gpu) : began;
    r.losses.push_back(net.step(batch, dense, labels, how.trains));
    r.last = arena.statistics() - before;
  }
  r.step_ms = (stop_watch::now(gpu) - began) / std::max(1, how.steps - 2);
  return r;
}

template <class Memory, class Kernels, class MakeDevice>
bool compare(const char* kind, const run_shape& how, const MakeDevice& make_device) {
  struct row {
    const char* policy;
    telling tells;
    bool resident;
  };
  constexpr row rows[] = {{"ideal", telling::rows, true},
                          {"um", telling::whole, false},
                          {"lru", telling::whole, false},
                          {"auto", telling::whole, false},
                          {"auto", telling::rows, false}};
  std::printf(
      "\n%s memory\n  policy  tables are          step   faults        in       out | rows read   written\n"
      "                              [ms]              [MiB]     [MiB] |     [KiB]     [KiB]\n",
      kind);
  std::vector<float> expected;
  bool right = true;
  for (const row& w : rows) {
    const auto gpu = make_device();
    const deepum::bytes all = how.tables + deepum::bytes{std::uint64_t{128} << 20U};
    const result r =
        run<Memory, Kernels>(*gpu, how, w.resident ? "auto" : w.policy, w.resident ? all : how.budget, w.tells);
    expected = expected.empty() ? r.losses : expected;
    right = right && r.losses == expected;
    std::printf("  %-7s %-11s %12.3f %8llu %9.1f %9.1f | %9.1f %9.1f\n", w.policy,
                w.resident                 ? "resident"
                : w.tells == telling::rows ? "looked up"
                                           : "used",
                r.step_ms, static_cast<unsigned long long>(r.last.faults),
                static_cast<double>(r.last.in().all_bytes()) / 1048576,
                static_cast<double>(r.last.out().all_bytes()) / 1048576,
                static_cast<double>(r.last.read_in_place) / 1024, static_cast<double>(r.last.written_in_place) / 1024);
  }
  std::printf("  loss %.4f -> %.4f, %s\n", static_cast<double>(expected.front()), static_cast<double>(expected.back()),
              right ? "bitwise the same in all runs" : "NOT THE SAME in all runs");
  return right;
}

bool main_program() {
  run_shape how;
  how.model.rows = absl::GetFlag(FLAGS_rows);
  how.model.tables = absl::GetFlag(FLAGS_tables);
  how.model.batch = absl::GetFlag(FLAGS_batch);
  how.model.bag = absl::GetFlag(FLAGS_bag);
  how.steps = absl::GetFlag(FLAGS_steps);
  how.skew = absl::GetFlag(FLAGS_skew);
  how.trains = absl::GetFlag(FLAGS_train);
  const double part = absl::GetFlag(FLAGS_budget) / 100;
  if (how.model.rows < 1 || how.model.tables < 1 || how.model.batch < 1 || how.model.bag < 1 || how.steps < 1 ||
      !(how.skew > 1) || !(part > 0)) {
    throw deepum::error(
        deepum::status::invalid_argument,
        "rows, tables, batch, bag and steps are at least 1, the skew is above 1, and the budget above 0");
  }
  how.tables = deepum::bytes{static_cast<std::uint64_t>(how.model.rows) * static_cast<std::uint64_t>(how.model.tables) *
                             static_cast<std::uint64_t>(how.model.width) * sizeof(float)};
  how.budget = deepum::bytes{static_cast<std::uint64_t>(static_cast<double>(how.tables.count) * part)};
  std::printf("%s, %d tables of %d rows of %d bytes: %.1f MiB, budget %.1f MiB, %d look-ups a step, %s\n",
              absl::GetFlag(FLAGS_device).c_str(), how.model.tables, how.model.rows,
              static_cast<int>(how.model.width * static_cast<index>(sizeof(float))),
              static_cast<double>(how.tables.count) / 1048576, static_cast<double>(how.budget.count) / 1048576,
              how.model.tables * how.model.batch * how.model.bag, how.trains ? "training" : "inference");
  const std::string memory = absl::GetFlag(FLAGS_memory);
  const bool managed = memory != "paged";
  const bool paged = memory != "managed";
  bool right = true;
  if (absl::GetFlag(FLAGS_device) == "sim") {
    const auto make = [&] {
      return std::make_unique<deepum::sim::device>(
          deepum::sim::find_profile("h200_pcie5"),
          deepum::sim::device_options{.memory = how.tables + deepum::bytes{std::uint64_t{512} << 20U}});
    };
    right = !managed || compare<deepum::sim::managed_memory, on_sim>("managed", how, make);
    right = (!paged || compare<deepum::sim::paged_memory, on_sim>("paged", how, make)) && right;
    return right;
  }
#if RECOMMENDER_CUDA
  if (absl::GetFlag(FLAGS_device) == "cuda") {
    const auto make = [] { return std::make_unique<deepum::cuda::device>(0); };
    right = !managed || compare<deepum::cuda::managed_memory, on_cuda>("managed", how, make);
    right = (!paged || compare<deepum::cuda::paged_memory, on_cuda>("paged", how, make)) && right;
    return right;
  }
#endif
  throw deepum::error(
      deepum::status::invalid_argument,
      absl::StrCat("--device is sim, or cuda where it was built with CUDA, not '", absl::GetFlag(FLAGS_device), "'"));
}

}  // namespace
}  // namespace recommender

int main(int argc, char** argv) try {
  absl::SetProgramUsageMessage("trains a recommendation model whose tables do not fit, under each policy");
  absl::ParseCommandLine(argc, argv);
  return recommender::main_program() ? 0 : 1;
} catch (const std::exception& e) {
  std::fprintf(stderr, "recommender: %s\n", e.what());
  return 1;
}
