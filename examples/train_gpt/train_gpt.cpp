// Trains a small transformer on the bytes of a text, under several policies, with less device memory than it needs, and
// shows what each policy costs.

#include "absl/flags/flag.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "backend_sim.hpp"
#include "model.hpp"
#include "options.hpp"
#include "program/command_line.hpp"
#include "program/json_file.hpp"
#include "recorded_step.hpp"
#include "report.hpp"
#include "text.hpp"
#include "training.hpp"
#include <deepum/core/block.hpp>
#include <deepum/policy/make_policy.hpp>
#include <deepum/sim/profile.hpp>
#include <deepum/trace.hpp>

#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#if defined(TRAIN_GPT_CUDA)
#include "backend_cuda.hpp"
#endif

ABSL_FLAG(std::string, device, "auto",
          "where to train: cuda, sim or sim:PROFILE (a GPU to simulate); auto is cuda where there is a GPU that can");
ABSL_FLAG(std::string, memory, "managed",
          "managed (pages that move when they are touched), paged (no page faults: every launch declares all that it "
          "touches, and the largest has to fit the budget), or both, side by side");
ABSL_FLAG(train_gpt::chunk_flag, chunk, {},
          "what paged memory on a GPU maps at a time: a power of two from 2MiB to 32MiB, or auto");
ABSL_FLAG(std::string, evicted, "unmapped",
          "what is at the addresses of paged memory that is not on the GPU: unmapped (nothing), or host-mapped (the "
          "host's copy: a launch that touches what it did not declare is slow, and not an error)");
ABSL_FLAG(std::string, precision, "fp32", "what a GPU computes with: fp32 or bf16 (mixed precision)");
ABSL_FLAG(bool, evaluate, false, "the forward pass alone: weights are read and never written");
ABSL_FLAG(
    double, compute_slowdown, 1,
    "how much slower than its profile the simulated GPU computes: a wide model computes more for each byte than one "
    "that a processor can train, and this makes up for it");
ABSL_FLAG(
    std::string, policy, "auto",
    "ideal (all resident), um (the driver alone; on paged memory: what launches wait for), lru, deepum, auto; several "
    "with commas; or all");
ABSL_FLAG(train_gpt::budget_flag, budget, {},
          "device memory, in bytes (64MiB, 2GiB) or as a share of the footprint (40%)");
ABSL_FLAG(train_gpt::lookahead_flag, lookahead, {}, "launches to look ahead, or auto");
ABSL_FLAG(bool, hold, true, "launches wait for what is being brought for them (docs/adr/0004)");
ABSL_FLAG(std::int64_t, steps, 50, "steps of training");
ABSL_FLAG(std::int64_t, layers, train_gpt::model_shape{}.layers, "layers of the model");
ABSL_FLAG(std::int64_t, width, train_gpt::model_shape{}.width, "width of the residual path");
ABSL_FLAG(std::int64_t, heads, train_gpt::model_shape{}.heads, "attention heads; they divide the width");
ABSL_FLAG(std::int64_t, context, train_gpt::model_shape{}.context, "bytes of text that the model sees at once");
ABSL_FLAG(std::int64_t, batch, train_gpt::model_shape{}.batch, "pieces of text in one step");
ABSL_FLAG(double, learning_rate, 4e-3, "peak learning rate of AdamW");
ABSL_FLAG(std::uint64_t, seed, 1, "of weights, batches and the sample");
ABSL_FLAG(std::string, corpus, TRAIN_GPT_CORPUS, "the text to learn");
ABSL_FLAG(std::string, json, "", "file for all that was measured, step by step");
ABSL_FLAG(std::string, trace, "",
          "file for a trace of every launch, copy, fault and stall, for ui.perfetto.dev and ./run report");
ABSL_FLAG(std::string, tables, "",
          "file for what the policy learns: the run begins with it, where it is there, and replaces it at the end");
ABSL_FLAG(std::int64_t, sample, 160, "bytes that the trained model writes at the end");

