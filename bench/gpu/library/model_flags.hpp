#pragma once

#include "absl/status/statusor.h"
#include "examples/train_gpt/bf16.hpp"
#include "examples/train_gpt/shape.hpp"

#include <utility>

// The model of examples/train_gpt, as flags choose it.
namespace deepum::gpu_bench {

struct model_choice {
  train_gpt::model_shape shape{};
  bool bf16 = false;

  /// Calls `f.template operator()<float>()` or the same with bf16.
  template <class F>
  decltype(auto) with_precision(F&& f) const {
    return bf16 ? std::forward<F>(f).template operator()<train_gpt::bf16>()
                : std::forward<F>(f).template operator()<float>();
  }
};

/// @errors  `InvalidArgument`.
[[nodiscard]] absl::StatusOr<model_choice> model_from_flags();

}  // namespace deepum::gpu_bench
