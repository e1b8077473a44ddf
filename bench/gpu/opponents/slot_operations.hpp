#pragma once

#include "examples/train_gpt/operations_cuda.hpp"
#include "examples/train_gpt/shape.hpp"
#include "gpu/library/hand_memory.hpp"
#include "gpu/opponents/double_pinned.hpp"

#include <type_traits>
#include <utility>

namespace deepum::gpu_bench {

/// The model's operations on memory that is in another place from launch to launch: each address becomes that of its
/// slot. An operation is one launch.
template <class T>
class slot_operations : private train_gpt::cuda_operations<hand_stream, T> {
  using base = train_gpt::cuda_operations<hand_stream, T>;
  using index = train_gpt::index;

 public:
  using element = T;
  using base::scratch_size;

  slot_operations(hand_arena& arena, hand_stream& stream, const train_gpt::model_shape& shape, train_gpt::purpose use)
      : slot_operations(resident_scratch(arena), stream, shape, use) {}

  template <class... A>
  void embed_forward(A... a) {
    with(&base::embed_forward, a...);
  }
  template <class... A>
  void embed_backward(A... a) {
    with(&base::embed_backward, a...);
  }
  template <class... A>
  void layernorm_forward(A... a) {
    with(&base::layernorm_forward, a...);
  }
  template <class... A>
  void layernorm_backward(A... a) {
    with(&base::layernorm_backward, a...);
  }
  template <class... A>
  void linear_forward(A... a) {
    with(&base::linear_forward, a...);
  }
  template <class... A>
  void linear_backward_weight(A... a) {
    with(&base::linear_backward_weight, a...);
  }
  template <class... A>
  void linear_backward_input(A... a) {
    with(&base::linear_backward_input, a...);
  }
  template <class... A>
  void residual_forward(A... a) {
    with(&base::residual_forward, a...);
  }
  template <class... A>
  void gelu_forward(A... a) {
    with(&base::gelu_forward, a...);
  }
  template <class... A>
  void gelu_backward(A... a) {
    with(&base::gelu_backward, a...);
  }
  template <class... A>
  void attention_forward(A... a) {
    with(&base::attention_forward, a...);
  }
  template <class... A>
  void attention_backward(A... a) {
    with(&base::attention_backward, a...);
  }
  template <class... A>
  void cross_entropy(A... a) {
    with(&base::cross_entropy, a...);
  }
  template <class... A>
  void adamw(A... a) {
    with(&base::adamw, a...);
  }
  [[nodiscard]] float mean_loss(const float* losses, index rows) {
    stream_->prepare();
    return base::mean_loss(slot(losses), rows);
  }

 private:
  slot_operations(resident_scratch&& scratch, hand_stream& stream, const train_gpt::model_shape& shape,
                  train_gpt::purpose use)
      : base(scratch, stream, shape, use),
        scratch_(std::move(scratch)),
        stream_(&stream) {}

  template <class A>
  [[nodiscard]] A slot(A argument) {
    if constexpr (std::is_pointer_v<A>) {
      return static_cast<A>(stream_->address(argument));
    } else {
      return argument;
    }
  }
  template <class... P, class... A>
  void with(void (base::*operation)(P...), A... arguments) {
    stream_->prepare();
    (this->*operation)(slot(static_cast<P>(arguments))...);
  }

  resident_scratch scratch_;
  hand_stream* stream_;
};

}  // namespace deepum::gpu_bench
