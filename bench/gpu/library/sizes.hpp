#pragma once

#include <deepum/core/block.hpp>
#include <deepum/units.hpp>

#include <cstdint>

namespace deepum::gpu_bench {

[[nodiscard]] inline bytes whole_blocks(double n) {
  return block_size * (static_cast<std::uint64_t>(n) / block_size.count);
}
/// In whole blocks.
[[nodiscard]] inline bytes of_gib(double gib) { return whole_blocks(gib * (std::uint64_t{1} << 30)); }
[[nodiscard]] inline bytes of_mib(std::int64_t mib) { return bytes{static_cast<std::uint64_t>(mib) << 20}; }
/// An address range for allocations of this size, with room for what they leave unused.
[[nodiscard]] inline bytes capacity_of(bytes footprint) { return block_size * (footprint / block_size + 16); }
/// Managed memory that measuring the links takes with this size.
[[nodiscard]] inline bytes managed_for_links(bytes size) { return size + bytes{size.count / 2}; }

}  // namespace deepum::gpu_bench
