// What the layered programs of the GPU benchmark work out before they measure: steps, prefetching by hand, the least
// traffic, the largest batch.

#include "gpu/library/gpt_layers.hpp"
#include "gpu/library/infer_layers.hpp"
#include "gpu/library/layered_report.hpp"
#include "gpu/library/layered_step.hpp"
#include "gpu/library/least_traffic.hpp"
#include "gpu/library/memory_watch.hpp"
#include "gpu/opponents/pipeline_planner.hpp"
#include "gpu/programs/churn_shape.hpp"
#include "gpu/programs/largest_batch.hpp"
#include "gpu_bench/unit_programs.hpp"
#include <deepum/error.hpp>
#include <deepum/units.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <queue>
#include <random>
#include <set>
#include <sstream>
#include <string>
#include <tuple>
#include <vector>

namespace layered_schedules {

using namespace deepum::gpu_bench;
using namespace deepum::literals;
using namespace deepum_test;
using deepum::access;
using deepum::bytes;

constexpr gpt_shape small{.layers = 3, .width = 64, .context = 16, .batch = 2, .element = 2};

// Whether each launch reads only what has been written as a whole. @returns  What is there at the end.
std::vector<bool> written_in_order(const layered_step& s, std::vector<bool> there) {
  there.resize(s.tensors.size());
  for (const layer_launch& l : s.launches) {
    CAPTURE(static_cast<int>(l.what));
    for (const tensor_use& u : uses_of(l)) {
      CAPTURE(u.tensor);
      REQUIRE(u.elements <= s.tensors[u.tensor].elements);
      if (u.mode != access::overwrite) REQUIRE(there[u.tensor]);
    }
    for (const tensor_use& u : uses_of(l)) {
      if (u.mode == access::overwrite) there[u.tensor] = u.elements == s.tensors[u.tensor].elements;
    }
  }
  return there;
}

TEST_CASE("a training step reads only what it has written or has from the step before, and uses all tensors") {
  for (const bool at_end : {false, true}) {
    for (const summed sums : {summed::result_alone, summed::everything}) {
      gpt_shape shape = small;
      shape.update_at_end = at_end;
      const layered_step set_up = set_up_of(shape);
      const layered_step step = step_of(shape, sums);
      REQUIRE(set_up.tensors.size() == step.tensors.size());
      const std::vector<bool> state = written_in_order(set_up, {});
      const std::vector<bool> behind = written_in_order(step, state);
      CHECK(std::count(behind.begin(), behind.end(), true) == static_cast<std::ptrdiff_t>(step.tensors.size()));
      CHECK(sums_in(step) == (sums == summed::result_alone ? 1U : 1U + 3U * (8U + 4U * 4U)));
    }
  }
}

TEST_CASE("a step goes forward through the layers, backward in reverse, and updates each layer or all at the end") {
  for (const bool at_end : {false, true}) {
    gpt_shape shape = small;
    shape.update_at_end = at_end;
    const layered_step step = step_of(shape);
    std::string order;
    for (const layer_launch& l : step.launches) {
      if (l.what == work::product) order += 'f';
      if (l.what == work::weight_gradient) order += 'b';
      if (l.what == work::adamw) order += 'u';
    }
    CHECK(order == (at_end ? "ffffffffffffbbbbbbbbbbbbuuuuuuuuuuuu" : "ffffffffffffbbbbuuuubbbbuuuubbbbuuuu"));
    // The weights of the forward pass come back in the opposite order of layers.
    std::vector<std::uint32_t> forward;
    std::vector<std::uint32_t> backward;
    for (const layer_launch& l : step.launches) {
      if (l.what == work::product) forward.push_back(l.tensors[2]);
      if (l.what == work::input_gradient) backward.push_back(l.tensors[2]);
    }
    std::reverse(backward.begin(), backward.end());
    CHECK(forward == backward);
  }
}

TEST_CASE("the backward pass reads all that the forward pass keeps") {
  const layered_step step = step_of(small);
  std::map<std::uint32_t, int> written;  // by tensor: how often
  std::set<std::uint32_t> read;          // behind the loss
  bool backward = false;
  for (const layer_launch& l : step.launches) {
    backward = backward || l.what == work::loss;
    for (const tensor_use& u : uses_of(l)) {
      if (!backward && u.mode == access::overwrite) ++written[u.tensor];
      if (backward && u.mode == access::read) read.insert(u.tensor);
    }
  }
  CHECK(written.size() == 8 * 3 + 2);
  for (const auto& [t, times] : written) {
    CAPTURE(t);
    CHECK(read.contains(t) == (times == 1));  // all but the one that all layers share
  }
}

TEST_CASE("layers follow from the footprint") {
  gpt_shape shape{.width = 1024, .context = 512, .batch = 4};
  for (const bytes wanted : {400_MiB, 1_GiB, 24_GiB}) {
    shape.layers = layers_for(shape, wanted);
    CHECK(footprint_of(shape) <= wanted);
    ++shape.layers;
    CHECK(footprint_of(shape) > wanted);
  }
  CHECK(layers_for(shape, 1_MiB) == 1);
  // 18 bytes for each weight, of which gradients belong to one layer, and 16 activations.
  shape.layers = 2;
  const bytes two = footprint_of(shape);
  shape.layers = 3;
  CHECK(footprint_of(shape) - two == 12_MiB * 14 + 2_MiB * 2 * 16);
  infer_shape calls{.models = 2, .width = 1024};
  calls.layers = layers_for(calls, 1_GiB);
  CHECK(calls.layers == 43);
}

TEST_CASE("what is said to be of no value is overwritten before anybody reads it, and nobody uses it meanwhile") {
  for (const std::size_t least : {1U, 12U}) {
    for (const bool at_end : {false, true}) {
      gpt_shape shape = small;
      shape.update_at_end = at_end;
      const layered_step step = step_of(shape);
      const unvalued none = unvalued_in(step, least);
      std::set<std::uint32_t> forgotten;
      std::size_t words = 0;
      for (int round = 0; round < 2; ++round) {
        for (std::size_t i = 0; i < step.launches.size(); ++i) {
          std::set<std::uint32_t> revived;
          for (const std::uint32_t t : none.before[i]) {
            CHECK((forgotten.erase(t) == 1 || round == 0));
            revived.insert(t);
          }
          for (const tensor_use& u : uses_of(step.launches[i])) {
            CHECK(!forgotten.contains(u.tensor));
            if (revived.contains(u.tensor)) CHECK(u.mode == access::overwrite);
          }
          for (const std::uint32_t t : none.after[i]) {
            CHECK(forgotten.insert(t).second);
            ++words;
          }
        }
      }
      // All activations of all layers, at least.
      CHECK(words >= 2 * 8 * 3);
    }
  }
}

TEST_CASE("a call for inference writes no weight and goes through those of its model in order") {
  const infer_shape shape{.models = 2, .layers = 3, .width = 64, .most_tokens = 32, .element = 2};
  const layered_step set_up = set_up_of(shape);
  const std::vector<bool> weights = written_in_order(set_up, {});
  std::vector<std::vector<std::uint32_t>> read(2);
  for (std::int64_t model = 0; model < 2; ++model) {
    for (const std::int64_t tokens : {1, 32}) {
      const layered_step call = call_of(shape, model, tokens);
      for (const layer_launch& l : call.launches) {
        for (const tensor_use& u : uses_of(l)) {
          if (weights[u.tensor]) CHECK(u.mode == access::read);
        }
        if (l.what == work::product && tokens == 1) read[static_cast<std::size_t>(model)].push_back(l.tensors[2]);
      }
      if (tokens == 32) (void)written_in_order(call, weights);
    }
  }
  CHECK(read[0] == std::vector<std::uint32_t>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11});
  CHECK(read[1].front() == 12);
  CHECK(read[1].back() == 23);
  const std::vector<std::int64_t> lot = calls_by_lot(2, 100, 7);
  CHECK(lot == calls_by_lot(2, 100, 7));
  CHECK(lot != calls_by_lot(2, 100, 8));
  CHECK(std::count(lot.begin(), lot.end(), 1) > 30);
  CHECK(std::count(lot.begin(), lot.end(), 0) > 30);
  const layered_step all = joined({call_of(shape, 0, 1), call_of(shape, 1, 1)}, {1, 0});
  CHECK(all.launches.size() == 2 * call_of(shape, 0, 1).launches.size());
  CHECK(all.launches[2].tensors[2] == 12);
}

