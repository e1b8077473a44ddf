#pragma once

#include "workload.hpp"

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

namespace deepum::replay {

using workload_pointer = std::shared_ptr<const workload>;

/// @name What is known of the workload that others are derived from
/// @{
[[nodiscard]] workload_description described(const workload& w);
[[nodiscard]] workload_pointer built(workload_description d);
[[nodiscard]] std::vector<bool> all_but_persistent(const workload& w);
/// Whether two tensors that do not persist have bytes in common.
[[nodiscard]] bool uses_addresses_again(const workload& w);
/// Look-ups of tensors that were moved or changed their size.
/// @param original  Of a tensor, the one of the workload with which its lists agree.
void refit_all(workload_description& d, const workload& base,
               const std::unordered_map<std::int64_t, std::int64_t>& original);
/// @}

/// @name Workloads that are derived from another
/// @{
/// With a batch of another size: what does not persist grows or shrinks with it, and so do the times of launches that
/// use it, but for the gradients of what persists. A larger batch looks up what several recorded steps do.
/// @param factor  Of the batch; above 0.
[[nodiscard]] workload_pointer part_of_batch(const workload& base, double factor);
/// With addresses used again after a free, as a caching allocator uses them, also where each tensor had its own.
[[nodiscard]] workload_pointer with_addresses_again(const workload& base);
[[nodiscard]] workload_pointer half_model(const workload& base);
/// The forward pass of the workload, without what updates the model.
[[nodiscard]] workload_pointer forward_pass(const workload& base);
[[nodiscard]] workload_pointer with_one_more_layer(const workload& base);
/// @}

}  // namespace deepum::replay
