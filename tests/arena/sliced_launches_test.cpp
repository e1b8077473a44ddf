// Launches in slices on the simulated GPU, on both kinds of memory: the same bits, within the budget, at the rate of
// the link, and the same slices in each step.

#include "arena/sliced_program.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace sliced_launches_test {

using namespace slices_of_tests;

TEST_CASE_TEMPLATE("a launch of more than the budget runs in slices and has the bits of the whole one", Memory, managed,
                   paged) {
  // Arrays that end within a block, so that slices share blocks, and one that fits.
  for (const std::size_t n : {words_of(12_MiB), words_of(12_MiB) - 1, words_of(12_MiB) + 1, words_of(1_MiB), per_block,
                              per_block + 1, per_block - 1, std::size_t{1}}) {
    CAPTURE(n);
    machine<Memory> m;
    word* const y = m.filled(n, 5);
    word* const x = m.filled(n, 77);
    const std::uint64_t before = m.launches();
    launch_add(m, y, x, n);
    CHECK((m.launches() - before > 1) == (n > words_of(4_MiB)));
    CHECK(m.read(y, n) == added(n, 5, 77));
  }
}

TEST_CASE_TEMPLATE("grids of one more or less than whole slices", Memory, managed, paged) {
  for (const unsigned blocks : {1U, 2U, 3U, 4U, 5U, 7U, 8U, 9U}) {
    CAPTURE(blocks);
    machine<Memory> m;
    constexpr std::size_t row = words_of(1_MiB) + 17;  // rows end within blocks of memory
    const std::size_t n = blocks * row - 5;
    word* const y = m.filled(n, 3);
    const sim::kernel scale{
        [](grid_slice at, word* p, std::size_t words) {
          at.for_each_block([&](dim b) {
            for (std::size_t i = b.y * row + b.x * 64; i < std::min(words, (b.y + 1) * row); i += 128)
              p[i] = p[i] * 3 + at.grid.y;
          });
        },
        [](sim::work& w, const grid_slice& at, word* p, std::size_t words) {
          const std::size_t begin = at.begin.y * row;
          w.updates(p + begin, (std::min(words, (at.begin.y + at.blocks.y) * row) - begin) * sizeof(word));
        }};
    m.s->launch("scale", dim{2, blocks}, 256, 0, sliced(scale), by_y(updates(y, n), row), n);
    std::vector<word> expected(n);
    for (std::size_t i = 0; i < n; ++i) {
      expected[i] = 3 + static_cast<word>(i);
      expected[i] = i % row % 64 == 0 ? expected[i] * 3 + blocks : expected[i];
    }
    CHECK(m.read(y, n) == expected);
  }
}

TEST_CASE_TEMPLATE("a stencil reads beyond its slice; what is overwritten is not brought", Memory, managed, paged) {
  machine<Memory> m(16_MiB);
  const std::size_t n = words_of(16_MiB) - 3;
  word* const out = m.filled(n, 0);
  word* const in = m.filled(n, 9);
  m.s->synchronize();
  const sim::kernel stencil{[](grid_slice at, word* o, const word* i, std::size_t words) {
                              const range r = words_in(at, words);
                              for (std::size_t k = r.begin; k < r.begin + r.count; ++k) {
                                o[k] = (k >= 3 ? i[k - 3] : 0) + (k + 3 < words ? i[k + 3] : 0);
                              }
                            },
                            [](sim::work& w, const grid_slice& at, word* o, const word* i, std::size_t words) {
                              const range r = words_in(at, words);
                              const std::size_t from = r.begin - std::min<std::size_t>(r.begin, 3);
                              w.reads(i + from, (std::min(words, r.begin + r.count + 3) - from) * sizeof(word))
                                  .overwrites(o + r.begin, r.count * sizeof(word));
                            }};
  const std::uint64_t before = m.memory.statistics().in().all_bytes();
  m.s->launch("stencil", static_cast<unsigned>((n - 1) / per_block + 1), 256, 0, sliced(stencil),
              by_x(overwrites(out, n), per_block), by_x(reads(in, n), per_block, 3), n);
  std::vector<word> expected(n);
  for (std::size_t k = 0; k < n; ++k) {
    expected[k] = (k >= 3 ? 9 + static_cast<word>(k - 3) : 0) + (k + 3 < n ? 9 + static_cast<word>(k + 3) : 0);
  }
  m.s->synchronize();
  if constexpr (std::is_same_v<Memory, paged>) {  // the last block, of which three words are others'
    CHECK(m.memory.statistics().in().all_bytes() - before <= (16_MiB + 4_MiB).count);
  }
  CHECK(m.read(out, n) == expected);
}