namespace train_gpt {
namespace {

absl::Status in_range(const char* flag, std::int64_t value, std::int64_t least, std::int64_t most) {
  if (value >= least && value <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrFormat("--%s has to be from %d to %d, not %d", flag, least, most, value));
}

absl::StatusOr<model_shape> shape_from_flags() {
  const model_shape m{.layers = absl::GetFlag(FLAGS_layers),
                      .width = absl::GetFlag(FLAGS_width),
                      .heads = absl::GetFlag(FLAGS_heads),
                      .context = absl::GetFlag(FLAGS_context),
                      .batch = absl::GetFlag(FLAGS_batch)};
  for (const absl::Status& s : {in_range("layers", m.layers, 1, 1000), in_range("width", m.width, 1, 65536),
                                in_range("heads", m.heads, 1, m.width), in_range("context", m.context, 1, 65536),
                                in_range("batch", m.batch, 1, 65536)}) {
    if (!s.ok()) return s;
  }
  if (m.width % m.heads != 0) {
    return absl::InvalidArgumentError(absl::StrFormat("--heads %d does not divide --width %d", m.heads, m.width));
  }
  return m;
}

// The device that a run is to use, as the report names it.
struct chosen_device {
  bool cuda = false;
  std::string profile{};  // of the simulated GPU
  std::string name{};
  std::string driver{};
};

absl::StatusOr<std::vector<memory_choice>> memories_from_flags() {
  const std::string flag = deepum_program::memory_kind_of(absl::GetFlag(FLAGS_memory));
  std::vector<memory_choice> chosen;
  for (const memory_choice m : {memory_choice::managed, memory_choice::paged}) {
    if (flag == name_of(m) || flag == "both") chosen.push_back(m);
  }
  if (chosen.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("there is no memory '", flag, "'; there are managed, paged and both"));
  }
  return chosen;
}

absl::StatusOr<chosen_device> simulated_from_flags(const std::string& profile) {
  const std::vector<std::string> known = deepum::sim::profile_names();
  if (std::find(known.begin(), known.end(), profile) == known.end()) {
    return absl::InvalidArgumentError(
        absl::StrCat("there is no profile '", profile, "'; there are ", absl::StrJoin(known, ", ")));
  }
  if (absl::GetFlag(FLAGS_precision) != "fp32") {
    return absl::InvalidArgumentError("the simulated GPU computes in fp32 alone; --precision is for --device cuda");
  }
  if (absl::GetFlag(FLAGS_chunk).size.count != 0) {
    return absl::InvalidArgumentError("the simulated GPU maps blocks of 2 MiB; --chunk is for --device cuda");
  }
  if (absl::GetFlag(FLAGS_evicted) != "unmapped") {
    return absl::InvalidArgumentError("the simulated GPU maps no memory of the host; --evicted is for --device cuda");
  }
  const double slowdown = absl::GetFlag(FLAGS_compute_slowdown);
  const std::string slower = slowdown == 1.0 ? "" : absl::StrFormat(", computing %g times slower", slowdown);
  return chosen_device{.profile = profile, .name = absl::StrCat("sim:", profile, slower)};
}

// Nothing where this build or this machine has no GPU, and `auto` may do without.
absl::StatusOr<std::optional<chosen_device>> gpu_from_flags([[maybe_unused]] bool needed,
                                                            [[maybe_unused]] memory_choice memory) {
#if defined(TRAIN_GPT_CUDA)
  std::string why_not;
  const std::optional<cuda_gpu> gpu = find_cuda_gpu(why_not, memory);
  if (!gpu) {
    if (!needed) return std::nullopt;
    return absl::UnavailableError(absl::StrCat("--device cuda: ", why_not));
  }
  if (absl::GetFlag(FLAGS_precision) == "bf16" && !gpu->bf16) {
    return absl::UnavailableError(absl::StrCat(gpu->name, " cannot multiply in bf16; use --precision fp32"));
  }
  if (absl::GetFlag(FLAGS_compute_slowdown) != 1.0) {
    return absl::InvalidArgumentError("--compute_slowdown is of a simulated GPU; use it with --device sim");
  }
  return chosen_device{.cuda = true, .name = absl::StrCat("cuda:", gpu->name), .driver = gpu->driver};
#else
  if (!needed) return std::nullopt;
  return absl::UnavailableError("this build has no CUDA device to train on; use --device sim");
#endif
}

absl::StatusOr<chosen_device> device_from_flags(memory_choice memory) {
  const std::string flag = absl::GetFlag(FLAGS_device);
  absl::string_view device = flag;
  const std::string first_profile = deepum::sim::profile_names().front();
  if (device == "sim") return simulated_from_flags(first_profile);
  if (absl::ConsumePrefix(&device, "sim:")) return simulated_from_flags(std::string{device});
  if (device != "auto" && device != "cuda") {
    return absl::InvalidArgumentError(
        absl::StrCat("there is no device '", device, "'; there are auto, cuda, sim and sim:PROFILE"));
  }
  absl::StatusOr<std::optional<chosen_device>> gpu = gpu_from_flags(device == "cuda", memory);
  if (!gpu.ok()) return gpu.status();
  if (*gpu) return **std::move(gpu);
  return simulated_from_flags(first_profile);
}

absl::StatusOr<precision> precision_from_flags() {
  const std::string flag = absl::GetFlag(FLAGS_precision);
  if (flag == "fp32") return precision::fp32;
  if (flag == "bf16") return precision::bf16;
  return absl::InvalidArgumentError(absl::StrCat("there is no precision '", flag, "'; there are fp32 and bf16"));
}

// Calls `f` with the backend of the run as a template argument.
template <class F>
auto with_backend(const run_options& options, F f) {
  const bool paged = options.memory == memory_choice::paged;
#if defined(TRAIN_GPT_CUDA)
  if (options.cuda) {
    const auto computing_in = [&]<class T>() {
      return paged ? f.template operator()<cuda_backend<T, deepum::cuda::paged_memory>>()
                   : f.template operator()<cuda_backend<T>>();
    };
    return options.computes_in == precision::fp32 ? computing_in.template operator()<float>()
                                                  : computing_in.template operator()<bf16>();
  }
#endif
  return paged ? f.template operator()<paged_sim_backend>() : f.template operator()<sim_backend>();
}

bytes footprint_of(const run_options& options) {
  return with_backend(options, [&]<class Backend>() { return gpt<Backend>::footprint(options.shape, options.use); });
}

bytes block_of(const run_options& options) {
  return with_backend(options, [&]<class Backend>() { return Backend::block(options); });
}

absl::StatusOr<std::vector<std::string>> policies_from_flags() {
  constexpr auto names = deepum::policy_names();
  std::vector<std::string> known(names.begin(), names.end());
  // The model names no layers, and its arena has no neighbours.
  std::erase_if(known,
                [](const std::string& name) { return deepum::needs_layers(name) || deepum::needs_neighbours(name); });
  if (absl::GetFlag(FLAGS_policy) == "all") return known;
  std::vector<std::string> chosen = absl::StrSplit(absl::GetFlag(FLAGS_policy), ',');
  for (auto name = chosen.begin(); name != chosen.end(); ++name) {
    if (std::find(known.begin(), known.end(), *name) == known.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat("there is no policy '", *name, "'; there are ", absl::StrJoin(known, ", "), " and all"));
    }
    if (std::find(chosen.begin(), name, *name) != name) {
      return absl::InvalidArgumentError(absl::StrCat("--policy names '", *name, "' twice"));
    }
  }
  return chosen;
}

