// Counts the heap memory of a program. It brings an operator new of its own: one file of a program includes it, and is
// compiled by itself (see tests/CMakeLists.txt).
#pragma once

#include <deepum/units.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>

namespace deepum_test {

inline thread_local std::uint64_t heap_bytes = 0;  // taken by this thread and not given back by it
inline thread_local std::uint64_t heap_calls = 0;  // of operator new, by this thread

/// Bytes that this thread has allocated and not freed since it was made.
class held_since {
 public:
  [[nodiscard]] deepum::bytes operator()() const { return deepum::bytes{heap_bytes - before_}; }

 private:
  std::uint64_t before_ = heap_bytes;
};

inline constexpr std::size_t counted_header = alignof(std::max_align_t);

}  // namespace deepum_test

void* operator new(std::size_t size) {
  void* const block = std::malloc(size + deepum_test::counted_header);
  if (block == nullptr) {
    throw std::bad_alloc{};
  }
  *static_cast<std::size_t*>(block) = size;
  deepum_test::heap_bytes += size;
  ++deepum_test::heap_calls;
  return static_cast<std::byte*>(block) + deepum_test::counted_header;
}
void operator delete(void* p) noexcept {
  if (p != nullptr) {
    void* const block = static_cast<std::byte*>(p) - deepum_test::counted_header;
    deepum_test::heap_bytes -= *static_cast<std::size_t*>(block);
    std::free(block);
  }
}
void operator delete(void* p, std::size_t) noexcept { operator delete(p); }

// A sanitizer brings all of these; each that is missing here would give memory without the header.
void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  try {
    return operator new(size);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}
void* operator new[](std::size_t size) { return operator new(size); }
void* operator new[](std::size_t size, const std::nothrow_t& tag) noexcept { return operator new(size, tag); }
void operator delete(void* p, const std::nothrow_t&) noexcept { operator delete(p); }
void operator delete[](void* p) noexcept { operator delete(p); }
void operator delete[](void* p, std::size_t) noexcept { operator delete(p); }
void operator delete[](void* p, const std::nothrow_t&) noexcept { operator delete(p); }
