// Which launches run in slices, and which are refused in words: what cannot be cut, wrong descriptions, checked mode,
// and memory that is being uploaded.

#include "arena/sliced_program.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace run_in_slices_test {

using namespace slices_of_tests;

TEST_CASE_TEMPLATE("what cannot be cut is one launch", Memory, managed, paged) {
  machine<Memory> m;
  const std::size_t n = words_of(2_MiB);
  word* const y = m.filled(n, 5);
  word* const x = m.filled(n, 77);
  SUBCASE("a grid of one thread block that does not fit") {
    const std::size_t large = words_of(12_MiB);
    word* const p = m.filled(large, 1);
    const sim::kernel first{[](grid_slice, word* a) { *a = 7; },
                            [](sim::work& w, const grid_slice&, word* a) { w.updates(a, sizeof(word)); }};
    const auto launch = [&] { m.s->launch("first", 1, 1, 0, sliced(first), by_x(updates(p, large), large)); };
    if constexpr (std::is_same_v<Memory, paged>) {
      CHECK(mentions(failure(status::out_of_device_memory, launch), "launch 'first' touches 12582912 bytes"));
    } else {
      launch();
      CHECK(m.read(p, 1) == std::vector<word>{7});
    }
  }
  SUBCASE("slices that do not fit, however small") {
    const std::size_t large = words_of(12_MiB);
    word* const p = m.filled(large, 1);
    const auto launch = [&] {
      m.s->launch("add", static_cast<unsigned>(n / per_block), 1024, 0, sliced(add), everywhere(updates(p, large)),
                  by_x(reads(x, n), per_block), n);
    };
    if constexpr (std::is_same_v<Memory, paged>) {
      const std::string why = failure(status::out_of_device_memory, launch);
      CHECK(mentions(why, "the smallest slices that the descriptions of its operands allow touch"));
      CHECK(mentions(why, "the budget is 8388608"));
    } else {
      launch();
      CHECK(m.launches() == 1);
    }
  }
  SUBCASE("what may touch more than it declares") {
    const sim::kernel hidden{[](grid_slice, word* a, void**) { *a = 7; },
                             [](sim::work& w, const grid_slice&, word* a, void**) { w.updates(a, sizeof(word)); }};
    void** none = nullptr;
    m.s->launch("hidden", static_cast<unsigned>(n / per_block), 1, 0, sliced(hidden), by_x(updates(y, n), per_block),
                none);
    CHECK(m.launches() == 1);
  }
  CHECK(m.read(x, 1) == std::vector<word>{77});  // all lives on
  launch_add(m, y, x, n);
  m.s->synchronize();
}

TEST_CASE("a launch is checked as a whole before its first slice runs") {
  machine<paged> m;
  const std::size_t n = words_of(12_MiB);
  word* const y = m.filled(n, 5);
  word* const x = m.filled(n, 77);
  const auto launch = [&](auto y_is, auto x_is, unsigned grid) {
    m.s->launch("add", grid, 1024, 0, sliced(add), y_is, x_is, n);
  };
  constexpr unsigned blocks = words_of(12_MiB) / per_block;
  CHECK(mentions(failure(status::invalid_argument,
                         [&] { launch(by_x(updates(y, n), per_block, 1), by_x(reads(x, n), per_block), blocks); }),
                 "launch 'add': argument 1, which it describes by_x, is written and has a halo"));
  CHECK(mentions(failure(status::invalid_argument,
                         [&] { launch(by_x(updates(y, n), per_block), by_x(reads(x, n), 4 * per_block), blocks); }),
                 "argument 2"));
  CHECK(mentions(failure(status::invalid_argument,
                         [&] { launch(by_x(updates(y, n), per_block), by_x(reads(x, n), per_block), blocks / 2); }),
                 "does not reach all"));
  CHECK(mentions(
      failure(status::invalid_argument, [&] { launch(by_x(updates(y, n), 0), by_x(reads(x, n), per_block), blocks); }),
      "has no elements for each place"));
  CHECK(mentions(failure(status::invalid_argument,
                         [&] { launch(by_x(updates(y, n + 9), per_block), by_x(reads(x, n), per_block), blocks + 1); }),
                 "launch 'add'"));
  m.memory.mark_inactive(x, bytes{n * sizeof(word)});
  CHECK(mentions(failure(status::invalid_argument, [&] { launch_add(m, y, x, n); }), "launch 'add' reads"));
  CHECK(m.launches() == 0);
  m.memory.mark_active(x, bytes{n * sizeof(word)});
  m.memory.mark_inactive(x + n / 2, bytes{n / 2 * sizeof(word)});  // what the first slices read is there
  CHECK(mentions(failure(status::invalid_argument, [&] { launch_add(m, y, x, n); }), "launch 'add' reads"));
  CHECK(m.launches() == 0);
  // Without a size an operand is its allocation.
  m.memory.mark_active(x, bytes{n * sizeof(word)});
  {
    const auto again = m.memory.host_overwrite(x, n);
    std::fill(again.begin(), again.end(), word{1});
  }
  launch(by_x(typed_operand<word>{y}, per_block), by_x(reads(x), per_block), blocks);
  CHECK(m.launches() > 1);
  m.s->synchronize();
}