/// @param memories  All that the program runs on.
absl::StatusOr<run_options> options_from_flags(const std::vector<memory_choice>& memories, memory_choice memory,
                                               chosen_device& device) {
  run_options options{.use = absl::GetFlag(FLAGS_evaluate) ? purpose::evaluation : purpose::training,
                      .compute_slowdown = absl::GetFlag(FLAGS_compute_slowdown),
                      .lookahead = absl::GetFlag(FLAGS_lookahead),
                      .hold = absl::GetFlag(FLAGS_hold),
                      .steps = absl::GetFlag(FLAGS_steps),
                      .learning_rate = static_cast<float>(absl::GetFlag(FLAGS_learning_rate)),
                      .seed = absl::GetFlag(FLAGS_seed),
                      .sample = absl::GetFlag(FLAGS_sample),
                      .tables = absl::GetFlag(FLAGS_tables)};
  if (absl::Status s = in_range("steps", options.steps, 1, 1'000'000); !s.ok()) return s;
  if (absl::Status s = in_range("sample", options.sample, 0, 1'000'000); !s.ok()) return s;
  if (!(options.learning_rate > 0 && options.learning_rate <= 1)) {
    return absl::InvalidArgumentError("--learning_rate has to be above 0 and at most 1");
  }
  if (!(options.compute_slowdown >= 1 && options.compute_slowdown <= 1e6)) {
    return absl::InvalidArgumentError("--compute_slowdown has to be from 1 to 1000000");
  }
  absl::StatusOr<model_shape> shape = shape_from_flags();
  if (!shape.ok()) return shape.status();
  options.shape = *shape;
  const absl::StatusOr<precision> computes_in = precision_from_flags();
  if (!computes_in.ok()) return computes_in.status();
  options.computes_in = *computes_in;
  options.memory = memory;
  const bool maps = memory == memory_choice::paged;
  if (maps) options.chunk = absl::GetFlag(FLAGS_chunk).size;
  if (absl::GetFlag(FLAGS_chunk).size.count != 0 && memories.back() != memory_choice::paged) {
    return absl::InvalidArgumentError("--chunk is of paged memory; use it with --memory paged");
  }
  const std::string evicted = absl::GetFlag(FLAGS_evicted);
  if (evicted != "unmapped" && evicted != "host-mapped") {
    return absl::InvalidArgumentError(absl::StrCat("--evicted is unmapped or host-mapped, not '", evicted, "'"));
  }
  options.host_mapped = maps && evicted == "host-mapped";
  if (evicted == "host-mapped" && memories.back() != memory_choice::paged) {
    return absl::InvalidArgumentError("--evicted is of paged memory; use it with --memory paged");
  }
  absl::StatusOr<chosen_device> chosen = device_from_flags(options.memory);
  if (!chosen.ok()) return chosen.status();
  device = *std::move(chosen);
  options.cuda = device.cuda;
  options.profile = device.profile;
  absl::StatusOr<std::vector<std::string>> policies = policies_from_flags();
  if (!policies.ok()) return policies.status();
  options.policies = *std::move(policies);
  if (!options.tables.empty() && options.policies.size() * memories.size() != 1) {
    return absl::InvalidArgumentError("--tables goes with one policy on one memory; each has its own tables");
  }

  const bytes block = block_of(options);
  options.budget = block * (absl::GetFlag(FLAGS_budget).of(footprint_of(options)) / block);
  if (options.budget < block) {
    return absl::InvalidArgumentError(absl::StrCat("--budget ", absl::UnparseFlag(absl::GetFlag(FLAGS_budget)),
                                                   " is below one block of ", block.count >> 20, " MiB"));
  }
  if (std::getenv("DEEPUM_POLICY") != nullptr) {
    return absl::FailedPreconditionError("DEEPUM_POLICY is set and would replace what --policy chooses; unset it");
  }
  return options;
}

