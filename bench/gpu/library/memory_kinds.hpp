#pragma once

#include <deepum/core/block.hpp>
#include <deepum/cuda/device.hpp>
#include <deepum/cuda/managed_memory.hpp>
#include <deepum/cuda/paged_memory.hpp>
#include <deepum/cuda/stream.hpp>
#include <deepum/error.hpp>
#include <deepum/planning/layer_offload.hpp>
#include <deepum/policy/policy_options.hpp>
#include <deepum/units.hpp>

#include <optional>
#include <string>
#include <type_traits>
#include <utility>

namespace deepum::gpu_bench {

/// The word for flags, tables and JSON.
template <class Memory>
inline constexpr const char* name_of_memory = std::is_same_v<Memory, cuda::managed_memory> ? "managed" : "paged";

/// What a run chooses of the memory and of policies, where they let it.
struct memory_choices {
  bytes chunk{};                           ///< of paged memory: what is mapped at a time; 0: its own choice
  bool host_mapped = false;                ///< of paged memory: evicted chunks are the host's at their addresses
  bytes host_limit{};                      ///< host memory of paged memory at most; 0: what the host gives
  std::optional<bool> write_back_early{};  ///< whether policies clean blocks ahead; nothing: their own choice
  deepum::offload offload = deepum::offload::none;  ///< of the policies that are told layers
};

/// Bytes that one block of a memory has.
template <class Memory>
[[nodiscard]] bytes block_of_memory(const Memory& memory) {
  if constexpr (requires { memory.block(); }) {
    return memory.block();
  } else {
    return block_size;
  }
}

/// Host memory that holds contents, as the memory counts; nothing where it does not.
template <class Memory>
[[nodiscard]] std::optional<bytes> host_memory_of(const Memory& memory) {
  if constexpr (requires { memory.host_memory(); }) {
    return memory.host_memory();
  } else {
    return std::nullopt;
  }
}

/// Calls `f.template operator()<Memory>()` for the kind of this name.
/// @errors  `status::unsupported` where there is none of that name.
template <class F>
decltype(auto) with_memory(const std::string& name, F&& f) {
  if (name == "paged") {
    return std::forward<F>(f).template operator()<cuda::paged_memory>();
  }
  if (name != "managed") {
    throw error(status::unsupported, "there is no " + name + " memory; there are managed and paged");
  }
  return std::forward<F>(f).template operator()<cuda::managed_memory>();
}

}  // namespace deepum::gpu_bench
