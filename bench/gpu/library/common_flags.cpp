#include "gpu/library/common_flags.hpp"

#include "absl/flags/commandlineflag.h"
#include "absl/flags/flag.h"
#include "absl/flags/reflection.h"
#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "gpu/library/flag_values.hpp"
#include <deepum/cuda/device.hpp>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <utility>

ABSL_FLAG(std::string, feed, "auto", "where the library learns of page faults: auto, driver, cupti or none");
ABSL_FLAG(std::uint64_t, seed, 1, "of weights and data");
ABSL_FLAG(std::string, json, "", "file for all that was measured, step by step");
ABSL_FLAG(std::string, trace, "",
          "file for a trace of the last launches, copies, faults and stalls under each of the library's systems, for "
          "ui.perfetto.dev and ./run report");
ABSL_FLAG(std::string, commit, "", "what was measured, for the JSON file: git describe --always --dirty");

namespace deepum::gpu_bench {
namespace {

cuda::fault_source source_of(const std::string& feed) {
  return feed == "driver"  ? cuda::fault_source::driver
         : feed == "cupti" ? cuda::fault_source::cupti
         : feed == "none"  ? cuda::fault_source::none
                           : cuda::fault_source::automatic;
}

nlohmann::ordered_json value_of(const std::string& text) {
  std::int64_t whole = 0;
  double number = 0;
  if (text == "true" || text == "false") return text == "true";
  if (absl::SimpleAtoi(text, &whole)) return whole;
  if (absl::SimpleAtod(text, &number)) return number;
  return text;
}

}  // namespace

absl::StatusOr<bench_settings> settings_from_flags() {
  if (std::getenv("DEEPUM_POLICY") != nullptr) {
    return absl::FailedPreconditionError("DEEPUM_POLICY is set and would replace the policies of this run; unset it");
  }
  bench_settings s;
  s.seed = absl::GetFlag(FLAGS_seed);
  const std::string feed = absl::GetFlag(FLAGS_feed);
  s.feed = source_of(feed);
  s.say = [](const std::string& line) { absl::FPrintF(stderr, "%s\n", line); };
  if (absl::Status status = one_of("feed", feed, {"auto", "driver", "cupti", "none"}); !status.ok()) return status;
  return s;
}

nlohmann::ordered_json flags_as_json() {
  std::map<std::string, std::string> own;
  for (const auto& [name, flag] : absl::GetAllFlags()) {
    if (absl::StrContains(flag->Filename(), "bench/gpu/") && name != "json" && name != "trace" && name != "commit") {
      own[std::string(name)] = flag->CurrentValue();
    }
  }
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  for (const auto& [name, value] : own) {
    json[name] = value_of(value);
  }
  return json;
}

}  // namespace deepum::gpu_bench