// Follows a planner as a device would: contents are numbers, and every launch finds the newest.
// @returns  How many launches found all that they need before the last launch had begun.
std::size_t follow(const unit_program& p, std::uint64_t budget, std::uint64_t window, afterwards then) {
  pipeline_planner planner(p, budget, window, then);
  std::vector<std::uint64_t> host(p.size.size(), 0);
  std::vector<std::uint64_t> device(p.size.size(), 0);
  std::vector<std::uint64_t> truth(p.size.size(), 0);
  std::map<std::uint32_t, std::uint64_t> at;  // resident units
  std::uint64_t clock = 0;
  std::uint64_t used = 0;
  std::size_t early = 0;
  const std::size_t launches = (then == afterwards::repeats ? 4 : 1) * p.launches.size();
  for (std::size_t i = 0; i < launches; ++i) {
    const std::vector<unit_use>& launch = p.launches[i % p.launches.size()];
    early += std::all_of(launch.begin(), launch.end(), [&](const unit_use& u) { return at.contains(u.unit); }) ? 1 : 0;
    for (const move& m : planner.next()) {
      CAPTURE(m.unit);
      if (m.inward) {
        REQUIRE(!at.contains(m.unit));
        device[m.unit] = m.copies ? host[m.unit] : ~std::uint64_t{0};
        at[m.unit] = m.at;
        used += p.size[m.unit];
        REQUIRE(used <= budget);
        for (const auto& [other, where] : at) {
          if (other != m.unit) REQUIRE((where + p.size[other] <= m.at || m.at + p.size[m.unit] <= where));
        }
        REQUIRE(m.at + p.size[m.unit] <= budget);
      } else {
        REQUIRE(at.erase(m.unit) == 1);
        used -= p.size[m.unit];
        if (m.copies) {
          REQUIRE(host[m.unit] != device[m.unit]);  // what is clean needs no copy
          host[m.unit] = device[m.unit];
        }
      }
    }
    for (const unit_use& u : launch) {
      REQUIRE(at.contains(u.unit));
      REQUIRE(planner.resident(u.unit));
      REQUIRE(planner.place_of(u.unit) == at[u.unit]);
      if (u.mode != access::overwrite) REQUIRE(device[u.unit] == truth[u.unit]);
      if (u.written) truth[u.unit] = device[u.unit] = ++clock;
    }
  }
  if (then == afterwards::ends) {
    for (std::uint32_t u = 0; u < p.size.size(); ++u)
      CHECK((at.contains(u) && planner.dirty(u) ? device[u] : host[u]) == truth[u]);
  }
  return early;
}

