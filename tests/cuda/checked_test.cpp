// Checked mode on the fake GPU.

#include "cuda/fake_cuda.hpp"
#include "cuda/fake_gpu.hpp"
#include "support/failure.hpp"
#include <deepum/arena.hpp>
#include <deepum/cuda.hpp>
#include <deepum/stream.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace checked_test {

using namespace deepum_test;
using namespace deepum::literals;
using deepum::access;  // not the one of POSIX
using word = std::uint32_t;
using arena_type = deepum::arena<deepum::cuda::paged_memory>;
using stream_type = deepum::stream<deepum::cuda::paged_memory>;

constexpr std::uint64_t n = (2_MiB).count / sizeof(word);

void set(word* a, std::uint64_t count, word value) {
  device_touch(a, count * sizeof(word), access::overwrite);
  std::fill_n(a, count, value);
}
/// Writes where none of its arguments says.
void stray(word* a, std::uint64_t other) {
  device_touch(a, sizeof(word), access::update);
  *a = 1;
  device_touch(reinterpret_cast<word*>(other), sizeof(word), access::update);
  *reinterpret_cast<word*>(other) = 2;
}

TEST_CASE("whatever is asked for first behind the culprit, on whichever stream, the error names the culprit") {
  using use = std::function<void(arena_type&, stream_type&, word*)>;
  const std::vector<use> uses{
      [](arena_type&, stream_type& s, word* a) {
        s.launch("innocent", 1, 1, 0, set, deepum::updates(a, n), n, word{1});
      },
      [](arena_type&, stream_type& s, word* a) { s.call("innocent", {deepum::updates(a, n)}, [](cudaStream_t) {}); },
      [](arena_type&, stream_type& s, word* a) { s.memset(a, 0, 2_MiB); },
      [](arena_type&, stream_type& s, word* a) { s.memcpy(a, a + n, 2_MiB); },
      [](arena_type&, stream_type& s, word*) { s.synchronize(); },
      [](arena_type& arena, stream_type& s, word* a) {
        word* const fresh = arena.allocate<word>(n);
        s.launch("innocent", 1, 1, 0, set, deepum::updates(fresh, n), n, *a);
      },
  };
  for (std::size_t i = 0; i < uses.size(); ++i) {
    for (const bool on_another_stream : {false, true}) {
      CAPTURE(i);
      CAPTURE(on_another_stream);
      fake_gpu gpu(256_MiB);
      fake_cuda::register_kernel(set);
      fake_cuda::register_kernel(stray);
      deepum::cuda::device_options o;
      o.chunk = 2_MiB;
      deepum::cuda::device device(0, o);
      arena_type arena(device, {.capacity = 64_MiB, .device_budget = 32_MiB, .checked = true, .log = {}});
      stream_type s(arena);
      stream_type other(arena);
      word* const a = arena.allocate<word>(2 * n);
      word* const b = arena.allocate<word>(n);
      s.memset(a, 0, 4_MiB);
      s.memset(b, 0, 2_MiB);
      CHECK(mentions(failure(deepum::status::device_failure,
                             [&] {
                               s.launch("culprit", 1, 1, 0, stray, deepum::updates(a, n),
                                        reinterpret_cast<std::uint64_t>(b));
                             }),
                     "'culprit'"));
      word on_the_host = 0;
      word* const operand = i + 1 == uses.size() ? &on_the_host : a;
      const std::string said =
          failure(deepum::status::device_failure, [&] { uses[i](arena, on_another_stream ? other : s, operand); });
      CHECK(mentions(said, "'culprit'"));
      CHECK_FALSE(mentions(said, "'innocent'"));
    }
  }
}

TEST_CASE_TEMPLATE("wrong declarations are found on both kinds of memory, and graphs are checked as one launch", Memory,
                   deepum::cuda::managed_memory, deepum::cuda::paged_memory) {
  fake_gpu gpu(256_MiB);
  fake_cuda::register_kernel(set);
  deepum::cuda::device_options o;
  o.chunk = 2_MiB;
  o.faults = deepum::cuda::fault_source::none;
  deepum::cuda::device device(0, o);
  deepum::arena<Memory> arena(device, {.capacity = 64_MiB, .device_budget = 32_MiB, .checked = true, .log = {}});
  deepum::stream<Memory> s(arena);
  word* const a = arena.template allocate<word>(n);
  word* const b = arena.template allocate<word>(n);
  {
    const auto view = arena.host_read(reinterpret_cast<const float*>(a), n);
    CHECK(std::all_of(view.begin(), view.end(), [](float x) { return std::isnan(x); }));
  }
  s.launch("all", 1, 1, 0, set, deepum::overwrites(a, n), n, word{1});
  CHECK(mentions(failure(deepum::status::wrong_declaration,
                         [&] { s.launch("half", 1, 1, 0, set, deepum::overwrites(b, n), n / 2, word{2}); }),
                 "'half'"));
  const std::string said = failure(deepum::status::wrong_declaration, [&] {
    s.call("reads only", {deepum::reads(a, n), deepum::updates(b, n)},
           [&](cudaStream_t) { s.native().launch(1, 1, 0, set, a, std::uint64_t{1}, word{3}); });
  });
  CHECK(mentions(said, "'reads only'"));
  CHECK(mentions(said, "operand 1"));
  const auto right = s.record_graph("right", [&] {
    s.launch("all", 1, 1, 0, set, deepum::overwrites(a, n), n, word{4});
    s.launch("some", 1, 1, 0, set, a, n / 2, word{5});
  });
  s.launch(right);
  CHECK(arena.host_read(a, n)[n - 1] == 4);
  const auto wrong =
      s.record_graph("wrong", [&] { s.launch("half", 1, 1, 0, set, deepum::overwrites(a, n), n / 2, word{6}); });
  CHECK(mentions(failure(deepum::status::wrong_declaration, [&] { s.launch(wrong); }), "'wrong'"));
}

}  // namespace checked_test
