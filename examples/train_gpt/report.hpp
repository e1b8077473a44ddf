#pragma once

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "nlohmann/json.hpp"
#include "step_bound.hpp"
#include <deepum/core/block.hpp>
#include <deepum/units.hpp>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

namespace train_gpt {

using deepum::bytes;

/// What was measured while one policy trained. One entry a step.
struct policy_run {
  std::string name{};
  std::vector<std::int64_t> step_ns{};
  std::vector<std::uint64_t> faults{};
  std::vector<std::uint64_t> faults_changing{};  ///< those of launches whose arguments change from step to step
  std::vector<std::uint64_t> bytes_in{};
  std::vector<std::uint64_t> bytes_out{};
  std::vector<std::int64_t> stall_ns{};
  std::vector<std::uint64_t> prefetches_used{};    ///< blocks, like those below
  std::vector<std::uint64_t> prefetches_late{};    ///< faulted while they were on their way
  std::vector<std::uint64_t> prefetches_wasted{};  ///< left unused
  std::vector<float> loss{};
  std::uint64_t table_bytes = 0;
  std::string fault_feed{};  ///< where page faults were learnt of; empty where the device does not say
};

/// The runs of all policies, and what they have in common.
struct report {
  std::string device{};
  bytes footprint{};
  bytes budget{};
  std::vector<policy_run> runs{};
  std::string precision{"fp32"};
  std::string memory{"managed"};  ///< kind of memory
  bytes chunk{};                  ///< what is mapped at a time; 0 where nothing is
  bool host_mapped = false;       ///< chunks that are not on the GPU are the host's at their addresses
  std::string driver{};           ///< of a GPU; empty for the simulated one
  bool evaluate = false;
  std::optional<std::uint32_t> lookahead{};  ///< degree N; nothing: the policies' own
  std::optional<step_bound> least{};         ///< what no schedule of these steps can beat; nothing: not known
};

/// The first two steps are apart: memory is touched for the first time, and the tables are empty.
inline constexpr std::size_t first_steps = 2;

/// Median from the third step on; of all steps where there are no more than two.
template <class T>
[[nodiscard]] double steady(const std::vector<T>& steps) {
  std::vector<T> sorted(steps.size() > first_steps ? steps.begin() + first_steps : steps.begin(), steps.end());
  std::sort(sorted.begin(), sorted.end());
  const std::size_t middle = sorted.size() / 2;
  const auto upper = static_cast<double>(sorted[middle]);
  return sorted.size() % 2 == 1 ? upper : (static_cast<double>(sorted[middle - 1]) + upper) / 2;
}

/// Faults from the third step on of launches whose arguments stay the same.
[[nodiscard]] inline std::uint64_t faults_outside(const policy_run& run) {
  std::uint64_t sum = 0;
  for (std::size_t i = first_steps; i < run.faults.size(); ++i)
    sum += run.faults[i] - run.faults_changing[i];
  return sum;
}

/// Policies decide when memory moves, never what is computed: every loss has to be the same, bit by bit.
/// @param expected  Another run of the same steps.
/// @returns         What differs; nothing where all is well.
[[nodiscard]] inline std::optional<std::string> difference_of_losses(const std::vector<policy_run>& runs,
                                                                     const policy_run& expected) {
  for (const policy_run& run : runs) {
    for (std::size_t i = 0; i < run.loss.size(); ++i) {
      if (std::bit_cast<std::uint32_t>(run.loss[i]) != std::bit_cast<std::uint32_t>(expected.loss[i])) {
        return absl::StrFormat("the loss of step %d is %.9g under %s, but %.9g under %s", i + 1, expected.loss[i],
                               expected.name, run.loss[i], run.name);
      }
    }
  }
  return std::nullopt;
}

namespace detail {

/// What was run, in a line.
[[nodiscard]] inline std::string heading_of(const report& r, const std::string& memory) {
  constexpr double mib = 1 << 20;
  return absl::StrFormat("%s%s%s%s, footprint %.1f MiB, budget %.1f MiB (%.1f %%), %d steps, loss %.3f -> %.3f\n\n",
                         r.device, memory, r.precision == "fp32" ? "" : ", " + r.precision,
                         r.evaluate ? ", forward pass alone" : "", static_cast<double>(r.footprint.count) / mib,
                         static_cast<double>(r.budget.count) / mib,
                         100 * static_cast<double>(r.budget.count) / static_cast<double>(r.footprint.count),
                         r.runs.front().loss.size(), r.runs.front().loss.front(), r.runs.front().loss.back());
}

[[nodiscard]] inline const policy_run* run_of(const report& r, const std::string& policy) {
  const auto found = std::find_if(r.runs.begin(), r.runs.end(), [&](const policy_run& p) { return p.name == policy; });
  return found == r.runs.end() ? nullptr : &*found;
}

/// In percent; "-" where there is nothing to compare with.
[[nodiscard]] inline std::string share_of(double least, double step) {
  return least == 0 ? "-" : absl::StrFormat("%.1f", 100 * least / step);
}

inline constexpr const char* least_name = "least possible";
inline constexpr const char* what_least_is =
    "Least possible: what no schedule of this step can beat with this memory on these links (docs/bounds.md).\n";

}  // namespace detail

/// The policies of one kind of memory.
[[nodiscard]] inline std::string table_of(const report& r) {
  constexpr double mib = 1 << 20;
  const bool paged = r.memory == "paged";
  std::string text = detail::heading_of(
      r, absl::StrFormat(", %s memory%s%s", r.memory,
                         r.chunk.count == 0 ? "" : absl::StrFormat(" in chunks of %d MiB", r.chunk.count >> 20),
                         r.host_mapped ? ", evicted ones host-mapped" : ""));
  constexpr const char* columns = "%-14s %9s %9s %11s %8s %10s %9s %9s %9s | %9s %9s %9s\n";
  absl::StrAppend(
      &text,
      absl::StrFormat(columns, "policy", "step", "of ideal", "of possible", paged ? "waits" : "faults", "changing*",
                      "in", "out", "stalled", "1st step", "2nd step", "tables"),
      absl::StrFormat(columns, "", "[ms]", "[%]", "[%]", "", "", "[MiB]", "[MiB]", "[ms]", "[ms]", "[ms]", "[KiB]"));
  const policy_run* const ideal = detail::run_of(r, "ideal");
  const double ideal_ns = ideal == nullptr ? 0 : steady(ideal->step_ns);
  const double least_ns = r.least ? r.least->ns : 0;
  const auto add_least = [&] {
    absl::StrAppendFormat(&text, columns, detail::least_name, absl::StrFormat("%.3f", least_ns / 1e6),
                          detail::share_of(ideal_ns, least_ns), "100.0", "", "",
                          absl::StrFormat("%.1f", r.least->in / mib), absl::StrFormat("%.1f", r.least->out / mib), "",
                          "", "", "");
  };
  if (r.least && ideal == nullptr) add_least();
  for (const policy_run& p : r.runs) {
    const double step = steady(p.step_ns);
    const std::string second =
        p.step_ns.size() < 2 ? "-" : absl::StrFormat("%.3f", static_cast<double>(p.step_ns[1]) / 1e6);
    absl::StrAppendFormat(
        &text, "%-14s %9.3f %9s %11s %8.0f %10.0f %9.1f %9.1f %9.3f | %9.3f %9s %9.1f\n", p.name, step / 1e6,
        detail::share_of(ideal_ns, step), &p == ideal ? "" : detail::share_of(least_ns, step), steady(p.faults),
        steady(p.faults_changing), steady(p.bytes_in) / mib, steady(p.bytes_out) / mib, steady(p.stall_ns) / 1e6,
        static_cast<double>(p.step_ns.front()) / 1e6, second, static_cast<double>(p.table_bytes) / 1024);
    if (r.least && &p == ideal) add_least();
  }
  absl::StrAppend(&text, "\nFor each step, median from the third one on.",
                  " * faults in AdamW, whose launches get the step number and so are never the same.\n");
  if (r.least) absl::StrAppend(&text, detail::what_least_is);
  if (paged) {
    absl::StrAppend(&text, "No page faults here: what is counted is blocks that a launch had to wait for.\n");
  }
  if (!r.driver.empty() && !paged &&
      std::any_of(r.runs.begin(), r.runs.end(), [](const auto& p) { return p.name == "um"; })) {
    absl::StrAppend(&text, "Under um, blocks leave beside the faults that bring others, so that the budget is kept.\n");
  }
  const auto um = std::find_if(r.runs.begin(), r.runs.end(), [](const policy_run& p) { return p.name == "um"; });
  if (um != r.runs.end() && faults_outside(*um) != 0) {
    absl::StrAppend(&text, "Faults outside AdamW, all steps from the third one on, against um:");
    for (const policy_run& p : r.runs) {
      if (p.name != "um") {
        absl::StrAppendFormat(&text, " %s %.2f %%", p.name,
                              100 * static_cast<double>(faults_outside(p)) / static_cast<double>(faults_outside(*um)));
      }
    }
    absl::StrAppend(&text, ".\n");
  }
  return text;
}

/// The same runs on two kinds of memory, side by side: what they come to once the tables are filled.
[[nodiscard]] inline std::string table_of(const report& managed, const report& paged) {
  constexpr double mib = 1 << 20;
  std::string text = detail::heading_of(managed, "");
  constexpr const char* half = " %9s %11s %7s %8s %8s";
  const auto halves = [&](const std::string& name, const auto& cells) {
    absl::StrAppendFormat(&text, "%-14s", name);
    for (const report* r : {&managed, &paged}) {
      if (r == &paged) absl::StrAppend(&text, " |");
      cells(*r);
    }
    while (text.back() == ' ')
      text.pop_back();
    absl::StrAppend(&text, "\n");
  };
  halves("", [&](const report& r) { absl::StrAppendFormat(&text, " %-47s", r.memory + " memory"); });
  halves("policy", [&](const report& r) {
    absl::StrAppendFormat(&text, half, "step", "of possible", &r == &managed ? "faults" : "waits", "in", "out");
  });
  halves("", [&](const report&) { absl::StrAppendFormat(&text, half, "[ms]", "[%]", "", "[MiB]", "[MiB]"); });
  const auto add_least = [&] {
    halves(detail::least_name, [&](const report& r) {
      absl::StrAppendFormat(&text, half, absl::StrFormat("%.3f", r.least->ns / 1e6), "100.0", "",
                            absl::StrFormat("%.1f", r.least->in / mib), absl::StrFormat("%.1f", r.least->out / mib));
    });
  };
  const bool bounded = managed.least && paged.least;
  if (bounded && detail::run_of(managed, "ideal") == nullptr) add_least();
  for (const policy_run& p : managed.runs) {
    halves(p.name, [&](const report& r) {
      const policy_run& run = *detail::run_of(r, p.name);
      const double step = steady(run.step_ns);
      absl::StrAppendFormat(&text, half, absl::StrFormat("%.3f", step / 1e6),
                            p.name == "ideal" ? "" : detail::share_of(r.least ? r.least->ns : 0, step),
                            absl::StrFormat("%.0f", steady(run.faults)),
                            absl::StrFormat("%.1f", steady(run.bytes_in) / mib),
                            absl::StrFormat("%.1f", steady(run.bytes_out) / mib));
    });
    if (bounded && p.name == "ideal") add_least();
  }
  absl::StrAppend(&text,
                  "\nFor each step, median from the third one on. Waits: blocks that a launch had to wait for.\n");
  if (bounded) absl::StrAppend(&text, detail::what_least_is);
  return text;
}

[[nodiscard]] inline nlohmann::ordered_json json_of(const report& r) {
  nlohmann::ordered_json policies = nlohmann::ordered_json::array();
  for (const policy_run& p : r.runs) {
    policies.push_back({{"name", p.name},
                        {"step_ns", p.step_ns},
                        {"faults", p.faults},
                        {"faults_changing", p.faults_changing},
                        {"bytes_in", p.bytes_in},
                        {"bytes_out", p.bytes_out},
                        {"stall_ns", p.stall_ns},
                        {"prefetches_used", p.prefetches_used},
                        {"prefetches_late", p.prefetches_late},
                        {"prefetches_wasted", p.prefetches_wasted},
                        {"loss", p.loss},
                        {"table_bytes", p.table_bytes}});
    if (!p.fault_feed.empty()) policies.back()["fault_feed"] = p.fault_feed;
  }
  nlohmann::ordered_json json{{"footprint_bytes", r.footprint.count},
                              {"budget_bytes", r.budget.count},
                              {"device", r.device},
                              {"memory", r.memory},
                              {"precision", r.precision},
                              {"evaluate", r.evaluate}};
  if (r.chunk.count != 0) json["chunk_bytes"] = r.chunk.count;
  if (r.host_mapped) json["evicted"] = "host-mapped";
  if (!r.driver.empty()) json["driver"] = r.driver;
  if (r.lookahead) json["lookahead"] = *r.lookahead;
  if (r.least) json["least"] = {{"step_ns", r.least->ns}, {"bytes_in", r.least->in}, {"bytes_out", r.least->out}};
  json["policies"] = std::move(policies);
  return json;
}

}  // namespace train_gpt
