// Measures the library on a GPU beside what a program would have without it, all in one run.

#include "../../examples/support/flags.hpp"
#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "bench_system.hpp"
#include "energy.hpp"
#include "feed_runs.hpp"
#include "fits_runs.hpp"
#include "gather_runs.hpp"
#include "measure_links.hpp"
#include "model_runs.hpp"
#include "nlohmann/json.hpp"
#include "policy_checks.hpp"
#include "report.hpp"
#include "safety.hpp"
#include <deepum/cuda/device.hpp>
#include <deepum/cuda/managed_limit.hpp>
#include <deepum/error.hpp>
#include <deepum/units.hpp>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <utility>
#include <vector>

ABSL_FLAG(std::string, programs, "train,evaluate,gather,fits",
          "what to measure, with commas: train, evaluate (forward pass alone), gather (scattered, undeclared), fits "
          "(everything fits), feeds (what page fault feeds cost)");
ABSL_FLAG(
    std::string, systems, "all",
    "memory systems, with commas: resident, um (demand paging), once (prefetched when allocated), double_managed, "
    "double_pinned (double buffering by hand), lru, deepum, auto; or all");
ABSL_FLAG(std::string, budgets, "75,50,35", "device memory, in percent of the footprint, with commas");
ABSL_FLAG(std::int64_t, steps, 10, "steps to measure");
ABSL_FLAG(std::int64_t, warm_up, 5, "steps before them, in which the systems learn and results are checked");
ABSL_FLAG(std::int64_t, audit, 3, "steps behind them, in which the driver tells what it moves; 0: none");
ABSL_FLAG(std::int64_t, layers, 12, "layers of the model that is trained");
ABSL_FLAG(std::int64_t, width, 1024, "its width");
ABSL_FLAG(std::int64_t, heads, 16, "its attention heads");
ABSL_FLAG(std::int64_t, context, 128, "bytes in a sequence");
ABSL_FLAG(std::int64_t, batch, 4, "sequences in a step");
ABSL_FLAG(
    std::int64_t, evaluate_layers, 40,
    "layers of the model that is evaluated, otherwise of the same shape; drawing the weights of 56 of width 1024, "
    "3 GiB, takes half a minute for each system");
ABSL_FLAG(std::string, precision, "fp32", "fp32 or bf16");
ABSL_FLAG(std::uint32_t, gather_pieces, 640, "pieces of 2 MiB in the table of gather");
ABSL_FLAG(std::uint32_t, gather_launches, 12, "launches of gather in a step");
ABSL_FLAG(std::uint32_t, gather_each, 32, "pieces that one of them updates");
ABSL_FLAG(std::int64_t, gather_change, 6, "steps until they update other pieces");
ABSL_FLAG(std::int64_t, feed_mib, 512, "memory that faults in feeds");
ABSL_FLAG(std::int64_t, link_mib, 768, "memory that moves to measure the links");
ABSL_FLAG(std::string, feed, "auto", "where the library learns of page faults: auto, driver, cupti or none");
ABSL_FLAG(std::int64_t, check_policies, 0,
          "instead of measuring: compares the losses of this many steps under every policy and budget");
ABSL_FLAG(std::int64_t, check_programs, 50, "random programs for --check_policies");
ABSL_FLAG(std::uint64_t, seed, 1, "of weights and data");
ABSL_FLAG(std::string, json, "", "file for all that was measured, step by step");
ABSL_FLAG(std::string, commit, "", "what was measured, for the JSON file: git describe --always --dirty");

namespace deepum::gpu_bench {
namespace {

constexpr int cannot_run = 77;
constexpr const char* system_names[] = {"resident",      "um",  "once",   "double_managed",
                                        "double_pinned", "lru", "deepum", "auto"};
constexpr const char* program_names[] = {"train", "evaluate", "gather", "fits", "feeds"};

struct options {
  bench_settings settings{};
  std::vector<std::string> programs{};
  train_gpt::model_shape shape{};
  train_gpt::model_shape evaluate_shape{};
  bool bf16 = false;
  gather_shape gather{};
  bytes feed_size{};
  bytes link_size{};
  std::int64_t check_steps = 0;
  std::uint64_t check_programs = 0;

