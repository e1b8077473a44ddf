// Serves texts of two models over HTTP. The models lie in one arena, which holds more than its share of the device.

#include "../train_gpt/backend_sim.hpp"
#include "absl/flags/flag.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"
#include "http_server.hpp"
#include "models.hpp"
#include "program/command_line.hpp"
#include "program/flags.hpp"
#include "scheduler.hpp"
#include "server_metrics.hpp"
#include "weight_file.hpp"
#include <deepum/metrics.hpp>
#include <deepum/policy/make_policy.hpp>
#include <deepum/sim/profile.hpp>

#include <sys/resource.h>
#include <sys/select.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <fstream>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#if defined(TRAIN_GPT_CUDA)
#include "../train_gpt/backend_cuda.hpp"
#endif

ABSL_FLAG(std::string, host, "127.0.0.1", "address to listen on");
ABSL_FLAG(std::int64_t, port, 8080, "port to listen on; 0: any that is free");
ABSL_FLAG(std::string, port_file, "", "file to write the port to when the server is ready");
ABSL_FLAG(std::string, open_file, "", "file to write the port to when it is open; texts may have to wait");
ABSL_FLAG(std::string, device, "sim", "where the models run: cuda, sim or sim:PROFILE (a GPU to simulate)");
ABSL_FLAG(std::string, memory, "auto", "paged, managed, or auto: paged where the device can");
ABSL_FLAG(
    std::string, weights, "",
    "files of the models' weights (safetensors), separated by commas, to be loaded instead of training the models; "
    "those that are not there are trained, and written there");
ABSL_FLAG(std::string, policy, "auto", "um (the driver alone), lru, deepum or auto; ideal has all on the device");
ABSL_FLAG(deepum_program::budget_flag, budget, {.percent = 60},
          "device memory, in bytes (64MiB, 2GiB) or as a share of the footprint of both models (60%)");
ABSL_FLAG(std::int64_t, layers, 8, "layers of each model");
ABSL_FLAG(std::int64_t, width, 256, "width of the residual path");
ABSL_FLAG(std::int64_t, heads, 8, "attention heads; they divide the width");
ABSL_FLAG(std::int64_t, context, 64, "bytes of text that a model sees at once");
ABSL_FLAG(std::int64_t, steps, 10, "steps that each model is trained for before the server begins");
ABSL_FLAG(std::uint64_t, seed, 1, "of the weights of the first model; the next one has the next");
ABSL_FLAG(std::string, corpus, SERVE_CORPUS, "the text to learn");
ABSL_FLAG(std::int64_t, queue, 32, "texts that may wait; more are refused with 503");
ABSL_FLAG(std::int64_t, active, 8, "texts that are written at once");
ABSL_FLAG(std::int64_t, max_tokens, 256, "bytes that a request may ask for");
ABSL_FLAG(std::int64_t, max_prompt, 4096, "bytes of a prompt");
ABSL_FLAG(std::int64_t, max_body, 16384, "bytes of the body of a request");
ABSL_FLAG(absl::Duration, timeout, absl::Seconds(30), "time that a text may take, from its request to its last byte");