TEST_CASE_TEMPLATE("checked mode runs slices though all fits, and finds what is written to another one", Memory,
                   managed, paged) {
  machine<Memory> m(64_MiB, true);
  const std::size_t n = words_of(4_MiB);
  word* const y = m.filled(n, 5);
  word* const x = m.filled(n, 77);
  const std::uint64_t before = m.launches();
  launch_add(m, y, x, n);
  CHECK(m.launches() - before == 4);
  CHECK(m.read(y, n) == added(n, 5, 77));
  const sim::kernel shifted{[](grid_slice at, word* a, std::size_t words) {
                              const range r = words_in(at, words);
                              a[(r.begin + r.count) % words] = 1;  // the first of the next slice
                            },
                            [](sim::work& w, const grid_slice& at, word* a, std::size_t words) {
                              const range r = words_in(at, words);
                              w.updates(a + r.begin, r.count * sizeof(word));
                              w.updates(a + (r.begin + r.count) % words, sizeof(word));
                            }};
  const std::size_t small = words_of(256_KiB);  // all slices are in one block of memory
  const auto launch = [&] {
    m.s->launch("shifted", static_cast<unsigned>(small / per_block), 256, 0, sliced(shifted),
                by_x(updates(y, small), per_block), small);
  };
  CHECK(mentions(failure(status::wrong_declaration, launch),
                 "launch 'shifted' wrote to elements that belong to another slice"));
}

TEST_CASE_TEMPLATE("a slice begins when its part of an upload has come, though all fits", Memory, managed, paged) {
  const std::size_t n = words_of(64_MiB);
  std::vector<word> source(n);
  for (std::size_t i = 0; i < n; ++i) {
    source[i] = static_cast<word>(i);
  }
  // Computes about as long as its words travel.
  const sim::kernel triple{[](grid_slice at, word* a, std::size_t words) {
                             const range r = words_in(at, words);
                             for (std::size_t i = r.begin; i < r.begin + r.count; ++i)
                               a[i] *= 3;
                           },
                           [](sim::work& w, const grid_slice& at, word* a, std::size_t words) {
                             const range r = words_in(at, words);
                             w.updates(a + r.begin, r.count * sizeof(word)).flops(4e3 * static_cast<double>(r.count));
                           }};
  const auto run = [&](bool parts, bool once_more) {
    machine<Memory> m(128_MiB);
    word* const a = m.filled(n, 5);
    m.s->synchronize();
    const auto launch = [&] {
      const unsigned blocks = words_of(64_MiB) / per_block;
      if (parts) {
        m.s->launch("triple", blocks, 1024, 0, sliced(triple), by_x(updates(a, n), per_block), n);
      } else {
        m.s->launch("triple", blocks, 1024, 0, triple, detail::all_of(dim{blocks}), updates(a, n), n);
      }
    };
    const nanoseconds began = m.gpu.now();
    const upload coming = m.s->upload(a, borrowed(source.data()), n);
    launch();
    m.s->synchronize();
    const nanoseconds took = m.gpu.now() - began;
    std::vector<word> expected(n);
    for (std::size_t i = 0; i < n; ++i) {
      expected[i] = 3 * static_cast<word>(i);
    }
    CHECK(m.read(a, n) == expected);
    if (once_more) {
      std::vector<std::uint64_t> counts;
      for (int i = 0; i < 6; ++i) {
        const std::uint64_t before = m.launches();
        launch();
        counts.push_back(m.launches() - before);
      }
      m.s->synchronize();
      CHECK(counts[0] == 8);  // as before, so that a step that recurs is the same one
      CHECK(counts[3] == 8);
      CHECK(counts[4] == 1);
    }
    return took;
  };
  const nanoseconds whole = run(false, false);
  const nanoseconds parts = run(true, true);
  CAPTURE(whole.count());
  CAPTURE(parts.count());
  CHECK(parts < whole * 3 / 4);
}

}  // namespace run_in_slices_test
