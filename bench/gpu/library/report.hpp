#pragma once

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "gpu/library/least_traffic.hpp"
#include "nlohmann/json.hpp"
#include <deepum/core/plan.hpp>
#include <deepum/engine/statistics.hpp>
#include <deepum/units.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace deepum::gpu_bench {

/// What a memory system has counted since it began, or in one step.
struct counters {
  std::uint64_t launches = 0;
  std::uint64_t faults = 0;
  std::uint64_t lost_faults = 0;
  std::uint64_t in = 0;         ///< bytes
  std::uint64_t out = 0;        ///< bytes
  std::uint64_t discarded = 0;  ///< bytes that left without a copy
  std::int64_t stalled_ns = 0;
  std::array<std::uint64_t, reason_count> in_for{};  ///< bytes, by reason
  std::array<std::uint64_t, reason_count> out_for{};

  friend counters operator-(counters a, const counters& b) {
    a.launches -= b.launches;
    a.faults -= b.faults;
    a.lost_faults -= b.lost_faults;
    a.in -= b.in;
    a.out -= b.out;
    a.discarded -= b.discarded;
    a.stalled_ns -= b.stalled_ns;
    for (unsigned i = 0; i < reason_count; ++i) {
      a.in_for[i] -= b.in_for[i];
      a.out_for[i] -= b.out_for[i];
    }
    return a;
  }
};

/// @param block  Bytes of one.
[[nodiscard]] inline counters counters_of(const statistics& s, bytes block = block_size) {
  return {.launches = s.launches,
          .faults = s.faults,
          .lost_faults = s.lost_faults,
          .in = s.in().all_bytes(),
          .out = s.out().all_bytes(),
          .discarded = s.discarded * block.count,
          .stalled_ns = s.stalled.count(),
          .in_for = s.in().bytes,
          .out_for = s.out().bytes};
}

/// What the driver told of some steps, for each of them.
struct told {
  bool works = false;
  std::string why_not{};
  double in = 0;  ///< bytes
  double out = 0;
  bool flushes = false;   ///< it was asked for the records of all copies that are over; else some may be missing
  double faulted_in = 0;  ///< of `in`, by faults
  double faults = 0;
  std::uint64_t lost = 0;        ///< records, of all steps
  std::uint64_t peak_bytes = 0;  ///< on the device at a time; counts what is there, but dead, too
};

/// Memory that a system has taken beside what was taken before it began.
struct memory_taken {
  std::uint64_t device = 0;         ///< bytes at most, as the driver tells
  std::uint64_t host = 0;           ///< bytes that the machine has less to give, all processes together
  std::uint64_t host_resident = 0;  ///< bytes that the process has more in its own page tables
};

struct measured_step {
  std::int64_t ns = 0;
  float loss = 0;
  std::uint64_t sum = 0;  ///< of its result, where that is no loss
  counters did{};
};

/// One memory system at one budget.
struct system_run {
  std::string name{};
  std::uint64_t budget = 0;  ///< bytes; 0: all of it fits
  std::string skipped{};     ///< why it did not run
  std::string notes{};
  bool pinned = false;  ///< its bytes go over the link as copies from and to pinned memory
  std::vector<measured_step> warm_up{};
  std::vector<measured_step> steps{};
  std::optional<double> joules{};        ///< of all `steps`
  std::uint64_t peak_bytes = 0;          ///< on the device at a time, as the system itself counts
  std::int64_t device_memory_taken = 0;  ///< as cudaMemGetInfo tells, contexts included
  std::optional<told> driver_told{};
  std::optional<memory_taken> taken{};
};

[[nodiscard]] inline double quantile(std::vector<double> values, double q) {
  if (values.empty()) {
    return 0;
  }
  std::sort(values.begin(), values.end());
  const double at = q * static_cast<double>(values.size() - 1);
  const auto below = static_cast<std::size_t>(at);
  const std::size_t above = std::min(below + 1, values.size() - 1);
  return values[below] + (values[above] - values[below]) * (at - static_cast<double>(below));
}

template <class F>
[[nodiscard]] std::vector<double> each(const std::vector<measured_step>& steps, F&& of) {
  std::vector<double> values;
  for (const measured_step& s : steps) {
    values.push_back(static_cast<double>(of(s)));
  }
  return values;
}
template <class F>
[[nodiscard]] double median(const system_run& run, F&& of) {
  return quantile(each(run.steps, of), 0.5);
}
[[nodiscard]] inline double median_ns(const system_run& run) {
  return median(run, [](const measured_step& s) { return s.ns; });
}

/// A step program under all systems and budgets.
struct program_report {
  std::string name{};
  std::string description{};
  std::uint64_t footprint = 0;
  std::vector<system_run> runs{};
  struct bound {
    std::uint64_t budget = 0;
    std::uint64_t least_in = 0;   ///< bytes that have to come in each step
    std::uint64_t least_out = 0;  ///< bytes that have to leave, if what is clean need not; 0: not known
    double least_ns = 0;          ///< no step is shorter; 0: not known
  };
  std::vector<bound> bounds{};
  link_rates managed{};
  link_rates pinned{};
};