TEST_CASE_TEMPLATE("what every slice may write is kept from slice to slice", Memory, managed, paged) {
  machine<Memory> m;
  const std::size_t n = words_of(16_MiB);
  word* const sums = m.filled(64, 100);
  word* const places = m.filled(n / per_block, 0);
  word* const x = m.filled(n, 1);
  const sim::kernel sum{[](grid_slice at, word* s, word* where, const word* v, std::size_t words) {
                          const range r = words_in(at, words);
                          for (std::size_t k = r.begin; k < r.begin + r.count; k += 64)
                            s[k / 64 % 64] += v[k];
                          at.for_each_block([&](dim b) { where[b.x] = b.x + 1; });
                        },
                        [](sim::work& w, const grid_slice& at, word* s, word* where, const word* v, std::size_t words) {
                          const range r = words_in(at, words);
                          w.updates(s, 64 * sizeof(word)).updates(where, words / per_block * sizeof(word));
                          w.reads(v + r.begin, r.count * sizeof(word));
                        }};
  // `places` is overwritten by the whole launch, by no slice.
  m.s->launch("sum", static_cast<unsigned>(n / per_block), 256, 0, sliced(sum), everywhere(updates(sums, 64)),
              everywhere(overwrites(places, n / per_block)), by_x(reads(x, n), per_block), n);
  CHECK(m.launches() > 2);
  std::vector<word> expected(64, 100);
  for (std::size_t k = 0; k < 64; ++k) {
    expected[k] += static_cast<word>(k);
  }
  for (std::size_t k = 0; k < n; k += 64) {
    expected[k / 64 % 64] += 1 + static_cast<word>(k);
  }
  CHECK(m.read(sums, 64) == expected);
  const std::vector<word> seen = m.read(places, n / per_block);
  for (std::size_t b = 0; b < seen.size(); ++b) {
    REQUIRE(seen[b] == b + 1);
  }
}

TEST_CASE_TEMPLATE("a function may tell the parts: a triangle", Memory, managed, paged) {
  machine<Memory> m;
  constexpr unsigned rows = 3000;
  const std::size_t n = std::size_t{rows} * (rows + 1) / 2;
  word* const p = m.filled(n, 0);
  word* const q = m.filled(n, 0);
  const auto begin_of = [](std::size_t row) { return row * (row + 1) / 2; };
  const auto part = [begin_of](const grid_slice& s) {
    return element_range{begin_of(s.begin.x), begin_of(s.begin.x + s.blocks.x) - begin_of(s.begin.x)};
  };
  const sim::kernel rows_of{
      [begin_of](grid_slice at, word* a, const word* b) {
        at.for_each_block([&](dim r) {
          for (std::size_t i = begin_of(r.x); i < begin_of(r.x + 1); ++i)
            a[i] = b[i] + r.x;
        });
      },
      [part](sim::work& w, const grid_slice& at, word* a, const word* b) {
        const element_range r = part(at);
        w.overwrites(a + r.begin, r.count * sizeof(word)).reads(b + r.begin, r.count * sizeof(word));
      }};
  m.s->launch("triangle", rows, 256, 0, sliced(rows_of), by_slice(overwrites(p, n), part), by_slice(reads(q, n), part));
  CHECK(m.launches() > 2);
  const std::vector<word> got = m.read(p, n);
  std::size_t i = 0;
  bool right = true;
  for (unsigned r = 0; r < rows; ++r) {
    for (unsigned k = 0; k <= r; ++k, ++i) {
      right = right && got[i] == i + r;
    }
  }
  CHECK(right);
  const std::string wrong = failure(status::invalid_argument, [&] {
    m.s->launch("triangle", rows, 256, 0, sliced(rows_of),
                by_slice(overwrites(p, n),
                         [&](const grid_slice&) {
                           return element_range{1, n};
                         }),
                by_slice(reads(q, n), part));
  });
  CHECK(mentions(wrong, "launch 'triangle': argument 1, which it describes by_slice, has"));
}