  [[nodiscard]] bool runs(const char* program) const {
    return std::find(programs.begin(), programs.end(), program) != programs.end();
  }
};

template <class Names>
absl::StatusOr<std::vector<std::string>> chosen(const char* flag, const std::string& text, const Names& names) {
  if (text == "all") return std::vector<std::string>(std::begin(names), std::end(names));
  std::vector<std::string> list = absl::StrSplit(text, ',');
  for (auto name = list.begin(); name != list.end(); ++name) {
    if (std::find(std::begin(names), std::end(names), *name) == std::end(names)) {
      return absl::InvalidArgumentError(
          absl::StrCat("--", flag, " does not know '", *name, "'; there are ", absl::StrJoin(names, ", "), " and all"));
    }
    if (std::find(list.begin(), name, *name) != name) {
      return absl::InvalidArgumentError(absl::StrCat("--", flag, " names '", *name, "' twice"));
    }
  }
  return list;
}

absl::Status in_range(const char* flag, std::int64_t value, std::int64_t least, std::int64_t most) {
  if (value >= least && value <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrFormat("--%s has to be from %d to %d, not %d", flag, least, most, value));
}

absl::StatusOr<options> options_from_flags() {
  options o;
  bench_settings& s = o.settings;
  absl::StatusOr<std::vector<std::string>> list = chosen("systems", absl::GetFlag(FLAGS_systems), system_names);
  if (!list.ok()) return list.status();
  s.systems = *std::move(list);
  list = chosen("programs", absl::GetFlag(FLAGS_programs), program_names);
  if (!list.ok()) return list.status();
  o.programs = *std::move(list);
  for (const std::string& text : std::vector<std::string>(absl::StrSplit(absl::GetFlag(FLAGS_budgets), ','))) {
    double percent = 0;
    if (!absl::SimpleAtod(text, &percent) || !(percent >= 5 && percent <= 200)) {
      return absl::InvalidArgumentError(absl::StrCat("--budgets are percentages from 5 to 200, not '", text, "'"));
    }
    s.budgets.push_back(percent);
  }
  const std::string feed = absl::GetFlag(FLAGS_feed);
  if (feed == "driver") {
    s.feed = cuda::fault_source::driver;
  } else if (feed == "cupti") {
    s.feed = cuda::fault_source::cupti;
  } else if (feed == "none") {
    s.feed = cuda::fault_source::none;
  } else if (feed != "auto") {
    return absl::InvalidArgumentError(absl::StrCat("--feed is auto, driver, cupti or none, not '", feed, "'"));
  }
  s.steps = absl::GetFlag(FLAGS_steps);
  s.warm_up = absl::GetFlag(FLAGS_warm_up);
  s.audit = absl::GetFlag(FLAGS_audit);
  s.seed = absl::GetFlag(FLAGS_seed);
  o.shape = {.layers = absl::GetFlag(FLAGS_layers),
             .width = absl::GetFlag(FLAGS_width),
             .heads = absl::GetFlag(FLAGS_heads),
             .context = absl::GetFlag(FLAGS_context),
             .batch = absl::GetFlag(FLAGS_batch)};
  o.evaluate_shape = o.shape;
  o.evaluate_shape.layers = absl::GetFlag(FLAGS_evaluate_layers);
  o.gather = {.pieces = absl::GetFlag(FLAGS_gather_pieces),
              .launches = absl::GetFlag(FLAGS_gather_launches),
              .each = absl::GetFlag(FLAGS_gather_each),
              .change = absl::GetFlag(FLAGS_gather_change)};
  o.feed_size = bytes{static_cast<std::uint64_t>(absl::GetFlag(FLAGS_feed_mib)) << 20};
  o.link_size = bytes{static_cast<std::uint64_t>(absl::GetFlag(FLAGS_link_mib)) << 20};
  o.check_steps = absl::GetFlag(FLAGS_check_policies);
  const std::int64_t programs = absl::GetFlag(FLAGS_check_programs);
  o.check_programs = static_cast<std::uint64_t>(programs);
  for (const absl::Status& status :
       {in_range("steps", s.steps, 1, 10'000), in_range("warm_up", s.warm_up, 2, 10'000),
        in_range("audit", s.audit, 0, 1000), in_range("layers", o.shape.layers, 1, 1000),
        in_range("width", o.shape.width, 32, 16'384), in_range("heads", o.shape.heads, 1, 256),
        in_range("context", o.shape.context, 8, 4096), in_range("batch", o.shape.batch, 1, 4096),
        in_range("evaluate_layers", o.evaluate_shape.layers, 1, 1000),
        in_range("gather_pieces", o.gather.pieces, 1, 2048), in_range("gather_launches", o.gather.launches, 1, 1000),
        in_range("gather_each", o.gather.each, 1, o.gather.pieces),
        in_range("gather_change", o.gather.change, 1, 10'000),
        in_range("feed_mib", absl::GetFlag(FLAGS_feed_mib), 2, 4096),
        in_range("link_mib", absl::GetFlag(FLAGS_link_mib), 128, 2048), in_range("check_programs", programs, 0, 10'000),
        in_range("check_policies", o.check_steps, 0, 100'000)}) {
    if (!status.ok()) return status;
  }
  if (o.shape.width % o.shape.heads != 0 || o.shape.width / o.shape.heads % 2 != 0) {
    return absl::InvalidArgumentError("--width has to be a multiple of twice --heads");
  }
  const std::string precision = absl::GetFlag(FLAGS_precision);
  if (precision != "fp32" && precision != "bf16") {
    return absl::InvalidArgumentError(absl::StrCat("--precision is fp32 or bf16, not '", precision, "'"));
  }
  o.bf16 = precision == "bf16";
  if (std::getenv("DEEPUM_POLICY") != nullptr) {
    return absl::FailedPreconditionError("DEEPUM_POLICY is set and would replace what --systems chooses; unset it");
  }
  s.say = [](const std::string& line) { absl::FPrintF(stderr, "%s\n", line); };
  return o;
}

/// Calls `f<float>()` or `f<bf16>()`.
template <class F>
auto in_precision(bool bf16, F&& f) {
  return bf16 ? f.template operator()<train_gpt::bf16>() : f.template operator()<float>();
}

bytes footprint(const options& o, const train_gpt::model_shape& shape, train_gpt::purpose use) {
  return in_precision(o.bf16, [&]<class T>() { return model_runs<T>::footprint(shape, use); });
}
/// A model of which several fit where one of `train` does.
train_gpt::model_shape small_shape(train_gpt::model_shape shape) {
  shape.layers = std::max<train_gpt::index>(1, shape.layers / 3);
  return shape;
}

/// Managed memory that the run has at most at a time.
bytes most_managed(const options& o) {
  using train_gpt::purpose;
  bytes most = block_size * 128;  // small launches, random programs
  const auto consider = [&](bytes size) { most = std::max(most, size); };
  if (o.check_steps != 0) {
    consider(capacity_of(model_runs<float>::footprint(checked_shape, purpose::training)));
    return most;
  }
  if (o.runs("train")) consider(capacity_of(footprint(o, o.shape, purpose::training)));
  if (o.runs("evaluate")) consider(capacity_of(footprint(o, o.evaluate_shape, purpose::evaluation)));
  if (o.runs("train") || o.runs("evaluate") || o.runs("gather")) {
    consider(o.link_size + bytes{o.link_size.count / 2});
  }
  if (o.runs("gather")) consider(capacity_of(o.gather.table() + block_size * o.gather.launches));
  if (o.runs("fits")) consider(capacity_of(footprint(o, small_shape(o.shape), purpose::training)));
  if (o.runs("feeds")) consider(capacity_of(o.feed_size));
  return most;
}

void print(const std::string& text) {
  std::fputs(text.c_str(), stdout);
  std::fflush(stdout);
}

absl::Status measure(const options& o, const cuda::device& gpu, const energy_meter& energy) {
  bench_settings settings = o.settings;
  settings.energy = &energy;
  std::ofstream file;
  const std::string path = absl::GetFlag(FLAGS_json);
  if (!path.empty()) {
    file.open(path);
    if (!file) return absl::PermissionDeniedError(absl::StrCat("cannot write to the JSON file '", path, "'"));
  }
  const cuda::device_properties& p = gpu.properties();
  nlohmann::ordered_json json{{"gpu", p.name},
                              {"device_memory", p.memory.count},
                              {"driver", energy.driver()},
                              {"cuda_of_driver", p.driver_version},
                              {"cuda_runtime", p.runtime_version},
                              {"commit", absl::GetFlag(FLAGS_commit)},
                              {"flags",
                               {{"programs", absl::StrJoin(o.programs, ",")},
                                {"systems", absl::StrJoin(settings.systems, ",")},
                                {"budgets", settings.budgets},
                                {"steps", settings.steps},
                                {"warm_up", settings.warm_up},
                                {"audit", settings.audit},
                                {"layers", o.shape.layers},
                                {"width", o.shape.width},
                                {"heads", o.shape.heads},
                                {"context", o.shape.context},
                                {"batch", o.shape.batch},
                                {"evaluate_layers", o.evaluate_shape.layers},
                                {"precision", o.bf16 ? "bf16" : "fp32"},
                                {"feed", absl::GetFlag(FLAGS_feed)},
                                {"seed", settings.seed}}}};
  // What is there is written after each part, so that an interruption loses no more than one.
  const auto save = [&] {
    if (file.is_open()) {
      file.seekp(0);
      file << json.dump(1) << '\n';
      file.flush();
    }
  };
  print(absl::StrFormat("%s, driver %s, %s\n", p.name, energy.driver(), absl::GetFlag(FLAGS_commit)));

  if (o.runs("train") || o.runs("evaluate") || o.runs("gather")) {
    settings.say("links");
    settings.managed = managed_rates(0, o.link_size);
    settings.pinned = pinned_rates(o.link_size);
    const auto line = [](const char* name, const link_rates& r) {
      print(absl::StrFormat("%s: in %.1f, out %.1f GB/s; both at once: in %.1f, out %.1f GB/s\n", name, r.in / 1e9,
                            r.out / 1e9, r.in_both / 1e9, r.out_both / 1e9));
    };
    line("managed", settings.managed);
    line("pinned", settings.pinned);
    save();
  }
  const auto add = [&](program_report report) {
    print(table_of(report));
    json["programs"].push_back(json_of(report));
    save();
  };
  const auto models = [&](const bench_settings& s, const train_gpt::model_shape& shape, train_gpt::purpose use) {
    return in_precision(o.bf16, [&]<class T>() { return model_runs<T>(s, shape, use).run(); });
  };
  if (o.runs("train")) add(models(settings, o.shape, train_gpt::purpose::training));
  if (o.runs("evaluate")) add(models(settings, o.evaluate_shape, train_gpt::purpose::evaluation));
  if (o.runs("gather")) add(gather_runs(settings, o.gather).run());
  if (o.runs("fits")) {
    fits_runs fits(settings);
    const std::vector<launch_costs> costs = fits.run();
    print(fits_runs::table_of(costs));
    json["small_launches"] = fits_runs::json_of(costs);
    save();
    bench_settings all_fits = settings;
    std::erase_if(all_fits.systems,
                  [](const std::string& s) { return s == "once" || s == "double_managed" || s == "double_pinned"; });
    const train_gpt::model_shape shape = small_shape(o.shape);
    const bytes size = footprint(o, shape, train_gpt::purpose::training);
    all_fits.budgets = {100.0 * static_cast<double>((capacity_of(size) + block_size).count) /
                        static_cast<double>(size.count)};
    program_report report = models(all_fits, shape, train_gpt::purpose::training);
    report.name = "fits";
    add(std::move(report));
  }
  if (o.runs("feeds")) {
    feed_runs feeds(settings, o.feed_size);
    const std::vector<feed_cost> costs = feeds.run();
    print(feeds.table_of(costs));
    json["feeds"] = feeds.json_of(costs);
    save();
  }
  if (file.is_open()) {
    file.close();
    if (!file) return absl::DataLossError(absl::StrCat("could not write all of the JSON file '", path, "'"));
  }
  return absl::OkStatus();
}

int run() {
  const absl::StatusOr<options> o = options_from_flags();
  if (!o.ok()) {
    absl::FPrintF(stderr, "deepum-gpu-bench: %s\n", o.status().message());
    return 1;
  }
  std::optional<bytes> limit = cuda::managed_limit::from_environment();
  const bytes wanted = most_managed(*o);
  // What can be said without a GPU is said first.
  if (const auto why = refusal(limit, bytes{UINT64_MAX}, wanted)) {
    absl::FPrintF(stderr, "deepum-gpu-bench: %s\n", *why);
    return 1;
  }
  std::optional<cuda::device> gpu;
  try {
    gpu.emplace(0);
  } catch (const error& e) {
    absl::FPrintF(stderr, "deepum-gpu-bench: %s\n", e.what());
    return e.code() == status::unsupported ? cannot_run : 1;
  }
  if (!gpu->properties().concurrent_managed_access) {
    absl::FPrintF(stderr, "deepum-gpu-bench: %s cannot move managed memory while kernels run\n",
                  gpu->properties().name);
    return cannot_run;
  }
  const auto free = bytes{static_cast<std::uint64_t>(free_device_memory())};
  if (const auto why = refusal(limit, free, wanted)) {
    absl::FPrintF(stderr, "deepum-gpu-bench: %s\n", *why);
    return 1;
  }
  const energy_meter energy(0);
  if (o->check_steps != 0) {
    const std::string wrong = check_policies(o->settings, o->check_steps, o->check_programs);
    print(wrong.empty()
              ? absl::StrFormat("the same under every policy and budget: the losses of %d steps, and %d random "
                                "programs\n",
                                o->check_steps, o->check_programs)
              : wrong);
    return wrong.empty() ? 0 : 1;
  }
  const absl::Status status = measure(*o, *gpu, energy);
  if (!status.ok()) absl::FPrintF(stderr, "deepum-gpu-bench: %s\n", status.message());
  return status.ok() ? 0 : 1;
}

}  // namespace
}  // namespace deepum::gpu_bench

int main(int argc, char** argv) {
  absl::SetProgramUsageMessage(
      "measures the library on a GPU beside demand paging, double buffering by hand and memory that is large enough");
  const std::vector<char*> arguments = absl::ParseCommandLine(argc, argv);
  if (arguments.size() > 1) {
    absl::FPrintF(stderr, "deepum-gpu-bench: '%s' is no option; options begin with --\n", arguments[1]);
    return 1;
  }
  try {
    return deepum::gpu_bench::run();
  } catch (const std::exception& e) {
    absl::FPrintF(stderr, "deepum-gpu-bench: %s\n", e.what());
  }
  return 1;
}
