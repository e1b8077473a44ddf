#include "gpu/library/session.hpp"

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "gpu/library/common_flags.hpp"
#include "gpu/library/measure_links.hpp"
#include "gpu/library/safety.hpp"
#include "program/command_line.hpp"
#include <deepum/cuda/managed_limit.hpp>
#include <deepum/error.hpp>

#include <cstdint>
#include <cstdio>
#include <exception>
#include <memory>
#include <utility>

namespace deepum::gpu_bench {
namespace {

absl::Status refused(bytes free, bytes wanted) {
  if (wanted.count == 0) return absl::OkStatus();
  const auto why = refusal(cuda::managed_limit::from_environment(), free, wanted);
  return why ? absl::InvalidArgumentError(*why) : absl::OkStatus();
}

}  // namespace

void print(const std::string& text) {
  std::fputs(text.c_str(), stdout);
  std::fflush(stdout);
}

absl::StatusOr<std::unique_ptr<session>> session::begin(bench_settings& settings, const machine_needs& needs) {
  // What can be said without a GPU is said first.
  if (absl::Status status = refused(bytes{UINT64_MAX}, needs.managed); !status.ok()) return status;
  std::unique_ptr<cuda::device> gpu;
  try {
    gpu = std::make_unique<cuda::device>(0);
  } catch (const error& e) {
    return e.code() == status::unsupported ? absl::UnavailableError(e.what()) : absl::InternalError(e.what());
  }
  const cuda::device_properties& p = gpu->properties();
  if (needs.bf16_products && p.compute_capability < 80) {
    return absl::UnavailableError(absl::StrCat(p.name, " does not multiply matrices of bf16, as this program does"));
  }
  if (needs.managed.count != 0 && !p.concurrent_managed_access) {
    return absl::UnavailableError(absl::StrCat(p.name, " cannot move managed memory while kernels run"));
  }
  if (absl::Status status = refused(bytes{static_cast<std::uint64_t>(free_device_memory())}, needs.managed);
      !status.ok()) {
    return status;
  }
  std::unique_ptr<session> made(new session(settings, std::move(gpu)));
  if (absl::Status status = made->file_.check(); !status.ok()) return status;
  if (const std::string path = absl::GetFlag(FLAGS_trace); !path.empty()) {
    trace::save(path, {});  // says at once where that cannot be
    settings.traces = &made->traces_;
  }
  return made;
}

session::session(bench_settings& settings, std::unique_ptr<cuda::device> gpu)
    : settings_(settings),
      gpu_(std::move(gpu)),
      energy_(0),
      file_(absl::GetFlag(FLAGS_json), 1) {
  const cuda::device_properties& p = gpu_->properties();
  settings_.energy = &energy_;
  json_ = {{"gpu", p.name},
           {"device_memory", p.memory.count},
           {"driver", energy_.driver()},
           {"cuda_of_driver", p.driver_version},
           {"cuda_runtime", p.runtime_version},
           {"commit", absl::GetFlag(FLAGS_commit)},
           {"flags", flags_as_json()}};
  print(absl::StrFormat("%s, driver %s, %s\n", p.name, energy_.driver(), absl::GetFlag(FLAGS_commit)));
}

void session::save() { saved_ = file_.save(json_); }

void session::measure_links(bool managed, bytes size) {
  settings_.say("links");
  if (managed) settings_.managed = managed_rates(0, size);
  settings_.pinned = pinned_rates(size);
  const auto line = [](const char* name, const link_rates& r) {
    print(absl::StrFormat("%s: in %.1f, out %.1f GB/s; both at once: in %.1f, out %.1f GB/s\n", name, r.in / 1e9,
                          r.out / 1e9, r.in_both / 1e9, r.out_both / 1e9));
  };
  if (managed) line("managed", settings_.managed);
  line("pinned", settings_.pinned);
}

void session::add(const program_report& report, const std::string& table, const std::string& memory) {
  print(table);
  json_["programs"].push_back(json_of(report));
  if (!memory.empty()) json_["programs"].back()["memory"] = memory;
  save();
}

void session::put(const char* key, nlohmann::ordered_json results, const std::string& table) {
  print(table);
  json_[key] = std::move(results);
  save();
}

absl::Status session::end() {
  if (settings_.traces != nullptr) {
    std::vector<const trace*> runs;
    runs.reserve(traces_.size());
    for (const auto& t : traces_) {
      runs.push_back(t.get());
    }
    trace::save(absl::GetFlag(FLAGS_trace), runs);
    settings_.traces = nullptr;
  }
  settings_.energy = nullptr;
  return saved_;
}

int run_program(int argc, char** argv, const char* name, const char* usage, absl::Status (*work)()) {
  constexpr int cannot_run = 77;
  absl::Status status;
  try {
    status = deepum_program::read_flags_alone(argc, argv, usage);
    if (status.ok()) status = work();
  } catch (const std::exception& e) {
    status = absl::InternalError(e.what());
  }
  if (status.ok()) return 0;
  absl::FPrintF(stderr, "%s: %s\n", name, status.message());
  return absl::IsUnavailable(status) ? cannot_run : 1;
}

}  // namespace deepum::gpu_bench
