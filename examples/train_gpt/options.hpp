#pragma once

#include "../support/flags.hpp"
#include "shape.hpp"
#include <deepum/units.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace train_gpt {

using deepum_program::budget_flag;
using deepum_program::lookahead_flag;

/// What a run of the program does, after everything was checked that can be checked beforehand.
struct run_options {
  bool cuda = false;  ///< on a GPU, not on the simulated one
  precision computes_in = precision::fp32;
  purpose use = purpose::training;
  std::string profile{};        ///< of the simulated GPU
  double compute_slowdown = 1;  ///< how much slower than its profile it computes
  std::vector<std::string> policies{};
  bytes budget{};  ///< whole blocks
  lookahead_flag lookahead{};
  bool hold = true;  ///< launches wait for what is being brought for them
  model_shape shape{};
  std::int64_t steps = 0;
  float learning_rate = 0;
  std::uint64_t seed = 0;
  std::int64_t sample = 0;  ///< bytes to write with the trained model
  std::string tables{};     ///< file that the policy's tables come from and go to; empty: none
};

}  // namespace train_gpt