// One line that is rewritten on a terminal; elsewhere a line now and then.
class progress_line {
 public:
  progress_line(std::int64_t steps, std::string memory) : steps_(steps), memory_(std::move(memory)) {}
  ~progress_line() { end(); }
  progress_line(const progress_line&) = delete;
  progress_line& operator=(const progress_line&) = delete;

  void show(const policy_run& run) {
    const auto step = static_cast<std::int64_t>(run.loss.size());
    if (!terminal_ && step > 3 && step % 10 != 0 && step != steps_) return;
    absl::FPrintF(stderr, "%s%-7s step %*d/%d%s  loss %.4f  %9.3f ms%s", terminal_ ? "\r" : "", run.name, width_, step,
                  steps_, memory_, run.loss.back(), static_cast<double>(run.step_ns.back()) / 1e6,
                  terminal_ ? "\x1b[K" : "\n");
    std::fflush(stderr);
    open_ = terminal_;
  }
  void end() {
    if (open_) std::fputc('\n', stderr);
    open_ = false;
  }

 private:
  std::int64_t steps_;
  std::string memory_;
  int width_ = static_cast<int>(absl::StrCat(steps_).size());
  bool terminal_ = isatty(STDERR_FILENO) == 1;
  bool open_ = false;
};

// What the program does on one kind of memory.
struct planned_runs {
  run_options options{};
  report result{};
};

