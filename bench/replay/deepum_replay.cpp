// Replays the steps of a recorded model under memory policies on the simulated GPU, and shows what each policy costs.

#include "absl/flags/flag.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "nlohmann/json.hpp"
#include "program/command_line.hpp"
#include "program/flags.hpp"
#include "program/json_file.hpp"
#include "replay/card.hpp"
#include "replay/derived_workload.hpp"
#include "replay/oracle.hpp"
#include "replay/progress_bar.hpp"
#include "replay/replay.hpp"
#include "replay/replay_report.hpp"
#include "replay/scenario.hpp"
#include <deepum/policy/make_policy.hpp>
#include <deepum/trace.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

ABSL_FLAG(
    std::string, policy, "auto",
    "ideal (all resident), um (demand paging), lru, vdnn, vdnn_ext, deepum, auto, oracle (knows the step); several "
    "with commas; or "
    "all");
ABSL_FLAG(deepum_program::budget_flag, budget, {},
          "device memory, in bytes (64MiB, 2GiB) or as a share of the footprint (40%)");
ABSL_FLAG(std::string, machine, "",
          "file that says places, links and routes, instead of --budget, --h2d, --d2h and --copy_latency; --schedule "
          "then is of version 2");
ABSL_FLAG(double, h2d, 50.8, "rate of the link to the device, in 10^9 bytes a second");
ABSL_FLAG(double, d2h, 50.8, "rate of the link to the host, in 10^9 bytes a second");
ABSL_FLAG(absl::Duration, copy_latency, absl::Microseconds(2), "of each copy, whatever its length");
ABSL_FLAG(absl::Duration, fault_latency, absl::Microseconds(45),
          "from a page fault to the copy that serves it (45 us is what published simulations take)");
ABSL_FLAG(
    bool, fault_overlap, false,
    "while the block of one fault comes, the victim of the next one leaves, as published simulations have it; off: "
    "one after the other");
ABSL_FLAG(deepum_program::lookahead_flag, lookahead, {}, "launches to look ahead, or auto");
ABSL_FLAG(std::int64_t, steps, 8, "steps to replay");
ABSL_FLAG(
    std::string, scenario, "",
    "what changes while the model runs: batch, validation, two_models, growth, reuse, random, lookups, or steady; "
    "--steps are those of one regime");
ABSL_FLAG(std::uint64_t, seed, 1, "of what is random in a scenario");
ABSL_FLAG(std::string, memory, "auto",
          "managed (whatever leaves is copied), home-copy (the host's copy stays), or auto: managed for um and deepum, "
          "home-copy for the others");
ABSL_FLAG(std::int64_t, run_ahead, 1, "launches that the host enqueues beyond the executing one");
ABSL_FLAG(bool, hold, true,
          "launches wait for what is being brought for them; deepum as published does not, so --hold "
          "has no part in it unless --hold_deepum is given");
ABSL_FLAG(bool, hold_deepum, false, "hold launches back under deepum too");
ABSL_FLAG(double, batch, 1, "the step with a batch of so many times the recorded size");
ABSL_FLAG(bool, reuse_addresses, false, "place tensors anew, so that addresses are used again after a free");
ABSL_FLAG(std::string, card, "",
          "a profile of a simulated GPU: launches take the time that they would take there, by roofline, and it goes "
          "instead of --h2d, --d2h and --fault_latency");
ABSL_FLAG(std::string, recorded_on, "h200_pcie5", "with --card: the profile of the card that the step was recorded on");
ABSL_FLAG(absl::Duration, launch_latency, absl::Microseconds(10), "with --card: part of each recorded time that stays");
ABSL_FLAG(double, fault_entries, 0, "with --card: fault records of a block of 2 MiB; 0: as the profile has them");
ABSL_FLAG(bool, one_at_a_time, false,
          "one copy at a time, to the device or to the host, as one migration thread makes them that waits for each");
ABSL_FLAG(bool, driver_makes_room, false,
          "deepum: prefetches make room on their path, one block at a time, as the driver does it; with --nopre_evict");
