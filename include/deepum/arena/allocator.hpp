#pragma once

#include <deepum/arena/allocation_size.hpp>
#include <deepum/engine/memory_kind.hpp>
#include <deepum/units.hpp>

#include <cstddef>

namespace deepum {
inline namespace v0 {

template <memory_kind Memory>
class arena;

/// An allocator for containers of the standard library. Its elements are used by the host directly.
template <class T, memory_kind Memory>
class allocator {
 public:
  using value_type = T;

  /// The arena has to outlive all that the containers hold.
  explicit allocator(arena<Memory>& owner) : owner_(&owner) {}
  /// For another type of element, of the same arena.
  template <class U>
  allocator(const allocator<U, Memory>& other) : owner_(&other.owner()) {}  // NOLINT(google-explicit-constructor)

  /// @errors  Those of `arena::allocate`.
  [[nodiscard]] T* allocate(std::size_t n) {
    return static_cast<T*>(owner_->allocate_bytes(detail::size_of_allocation<T>(n), bytes{alignof(T)}));
  }
  /// As `arena::deallocate`. An error ends the program here: containers expect none.
  void deallocate(T* p, std::size_t /*n*/) noexcept { owner_->deallocate(p); }
  /// The arena that it takes memory from.
  [[nodiscard]] arena<Memory>& owner() const { return *owner_; }

  template <class U>
  friend bool operator==(const allocator& a, const allocator<U, Memory>& b) {
    return &a.owner() == &b.owner();
  }

 private:
  arena<Memory>* owner_;
};

}  // namespace v0
}  // namespace deepum
