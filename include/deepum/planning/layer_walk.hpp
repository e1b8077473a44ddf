#pragma once

#include <deepum/core/archive.hpp>
#include <deepum/core/block.hpp>
#include <deepum/core/layer.hpp>
#include <deepum/planning/layer_offload.hpp>

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

namespace deepum {
inline namespace v0 {
namespace detail {

/// The net as its layers come by, step after step: which inputs leave, and which come back beside which layer.
///
/// What it cannot know in a first step it learns there: which layer is the last one, and which reads an input last
/// where several do (a fork). Until then each reader counts as the last one. A layer that has changed is learned anew.
class layer_walk {
 public:
  explicit layer_walk(offload chosen) : chosen_(chosen) {}

  /// The forward pass of a layer begins. A new step begins with it behind a backward pass, and where the layer has been
  /// passed in this one.
  /// @returns  Its place in the forward pass.
  std::size_t forward(const layer_scope& scope) {
    if (backward_ || place_of(scope.layer)) {
      begin_step();
    }
    const bool conv = scope.kind == layer_kind::conv;
    const learned* const known = learned_of(scope);
    std::vector<block_range> leaving;
    if (offloads(chosen_, scope.kind, std::exchange(convolutions_, convolutions_ + (conv ? 1 : 0))) &&
        (known == nullptr || !known->last_layer)) {
      for (std::size_t i = 0; i != scope.input.size(); ++i) {
        if (!scope.input[i].empty() && (known == nullptr || known->reads_last[i])) {
          leaving.push_back(scope.input[i]);
        }
      }
    }
    marks_.push_back({.kind = scope.kind, .offloaded = !leaving.empty()});
    places_.emplace(scope.layer, layers_.size());
    layers_.push_back({.layer = scope.layer, .input = scope.input, .leaving = std::move(leaving)});
    return layers_.size() - 1;
  }
  /// The backward pass of a layer begins. @returns  Its place; none: this step has not passed it.
  std::optional<std::size_t> backward(std::uint32_t layer) {
    if (!std::exchange(backward_, true)) {
      learn();
    }
    return place_of(layer);
  }
  /// The input that is to come back beside the backward pass of the layer at that place.
  std::optional<std::size_t> find_prefetch(std::size_t place) { return find_prefetch_layer(marks_, place); }

  /// Blocks of a layer's input that leave behind its forward pass. None: the layer keeps it.
  [[nodiscard]] const std::vector<block_range>& leaving(std::size_t place) const { return layers_[place].leaving; }
  /// The number of the layer at a place.
  [[nodiscard]] std::uint32_t layer(std::size_t place) const { return layers_[place].layer; }
  /// Layers that this step has passed.
  [[nodiscard]] std::size_t size() const { return layers_.size(); }

  /// What was learned of the net.
  void save(archive_writer& out) const {
    out.put(chosen_);
    out.put(std::uint64_t{known_.size()});
    for (const auto& [layer, k] : known_) {
      out.put(layer);
      out.put(k.kind);
      out.put(k.last_layer);
      out.put(std::uint64_t{k.reads_last.size()});
      for (const bool last : k.reads_last) {
        out.put(last);
      }
    }
  }
  /// A walk with what was learned before.
  /// @errors  `status::bad_format`, also where another choice of layers was saved.
  [[nodiscard]] static layer_walk load(archive_reader& in, offload chosen) {
    layer_walk made(chosen);
    if (in.get_enum(offload::alternate_conv) != chosen) {
      in.refuse("they are of another choice of layers whose inputs go to the host");
    }
    const std::uint64_t layers = in.get_count(sizeof(std::uint32_t) + 2 + sizeof(std::uint64_t));
    for (std::uint64_t i = 0; i != layers; ++i) {
      const auto layer = in.get<std::uint32_t>();
      learned k;
      k.kind = in.get_enum(layer_kind::other);
      k.last_layer = in.get_bool();
      k.reads_last.resize(in.get_count(1));
      for (std::size_t j = 0; j != k.reads_last.size(); ++j) {
        k.reads_last[j] = in.get_bool();
      }
      if (!made.known_.emplace(layer, std::move(k)).second) {
        in.refuse("a layer that is there twice");
      }
    }
    return made;
  }
  /// Memory of what was learned, about.
  [[nodiscard]] std::uint64_t memory() const { return known_.size() * (sizeof(learned) + 64); }

 private:
  struct passed_layer {
    std::uint32_t layer = 0;
    std::vector<block_range> input{};
    std::vector<block_range> leaving{};
  };
  struct learned {
    layer_kind kind = layer_kind::other;
    bool last_layer = false;
    std::vector<bool> reads_last{};  // by input
  };

  [[nodiscard]] std::optional<std::size_t> place_of(std::uint32_t layer) const {
    const auto it = places_.find(layer);
    return it == places_.end() ? std::nullopt : std::optional<std::size_t>(it->second);
  }
  [[nodiscard]] const learned* learned_of(const layer_scope& scope) const {
    const auto it = known_.find(scope.layer);
    const bool same =
        it != known_.end() && it->second.kind == scope.kind && it->second.reads_last.size() == scope.input.size();
    return same ? &it->second : nullptr;
  }
  void begin_step() {
    layers_.clear();
    places_.clear();
    marks_.clear();
    convolutions_ = 0;
    backward_ = false;
  }
  // The forward pass is over.
  void learn() {
    std::size_t last = layers_.size();
    std::vector<bool> read_later;  // by block
    for (std::size_t i = layers_.size(); i-- > 0;) {
      const passed_layer& passed = layers_[i];
      learned k{.kind = marks_[i].kind};
      if (last == layers_.size() && counts_as_last(k.kind)) {
        last = i;
        k.last_layer = true;
      }
      for (const block_range r : passed.input) {
        if (read_later.size() < r.end_value()) {
          read_later.resize(r.end_value());
        }
        bool later = false;
        for (const block_id b : r) {
          later = later || read_later[b.value];
          read_later[b.value] = true;
        }
        k.reads_last.push_back(!later);
      }
      known_[passed.layer] = std::move(k);
    }
  }

  offload chosen_;
  std::vector<passed_layer> layers_{};             // of this step, in the order of the forward pass
  std::map<std::uint32_t, std::size_t> places_{};  // of the same, by number
  std::vector<layer_mark> marks_{};                // of the same
  std::size_t convolutions_ = 0;                   // among them
  bool backward_ = false;                          // the step goes back
  std::map<std::uint32_t, learned> known_{};
};

}  // namespace detail
}  // namespace v0
}  // namespace deepum
