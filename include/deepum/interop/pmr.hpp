#pragma once

#include <deepum/arena.hpp>
#include <deepum/engine/memory_kind.hpp>
#include <deepum/units.hpp>

#include <algorithm>
#include <cstddef>
#include <memory_resource>

namespace deepum {
inline namespace v0 {
namespace interop {

/// Gives containers of `std::pmr` memory of an arena, so that kernels read what the host has put into them. For managed
/// memory alone: containers keep pointers, while paged memory has its contents for the host within views (`host_view`).
///
/// On the simulated GPU the program says what the host touches (`arena::host_access`). Launches on the memory of a
/// container end before the host uses it. An allocation has 256 bytes at least: put a pool in between for lists and
/// maps.
///
/// Threads: any. Containers end before it, and it before the arena.
///
///     deepum::interop::pmr_resource resource{arena};
///     std::pmr::vector<float> x(n, &resource);
template <memory_kind Memory>
class pmr_resource : public std::pmr::memory_resource {
  static_assert(!paged_memory_kind<Memory>,
                "containers use pointers at any time, which needs memory that moves on a page fault; memory that never "
                "faults has other addresses for the host, which arena::host_write gives");

 public:
  /// The arena has to outlive the containers.
  explicit pmr_resource(arena<Memory>& owner) : owner_(&owner) {}

  /// The arena that it takes memory from.
  [[nodiscard]] arena<Memory>& owner() const { return *owner_; }

 private:
  /// @errors  `deepum::error`, as `arena::allocate_bytes`; it is no `std::bad_alloc`.
  [[nodiscard]] void* do_allocate(std::size_t size, std::size_t alignment) override {
    return owner_->allocate_bytes(bytes{std::max<std::size_t>(size, 1)}, bytes{alignment});
  }
  void do_deallocate(void* p, std::size_t /*size*/, std::size_t /*alignment*/) override { owner_->deallocate(p); }
  [[nodiscard]] bool do_is_equal(const std::pmr::memory_resource& other) const noexcept override {
    const auto* same = dynamic_cast<const pmr_resource*>(&other);
    return same != nullptr && same->owner_ == owner_;
  }

  arena<Memory>* owner_;
};

}  // namespace interop
}  // namespace v0
}  // namespace deepum
