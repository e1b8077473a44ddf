// What the policy `auto` costs a launch. Whole steps are replayed under it, with the real engine on the simulated GPU,
// and every call of the policy is timed. Arguments that are no flags of Google Benchmark are workloads to replay as
// well: auto_policy_bench [--benchmark_...] [WORKLOAD.jsonl.gz]...
//
// A launch is charged with all the calls from the one that tells of it until the one that tells of the next: its issue,
// what finished, arrived, left, died or came alive meanwhile, every plan, and every question whether a launch may
// begin. It is allowed 1 us, and 20 ns for each block that it declares or that moved in that time. Time of the engine,
// the simulated GPU and the clock itself is not counted.
//
// `first` is a step that the policy sees for the first time, `steady` one that it has planned as a whole and follows,
// `whole_step` the making of such a plan, shared out among the launches of the step. It is made without the engine's
// state lock; `longest_call` is the longest call of the policy under that lock in all these steps, in processor time.
// The time that Google Benchmark prints is that of the median launch, and of `whole_step` that of each launch; look at
// the median of the repetitions. `within` is 1 where that launch is within its allowance.

#include "replay/program.hpp"
#include "replay/replay.hpp"
#include "replay/workload.hpp"
#include <deepum/policy/auto.hpp>
#include <deepum/policy/policy.hpp>

#include <benchmark/benchmark.h>
#include <time.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

namespace {

using namespace deepum;
using deepum::access;  // not the one of POSIX

constexpr double ns_per_launch = 1000;
constexpr double ns_per_block = 20;
constexpr double gbps = 50.8;           // of a link
constexpr std::uint32_t steps_run = 5;  // a step is planned in the third one at the latest

// A transformer's training step with as many launches and blocks as GPT-2 XL has at batch 4.
replay::workload synthetic_workload() {
  constexpr std::int64_t layers = 48;
  constexpr std::int64_t tensors = 12;  // of a layer; each has a weight, a gradient and two moments
  constexpr std::int64_t tensor_blocks = 10;
  constexpr std::int64_t activations = 32;  // of a layer, one for each of its launches
  constexpr std::int64_t activation_blocks = 16;
  constexpr std::int64_t weights = layers * tensors;
  const auto weight = [&](std::int64_t layer, std::int64_t i, std::int64_t copy) {
    return copy * weights + layer * tensors + i;
  };
  const auto activation = [&](std::int64_t layer, std::int64_t i) { return 4 * weights + layer * activations + i; };

  replay::workload_description d{.name = "synthetic", .tensors = {}, .launches = {}};
  for (std::int64_t id = 0; id != 4 * weights + layers * activations; ++id) {
    const bool persistent = id < 4 * weights;
    d.tensors.push_back(
        {.id = id,
         .size = block_size * static_cast<std::uint64_t>(persistent ? tensor_blocks : activation_blocks),
         .address = {},
         .persistent = persistent,
         .freed_after = {}});
  }
  const auto add = [&](const char* kernel, int us, std::vector<std::int64_t> in, std::vector<std::int64_t> out) {
    d.launches.push_back({.kernel = kernel,
                          .duration = std::chrono::microseconds{us},
                          .in = std::move(in),
                          .out = std::move(out),
                          .blocks = {}});
  };
  for (std::int64_t l = 0; l != layers; ++l) {
    for (std::int64_t i = 0; i != activations; ++i) {
      std::vector<std::int64_t> in{weight(l, i % tensors, 0)};
      if (l + i != 0) {
        in.push_back(i != 0 ? activation(l, i - 1) : activation(l - 1, activations - 1));
      }
      add("forward", 70, std::move(in), {activation(l, i)});
    }
  }
  for (std::int64_t l = layers; l-- != 0;) {
    for (std::int64_t i = activations; i-- != 0;) {
      add("backward_data", 70, {weight(l, i % tensors, 0), activation(l, i)}, {});
      add("backward_weight", 70, {activation(l, i), weight(l, i % tensors, 1)}, {weight(l, i % tensors, 1)});
    }
  }
  for (std::int64_t l = 0; l != layers; ++l) {
    for (std::int64_t i = 0; i != tensors; ++i) {
      for (std::int64_t part = 0; part != 6; ++part) {  // unfused, as PyTorch's AdamW launches it
        add("adamw", 20, {weight(l, i, 1), weight(l, i, part % 2 + 2), weight(l, i, 0)},
            {weight(l, i, part % 2 + 2), weight(l, i, 0)});
      }
    }
  }
  return replay::build_workload("auto_policy_bench", std::move(d));
}

// What one launch cost.
struct charge {
  double ns = 0;
  double blocks = 0;
};

struct charges {
  std::vector<charge> launches{};
  double longest_call_ns = 0;  // under the state lock
  double longest_plan_ns = 0;
  std::uint64_t longest_plan_at = 0;  // launches before
};

using clock_type = std::chrono::steady_clock;

double ns_since(clock_type::time_point begin) {
  return std::chrono::duration<double, std::nano>(clock_type::now() - begin).count();
}

// Processor time of this thread.
double thread_ns() {
  timespec now{};
  (void)::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e9 + static_cast<double>(now.tv_nsec);
}

// What an empty call would seem to take.
double clock_cost() {
  std::vector<double> all(1001);
  for (double& ns : all) {
    const auto begin = clock_type::now();
    ns = ns_since(begin);
  }
  std::nth_element(all.begin(), all.begin() + 500, all.end());
  return all[500];
}

// `auto`, with a clock at every call that the engine makes while it runs.
class timed_policy final : public policy {
 public:
  explicit timed_policy(charges& out) : out_(out) {}

