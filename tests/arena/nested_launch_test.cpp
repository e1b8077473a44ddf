// Launches inside the body of `stream::call`: on the same stream, on others, to any depth.

#include <deepum/deepum.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace nested_launch_test {

using namespace deepum;
using namespace deepum::literals;
using word = std::uint32_t;

const sim::kernel set{[](word* a, std::size_t n, word v) { std::fill_n(a, n, v); },
                      [](sim::work& w, word* a, std::size_t n, word) { w.overwrites(a, n * sizeof(word)).flops(1e8); }};
const sim::kernel add{[](word* a, const word* b, std::size_t n) {
                        for (std::size_t i = 0; i < n; ++i) {
                          a[i] += b[i];
                        }
                      },
                      [](sim::work& w, word* a, const word* b, std::size_t n) {
                        w.reads(b, n * sizeof(word)).updates(a, n * sizeof(word)).flops(1e8);
                      }};

constexpr std::size_t n = (4_MiB).count / sizeof(word);

/// The names of launches in the order in which they finished, and when they began and ended.
struct observed {
  struct time {
    nanoseconds began{};
    nanoseconds at{};
  };
  void see(const device_event& e, launch_id id) {
    if (e.what == device_event::kind::launch_issued) {
      names[id.value] = e.record->name;
    } else if (e.what == device_event::kind::launch_finished) {
      finished.push_back(names[id.value]);
      times[names[id.value]] = {e.began, e.at};
    }
  }
  std::map<std::uint64_t, std::string> names{};
  std::vector<std::string> finished{};
  std::map<std::string, time> times{};
};

template <class Memory>
struct machine {
  explicit machine(std::string_view policy, bytes budget = 32_MiB)
      : gpu(sim::find_profile("h200_pcie5"), {.memory = 512_MiB}),
        memory(gpu, {.capacity = 256_MiB,
                     .device_budget = budget,
                     .policy = std::string(policy),
                     .log = {},
                     .observer = [this](const device_event& e, launch_id id) { seen.see(e, id); }}) {}

  sim::device gpu;
  observed seen;
  arena<Memory> memory;
};

template <class Memory, class Check>
void under_every_policy(Check&& check) {
  for (const std::string_view policy : policy_names()) {
    CAPTURE(policy);
    machine<Memory> m(policy);
    check(m);
    const statistics s = m.memory.statistics();
    CHECK(s.finished == s.launches);
  }
}

TEST_CASE_TEMPLATE("a launch inside a call on the same stream: both finish, the outer one last", Memory,
                   sim::managed_memory, sim::paged_memory) {
  under_every_policy<Memory>([](machine<Memory>& m) {
    word* const a = m.memory.template allocate<word>(n);
    word* const b = m.memory.template allocate<word>(n);
    stream<Memory> s(m.memory);
    s.call("outer", {updates(a, n), updates(b, n)}, [&](sim::stream& q) {
      q.launch(1, 1, 0, set, a, n, word{1});
      s.launch("inner", 1, 1, 0, set, overwrites(b, n), n, word{2});
      q.launch(1, 1, 0, add, a, static_cast<const word*>(b), n);
    });
    s.synchronize();
    (void)m.memory.statistics();
    CHECK(m.seen.finished == std::vector<std::string>{"inner", "outer"});
    CHECK(m.memory.host_read(a, n)[n - 1] == 3);
    const auto [outer_began, outer_ended] = m.seen.times["outer"];
    const auto [inner_began, inner_ended] = m.seen.times["inner"];
    CHECK(outer_began < inner_began);
    CHECK(inner_began < inner_ended);
    CHECK(inner_ended < outer_ended);
  });
}

TEST_CASE_TEMPLATE("launches nest to any depth, step after step, and what was allocated can be given back", Memory,
                   sim::managed_memory, sim::paged_memory) {
  under_every_policy<Memory>([](machine<Memory>& m) {
    std::vector<word*> x;
    for (int i = 0; i < 6; ++i) {
      x.push_back(m.memory.template allocate<word>(n));
    }
    stream<Memory> s(m.memory);
    for (word* const p : x) {
      s.launch("begin", 1, 1, 0, set, overwrites(p, n), n, word{0});
    }
    const auto nest = [&](auto&& self, std::size_t depth) -> void {
      s.call("depth" + std::to_string(depth), {updates(x[depth], n)}, [&](sim::stream& q) {
        q.launch(1, 1, 0, set, x[depth], n, static_cast<word>(depth));
        if (depth + 1 < 4) {
          self(self, depth + 1);
        }
        q.launch(1, 1, 0, add, x[depth], static_cast<const word*>(x[depth]), n);
      });
    };
    for (int step = 0; step < 20; ++step) {
      nest(nest, 0);
      for (std::size_t i = 4; i < x.size(); ++i) {
        s.launch("between", 1, 1, 0, add, x[i], static_cast<const word*>(x[i - 3]), n);
      }
    }
    s.synchronize();
    for (std::size_t i = 0; i < 4; ++i) {
      CHECK(m.memory.host_read(x[i], n)[7] == 2 * i);
    }
    CHECK(m.memory.host_read(x[4], n)[7] == 20 * 2);
    for (word* const p : x) {
      m.memory.deallocate(p);
    }
    word* const all = m.memory.template allocate<word>((240_MiB).count / sizeof(word));  // needs what was given back
    CHECK(all != nullptr);
  });
}

TEST_CASE_TEMPLATE("a launch inside a call on another stream, and a hold", Memory, sim::managed_memory,
                   sim::paged_memory) {
  under_every_policy<Memory>([](machine<Memory>& m) {
    word* const a = m.memory.template allocate<word>(n);
    word* const b = m.memory.template allocate<word>(n);
    stream<Memory> s(m.memory);
    stream<Memory> other(m.memory);
    for (int i = 0; i < 5; ++i) {
      s.call("outer", {updates(a, n)}, [&](sim::stream& q) {
        q.launch(1, 1, 0, set, a, n, word{1});
        const auto kept = m.memory.hold({reads(b, n)});
        other.launch("inner", 1, 1, 0, set, overwrites(b, n), n, word{2});
        q.launch(1, 1, 0, add, a, static_cast<const word*>(a), n);
      });
    }
    s.synchronize();
    other.synchronize();
    CHECK(m.memory.host_read(a, n)[1] == 2);
    CHECK(m.memory.host_read(b, n)[1] == 2);
  });
}

TEST_CASE_TEMPLATE("a body that throws behind a launch of its own ends both", Memory, sim::managed_memory,
                   sim::paged_memory) {
  under_every_policy<Memory>([](machine<Memory>& m) {
    word* const a = m.memory.template allocate<word>(n);
    stream<Memory> s(m.memory);
    CHECK_THROWS_AS(s.call("outer", {updates(a, n)},
                           [&](sim::stream&) {
                             s.launch("inner", 1, 1, 0, set, overwrites(a, n), n, word{2});
                             throw std::runtime_error("no");
                           }),
                    std::runtime_error);
    s.launch("after", 1, 1, 0, add, a, static_cast<const word*>(a), n);
    s.synchronize();
    CHECK(m.memory.host_read(a, n)[1] == 4);
  });
}

}  // namespace nested_launch_test
