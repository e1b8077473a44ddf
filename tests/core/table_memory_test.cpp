// The tables report the heap memory that they hold. Here every allocation of the program is counted, and the two
// compared.

#include <deepum/core/block_table.hpp>
#include <deepum/core/execution_id_table.hpp>
#include <deepum/core/execution_table.hpp>
#include <deepum/core/footprint.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <random>

namespace {

thread_local std::uint64_t heap_bytes = 0;
constexpr std::size_t header_size = alignof(std::max_align_t);

}  // namespace

void* operator new(std::size_t size) {
  void* const block = std::malloc(size + header_size);
  if (block == nullptr) {
    throw std::bad_alloc{};
  }
  *static_cast<std::size_t*>(block) = size;
  heap_bytes += size;
  return static_cast<std::byte*>(block) + header_size;
}
void operator delete(void* p) noexcept {
  if (p != nullptr) {
    void* const block = static_cast<std::byte*>(p) - header_size;
    heap_bytes -= *static_cast<std::size_t*>(block);
    std::free(block);
  }
}
void operator delete(void* p, std::size_t) noexcept { operator delete(p); }

namespace table_memory_test {

using namespace deepum;

/// Bytes that were allocated and not freed since it was made.
class held_since {
 public:
  [[nodiscard]] bytes operator()() const { return bytes{heap_bytes - before_}; }

 private:
  std::uint64_t before_ = heap_bytes;
};

TEST_CASE("the execution ID table reports the memory it holds") {
  for (const std::uint32_t limit : {0U, 100U}) {
    const held_since held;
    execution_id_table table{recognition::exact, limit};
    for (std::uint64_t i = 0; i < 1000; ++i) {
      table.identify({.exact = i * 0x9e3779b97f4a7c15ULL, .shape = i});
      REQUIRE(table.memory() == held());
    }
    CHECK(table.memory() > bytes{table.size() * sizeof(launch_signature)});
    CHECK(table.memory() < bytes{table.size() * 6 * sizeof(launch_signature)});
  }
}

TEST_CASE("the execution correlation table reports the memory it holds") {
  for (const auto how : {execution_table::match::published, execution_table::match::longest_suffix}) {
    const held_since held;
    execution_table table{how, 500};
    std::mt19937_64 random{1};
    execution_context context;
    for (int i = 0; i < 2000; ++i) {
      const execution_id next{static_cast<std::uint32_t>(1 + random() % 20)};
      table.record(context, next);
      context.push(next);
      if (i % 100 == 0) {
        table.forget(next);
      }
      REQUIRE(table.memory() == held());
    }
    const std::uint64_t least = sizeof(execution_context) + sizeof(execution_id);
    CHECK(table.memory() > bytes{table.records() * least});
    CHECK(table.memory() < bytes{table.records() * least * 20});
  }
}

TEST_CASE("the block table reports the memory it holds, which stays near that of the paper when it is full") {
  const held_since held;
  block_table table;
  for (std::uint32_t b = 0; b < 3 * 2048; ++b) {
    table.record(block_id{b}, block_id{b + 1});
    REQUIRE(table.memory() == held());
  }
  CHECK(table.memory() >= block_table::full_memory(table.shape()));
  CHECK(table.memory() < 2 * block_table::full_memory(table.shape()));
}

TEST_CASE("footprints report the memory they hold") {
  const held_since held;
  footprint_table table;
  std::mt19937_64 random{1};
  for (int i = 0; i < 2000; ++i) {
    const execution_id id{static_cast<std::uint32_t>(1 + random() % 50)};
    if (random() % 20 == 0) {
      table.forget(id);
    } else {
      table.at(id).touch(
          {block_id{static_cast<std::uint32_t>(random() % 500)}, static_cast<std::uint32_t>(random() % 9)},
          random() % 2 != 0 ? access::read : access::update, random() % 2 != 0);
    }
    REQUIRE(table.memory() == held());
  }
}

}  // namespace table_memory_test
