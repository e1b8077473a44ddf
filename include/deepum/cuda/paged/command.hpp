#pragma once

#include <deepum/core/block.hpp>

#include <cstdint>

namespace deepum {
inline namespace v0 {
namespace cuda {

/// A command of the engine for paged memory.
struct paged_command {
  enum class kind : std::uint8_t { prefetch, populate, evict, clean, drop, discard };
  kind what = kind::prefetch;
  block_range range{};
  std::uint64_t ticket = 0;

  [[nodiscard]] bool to_device() const { return what == kind::prefetch || what == kind::populate; }
  /// Gives contents up and copies nothing.
  [[nodiscard]] bool needs_no_copy() const { return what == kind::drop || what == kind::discard; }
};

}  // namespace cuda
}  // namespace v0
}  // namespace deepum