TEST_CASE("a launch of three times the budget is within a tenth of its bound, and one that recurs is planned") {
  machine<paged> m(64_MiB);
  const std::size_t n = words_of(96_MiB);
  word* const y = m.filled(n, 1);
  word* const x = m.filled(n, 2);
  m.s->synchronize();
  const double link = sim::find_profile("h200_pcie5").pinned_both;
  std::vector<double> times;
  std::vector<std::uint64_t> in;
  std::uint64_t late = 0;
  for (int step = 0; step < 7; ++step) {
    const statistics before = m.memory.statistics();
    const nanoseconds began = m.gpu.now();
    launch_add(m, y, x, n);
    m.s->synchronize();
    const statistics did = m.memory.statistics() - before;
    times.push_back(static_cast<double>((m.gpu.now() - began).count()) / 1e9);
    in.push_back(did.in().all_bytes());
    late = did.faults;
  }
  // All of it comes once: nothing is there at the beginning.
  CHECK(in.front() == (192_MiB).count);
  CHECK(times.front() < 1.1 * static_cast<double>((192_MiB).count) / link);
  // Later two thirds are the least.
  CHECK(times.back() < 1.1 * static_cast<double>((128_MiB).count) / link);
  CHECK(in.back() < (128_MiB).count * 11 / 10);
  CHECK(late < 8);
}

TEST_CASE("slices are the same ones in each step, though the budget varies a little") {
  machine<paged> m;
  const std::size_t n = words_of(12_MiB);
  word* const y = m.filled(n, 5);
  word* const x = m.filled(n, 77);
  std::vector<std::uint64_t> counts;
  for (const bytes budget : {16_MiB, 18_MiB, 14_MiB, 6_MiB, 16_MiB}) {
    m.memory.set_budget(budget);
    const std::uint64_t before = m.launches();
    launch_add(m, y, x, n);
    counts.push_back(m.launches() - before);
  }
  m.s->synchronize();
  CHECK(counts[1] == counts[0]);
  CHECK(counts[2] == counts[0]);
  CHECK(counts[3] >= counts[0]);
  CHECK(counts[4] == counts[3]);
}

TEST_CASE("a recorded launch is one, and so is one that is captured; a layer and a call may have slices") {
  machine<paged> m;
  const std::size_t n = words_of(4_MiB);
  word* const y = m.filled(n, 5);
  word* const x = m.filled(n, 77);
  const std::size_t large = words_of(12_MiB);
  word* const p = m.filled(large, 5);
  word* const q = m.filled(large, 77);
  {
    const auto at = m.s->layer({.layer = 1});
    launch_add(m, p, q, large);
  }
  const std::uint64_t before = m.launches();
  m.s->call("outer", {updates(y, n)}, [&](sim::stream&) { launch_add(m, y, x, n); });
  CHECK(m.launches() == before + 2);
  CHECK(m.read(p, large) == added(large, 5, 77));
  CHECK(m.read(y, n) == added(n, 5, 77));
}

TEST_CASE("slices fit beside what a hold keeps, and may use it") {
  machine<paged> m(16_MiB);
  const std::size_t kept_words = words_of(8_MiB);
  word* const kept = m.filled(kept_words, 1);
  const std::size_t n = words_of(6_MiB);
  word* const y = m.filled(n, 5);
  word* const x = m.filled(n, 77);
  const auto held = m.memory.hold({reads(kept, kept_words)});
  const std::uint64_t before = m.launches();
  launch_add(m, y, x, n);  // fits the budget, and not beside the hold
  CHECK(m.launches() - before > 1);
  CHECK(m.read(y, n) == added(n, 5, 77));
  const sim::kernel look_up{[](grid_slice at, word* a, const word* table, std::size_t words) {
                              const range r = words_in(at, words);
                              for (std::size_t i = r.begin; i < r.begin + r.count; ++i)
                                a[i] = table[i % 1000];
                            },
                            [](sim::work& w, const grid_slice& at, word* a, const word* table, std::size_t words) {
                              const range r = words_in(at, words);
                              w.overwrites(a + r.begin, r.count * sizeof(word)).reads(table, 1000 * sizeof(word));
                            }};
  m.s->launch("look_up", static_cast<unsigned>(n / per_block), 256, 0, sliced(look_up),
              by_x(overwrites(y, n), per_block), everywhere(reads(kept, kept_words)), n);
  CHECK(m.read(y, 1000) == m.read(kept, 1000));
}

}  // namespace sliced_launches_test
