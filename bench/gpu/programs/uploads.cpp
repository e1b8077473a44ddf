// How long programs wait for inputs that lie in ordinary host memory, and how long a server waits for its weights.

#include "absl/flags/flag.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "gpu/library/common_flags.hpp"
#include "gpu/library/flag_values.hpp"
#include "gpu/library/session.hpp"
#include "gpu/library/sizes.hpp"
#include "gpu/library/upload_kernels.hpp"
#include "gpu/programs/cold_start_runs.hpp"
#include "gpu/programs/upload_runs.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

ABSL_FLAG(std::int64_t, input_mib, 256, "size of each input");
ABSL_FLAG(std::int64_t, rounds, 5, "of each program, in each way");
ABSL_FLAG(std::int64_t, threads, 8, "that copy, in deepum and in the pipeline by hand");
ABSL_FLAG(bool, managed, true, "managed memory takes part, too");
ABSL_FLAG(bool, programs, true, "the twelve programs");
ABSL_FLAG(double, cold_start_gib, 0, "weights that a program begins with, from a file in --directory; 0: none");
ABSL_FLAG(std::string, directory, "/tmp", "where that file is made; it is read again from the page cache, and removed");

namespace deepum::gpu_bench {
namespace {

double median(std::vector<double> v) {
  std::sort(v.begin(), v.end());
  return v.empty() ? 0 : v[v.size() / 2];
}

absl::Status run() {
  absl::StatusOr<bench_settings> read = settings_from_flags();
  if (!read.ok()) return read.status();
  bench_settings settings = *std::move(read);
  const std::int64_t mib = absl::GetFlag(FLAGS_input_mib);
  const std::int64_t rounds = absl::GetFlag(FLAGS_rounds);
  const std::int64_t threads = absl::GetFlag(FLAGS_threads);
  const double gib = absl::GetFlag(FLAGS_cold_start_gib);
  if (absl::Status status = first_error({in_range("input-mib", mib, 16, 4096), in_range("rounds", rounds, 1, 100),
                                         in_range("threads", threads, 1, 64)});
      !status.ok()) {
    return status;
  }
  const bool managed = absl::GetFlag(FLAGS_managed) && absl::GetFlag(FLAGS_programs);
  const absl::StatusOr<std::unique_ptr<session>> here =
      session::begin(settings, {.managed = managed ? 3 * of_mib(mib) : bytes{}});
  if (!here.ok()) return here.status();
  cuda::device gpu(0);
  if (absl::GetFlag(FLAGS_programs)) {
    nlohmann::ordered_json json = nlohmann::ordered_json::array();
    std::string table =
        absl::StrFormat("%d MiB an input, %d threads: median ms, and of that until the copies return\n", mib, threads);
    upload_runs all(gpu, of_mib(mib), static_cast<unsigned>(threads), managed);
    std::map<std::string, double> logs;  // of the speed-up over pageable copies
    for (std::size_t i = 0; i != deepum_gpu_bench_kernels::upload_program_count; ++i) {
      const auto& p = deepum_gpu_bench_kernels::upload_programs()[i];
      all.next_program();
      const std::vector<upload_time> times = all.run(p, static_cast<int>(rounds));
      nlohmann::ordered_json one{{"program", p.name}, {"inputs", p.inputs}, {"launches", p.launches}};
      absl::StrAppendFormat(&table, "%-14s", p.name);
      const double plain = median(times.front().ms);
      for (const upload_time& t : times) {
        one["ms"][t.way] = t.ms;
        one["blocked_ms"][t.way] = t.blocked;
        logs[t.way] += std::log(plain / median(t.ms));
        absl::StrAppendFormat(&table, "  %s %.2f (%.2f)", t.way, median(t.ms), median(t.blocked));
      }
      table += '\n';
      json.push_back(std::move(one));
    }
    table += "geometric mean of the speed-up over pageable copies:";
    for (const auto& [way, sum] : logs) {
      absl::StrAppendFormat(&table, "  %s %.3f", way, std::exp(sum / deepum_gpu_bench_kernels::upload_program_count));
    }
    (*here)->put("uploads", std::move(json), table + "\n");
  }
  if (gib > 0) {
    const cold_start_times t =
        cold_start(gpu, of_gib(gib), static_cast<unsigned>(threads), absl::GetFlag(FLAGS_directory));
    const auto rate = [&](double s) { return static_cast<double>(of_gib(gib).count) / s / 1e9; };
    (*here)->put(
        "cold_start",
        nlohmann::ordered_json{{"gib", gib},
                               {"read_and_copy_s", t.read_and_copy},
                               {"deepum_s", t.deepum},
                               {"deepum_again_s", t.deepum_again},
                               {"until_upload_returned_s", t.returned}},
        absl::StrFormat("%.1f GiB from the page cache to the end of a launch that reads all of it:\n"
                        "read() and pageable copies %.3f s (%.1f GB/s); deepum %.3f s (%.1f GB/s), where the host's "
                        "chunks are there already %.3f s (%.1f GB/s); the upload returned after %.6f s\n",
                        gib, t.read_and_copy, rate(t.read_and_copy), t.deepum, rate(t.deepum), t.deepum_again,
                        rate(t.deepum_again), t.returned));
  }
  return (*here)->end();
}

}  // namespace
}  // namespace deepum::gpu_bench

int main(int argc, char** argv) {
  return deepum::gpu_bench::run_program(
      argc, argv, "deepum-bench-uploads",
      "measures programs whose inputs come from ordinary host memory, and a cold start", deepum::gpu_bench::run);
}