ABSL_FLAG(bool, prefetch, true, "off: for ablations");
ABSL_FLAG(bool, pre_evict, true, "off: for ablations");
ABSL_FLAG(bool, invalidate, true, "off: dead contents are moved like live ones, for ablations");
ABSL_FLAG(std::string, offload, "all", "vdnn and vdnn_ext: inputs that leave: none, conv, all or alternate_conv");
ABSL_FLAG(
    std::string, harvest, "h,pe,plf,mpf",
    "harvest: its techniques: h (neighbours), pe (pre-eviction), plf (parallel faults), lpf or mpf (prefetch on one "
    "path or several); none of them: empty");
ABSL_FLAG(std::uint32_t, harvesters, 1, "harvest: arenas that use these neighbours, this one among them");
ABSL_FLAG(std::uint32_t, rows, deepum::block_table_shape{}.rows, "rows of deepum's block tables");
ABSL_FLAG(std::uint32_t, ways, deepum::block_table_shape{}.ways, "blocks in a row of deepum's block tables");
ABSL_FLAG(std::uint32_t, successors, deepum::block_table_shape{}.successors,
          "successors of a block in deepum's block tables");
ABSL_FLAG(std::string, json, "", "file for all that was measured, step by step");
ABSL_FLAG(std::string, trace, "",
          "file for a trace of every launch, copy, fault and stall, for ui.perfetto.dev and ./run report");
ABSL_FLAG(std::string, schedule, "", "file for the schedule, for a referee to check; needs a single policy");

