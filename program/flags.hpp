#pragma once

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include <deepum/core/block.hpp>
#include <deepum/units.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

// Command-line flags that the programs of this repository share.
namespace deepum_program {

/// The kind of memory that a flag names. "mapped" is what "paged" was called before.
[[nodiscard]] inline std::string memory_kind_of(std::string flag) { return flag == "mapped" ? "paged" : std::move(flag); }

/// `--budget`: how much device memory a run may use, in bytes or as a share of the footprint.
struct budget_flag {
  double percent = 40;
  std::optional<deepum::bytes> size{};  ///< goes before `percent`

  /// In whole blocks, rounded down.
  [[nodiscard]] deepum::bytes of(deepum::bytes footprint) const {
    const deepum::bytes wanted =
        size.value_or(deepum::bytes{static_cast<std::uint64_t>(static_cast<double>(footprint.count) * percent / 100)});
    return deepum::block_size * (wanted / deepum::block_size);
  }
};

/// `--lookahead`: the degree N, in launches; nothing: the policy's own choice.
struct lookahead_flag {
  std::optional<std::uint32_t> degree{};
};

inline bool AbslParseFlag(absl::string_view text, budget_flag* flag, std::string* error) {  // NOLINT: Abseil's name
  *error = "give bytes or a share of the footprint, for example 67108864, 64MiB, 2GiB or 40%";
  if (absl::ConsumeSuffix(&text, "%")) {
    flag->size.reset();
    return absl::SimpleAtod(text, &flag->percent) && flag->percent > 0 && flag->percent <= 1000;
  }
  constexpr std::pair<std::string_view, unsigned> units[] = {{"KiB", 10}, {"MiB", 20}, {"GiB", 30}, {"B", 0}, {"", 0}};
  for (const auto& [name, shift] : units) {
    if (absl::ConsumeSuffix(&text, absl::string_view{name.data(), name.size()})) {
      std::uint64_t count = 0;
      if (!absl::SimpleAtoi(text, &count) || count > (UINT64_MAX >> 8 >> shift)) return false;
      flag->size = deepum::bytes{count << shift};
      return true;
    }
  }
  return false;
}
inline std::string AbslUnparseFlag(const budget_flag& flag) {  // NOLINT: Abseil's name
  return flag.size ? absl::StrCat(flag.size->count) : absl::StrCat(flag.percent, "%");
}

inline bool AbslParseFlag(absl::string_view text, lookahead_flag* flag, std::string* error) {  // NOLINT: Abseil's name
  *error = "give a number of launches from 1 on, or auto";
  flag->degree.reset();
  if (text == "auto") return true;
  std::uint32_t degree = 0;
  if (!absl::SimpleAtoi(text, &degree) || degree == 0) return false;
  flag->degree = degree;
  return true;
}
inline std::string AbslUnparseFlag(const lookahead_flag& flag) {  // NOLINT: Abseil's name
  return flag.degree ? absl::StrCat(*flag.degree) : "auto";
}

}  // namespace deepum_program
