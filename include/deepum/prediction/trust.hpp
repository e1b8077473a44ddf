#pragma once

#include <deepum/cxx20.hpp>

#include <bit>
#include <cstdint>

namespace deepum {
inline namespace v0 {

/// Whether the launch before had predicted a launch.
enum class outcome : std::uint8_t { predicted, mispredicted, unpredicted };

/// Decides whether a stream's predictions are worth acting on.
///
/// They are not from the moment when half of the last 32 were wrong, until 16 in a row have been right.
class prediction_trust {
 public:
  static constexpr int window = 32;
  static constexpr int too_many_wrong = 16;
  static constexpr int right_again = 16;

  void record(outcome o) {
    if (o == outcome::unpredicted) {
      return;
    }
    const bool wrong = o == outcome::mispredicted;
    recent_wrong_ = recent_wrong_ << 1U | (wrong ? 1U : 0U);
    right_in_a_row_ = wrong ? 0 : right_in_a_row_ + 1;
    if (trusted_ && std::popcount(recent_wrong_) >= too_many_wrong) {
      trusted_ = false;
    } else if (!trusted_ && right_in_a_row_ >= right_again) {
      trusted_ = true;
      recent_wrong_ = 0;
    }
  }

  [[nodiscard]] bool trusted() const { return trusted_; }

 private:
  std::uint32_t recent_wrong_ = 0;  // bit i: the prediction i launches ago was wrong
  std::uint64_t right_in_a_row_ = 0;
  bool trusted_ = true;
};
static_assert(prediction_trust::window == 32, "one bit each of a 32-bit word");

}  // namespace v0
}  // namespace deepum