namespace deepum::replay {
namespace {

constexpr const char* policies[] = {"ideal", "um", "lru", "vdnn", "vdnn_ext", "harvest", "deepum", "auto", "oracle"};

absl::StatusOr<std::vector<std::string>> policies_from_flags() {
  if (absl::GetFlag(FLAGS_policy) == "all") return std::vector<std::string>(std::begin(policies), std::end(policies));
  std::vector<std::string> chosen = absl::StrSplit(absl::GetFlag(FLAGS_policy), ',');
  for (auto name = chosen.begin(); name != chosen.end(); ++name) {
    if (std::find(std::begin(policies), std::end(policies), *name) == std::end(policies)) {
      return absl::InvalidArgumentError(
          absl::StrCat("there is no policy '", *name, "'; there are ", absl::StrJoin(policies, ", "), " and all"));
    }
    if (std::find(chosen.begin(), name, *name) != name) {
      return absl::InvalidArgumentError(absl::StrCat("--policy names '", *name, "' twice"));
    }
  }
  return chosen;
}

absl::StatusOr<nanoseconds> duration(const char* flag, absl::Duration value) {
  if (value < absl::ZeroDuration() || value > absl::Seconds(1)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--", flag, " has to be from 0 to a second, not ", absl::FormatDuration(value)));
  }
  return nanoseconds{absl::ToInt64Nanoseconds(value)};
}

replay_memory memory_for(const std::string& policy) {
  const std::string flag = absl::GetFlag(FLAGS_memory);
  if (flag == "auto") {
    return policy == "um" || policy == "deepum" ? replay_memory::managed : replay_memory::home_copy;
  }
  return flag == "managed" ? replay_memory::managed : replay_memory::home_copy;
}

// With --card they are those of the card and of the kind of memory.
link_costs costs_for(const run_options& options, replay_memory memory) {
  link_costs costs = options.costs;
  if (options.card != nullptr) {
    costs = costs_on(*options.card, memory == replay_memory::home_copy, absl::GetFlag(FLAGS_fault_entries));
    costs.copy_latency = options.costs.copy_latency;
    costs.fault_overlap = options.costs.fault_overlap;
  }
  costs.driver_makes_room = absl::GetFlag(FLAGS_driver_makes_room);
  if (absl::GetFlag(FLAGS_one_at_a_time)) costs.both_gbps = std::max(costs.h2d_gbps, costs.d2h_gbps);
  return costs;
}

absl::StatusOr<run_options> options_from_flags(const workload& w) {
  run_options options{.steps = absl::GetFlag(FLAGS_steps)};
  absl::StatusOr<std::vector<std::string>> chosen = policies_from_flags();
  if (!chosen.ok()) return chosen.status();
  options.policies = *std::move(chosen);
  if (options.steps < 1 || options.steps > 100'000) {
    return absl::InvalidArgumentError(absl::StrFormat("--steps has to be from 1 to 100000, not %d", options.steps));
  }
  for (const auto& [flag, rate] : {std::pair{"h2d", absl::GetFlag(FLAGS_h2d)}, {"d2h", absl::GetFlag(FLAGS_d2h)}}) {
    if (!(rate >= 1e-3 && rate <= 1e6)) {
      return absl::InvalidArgumentError(
          absl::StrFormat("--%s has to be from 0.001 to 1000000 GB/s, not %g", flag, rate));
    }
  }
  const std::int64_t run_ahead = absl::GetFlag(FLAGS_run_ahead);
  if (run_ahead < 0 || run_ahead > 1'000'000) {
    return absl::InvalidArgumentError(absl::StrFormat("--run_ahead has to be from 0 to 1000000, not %d", run_ahead));
  }
  options.run_ahead = static_cast<std::size_t>(run_ahead);
  options.lookahead = absl::GetFlag(FLAGS_lookahead).degree;
  options.costs = {.h2d_gbps = absl::GetFlag(FLAGS_h2d), .d2h_gbps = absl::GetFlag(FLAGS_d2h)};
  absl::StatusOr<nanoseconds> latency = duration("copy_latency", absl::GetFlag(FLAGS_copy_latency));
  if (!latency.ok()) return latency.status();
  options.costs.copy_latency = *latency;
  latency = duration("fault_latency", absl::GetFlag(FLAGS_fault_latency));
  if (!latency.ok()) return latency.status();
  options.costs.fault_latency = *latency;
  options.costs.fault_overlap = absl::GetFlag(FLAGS_fault_overlap);
  if (const std::string card = absl::GetFlag(FLAGS_card); !card.empty()) {
    if (!absl::GetFlag(FLAGS_machine).empty()) {
      return absl::InvalidArgumentError("--card and --machine both say what copies cost: give one of them");
    }
    options.card = &sim::find_profile(card);
    options.recorded_on = absl::GetFlag(FLAGS_recorded_on);
    options.costs = costs_for(options, replay_memory::managed);
  }
  options.budget = absl::GetFlag(FLAGS_budget).of(block_size * w.blocks);
  if (const std::string file = absl::GetFlag(FLAGS_machine); !file.empty()) {
    machine on = read_machine(file);
    on.fault_latency = options.costs.fault_latency;
    on.fault_overlap = options.costs.fault_overlap;
    options.budget = on.budget;
    options.costs.h2d_gbps = on.rate(location::host(), location::device());
    options.costs.d2h_gbps = on.rate(location::device(), location::host());
    options.costs.copy_latency = on.copy_latency;
    options.on = std::make_shared<const machine>(std::move(on));
  }
  if (const std::string m = absl::GetFlag(FLAGS_memory);
      m != "auto" && m != "managed" && m != "home-copy" && m != "backed") {  // the last: its old name
    return absl::InvalidArgumentError(absl::StrCat("--memory is auto, managed or home-copy, not '", m, "'"));
  }
  if (!try_parse_offload(absl::GetFlag(FLAGS_offload))) {
    return absl::InvalidArgumentError(
        absl::StrCat("--offload is none, conv, all or alternate_conv, not '", absl::GetFlag(FLAGS_offload), "'"));
  }
  for (const std::string& part :
       std::vector<std::string>(absl::StrSplit(absl::GetFlag(FLAGS_harvest), ',', absl::SkipEmpty()))) {
    constexpr std::string_view known[] = {"h", "pe", "plf", "lpf", "mpf"};
    if (std::find(std::begin(known), std::end(known), part) == std::end(known)) {
      return absl::InvalidArgumentError(absl::StrCat("--harvest names h, pe, plf, lpf or mpf, not '", part, "'"));
    }
  }
  if (!absl::GetFlag(FLAGS_schedule).empty() && options.policies.size() != 1) {
    return absl::InvalidArgumentError("--schedule is of one policy: choose it with --policy");
  }
  return options;
}

policy_options tuning_for(const std::string& policy) {
  policy_options tuning;
  tuning.lookahead = absl::GetFlag(FLAGS_lookahead).degree;
  tuning.block_table = {absl::GetFlag(FLAGS_rows), absl::GetFlag(FLAGS_ways), absl::GetFlag(FLAGS_successors)};
  tuning.prefetch = absl::GetFlag(FLAGS_prefetch);
  tuning.offload = try_parse_offload(absl::GetFlag(FLAGS_offload)).value_or(offload::all);
  const std::vector<std::string> parts = absl::StrSplit(absl::GetFlag(FLAGS_harvest), ',');
  const auto has = [&](const char* part) { return std::find(parts.begin(), parts.end(), part) != parts.end(); };
  tuning.harvest.harvesters = absl::GetFlag(FLAGS_harvesters);
  tuning.harvest.neighbours = has("h");
  tuning.harvest.pre_evict = has("pe");
  tuning.harvest.parallel_faults = has("plf");
  tuning.harvest.prefetch = has("mpf")   ? harvest_parts::prefetcher::multi_path
                            : has("lpf") ? harvest_parts::prefetcher::local
                                         : harvest_parts::prefetcher::none;
  tuning.pre_evict = absl::GetFlag(FLAGS_pre_evict);
  tuning.invalidate = absl::GetFlag(FLAGS_invalidate);
  tuning.driver_makes_room = absl::GetFlag(FLAGS_driver_makes_room);
  tuning.hold_launches = policy == "deepum" ? absl::GetFlag(FLAGS_hold_deepum) : absl::GetFlag(FLAGS_hold);
  return tuning;
}

policy_run run_policy(const std::string& policy, const program& what, const run_options& options,
                      schedule_writer* schedule, deepum::trace* trace) {
  const workload& w = *what.workloads.front();
  const link_costs costs = costs_for(options, memory_for(policy));
  replay_options how{.memory = memory_for(policy),
                     .budget = options.budget,
                     .costs = costs,
                     .on = options.on,
                     .run_ahead = options.run_ahead};
  std::unique_ptr<deepum::policy> chooser;
  if (policy == "oracle") {
    chooser = std::make_unique<oracle_policy>(w, options.budget, costs);
  } else if (policy == "ideal") {
    chooser = make_policy("auto", {.pre_evict = false});
    how.budget = block_size * what.end_block();
    if (options.on) {
      machine large = *options.on;
      large.budget = how.budget;
      how.on = std::make_shared<const machine>(std::move(large));
    }
  } else {
    chooser = make_policy(policy, tuning_for(policy));
  }
  if (schedule != nullptr) {
    how.schedule = [schedule](const schedule_entry& e) { schedule->write(e); };
  }
  if (trace != nullptr) how.observer = trace->observer();
  progress_bar bar{policy, what.turns.size()};
  how.progress = [&](std::size_t turn) { bar.show(turn + 1); };
  const auto begin = std::chrono::steady_clock::now();
  policy_run run{.policy = policy, .memory = memory_for(policy), .result = replay(what, std::move(chooser), how)};
  run.host_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  if (trace != nullptr) {
    nanoseconds ended{};
    for (std::size_t turn = 0; turn != run.result.turns.size(); ++turn) {
      const nanoseconds began = std::exchange(ended, ended + run.result.turns[turn].time);
      trace->span(absl::StrCat("step ", turn + 1), began, ended);
    }
  }
  return run;
}

program repeated(std::shared_ptr<const workload> w, std::int64_t steps) {
  program what{.name = w->name, .workloads = {w}};
  for (std::int64_t step = 0; step != steps; ++step)
    what.turns.push_back({.variant = w->variant_of(static_cast<std::size_t>(step))});
  return what;
}

// The step of the file, on another card and with another batch where flags say so.
absl::StatusOr<workload_pointer> step_of(const std::string& path, std::vector<scaled_kernels>& scaled) {
  workload_pointer w = std::make_shared<const workload>(read_workload(path));
  for (const std::string& warning : w->warnings)
    absl::FPrintF(stderr, "deepum-replay: %s\n", warning);
  if (const std::string card = absl::GetFlag(FLAGS_card); !card.empty()) {
    const absl::StatusOr<nanoseconds> latency = duration("launch_latency", absl::GetFlag(FLAGS_launch_latency));
    if (!latency.ok()) return latency.status();
    w = built(
        on_card(*w, sim::find_profile(absl::GetFlag(FLAGS_recorded_on)), sim::find_profile(card), *latency, &scaled));
  }
  if (absl::GetFlag(FLAGS_reuse_addresses)) w = with_addresses_again(*w);
  if (const double factor = absl::GetFlag(FLAGS_batch); factor != 1) {
    if (!(factor >= 1e-3 && factor <= 1e3)) {
      return absl::InvalidArgumentError(absl::StrFormat("--batch has to be from 0.001 to 1000, not %g", factor));
    }
    w = part_of_batch(*w, factor);
  }
  return w;
}

absl::Status run(const std::string& path) {
  std::vector<scaled_kernels> scaled;
  const absl::StatusOr<workload_pointer> step = step_of(path, scaled);
  if (!step.ok()) return step.status();
  const workload_pointer& w = *step;
  const absl::StatusOr<run_options> options = options_from_flags(*w);
  if (!options.ok()) return options.status();

  const std::string scenario = absl::GetFlag(FLAGS_scenario);
  if (!scenario.empty() && !absl::GetFlag(FLAGS_schedule).empty()) {
    return absl::InvalidArgumentError("--schedule is of one step that is repeated, not of a --scenario");
  }
  const program what =
      scenario.empty()
          ? repeated(w, options->steps)
          : make_scenario(scenario, w,
                          {.steps = static_cast<std::size_t>(options->steps), .seed = absl::GetFlag(FLAGS_seed)});
  if (!scenario.empty() && std::count(options->policies.begin(), options->policies.end(), "oracle") != 0) {
    return absl::InvalidArgumentError("the oracle knows one step, not a --scenario");
  }

  const deepum_program::json_file json{absl::GetFlag(FLAGS_json)};
  if (absl::Status status = json.check(); !status.ok()) return status;
  std::optional<schedule_writer> schedule;
  if (const std::string p = absl::GetFlag(FLAGS_schedule); !p.empty()) {
    if (options->on) {
      schedule.emplace(p, *options->on);
    } else {
      schedule.emplace(p, schedule_header{options->budget, options->costs.h2d_gbps, options->costs.d2h_gbps,
                                          options->costs.copy_latency});
    }
  }
  const std::string trace_path = absl::GetFlag(FLAGS_trace);
  if (!trace_path.empty()) trace::save(trace_path, {});
  std::vector<std::unique_ptr<trace>> traces;
  std::vector<policy_run> runs;
  for (const std::string& policy : options->policies) {
    if (!trace_path.empty()) traces.push_back(std::make_unique<trace>(trace_options{.name = policy}));
    runs.push_back(run_policy(policy, what, *options, schedule ? &*schedule : nullptr,
                              traces.empty() ? nullptr : traces.back().get()));
  }
  std::fputs((scenario.empty() ? table_of(*w, *options, runs) : table_of(what, runs)).c_str(), stdout);
  if (schedule) schedule->finish();
  if (!traces.empty()) {
    std::vector<const trace*> kept;
    kept.reserve(traces.size());
    for (const auto& t : traces)
      kept.push_back(t.get());
    trace::save(trace_path, kept);
  }
  return json.save(json_of(*w, what, *options, runs, scaled));
}

}  // namespace
}  // namespace deepum::replay

int main(int argc, char** argv) {
  try {
    const std::vector<std::string> arguments = deepum_program::read_flags(
        argc, argv,
        "replays the steps of a recorded model under memory policies: deepum-replay [--FLAG=VALUE]... WORKLOAD");
    const absl::Status status = arguments.size() != 1
                                    ? absl::InvalidArgumentError("give one workload, and options that begin with --")
                                    : deepum::replay::run(arguments[0]);
    if (status.ok()) return 0;
    absl::FPrintF(stderr, "deepum-replay: %s\n", status.message());
  } catch (const std::exception& e) {
    absl::FPrintF(stderr, "deepum-replay: %s\n", e.what());
  }
  return 1;
}
