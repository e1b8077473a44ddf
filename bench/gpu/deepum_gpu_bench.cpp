// Measures the library on a GPU beside what a program would have without it, all in one run.

#include "../../examples/support/flags.hpp"
#include "../../examples/support/json_file.hpp"
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
#include "churn_runs.hpp"
#include "energy.hpp"
#include "feed_runs.hpp"
#include "fits_runs.hpp"
#include "gather_runs.hpp"
#include "gpt_step_runs.hpp"
#include "infer_runs.hpp"
#include "largest_batch_runs.hpp"
#include "layered_report.hpp"
#include "layered_step.hpp"
#include "measure_links.hpp"
#include "memory_kinds.hpp"
#include "model_runs.hpp"
#include "nlohmann/json.hpp"
#include "policy_checks.hpp"
#include "replay/step_json.hpp"
#include "report.hpp"
#include "safety.hpp"
#include <deepum/cuda/device.hpp>
#include <deepum/cuda/managed_limit.hpp>
#include <deepum/error.hpp>
#include <deepum/planning/step_segments.hpp>
#include <deepum/trace.hpp>
#include <deepum/units.hpp>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

ABSL_FLAG(std::string, programs, "train,evaluate,gather,fits",
          "what to measure, with commas: train, evaluate (forward pass alone), gather (scattered, undeclared), fits "
          "(everything fits), feeds (what page fault feeds cost); gpt_step (training with large layers), infer "
          "(weights that are only read), churn (everything moves both ways), largest_batch");
ABSL_FLAG(
    std::string, systems, "all",
    "memory systems, with commas: resident, managed (managed memory without the library, for fits), um (demand "
    "paging), once (prefetched when allocated), double_managed, double_pinned (double buffering by hand), by_hand (the "
    "same for gpt_step and infer), lru, deepum, auto, oracle (told each step of gpt_step and infer beforehand); or "
    "all");
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
ABSL_FLAG(std::string, memory, "managed",
          "the library's memory in gpt_step, infer, churn, largest_batch, the launches of fits and check_programs: "
          "managed, which has to fit into DEEPUM_MANAGED_LIMIT, or mapped");
ABSL_FLAG(std::int64_t, chunk_mib, 0, "chunks of mapped memory, a power of two; 0: what the library chooses");
ABSL_FLAG(std::string, evicted, "unmapped",
          "what is at the addresses of mapped memory that is not on the GPU: unmapped, or host-mapped");
ABSL_FLAG(std::string, write_back, "default",
          "early write-back in gpt_step: on, off, both one after the other, or default");
ABSL_FLAG(double, step_gib, 24, "footprint of gpt_step in GiB, from which its layers follow");
ABSL_FLAG(std::int64_t, step_width, 2048, "width of gpt_step");
ABSL_FLAG(std::int64_t, step_context, 1024, "tokens in a sequence of gpt_step");
ABSL_FLAG(std::int64_t, step_batch, 8, "sequences in a step of gpt_step");
ABSL_FLAG(std::string, step_update, "layer",
          "when gpt_step updates weights: layer (each behind its backward pass), or end");
ABSL_FLAG(bool, step_forgets, true, "gpt_step says which contents are of no value any more");
ABSL_FLAG(std::string, step_budgets, "8,12,16", "device memory for gpt_step and largest_batch, in GiB, with commas");
ABSL_FLAG(std::int64_t, most_batch, 256, "sequences in a step of largest_batch at most");
ABSL_FLAG(double, host_gib, 96,
          "host memory that contents may need, in GiB: mapped memory holds to it in all programs, largest_batch with "
          "the others too");
ABSL_FLAG(double, infer_gib, 12, "weights of each model of infer, in GiB");
ABSL_FLAG(std::int64_t, infer_width, 4096, "width of the models of infer");
ABSL_FLAG(std::string, infer_models, "1,2", "how many models infer calls, by lot; with commas");
ABSL_FLAG(std::string, infer_tokens, "1,64,4096", "tokens in a call of infer, with commas");
ABSL_FLAG(std::string, infer_budgets, "4,8", "device memory for infer, in GiB, with commas");
ABSL_FLAG(std::int64_t, infer_calls, 100, "calls to measure, for each number of tokens");
ABSL_FLAG(double, churn_gib, 6, "memory that churn sweeps over, in GiB");
ABSL_FLAG(double, churn_budget_gib, 2, "device memory for it, in GiB");
ABSL_FLAG(std::int64_t, churn_group_mib, 64, "what a launch of churn updates");
ABSL_FLAG(std::string, churn_chunks_mib, "2,4,8,16,32",
          "chunks that churn tries, with commas; 0: the library's choice");
