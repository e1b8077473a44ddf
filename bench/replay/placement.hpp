#pragma once

#include "replay/workload.hpp"

#include <cstdint>
#include <optional>
#include <vector>

namespace deepum::replay {

/// When a tensor is alive within a step.
struct tensor_life {
  std::optional<std::uint32_t> born{};  ///< its first launch; nothing: no launch names it
  std::uint32_t freed_after = 0;        ///< its last launch, or a later one

  friend constexpr bool operator==(const tensor_life&, const tensor_life&) = default;
};

/// The lives of all tensors, in their order.
[[nodiscard]] std::vector<tensor_life> lives_of(const workload_description& d);

struct placement {
  std::vector<bool> which{};     ///< tensors that get an address, in the order of the description
  block_set taken{};             ///< blocks that none of them may lie in
  std::uint32_t from_block = 0;  ///< none of them lies before it
  bool reuse = true;             ///< addresses of tensors that were freed are used again
};

/// Gives addresses to some tensors of a description, as an allocator would in the course of the step: best fit among
/// what is free. Tensors that persist come first; what no launch names gets none. Tensors of a block or more get whole
/// blocks; smaller ones share blocks that hold nothing else.
///
/// Cost: tensors times gaps.
void place(workload_description& d, const placement& how);

}  // namespace deepum::replay
