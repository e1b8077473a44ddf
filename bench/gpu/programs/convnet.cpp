// Training steps of convolutional nets by cuDNN and cuBLAS: vDNN and vDNNExt, which are told the layers, and auto,
// which is not, at equal peaks of device memory.

#include "absl/flags/flag.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "gpu/library/common_flags.hpp"
#include "gpu/library/flag_values.hpp"
#include "gpu/library/layered_report.hpp"
#include "gpu/library/paged_flags.hpp"
#include "gpu/library/session.hpp"
#include "gpu/library/sizes.hpp"
#include "gpu/library/step_flags.hpp"
#include "gpu/library/system_flags.hpp"
#include "gpu/programs/convnet_runs.hpp"
#include "nlohmann/json.hpp"
#include "replay/convnet_nets.hpp"
#include <deepum/cuda/paged_memory.hpp>

#include <cstddef>
#include <cstdint>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

ABSL_FLAG(std::string, nets, "alexnet,vgg16,forks", "nets, with commas; or all");
ABSL_FLAG(std::string, batches, "512,64,64", "images of a step, for each net");
ABSL_FLAG(std::string, products, "fma,tf32",
          "how floats are multiplied, with commas: fma (single precision), tf32 (tensor cores); or all");
ABSL_FLAG(double, choice_percent, 60, "budget that the dynamic choice gets, in percent of the peak with no offload");
ABSL_FLAG(std::int64_t, chunk_mib, 8, "chunks of paged memory, a power of two");
ABSL_FLAG(std::string, workloads, "",
          "where to write the steps as workloads for deepum-replay: a name to which the step's and .jsonl are added");
ABSL_FLAG(std::int64_t, link_mib, 768, "memory that moves to measure the links");

namespace deepum::gpu_bench {
namespace {

absl::Status run() {
  absl::StatusOr<bench_settings> read = settings_from_flags();
  if (!read.ok()) return read.status();
  bench_settings settings = *std::move(read);
  const std::int64_t chunk = absl::GetFlag(FLAGS_chunk_mib);
  const std::int64_t link_mib = absl::GetFlag(FLAGS_link_mib);
  const double percent = absl::GetFlag(FLAGS_choice_percent);
  if (absl::Status status = first_error(
          {systems_into(settings, {"resident", "vdnn", "vdnn_ext", "auto", "lru", "um"}), steps_into(settings),
           paged_into(settings), in_range("chunk-mib", chunk, 2, 32), in_range("link-mib", link_mib, 128, 2048)});
      !status.ok()) {
    return status;
  }
  if (!(percent >= 10 && percent <= 100)) {
    return absl::InvalidArgumentError(absl::StrCat("--choice-percent has to be from 10 to 100, not ", percent));
  }
  settings.choices.chunk = of_mib(chunk);
  const std::vector<std::string> known(replay::convnet_names().begin(), replay::convnet_names().end());
  const absl::StatusOr<std::vector<std::string>> nets = chosen("nets", absl::GetFlag(FLAGS_nets), known);
  if (!nets.ok()) return nets.status();
  const absl::StatusOr<std::vector<std::string>> products =
      chosen("products", absl::GetFlag(FLAGS_products), {"fma", "tf32"});
  if (!products.ok()) return products.status();
  const absl::StatusOr<std::vector<std::uint32_t>> batches =
      numbers_from<std::uint32_t>("batches", absl::GetFlag(FLAGS_batches), 1, 65536);
  if (!batches.ok()) return batches.status();
  if (batches->size() != nets->size()) {
    return absl::InvalidArgumentError("--batches has to have a number for each of --nets");
  }
  std::function<void(const std::string&, const std::string&)> take_workload;
  absl::Status written;
  if (const std::string to = absl::GetFlag(FLAGS_workloads); !to.empty()) {
    take_workload = [&written, to](const std::string& name, const std::string& text) {
      const std::string path = absl::StrCat(to, name, ".jsonl");
      std::ofstream file(path);
      file << text;
      file.close();
      if (!file) written = absl::UnknownError(absl::StrCat("cannot write all of '", path, "'"));
    };
  }

  const absl::StatusOr<std::unique_ptr<session>> here = session::begin(settings, {});
  if (!here.ok()) return here.status();
  (*here)->measure_links(false, of_mib(link_mib));
  nlohmann::ordered_json facts = nlohmann::ordered_json::array();
  for (std::size_t i = 0; i < nets->size(); ++i) {
    for (const std::string& how : *products) {
      convnet_runs<cuda::paged_memory> runs(settings,
                                            {.net = replay::make_convnet((*nets)[i]),
                                             .batch = (*batches)[i],
                                             .products = how == "fma" ? float_products::fma : float_products::tf32,
                                             .choice_percent = percent},
                                            take_workload);
      const program_report report = runs.run();
      (*here)->add(report, layered_table_of(report), "paged");
      facts.push_back(runs.facts());
      (*here)->put("nets", facts, "");
    }
  }
  if (absl::Status status = (*here)->end(); !status.ok()) return status;
  return written;
}

}  // namespace
}  // namespace deepum::gpu_bench

int main(int argc, char** argv) {
  return deepum::gpu_bench::run_program(
      argc, argv, "deepum-bench-convnet",
      "measures training steps of convolutional nets under vDNN, vDNNExt and auto at equal peaks of device memory",
      deepum::gpu_bench::run);
}
