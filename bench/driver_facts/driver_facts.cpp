// Shows how the driver of this machine treats managed memory: rates, costs and side effects of moves, faults and hints;
// and what it costs to map plain memory. docs/adr/0006 and 0007 rest on what it prints.

#include "absl/flags/flag.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "feed.hpp"
#include "gpu/library/energy.hpp"
#include "gpu/library/safety.hpp"
#include "hints.hpp"
#include "launches.hpp"
#include "mapping.hpp"
#include "moves.hpp"
#include "neighbours.hpp"
#include "nlohmann/json.hpp"
#include "probe.hpp"
#include "program/command_line.hpp"
#include "program/json_file.hpp"
#include "report.hpp"
#include "rows.hpp"
#include <deepum/cuda/device.hpp>
#include <deepum/cuda/driver_context.hpp>
#include <deepum/cuda/managed_limit.hpp>
#include <deepum/error.hpp>
#include <deepum/units.hpp>

#include <cuda_runtime_api.h>

#include <cstdint>
#include <cstdio>
#include <exception>
#include <fstream>
#include <functional>
#include <iterator>
#include <optional>
#include <string>
#include <utility>
#include <vector>

ABSL_FLAG(int, repeats, 3, "of each measurement, from 1 to 9");
ABSL_FLAG(std::string, only, "", "measures those groups alone whose names contain this, in capitals or not");
ABSL_FLAG(std::string, json, "", "file for all that was measured");
ABSL_FLAG(std::string, commit, "", "what was measured, for the JSON file: git describe --always --dirty");

