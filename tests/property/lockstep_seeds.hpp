#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

namespace deepum_test {

/// What programs in lockstep did.
struct lockstep_outcome {
  std::uint64_t launches = 0;
  std::uint64_t tolerated = 0;
  std::uint64_t failures = 0;  ///< of calls, because the program made them fail
  std::uint64_t programs = 0;
  std::uint64_t wrong = 0;  ///< programs
};

/// Runs the programs of the seeds from 1 on; with DEEPUM_TEST_SEED=N that of this seed alone, with DEEPUM_TEST_SEED=N-M
/// those from N to M. A wrong one does not end the others, up to ten.
/// @param run  From a seed to the outcome of its program.
template <class Run>
[[nodiscard]] lockstep_outcome run_seeds(std::size_t programs, Run&& run) {
  std::uint64_t first = 1;
  std::uint64_t last = programs;
  if (const char* given = std::getenv("DEEPUM_TEST_SEED")) {
    const std::string text = given;
    first = last = std::stoull(text);
    if (const std::size_t dash = text.find('-'); dash != std::string::npos) {
      last = std::stoull(text.substr(dash + 1));
    }
  }
  lockstep_outcome all;
  for (std::uint64_t seed = first; seed <= last && all.wrong < 10; ++seed) {
    const lockstep_outcome one = run(seed);
    all.launches += one.launches;
    all.tolerated += one.tolerated;
    all.failures += one.failures;
    all.wrong += one.wrong;
    ++all.programs;
  }
  return all;
}

}  // namespace deepum_test
