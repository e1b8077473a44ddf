#include "scenario.hpp"

#include "derived_workload.hpp"
#include "shuffled_workload.hpp"
#include <deepum/error.hpp>

#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

namespace deepum::replay {
namespace {

class scenario {
 public:
  scenario(std::string_view name, workload_pointer base, const scenario_options& options)
      : options_(options),
        random_(options.seed),
        base_(*base) {
    result_.name = base->name + ": " + std::string(name);
    (void)add(std::move(base));
  }

  [[nodiscard]] program take() { return std::move(result_); }

  void steady() { turns(3 * options_.steps, 0, 0); }

  void batch() {
    const std::uint32_t half = add(part_of_batch(base_, 0.5));
    const std::uint32_t three_quarters = add(part_of_batch(base_, 0.75));
    turns(options_.steps, 0, 0);
    turns(options_.steps, half, 1);
    turns(options_.steps, 0, 0);
    turns(options_.steps, three_quarters, 2);
  }

  void validation() {
    const std::uint32_t forward = add(forward_pass(base_));
    for (std::size_t step = 1; step <= 3 * options_.steps; ++step) {
      turns(1, 0, 0);
      if (step % options_.validation == 0) {
        turns(1, forward, 1);
      }
    }
  }

  void two_models() {
    const std::uint32_t other = add(half_model(base_));
    const auto turn = [&](bool second) {
      turns(1, second ? other : 0, second ? 1 : 0, stream_id{static_cast<std::uint16_t>(second ? 1 : 0)});
    };
    for (const std::string_view order : {std::string_view("001011"), std::string_view("1001")}) {
      for (std::size_t done = 0; done < 2 * options_.steps; done += order.size()) {
        for (const char model : order) {
          turn(model == '1');
        }
      }
    }
    for (std::size_t done = 0; done != 2 * options_.steps; ++done) {
      turn(below(random_, 2) == 1);
    }
  }

  void growth() {
    const std::uint32_t grown = add(with_one_more_layer(base_));
    turns(options_.steps, 0, 0);
    turns(2 * options_.steps, grown, 1);
  }

  void reuse() {
    const std::uint32_t once = add(rearranged(base_, true, random_));
    const std::uint32_t again = add(rearranged(base_, false, random_));
    turns(options_.steps, 0, 0);
    turns(options_.steps, once, 1);
    turns(options_.steps, again, 2);
  }

  void random() {
    turns(options_.steps, 0, 0);
    for (std::size_t i = 0; i != options_.steps; ++i) {
      turns(1, add(in_random_order(base_, "/random " + std::to_string(i), random_)), 1);
    }
    turns(options_.steps, 0, 0);
  }

  void lookups() {
    if (base_.variants > 1) {
      steady();
      return;
    }
    const std::uint32_t derived = add(with_random_lookups(base_, 2 * options_.steps, random_));
    turns(options_.steps, 0, 0);
    turns(2 * options_.steps, derived, 1);
  }

 private:
  std::uint32_t add(workload_pointer w) {
    result_.workloads.push_back(std::move(w));
    steps_.push_back(0);
    return static_cast<std::uint32_t>(result_.workloads.size() - 1);
  }

  void turns(std::size_t n, std::uint32_t workload, std::uint32_t regime, stream_id stream = {}) {
    for (std::size_t i = 0; i != n; ++i) {
      result_.turns.push_back({.workload = workload,
                               .stream = stream,
                               .variant = result_.workloads[workload]->variant_of(steps_[workload]++),
                               .regime = regime});
    }
  }

  scenario_options options_;
  random_bits random_;
  const workload& base_;              // the first one of the program
  std::vector<std::size_t> steps_{};  // by workload, how many it has done
  program result_{};
};

struct named_scenario {
  std::string_view name;
  void (scenario::*make)();
};
constexpr std::array<named_scenario, 8> scenarios{{{"steady", &scenario::steady},
                                                   {"batch", &scenario::batch},
                                                   {"validation", &scenario::validation},
                                                   {"two_models", &scenario::two_models},
                                                   {"growth", &scenario::growth},
                                                   {"reuse", &scenario::reuse},
                                                   {"random", &scenario::random},
                                                   {"lookups", &scenario::lookups}}};
constexpr auto names = [] {
  std::array<std::string_view, scenarios.size()> all;
  for (std::size_t i = 0; i != all.size(); ++i) {
    all[i] = scenarios[i].name;
  }
  return all;
}();

}  // namespace

std::span<const std::string_view> scenario_names() { return names; }

program make_scenario(std::string_view name, std::shared_ptr<const workload> base, const scenario_options& options) {
  expects(base != nullptr, "a scenario needs a workload");
  expects(options.steps > 0 && options.validation > 0, "a scenario needs at least one step of each regime");
  const auto found =
      std::find_if(scenarios.begin(), scenarios.end(), [&](const named_scenario& s) { return s.name == name; });
  if (found == scenarios.end()) {
    std::string all;
    for (const std::string_view n : names) {
      all += (all.empty() ? "" : ", ") + std::string(n);
    }
    throw error(status::invalid_argument, "there is no scenario '" + std::string(name) + "'; there are " + all);
  }
  scenario s(name, std::move(base), options);
  (s.*found->make)();
  return s.take();
}

}  // namespace deepum::replay
