#pragma once

#include <deepum/core/block.hpp>
#include <deepum/cuda/device.hpp>
#include <deepum/cuda/managed_memory.hpp>
#include <deepum/cuda/stream.hpp>
#include <deepum/error.hpp>
#include <deepum/policy/policy_options.hpp>
#include <deepum/units.hpp>

#if __has_include(<deepum/cuda/mapped_memory.hpp>)
#include <deepum/cuda/mapped_memory.hpp>
#define DEEPUM_GPU_BENCH_MAPPED 1
#endif

#include <optional>
#include <string>
#include <type_traits>
#include <utility>

namespace deepum::gpu_bench {

/// The word for flags, tables and JSON.
template <class Memory>
inline constexpr const char* name_of_memory = std::is_same_v<Memory, cuda::managed_memory> ? "managed" : "mapped";

/// What a run chooses of the memory and of policies, where they let it.
struct memory_choices {
  bytes chunk{};                           ///< of mapped memory: what is mapped at a time; 0: its own choice
  bool host_mapped = false;                ///< of mapped memory: evicted chunks are the host's at their addresses
  bytes host_limit{};                      ///< host memory of mapped memory at most; 0: what the host gives
  std::optional<bool> write_back_early{};  ///< whether policies clean blocks ahead; nothing: their own choice
};

/// @errors  `status::unsupported` where this build's devices do not take the choice.
template <class Options>
void choose_chunk(Options& options, bytes chunk) {
  if (chunk.count == 0) {
    return;
  }
  if constexpr (requires { options.chunk = chunk; }) {
    options.chunk = chunk;
  } else {
    throw error(status::unsupported, "the memory of this build does not let a program choose the size of its chunks");
  }
}
/// Managed memory has nothing to map.
template <class Options>
void choose_evicted(Options& options, bool host_mapped) {
  if constexpr (requires { options.evicted; }) {
    using kinds = decltype(options.evicted);
    options.evicted = host_mapped ? kinds::host_mapped : kinds::unmapped;
  }
}
/// Managed memory knows no limit for the host.
template <class Options>
void choose_host_limit(Options& options, bytes limit) {
  if constexpr (requires { options.host_limit = limit; }) {
    options.host_limit = limit;
  }
}
/// @errors  `status::unsupported` where this build's policies do not take the choice.
template <class Options>
void choose_write_back(Options& tuning, std::optional<bool> early) {
  if (!early) {
    return;
  }
  if constexpr (requires { tuning.write_back = *early; }) {
    tuning.write_back = *early;
  } else {
    throw error(status::unsupported, "the policies of this build do not let a program choose early write-back");
  }
}

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
/// @errors  `status::unsupported` for one that this build does not have.
template <class F>
decltype(auto) with_memory(const std::string& name, F&& f) {
#ifdef DEEPUM_GPU_BENCH_MAPPED
  if (name == "mapped") {
    return std::forward<F>(f).template operator()<cuda::mapped_memory>();
  }
#endif
  if (name != "managed") {
    throw error(status::unsupported, "this build has no " + name + " memory");
  }
  return std::forward<F>(f).template operator()<cuda::managed_memory>();
}

}  // namespace deepum::gpu_bench