std::uint64_t largest_launch(const unit_program& p) {
  std::uint64_t most = 0;
  for (const auto& launch : p.launches) {
    std::uint64_t size = 0;
    for (const unit_use& u : launch)
      size += p.size[u.unit];
    most = std::max(most, size);
  }
  return most;
}

TEST_CASE("prefetching by hand gives every launch the newest contents, stays in its budget, and fits whatever fits") {
  for (std::uint64_t seed = 1; seed <= 600; ++seed) {
    CAPTURE(seed);
    const unit_program p = random_units(seed, false);
    const std::uint64_t least = largest_launch(p);
    const std::uint64_t budget = std::max(least, used_bytes(p) * (seed % 100) / 100);
    for (const afterwards then : {afterwards::repeats, afterwards::ends})
      (void)follow(p, budget, budget * (1 + seed % 4) / 4, then);
  }
  const unit_program p{.size = {4, 4}, .launches = {{reads(0), reads(1)}}};
  CHECK_THROWS_AS(pipeline_planner(p, 7, 7, afterwards::repeats), deepum::error);
}

TEST_CASE("the window says how far ahead of its launch a unit comes, and what is needed last makes room") {
  // A ring of six, of which four fit.
  unit_program p{.size = {1, 1, 1, 1, 1, 1}};
  for (std::uint32_t u = 0; u < 6; ++u)
    p.launches.push_back({reads(u)});
  CHECK(follow(p, 4, 1, afterwards::repeats) < follow(p, 4, 2, afterwards::repeats));
  CHECK(follow(p, 4, 2, afterwards::repeats) == 4 * 6 - 1);  // all but the very first one
  const auto comes = [&](std::uint64_t budget, std::uint64_t window) {
    pipeline_planner planner(p, budget, window, afterwards::repeats);
    std::size_t n = 0;
    for (std::size_t i = 0; i < 60; ++i) {
      for (const move& m : planner.next()) {
        CHECK((!m.inward || m.copies));
        CHECK((m.inward || !m.copies));
        n += m.inward ? 1 : 0;
      }
    }
    return n;
  };
  CHECK(comes(6, 6) == 6);
  // Belady keeps three of four from round to round while the fourth streams; prefetching takes one more slot.
  CHECK(comes(4, 1) <= 6 + 54 * 3 / 5 + 1);
  CHECK(comes(4, 2) <= 6 + 54 * 4 / 5 + 1);
}

