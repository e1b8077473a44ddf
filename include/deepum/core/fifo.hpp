#pragma once

#include <deepum/core/sequence.hpp>

#include <cstddef>
#include <iterator>
#include <type_traits>
#include <utility>

namespace deepum {
inline namespace v0 {

/// What is added at the end and leaves at the beginning: `std::deque` as far as the library uses it, made for headers
/// as `sequence` is. Its elements lie in one piece, so that its iterators are pointers.
///
/// Iterators and references are valid until the next call that adds or takes out. Cost: constant at the ends, spread
/// over the calls; linear elsewhere and for `push_front`. It keeps the memory of as many elements as there ever were.
template <class T>
class fifo {
 public:
  using value_type = T;
  using size_type = std::size_t;
  using difference_type = std::ptrdiff_t;
  using iterator = T*;
  using const_iterator = const T*;

  [[nodiscard]] T* begin() { return elements_.data() + gone_; }
  [[nodiscard]] const T* begin() const { return elements_.data() + gone_; }
  [[nodiscard]] T* end() { return elements_.end(); }
  [[nodiscard]] const T* end() const { return elements_.end(); }
  [[nodiscard]] auto rbegin() { return std::reverse_iterator<T*>(end()); }
  [[nodiscard]] auto rbegin() const { return std::reverse_iterator<const T*>(end()); }
  [[nodiscard]] auto rend() { return std::reverse_iterator<T*>(begin()); }
  [[nodiscard]] auto rend() const { return std::reverse_iterator<const T*>(begin()); }
  [[nodiscard]] std::size_t size() const { return elements_.size() - gone_; }
  [[nodiscard]] bool empty() const { return elements_.size() == gone_; }
  [[nodiscard]] T& operator[](std::size_t i) { return begin()[i]; }
  [[nodiscard]] const T& operator[](std::size_t i) const { return begin()[i]; }
  [[nodiscard]] T& front() { return *begin(); }
  [[nodiscard]] const T& front() const { return *begin(); }
  [[nodiscard]] T& back() { return elements_.back(); }
  [[nodiscard]] const T& back() const { return elements_.back(); }

  void push_back(const T& value) { elements_.push_back(value); }
  void push_back(T&& value) { elements_.push_back(std::move(value)); }
  template <class... Args>
  T& emplace_back(Args&&... args) {
    return elements_.emplace_back(std::forward<Args>(args)...);
  }
  void push_front(T value) {
    if (gone_ != 0) {
      elements_[--gone_] = std::move(value);
    } else {
      elements_.insert(elements_.begin(), std::move(value));
    }
  }
  void pop_front() {
    if constexpr (!std::is_trivially_destructible_v<T>) {
      [[maybe_unused]] const T left(std::move(front()));  // what it holds ends now
    }
    if (++gone_ > elements_.size() / 2) {
      elements_.erase(elements_.begin(), begin());
      gone_ = 0;
    }
  }
  void pop_back() { elements_.pop_back(); }
  void clear() {
    elements_.clear();
    gone_ = 0;
  }
  void resize(std::size_t n) { elements_.resize(gone_ + n); }
  void reserve(std::size_t n) { elements_.reserve(gone_ + n); }
  T* insert(const T* before, T value) { return elements_.insert(before, std::move(value)); }
  T* erase(const T* what) {
    if (what == begin()) {
      pop_front();
      return begin();
    }
    return elements_.erase(what);
  }
  T* erase(const T* first, const T* last) { return elements_.erase(first, last); }
  void swap(fifo& other) noexcept {
    elements_.swap(other.elements_);
    std::swap(gone_, other.gone_);
  }

 private:
  sequence<T> elements_{};
  std::size_t gone_ = 0;  // of those, from the first one on
};

}  // namespace v0
}  // namespace deepum
