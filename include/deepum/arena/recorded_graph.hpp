#pragma once

#include <deepum/arena/allocation_table.hpp>
#include <deepum/core/launch.hpp>

#include <memory>
#include <string>
#include <vector>

namespace deepum {
inline namespace v0 {

/// Launches that were recorded. Made by `stream::record_graph`. Ends before the arena.
template <class Native>
struct recorded_graph {
  Native native{};
  std::string name{};
  launch_signature signature{};
  std::vector<named_operand> operands{};  ///< of all its launches, as they were when it was recorded
  bool complete = true;                   ///< they declare all that they touch
  /// What lives as long as this: temporary memory of libraries that its launches use.
  std::vector<std::shared_ptr<const void>> keeps{};
};

}  // namespace v0
}  // namespace deepum