[[nodiscard]] inline double best_mix_ns(const program_report& r, const system_run& run) {
  const double in = median(run, [](const measured_step& s) { return s.did.in; });
  const double out = median(run, [](const measured_step& s) { return s.did.out; });
  return 1e9 * best_mix_seconds(in, out, run.pinned ? r.pinned : r.managed);
}

/// How near a run comes to the fastest one of the oracle with the same budget, in percent; 0: there is none.
[[nodiscard]] inline double percent_of_oracle(const program_report& r, const system_run& run) {
  double fastest = 0;
  for (const system_run& s : r.runs) {
    const double ns = s.name.starts_with("oracle") && s.budget == run.budget ? median_ns(s) : 0;
    fastest = ns > 0 && (fastest == 0 || ns < fastest) ? ns : fastest;
  }
  const double ns = median_ns(run);
  return run.budget == 0 || ns <= 0 ? 0 : 100 * fastest / ns;
}

/// Systems side by side: for each step, medians, and the middle half of all times in brackets.
[[nodiscard]] inline std::string table_of(const program_report& r) {
  constexpr double mib = 1 << 20;
  std::string text =
      absl::StrFormat("\n%s: %s, %.0f MiB\n", r.name, r.description, static_cast<double>(r.footprint) / mib);
  const auto resident =
      std::find_if(r.runs.begin(), r.runs.end(), [](const system_run& s) { return s.name == "resident"; });
  std::vector<std::uint64_t> budgets;
  for (const system_run& s : r.runs) {
    if (s.budget != 0 && std::find(budgets.begin(), budgets.end(), s.budget) == budgets.end()) {
      budgets.push_back(s.budget);
    }
  }
  std::vector<std::string> noted;  // each note once
  const auto line = [&](const system_run& s, const system_run* um) {
    if (!s.skipped.empty()) {
      absl::StrAppendFormat(&text, "  %-15s %s\n", s.name, s.skipped);
      return;
    }
    const std::vector<double> ns = each(s.steps, [](const measured_step& m) { return m.ns; });
    const double middle = quantile(ns, 0.5);
    const auto m = [&](auto of) { return median(s, of); };
    absl::StrAppendFormat(&text, "  %-15s %9.2f [%8.2f %8.2f]", s.name, middle / 1e6, quantile(ns, 0.25) / 1e6,
                          quantile(ns, 0.75) / 1e6);
    absl::StrAppend(&text, um == nullptr ? "       -" : absl::StrFormat(" %6.2fx", median_ns(*um) / middle));
    absl::StrAppend(&text, resident == r.runs.end() || resident->steps.empty()
                               ? "       -"
                               : absl::StrFormat(" %7.1f", 100 * median_ns(*resident) / middle));
    const double mix = best_mix_ns(r, s);  // no number where the links were not measured
    absl::StrAppend(&text, !(mix > 0) ? "       -" : absl::StrFormat(" %7.1f", 100 * mix / middle));
    absl::StrAppendFormat(
        &text, " %8.0f %8.0f %8.0f %8.0f %8.2f %7.0f", m([](const measured_step& t) { return t.did.faults; }),
        m([](const measured_step& t) { return t.did.in; }) / mib,
        m([](const measured_step& t) { return t.did.out; }) / mib,
        m([](const measured_step& t) { return t.did.discarded; }) / mib,
        m([](const measured_step& t) { return t.did.stalled_ns; }) / 1e6, static_cast<double>(s.peak_bytes) / mib);
    if (s.driver_told && s.driver_told->works) {
      absl::StrAppendFormat(&text, " | %7.0f %7.0f %7.0f %7.0f%s", s.driver_told->in / mib, s.driver_told->out / mib,
                            s.driver_told->faulted_in / mib, static_cast<double>(s.driver_told->peak_bytes) / mib,
                            s.driver_told->lost == 0 ? "" : " (records lost)");
    }
    if (s.joules) {
      absl::StrAppendFormat(&text, " | %.1f J",
                            *s.joules / static_cast<double>(std::max<std::size_t>(1, s.steps.size())));
    }
    absl::StrAppend(&text, "\n");
    if (!s.notes.empty() && std::find(noted.begin(), noted.end(), s.notes) == noted.end()) {
      absl::StrAppend(&text, "      ", s.notes, "\n");
      noted.push_back(s.notes);
    }
  };
  const auto head = [&] {
    absl::StrAppendFormat(&text, "  %-15s %9s [%17s] %7s %7s %7s %8s %8s %8s %8s %8s %7s | the driver tells:\n", "",
                          "step", "middle half", "um/", "% of", "% of", "faults", "in", "out", "no copy", "stalled",
                          "peak");
    absl::StrAppendFormat(&text, "  %-15s %9s  %17s  %7s %7s %7s %8s %8s %8s %8s %8s %7s | %7s %7s %7s %7s\n", "", "ms",
                          "ms", "step", "resid.", "bestmix", "", "MiB", "MiB", "MiB", "ms", "MiB", "in", "out",
                          "by flt", "peak");
  };
  head();
  if (resident != r.runs.end()) {
    line(*resident, nullptr);
  }
  for (const std::uint64_t budget : budgets) {
    absl::StrAppendFormat(&text, " budget %.0f MiB (%.0f %%)\n", static_cast<double>(budget) / mib,
                          100 * static_cast<double>(budget) / static_cast<double>(r.footprint));
    const auto um = std::find_if(r.runs.begin(), r.runs.end(), [&](const system_run& s) {
      return s.name == "um" && s.budget == budget && !s.steps.empty();
    });
    for (const system_run& s : r.runs) {
      if (s.budget == budget) {
        line(s, um == r.runs.end() ? nullptr : &*um);
      }
    }
    for (const program_report::bound& b : r.bounds) {
      if (b.budget == budget && r.managed.in > 0) {
        const double mix =
            1e3 * best_mix_seconds(static_cast<double>(b.least_in), static_cast<double>(b.least_in), r.managed);
        absl::StrAppendFormat(
            &text,
            "  least traffic   %9.2f ms: %.0f MiB have to come in each step, and on managed memory as "
            "much has to leave\n",
            mix, static_cast<double>(b.least_in) / mib);
      }
    }
  }
  return text;
}

