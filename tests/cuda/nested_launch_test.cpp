// Launches inside the body of `stream::call` on the fake GPU, on both memory kinds, and where each runs alone.

#include "cuda/fake_cuda.hpp"
#include "cuda/fake_gpu.hpp"
#include "support/failure.hpp"
#include <deepum/arena.hpp>
#include <deepum/cuda.hpp>
#include <deepum/stream.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

namespace nested_launch_test {

using namespace deepum_test;
using namespace deepum::literals;
using deepum::access;  // not the one of POSIX
using deepum::updates;
using deepum::cuda::device_options;
using word = std::uint32_t;

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

template <class Memory>
struct machine {
  explicit machine(bool checked = false) : device(0, small()), memory(device, chosen(checked)) {
    fake_cuda::register_kernel(set);
    fake_cuda::register_kernel(stray);
  }
  static device_options small() {
    device_options o;
    o.chunk = 2_MiB;
    o.faults = deepum::cuda::fault_source::none;
    return o;
  }
  deepum::arena_options chosen(bool checked) {
    return {.capacity = 64_MiB,
            .device_budget = 32_MiB,
            .policy = "auto",
            .checked = checked,
            .log = {},
            .observer = [this](const deepum::device_event& e, deepum::launch_id id) {
              if (e.what == deepum::device_event::kind::launch_finished) {
                const std::lock_guard lock(mutex);
                finished.push_back(id.value);
              }
            }};
  }
  /// Whether all that was launched comes to its end.
  bool all_finish() {
    return comes([&] {
      const deepum::statistics s = memory.statistics();
      return s.finished == s.launches;
    });
  }
  /// Places of launches in the order in which they finished.
  std::size_t place(deepum::launch_id id) {
    const std::lock_guard lock(mutex);
    return static_cast<std::size_t>(std::find(finished.begin(), finished.end(), id.value) - finished.begin());
  }

  fake_gpu gpu;
  std::mutex mutex;
  std::vector<std::uint64_t> finished;
  deepum::cuda::device device;
  deepum::arena<Memory> memory;
};

TEST_CASE_TEMPLATE("launches inside a call on the same stream: all finish, the outer ones last", Memory,
                   deepum::cuda::managed_memory, deepum::cuda::paged_memory) {
  machine<Memory> m;
  deepum::stream<Memory> s(m.memory);
  word* const a = m.memory.template allocate<word>(n);
  word* const b = m.memory.template allocate<word>(n);
  word* const c = m.memory.template allocate<word>(n);
  for (int i = 0; i < 600; ++i) {  // more than are timed and marked in the beginning
    deepum::launch_id middle{};
    deepum::launch_id inner{};
    const deepum::launch_id outer = s.call("outer", {updates(a)}, [&](cudaStream_t) {
      middle = s.call("middle", {updates(b)}, [&](cudaStream_t) {
        inner = s.launch("inner", 1, 1, 0, set, updates(c), n, word{3});
        s.native().launch(1, 1, 0, set, b, n, word{2});
      });
      s.native().launch(1, 1, 0, set, a, n, word{1});
    });
    if (i % 100 == 0) {
      s.synchronize();
      REQUIRE(m.all_finish());
      CHECK(m.place(inner) < m.place(middle));
      CHECK(m.place(middle) < m.place(outer));
    }
  }
  s.synchronize();
  CHECK(m.all_finish());
  CHECK(m.memory.host_read(a, n)[n - 1] == 1);
  CHECK(m.memory.host_read(b, n)[n - 1] == 2);
  CHECK(m.memory.host_read(c, n)[n - 1] == 3);
}

TEST_CASE_TEMPLATE("a launch inside a call on another stream", Memory, deepum::cuda::managed_memory,
                   deepum::cuda::paged_memory) {
  machine<Memory> m;
  deepum::stream<Memory> s(m.memory);
  deepum::stream<Memory> other(m.memory);
  word* const a = m.memory.template allocate<word>(n);
  word* const b = m.memory.template allocate<word>(n);
  for (int i = 0; i < 10; ++i) {
    s.call("outer", {updates(a)}, [&](cudaStream_t) {
      other.launch("inner", 1, 1, 0, set, updates(b), n, word{3});
      s.native().launch(1, 1, 0, set, a, n, word{1});
    });
  }
  s.synchronize();
  other.synchronize();
  CHECK(m.all_finish());
  CHECK(m.memory.host_read(a, n)[0] == 1);
  CHECK(m.memory.host_read(b, n)[0] == 3);
}

TEST_CASE("in checked mode launches nest, each with access to what it declares alone") {
  using memory_type = deepum::cuda::paged_memory;
  machine<memory_type> m(true);
  deepum::stream<memory_type> s(m.memory);
  deepum::stream<memory_type> other(m.memory);
  word* const a = m.memory.allocate<word>(n);
  word* const b = m.memory.allocate<word>(n);
  word* const c = m.memory.allocate<word>(n);
  s.call("outer", {updates(a), updates(b)}, [&](cudaStream_t) {
    s.native().launch(1, 1, 0, set, a, n, word{1});
    s.launch("inner", 1, 1, 0, set, updates(b), n, word{2});
    other.launch("aside", 1, 1, 0, set, updates(c), n, word{3});
    s.native().launch(1, 1, 0, set, a, n, word{4});
    s.native().launch(1, 1, 0, set, b, n, word{5});  // it has it still
  });
  s.synchronize();
  other.synchronize();
  CHECK(m.all_finish());
  CHECK(m.memory.host_read(a, n)[0] == 4);
  CHECK(m.memory.host_read(b, n)[0] == 5);
  CHECK(m.memory.host_read(c, n)[0] == 3);
}

TEST_CASE("in checked mode the wrong one of nested launches is named") {
  using memory_type = deepum::cuda::paged_memory;
  for (const bool inner_is_wrong : {true, false}) {
    machine<memory_type> m(true);
    deepum::stream<memory_type> s(m.memory);
    word* const a = m.memory.allocate<word>(n);
    word* const b = m.memory.allocate<word>(n);
    s.memset(a, 0, 2_MiB);
    s.memset(b, 0, 2_MiB);
    const auto hidden = reinterpret_cast<std::uint64_t>(b);
    const std::string said = failure(deepum::status::device_failure, [&] {
      s.call("outer", {updates(a)}, [&](cudaStream_t) {
        if (inner_is_wrong) {
          s.launch("inner", 1, 1, 0, stray, a, hidden);
        } else {
          s.native().launch(1, 1, 0, stray, a, hidden);
          s.launch("inner", 1, 1, 0, set, updates(b), n, word{2});
        }
      });
      s.synchronize();
    });
    CHECK(mentions(said, inner_is_wrong ? "'inner'" : "'outer'"));
  }
}

}  // namespace nested_launch_test