TEST_CASE("what is overwritten next leaves without a copy, and comes without one") {
  unit_program p{.size = {4, 4, 4}};
  p.launches = {{overwrites(0)}, {reads(1)}, {updates(2)}};
  pipeline_planner planner(p, 8, 4, afterwards::repeats);
  for (std::size_t i = 0; i < 9; ++i) {
    for (const move& m : planner.next()) {
      CAPTURE(m.unit);
      CHECK(m.copies == (m.inward ? m.unit != 0 : m.unit == 2));
    }
  }
}

// The fewest bytes out of some steps, by trying everything: which units are there behind each launch, and which of them
// the host has a current copy of.
std::uint64_t least_out_by_trying(const unit_program& p, std::uint64_t budget, std::size_t steps) {
  const auto n = static_cast<std::uint32_t>(p.size.size());
  using state = std::pair<std::uint32_t, std::uint32_t>;  // units there; those whose device copy alone is current
  std::map<state, std::uint64_t> costs{{{0, 0}, 0}};
  for (std::size_t i = 0; i < steps * p.launches.size(); ++i) {
    std::map<state, std::uint64_t> next;
    const std::vector<unit_use>& launch = p.launches[i % p.launches.size()];
    std::uint32_t own = 0;
    std::uint32_t written = 0;
    for (const unit_use& u : launch) {
      own |= 1U << u.unit;
      written |= u.written ? 1U << u.unit : 0;
    }
    for (const auto& [from, cost] : costs) {
      const std::uint32_t others = from.first & ~own;
      for (std::uint32_t kept = others;; kept = (kept - 1) & others) {
        std::uint64_t used = 0;
        for (std::uint32_t u = 0; u < n; ++u)
          used += ((kept | own) >> u & 1U) != 0 ? p.size[u] : 0;
        if (used <= budget) {
          std::uint64_t sum = cost;
          for (std::uint32_t u = 0; u < n; ++u) {
            const bool leaves = (others & ~kept) >> u & 1U;
            if (!leaves || !(from.second >> u & 1U)) continue;
            // Of no value: its next use overwrites it.
            bool dead = false;
            for (std::size_t j = 0; j < p.launches.size() && !dead; ++j) {
              const auto& later = p.launches[(i + j) % p.launches.size()];
              const auto use = std::find_if(later.begin(), later.end(), [&](const unit_use& x) { return x.unit == u; });
              if (use != later.end()) {
                dead = use->mode == access::overwrite;
                break;
              }
            }
            sum += dead ? 0 : p.size[u];
          }
          const state to{kept | own, (from.second & kept) | (from.second & own) | written};
          const auto [it, fresh] = next.try_emplace(to, sum);
          it->second = std::min(it->second, sum);
        }
        if (kept == 0) break;
      }
    }
    costs = std::move(next);
  }
  std::uint64_t least = ~std::uint64_t{0};
  for (const auto& [at, cost] : costs)
    least = std::min(least, cost);
  return least;
}