  [[nodiscard]] std::string_view name() const override { return inner_.name(); }
  void on_stream(stream_id stream, std::optional<std::uint32_t> lookahead) override {
    inner_.on_stream(stream, lookahead);
  }
  void on_launch(const launch_record& record, const block_map& map) override {
    out_.launches.emplace_back();
    for (const block_access& a : record.accesses) {
      out_.launches.back().blocks += a.range.count;
    }
    timed([&] { inner_.on_launch(record, map); });
  }
  void on_finish(launch_id launch, stream_id stream, const block_map& map) override {
    timed([&] { inner_.on_finish(launch, stream, map); });
  }
  void on_fault(const fault_record& fault, const block_map& map) override {
    timed([&] { inner_.on_fault(fault, map); });
  }
  void on_migrated(block_range range, location to, const block_map& map) override {
    if (!out_.launches.empty()) {
      out_.launches.back().blocks += range.count;
    }
    timed([&] { inner_.on_migrated(range, to, map); });
  }
  void on_live(block_range range, const block_map& map) override {
    timed([&] { inner_.on_live(range, map); });
  }
  void on_dead(block_range range, launch_id last, const block_map& map) override {
    timed([&] { inner_.on_dead(range, last, map); });
  }
  void on_host_access(block_range range, access mode, const block_map& map) override {
    timed([&] { inner_.on_host_access(range, mode, map); });
  }
  [[nodiscard]] std::unique_ptr<long_work> begin_work(const block_map& map) override {
    std::unique_ptr<long_work> work;
    timed([&] { work = inner_.begin_work(map); });
    return work ? std::make_unique<timed_work>(*this, std::move(work)) : nullptr;
  }
  void end_work(std::unique_ptr<long_work> done, const block_map& map) override {
    timed([&] { inner_.end_work(std::move(static_cast<timed_work&>(*done).inner), map); });
  }
  void plan_next(const block_map& map, plan& out) override {
    timed([&] { inner_.plan_next(map, out); });
  }
  [[nodiscard]] bool holds_launches() const override { return inner_.holds_launches(); }
  [[nodiscard]] bool ready(launch_id launch, stream_id stream, const block_map& map) const override {
    bool ready = false;
    timed([&] { ready = inner_.ready(launch, stream, map); });
    return ready;
  }
  [[nodiscard]] policy_statistics statistics() const override { return inner_.statistics(); }

 private:
  struct timed_work final : long_work {
    timed_work(timed_policy& of, std::unique_ptr<long_work> begun) : owner(of), inner(std::move(begun)) {}
    void run() override {
      const double ns = owner.charged([&] { inner->run(); });
      if (ns > owner.out_.longest_plan_ns) {
        owner.out_.longest_plan_ns = ns;
        owner.out_.longest_plan_at = owner.out_.launches.size();
      }
    }

    timed_policy& owner;
    std::unique_ptr<long_work> inner;
  };

  template <class Call>
  double charged(Call&& call) const {
    const auto begin = clock_type::now();
    call();
    const double ns = std::max(0.0, ns_since(begin) - clock_cost_);
    if (!out_.launches.empty()) {
      out_.launches.back().ns += ns;
    }
    return ns;
  }
  // A call under the state lock. What other programs on the machine take of its time does not count.
  template <class Call>
  void timed(Call&& call) const {
    const double before = thread_ns();
    charged(std::forward<Call>(call));
    out_.longest_call_ns = std::max(out_.longest_call_ns, thread_ns() - before);
  }

