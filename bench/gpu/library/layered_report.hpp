#pragma once

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "gpu/library/report.hpp"

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

namespace deepum::gpu_bench {

/// The least that a budget asks for; nothing where none was worked out.
[[nodiscard]] inline const program_report::bound* bound_of(const program_report& r, std::uint64_t budget) {
  const auto found = std::find_if(r.bounds.begin(), r.bounds.end(),
                                  [&](const program_report::bound& b) { return b.budget == budget; });
  return found == r.bounds.end() ? nullptr : &*found;
}

/// Systems side by side: medians of all steps or calls, and the middle half of all times in brackets.
[[nodiscard]] inline std::string layered_table_of(const program_report& r) {
  constexpr double mib = 1 << 20;
  std::string text =
      absl::StrFormat("\n%s: %s, %.0f MiB\n", r.name, r.description, static_cast<double>(r.footprint) / mib);
  const auto resident =
      std::find_if(r.runs.begin(), r.runs.end(), [](const system_run& s) { return s.name == "resident"; });
  const double ideal = resident == r.runs.end() ? 0 : median_ns(*resident);
  const auto share = [](double part, double of, const char* format) {
    return of <= 0 ? std::string("       -") : absl::StrFormat(absl::ParsedFormat<'f'>(format), part / of);
  };
  const auto percent = [&](double part, double of) { return share(100 * part, of, " %7.1f"); };
  absl::StrAppendFormat(&text, "  %-24s %9s [%17s] %7s %7s %8s %7s %7s %8s %7s %8s %7s %7s %8s %8s %8s %8s %8s\n", "",
                        "ms", "middle half", "p99/med", "% bound", "% oracle", "% ideal", "% mix", "in MiB", "x least",
                        "out MiB", "x least", "% of in", "no copy", "stall ms", "faults", "device", "host MiB");
  const auto line = [&](const system_run& s) {
    if (!s.skipped.empty()) {
      absl::StrAppendFormat(&text, "  %-24s %s\n", s.name, s.skipped);
      return;
    }
    const program_report::bound* bound = bound_of(r, s.budget);
    const std::vector<double> ns = each(s.steps, [](const measured_step& m) { return m.ns; });
    const double middle = quantile(ns, 0.5);
    const auto m = [&](auto of) { return median(s, of); };
    const double in = m([](const measured_step& t) { return t.did.in; });
    const double out = m([](const measured_step& t) { return t.did.out; });
    absl::StrAppendFormat(&text, "  %-24s %9.2f [%8.2f %8.2f] %7.2f", s.name, middle / 1e6, quantile(ns, 0.25) / 1e6,
                          quantile(ns, 0.75) / 1e6, middle <= 0 ? 0 : quantile(ns, 0.99) / middle);
    const double of_oracle = percent_of_oracle(r, s);
    absl::StrAppend(&text, percent(bound == nullptr ? 0 : bound->least_ns, bound == nullptr ? 0 : middle),
                    of_oracle <= 0 ? "        -" : absl::StrFormat(" %8.1f", of_oracle), percent(ideal, middle),
                    s.budget == 0 ? "       -" : percent(best_mix_ns(r, s), middle));
    absl::StrAppendFormat(&text, " %8.0f", in / mib);
    absl::StrAppend(&text, share(in, bound == nullptr ? 0 : static_cast<double>(bound->least_in), " %7.2f"));
    absl::StrAppendFormat(&text, " %8.0f", out / mib);
    absl::StrAppend(&text, share(out, bound == nullptr ? 0 : static_cast<double>(bound->least_out), " %7.2f"),
                    percent(out, in));
    absl::StrAppendFormat(&text, " %8.0f %8.1f %8.0f", m([](const measured_step& t) { return t.did.discarded; }) / mib,
                          m([](const measured_step& t) { return t.did.stalled_ns; }) / 1e6,
                          m([](const measured_step& t) { return t.did.faults; }));
    if (s.taken) {
      absl::StrAppendFormat(&text, " %8.0f %8.0f", static_cast<double>(s.taken->device) / mib,
                            static_cast<double>(s.taken->host) / mib);
    }
    absl::StrAppend(&text, "\n", s.notes.empty() ? "" : absl::StrCat("      ", s.notes, "\n"));
  };
  if (resident != r.runs.end()) {
    line(*resident);
  }
  std::vector<std::uint64_t> budgets;
  for (const system_run& s : r.runs) {
    if (s.budget != 0 && std::find(budgets.begin(), budgets.end(), s.budget) == budgets.end()) {
      budgets.push_back(s.budget);
    }
  }
  for (const std::uint64_t budget : budgets) {
    absl::StrAppendFormat(&text, " budget %.0f MiB (%.0f %%)", static_cast<double>(budget) / mib,
                          100 * static_cast<double>(budget) / static_cast<double>(r.footprint));
    if (const program_report::bound* b = bound_of(r, budget)) {
      absl::StrAppendFormat(&text, ": at least %.0f MiB have to come, %.0f MiB to leave, %.2f ms to pass",
                            static_cast<double>(b->least_in) / mib, static_cast<double>(b->least_out) / mib,
                            b->least_ns / 1e6);
    }
    absl::StrAppend(&text, "\n");
    for (const system_run& s : r.runs) {
      if (s.budget == budget) {
        line(s);
      }
    }
  }
  return text;
}

}  // namespace deepum::gpu_bench
