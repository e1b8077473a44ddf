#pragma once

#include "../train_gpt/model.hpp"
#include "../train_gpt/options.hpp"
#include "../train_gpt/shape.hpp"
#include "../train_gpt/text.hpp"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "weight_file.hpp"
#include <deepum/arena.hpp>
#include <deepum/core/block.hpp>
#include <deepum/engine/statistics.hpp>
#include <deepum/stream.hpp>
#include <deepum/units.hpp>
#include <deepum/upload.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace serve {

using deepum::bytes;
using train_gpt::gpt;
using train_gpt::model_shape;
using train_gpt::purpose;
using train_gpt::run_options;

/// Address space for models of this footprint, with room for what allocations leave unused.
[[nodiscard]] inline bytes capacity_for(bytes footprint) {
  return deepum::block_size * (footprint / deepum::block_size + 32);
}

/// Trains a model on a device that holds all of it.
/// @param options  Its shape, steps, learning rate and seed, and the device.
/// @returns        All weights, as they lie in the memory of a model. The same seed gives the same ones.
template <class Backend>
[[nodiscard]] std::vector<float> trained_weights(const run_options& options, const std::string& text) {
  const bytes capacity = capacity_for(gpt<Backend>::footprint(options.shape));
  const auto gpu = Backend::make_device(options, capacity);
  typename Backend::arena arena{*gpu, deepum::arena_options{.capacity = capacity, .device_budget = capacity}};
  typename Backend::stream stream{arena};
  gpt<Backend> model{arena, stream, options.shape, options.seed};
  train_gpt::batches data{text, options.shape.batch, options.shape.context, options.seed + 1};
  for (std::int64_t step = 0; step < options.steps; ++step) {
    data.next();
    model.differentiate(data.tokens(), data.targets());
    model.update(options.learning_rate);
  }
  const bytes size = train_gpt::size_of(model.sizes());
  std::vector<float> weights(static_cast<std::size_t>(size.count / sizeof(float)));
  stream.memcpy(weights.data(), model.weights().front(), size);
  stream.synchronize();
  return weights;
}

/// Several models of one shape that write text, in one arena that may be larger than what the device gives it.
///
/// Threads: `predict`, one at a time; all else, any thread.
template <class Backend>
class model_set {
 public:
  /// @param options  The device, its budget, and what the models have in common.
  /// @param models   How many; what they know comes by `load`.
  model_set(const run_options& options, std::size_t models)
      : shape_(shape_to_write(options.shape)),
        gpu_(Backend::make_device(options, options.budget)),
        arena_(*gpu_,
               deepum::arena_options{.capacity = capacity_for(footprint(options.shape, models)),
                                     .device_budget = Backend::device_budget(options.policies.front(), options.budget),
                                     .policy = options.policies.front()}) {
    for (std::size_t i = 0; i < models; ++i) {
      members_.push_back(std::make_unique<member>(arena_, shape_, options.seed));
    }
  }

  /// Begins to bring the weights of a model out of memory. @param weights  As `trained_weights` gives them.
  void load(std::size_t which, const std::vector<float>& weights) {
    member& m = *members_[which];
    const float* from = weights.data();
    for (std::size_t t = 0; t < m.model.weights().size(); ++t) {
      const bytes size = train_gpt::padded(m.model.sizes()[t]);
      m.stream.upload(reinterpret_cast<std::byte*>(m.model.weights()[t]), reinterpret_cast<const std::byte*>(from),
                      size.count);
      from += size.count / sizeof(float);
    }
  }
  /// The same out of a file, which stays open until `await_weights`: nothing waits for it but launches.
  /// @errors  `kInvalidArgument` where its tensors are not those of the model.
  [[nodiscard]] absl::Status load(std::size_t which, const weight_file& from) {
    member& m = *members_[which];
    for (std::size_t t = 0; t < m.model.weights().size(); ++t) {
      const std::uint64_t elements = train_gpt::padded(m.model.sizes()[t]).count / sizeof(float);
      const absl::StatusOr<file_tensor> tensor = from.floats(tensor_name(t), elements);
      if (!tensor.ok()) return tensor.status();
      m.coming.push_back(
          m.stream.upload(m.model.weights()[t], deepum::file{from.descriptor(), tensor->offset}, elements));
    }
    return absl::OkStatus();
  }
  /// What `trained_weights` gives, as a file that can be loaded.
  [[nodiscard]] absl::Status save(const std::string& path, const std::vector<float>& weights) const {
    std::vector<std::pair<std::string, std::pair<const float*, std::uint64_t>>> tensors;
    const float* from = weights.data();
    for (std::size_t t = 0; t < members_.front()->model.weights().size(); ++t) {
      const std::uint64_t elements = train_gpt::padded(members_.front()->model.sizes()[t]).count / sizeof(float);
      tensors.emplace_back(tensor_name(t), std::pair(from, elements));
      from += elements;
    }
    return write_weight_file(path, tensors);
  }
  /// Waits until the files have been read, and has each model write once, so that its first text takes no longer than
  /// the others.
  void await_weights() {
    // Behind a prompt that is shorter than the context there may be any tokens, but tokens.
    const std::vector<std::int32_t> all_tokens(static_cast<std::size_t>(shape_.context));
    for (const auto& m : members_) {
      (void)m->model.predict(all_tokens);
      for (const deepum::upload& u : m->coming)
        u.source_read().wait();
      m->coming.clear();
    }
  }

  /// All that so many models allocate.
  [[nodiscard]] static bytes footprint(const model_shape& shape, std::size_t models) {
    return gpt<Backend>::footprint(shape_to_write(shape), purpose::evaluation) * models;
  }

  [[nodiscard]] std::size_t count() const { return members_.size(); }
  [[nodiscard]] std::size_t context() const { return static_cast<std::size_t>(shape_.context); }
  /// Logits of the byte that follows `tokens`, of which there are 1 to `context()`.
  [[nodiscard]] std::vector<float> predict(std::size_t model, std::span<const std::int32_t> tokens) {
    return members_[model]->model.predict(tokens);
  }

  [[nodiscard]] deepum::statistics statistics() { return arena_.statistics(); }
  /// The device's own clock.
  [[nodiscard]] deepum::nanoseconds now() { return gpu_->now(); }

 private:
  // The policy keeps a history for each stream: here, of one model.
  struct member {
    member(typename Backend::arena& arena, const model_shape& shape, std::uint64_t seed)
        : stream(arena),
          model(arena, stream, shape, seed, purpose::evaluation) {}
    typename Backend::stream stream;
    gpt<Backend> model;
    std::vector<deepum::upload> coming{};
  };
  static std::string tensor_name(std::size_t t) { return absl::StrCat("weights.", t); }

  [[nodiscard]] static model_shape shape_to_write(model_shape shape) {
    shape.batch = 1;
    return shape;
  }

  model_shape shape_;
  std::unique_ptr<typename Backend::device> gpu_;
  typename Backend::arena arena_;
  std::vector<std::unique_ptr<member>> members_;
};

}  // namespace serve