namespace serve {
namespace {

constexpr std::size_t models = 2;

struct settings {
  run_options run{};
  http_options http{};
  std::string corpus{};
  std::vector<std::string> weights{};
  bool paged = true;
  std::size_t queue = 0;
  std::size_t active = 0;
};

absl::Status in_range(const char* flag, std::int64_t value, std::int64_t least, std::int64_t most) {
  if (value >= least && value <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrFormat("--%s has to be from %d to %d, not %d", flag, least, most, value));
}

absl::Status set_device(settings& s) {
  run_options& run = s.run;
  const std::string memory = absl::GetFlag(FLAGS_memory);
  if (memory != "auto" && memory != "paged" && memory != "managed") {
    return absl::InvalidArgumentError(absl::StrCat("--memory is auto, paged or managed, not '", memory, "'"));
  }
  s.paged = memory != "managed";
  const std::string flag = absl::GetFlag(FLAGS_device);
  if (flag == "cuda") {
#if defined(TRAIN_GPT_CUDA)
    std::string why_not;
    const auto finds = [&](train_gpt::memory_choice kind) {
      return train_gpt::find_cuda_gpu(why_not, kind).has_value();
    };
    s.paged = memory != "managed" && finds(train_gpt::memory_choice::paged);
    const bool managed = memory != "paged" && !s.paged && finds(train_gpt::memory_choice::managed);
    if (!s.paged && !managed) return absl::UnavailableError(absl::StrCat("--device cuda: ", why_not));
    run.cuda = true;
    return absl::OkStatus();
#else
    return absl::UnavailableError("this build has no CUDA device; use --device sim");
#endif
  }
  const std::vector<std::string> known = deepum::sim::profile_names();
  absl::string_view profile = flag;
  if (flag == "sim") {
    run.profile = known.front();
  } else if (absl::ConsumePrefix(&profile, "sim:") && std::find(known.begin(), known.end(), profile) != known.end()) {
    run.profile = std::string{profile};
  } else {
    return absl::InvalidArgumentError(absl::StrCat(
        "there is no device '", flag, "'; there are cuda, sim and sim: with ", absl::StrJoin(known, ", ")));
  }
  return absl::OkStatus();
}

// Calls `f` with the backend of the run as a template argument.
template <class F>
auto with_backend(const settings& s, F f) {
#if defined(TRAIN_GPT_CUDA)
  if (s.run.cuda && s.paged) return f.template operator()<train_gpt::cuda_backend<float, deepum::cuda::paged_memory>>();
  if (s.run.cuda) return f.template operator()<train_gpt::cuda_backend<float>>();
#endif
  return s.paged ? f.template operator()<train_gpt::paged_sim_backend>()
                 : f.template operator()<train_gpt::sim_backend>();
}

absl::StatusOr<settings> settings_from_flags() {
  settings s;
  run_options& run = s.run;
  run.shape = {.layers = absl::GetFlag(FLAGS_layers),
               .width = absl::GetFlag(FLAGS_width),
               .heads = absl::GetFlag(FLAGS_heads),
               .context = absl::GetFlag(FLAGS_context),
               .batch = 4};
  run.steps = absl::GetFlag(FLAGS_steps);
  run.learning_rate = 4e-3F;
  run.seed = absl::GetFlag(FLAGS_seed);
  const absl::Duration timeout = absl::GetFlag(FLAGS_timeout);
  for (const absl::Status& status :
       {in_range("port", absl::GetFlag(FLAGS_port), 0, 65535), in_range("layers", run.shape.layers, 1, 1000),
        in_range("width", run.shape.width, 1, 65536), in_range("heads", run.shape.heads, 1, run.shape.width),
        in_range("context", run.shape.context, 1, 65536), in_range("steps", run.steps, 0, 1'000'000),
        // Each waiting text has a thread and a connection, and the HTTP library can have 1024 files open.
        in_range("queue", absl::GetFlag(FLAGS_queue), 1, 512), in_range("active", absl::GetFlag(FLAGS_active), 1, 256),
        in_range("max_tokens", absl::GetFlag(FLAGS_max_tokens), 1, 1'000'000),
        in_range("max_prompt", absl::GetFlag(FLAGS_max_prompt), 1, 1 << 20),
        in_range("max_body", absl::GetFlag(FLAGS_max_body), 1, 16 << 20)}) {
    if (!status.ok()) return status;
  }
  if (run.shape.width % run.shape.heads != 0) {
    return absl::InvalidArgumentError(
        absl::StrFormat("--heads %d does not divide --width %d", run.shape.heads, run.shape.width));
  }
  if (timeout < absl::Milliseconds(1) || timeout > absl::Hours(24)) {
    return absl::InvalidArgumentError("--timeout has to be from 1ms to 24h");
  }
  constexpr auto names = deepum::policy_names();
  const std::vector<std::string> policies(names.begin(), names.end());
  run.policies = {absl::GetFlag(FLAGS_policy)};
  if (std::find(policies.begin(), policies.end(), run.policies.front()) == policies.end()) {
    return absl::InvalidArgumentError(
        absl::StrCat("there is no policy '", run.policies.front(), "'; there are ", absl::StrJoin(policies, ", ")));
  }
  if (absl::Status status = set_device(s); !status.ok()) return status;

  const bytes footprint =
      with_backend(s, [&]<class Backend>() { return model_set<Backend>::footprint(run.shape, models); });
  run.budget = run.policies.front() == "ideal" ? capacity_for(footprint) : absl::GetFlag(FLAGS_budget).of(footprint);
  if (run.budget < deepum::block_size) {
    return absl::InvalidArgumentError(
        absl::StrCat("--budget ", absl::UnparseFlag(absl::GetFlag(FLAGS_budget)), " is below one block of 2 MiB"));
  }
  absl::StatusOr<std::string> text = train_gpt::read_text(absl::GetFlag(FLAGS_corpus), run.shape.context + 1);
  if (!text.ok()) return text.status();
  s.corpus = *std::move(text);
  if (const std::string files = absl::GetFlag(FLAGS_weights); !files.empty()) s.weights = absl::StrSplit(files, ',');
  if (!s.weights.empty() && s.weights.size() != models) {
    return absl::InvalidArgumentError(
        absl::StrCat("--weights names ", s.weights.size(), " files, and there are ", models, " models"));
  }

  s.queue = static_cast<std::size_t>(absl::GetFlag(FLAGS_queue));
  s.active = static_cast<std::size_t>(absl::GetFlag(FLAGS_active));
  s.http = {.host = absl::GetFlag(FLAGS_host),
            .port = static_cast<int>(absl::GetFlag(FLAGS_port)),
            .limits = {.body = static_cast<std::size_t>(absl::GetFlag(FLAGS_max_body)),
                       .prompt = static_cast<std::size_t>(absl::GetFlag(FLAGS_max_prompt)),
                       .tokens = absl::GetFlag(FLAGS_max_tokens),
                       .models = models},
            .timeout = absl::ToChronoMilliseconds(timeout),
            // Some more than there can be texts, so that there is a thread to say that there are too many.
            .threads = s.queue + s.active + 16};
  return s;
}

// SIGINT and SIGTERM wait until somebody asks for them. Before the first thread begins, all of which inherit it.
sigset_t keep_signals_back() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  return signals;
}

// The HTTP library waits with select(), which knows no larger files.
void limit_open_files() {
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur > FD_SETSIZE) {
    files.rlim_cur = FD_SETSIZE;
    setrlimit(RLIMIT_NOFILE, &files);
  }
}

