#pragma once

#include <deepum/planning/harvest_parts.hpp>
#include <deepum/planning/layer_offload.hpp>
#include <deepum/prediction/block_table.hpp>
#include <deepum/prediction/execution_id_table.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>

namespace deepum {
inline namespace v0 {

/// What the maker of a policy may choose. A policy ignores what does not concern it.
struct policy_options {
  std::optional<std::uint32_t> lookahead{};       ///< degree N in launches; nothing: the policy's own
  block_table_shape block_table{};                ///< `deepum`
  recognition recognise = recognition::adaptive;  ///< `deepum`: when two launches are the same; published: exact
  bool prefetch = true;                           ///< false: for ablations
  bool pre_evict = true;                          ///< false: `deepum` takes room as the driver does, `auto` takes none
  /// `deepum`, on memory that faults: prefetches do not wait for room, which the driver makes on the path of each: the
  /// least recently migrated block leaves, then the other one comes. Nothing is evicted ahead. For ablations (DeepUM,
  /// figure 10).
  bool driver_makes_room = false;
  bool invalidate = true;                   ///< false: dead contents are moved like live ones
  bool write_back = true;                   ///< `auto`: blocks are copied out ahead while the link is idle, where the
                                            ///< device can keep them (`block_map::keeps_home_copy`)
  bool hold_launches = true;                ///< false: a launch never waits for what is being brought for it
  bool advise = true;                       ///< `auto`: advice from the tables
  std::uint32_t max_execution_ids = 65536;  ///< `auto`: execution IDs kept; 0: unbounded
  std::size_t max_execution_records = 131072;  ///< `auto`: records of the execution table; 0: unbounded
  std::uint32_t horizon = 4096;                ///< `auto`: launches whose next uses are known, for evictions
  std::uint32_t max_upcoming_uses = 262144;    ///< `auto`: uses of blocks by those launches, each 16 bytes
  std::uint32_t longest_step = 65536;          ///< `auto`: launches of a step that is planned as a whole; 0: none is
  deepum::offload offload = deepum::offload::all;  ///< `vdnn`, `vdnn_ext`: layers whose inputs go to the host
  harvest_parts harvest{};                         ///< `harvest`: what it does, for ablations
};

}  // namespace v0
}  // namespace deepum
