// Convolutional nets under vdnn, vdnn_ext and auto: writes a training step as a workload, or compares the policies.

#include "absl/flags/flag.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "program/command_line.hpp"
#include "replay/convnet.hpp"
#include "replay/convnet_study.hpp"
#include <deepum/planning/algorithm_choice.hpp>
#include <deepum/sim/profile.hpp>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <fstream>
#include <string>
#include <vector>

ABSL_FLAG(std::string, net, "alexnet", "alexnet, vgg16 or forks");
ABSL_FLAG(std::uint32_t, batch, 128, "images of a step");
ABSL_FLAG(std::string, card, "gtx970_pcie3",
          "a profile of a simulated GPU, by whose rates layers and copies take their time");
ABSL_FLAG(bool, fastest, true, "the fastest algorithms of convolutions; off: those that need no workspace");
ABSL_FLAG(std::int64_t, layer_cost_us, 0,
          "what vdnn and vdnn_ext take at each layer in each pass beside its launches, in microseconds");
ABSL_FLAG(std::string, write, "", "file for the step as a workload; nothing is compared then");

namespace deepum::replay {
namespace {

absl::Status run() {
  const convnet net = make_convnet(absl::GetFlag(FLAGS_net));
  const sim::profile& card = sim::find_profile(absl::GetFlag(FLAGS_card));
  const std::uint32_t batch = absl::GetFlag(FLAGS_batch);
  if (batch < 1 || batch > 65536) {
    return absl::InvalidArgumentError(absl::StrCat("--batch has to be from 1 to 65536, not ", batch));
  }
  if (const std::string to = absl::GetFlag(FLAGS_write); !to.empty()) {
    const choice_net described = describe(net, batch, card);
    std::ofstream file(to);
    file << to_text(make_step(net, batch, card, described, choose_algorithms(described, absl::GetFlag(FLAGS_fastest))),
                    "layer times by roofline");
    file.close();
    return file ? absl::OkStatus() : absl::UnknownError(absl::StrCat("cannot write all of '", to, "'"));
  }
  const std::int64_t cost = absl::GetFlag(FLAGS_layer_cost_us);
  if (cost < 0 || cost > 1'000'000) {
    return absl::InvalidArgumentError(absl::StrCat("--layer-cost-us has to be from 0 to 1000000, not ", cost));
  }
  const convnet_study study =
      study_convnet(net, batch, card, absl::GetFlag(FLAGS_fastest), std::chrono::microseconds{cost});
  absl::PrintF(
      "%s, batch %d, %s algorithms, %s\n\n"
      "                      step  of base       in      out     peak  auto there\n"
      "                      [ms]      [%%]     [MB]     [MB]    [MiB]        [ms]\n",
      net.name, batch, absl::GetFlag(FLAGS_fastest) ? "fastest" : "memory-optimal", card.name);
  for (const convnet_run& r : study.runs) {
    absl::PrintF("%-18s %7.2f  %7.1f %8.1f %8.1f %8.0f %11s\n", r.name, r.ms, 100 * study.base_ms / r.ms, r.in_mb,
                 r.out_mb, r.peak_mib, r.auto_ms ? absl::StrFormat("%.2f", *r.auto_ms) : "");
  }
  absl::PrintF("auto at 80 %% of the peak of base: %.2f ms\n", study.auto_at_80_ms);
  absl::PrintF("\nvdnn_ext removes %.0f %% of what vdnn all loses. The choice: %s.\n", study.removed_percent,
               std::string(to_string(study.outcome)));
  return absl::OkStatus();
}

}  // namespace
}  // namespace deepum::replay

int main(int argc, char** argv) {
  try {
    const std::vector<std::string> arguments = deepum_program::read_flags(
        argc, argv, "compares policies on a training step of a convolutional net: deepum-convnet [--FLAG=VALUE]...");
    const absl::Status status =
        arguments.empty() ? deepum::replay::run() : absl::InvalidArgumentError("give options that begin with --");
    if (status.ok()) return 0;
    absl::FPrintF(stderr, "deepum-convnet: %s\n", status.message());
  } catch (const std::exception& e) {
    absl::FPrintF(stderr, "deepum-convnet: %s\n", e.what());
  }
  return 1;
}