// Brings the weights of all models: from files, or by training.
// @param files  Stay open until the models have read them.
template <class Backend>
absl::Status load(model_set<Backend>& set, const settings& s, std::vector<weight_file>& files) {
  for (std::size_t i = 0; i < models; ++i) {
    const std::string path = s.weights.empty() ? std::string{} : s.weights[i];
    if (!path.empty()) {
      absl::StatusOr<weight_file> file = weight_file::open(path);
      if (file.ok()) {
        files.push_back(*std::move(file));
        if (absl::Status begun = set.load(i, files.back()); !begun.ok()) {
          return absl::Status(begun.code(), absl::StrCat(path, ": ", begun.message()));
        }
        continue;
      }
      if (!absl::IsNotFound(file.status())) return file.status();
    }
    run_options training = s.run;
    training.seed += i;
    absl::FPrintF(stderr, "serve: training model %d for %d steps\n", i, training.steps);
    const std::vector<float> weights = trained_weights<Backend>(training, s.corpus);
    set.load(i, weights);
    if (!path.empty()) {
      if (absl::Status saved = set.save(path, weights); !saved.ok()) return saved;
    }
  }
  set.await_weights();
  return absl::OkStatus();
}

template <class Backend>
absl::Status run(const settings& s, const sigset_t& signals) {
  const wall_clock::time_point began = wall_clock::now();
  server_metrics metrics{models};
  generation_queue queue{s.queue};
  std::optional<model_set<Backend>> set;
  http_server server{s.http, queue, metrics, [&] { return deepum::to_openmetrics(set->statistics()); },
                     [&](server_metrics::levels& now) {
                       now.device_seconds = std::chrono::duration<double>(set->now()).count();
                       now.simulated_clock = !s.run.cuda;
                     }};
  const std::optional<int> port = server.bind();
  if (!port) {
    return absl::UnavailableError(absl::StrCat("cannot listen on ", s.http.host, ", port ", s.http.port));
  }
  std::thread listener([&] {
    // Where it ends by itself nobody else would end the program.
    if (!server.run()) kill(getpid(), SIGTERM);
  });
  absl::FPrintF(stderr, "serve: http://%s:%d answers 503 until the models are loaded\n", s.http.host, *port);
  if (const std::string path = absl::GetFlag(FLAGS_open_file); !path.empty()) std::ofstream{path} << *port << '\n';

  std::vector<weight_file> files;
  absl::Status loaded;
  try {
    set.emplace(s.run, models);
    loaded = load(*set, s, files);
  } catch (const std::exception& e) {
    loaded = absl::UnavailableError(e.what());
  }
  if (!loaded.ok()) {
    server.drain();
    listener.join();
    return loaded;
  }
  files.clear();
  scheduler<model_set<Backend>> texts{*set, queue, s.active, metrics};
  std::thread worker([&] { texts.run(); });
  server.begin_texts();
  const double mib = 1024.0 * 1024.0;
  absl::FPrintF(stderr, "serve: %d models of %.1f MiB together, with %.1f MiB of %s, after %.1f s, on http://%s:%d\n",
                models, static_cast<double>(model_set<Backend>::footprint(s.run.shape, models).count) / mib,
                static_cast<double>(Backend::device_budget(s.run.policies.front(), s.run.budget).count) / mib,
                absl::GetFlag(FLAGS_device), std::chrono::duration<double>(wall_clock::now() - began).count(),
                s.http.host, *port);
  if (const std::string path = absl::GetFlag(FLAGS_port_file); !path.empty()) std::ofstream{path} << *port << '\n';

  int signal = 0;
  sigwait(&signals, &signal);
  absl::FPrintF(stderr, "serve: answers what it has taken, then ends\n");
  server.drain();
  listener.join();
  worker.join();
  return absl::OkStatus();
}

}  // namespace
}  // namespace serve

int main(int argc, char** argv) {
  try {
    const sigset_t signals = serve::keep_signals_back();
    serve::limit_open_files();
    absl::Status status = deepum_program::read_flags_alone(
        argc, argv, "serves texts of two models over HTTP, with less device memory than the two need");
    if (status.ok()) {
      const absl::StatusOr<serve::settings> s = serve::settings_from_flags();
      status = s.ok() ? serve::with_backend(*s, [&]<class Backend>() { return serve::run<Backend>(*s, signals); })
                      : s.status();
    }
    if (status.ok()) return 0;
    absl::FPrintF(stderr, "serve: %s\n", status.message());
  } catch (const std::exception& e) {
    absl::FPrintF(stderr, "serve: %s\n", e.what());
  }
  return 1;
}
