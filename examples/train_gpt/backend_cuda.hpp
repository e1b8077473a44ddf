#pragma once

#include "operations_cuda.hpp"
#include "options.hpp"
#include <deepum/arena.hpp>
#include <deepum/cuda/device.hpp>
#include <deepum/cuda/managed_memory.hpp>
#include <deepum/cuda/stream.hpp>
#include <deepum/error.hpp>
#include <deepum/stream.hpp>
#include <deepum/units.hpp>

#include <memory>
#include <optional>
#include <string>

namespace train_gpt {

/// A GPU, as the model and the training loop name its parts.
/// @tparam T  float or bf16: what the model computes with.
template <class T>
struct cuda_backend {
  using device = deepum::cuda::device;
  using arena = deepum::arena<device::default_memory>;
  using stream = deepum::stream<device::default_memory>;
  using operations = cuda_operations<stream, T>;

  [[nodiscard]] static std::unique_ptr<device> make_device(const run_options& /*options*/, deepum::bytes /*memory*/) {
    return std::make_unique<device>(0);
  }

  /// What an arena may hold on a device that has more memory than this: all of it. Under `um`, too, blocks leave for
  /// it, beside the faults that bring others.
  [[nodiscard]] static deepum::bytes device_budget(const std::string& /*policy*/, deepum::bytes memory) {
    return memory;
  }
};

/// What the program has to know of a GPU before it trains on it.
struct cuda_gpu {
  std::string name{};
  std::string driver{};  ///< newest CUDA version that the driver knows, as 13.0
  bool bf16 = false;     ///< multiplies matrices of bf16
};

/// The GPU that CUDA counts as the first.
/// @param why_not  Gets the reason where there is none.
/// @returns        Nothing where there is none, or it cannot fault on managed memory.
[[nodiscard]] inline std::optional<cuda_gpu> find_cuda_gpu(std::string& why_not) {
  try {
    const deepum::cuda::device gpu{0};
    const auto& p = gpu.properties();
    if (!p.concurrent_managed_access) {
      why_not = p.name + " cannot use managed memory that is larger than its own";
      return std::nullopt;
    }
    const int version = p.driver_version;  // 13000 for 13.0
    return cuda_gpu{.name = p.name,
                    .driver = std::to_string(version / 1000) + '.' + std::to_string(version % 1000 / 10),
                    .bf16 = p.compute_capability >= 80};
  } catch (const deepum::error& e) {
    why_not = e.what();
    return std::nullopt;
  }
}

}  // namespace train_gpt
