#pragma once

#include "operations_cuda.hpp"
#include "options.hpp"
#include <deepum/arena.hpp>
#include <deepum/cuda/device.hpp>
#include <deepum/cuda/managed_memory.hpp>
#include <deepum/cuda/paged_memory.hpp>
#include <deepum/cuda/stream.hpp>
#include <deepum/cuda/virtual_memory.hpp>
#include <deepum/engine/memory_kind.hpp>
#include <deepum/error.hpp>
#include <deepum/stream.hpp>
#include <deepum/units.hpp>

#include <memory>
#include <optional>
#include <string>

namespace train_gpt {

/// A GPU, as the model and the training loop name its parts.
/// @tparam T       float or bf16: what the model computes with.
/// @tparam Memory  One of `deepum::cuda`.
template <class T, class Memory = deepum::cuda::managed_memory>
struct cuda_backend {
  using device = deepum::cuda::device;
  using arena = deepum::arena<Memory>;
  using stream = deepum::stream<Memory>;
  using operations = cuda_operations<stream, T>;

  [[nodiscard]] static std::unique_ptr<device> make_device(const run_options& options, deepum::bytes /*memory*/) {
    return std::make_unique<device>(0, device_options(options));
  }

  /// What moves as one.
  [[nodiscard]] static deepum::bytes block(const run_options& options) {
    return deepum::paged_memory_kind<Memory> ? device_options(options).chunk : deepum::block_size;
  }

  /// What an arena may hold on a device that has more memory than this: all of it. Under `um`, too, blocks leave for
  /// it, beside the faults that bring others.
  [[nodiscard]] static deepum::bytes device_budget(const std::string& /*policy*/, deepum::bytes memory) {
    return memory;
  }

 private:
  static deepum::cuda::device_options device_options(const run_options& options) {
    deepum::cuda::device_options chosen;
    if (options.chunk.count != 0) chosen.chunk = options.chunk;
    if (options.host_mapped) chosen.evicted = deepum::cuda::evicted_chunks::host_mapped;
    return chosen;
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
/// @param memory   What is to be larger than the GPU's own.
/// @returns        Nothing where there is none, or it cannot have such memory.
[[nodiscard]] inline std::optional<cuda_gpu> find_cuda_gpu(std::string& why_not,
                                                           memory_choice memory = memory_choice::managed) {
  try {
    const deepum::cuda::device gpu{0};
    const auto& p = gpu.properties();
    if (memory == memory_choice::paged) {
      (void)deepum::cuda::virtual_memory(p.ordinal);  // throws where the driver has none
    } else if (!p.concurrent_managed_access) {
      why_not = p.name + " cannot use managed memory that is larger than its own; try --memory paged";
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
