#pragma once

#include <deepum/core/sequence.hpp>
#include <deepum/separate.hpp>

#include <cstddef>
#include <cstring>
#include <limits>
#include <new>

namespace deepum {
inline namespace v0 {
namespace detail {

[[nodiscard]] DEEPUM_SEPARATE void* allocate_elements(std::size_t n, std::size_t each) {
  if (n > static_cast<std::size_t>(std::numeric_limits<std::ptrdiff_t>::max()) / each) {
    throw std::bad_alloc();
  }
  return ::operator new(n* each);
}

[[gnu::noinline]] DEEPUM_SEPARATE void set_byte_capacity(sequence_memory& s, std::size_t capacity, std::size_t each) {
  void* const to = allocate_elements(capacity, each);
  if (s.size != 0) {
    std::memcpy(to, s.first, s.size * each);
  }
  ::operator delete(s.first);
  s.first = to;
  s.capacity = capacity;
}

[[gnu::noinline]] DEEPUM_SEPARATE void grow_bytes(sequence_memory& s, std::size_t least, std::size_t each) {
  set_byte_capacity(s, grown_capacity(s, least), each);
}

[[gnu::noinline]] DEEPUM_SEPARATE void assign_bytes(sequence_memory& s, const void* from, std::size_t n,
                                                    std::size_t each) {
  if (n > s.capacity) {
    void* const to = allocate_elements(n, each);
    ::operator delete(s.first);
    s.first = to;
    s.capacity = n;
  }
  if (n != 0) {
    std::memcpy(s.first, from, n * each);
  }
  s.size = n;
}

[[nodiscard, gnu::noinline]] DEEPUM_SEPARATE void* open_bytes(sequence_memory& s, std::size_t at, std::size_t n,
                                                              std::size_t each) {
  if (n > s.capacity - s.size) {
    grow_bytes(s, s.size + n, each);
  }
  std::byte* const gap = static_cast<std::byte*>(s.first) + at * each;
  if (at != s.size) {
    std::memmove(gap + n * each, gap, (s.size - at) * each);
  }
  s.size += n;
  return gap;
}

[[gnu::noinline]] DEEPUM_SEPARATE void close_bytes(sequence_memory& s, std::size_t at, std::size_t n,
                                                   std::size_t each) noexcept {
  std::byte* const gap = static_cast<std::byte*>(s.first) + at * each;
  if (n != 0 && at + n != s.size) {
    std::memmove(gap, gap + n * each, (s.size - at - n) * each);
  }
  s.size -= n;
}

}  // namespace detail
}  // namespace v0
}  // namespace deepum
