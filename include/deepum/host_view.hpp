#pragma once

#include <deepum/core/element_bytes.hpp>
#include <deepum/core/launch.hpp>
#include <deepum/units.hpp>

#include <cstddef>
#include <functional>
#include <span>
#include <type_traits>

namespace deepum {
inline namespace v0 {

/// Elements of an arena that the host reads or writes, for as long as the view lives (docs/adr/0002). Made by
/// `arena::host_read`, `host_write` and `host_overwrite`, which bring the contents to the host and wait for no launch.
///
/// Use the elements through the view: on paged memory the host finds them at other addresses than the device does.
/// There a launch is refused while a view writes in one of its blocks (`arena::block`), which allocations below half a
/// block share. Keep views that write short, or copy with `stream::memcpy`.
template <class T>
class host_view {
 public:
  /// @param holder                   The arena that the memory belongs to.
  /// @param first_element, elements  Elements of it; none at all is fine.
  /// @errors       `status::foreign_pointer`, `status::invalid_argument` for more bytes than can be counted. Blocks
  ///               while blocks move.
  template <class Arena>
  host_view(Arena& holder, T* first_element, std::size_t elements, access mode)
      : elements_(
            reinterpret_cast<T*>(holder.begin_host_access(first_element, detail::bytes_of_elements<T>(elements), mode)),
            elements) {
    if constexpr (Arena::host_uses_other_addresses) {
      end_ = [&holder, first_element, elements, mode] {
        holder.end_host_access(first_element, detail::bytes_of_elements<T>(elements), mode);
      };
    }
  }
  ~host_view() {
    if (end_) {
      end_();
    }
  }
  host_view(const host_view&) = delete;
  host_view& operator=(const host_view&) = delete;

  /// Where the host finds the first element, for as long as the view lives.
  [[nodiscard]] T* data() const { return elements_.data(); }
  /// Number of elements.
  [[nodiscard]] std::size_t size() const { return elements_.size(); }
  /// For loops over the elements.
  [[nodiscard]] T* begin() const { return data(); }
  /// For loops over the elements.
  [[nodiscard]] T* end() const { return data() + size(); }
  /// An element. @param i  Less than `size()`; not checked.
  [[nodiscard]] T& operator[](std::size_t i) const { return elements_[i]; }

 private:
  std::span<T> elements_;
  std::function<void()> end_{};
};

}  // namespace v0
}  // namespace deepum