[[nodiscard]] inline nlohmann::ordered_json json_of(const link_rates& r) {
  return {{"in", r.in}, {"out", r.out}, {"in_both", r.in_both}, {"out_both", r.out_both}};
}

[[nodiscard]] inline nlohmann::ordered_json json_of(const measured_step& s) {
  nlohmann::ordered_json in = nlohmann::ordered_json::object();
  nlohmann::ordered_json out = nlohmann::ordered_json::object();
  for (unsigned i = 0; i < reason_count; ++i) {
    if (s.did.in_for[i] != 0) {
      in[to_string(static_cast<reason>(i))] = s.did.in_for[i];
    }
    if (s.did.out_for[i] != 0) {
      out[to_string(static_cast<reason>(i))] = s.did.out_for[i];
    }
  }
  return {{"ns", s.ns},
          {"loss", s.loss},
          {"sum", s.sum},
          {"launches", s.did.launches},
          {"faults", s.did.faults},
          {"lost_faults", s.did.lost_faults},
          {"bytes_in", s.did.in},
          {"bytes_out", s.did.out},
          {"bytes_in_by_reason", in},
          {"bytes_out_by_reason", out},
          {"bytes_discarded", s.did.discarded},
          {"stalled_ns", s.did.stalled_ns}};
}

[[nodiscard]] inline nlohmann::ordered_json json_of(const program_report& r) {
  nlohmann::ordered_json runs = nlohmann::ordered_json::array();
  for (const system_run& s : r.runs) {
    nlohmann::ordered_json run{{"system", s.name}, {"budget_bytes", s.budget}};
    if (!s.skipped.empty()) {
      run["skipped"] = s.skipped;
      runs.push_back(std::move(run));
      continue;
    }
    run["notes"] = s.notes;
    run["median_ns"] = median_ns(s);
    run["best_mix_ns"] = best_mix_ns(r, s);
    if (const double percent = percent_of_oracle(r, s); percent > 0) {
      run["percent_of_oracle"] = percent;
    }
    run["peak_bytes"] = s.peak_bytes;
    run["device_memory_taken"] = s.device_memory_taken;
    if (s.joules) {
      run["joules"] = *s.joules;
    }
    if (s.taken) {
      run["memory_taken"] = {
          {"device", s.taken->device}, {"host", s.taken->host}, {"host_resident", s.taken->host_resident}};
    }
    if (s.driver_told) {
      const told& t = *s.driver_told;
      run["driver_told"] = {{"works", t.works},
                            {"why_not", t.why_not},
                            {"flushes", t.flushes},
                            {"in_each_step", t.in},
                            {"out_each_step", t.out},
                            {"faulted_in_each_step", t.faulted_in},
                            {"faults_each_step", t.faults},
                            {"lost_records", t.lost},
                            {"peak_bytes", t.peak_bytes}};
    }
    run["warm_up"] = nlohmann::ordered_json::array();
    for (const measured_step& m : s.warm_up) {
      run["warm_up"].push_back(json_of(m));
    }
    run["steps"] = nlohmann::ordered_json::array();
    for (const measured_step& m : s.steps) {
      run["steps"].push_back(json_of(m));
    }
    runs.push_back(std::move(run));
  }
  nlohmann::ordered_json bounds = nlohmann::ordered_json::array();
  for (const program_report::bound& b : r.bounds) {
    bounds.push_back({{"budget_bytes", b.budget},
                      {"least_bytes_in", b.least_in},
                      {"least_bytes_out", b.least_out},
                      {"least_ns", b.least_ns}});
  }
  return {{"program", r.name},
          {"description", r.description},
          {"footprint_bytes", r.footprint},
          {"rates_managed", json_of(r.managed)},
          {"rates_pinned", json_of(r.pinned)},
          {"least_traffic", bounds},
          {"runs", runs}};
}

}  // namespace deepum::gpu_bench
