#include "planning/naive_step.hpp"
#include <deepum/planning/algorithm_choice.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

namespace algorithm_choice_test {

using namespace deepum_test;

using assignment = std::vector<std::size_t>;  // by moment

// All ways to choose an algorithm for each moment.
std::vector<assignment> assignments(const choice_net& net, const std::vector<moment>& at) {
  std::vector<assignment> all{{}};
  for (const moment& m : at) {
    const std::size_t choices =
        std::max<std::size_t>(1, net.layers[m.layer].algorithms[static_cast<std::size_t>(m.part)].size());
    std::vector<assignment> longer;
    for (const assignment& a : all) {
      for (std::size_t c = 0; c != choices; ++c) {
        longer.push_back(a);
        longer.back().push_back(c);
      }
    }
    all = std::move(longer);
  }
  return all;
}

struct brute_choice {
  choice_outcome outcome = choice_outcome::untrainable;
  assignment algorithms{};
  std::vector<moment> at{};
};

// Tries everything, and takes the first of the eight that is right.
brute_choice brute_force(const choice_net& net, std::uint64_t budget) {
  using enum choice_outcome;
  const auto workspace = [&](const moment& m, std::size_t c) -> std::uint64_t {
    const auto& found = net.layers[m.layer].algorithms[static_cast<std::size_t>(m.part)];
    return found.empty() ? 0 : (found[c].workspace.count + net.block.count - 1) / net.block.count * net.block.count;
  };
  const auto fits = [&](const std::vector<moment>& at, const assignment& a) {
    for (std::size_t i = 0; i != at.size(); ++i) {
      if (at[i].in_use + workspace(at[i], a[i]) > budget) {
        return false;
      }
    }
    return true;
  };
  enum class way { fastest, greedy, smallest };
  const auto is_right = [&](way chosen, const std::vector<moment>& at, const assignment& a) {
    for (std::size_t i = 0; i != at.size(); ++i) {
      const auto& found = net.layers[at[i].layer].algorithms[static_cast<std::size_t>(at[i].part)];
      for (std::size_t c = 0; c != found.size(); ++c) {
        const layer_algorithm& mine = found[a[i]];
        const layer_algorithm& its = found[c];
        const bool mine_fits = at[i].before + workspace(at[i], a[i]) <= budget;
        const bool it_fits = at[i].before + workspace(at[i], c) <= budget;
        const bool better = chosen == way::smallest ? its.workspace < mine.workspace
                            : chosen == way::greedy ? (it_fits && (!mine_fits || its.time < mine.time)) ||
                                                          (!it_fits && !mine_fits && its.workspace < mine.workspace)
                                                    : its.time < mine.time;
        if (better) {
          return false;
        }
      }
    }
    return true;
  };
  const auto only = [&](way chosen, offload which) {
    const std::vector<moment> at = naive_step(net, leaving(net, which)).moments();
    brute_choice found;
    for (const assignment& a : assignments(net, at)) {
      if (is_right(chosen, at, a)) {
        CHECK(found.algorithms.empty());  // times and workspaces differ, so that there is one
        found = {untrainable, a, at};
      }
    }
    return std::pair(found, fits(at, found.algorithms));
  };
  if (!only(way::smallest, offload::all).second) {
    return only(way::smallest, offload::all).first;
  }
  for (const auto& [outcome, chosen, which] :
       {std::tuple{none_fastest, way::fastest, offload::none}, std::tuple{conv_fastest, way::fastest, offload::conv},
        std::tuple{all_fastest, way::fastest, offload::all}, std::tuple{conv_greedy, way::greedy, offload::conv},
        std::tuple{all_greedy, way::greedy, offload::all},
        std::tuple{conv_memory_optimal, way::smallest, offload::conv},
        std::tuple{all_memory_optimal, way::smallest, offload::all}}) {
    if (auto [found, it_fits] = only(chosen, which); it_fits) {
      found.outcome = outcome;
      return found;
    }
  }
  FAIL("what needs the least memory fits, and is not found");
  return {};
}

choice_net random_net(std::mt19937& random) {
  const auto below = [&](std::uint32_t n) { return static_cast<std::uint32_t>(random() % n); };
  choice_net net{.input = bytes{1 + below(60)}, .block = bytes{1 + below(3) * 3}};
  const std::uint32_t count = 1 + below(6);
  std::size_t convolutions = 0;
  for (std::uint32_t i = 0; i != count; ++i) {
    choice_layer l;
    constexpr layer_kind kinds[] = {conv, conv, conv, pool, other, fc, activation, softmax};
    l.kind = kinds[below(8)];
    l.output = bytes{1 + below(60)};
    l.weights = bytes{below(6)};
    if (i != 0) {
      l.reads.push_back(below(3) != 0 ? i - 1 : below(i));
      if (const std::size_t second = below(i); below(4) == 0 && second != l.reads.front()) {
        l.reads.push_back(second);
      }
    }
    if (l.kind == conv && ++convolutions <= 3) {
      for (std::vector<layer_algorithm>& part : l.algorithms) {
        const std::uint32_t algorithms = 1 + below(2);
        std::set<std::uint32_t> workspaces;
        while (workspaces.size() <= algorithms) {
          workspaces.insert(below(3) == 0 ? 0 : below(90));
        }
        std::int64_t time = 200000;
        for (const std::uint32_t w : workspaces) {
          part.push_back({static_cast<int>(part.size()), nanoseconds{time}, bytes{w}});
          time = 2 * (500 + below(1000)) * 100 + static_cast<std::int64_t>(part.size());  // no two the same
        }
        std::shuffle(part.begin(), part.end(), random);
      }
    }
    net.layers.push_back(l);
  }
  return net;
}

TEST_CASE("the choice equals brute force on nets of up to six layers, where memory is mapped in blocks") {
  std::map<choice_outcome, int> reached;
  const std::size_t rounds = std::size_t{4000};
  for (std::uint32_t seed = 1; seed <= rounds; ++seed) {
    std::mt19937 random(seed);
    const choice_net net = random_net(random);
    std::uint64_t most = 0;
    std::uint64_t least = ~std::uint64_t{0};
    for (const offload which : {offload::none, offload::all}) {
      for (const moment& m : naive_step(net, leaving(net, which)).moments()) {
        most = std::max(most, m.in_use + 90);
        least = std::min(least, m.in_use);
      }
    }
    const std::uint64_t budget = least + random() % (most - least + 1);
    const layer_choice chosen = choose_layers(net, bytes{budget});
    const brute_choice expected = brute_force(net, budget);
    CAPTURE(seed);
    CHECK(to_string(chosen.outcome) == to_string(expected.outcome));
    CHECK(chosen.trainable() == (chosen.peak.count <= budget));
    for (std::size_t i = 0; i != expected.at.size(); ++i) {
      const moment& m = expected.at[i];
      if (!net.layers[m.layer].algorithms[static_cast<std::size_t>(m.part)].empty()) {
        CHECK(chosen.algorithms[m.layer][static_cast<std::size_t>(m.part)] == expected.algorithms[i]);
      }
    }
    ++reached[chosen.outcome];
  }
  for (const auto& [outcome, times] : reached) {
    MESSAGE(std::string(to_string(outcome)) << " " << times);
  }
  CHECK(reached.size() == choice_outcome_names.size());
}

choice_outcome naive_choice(const choice_net& net, std::uint64_t budget) {
  using enum choice_outcome;
  const auto best = [](const auto& found, auto&& better) {
    std::size_t place = 0;
    for (std::size_t i = 1; i < found.size(); ++i) {
      place = better(found[i], found[place]) ? i : place;
    }
    return place;
  };
  const auto fastest = [&](const auto& found, std::uint64_t) {
    return best(found, [](const auto& a, const auto& b) { return a.time < b.time; });
  };
  const auto smallest = [&](const auto& found, std::uint64_t) {
    return best(found, [](const auto& a, const auto& b) { return a.workspace < b.workspace; });
  };
  const auto greedy = [&](const auto& found, std::uint64_t largest) {
    const auto fits = [&](const layer_algorithm& a) {
      return (a.workspace.count + net.block.count - 1) / net.block.count * net.block.count <= largest;
    };
    const bool any = std::any_of(found.begin(), found.end(), fits);
    return !any ? smallest(found, 0)
                : best(found, [&](const auto& a, const auto& b) { return fits(a) && (!fits(b) || a.time < b.time); });
  };
  const auto fits = [&](offload which, auto&& pick) { return naive_pool(net, which, budget).play(pick); };
  return !fits(offload::all, smallest)   ? untrainable
         : fits(offload::none, fastest)  ? none_fastest
         : fits(offload::conv, fastest)  ? conv_fastest
         : fits(offload::all, fastest)   ? all_fastest
         : fits(offload::conv, greedy)   ? conv_greedy
         : fits(offload::all, greedy)    ? all_greedy
         : fits(offload::conv, smallest) ? conv_memory_optimal
                                         : all_memory_optimal;
}

TEST_CASE("in a pool it equals a naive one, byte by byte, and never takes what does not fit") {
  std::map<choice_outcome, int> reached;
  const std::size_t rounds = std::size_t{3000};
  for (std::uint32_t seed = 1; seed <= rounds; ++seed) {
    std::mt19937 random(seed);
    choice_net net = random_net(random);
    net.model = memory_model::pool;
    std::uint64_t most = 0;
    std::uint64_t least = ~std::uint64_t{0};
    for (const moment& m : naive_step(net, leaving(net, offload::all)).moments()) {
      most = std::max(most, m.in_use + 90);
      least = std::min(least, m.in_use);
    }
    const std::uint64_t budget = (least + most) / 2 + random() % (most - (least + most) / 2 + 1);
    const layer_choice chosen = choose_layers(net, bytes{budget});
    CAPTURE(seed);
    CHECK(to_string(chosen.outcome) == to_string(naive_choice(net, budget)));
    CHECK((!chosen.trainable() || chosen.peak.count <= budget));
    ++reached[chosen.outcome];
  }
  for (const auto& [outcome, times] : reached) {
    MESSAGE(std::string(to_string(outcome)) << " " << times);
  }
}

}  // namespace algorithm_choice_test
