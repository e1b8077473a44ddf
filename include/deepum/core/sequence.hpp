#pragma once

#include <cstddef>
#include <initializer_list>
#include <iterator>
#include <new>
#include <type_traits>
#include <utility>

namespace deepum {
inline namespace v0 {
namespace detail {

/// The memory of a `sequence`, whatever its elements are.
struct sequence_memory {
  void* first = nullptr;
  std::size_t size = 0;      // elements
  std::size_t capacity = 0;  // elements
};

/// Memory for elements. @param each  Bytes of one. @errors  `std::bad_alloc`.
[[nodiscard]] void* allocate_elements(std::size_t n, std::size_t each);
/// The capacity to grow to where `least` elements have to fit.
[[nodiscard]] inline std::size_t grown_capacity(const sequence_memory& s, std::size_t least) {
  return s.size * 2 < least ? least : s.size * 2;
}

/// @name Elements that are bytes
/// One function for all types whose elements may be copied byte by byte. @param each  Bytes of an element.
/// @errors  `std::bad_alloc`; then nothing has changed.
/// @{

/// Makes room for `capacity` elements, at least as many as there are. Those stay.
void set_byte_capacity(sequence_memory& s, std::size_t capacity, std::size_t each);
/// The same with room to grow for `least` elements.
void grow_bytes(sequence_memory& s, std::size_t least, std::size_t each);
/// Replaces all elements. @param from  `n` elements, none of them in `s`.
void assign_bytes(sequence_memory& s, const void* from, std::size_t n, std::size_t each);
/// Makes room for `n` elements before the one at `at`, which moves up with all behind it.
/// @returns  Where they go; they hold anything.
[[nodiscard]] void* open_bytes(sequence_memory& s, std::size_t at, std::size_t n, std::size_t each);
/// Takes `n` elements out, from the one at `at` on.
void close_bytes(sequence_memory& s, std::size_t at, std::size_t n, std::size_t each) noexcept;
/// @}

}  // namespace detail

/// A growable array: `std::vector` as far as the library uses it, made for headers. The compiler has a few functions to
/// make for an element type instead of fifty, and for types that are copied byte by byte it shares those that move
/// elements; its iterators are pointers, so that algorithms are shared among all containers of one type.
///
/// An element that moves may not throw. Iterators and references are valid until it grows. Members that it shares with
/// `std::vector` do the same at the same cost.
template <class T>
class sequence {
  static constexpr bool plain = std::is_trivially_copyable_v<T>;
  static constexpr std::size_t element_bytes =
      sizeof(T);  // NOLINT(bugprone-sizeof-expression): pointers are elements too
  static_assert(alignof(T) <= __STDCPP_DEFAULT_NEW_ALIGNMENT__, "memory is that of the plain operator new");

 public:
  using value_type = T;
  using size_type = std::size_t;
  using difference_type = std::ptrdiff_t;
  using reference = T&;
  using const_reference = const T&;
  using iterator = T*;
  using const_iterator = const T*;

  sequence() = default;
  explicit sequence(std::size_t elements) : sequence() { resize(elements); }
  sequence(std::size_t elements, const T& each) : sequence() { resize(elements, each); }
  sequence(std::initializer_list<T> these) : sequence() { append(these.begin(), these.end()); }
  template <std::input_iterator Iterator>
  sequence(Iterator begin, Iterator end) : sequence() {
    append(begin, end);
  }
  sequence(const sequence& other) : sequence() { append_copies(other); }
  sequence(sequence&& other) noexcept : memory_(std::exchange(other.memory_, {})) {}
  sequence& operator=(const sequence& other) {
    if (this != &other) {
      clear();
      append_copies(other);
    }
    return *this;
  }
  sequence& operator=(sequence&& other) noexcept {
    if (this != &other) {
      sequence old(std::move(*this));
      memory_ = std::exchange(other.memory_, {});
    }
    return *this;
  }
  ~sequence() {
    clear();
    ::operator delete(memory_.first);
  }
  friend void swap(sequence& a, sequence& b) noexcept { std::swap(a.memory_, b.memory_); }
  void swap(sequence& other) noexcept { std::swap(memory_, other.memory_); }

  [[nodiscard]] T* data() { return static_cast<T*>(memory_.first); }
  [[nodiscard]] const T* data() const { return static_cast<const T*>(memory_.first); }
  [[nodiscard]] T* begin() { return data(); }
  [[nodiscard]] const T* begin() const { return data(); }
  [[nodiscard]] T* end() { return data() + memory_.size; }
  [[nodiscard]] const T* end() const { return data() + memory_.size; }
  [[nodiscard]] auto rbegin() { return std::reverse_iterator<T*>(end()); }
  [[nodiscard]] auto rbegin() const { return std::reverse_iterator<const T*>(end()); }
  [[nodiscard]] auto rend() { return std::reverse_iterator<T*>(begin()); }
  [[nodiscard]] auto rend() const { return std::reverse_iterator<const T*>(begin()); }
  [[nodiscard]] std::size_t size() const { return memory_.size; }
  [[nodiscard]] std::size_t capacity() const { return memory_.capacity; }
  [[nodiscard]] bool empty() const { return memory_.size == 0; }
  [[nodiscard]] T& operator[](std::size_t i) { return data()[i]; }
  [[nodiscard]] const T& operator[](std::size_t i) const { return data()[i]; }
  [[nodiscard]] T& front() { return *data(); }
  [[nodiscard]] const T& front() const { return *data(); }
  [[nodiscard]] T& back() { return end()[-1]; }
  [[nodiscard]] const T& back() const { return end()[-1]; }

  void push_back(const T& value) { emplace_back(value); }
  void push_back(T&& value) { emplace_back(std::move(value)); }
  template <class... Args>
  T& emplace_back(Args&&... args) {
    if (memory_.size == memory_.capacity) [[unlikely]] {
      T made(std::forward<Args>(args)...);  // before what it may be made of moves
      grow(memory_.size + 1);
      return add(std::move(made));
    }
    return add(std::forward<Args>(args)...);
  }
  void pop_back() { drop_from(memory_.size - 1); }
  void clear() noexcept { drop_from(0); }
  void reserve(std::size_t n) {
    if (n > memory_.capacity) {
      set_capacity(n);
    }
  }
  void resize(std::size_t n) {
    make_room(n);
    while (memory_.size < n) {
      add();
    }
    drop_from(n);
  }
  /// @param value  Not one of its own elements.
  void resize(std::size_t n, const T& value) {
    make_room(n);
    while (memory_.size < n) {
      add(value);
    }
    drop_from(n);
  }
  void shrink_to_fit() {
    if (memory_.size != memory_.capacity) {
      set_capacity(memory_.size);
    }
  }
  /// @param value  Not one of its own elements.
  void assign(std::size_t n, const T& value) {
    clear();
    resize(n, value);
  }
  /// What is assigned is none of its own elements.
  template <std::input_iterator Iterator>
  void assign(Iterator begin, Iterator end) {
    clear();
    append(begin, end);
  }
  /// Adds elements that are not its own.
  template <std::input_iterator Iterator>
  void append(Iterator begin, Iterator end) {
    for (; begin != end; ++begin) {
      emplace_back(*begin);
    }
  }
  T* insert(const T* before, T value) {
    const auto at = static_cast<std::size_t>(before - data());
    if (before == end()) {
      emplace_back(std::move(value));
    } else if constexpr (plain) {
      ::new (open(at, 1)) T(value);
    } else {
      emplace_back(std::move(value));
      for (std::size_t i = memory_.size - 1; i != at; --i) {
        std::swap(data()[i], data()[i - 1]);
      }
    }
    return data() + at;
  }
  /// @param value  Not one of its own elements.
  T* insert(const T* before, std::size_t n, const T& value)
    requires plain
  {
    T* const gap = open(static_cast<std::size_t>(before - data()), n);
    for (std::size_t i = 0; i != n; ++i) {
      ::new (gap + i) T(value);
    }
    return gap;
  }
  /// What is inserted is none of its own elements.
  template <std::forward_iterator Iterator>
  T* insert(const T* before, Iterator first, Iterator last)
    requires plain
  {
    T* const gap =
        open(static_cast<std::size_t>(before - data()), static_cast<std::size_t>(std::distance(first, last)));
    for (T* to = gap; first != last; ++first, ++to) {
      ::new (to) T(*first);
    }
    return gap;
  }
  T* erase(const T* what) { return erase(what, what + 1); }
  T* erase(const T* first, const T* last) {
    const auto at = static_cast<std::size_t>(first - data());
    const auto n = static_cast<std::size_t>(last - first);
    if constexpr (plain) {
      detail::close_bytes(memory_, at, n, element_bytes);
    } else if (n != 0) {
      for (std::size_t i = at + n; i != memory_.size; ++i) {
        data()[i - n] = std::move(data()[i]);
      }
      drop_from(memory_.size - n);
    }
    return data() + at;
  }

  friend bool operator==(const sequence& a, const sequence& b) {
    if (a.size() != b.size()) {
      return false;
    }
    for (std::size_t i = 0; i != a.size(); ++i) {
      if (!(a[i] == b[i])) {
        return false;
      }
    }
    return true;
  }

 private:
  T* open(std::size_t at, std::size_t n) { return static_cast<T*>(detail::open_bytes(memory_, at, n, element_bytes)); }
  /// There is room.
  template <class... Args>
  T& add(Args&&... args) {
    T* const made = ::new (static_cast<void*>(end())) T(std::forward<Args>(args)...);
    ++memory_.size;
    return *made;
  }
  void drop_from(std::size_t n) noexcept {
    if constexpr (!std::is_trivially_destructible_v<T>) {
      for (std::size_t i = memory_.size; i > n; --i) {
        data()[i - 1].~T();
      }
    }
    memory_.size = n;
  }
  void append_copies(const sequence& other) {
    if constexpr (plain) {
      detail::assign_bytes(memory_, other.data(), other.size(), element_bytes);
    } else {
      reserve(other.size());
      for (const T& each : other) {
        add(each);
      }
    }
  }
  void make_room(std::size_t n) {
    if (n > memory_.capacity) {
      grow(n);
    }
  }
  void grow(std::size_t least) {
    if constexpr (plain) {
      detail::grow_bytes(memory_, least, element_bytes);
    } else {
      set_capacity(detail::grown_capacity(memory_, least));
    }
  }
  /// @param n  No fewer than there are.
  void set_capacity(std::size_t n) {
    if constexpr (plain) {
      detail::set_byte_capacity(memory_, n, element_bytes);
    } else {
      move_to_capacity(n);
    }
  }
  [[gnu::noinline]] void move_to_capacity(std::size_t n) {
    static_assert(std::is_nothrow_move_constructible_v<T>, "an element that moves may not throw");
    T* const to = static_cast<T*>(detail::allocate_elements(n, element_bytes));
    for (std::size_t i = 0; i != memory_.size; ++i) {
      ::new (static_cast<void*>(to + i)) T(std::move(data()[i]));
      data()[i].~T();
    }
    ::operator delete(memory_.first);
    memory_.first = to;
    memory_.capacity = n;
  }

  detail::sequence_memory memory_{};
};

/// Takes out all elements for which `leaves(element)`. @returns  How many. Cost: linear.
template <class T, class Predicate>
std::size_t erase_if(sequence<T>& s, Predicate leaves) {
  T* to = s.begin();
  for (T& each : s) {
    if (!leaves(std::as_const(each))) {
      if (to != &each) {
        *to = std::move(each);
      }
      ++to;
    }
  }
  const auto left = static_cast<std::size_t>(s.end() - to);
  s.erase(to, s.end());
  return left;
}
/// Takes out all elements that equal a value. @returns  How many. Cost: linear.
template <class T, class Value>
std::size_t erase(sequence<T>& s, const Value& value) {
  return erase_if(s, [&](const T& each) { return each == value; });
}

}  // namespace v0
}  // namespace deepum

#ifndef DEEPUM_SEPARATE_COMPILATION
#include <deepum/core/impl/sequence.hpp>  // what it declares
#endif