TEST_CASE("no schedule sends less than the least that has to leave, and some send no more") {
  std::size_t tight = 0;
  for (std::uint64_t seed = 1; seed <= 80; ++seed) {
    CAPTURE(seed);
    const unit_program p = random_units(seed, true);
    if (p.size.size() > 7) continue;
    for (const std::uint64_t budget : {3U, 4U}) {
      const std::uint64_t each = least_bytes_out(p, budget);
      // A run may put off a budget's worth at its end, and has nothing to send at its beginning.
      const std::uint64_t three = least_out_by_trying(p, budget, 3);
      const std::uint64_t four = least_out_by_trying(p, budget, 4);
      CHECK(4 * each <= four + p.size.size());
      CHECK(each <= four - three + budget);
      tight += each != 0 && each == four - three ? 1 : 0;
    }
  }
  CHECK(tight >= 3);
}

TEST_CASE("what lives is what was written and is yet to be read") {
  // Three are updated in each step and live always; the third of four temporaries lives between two launches.
  unit_program p{.size = {10, 10, 10, 4, 100}};
  p.launches = {{updates(0)}, {updates(1), overwrites(3)}, {updates(2), reads(3)}, {reads(4)}};
  CHECK(least_bytes_out(p, 34) == 0);
  CHECK(least_bytes_out(p, 30) == 4);
  CHECK(least_bytes_out(p, 20) == 14);
  // What is only read never has to leave; a version ends with the launch that updates it.
  CHECK(least_bytes_out({.size = {9, 9}, .launches = {{reads(0)}, {reads(1)}}}, 9) == 0);
  CHECK(least_bytes_out({.size = {9, 1}, .launches = {{overwrites(0)}, {reads(1)}, {updates(0)}}}, 5) == 4);
  // From one step into the next.
  CHECK(least_bytes_out({.size = {9, 1}, .launches = {{reads(0)}, {reads(1)}, {overwrites(0)}}}, 5) == 4);
}

TEST_CASE("no step is shorter than it computes, nor than its link takes") {
  const link_rates r{.in = 50, .out = 50, .in_both = 40, .out_both = 40};
  CHECK(least_seconds(3, 100, 0, r) == doctest::Approx(3));
  CHECK(least_seconds(1, 100, 0, r) == doctest::Approx(2));
  CHECK(least_seconds(1, 100, 80, r) == doctest::Approx(2.4));
}

TEST_CASE("calls bring what does not fit, but for what was there before") {
  unit_program p{.size = {4, 4, 4}};
  for (int call = 0; call < 10; ++call) {
    for (std::uint32_t u = 0; u < 3; ++u)
      p.launches.push_back({reads(u)});
  }
  CHECK(least_bytes_in(p, 8, 1) >= 12 + 9 * 4);
  CHECK(least_bytes_of_calls(p, 8) == least_bytes_in(p, 8, 1) - 8);
  CHECK(least_bytes_of_calls(p, 12) == 0);
  CHECK(least_bytes_of_sweep({.size = 600_MiB, .budget = 200_MiB, .group = 64_MiB}) == (576U - 200U) << 20U);
  CHECK(least_bytes_of_sweep({.size = 128_MiB, .budget = 200_MiB, .group = 64_MiB}) == 0);
}