ABSL_FLAG(std::int64_t, churn_compute, 200000, "multiplications of a thread in a launch that computes beside churn");
ABSL_FLAG(std::string, feed, "auto", "where the library learns of page faults: auto, driver, cupti or none");
ABSL_FLAG(std::int64_t, check_policies, 0,
          "instead of measuring: compares the losses of this many steps under every policy of --systems and budget of "
          "--budgets, on managed memory");
ABSL_FLAG(std::int64_t, check_programs, 0,
          "instead of measuring: compares the memory that this many random programs leave, under every policy of "
          "--systems");
ABSL_FLAG(std::uint64_t, seed, 1, "of weights and data");
ABSL_FLAG(std::string, json, "", "file for all that was measured, step by step");
ABSL_FLAG(std::string, trace, "",
          "file for a trace of the last launches, copies, faults and stalls under each of the library's systems, for "
          "ui.perfetto.dev and ./run report");
ABSL_FLAG(std::string, step, "", "file for the step of train or evaluate as lp_bound.py reads it");
ABSL_FLAG(std::string, commit, "", "what was measured, for the JSON file: git describe --always --dirty");

namespace deepum::gpu_bench {
namespace {

constexpr int cannot_run = 77;
constexpr const char* system_names[] = {"resident", "managed", "um",     "once", "double_managed", "double_pinned",
                                        "by_hand",  "lru",     "deepum", "auto", "oracle"};
constexpr const char* program_names[] = {"train",    "evaluate", "gather", "fits",         "feeds",
                                         "gpt_step", "infer",    "churn",  "largest_batch"};

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
  std::string memory{};
  gpt_shape step{};
  bytes step_size{};
  std::vector<bytes> step_budgets{};
  std::vector<std::optional<bool>> write_backs{};
  bytes host{};
  std::vector<infer_shape> infer{};  // one for each number of models
  std::vector<std::int64_t> infer_tokens{};
  std::vector<bytes> infer_budgets{};
  churn_shape churn{};
  std::vector<bytes> churn_chunks{};