namespace deepum::driver_facts {
namespace {

constexpr int cannot_run = 77;
/// Seconds after which no further group begins, so that all is over in a minute.
constexpr double enough = 45;

std::string text_of(const char* path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

void print(const std::string& text) {
  std::fputs(text.c_str(), stdout);
  std::fflush(stdout);
}
void complain(const std::string& text) { absl::FPrintF(stderr, "deepum-driver-facts: %s\n", text); }

/// A part of the run, whose failure to be possible here is no failure of the whole.
struct group {
  std::string name;
  std::function<void()> measure;
};

int measure(const cuda::device& gpu, int repeats) {
  const deepum_program::json_file file{absl::GetFlag(FLAGS_json), 1};
  if (const absl::Status status = file.check(); !status.ok()) {
    complain(std::string{status.message()});
    return 1;
  }
  const stopwatch elapsed;
  const cuda::device_properties& properties = gpu.properties();
  const std::string driver_text = text_of("/proc/driver/nvidia/version");
  const std::string driver = driver_version_in(driver_text);

  report out;
  probe p(properties.ordinal, repeats, out);
  const gpu_bench::energy_meter energy(properties.ordinal);
  // Contexts of their own come once what is measured without them is done.
  std::optional<cuda::driver_context> first;
  std::optional<cuda::driver_context> second;
  const auto make_contexts = [&] {
    if (!first) {
      first.emplace(properties.ordinal);
      second.emplace(properties.ordinal);
    }
    if (!first->exists() || !second->exists()) {
      out.leave_out("the driver gives no further context");
      return false;
    }
    return true;
  };
  const auto own = [&] { return make_contexts() ? &*first : nullptr; };

  const std::vector<group> groups{
      {"Copies from and to pinned memory", [&] { pinned_copies(p); }},
      {"Memory that nobody has touched", [&] { fresh_memory(p); }},
      {"Prefetches", [&] { prefetches(p); }},
      {"Launches in a tight loop", [&] { launch_costs(p); }},
      {"Times of events", [&] { event_times(p); }},
      {"Both ways at once", [&] { both_ways(p, nullptr, nullptr); }},
      {"Contexts", [&] { context_costs(p); }},
      {"Mapping a chunk somewhere else", [&] { mapping(p); }},
      {"Small copies beside large ones", [&] { small_copies(p); }},
      {"Both ways at once, by two contexts",
       [&] {
         if (make_contexts()) {
           both_ways(p, &*first, &*second);
         }
       }},
      {"Demand faults", [&] { demand_faults(p, own()); }},
      {"Launches beside moves", [&] { launches_beside_moves(p, own()); }},
      {"Read-mostly", [&] { read_mostly(p); }},
      {"Discard", [&] { discards(p); }},
      {"The host preferred, accessed by the device", [&] { in_place(p); }},
      {"Rows where they are", [&] { rows_in_place(p); }},
      {"From an event to the fault record of the next memset", [&] { event_to_fault(p); }},
      {"Records of faults", [&] { fault_records(p); }},
      {"A neighbour's link and memory", [&] { neighbours(p); }},
      {"Energy",
       [&] {
         for (int i = 0; i < repeats; ++i) {
           const stopwatch query;
           if (!energy.joules()) {
             throw error(status::unsupported, "NVML does not tell the energy of this GPU");
           }
           out.add("query", "us", 1e6 * query());
         }
       }},
  };

  nlohmann::ordered_json json{{"gpu", properties.name},
                              {"device_memory", properties.memory.count},
                              {"driver", driver},
                              {"driver_says", driver_text},
                              {"cuda_of_driver", properties.driver_version},
                              {"cuda_runtime", properties.runtime_version},
                              {"commit", absl::GetFlag(FLAGS_commit)},
                              {"flags", {{"repeats", repeats}, {"only", absl::GetFlag(FLAGS_only)}}}};
  // What is there is written after each group, so that an interruption loses no more than one.
  absl::Status saved;
  const auto save = [&] {
    json["facts"] = out.json();
    json["left_out"] = out.left_out();
    json["failures"] = out.failures();
    json["seconds"] = elapsed();
    saved = file.save(json);
  };
  print(absl::StrFormat("%s, driver %s, CUDA %d.%d, %s\n\n", properties.name, driver.empty() ? "unknown" : driver,
                        properties.runtime_version / 1000, properties.runtime_version % 1000 / 10,
                        absl::GetFlag(FLAGS_commit)));
  print(report::head());
  bool complete = true;
  const std::string only = absl::GetFlag(FLAGS_only);
  for (const group& g : groups) {
    if (!has_part(g.name, only)) {
      continue;
    }
    out.begin(g.name);
    const std::size_t failed = out.failures().size();
    const std::size_t left_out = out.left_out().size();
    if (elapsed() > enough) {
      out.leave_out("no time left");
      complete = false;
    } else {
      try {
        g.measure();
        p.settle();
      } catch (const error& e) {
        if (e.code() != status::unsupported) {
          out.fail(e.what());
          save();
          throw;
        }
        out.leave_out(e.what());
      }
    }
    print(out.table());
    for (std::size_t i = left_out; i < out.left_out().size(); ++i) {
      print(absl::StrCat("  left out: ", out.left_out()[i], "\n"));
    }
    for (std::size_t i = failed; i < out.failures().size(); ++i) {
      complain(out.failures()[i]);
    }
    save();
  }
  // What all this has moved about is what it should be, for the host too.
  out.begin("The end");
  for (region* r : only.empty() ? std::vector<region*>{&p.a(), &p.b()} : std::vector<region*>{}) {
    p.verify(*r, "all groups");
    p.settle_out(*r);
    p.verify_on_host(*r, "all groups");
  }
  save();
  print(absl::StrFormat("\n%s, in %.0f s\n",
                        out.failures().empty()
                            ? "memory held what it should, always"
                            : absl::StrCat("memory did NOT hold what it should ", out.failures().size(), " times"),
                        elapsed()));
  if (!complete) {
    complain(absl::StrFormat("not all was measured: after %.0f s no further group begins", enough));
  }
  if (!saved.ok()) {
    complain(std::string{saved.message()});
    return 1;
  }
  return complete && out.failures().empty() ? 0 : 1;
}

int run() {
  const int repeats = absl::GetFlag(FLAGS_repeats);
  if (repeats < 1 || repeats > 9) {
    complain(absl::StrCat("--repeats has to be from 1 to 9, not ", repeats));
    return 1;
  }
  const std::optional<bytes> limit = cuda::managed_limit::from_environment();
  if (limit && *limit < most_managed) {
    complain("DEEPUM_MANAGED_LIMIT has to be 2GiB at least: so much is moved to and fro");
    return 1;
  }
  // What can be said without a GPU is said first.
  if (const auto why = gpu_bench::refusal(limit, bytes{UINT64_MAX}, most_managed)) {
    complain(*why);
    return 1;
  }
  std::optional<cuda::device> gpu;
  try {
    gpu.emplace(0);
  } catch (const error& e) {
    complain(e.what());
    return e.code() == status::unsupported ? cannot_run : 1;
  }
  if (!gpu->properties().concurrent_managed_access) {
    complain(absl::StrCat(gpu->properties().name, " cannot move managed memory while kernels run"));
    return cannot_run;
  }
  std::size_t free = 0;
  std::size_t total = 0;
  cuda::check(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
  if (const auto why = gpu_bench::refusal(limit, bytes{free}, most_managed)) {
    complain(*why);
    return 1;
  }
  return measure(*gpu, repeats);
}

}  // namespace
}  // namespace deepum::driver_facts

int main(int argc, char** argv) {
  try {
    const absl::Status read = deepum_program::read_flags_alone(
        argc, argv,
        "measures how the driver of this machine treats managed memory, and what it costs to map plain memory");
    if (read.ok()) return deepum::driver_facts::run();
    absl::FPrintF(stderr, "deepum-driver-facts: %s\n", read.message());
  } catch (const std::exception& e) {
    absl::FPrintF(stderr, "deepum-driver-facts: %s\n", e.what());
  }
  return 1;
}