TEST_CASE("the least for the products alone is no more than for all launches of the calls, and nearly as much") {
  const infer_shape shape{.models = 2, .layers = 2, .width = 1024, .most_tokens = 512};
  for (const std::int64_t tokens : {1, 512}) {
    const layered_step calls = joined({call_of(shape, 0, tokens), call_of(shape, 1, tokens)}, calls_by_lot(2, 6, 1));
    for (const std::uint64_t mib : {20U, 40U, 60U}) {
      const std::uint64_t all = least_bytes_in(in_blocks(in_memory(calls)), mib << 20U, 1);
      const std::uint64_t products = least_bytes_in(in_blocks(products_in(calls)), mib << 20U, 1);
      CHECK(products <= all);
      CHECK(products * 10 >= all * 9);
    }
  }
}

TEST_CASE("the largest batch is found, whichever it is") {
  for (std::int64_t most : {1, 7, 64}) {
    for (std::int64_t right = 0; right <= most; ++right) {
      CAPTURE(right);
      const largest_batch found = find_largest_batch(
          most, [&](std::int64_t batch) { return batch <= right ? std::string() : std::string("too large"); });
      CHECK(found.batch == right);
      CHECK(found.tried.size() <= 14);
      std::set<std::int64_t> once;
      for (const batch_tried& t : found.tried) {
        CHECK(once.insert(t.batch).second);
        CHECK(t.why_not.empty() == (t.batch <= right));
      }
    }
  }
}

TEST_CASE("the library needs the host for what is not on the device, copies by hand for all") {
  CHECK(host_memory_for(keeps::on_device, 10_GiB, 4_GiB) == 0_B);
  CHECK(host_memory_for(keeps::either_way, 10_GiB, 4_GiB) == 6_GiB);
  CHECK(host_memory_for(keeps::either_way, 3_GiB, 4_GiB) == 0_B);
  CHECK(host_memory_for(keeps::on_host, 10_GiB, 4_GiB) == 10_GiB);
}

TEST_CASE("kilobytes are found in files of /proc") {
  std::istringstream file("MemTotal:   100 kB\nMemAvailable:   3 kB\n");
  CHECK(kilobytes_in(file, "MemAvailable:") == 3072);
  std::istringstream other("MemTotal: 100 kB\n");
  CHECK(kilobytes_in(other, "MemAvailable:") == 0);
}

TEST_CASE("the table of layered programs sets each system beside the bound, the resident run and the least traffic") {
  program_report r{.name = "gpt_step", .description = "a model", .footprint = 100U << 20};
  r.pinned = {.in = 50e9, .out = 50e9, .in_both = 40e9, .out_both = 40e9};
  const auto with = [&](const char* name, std::uint64_t budget, std::int64_t ms, std::uint64_t in, std::uint64_t out) {
    system_run s{.name = name, .budget = budget, .pinned = true, .taken = memory_taken{7U << 20, 9U << 20, 0}};
    for (int i = -1; i <= 1; ++i)
      s.steps.push_back({.ns = (ms + i) * 1'000'000, .did = {.in = in << 20, .out = out << 20}});
    r.runs.push_back(s);
  };
  with("resident", 0, 5, 0, 0);
  with("auto", 50U << 20, 25, 300, 150);
  r.bounds.push_back({50U << 20, 200U << 20, 100U << 20, 10e6});
  const std::string text = layered_table_of(r);
  CAPTURE(text);
  CHECK(text.find("25.00 [   24.50    25.50]    1.04    40.0        -    20.0") != std::string::npos);
  CHECK(text.find("300    1.50      150    1.50    50.0") != std::string::npos);
  CHECK(text.find("       7        9\n") != std::string::npos);
  CHECK(text.find("at least 200 MiB have to come, 100 MiB to leave, 10.00 ms to pass") != std::string::npos);
  const auto json = json_of(r);
  CHECK(json["least_traffic"][0]["least_bytes_out"] == 100U << 20);
  CHECK(json["runs"][1]["memory_taken"]["device"] == 7U << 20);
}

}  // namespace layered_schedules
