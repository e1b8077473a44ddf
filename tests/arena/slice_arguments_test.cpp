// Elementwise work in pieces: what each argument is in a piece.

#include "support/failure.hpp"
#include <deepum/deepum.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <string>
#include <tuple>
#include <vector>

namespace slice_arguments_test {

using namespace deepum;
using namespace deepum::literals;
using deepum_test::failure;
using deepum_test::mentions;
using paged = sim::paged_memory;
using managed = sim::managed_memory;

template <class Memory>
struct machine {
  machine()
      : gpu(sim::find_profile("h200_pcie5"), {.memory = 256_MiB}),
        memory(gpu, {.capacity = 512_MiB, .device_budget = 12_MiB, .log = {}}),
        s(memory) {}
  template <class T>
  T* filled(std::size_t n, T from) {
    T* const p = memory.template allocate<T>(n);
    const auto view = memory.host_overwrite(p, n);
    for (std::size_t i = 0; i < n; ++i) {
      view[i] = static_cast<T>(from + static_cast<T>(i % 101));
    }
    return p;
  }
  template <class T>
  std::vector<T> read(const T* p, std::size_t n) {
    s.synchronize();
    const auto view = memory.host_read(p, n);
    return {view.begin(), view.end()};
  }

  sim::device gpu;
  arena<Memory> memory;
  stream<Memory> s;
};

/// One step of an optimizer: arrays of several types, a table that all elements look up, two words of `v` an element.
void step(float* w, std::uint16_t* half, float* v, const std::uint16_t* g, const float* table, int n, float rate) {
  for (int i = 0; i < n; ++i) {
    v[2 * i] += static_cast<float>(g[i]);
    v[2 * i + 1] = v[2 * i] * 0.5F;
    w[i] -= rate * v[2 * i + 1] * table[i % 4];
    half[i] = static_cast<std::uint16_t>(w[i]);
  }
}
const sim::kernel kernel{
    step, [](sim::work& k, float* w, std::uint16_t* half, float* v, const std::uint16_t* g, const float* table, int n,
             float) {
      const auto count = static_cast<std::size_t>(n);
      k.updates(w, count * 4).overwrites(half, count * 2).updates(v, count * 8).reads(g, count * 2);
      k.reads(table, 16);
    }};

TEST_CASE_TEMPLATE("each piece has its own elements of each array, and their number", Memory, managed, paged) {
  for (const std::size_t n :
       {std::size_t{1} << 20, (std::size_t{1} << 20) + 1, (std::size_t{1} << 20) - 1, std::size_t{1}}) {
    CAPTURE(n);
    machine<Memory> m;
    float* const w = m.filled(n, 1.0F);
    auto* const half = m.filled(n, std::uint16_t{0});
    float* const v = m.filled(2 * n, 2.0F);
    auto* const g = m.filled(n, std::uint16_t{3});
    float* const table = m.filled(4, 1.0F);
    std::vector<float> host_w = m.read(w, n);
    std::vector<float> host_v = m.read(v, 2 * n);
    std::vector<std::uint16_t> host_half(n);
    const std::vector<std::uint16_t> host_g = m.read(g, n);
    const std::vector<float> host_table = m.read(table, 4);
    step(host_w.data(), host_half.data(), host_v.data(), host_g.data(), host_table.data(), static_cast<int>(n), 0.25F);
    const std::uint64_t before = m.memory.statistics().launches;
    m.s.launch_in_pieces("adamw", {.elements = n}, kernel, updates(w, n), overwrites(half, n), updates(v, 2 * n),
                         reads(g, n), everywhere(reads(table, 4)), piece_size, 0.25F);
    CHECK((m.memory.statistics().launches - before > 1) == (n > 1));
    CHECK(m.read(w, n) == host_w);
    CHECK(m.read(v, 2 * n) == host_v);
    CHECK(m.read(half, n) == host_half);
  }
}

TEST_CASE("a piece may know where it begins, and its grid is as large as it needs; none has no elements") {
  machine<paged> m;
  const std::size_t n = (std::size_t{5} << 20) + 100;
  auto* const p = m.memory.allocate<std::uint32_t>(n);
  const sim::kernel iota{[](std::uint32_t* a, std::size_t first_element, std::uint32_t words) {
                           std::iota(a, a + words, static_cast<std::uint32_t>(first_element));
                         },
                         [](sim::work& k, std::uint32_t* a, std::size_t first_element, std::uint32_t words) {
                           CHECK(first_element % 768 == 0);
                           k.overwrites(a, words * std::size_t{4});
                         }};
  m.s.launch_in_pieces("iota", {.elements = n, .threads = 64, .per_block = 192}, iota, overwrites(p, n), piece_begin,
                       piece_size);
  const std::vector<std::uint32_t> got = m.read(p, n);
  std::vector<std::uint32_t> expected(n);
  std::iota(expected.begin(), expected.end(), 0U);
  CHECK(got == expected);
  const std::uint64_t before = m.memory.statistics().launches;
  CHECK_FALSE(m.s.launch_in_pieces("iota", {}, iota, overwrites(p, 0), piece_begin, piece_size).valid());
  CHECK(m.memory.statistics().launches == before);
  const detail::pieces_of pieces("iota", {.elements = n, .threads = 64, .per_block = 192});
  CHECK(pieces.grid() == dim{static_cast<unsigned>((n - 1) / 768 + 1)});
  CHECK(pieces.grid_of(detail::slice_along(pieces.grid(), grid_axis::x, 0, 3)) == dim{12});
  CHECK(pieces.grid_of(detail::slice_along(pieces.grid(), grid_axis::x, pieces.grid().x - 1, 1)) ==
        dim{static_cast<unsigned>((n % 768 - 1) / 192 + 1)});
}

TEST_CASE("a pointer of which no part is known is refused with its position") {
  machine<paged> m;
  const std::size_t n = 1000;
  float* const w = m.filled(n, 1.0F);
  const sim::kernel scale{[](float* a, const float* b, int k) { std::for_each_n(a, k, [&](float& x) { x *= *b; }); },
                          [](sim::work& k, float* a, const float* b, int words) {
                            k.updates(a, static_cast<std::size_t>(words) * 4).reads(b, 4);
                          }};
  const auto refusal = [&](const elementwise& work, auto first_array, auto second_array) {
    return failure(status::invalid_argument,
                   [&] { m.s.launch_in_pieces("scale", work, scale, first_array, second_array, piece_size); });
  };
  const elementwise all{.elements = n};
  CHECK(mentions(refusal(all, w, reads(w, n)), "launch 'scale': argument 1 is a pointer that does not say"));
  CHECK(mentions(refusal(all, by_x(updates(w, n), 1), reads(w, n)), "argument 1 is a pointer that does not say"));
  CHECK(mentions(refusal(all, updates(w, n), reads(w)), "argument 2 is an array of a size that it does not say"));
  CHECK(mentions(refusal(all, updates(w, n), reads(w, n - 1)), "argument 2 is an array of 3996 bytes"));
  CHECK(mentions(refusal({.elements = n, .threads = 0}, updates(w, n), reads(w, n)), "no grid is so large"));
  CHECK(
      mentions(refusal({.elements = std::uint64_t{1} << 60U, .per_block = 1}, updates(w, n), reads(w, n)), "no grid"));
  const auto few = [](std::uint64_t elements) {
    const sim::kernel count{[](std::uint8_t) {}, [](sim::work&, std::uint8_t) {}};
    machine<paged> other;
    other.s.launch_in_pieces("count", {.elements = elements}, count, piece_size);
    other.s.synchronize();
  };
  few(255);
  CHECK(mentions(failure(status::invalid_argument, [&] { few(256); }), "256 elements are more than the kernel's"));
  float outside = 2;
  const float* const none = nullptr;
  m.s.launch_in_pieces("scale", all, scale, updates(w, n), everywhere(&outside), piece_size);
  CHECK_NOTHROW(m.s.synchronize());
  (void)none;
}

}  // namespace slice_arguments_test
