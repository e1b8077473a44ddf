#pragma once

#include <deepum/core/layer.hpp>
#include <deepum/planning/layer_offload.hpp>
#include <deepum/units.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <iterator>
#include <map>
#include <optional>
#include <string_view>
#include <vector>

namespace deepum {
inline namespace v0 {

/// One way to compute a convolution, as a search has found it.
struct layer_algorithm {
  int number = 0;  ///< of the library; not looked at
  nanoseconds time{};
  bytes workspace{};
};

/// The three computations of a convolution.
inline constexpr std::size_t convolution_parts = 3;
enum class convolution_part : std::uint8_t { forward, backward_data, backward_filter };

/// One layer, as the choice needs it. Layers stand in the order of the forward pass; each reads what others make. An
/// activation in place belongs to the layer before it.
struct choice_layer {
  layer_kind kind = layer_kind::other;
  bytes output{};   ///< Y, and dY
  bytes weights{};  ///< W
  /// Layers whose Y it reads, by place; none: it reads the net's input.
  std::vector<std::size_t> reads{};
  /// Of a convolution, by part: what a search has found. None: it needs no workspace and no choice.
  std::array<std::vector<layer_algorithm>, convolution_parts> algorithms{};
};

/// How memory is taken.
enum class memory_model : std::uint8_t {
  blocks,  ///< in blocks that are mapped, so that nothing is lost between them: an arena
  pool,    ///< each piece in one piece, best fit: a pool allocator, as published; what lies between may be too small
};

/// A net to choose for.
struct choice_net {
  bytes input{};  ///< the batch
  std::vector<choice_layer> layers{};
  bytes block{1};  ///< memory is taken in whole ones
  memory_model model = memory_model::blocks;
};

/// What the choice ends with, in the order in which it is tried (vDNN, section 3.4 of the report).
enum class choice_outcome : std::uint8_t {
  none_fastest,         ///< no input leaves, fastest algorithms
  conv_fastest,         ///< inputs of convolutions leave
  all_fastest,          ///< all leave
  conv_greedy,          ///< fastest algorithms that fit at each point of the step
  all_greedy,           ///< the same
  conv_memory_optimal,  ///< algorithms with the least workspace
  all_memory_optimal,   ///< the same; what needs the least memory
  untrainable,          ///< not even that fits
};
inline constexpr std::array<std::string_view, 8> choice_outcome_names{
    "none_fastest", "conv_fastest",        "all_fastest",        "conv_greedy",
    "all_greedy",   "conv_memory_optimal", "all_memory_optimal", "untrainable"};
[[nodiscard]] constexpr std::string_view to_string(choice_outcome o) {
  return choice_outcome_names[static_cast<unsigned>(o)];
}

/// For each layer and part, the place in its list of algorithms; 0 where there is none.
using chosen_algorithms = std::vector<std::array<std::size_t, convolution_parts>>;

/// Which inputs leave, and how convolutions are computed.
struct layer_choice {
  choice_outcome outcome = choice_outcome::untrainable;
  deepum::offload offload = deepum::offload::all;
  chosen_algorithms algorithms{};
  bytes peak{};  ///< memory in use at most; of what needs least, where it is untrainable

  [[nodiscard]] bool trainable() const { return outcome != choice_outcome::untrainable; }
};

namespace detail {

/// The exact sequence in which a step of vDNN takes and gives back memory, played without a device. Weights and their
/// gradients stay; feature maps come with the layer that makes them; a workspace is taken and given back around each
/// layer in each pass, ahead of the maps that come with it. What lacks room is counted and gets none.
class step_memory {
 public:
  step_memory(const choice_net& net, offload chosen, bytes most)
      : net_(net),
        leaves_(leaving(net, chosen)),
        readers_(readers(net)),
        budget_(most),
        gaps_{{0, most.count}} {}

  /// Plays a step, once.
  /// @param workspace  workspace(layer, part, free): called for each computation in order, gives the workspace that it
  ///                   takes; `free` is the most that there is room for right then.
  template <class Workspace>
  void play(Workspace&& workspace) {
    const std::size_t count = net_.layers.size();
    std::vector<layer_mark> marks;
    for (std::size_t i = 0; i != count; ++i) {
      (void)take(net_.layers[i].weights);
      (void)take(net_.layers[i].weights);
      marks.push_back({.kind = net_.layers[i].kind, .offloaded = leaves_[i] && reads_last(i)});
    }
    // Map 0 is the net's input, map i + 1 what layer i makes.
    places there(count + 1);
    places gradient(count + 1);
    bring(there, 0);
    for (std::size_t i = 0; i != count; ++i) {
      const taken ws = take_workspace(workspace, i, {convolution_part::forward});
      bring(there, i + 1);
      for (const std::size_t m : maps_read(i)) {
        if (leaves_[i] && readers_[m].back() == i) {
          drop(there, m);
        }
      }
      give(ws.size, ws.at);
    }
    if (count != 0) {
      bring(gradient, count);
    }
    for (std::size_t i = count; i-- > 0;) {
      const taken ws =
          net_.layers[i].reads.empty()  // nothing needs the gradient of the batch
              ? take_workspace(workspace, i, {convolution_part::backward_filter})
              : take_workspace(workspace, i, {convolution_part::backward_filter, convolution_part::backward_data});
      if (const std::optional<std::size_t> chosen = find_prefetch_layer(marks, i)) {
        for (const std::size_t m : maps_read(*chosen)) {
          if (readers_[m].back() == *chosen) {
            bring(there, m);
          }
        }
      }
      for (const std::size_t m : maps_read(i)) {
        bring(there, m);
        if (m != 0) {
          bring(gradient, m);
        }
      }
      drop(there, i + 1);
      drop(gradient, i + 1);
      give(ws.size, ws.at);
    }
  }
  /// Whether all of it had room.
  [[nodiscard]] bool fits() const { return fits_; }
  /// Memory in use at most, had there been room.
  [[nodiscard]] bytes peak() const { return peak_; }

 private:
  using places = std::vector<std::optional<std::uint64_t>>;  // by map: where it lies
  static std::vector<bool> leaving(const choice_net& net, offload chosen) {
    std::vector<layer_kind> kinds;
    kinds.reserve(net.layers.size());
    for (const choice_layer& l : net.layers) {
      kinds.push_back(l.kind);
    }
    return offloaded_layers(chosen, kinds);
  }
  // By map: the layers that read it, ascending.
  static std::vector<std::vector<std::size_t>> readers(const choice_net& net) {
    std::vector<std::vector<std::size_t>> all(net.layers.size() + 1);
    for (std::size_t i = 0; i != net.layers.size(); ++i) {
      if (net.layers[i].reads.empty()) {
        all[0].push_back(i);
      }
      for (const std::size_t from : net.layers[i].reads) {
        all[from + 1].push_back(i);
      }
    }
    return all;
  }
  [[nodiscard]] std::vector<std::size_t> maps_read(std::size_t layer) const {
    std::vector<std::size_t> maps;
    for (const std::size_t from : net_.layers[layer].reads) {
      maps.push_back(from + 1);
    }
    if (maps.empty()) {
      maps.push_back(0);
    }
    return maps;
  }
  [[nodiscard]] bool reads_last(std::size_t layer) const {
    const std::vector<std::size_t> maps = maps_read(layer);
    return std::any_of(maps.begin(), maps.end(), [&](std::size_t m) { return readers_[m].back() == layer; });
  }
  [[nodiscard]] bytes size_of(std::size_t map) const { return map == 0 ? net_.input : net_.layers[map - 1].output; }
  [[nodiscard]] bytes rounded(bytes n) const {
    return net_.block * ((n.count + net_.block.count - 1) / net_.block.count);
  }
  // Where it lies; no address of the pool, where that has no room for it.
  static constexpr std::uint64_t nowhere = ~std::uint64_t{0};
  [[nodiscard]] std::uint64_t take(bytes n) {
    const bytes size = rounded(n);
    in_use_ += size;
    peak_ = std::max(peak_, in_use_);
    if (net_.model == memory_model::blocks) {
      fits_ = fits_ && in_use_ <= budget_;
      return nowhere;
    }
    if (size.count == 0) {
      return nowhere;
    }
    auto best = gaps_.end();
    for (auto gap = gaps_.begin(); gap != gaps_.end(); ++gap) {
      if (gap->second >= size.count && (best == gaps_.end() || gap->second < best->second)) {
        best = gap;
      }
    }
    if (best == gaps_.end()) {
      fits_ = false;
      return nowhere;
    }
    const auto [at, length] = *best;
    gaps_.erase(best);
    if (length != size.count) {
      gaps_.emplace(at + size.count, length - size.count);
    }
    return at;
  }
  void give(bytes n, std::uint64_t at) {
    in_use_ -= rounded(n);
    if (at == nowhere) {
      return;
    }
    auto gap = gaps_.emplace(at, rounded(n).count).first;
    if (const auto next = std::next(gap); next != gaps_.end() && gap->first + gap->second == next->first) {
      gap->second += next->second;
      gaps_.erase(next);
    }
    if (gap != gaps_.begin()) {
      if (const auto before = std::prev(gap); before->first + before->second == gap->first) {
        before->second += gap->second;
        gaps_.erase(gap);
      }
    }
  }
  [[nodiscard]] bytes free() const {
    if (net_.model == memory_model::blocks) {
      return budget_ - std::min(budget_, in_use_);
    }
    std::uint64_t largest = 0;
    for (const auto& [at, length] : gaps_) {
      largest = std::max(largest, length);
    }
    return bytes{largest};
  }
  void bring(places& there, std::size_t map) {
    if (!there[map]) {
      there[map] = take(size_of(map));
    }
  }
  void drop(places& there, std::size_t map) {
    if (there[map]) {
      give(size_of(map), *there[map]);
      there[map].reset();
    }
  }
  struct taken {
    bytes size{};
    std::uint64_t at = nowhere;
  };
  // One for all parts, which are computed one after another.
  template <class Workspace>
  [[nodiscard]] taken take_workspace(Workspace&& workspace, std::size_t layer,
                                     std::initializer_list<convolution_part> parts) {
    const bytes room = free();
    taken t;
    for (const convolution_part part : parts) {
      if (!net_.layers[layer].algorithms[static_cast<std::size_t>(part)].empty()) {
        t.size = std::max<bytes>(t.size, workspace(layer, part, room));
      }
    }
    t.at = take(t.size);
    return t;
  }

  const choice_net& net_;
  std::vector<bool> leaves_;
  std::vector<std::vector<std::size_t>> readers_;
  bytes budget_;
  std::map<std::uint64_t, std::uint64_t> gaps_;  // of a pool: begin -> length
  bytes in_use_{};
  bytes peak_{};
  bool fits_ = true;
};

/// The algorithm that is best by an order.
template <class Better>
[[nodiscard]] std::size_t best_algorithm(const std::vector<layer_algorithm>& of, Better&& better) {
  return static_cast<std::size_t>(std::min_element(of.begin(), of.end(), better) - of.begin());
}
[[nodiscard]] inline bool is_faster(const layer_algorithm& a, const layer_algorithm& b) {
  return a.time != b.time ? a.time < b.time : a.workspace < b.workspace;
}
[[nodiscard]] inline bool is_smaller(const layer_algorithm& a, const layer_algorithm& b) {
  return a.workspace != b.workspace ? a.workspace < b.workspace : a.time < b.time;
}

/// Whether a step fits with one offload and one way to choose algorithms.
/// @param pick  pick(algorithms, free) -> the place in the list.
/// @param out   The choice.
template <class Pick>
[[nodiscard]] bool try_layers(const choice_net& net, bytes budget, choice_outcome outcome, offload chosen, Pick&& pick,
                              layer_choice& out) {
  out = {.outcome = outcome, .offload = chosen, .algorithms = chosen_algorithms(net.layers.size())};
  step_memory step(net, chosen, budget);
  step.play([&](std::size_t of, convolution_part part, bytes free) {
    const std::vector<layer_algorithm>& found = net.layers[of].algorithms[static_cast<std::size_t>(part)];
    const std::size_t place = pick(found, free);
    out.algorithms[of][static_cast<std::size_t>(part)] = place;
    return found[place].workspace;
  });
  out.peak = step.peak();
  return step.fits();
}

}  // namespace detail

/// The dynamic choice of vDNN (section 3.4 of the report). What fits the budget is found by playing the step's sequence
/// of allocations and frees. Where not even all inputs away and the least workspaces fit, the net cannot be trained.
/// Else the first that fits wins: no offload, convolutions' inputs, all inputs, each with the fastest algorithms; then
/// convolutions' and all, each layer with the fastest that fit what is free when it begins; then both with the least
/// workspaces, because what such a layer takes may be missed by its own output.
///
/// Pure. Cost: eight times the layers.
[[nodiscard]] inline layer_choice choose_layers(const choice_net& net, bytes budget) {
  using enum choice_outcome;
  const auto fastest = [](const std::vector<layer_algorithm>& found, bytes) {
    return detail::best_algorithm(found, detail::is_faster);
  };
  const auto smallest = [](const std::vector<layer_algorithm>& found, bytes) {
    return detail::best_algorithm(found, detail::is_smaller);
  };
  const auto greedy = [&](const std::vector<layer_algorithm>& found, bytes free) {
    std::size_t best = smallest(found, free);
    for (std::size_t i = 0; i != found.size(); ++i) {
      const std::uint64_t blocks = (found[i].workspace.count + net.block.count - 1) / net.block.count;
      if (net.block * blocks <= free && detail::is_faster(found[i], found[best])) {
        best = i;
      }
    }
    return best;
  };
  layer_choice made;
  const auto fits = [&](choice_outcome outcome, offload chosen, const auto& pick) {
    return detail::try_layers(net, budget, outcome, chosen, pick, made);
  };
  if (!fits(all_memory_optimal, offload::all, smallest)) {
    made.outcome = untrainable;
  } else if (!fits(none_fastest, offload::none, fastest) && !fits(conv_fastest, offload::conv, fastest) &&
             !fits(all_fastest, offload::all, fastest) && !fits(conv_greedy, offload::conv, greedy) &&
             !fits(all_greedy, offload::all, greedy) && !fits(conv_memory_optimal, offload::conv, smallest)) {
    (void)fits(all_memory_optimal, offload::all, smallest);
  }
  return made;
}

}  // namespace v0
}  // namespace deepum
