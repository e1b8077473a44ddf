#pragma once

#include "replay/workload.hpp"
#include <deepum/core/launch.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace deepum::replay {

/// One step of one of a program's workloads.
struct program_turn {
  std::uint32_t workload = 0;  ///< index into `program::workloads`
  stream_id stream{};
  std::size_t variant = 0;   ///< of the workload, for data-dependent accesses
  std::uint32_t regime = 0;  ///< turns of one regime are expected to behave alike once they are learned; changes begin
                             ///< another one
};

/// What is replayed: steps of one or more workloads, one after another, in one address space.
///
/// Persistent blocks of all workloads start on the host. No tensor that is not persistent lies where another workload's
/// persistent ones do.
struct program {
  std::string name{};
  std::vector<std::shared_ptr<const workload>> workloads{};
  std::vector<program_turn> turns{};

  /// All blocks that are touched lie before it.
  [[nodiscard]] std::uint32_t end_block() const {
    std::uint32_t end = 0;
    for (const auto& w : workloads) {
      end = w->end_block > end ? w->end_block : end;
    }
    return end;
  }
};

}  // namespace deepum::replay