  auto_policy inner_{};
  charges& out_;
  double clock_cost_ = clock_cost();
};

charges replay_steps(const std::shared_ptr<const replay::workload>& w, std::uint32_t steps) {
  replay::program what{.name = w->name, .workloads = {w}, .turns = {}};
  for (std::uint32_t step = 0; step != steps; ++step) {
    what.turns.push_back({.workload = 0, .stream = {}, .variant = w->variant_of(step), .regime = 0});
  }
  charges all;
  replay::replay_options options;
  options.budget = block_size * std::max(w->blocks / 2, w->largest_launch);
  options.costs.h2d_gbps = gbps;
  options.costs.d2h_gbps = gbps;
  (void)replay::replay(what, std::make_unique<timed_policy>(all), options);
  return all;
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// @param beyond_blocks  What the launch cost beyond what its blocks are allowed.
void report(benchmark::State& state, double ns, double blocks, double beyond_blocks) {
  state.SetIterationTime(ns * 1e-9);
  state.counters["blocks"] = blocks;
  state.counters["allowed_ns"] = ns_per_launch + ns_per_block * blocks;
  state.counters["beyond_blocks_ns"] = beyond_blocks;
  state.counters["within"] = beyond_blocks <= ns_per_launch ? 1 : 0;
}

void of_one_step(benchmark::State& state, const std::shared_ptr<const replay::workload>& w, std::uint32_t step) {
  for ([[maybe_unused]] auto _ : state) {
    const charges all = replay_steps(w, step + 1);
    const std::size_t from = step * w->launches.size();
    std::vector<double> ns;
    std::vector<double> blocks;
    std::vector<double> beyond;
    for (std::size_t i = from; i != from + w->launches.size(); ++i) {
      const charge& c = all.launches[i];
      ns.push_back(c.ns);
      blocks.push_back(c.blocks);
      beyond.push_back(c.ns - ns_per_block * c.blocks);
    }
    report(state, median(ns), median(blocks), median(beyond));
    state.counters["mean_ns"] = std::accumulate(ns.begin(), ns.end(), 0.0) / static_cast<double>(ns.size());
    state.counters["launches_over"] =
        static_cast<double>(
            std::count_if(beyond.begin(), beyond.end(), [](double each) { return each > ns_per_launch; })) /
        static_cast<double>(beyond.size());
  }
}

void whole_step(benchmark::State& state, const std::shared_ptr<const replay::workload>& w) {
  const auto launches = static_cast<double>(w->launches.size());
  for ([[maybe_unused]] auto _ : state) {
    const charges all = replay_steps(w, steps_run - 1);
    const double ns = all.longest_plan_ns / launches;
    const double blocks = std::accumulate(all.launches.begin(), all.launches.begin() + w->launches.size(), 0.0,
                                          [](double sum, const charge& c) { return sum + c.blocks; }) /
                          launches;
    report(state, ns, blocks, ns - ns_per_block * blocks);
    state.counters["planned_in_step"] = static_cast<double>(all.longest_plan_at) / launches;
  }
}

void longest_call(benchmark::State& state, const std::shared_ptr<const replay::workload>& w) {
  for ([[maybe_unused]] auto _ : state) {
    state.SetIterationTime(replay_steps(w, steps_run).longest_call_ns * 1e-9);
  }
}

}  // namespace

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  std::vector<std::shared_ptr<const replay::workload>> workloads{
      std::make_shared<const replay::workload>(synthetic_workload())};
  for (int i = 1; i < argc; ++i) {
    try {
      workloads.push_back(std::make_shared<const replay::workload>(replay::read_workload(argv[i])));
    } catch (const std::exception& e) {
      std::fprintf(stderr, "auto_policy_bench: %s\n", e.what());
      return 1;
    }
  }
  for (const auto& w : workloads) {
    for (benchmark::internal::Benchmark* each :
         {benchmark::RegisterBenchmark(("first/" + w->name).c_str(), of_one_step, w, 0),
          benchmark::RegisterBenchmark(("steady/" + w->name).c_str(), of_one_step, w, steps_run - 1),
          benchmark::RegisterBenchmark(("whole_step/" + w->name).c_str(), whole_step, w),
          benchmark::RegisterBenchmark(("longest_call/" + w->name).c_str(), longest_call, w)}) {
      each->UseManualTime()->Iterations(1)->Repetitions(3)->ReportAggregatesOnly();
    }
  }
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
}
