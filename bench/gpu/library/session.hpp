#pragma once

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gpu/library/bench_system.hpp"
#include "gpu/library/energy.hpp"
#include "gpu/library/report.hpp"
#include "nlohmann/json.hpp"
#include "program/json_file.hpp"
#include <deepum/cuda/device.hpp>
#include <deepum/trace.hpp>
#include <deepum/units.hpp>

#include <memory>
#include <string>
#include <vector>

namespace deepum::gpu_bench {

/// What a program needs of the machine.
struct machine_needs {
  bytes managed{};             ///< managed memory at a time; 0: none
  bool bf16_products = false;  ///< matrices of bf16 are multiplied
};

/// One run of a program of the benchmark: the GPU, the file of results, the trace, and what is printed.
///
/// Threads: one.
class session {
 public:
  /// Finds the GPU, and says before hours of work what the machine or the files do not allow.
  /// @param settings  As the flags say; they stay where they are until the session ends.
  /// @errors  `InvalidArgument`, `PermissionDenied`; `Unavailable` where this machine cannot run the program.
  [[nodiscard]] static absl::StatusOr<std::unique_ptr<session>> begin(bench_settings& settings,
                                                                      const machine_needs& needs);

  /// Measures the links, prints the rates, and puts them into the settings.
  /// @param managed  Those of managed memory, too.
  void measure_links(bool managed, bytes size);

  /// Prints the table and keeps the report. What is there is written at once, so that an interruption loses no more
  /// than one report.
  /// @param memory  The kind of the library's, for the file; empty: managed, which is all that the program knows.
  void add(const program_report& report, const std::string& table, const std::string& memory = {});
  /// The same for results of another form.
  void put(const char* key, nlohmann::ordered_json results, const std::string& table);

  /// Writes the trace.
  /// @returns  Whether all results are in the file.
  [[nodiscard]] absl::Status end();

 private:
  session(bench_settings& settings, std::unique_ptr<cuda::device> gpu);
  void save();

  bench_settings& settings_;
  std::unique_ptr<cuda::device> gpu_;
  energy_meter energy_;
  deepum_program::json_file file_;
  std::vector<std::unique_ptr<trace>> traces_{};
  nlohmann::ordered_json json_{};
  absl::Status saved_{};
};

/// Prints at once, whatever the output is.
void print(const std::string& text);

/// A program's main: reads the flags, runs `work`, and says what went wrong.
/// @returns  The exit status: 77 where this machine cannot run it.
int run_program(int argc, char** argv, const char* name, const char* usage, absl::Status (*work)());

}  // namespace deepum::gpu_bench
