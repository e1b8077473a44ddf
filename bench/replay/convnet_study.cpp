#include "replay/convnet_study.hpp"

#include "replay/replay.hpp"
#include <deepum/policy/make_policy.hpp>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace deepum::replay {
namespace {

constexpr std::size_t steps = 8;
constexpr bytes no_limit = 256_GiB;

// The first launch of each layer, in each pass, takes so much longer.
workload_description with_cost(workload_description step, nanoseconds cost) {
  const std::optional<described_layer> none;
  const std::optional<described_layer>* last = &none;
  for (described_launch& l : step.launches) {
    const bool same = l.layer && *last && l.layer->number == (*last)->number && l.layer->pass == (*last)->pass;
    l.duration += l.layer && !same ? cost : nanoseconds{};
    last = &l.layer;
  }
  return step;
}

bytes peak_of(const convnet_run& r) { return bytes{static_cast<std::uint64_t>(r.peak_mib) << 20}; }

}  // namespace

convnet_run run_convnet(const workload_description& step, const std::string& policy, offload chosen, bytes budget,
                        const sim::profile& card) {
  const auto w = std::make_shared<const workload>(build_workload(step.name, step));
  program what{.name = w->name, .workloads = {w}, .turns = std::vector<program_turn>(steps)};
  const double rate = card.pinned_both / 1e9;
  replay_options how{.budget = std::min(budget, block_size * what.end_block()),
                     .costs = {.h2d_gbps = rate, .d2h_gbps = rate, .fault_latency = card.fault_batch}};
  policy_options tuning;
  tuning.offload = chosen;
  const replay_result result = replay(what, make_policy(policy, tuning), how);
  convnet_run r;
  r.name = policy;
  constexpr std::size_t first = 2;
  for (std::size_t i = first; i != steps - 1; ++i) {
    const replayed_turn& t = result.turns[i];
    r.ms += static_cast<double>(t.time.count()) / 1e6 / (steps - 1 - first);
    r.peak_mib = std::max(r.peak_mib, static_cast<double>(t.peak.count >> 20));
  }
  r.in_mb = static_cast<double>(result.turns[steps - 2].used.in().all_bytes()) / 1e6;
  r.out_mb = static_cast<double>(result.turns[steps - 2].used.out().all_bytes()) / 1e6;
  return r;
}

convnet_study study_convnet(const convnet& net, std::uint32_t batch, const sim::profile& card, bool fastest,
                            nanoseconds layer_cost) {
  const choice_net described = describe(net, batch, card);
  const workload_description step = make_step(net, batch, card, described, choose_algorithms(described, fastest));
  const layer_choice choice = choose_layers(described, card.memory);
  const workload_description chosen_step = make_step(net, batch, card, described, choice.algorithms);
  convnet_study made;
  made.outcome = choice.outcome;
  // vDNNExt requests no more memory than vDNN: what would exceed that waits.
  const auto add = [&](const char* name, const workload_description& of, const char* policy, offload chosen) {
    const bytes limit = std::string(policy) == "vdnn_ext" ? peak_of(made.runs.back()) : no_limit;
    const nanoseconds cost = made.runs.empty() ? nanoseconds{} : layer_cost;  // none of base
    convnet_run r = run_convnet(with_cost(of, cost), policy, chosen, limit, card);
    r.name = name;
    r.auto_ms = run_convnet(of, "auto", offload::none, peak_of(r), card).ms;
    made.runs.push_back(std::move(r));
    return made.runs.back().ms;
  };
  made.base_ms = add("base", step, "vdnn", offload::none);
  add("vdnn conv", step, "vdnn", offload::conv);
  add("vdnn_ext conv", step, "vdnn_ext", offload::conv);
  const double all = add("vdnn all", step, "vdnn", offload::all);
  const double ext = add("vdnn_ext all", step, "vdnn_ext", offload::all);
  if (choice.trainable()) {
    add("vdnn choice", chosen_step, "vdnn", choice.offload);
    add("vdnn_ext choice", chosen_step, "vdnn_ext", choice.offload);
  }
  const auto four_fifths = static_cast<std::uint64_t>(0.8 * made.runs.front().peak_mib);
  made.auto_at_80_ms = run_convnet(step, "auto", offload::none, bytes{four_fifths << 20}, card).ms;
  made.removed_percent = all > made.base_ms ? 100 * (all - ext) / (all - made.base_ms) : 0;
  return made;
}

}  // namespace deepum::replay
