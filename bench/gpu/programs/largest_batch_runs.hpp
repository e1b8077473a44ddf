#pragma once

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "gpu/library/bench_system.hpp"
#include "gpu/library/gpt_layers.hpp"
#include "gpu/library/layer_executor.hpp"
#include "gpu/library/layered_step.hpp"
#include "gpu/library/layered_systems.hpp"
#include "gpu/opponents/by_hand.hpp"
#include "gpu/programs/gpt_step_runs.hpp"
#include "gpu/programs/largest_batch.hpp"
#include "nlohmann/json.hpp"
#include <deepum/error.hpp>
#include <deepum/units.hpp>

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace deepum::gpu_bench {

struct batch_result {
  std::string system{};
  std::uint64_t budget = 0;
  largest_batch found{};
};

/// The largest batch that a training step runs with, under each system: one step for each batch size.
template <class Memory, class T>
class largest_batch_runs {
 public:
  /// @param shape  Its batch counts for nothing; its layers stay as they are.
  /// @param host   Host memory that contents may need: paged memory holds to it, of the others it is worked out.
  /// @param cap    Managed memory at most, where the memory is managed; 0: no limit.
  largest_batch_runs(bench_settings settings, const gpt_shape& shape, std::vector<bytes> budgets, bytes host, bytes cap,
                     std::int64_t most)
      : settings_(std::move(settings)),
        shape_(shape),
        budgets_(std::move(budgets)),
        host_(host),
        cap_(cap),
        most_(most) {
    settings_.choices.host_limit = host;
  }

  /// @errors  `status::device_failure`; `status::invalid_argument` where two systems compute different things.
  [[nodiscard]] std::vector<batch_result> run() {
    std::vector<batch_result> out;
    for (const bytes budget : budgets_) {
      for (const std::string& system : settings_.systems) {
        if (system == "resident" || system == hand_system_name || (policy_of(system) && system != "once")) {
          out.push_back({system, budget.count, find_largest_batch(most_, [&](std::int64_t batch) {
                           settings_.say(absl::StrFormat("largest batch: %s, budget %d MiB, %d sequences", system,
                                                         budget.count >> 20, batch));
                           return try_one(system, budget, batch);
                         })});
        }
      }
    }
    return out;
  }

  [[nodiscard]] std::string table_of(const std::vector<batch_result>& all) const {
    std::string text =
        absl::StrFormat("\nlargest batch of %d layers of width %d, sequences of %d, %s memory, %d MiB of host memory\n",
                        shape_.layers, shape_.width, shape_.context, name_of_memory<Memory>, host_.count >> 20);
    for (const batch_result& r : all) {
      const auto failed = std::find_if(r.found.tried.begin(), r.found.tried.end(), [&](const batch_tried& t) {
        return t.batch == r.found.batch + 1 && !t.why_not.empty();
      });
      absl::StrAppendFormat(&text, "  budget %6d MiB  %-12s %6d  %s\n", r.budget >> 20, r.system, r.found.batch,
                            failed == r.found.tried.end() ? "" : "one more: " + failed->why_not);
    }
    return text;
  }
  [[nodiscard]] nlohmann::ordered_json json_of(const std::vector<batch_result>& all) const {
    nlohmann::ordered_json out = nlohmann::ordered_json::array();
    for (const batch_result& r : all) {
      nlohmann::ordered_json tried = nlohmann::ordered_json::array();
      for (const batch_tried& t : r.found.tried) {
        tried.push_back({{"batch", t.batch}, {"why_not", t.why_not}});
      }
      out.push_back({{"memory", name_of_memory<Memory>},
                     {"system", r.system},
                     {"budget_bytes", r.budget},
                     {"host_bytes", host_.count},
                     {"largest_batch", r.found.batch},
                     {"tried", tried}});
    }
    return out;
  }

 private:
  static constexpr bool managed = std::is_same_v<Memory, cuda::managed_memory>;

  std::string try_one(const std::string& system, bytes budget, std::int64_t batch) {
    gpt_shape shape = shape_;
    shape.batch = batch;
    const bool hand = system == hand_system_name;
    const bool resident = system == "resident";
    const keeps where = resident ? keeps::on_device : hand ? keeps::on_host : keeps::either_way;
    const bytes footprint = footprint_of(shape);
    const bytes needed = host_memory_for(where, footprint, budget);
    if (needed > host_) {
      return absl::StrFormat("%d MiB of host memory", needed.count >> 20);
    }
    if (resident && footprint > budget) {
      return absl::StrFormat("%d MiB of device memory", footprint.count >> 20);
    }
    if (managed && where == keeps::either_way && cap_.count != 0 &&
        library_model<Memory, T>::capacity_of(step_of(shape).tensors, {}) > cap_) {
      return absl::StrFormat("%d MiB of managed memory", footprint.count >> 20);
    }
    try {
      const layered_step plain = step_of(shape);
      if (resident) {
        resident_model<T> model(executor_, plain.tensors);
        one_step(model, shape, plain);
      } else if (hand) {
        hand_model<T> model(executor_, plain.tensors, budget);
        one_step(model, shape, plain);
      } else {
        library_model<Memory, T> model(executor_, settings_, system, plain.tensors, budget, true);
        one_step(model, shape, plain);
      }
    } catch (const error& e) {
      if (wrong_ || e.code() == status::device_failure) {
        throw;
      }
      return e.what();
    }
    return {};
  }
  template <class Model>
  void one_step(Model& model, const gpt_shape& shape, const layered_step& plain) {
    const step_numbers numbers{.number = 0, .seed = settings_.seed};
    model.use(set_up_of(shape), 0, afterwards::ends);
    (void)model.run(numbers);
    model.use(plain, 0, afterwards::repeats);
    const std::uint64_t sum = model.run(numbers).front();
    const auto [known, fresh] = sums_.try_emplace(shape.batch, sum);
    if (known->second != sum) {
      wrong_ = true;
      throw error(status::invalid_argument,
                  absl::StrFormat("a step with %d sequences gives %d, and %d under another system", shape.batch, sum,
                                  known->second));
    }
  }

  bench_settings settings_;
  gpt_shape shape_;
  std::vector<bytes> budgets_;
  bytes host_;
  bytes cap_;
  std::int64_t most_;
  layer_executor<T> executor_{1};
  std::map<std::int64_t, std::uint64_t> sums_{};  // by batch
  bool wrong_ = false;
};

}  // namespace deepum::gpu_bench