  [[nodiscard]] bool runs(const char* program) const {
    return std::find(programs.begin(), programs.end(), program) != programs.end();
  }
  /// Those of layers, whose memory may be mapped.
  [[nodiscard]] bool runs_layers() const { return runs("gpt_step") || runs("infer") || runs("largest_batch"); }
  /// Those that know managed memory alone.
  [[nodiscard]] bool runs_blocks() const { return runs("train") || runs("evaluate") || runs("gather"); }
  [[nodiscard]] bool managed() const { return memory == "managed"; }
  [[nodiscard]] bool checks() const { return check_steps != 0 || check_programs != 0; }
};

bytes of_gib(double gib) { return whole_blocks(gib * (std::uint64_t{1} << 30)); }
bytes of_mib(std::int64_t mib) { return bytes{static_cast<std::uint64_t>(mib) << 20}; }

/// Numbers with commas.
/// @param most  Of each; the least is `least`.
template <class Number>
absl::StatusOr<std::vector<Number>> numbers_from(const char* flag, const std::string& text, Number least, Number most) {
  std::vector<Number> list;
  for (const std::string& word : std::vector<std::string>(absl::StrSplit(text, ','))) {
    double number = 0;
    if (!absl::SimpleAtod(word, &number) || !(number >= static_cast<double>(least)) ||
        !(number <= static_cast<double>(most)) || static_cast<double>(static_cast<Number>(number)) != number) {
      return absl::InvalidArgumentError(
          absl::StrCat("--", flag, " are numbers from ", least, " to ", most, ", not '", word, "'"));
    }
    list.push_back(static_cast<Number>(number));
  }
  return list;
}

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

/// What the programs of layers and churn want.
absl::Status layers_from_flags(options& o) {
  o.memory = absl::GetFlag(FLAGS_memory);
  if (o.memory != "managed" && o.memory != "mapped") {
    return absl::InvalidArgumentError(absl::StrCat("--memory is managed or mapped, not '", o.memory, "'"));
  }
#ifndef DEEPUM_GPU_BENCH_MAPPED
  if (!o.managed()) return absl::InvalidArgumentError("--memory=mapped: this build has no mapped memory");
#endif
  if (!o.managed() && o.check_steps != 0) {
    return absl::InvalidArgumentError("--check_policies trains on managed memory: leave --memory=mapped out");
  }
  if (o.managed() && o.runs("churn")) {
    return absl::InvalidArgumentError("churn measures mapped memory alone: add --memory=mapped");
  }
  const std::int64_t chunk = absl::GetFlag(FLAGS_chunk_mib);
  o.settings.choices.chunk = of_mib(chunk);
  const std::string evicted = absl::GetFlag(FLAGS_evicted);
  if (evicted != "unmapped" && evicted != "host-mapped") {
    return absl::InvalidArgumentError(absl::StrCat("--evicted is unmapped or host-mapped, not '", evicted, "'"));
  }
  o.settings.choices.host_mapped = evicted == "host-mapped";
  const std::string write_back = absl::GetFlag(FLAGS_write_back);
  if (write_back == "default") {
    o.write_backs = {std::nullopt};
  } else if (write_back == "on" || write_back == "off") {
    o.write_backs = {write_back == "on"};
  } else if (write_back == "both") {
    o.write_backs = {true, false};
  } else {
    return absl::InvalidArgumentError(absl::StrCat("--write_back is on, off, both or default, not '", write_back, "'"));
  }
  const std::string update = absl::GetFlag(FLAGS_step_update);
  if (update != "layer" && update != "end") {
    return absl::InvalidArgumentError(absl::StrCat("--step_update is layer or end, not '", update, "'"));
  }
  o.step = {.width = absl::GetFlag(FLAGS_step_width),
            .context = absl::GetFlag(FLAGS_step_context),
            .batch = absl::GetFlag(FLAGS_step_batch),
            .update_at_end = update == "end"};
  const double step_gib = absl::GetFlag(FLAGS_step_gib);
  const double infer_gib = absl::GetFlag(FLAGS_infer_gib);
  const double host_gib = absl::GetFlag(FLAGS_host_gib);
  const double churn_gib = absl::GetFlag(FLAGS_churn_gib);
  const double churn_budget = absl::GetFlag(FLAGS_churn_budget_gib);
  for (const auto& [flag, gib] :
       {std::pair{"step_gib", step_gib}, std::pair{"infer_gib", infer_gib}, std::pair{"host_gib", host_gib},
        std::pair{"churn_gib", churn_gib}, std::pair{"churn_budget_gib", churn_budget}}) {
    if (!(gib >= 0.01 && gib <= 4096)) {
      return absl::InvalidArgumentError(absl::StrCat("--", flag, " has to be from 0.01 to 4096"));
    }
  }
  const std::int64_t group = absl::GetFlag(FLAGS_churn_group_mib);
  const std::int64_t infer_width = absl::GetFlag(FLAGS_infer_width);
  for (const absl::Status& status :
       {in_range("chunk_mib", chunk, 0, 1024), in_range("step_width", o.step.width, 32, 32'768),
        in_range("step_context", o.step.context, 1, 65'536), in_range("step_batch", o.step.batch, 1, 65'536),
        in_range("most_batch", absl::GetFlag(FLAGS_most_batch), 1, 65'536),
        in_range("infer_width", infer_width, 32, 32'768),
        in_range("infer_calls", absl::GetFlag(FLAGS_infer_calls), 1, 100'000),
        in_range("churn_group_mib", group, 2, 4096),
        in_range("churn_compute", absl::GetFlag(FLAGS_churn_compute), 1, 100'000'000)}) {
    if (!status.ok()) return status;
  }
  if (o.step.width % 8 != 0 || infer_width % 8 != 0) {
    return absl::InvalidArgumentError("--step_width and --infer_width have to be multiples of 8");
  }
  o.step_size = of_gib(step_gib);
  o.step.layers = layers_for(o.step, o.step_size);
  o.host = of_gib(host_gib);
  o.settings.choices.host_limit = o.host;
  absl::StatusOr<std::vector<std::int64_t>> tokens =
      numbers_from<std::int64_t>("infer_tokens", absl::GetFlag(FLAGS_infer_tokens), 1, 1'000'000);
  if (!tokens.ok()) return tokens.status();
  o.infer_tokens = *std::move(tokens);
  const absl::StatusOr<std::vector<std::int64_t>> models =
      numbers_from<std::int64_t>("infer_models", absl::GetFlag(FLAGS_infer_models), 1, 64);
  if (!models.ok()) return models.status();
  for (const std::int64_t n : *models) {
    infer_shape shape{.models = n,
                      .width = infer_width,
                      .most_tokens = *std::max_element(o.infer_tokens.begin(), o.infer_tokens.end())};
    shape.layers = layers_for(shape, of_gib(infer_gib));
    o.infer.push_back(shape);
  }
  for (const auto& [flag, text, list] :
       {std::tuple{"step_budgets", absl::GetFlag(FLAGS_step_budgets), &o.step_budgets},
        std::tuple{"infer_budgets", absl::GetFlag(FLAGS_infer_budgets), &o.infer_budgets}}) {
    const absl::StatusOr<std::vector<double>> gib = numbers_from<double>(flag, text, 0.01, 4096);
    if (!gib.ok()) return gib.status();
    for (const double each : *gib)
      list->push_back(of_gib(each));
  }
  o.churn.size = of_gib(churn_gib);
  o.churn.budget = of_gib(churn_budget);
  o.churn.group = of_mib(group);
  const absl::StatusOr<std::vector<std::int64_t>> chunks =
      numbers_from<std::int64_t>("churn_chunks_mib", absl::GetFlag(FLAGS_churn_chunks_mib), 0, 1024);
  if (!chunks.ok()) return chunks.status();
  for (const std::int64_t each : *chunks)
    o.churn_chunks.push_back(of_mib(each));
  return absl::OkStatus();
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
  if (absl::Status status = layers_from_flags(o); !status.ok()) return status;
  if (!absl::GetFlag(FLAGS_step).empty() && (o.checks() || !(o.runs("train") || o.runs("evaluate")))) {
    return absl::InvalidArgumentError("--step is recorded by train and evaluate alone: add one of them to --programs" +
                                      std::string(o.checks() ? ", and leave checks out" : ""));
  }
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
bytes managed_capacity(const layered_step& s) {
  return library_model<cuda::managed_memory, train_gpt::bf16>::capacity_of(s.tensors, {});
}

/// Managed memory that the run has at most at a time; 0: it needs none.
bytes most_managed(const options& o) {
  using train_gpt::purpose;
  bytes most{};
  const auto consider = [&](bytes size) { most = std::max(most, size); };
  if (o.managed() && (o.runs("gpt_step") || o.runs("largest_batch"))) consider(managed_capacity(step_of(o.step)));
  if (o.managed() && o.runs("infer")) {
    for (const infer_shape& shape : o.infer)
      consider(managed_capacity(set_up_of(shape)));
  }
  if (o.managed() && o.runs_layers()) consider(o.link_size + bytes{o.link_size.count / 2});
  const bool small = o.managed() && (o.runs("fits") || o.checks());  // launches, random programs
  if (o.checks()) {
    most = {};  // nothing else runs
  }
  if (small) consider(block_size * 128);
  if (o.check_steps != 0) consider(capacity_of(model_runs<float>::footprint(checked_shape, purpose::training)));
  if (o.checks()) return most;
  if (o.runs("train")) consider(capacity_of(footprint(o, o.shape, purpose::training)));
  if (o.runs("evaluate")) consider(capacity_of(footprint(o, o.evaluate_shape, purpose::evaluation)));
  if (o.runs("train") || o.runs("evaluate") || o.runs("gather")) {
    consider(o.link_size + bytes{o.link_size.count / 2});
  }
  if (o.runs("gather")) consider(capacity_of(o.gather.table() + block_size * o.gather.launches));
  if (o.managed() && o.runs("fits")) consider(capacity_of(footprint(o, o.shape, purpose::training)));
  if (o.runs("feeds")) consider(capacity_of(o.feed_size));
  return most;
}

void print(const std::string& text) {
  std::fputs(text.c_str(), stdout);
  std::fflush(stdout);
}

/// The programs of layers, which compute in bf16, and churn.
template <class Memory, class Save>
void measure_layers(const options& o, const bench_settings& settings, nlohmann::ordered_json& json, Save&& save) {
  using train_gpt::bf16;
  const auto add = [&](const program_report& report) {
    print(layered_table_of(report));
    json["programs"].push_back(json_of(report));
    json["programs"].back()["memory"] = o.memory;
    save();
  };
  if (o.runs("gpt_step")) {
    add(gpt_step_runs<Memory, bf16>(settings, o.step, o.step_budgets, absl::GetFlag(FLAGS_step_forgets), o.write_backs)
            .run());
  }
  if (o.runs("infer")) {
    for (const infer_shape& shape : o.infer) {
      for (const program_report& report :
           infer_runs<Memory, bf16>(settings, shape, o.infer_budgets, o.infer_tokens, absl::GetFlag(FLAGS_infer_calls))
               .run()) {
        add(report);
      }
    }
  }
  if (o.runs("churn")) {
    churn_runs<Memory> churn(settings, o.churn, o.churn_chunks,
                             static_cast<unsigned>(absl::GetFlag(FLAGS_churn_compute)));
    const std::vector<churn_result> results = churn.run();
    print(churn.table_of(results));
    json["churn"] = churn.json_of(results);
    save();
  }
  if (o.runs("largest_batch")) {
    largest_batch_runs<Memory, bf16> runs(settings, o.step, o.step_budgets, o.host,
                                          cuda::managed_limit::from_environment().value_or(bytes{}),
                                          absl::GetFlag(FLAGS_most_batch));
    const std::vector<batch_result> results = runs.run();
    print(runs.table_of(results));
    json["largest_batch"] = runs.json_of(results);
    save();
  }
}

absl::Status measure(const options& o, const cuda::device& gpu, const energy_meter& energy) {
  bench_settings settings = o.settings;
  settings.energy = &energy;
  const deepum_program::json_file file{absl::GetFlag(FLAGS_json), 1};
  if (absl::Status status = file.check(); !status.ok()) return status;
  const deepum_program::json_file step_file{absl::GetFlag(FLAGS_step), -1};
  if (absl::Status status = step_file.check(); !status.ok()) return status;
  const std::string trace_path = absl::GetFlag(FLAGS_trace);
  std::vector<std::unique_ptr<trace>> traces;
  if (!trace_path.empty()) {
    trace::save(trace_path, {});  // says at once where that cannot be
    settings.traces = &traces;
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
                                {"memory", o.memory},
                                {"chunk_mib", absl::GetFlag(FLAGS_chunk_mib)},
                                {"evicted", absl::GetFlag(FLAGS_evicted)},
                                {"write_back", absl::GetFlag(FLAGS_write_back)},
                                {"step_gib", absl::GetFlag(FLAGS_step_gib)},
                                {"step_width", o.step.width},
                                {"step_context", o.step.context},
                                {"step_batch", o.step.batch},
                                {"step_update", absl::GetFlag(FLAGS_step_update)},
                                {"step_forgets", absl::GetFlag(FLAGS_step_forgets)},
                                {"step_budgets", absl::GetFlag(FLAGS_step_budgets)},
                                {"host_gib", absl::GetFlag(FLAGS_host_gib)},
                                {"infer_gib", absl::GetFlag(FLAGS_infer_gib)},
                                {"infer_width", absl::GetFlag(FLAGS_infer_width)},
                                {"infer_tokens", absl::GetFlag(FLAGS_infer_tokens)},
                                {"infer_budgets", absl::GetFlag(FLAGS_infer_budgets)},
                                {"infer_calls", absl::GetFlag(FLAGS_infer_calls)},
                                {"churn_gib", absl::GetFlag(FLAGS_churn_gib)},
                                {"churn_budget_gib", absl::GetFlag(FLAGS_churn_budget_gib)},
                                {"churn_group_mib", absl::GetFlag(FLAGS_churn_group_mib)},
                                {"seed", settings.seed}}}};
  // What is there is written after each part, so that an interruption loses no more than one.
  absl::Status saved;
  const auto save = [&] { saved = file.save(json); };
  print(absl::StrFormat("%s, driver %s, %s\n", p.name, energy.driver(), absl::GetFlag(FLAGS_commit)));

  if (o.runs_blocks() || o.runs_layers()) {
    settings.say("links");
    if (o.runs_blocks() || o.managed()) settings.managed = managed_rates(0, o.link_size);
    settings.pinned = pinned_rates(o.link_size);
    const auto line = [](const char* name, const link_rates& r) {
      print(absl::StrFormat("%s: in %.1f, out %.1f GB/s; both at once: in %.1f, out %.1f GB/s\n", name, r.in / 1e9,
                            r.out / 1e9, r.in_both / 1e9, r.out_both / 1e9));
    };
    if (settings.managed.in > 0) line("managed", settings.managed);
    line("pinned", settings.pinned);
  }
  const auto add = [&](program_report report) {
    print(table_of(report));
    json["programs"].push_back(json_of(report));
    save();
  };
  const auto models = [&](const bench_settings& s, const train_gpt::model_shape& shape, train_gpt::purpose use) {
    return in_precision(o.bf16, [&]<class T>() { return model_runs<T>(s, shape, use).run(); });
  };
  absl::Status step_saved;
  if (!absl::GetFlag(FLAGS_step).empty()) {
    settings.take_step = [&](const std::string& name, const step_description& step) {
      step_saved = step_file.save(replay::json_of(name, 1, step));
    };
  }
  if (o.runs("train")) {
    add(models(settings, o.shape, train_gpt::purpose::training));
    settings.take_step = {};  // the file is of the first program
  }
  if (o.runs("evaluate")) {
    add(models(settings, o.evaluate_shape, train_gpt::purpose::evaluation));
    settings.take_step = {};
  }
  if (o.runs("gather")) add(gather_runs(settings, o.gather).run());
  if (o.runs("fits")) {
    with_memory(o.memory, [&]<class Memory>() {
      using fits = fits_runs<Memory>;
      const std::vector<launch_costs> costs = fits(settings).run();
      print(fits::table_of(costs));
      json["small_launches"] = fits::json_of(costs);
      save();
    });
  }
  if (o.runs("fits") && o.managed()) {
    add(in_precision(o.bf16, [&]<class T>() {
      return model_runs<T>(settings, o.shape, train_gpt::purpose::training).run_in_turns();
    }));
  }
  if (o.runs("feeds")) {
    feed_runs feeds(settings, o.feed_size);
    const std::vector<feed_cost> costs = feeds.run();
    print(feeds.table_of(costs));
    json["feeds"] = feeds.json_of(costs);
    save();
  }
  if (o.runs_layers() || o.runs("churn")) {
    with_memory(o.memory, [&]<class Memory>() { measure_layers<Memory>(o, settings, json, save); });
  }
  if (!trace_path.empty()) {
    std::vector<const trace*> runs;
    runs.reserve(traces.size());
    for (const auto& t : traces)
      runs.push_back(t.get());
    trace::save(trace_path, runs);
  }
  return step_saved.ok() ? saved : step_saved;
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
  if (const auto why = wanted.count == 0 ? std::nullopt : refusal(limit, bytes{UINT64_MAX}, wanted)) {
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
  if (o->runs_layers() && gpu->properties().compute_capability < 80) {
    absl::FPrintF(stderr, "deepum-gpu-bench: %s does not multiply matrices of bf16, as gpt_step and infer do\n",
                  gpu->properties().name);
    return cannot_run;
  }
  if (wanted.count != 0 && !gpu->properties().concurrent_managed_access) {
    absl::FPrintF(stderr, "deepum-gpu-bench: %s cannot move managed memory while kernels run\n",
                  gpu->properties().name);
    return cannot_run;
  }
  const auto free = bytes{static_cast<std::uint64_t>(free_device_memory())};
  if (const auto why = wanted.count == 0 ? std::nullopt : refusal(limit, free, wanted)) {
    absl::FPrintF(stderr, "deepum-gpu-bench: %s\n", *why);
    return 1;
  }
  const energy_meter energy(0);
  if (o->checks()) {
    std::string wrong;
    if (o->check_steps != 0) {
      check_losses(o->settings, o->check_steps, wrong);
    }
    with_memory(o->memory,
                [&]<class Memory>() { check_random_programs<Memory>(o->settings, o->check_programs, wrong); });
    print(wrong.empty() ? absl::StrFormat(
                              "the same under %s: the losses of %d steps with budgets of %s %%, and %d random programs "
                              "on %s memory\n",
                              absl::StrJoin(checked_policies(o->settings), ", "), o->check_steps,
                              absl::StrJoin(o->settings.budgets, ", "), o->check_programs, o->memory)
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
