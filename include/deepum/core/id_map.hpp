#pragma once

#include <deepum/core/sequence.hpp>
#include <deepum/units.hpp>

#include <cstddef>
#include <utility>

namespace deepum {
inline namespace v0 {
namespace detail {

/// Values by ID, for IDs that are small numbers without large holes: a vector that grows with the highest ID.
///
/// A value that was never assigned is `Value{}`. Not synchronised. Cost: an index; memory for the highest ID.
template <class Id, class Value>
class id_map {
 public:
  /// The value of an ID, made where there is none yet. Valid until a higher ID is named.
  [[nodiscard]] Value& operator[](Id id) {
    if (id.value >= values_.size()) {
      values_.resize(std::size_t{id.value} + 1);
    }
    return values_[id.value];
  }
  /// The value of an ID; null for one that is higher than all that were named.
  [[nodiscard]] Value* find(Id id) { return id.value < values_.size() ? &values_[id.value] : nullptr; }
  [[nodiscard]] const Value* find(Id id) const { return id.value < values_.size() ? &values_[id.value] : nullptr; }
  /// A copy of it, `Value{}` where there is none.
  [[nodiscard]] Value get(Id id) const { return id.value < values_.size() ? values_[id.value] : Value{}; }
  /// Forgets the value of an ID.
  void reset(Id id) {
    if (id.value < values_.size()) {
      values_[id.value] = Value{};
    }
  }
  void clear() { values_.clear(); }
  /// There are values for all IDs below this number.
  [[nodiscard]] std::size_t size() const { return values_.size(); }
  void resize(std::size_t size) { values_.resize(size); }

  /// Calls `visit(Id, value)` for all IDs, ascending.
  template <class Visit>
  void for_each(Visit&& visit) const {
    for (std::size_t i = 0; i != values_.size(); ++i) {
      visit(Id{static_cast<typename Id::number>(i)}, std::as_const(values_[i]));
    }
  }
  [[nodiscard]] auto begin() { return values_.begin(); }
  [[nodiscard]] auto end() { return values_.end(); }
  [[nodiscard]] auto begin() const { return values_.begin(); }
  [[nodiscard]] auto end() const { return values_.end(); }

  /// Heap memory held, without what the values themselves hold.
  [[nodiscard]] bytes memory() const { return bytes{values_.capacity() * sizeof(Value)}; }

 private:
  sequence<Value> values_{};  // by number
};

}  // namespace detail
}  // namespace v0
}  // namespace deepum
