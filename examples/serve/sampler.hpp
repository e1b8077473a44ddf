#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <random>
#include <span>
#include <vector>

namespace serve {

/// Draws the bytes of one text. The same seed and the same logits give the same bytes, whatever else is drawn beside
/// it.
///
/// Not synchronised: each text has its own.
class sampler {
 public:
  /// @param temperature  0 takes the likeliest byte, and the first of equals; below 1 prefers the likely.
  sampler(std::uint64_t seed, double temperature) : random_(seed), temperature_(temperature) {}

  /// @param logits  At least one.
  [[nodiscard]] std::size_t draw(std::span<const float> logits) {
    const auto likeliest = std::max_element(logits.begin(), logits.end());
    if (temperature_ == 0) return static_cast<std::size_t>(std::distance(logits.begin(), likeliest));
    shares_.clear();
    double total = 0;
    for (const float l : logits) {
      shares_.push_back(std::exp((static_cast<double>(l) - static_cast<double>(*likeliest)) / temperature_));
      total += shares_.back();
    }
    // Not a distribution of the standard library, which differs between implementations.
    double left = static_cast<double>(random_() >> 11) * 0x1p-53 * total;
    std::size_t choice = 0;
    while (choice + 1 < shares_.size() && left >= shares_[choice])
      left -= shares_[choice++];
    return choice;
  }

 private:
  std::mt19937_64 random_;
  double temperature_;
  std::vector<double> shares_{};
};

}  // namespace serve
