#pragma once

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "nlohmann/json.hpp"

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace deepum::driver_facts {

/// One measurement, repeated.
struct fact {
  std::string group{};
  std::string name{};
  std::string unit{};
  std::vector<double> values{};

  [[nodiscard]] double least() const { return *std::min_element(values.begin(), values.end()); }
  [[nodiscard]] double greatest() const { return *std::max_element(values.begin(), values.end()); }
  /// Of an even number of values, the mean of the two in the middle.
  [[nodiscard]] double median() const {
    std::vector<double> sorted = values;
    std::sort(sorted.begin(), sorted.end());
    const std::size_t middle = sorted.size() / 2;
    return sorted.size() % 2 == 1 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
  }
};

/// The value that a share `q` of all is not above, from 0 (least) to 1 (greatest). @param values  At least one.
[[nodiscard]] inline double quantile(std::vector<double> values, double q) {
  const auto at = static_cast<std::size_t>(q * static_cast<double>(values.size() - 1) + 0.5);
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(at), values.end());
  return values[at];
}

/// Whether the name contains the part, in capitals or not.
[[nodiscard]] inline bool has_part(std::string_view name, std::string_view part) {
  return absl::StrContains(absl::AsciiStrToLower(std::string(name)), absl::AsciiStrToLower(std::string(part)));
}

/// What a kernel module says of itself in /proc/driver/nvidia/version: 580.65.06 of
/// "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build ...". Empty where it says none.
[[nodiscard]] inline std::string driver_version_in(std::string_view text) {
  constexpr std::string_view blanks = " \t\n";
  while (!text.empty()) {
    const std::string_view token = text.substr(0, text.find_first_of(blanks));
    if (token.find('.') != std::string_view::npos && token.front() != '.' && token.back() != '.' &&
        token.find_first_not_of("0123456789.") == std::string_view::npos) {
      return std::string(token);
    }
    text.remove_prefix(std::min(text.size(), token.size() + 1));
  }
  return {};
}

/// All that was measured, and what went wrong.
class report {
 public:
  /// The facts that follow belong to it.
  void begin(std::string group) { group_ = std::move(group); }
  /// One more value of a fact; units are the same each time.
  void add(const std::string& name, const std::string& unit, double value) {
    for (fact& f : facts_) {
      if (f.group == group_ && f.name == name) {
        f.values.push_back(value);
        return;
      }
    }
    facts_.push_back({group_, name, unit, {value}});
  }
  /// Memory did not hold what it should, or a call failed.
  void fail(std::string what) { failures_.push_back(absl::StrCat(group_, ": ", what)); }
  /// Something cannot be measured here.
  void leave_out(const std::string& why) { left_out_.push_back(absl::StrCat(group_, ": ", why)); }

  [[nodiscard]] const std::vector<std::string>& failures() const { return failures_; }
  [[nodiscard]] const std::vector<std::string>& left_out() const { return left_out_; }

  [[nodiscard]] static std::string head() {
    return absl::StrFormat("%-68s %10s %10s %10s\n", "", "median", "least", "greatest");
  }
  /// The group that was begun last.
  [[nodiscard]] std::string table() const {
    std::string text = absl::StrCat(group_, "\n");
    for (const fact& f : facts_) {
      if (f.group == group_) {
        absl::StrAppendFormat(&text, "  %-66s %10.2f %10.2f %10.2f %s\n", f.name, f.median(), f.least(), f.greatest(),
                              f.unit);
      }
    }
    return text;
  }
  [[nodiscard]] nlohmann::ordered_json json() const {
    nlohmann::ordered_json list = nlohmann::ordered_json::array();
    for (const fact& f : facts_) {
      list.push_back({{"group", f.group},
                      {"name", f.name},
                      {"median", f.median()},
                      {"least", f.least()},
                      {"greatest", f.greatest()},
                      {"unit", f.unit},
                      {"values", f.values}});
    }
    return list;
  }

 private:
  std::string group_{};
  std::vector<fact> facts_{};
  std::vector<std::string> failures_{};
  std::vector<std::string> left_out_{};
};

}  // namespace deepum::driver_facts
