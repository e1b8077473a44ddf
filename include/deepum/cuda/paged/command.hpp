#pragma once

#include <deepum/core/transfer.hpp>

#include <cstdint>

namespace deepum {
inline namespace v0 {
namespace cuda {

/// A transfer of the engine on paged memory, with its ticket.
struct paged_command {
  transfer what{};
  std::uint64_t ticket = 0;
};

}  // namespace cuda
}  // namespace v0
}  // namespace deepum