absl::StatusOr<std::vector<planned_runs>> planned_from_flags() {
  const absl::StatusOr<std::vector<memory_choice>> memories = memories_from_flags();
  if (!memories.ok()) return memories.status();
  std::vector<planned_runs> planned;
  for (const memory_choice memory : *memories) {
    chosen_device device;
    absl::StatusOr<run_options> options = options_from_flags(*memories, memory, device);
    if (!options.ok()) return options.status();
    report result{.device = device.name,
                  .footprint = footprint_of(*options),
                  .budget = options->budget,
                  .precision = absl::GetFlag(FLAGS_precision),
                  .memory = name_of(memory),
                  .chunk = memory == memory_choice::paged ? block_of(*options) : bytes{},
                  .host_mapped = options->host_mapped,
                  .driver = device.driver,
                  .evaluate = options->use == purpose::evaluation,
                  .lookahead = options->lookahead.degree};
    if (!options->cuda) result.least = least_possible(*options);
    planned.push_back({*std::move(options), std::move(result)});
  }
  return planned;
}

absl::Status run() {
  absl::StatusOr<std::vector<planned_runs>> planned = planned_from_flags();
  if (!planned.ok()) return planned.status();
  const run_options& first = planned->front().options;
  const absl::StatusOr<std::string> text = read_text(absl::GetFlag(FLAGS_corpus), first.shape.context + 1);
  if (!text.ok()) return text.status();
  const deepum_program::json_file json{absl::GetFlag(FLAGS_json)};
  if (absl::Status status = json.check(); !status.ok()) return status;
  const std::string trace_path = absl::GetFlag(FLAGS_trace);
  if (!trace_path.empty()) deepum::trace::save(trace_path, {});
  std::vector<std::unique_ptr<deepum::trace>> traces;

  std::string sample;
  for (planned_runs& each : *planned) {
    const run_options& options = each.options;
    const std::string memory = planned->size() == 1 ? "" : absl::StrCat(", ", each.result.memory, " memory");
    for (const std::string& policy : options.policies) {
      progress_line line{options.steps, memory};
      const bool write = &each == &planned->front() && policy == options.policies.front();
      std::string* const writes = write && options.sample > 0 ? &sample : nullptr;
      if (!trace_path.empty()) {
        traces.push_back(std::make_unique<deepum::trace>(deepum::trace_options{.name = policy + memory}));
      }
      each.result.runs.push_back(with_backend(options, [&]<class Backend>() {
        return train<Backend>(
            options, policy, *text, [&](const policy_run& r) { line.show(r); }, writes,
            traces.empty() ? nullptr : traces.back().get());
      }));
    }
  }

  const report& result = planned->front().result;
  std::fputs(
      absl::StrCat("\n", planned->size() == 1 ? table_of(result) : table_of(result, planned->back().result)).c_str(),
      stdout);
  if (!sample.empty())
    absl::PrintF("\nThe %s writes: %s\n", result.evaluate ? "untrained model" : "trained model", sample);
  nlohmann::ordered_json measured = json_of(result);
  if (planned->size() != 1) measured = {{"memories", {std::move(measured), json_of(planned->back().result)}}};
  if (absl::Status status = json.save(measured); !status.ok()) return status;
  if (!traces.empty()) {
    std::vector<const deepum::trace*> runs;
    runs.reserve(traces.size());
    for (const auto& t : traces)
      runs.push_back(t.get());
    deepum::trace::save(trace_path, runs);
  }
  for (const planned_runs& each : *planned) {
    if (const auto difference = difference_of_losses(each.result.runs, result.runs.front())) {
      return absl::InternalError(absl::StrCat("policies changed what was computed: ", *difference));
    }
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace train_gpt

int main(int argc, char** argv) {
  try {
    absl::Status status = deepum_program::read_flags_alone(
        argc, argv, "trains a transformer with less device memory than it needs, under several policies");
    if (status.ok()) status = train_gpt::run();
    if (status.ok()) return 0;
    absl::FPrintF(stderr, "train_gpt: %s\n", status.message());
  } catch (const std::exception& e) {
    absl::FPrintF(stderr, "train_gpt: %s\n", e.what());
  }
  return 1;
}
