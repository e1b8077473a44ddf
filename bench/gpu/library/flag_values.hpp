#pragma once

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "gpu/library/sizes.hpp"
#include <deepum/units.hpp>

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

// What the values of the benchmark's flags mean, and what is wrong with them. Flags are named as people write them.
namespace deepum::gpu_bench {

/// Numbers with commas.
/// @param most  Of each; the least is `least`.
template <class Number>
[[nodiscard]] absl::StatusOr<std::vector<Number>> numbers_from(const char* flag, const std::string& text, Number least,
                                                               Number most) {
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

/// Memory sizes in GiB, with commas.
[[nodiscard]] inline absl::StatusOr<std::vector<bytes>> sizes_from(const char* flag, const std::string& text) {
  const absl::StatusOr<std::vector<double>> gib = numbers_from<double>(flag, text, 0.01, 4096);
  if (!gib.ok()) return gib.status();
  std::vector<bytes> sizes;
  for (const double each : *gib) {
    sizes.push_back(of_gib(each));
  }
  return sizes;
}

/// Shares of a footprint in percent, with commas.
[[nodiscard]] inline absl::StatusOr<std::vector<double>> percentages_from(const char* flag, const std::string& text) {
  return numbers_from<double>(flag, text, 5, 200);
}

/// Some of the names, with commas, each once; or all.
[[nodiscard]] inline absl::StatusOr<std::vector<std::string>> chosen(const char* flag, const std::string& text,
                                                                     const std::vector<std::string>& names) {
  if (text == "all") return names;
  std::vector<std::string> list = absl::StrSplit(text, ',');
  for (auto name = list.begin(); name != list.end(); ++name) {
    if (std::find(names.begin(), names.end(), *name) == names.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat("--", flag, " does not know '", *name, "'; there are ", absl::StrJoin(names, ", "), " and all"));
    }
    if (std::find(list.begin(), name, *name) != name) {
      return absl::InvalidArgumentError(absl::StrCat("--", flag, " names '", *name, "' twice"));
    }
  }
  return list;
}

/// One of the words.
[[nodiscard]] inline absl::Status one_of(const char* flag, const std::string& word,
                                         const std::vector<std::string>& words) {
  if (std::find(words.begin(), words.end(), word) != words.end()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("--", flag, " is one of ", absl::StrJoin(words, ", "), ", not '", word, "'"));
}

[[nodiscard]] inline absl::Status in_range(const char* flag, std::int64_t value, std::int64_t least,
                                           std::int64_t most) {
  if (value >= least && value <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrFormat("--%s has to be from %d to %d, not %d", flag, least, most, value));
}
/// Of a size in GiB.
[[nodiscard]] inline absl::Status gib_in_range(const char* flag, double gib) {
  if (gib >= 0.01 && gib <= 4096) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("--", flag, " has to be from 0.01 to 4096, not ", gib));
}

/// The first of them that says that something is wrong.
[[nodiscard]] inline absl::Status first_error(std::initializer_list<absl::Status> all) {
  const auto wrong = std::find_if(all.begin(), all.end(), [](const absl::Status& s) { return !s.ok(); });
  return wrong == all.end() ? absl::OkStatus() : *wrong;
}

}  // namespace deepum::gpu_bench
