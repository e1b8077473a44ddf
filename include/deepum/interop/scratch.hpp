#pragma once

#include <deepum/arena.hpp>
#include <deepum/operand.hpp>
#include <deepum/units.hpp>

#include <cstddef>

namespace deepum {
inline namespace v0 {
namespace interop {

/// Temporary memory of a library, in the arena and so within its budget. It only grows.
///
/// Between two launches its contents are of no value, so launches declare it as overwritten.
///
/// Threads: those of the one stream whose launches use it. Ends before the arena.
template <memory_kind Memory>
class scratch {
 public:
  /// @errors  Those of `arena::allocate`.
  explicit scratch(arena<Memory>& owner, bytes size = {}) : owner_(&owner) { reserve(size); }

  /// Makes it at least this large. Launches that were issued before go on using what they were given.
  /// @errors  Those of `arena::allocate`; then it is empty.
  void reserve(bytes size) {
    if (size > this->size()) {
      memory_ = {};  // first, so that the arena need not hold both
      memory_ = owner_->template make_array<std::byte>(size.count);
    }
  }

  /// Its first byte; nullptr where it is empty.
  [[nodiscard]] std::byte* data() const { return memory_.data(); }
  /// What it has grown to.
  [[nodiscard]] bytes size() const { return memory_.size_in_bytes(); }
  /// What a launch that uses it declares.
  [[nodiscard]] deepum::operand operand() const { return overwrites(memory_); }

 private:
  arena<Memory>* owner_;
  array<std::byte, Memory> memory_{};
};

}  // namespace interop
}  // namespace v0
}  // namespace deepum
