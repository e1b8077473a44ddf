#pragma once

#include <deepum/arena.hpp>
#include <deepum/operand.hpp>
#include <deepum/stream.hpp>
#include <deepum/units.hpp>

#include <cstddef>
#include <memory>
#include <vector>

namespace deepum {
inline namespace v0 {
namespace interop {

/// Temporary memory of a library, in the arena and so within its budget. It only grows. Launches declare it as
/// overwritten.
///
/// A graph of `stream::record_graph` keeps the memory that its launches use. The end of a graph that the program
/// captures itself is not known: what such a capture has taken in is kept until this ends, and the graph is not
/// launched after that.
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
      memory_.reset();  // first, so that the arena need not hold both
      memory_ = std::make_shared<memory>(*owner_, size.count);
    }
  }

  /// The launch that is made next on this stream uses it. Cost: a call of the driver; nothing where it is empty.
  void used_by(stream<Memory>& s) {
    if (memory_ == nullptr || s.keep_in_graph(memory_)) {
      return;
    }
    if constexpr (requires { s.native().capturing(); }) {
      if ((captured_.empty() || captured_.back() != memory_) && s.native().capturing()) {
        captured_.push_back(memory_);
      }
    }
  }

  /// Its first byte; nullptr where it is empty.
  [[nodiscard]] std::byte* data() const { return memory_ != nullptr ? memory_->data() : nullptr; }
  /// What it has grown to.
  [[nodiscard]] bytes size() const { return memory_ != nullptr ? memory_->size_in_bytes() : bytes{}; }
  /// What a launch that uses it declares.
  [[nodiscard]] deepum::operand operand() const { return uses_as_scratch(data(), size()); }

 private:
  using memory = array<std::byte, Memory>;

  arena<Memory>* owner_;
  std::shared_ptr<memory> memory_{};                 // with the graphs that use it
  std::vector<std::shared_ptr<memory>> captured_{};  // by captures of the program's own
};

}  // namespace interop
}  // namespace v0
}  // namespace deepum
