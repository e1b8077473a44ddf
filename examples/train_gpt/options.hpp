#pragma once

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "program/flags.hpp"
#include "shape.hpp"
#include <deepum/units.hpp>

#include <bit>
#include <cstdint>
#include <string>
#include <vector>

namespace train_gpt {

using deepum_program::budget_flag;
using deepum_program::lookahead_flag;

/// `--chunk`: what paged memory maps at a time; 0: the library's own choice.
struct chunk_flag {
  bytes size{};
};

inline bool AbslParseFlag(absl::string_view text, chunk_flag* flag, std::string* error) {  // NOLINT: Abseil's name
  *error = "give a power of two from 2MiB to 32MiB, or auto";
  *flag = {};
  if (text == "auto") return true;
  budget_flag size;
  std::string ignored;
  if (!AbslParseFlag(text, &size, &ignored) || !size.size) return false;
  flag->size = *size.size;
  return std::has_single_bit(flag->size.count) && flag->size >= bytes{std::uint64_t{2} << 20} &&
         flag->size <= bytes{std::uint64_t{32} << 20};
}
inline std::string AbslUnparseFlag(const chunk_flag& flag) {  // NOLINT: Abseil's name
  return flag.size.count == 0 ? "auto" : absl::StrCat(flag.size.count >> 20, "MiB");
}

/// Where the model lies: in pages that move when they are touched, or in chunks that are mapped before a launch begins.
enum class memory_choice : std::uint8_t { managed, paged };

[[nodiscard]] inline const char* name_of(memory_choice m) { return m == memory_choice::managed ? "managed" : "paged"; }

/// What a run of the program does, after everything was checked that can be checked beforehand.
struct run_options {
  bool cuda = false;  ///< on a GPU, not on the simulated one
  memory_choice memory = memory_choice::managed;
  bytes chunk{};             ///< of paged memory on a GPU; 0: the library's own choice
  bool host_mapped = false;  ///< chunks that are not on the GPU are the host's at their addresses
  precision computes_in = precision::fp32;
  purpose use = purpose::training;
  std::string profile{};        ///< of the simulated GPU
  double compute_slowdown = 1;  ///< how much slower than its profile it computes
  std::vector<std::string> policies{};
  bytes budget{};  ///< whole blocks of the memory
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
