// What deepum-replay shows and writes of its runs.
#include "replay/replay_report.hpp"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "replay/regimes.hpp"
#include <deepum/core/block.hpp>

#include <utility>

namespace deepum::replay {
namespace {

std::vector<nanoseconds> times_of(const replay_result& result) {
  std::vector<nanoseconds> times;
  for (const replayed_turn& t : result.turns)
    times.push_back(t.time);
  return times;
}

nlohmann::json card_json(const run_options& options, const std::vector<scaled_kernels>& scaled) {
  nlohmann::json kernels = nlohmann::json::array();
  for (const scaled_kernels& k : scaled) {
    kernels.push_back({{"kernel", k.kernel},
                       {"launches", k.launches},
                       {"recorded_ns", k.recorded.count()},
                       {"ns", k.scaled.count()},
                       {"by_products", k.by_products}});
  }
  return {{"name", options.card->name}, {"recorded_on", options.recorded_on}, {"kernels", std::move(kernels)}};
}

}  // namespace

double steady_ns(const replay_result& result) {
  const std::size_t n = result.turns.size();
  const std::size_t first = n > 3 ? 2 : n - 1;
  const std::size_t last = n > 3 ? n - 1 : n;
  nanoseconds sum{};
  for (std::size_t i = first; i != last; ++i)
    sum += result.turns[i].time;
  return static_cast<double>(sum.count()) / static_cast<double>(last - first);
}

// How every policy coped with every change.
std::string table_of(const program& what, const std::vector<policy_run>& runs) {
  std::string text = absl::StrFormat(
      "%s\n\npolicy     turn  regime  turns    steady     worst     total  back at 90 %%\n"
      "                                  [ms]      [ms]      [ms]   in turns\n",
      what.name);
  for (const policy_run& r : runs) {
    for (const regime_report& report : report_regimes(what, times_of(r.result))) {
      absl::StrAppend(&text,
                      absl::StrFormat("%-9s %5d %7d %6d %9.2f %9.2f %9.2f   %s\n", r.policy, report.first_turn,
                                      report.regime, report.turns, static_cast<double>(report.steady.count()) / 1e6,
                                      static_cast<double>(report.worst.count()) / 1e6,
                                      static_cast<double>(report.total.count()) / 1e6,
                                      report.recovered_in ? absl::StrCat(*report.recovered_in) : "never"));
    }
  }
  return text;
}

std::string table_of(const workload& w, const run_options& options, const std::vector<policy_run>& runs) {
  constexpr double gib = 1 << 30;
  std::string text = absl::StrFormat(
      "%s: %d launches, footprint %.1f GiB, budget %.1f GiB, %g GB/s in, %g GB/s out, %d steps\n\n", w.name,
      w.launches.size(), static_cast<double>(w.blocks) / 512, static_cast<double>(options.budget.count) / gib,
      options.costs.h2d_gbps, options.costs.d2h_gbps, options.steps);
  absl::StrAppend(
      &text,
      "policy         step  of ideal   faults        in       out    stalled |  1st step  2nd step    tables  replay\n"
      "               [ms]       [%]              [GiB]     [GiB]       [ms] |      [ms]      [ms]     [MiB]     "
      "[s]\n");
  for (const policy_run& r : runs) {
    const auto& turns = r.result.turns;
    const replayed_turn& middle = turns[turns.size() > 2 ? turns.size() - 2 : turns.size() - 1];
    const double step = steady_ns(r.result);
    absl::StrAppend(
        &text, absl::StrFormat("%-9s %9.3f %9.1f %8d %9.2f %9.2f %10.3f | %9.3f %9.3f %9.2f %7.1f\n", r.policy,
                               step / 1e6, 100 * static_cast<double>(w.compute.count()) / step, middle.used.faults,
                               static_cast<double>(middle.used.in().all_bytes()) / gib,
                               static_cast<double>(middle.used.out().all_bytes()) / gib,
                               static_cast<double>(middle.used.stalled.count()) / 1e6,
                               static_cast<double>(turns.front().time.count()) / 1e6,
                               turns.size() > 1 ? static_cast<double>(turns[1].time.count()) / 1e6 : 0.0,
                               static_cast<double>(turns.back().used.policy.table_bytes) / (1 << 20), r.host_seconds));
  }
  absl::StrAppend(&text,
                  "\nStep: mean of those after the second and before the last. In, out, faults and stalls: of the "
                  "last but one.\n");
  return text;
}

nlohmann::json json_of(const workload& w, const program& what, const run_options& options,
                       const std::vector<policy_run>& runs, const std::vector<scaled_kernels>& scaled) {
  nlohmann::json all{{"workload", w.name},
                     {"program", what.name},
                     {"launches", w.launches.size()},
                     {"compute_ns", w.compute.count()},
                     {"footprint_bytes", (block_size * w.blocks).count},
                     {"budget_bytes", options.budget.count},
                     {"h2d_gbps", options.costs.h2d_gbps},
                     {"d2h_gbps", options.costs.d2h_gbps},
                     {"copy_latency_ns", options.costs.copy_latency.count()},
                     {"fault_latency_ns", options.costs.fault_latency.count()},
                     {"fault_overlap", options.costs.fault_overlap},
                     {"run_ahead", options.run_ahead},
                     {"lookahead", options.lookahead ? nlohmann::json(*options.lookahead) : nlohmann::json(nullptr)},
                     {"steps", options.steps},
                     {"runs", nlohmann::json::array()}};
  for (const policy_run& r : runs) {
    nlohmann::json run{{"policy", r.policy},
                       {"memory", r.memory == replay_memory::managed ? "managed" : "home-copy"},
                       {"steady_step_ns", steady_ns(r.result)},
                       {"percent_of_ideal", 100 * static_cast<double>(w.compute.count()) / steady_ns(r.result)},
                       {"table_bytes", r.result.turns.back().used.policy.table_bytes},
                       {"block_tables", r.result.turns.back().used.policy.block_tables},
                       {"replay_seconds", r.host_seconds},
                       {"steps", nlohmann::json::array()}};
    for (const replayed_turn& t : r.result.turns) {
      run["steps"].push_back({{"ns", t.time.count()},
                              {"faults", t.used.faults},
                              {"in_bytes", t.used.in().all_bytes()},
                              {"out_bytes", t.used.out().all_bytes()},
                              {"read_in_place", t.used.read_in_place},
                              {"written_in_place", t.used.written_in_place},
                              {"discarded_blocks", t.used.discarded},
                              {"stalled_ns", t.used.stalled.count()},
                              {"prefetches_used", t.used.prefetches_used},
                              {"prefetches_late", t.used.prefetches_late},
                              {"prefetches_wasted", t.used.prefetches_wasted},
                              {"unprepared_launches", t.used.unprepared_launches},
                              {"refused_blocks", t.used.refused},
                              {"predicted", t.used.policy.predicted},
                              {"mispredicted", t.used.policy.mispredicted},
                              {"unpredicted", t.used.policy.unpredicted}});
    }
    if (what.workloads.size() > 1) {
      for (const regime_report& report : report_regimes(what, times_of(r.result))) {
        run["regimes"].push_back(
            {{"regime", report.regime},
             {"first_turn", report.first_turn},
             {"turns", report.turns},
             {"steady_ns", report.steady.count()},
             {"worst_ns", report.worst.count()},
             {"total_ns", report.total.count()},
             {"recovered_in", report.recovered_in ? nlohmann::json(*report.recovered_in) : nlohmann::json(nullptr)}});
      }
    }
    all["runs"].push_back(std::move(run));
  }
  if (options.card != nullptr) {
    all["card"] = card_json(options, scaled);
  }
  return all;
}

}  // namespace deepum::replay
