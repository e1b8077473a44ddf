#pragma once

#include "elements.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

namespace recommender {

/// What one batch looks up in one table: rows by sample, and the same sorted by row.
struct look_ups {
  std::vector<index> rows{};    ///< of each sample, `sizes::bag` of them
  std::vector<index> unique{};  ///< rows that are looked up, each once
  std::vector<index> first{};   ///< of each of these, its first place in `users`; and the end of all
  std::vector<index> users{};   ///< samples
};

/// Draws rows by Zipf's law: the one of rank k with a probability of about k^-skew. Ranks are spread over the table, as
/// hashed identifiers are, so that hot rows lie in all of its blocks.
class zipf_rows {
 public:
  /// @param skew  Above 1.
  zipf_rows(index count, double skew) : rows_(count), skew_(skew) {}

  [[nodiscard]] look_ups draw(std::mt19937_64& random, const sizes& m) const {
    look_ups found;
    std::vector<std::pair<index, index>> uses;  // row, sample
    for (index sample = 0; sample != m.batch; ++sample) {
      for (index l = 0; l != m.bag; ++l) {
        found.rows.push_back(row(random));
        uses.emplace_back(found.rows.back(), sample);
      }
    }
    std::sort(uses.begin(), uses.end());
    for (const auto& [row_used, sample] : uses) {
      if (found.unique.empty() || found.unique.back() != row_used) {
        found.unique.push_back(row_used);
        found.first.push_back(static_cast<index>(found.users.size()));
      }
      found.users.push_back(sample);
    }
    found.first.push_back(static_cast<index>(found.users.size()));
    return found;
  }

 private:
  // The inverse of the continuous law that has the same tail.
  [[nodiscard]] index row(std::mt19937_64& random) const {
    const double u = static_cast<double>(random() >> 11U) * 0x1p-53;
    const double least = std::pow(static_cast<double>(rows_) + 1, 1 - skew_);
    const double rank = std::pow(u * (least - 1) + 1, 1 / (1 - skew_)) - 1;
    const auto k = std::min<std::uint64_t>(static_cast<std::uint64_t>(rank), static_cast<std::uint64_t>(rows_) - 1);
    return static_cast<index>(k * 2654435761U % static_cast<std::uint64_t>(rows_));
  }

  index rows_;
  double skew_;
};

}  // namespace recommender
