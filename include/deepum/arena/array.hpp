#pragma once

#include <deepum/engine/memory_kind.hpp>
#include <deepum/operand.hpp>
#include <deepum/units.hpp>

#include <cstddef>
#include <type_traits>
#include <utility>

namespace deepum {
inline namespace v0 {

template <memory_kind Memory>
class arena;

/// Memory for elements that is given back when the array ends. Elements are not constructed.
template <class T, memory_kind Memory>
class array {
  static_assert(std::is_trivially_copyable_v<T>,
                "elements of an array are plain data: they are neither constructed nor destroyed");

 public:
  array() = default;
  /// @errors  Those of `arena::allocate`.
  array(arena<Memory>& owner, std::size_t elements)
      : owner_(&owner),
        data_(owner.template allocate<T>(elements)),
        size_(elements) {}
  /// Takes the memory over; `other` is empty then.
  array(array&& other) noexcept
      : owner_(other.owner_),
        data_(std::exchange(other.data_, nullptr)),
        size_(std::exchange(other.size_, 0)) {}
  /// Swaps the two.
  array& operator=(array&& other) noexcept {
    std::swap(owner_, other.owner_);
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }
  ~array() {
    if (data_ != nullptr) {
      owner_->deallocate(data_);
    }
  }

  /// Its first element; nullptr where it is empty.
  [[nodiscard]] T* data() const { return data_; }
  /// Its elements.
  [[nodiscard]] std::size_t size() const { return size_; }
  /// Its bytes.
  [[nodiscard]] bytes size_in_bytes() const { return bytes{size_ * sizeof(T)}; }

 private:
  arena<Memory>* owner_ = nullptr;
  T* data_ = nullptr;
  std::size_t size_ = 0;
};

/// The launch reads all elements of an array.
template <class T, memory_kind Memory>
[[nodiscard]] auto reads(const array<T, Memory>& elements) {
  return reads(elements.data(), elements.size());
}
/// The launch may read and write all elements of an array.
template <class T, memory_kind Memory>
[[nodiscard]] auto updates(const array<T, Memory>& elements) {
  return updates(elements.data(), elements.size());
}
/// The launch writes all elements of an array before it reads any. A promise, as `overwrites(p, n)`.
template <class T, memory_kind Memory>
[[nodiscard]] auto overwrites(const array<T, Memory>& elements) {
  return overwrites(elements.data(), elements.size());
}

}  // namespace v0
}  // namespace deepum
