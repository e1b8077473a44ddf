// Thousands of random launch sequences give bitwise the same memory under every policy and budget.

#include "property/random_program.hpp"
#include "support/test_scale.hpp"
#include <deepum/deepum.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>
#include <thread>
#include <vector>

namespace {

using namespace deepum;
using deepum_test::operation;
using deepum_test::random_program;
using word = std::uint32_t;

const sim::kernel fill_kernel{[](word* a, word n, word value) {
                                for (word i = 0; i < n; ++i) {
                                  a[i] = deepum_test::filled(i, value);
                                }
                              },
                              [](sim::work& w, word* a, word n, word) { w.overwrites(a, n * sizeof(word)); }};

const sim::kernel mix_kernel{[](word* a, word n, const word* b, word m, word value) {
                               for (word i = 0; i < n; ++i) {
                                 a[i] = deepum_test::mixed(a[i], b[i % m], value);
                               }
                             },
                             [](sim::work& w, word* a, word n, const word* b, word m, word) {
                               w.reads(b, std::min(n, m) * sizeof(word));
                               w.updates(a, n * sizeof(word));
                             }};

const sim::kernel gather_kernel{
    [](word* a, word n, const word* b, word m, const word* index, word k, word value) {
      for (word i = 0; i < n; ++i) {
        a[i] = deepum_test::mixed(a[i], b[index[i % k] % m], value);
      }
    },
    [](sim::work& w, word* a, word n, const word* b, word m, const word* index, word k, word) {
      w.reads(index, std::min(n, k) * sizeof(word));
      for (word i = 0; i < std::min(n, k); i += 1 + k / 64) {  // the blocks that the contents lead to, roughly
        w.reads(b + index[i] % m, sizeof(word));
      }
      w.updates(a, n * sizeof(word));
    }};

/// Follows a pointer that lies in memory: what the launch touches cannot be seen from its arguments.
const sim::kernel chase_kernel{[](word* a, word n, word* const* where, word m, word value) {
                                 const word* b = *where;
                                 for (word i = 0; i < n; ++i) {
                                   a[i] = deepum_test::mixed(a[i], b[i % m], value);
                                 }
                               },
                               [](sim::work& w, word* a, word n, word* const* where, word m, word) {
                                 w.reads(where, sizeof(word*));
                                 w.reads(*where, std::min(n, m) * sizeof(word));
                                 w.updates(a, n * sizeof(word));
                               }};

struct setting {
  std::string policy;
  bytes device_memory;
  sim::worker_mode worker = sim::worker_mode::virtual_time;
  std::uint64_t delay_seed = 0;
  std::uint64_t failing_call = 0;  // 0: none
};

/// The program on an arena.
class arena_run {
 public:
  explicit arena_run(const setting& s)
      : gpu_(sim::find_profile("h200_pcie5"),
             {.memory = s.device_memory, .worker = s.worker, .delay_seed = s.delay_seed}),
        arena_(gpu_, {.capacity = 256_MiB, .device_budget = s.device_memory, .policy = s.policy, .log = {}}),
        streams_{stream_type(arena_), stream_type(arena_)} {
    if (s.failing_call != 0) {
      arena_.memory().fail_call(s.failing_call);
    }
  }

  std::uint64_t run(const random_program& program) {
    buffers_.resize(program.buffers);
    slot_ = arena_.allocate<word*>(1);
    std::uint64_t sum = 0xcbf29ce484222325ULL;
    for (const operation& op : program.operations) {
      step(op, sum);
    }
    synchronize();
    for (const std::span<word> buffer : buffers_) {
      if (!buffer.empty()) {
        const host_view view(arena_, buffer.data(), buffer.size(), deepum::access::read);
        for (const word w : view) {
          sum = deepum_test::folded(sum, w);
        }
      }
    }
    return sum;
  }

  [[nodiscard]] statistics counts() { return arena_.statistics(); }

 private:
  using arena_type = arena<sim::managed_memory>;
  using stream_type = stream<sim::managed_memory>;

  void synchronize() {
    for (stream_type& s : streams_) {
      s.synchronize();
    }
  }
  /// The stream of the operation, made to wait for whatever ran last on the other one.
  stream_type& on(const operation& op) {
    if (op.stream != last_stream_) {
      sim::event done;
      streams_[last_stream_].record(done);
      streams_[op.stream].wait(done);
      last_stream_ = op.stream;
    }
    return streams_[op.stream];
  }

  void step(const operation& op, std::uint64_t& sum) {
    using kind = operation::kind;
    const std::span<word> a = buffers_[op.a];
    const std::span<word> b = buffers_[op.b];
    const std::span<word> c = buffers_[op.c];
    const auto size = static_cast<word>(a.size());
    const auto other = static_cast<word>(b.size());
    switch (op.what) {
      case kind::allocate:
        buffers_[op.a] = {arena_.allocate<word>(op.n), op.n};
        break;
      case kind::release:
        arena_.deallocate(a.data());  // with work in flight: the arena's matter, not the program's
        buffers_[op.a] = {};
        break;
      case kind::fill:
        on(op).launch("fill", 1, 1, 0, fill_kernel, overwrites(a.data()), size, op.value);
        break;
      case kind::fill_part:
        on(op).launch("fill_part", 1, 1, 0, fill_kernel, a.data() + op.first, op.n, op.value);
        break;
      case kind::mix:
        on(op).launch("mix", 1, 1, 0, mix_kernel, a.data(), size, b.data(), other, op.value);
        break;
      case kind::gather:
        on(op).launch("gather", 1, 1, 0, gather_kernel, a.data(), size, b.data(), other, c.data(),
                      static_cast<word>(c.size()), op.value);
        break;
      case kind::chase: {
        synchronize();
        {
          const host_view view(arena_, slot_, 1, deepum::access::overwrite);
          view[0] = b.data();
        }
        on(op).launch("chase", 1, 1, 0, chase_kernel, a.data(), size, slot_, other, op.value);
        break;
      }
      case kind::copy:
        if (op.a != op.b) {
          on(op).memcpy(a.data(), b.data(), bytes{op.n * sizeof(word)});
        }
        break;
      case kind::set_bytes:
        on(op).memset(a.data(), static_cast<int>(op.value & 0xffU), bytes{op.n * sizeof(word)});
        break;
      case kind::host_read: {
        synchronize();
        const host_view view(arena_, a.data() + op.first, op.n, deepum::access::read);
        for (const word w : view) {
          sum = deepum_test::folded(sum, w);
        }
        break;
      }
      case kind::host_write: {
        synchronize();
        const host_view view(arena_, a.data() + op.first, op.n, deepum::access::update);
        for (word i = 0; i < op.n; ++i) {
          view[i] = deepum_test::filled(i, op.value);
        }
        break;
      }
      case kind::forget:
        if (op.value % 2 == 0) {
          arena_.mark_inactive(a.data(), bytes{a.size_bytes()});
          arena_.mark_active(a.data(), bytes{a.size_bytes()});
        } else {
          arena_.discard(a.data(), bytes{a.size_bytes()});
        }
        on(op).launch("fill", 1, 1, 0, fill_kernel, overwrites(a.data()), size, op.value);
        break;
      case kind::hint:
        switch (op.value % 4) {
          case 0:
            arena_.prefetch(a.data(), bytes{a.size_bytes()}, location::device());
            break;
          case 1:
            arena_.prefetch(a.data(), bytes{a.size_bytes()}, location::host());
            break;
          case 2:
            arena_.advise(a.data(), bytes{a.size_bytes()}, advice::set_read_mostly);
            break;
          default:
            arena_.advise(a.data(), bytes{a.size_bytes()}, advice::unset_read_mostly);
            break;
        }
        break;
      case kind::synchronize:
        synchronize();
        break;
    }
  }

  sim::device gpu_;
  arena_type arena_;
  std::array<stream_type, 2> streams_;
  std::vector<std::span<word>> buffers_;
  word** slot_ = nullptr;
  std::uint16_t last_stream_ = 0;
};

std::vector<setting> settings() {
  std::vector<setting> all;
  for (const char* policy : {"um", "deepum", "auto"}) {
    for (const bytes memory : {8_MiB, 24_MiB, 256_MiB}) {
      all.push_back({policy, memory});
    }
  }
  all.push_back({"ideal", 256_MiB});
  return all;
}

}  // namespace

TEST_CASE("random programs give the same memory under every policy and budget") {
  const std::uint64_t programs = deepum_test::scaled(40);
  const std::vector<setting> all = settings();
  for (std::uint64_t seed = 1; seed <= programs; ++seed) {
    CAPTURE(seed);
    const random_program program = deepum_test::make_random_program(seed, {.max_words = 1U << 19});
    const std::uint64_t expected = deepum_test::reference_run{}.run(program);
    for (const setting& s : all) {
      CAPTURE(s.policy);
      CAPTURE(s.device_memory.count);
      REQUIRE(arena_run(s).run(program) == expected);
    }
  }
}

TEST_CASE("random programs survive a device call that fails, whichever it is") {
  const std::uint64_t programs = deepum_test::scaled(2);
  for (std::uint64_t seed = 1000; seed < 1000 + programs; ++seed) {
    CAPTURE(seed);
    const random_program program =
        deepum_test::make_random_program(seed, {.loop_length = 12, .repetitions = 4, .max_words = 1U << 19});
    const std::uint64_t expected = deepum_test::reference_run{}.run(program);
    for (const char* policy : {"deepum", "auto"}) {
      CAPTURE(policy);
      bool failed = true;
      std::uint64_t nth = 1;
      for (; failed && nth <= 60; ++nth) {
        CAPTURE(nth);
        arena_run run({.policy = policy, .device_memory = 16_MiB, .failing_call = nth});
        REQUIRE(run.run(program) == expected);
        failed = run.counts().failed_calls != 0;
      }
      CHECK(nth > 3);  // calls were made, and made to fail
    }
  }
}

TEST_CASE("random programs give the same memory with a real migration thread and random delays in it") {
  const std::uint64_t programs = deepum_test::scaled(10);
  for (std::uint64_t seed = 2000; seed < 2000 + programs; ++seed) {
    CAPTURE(seed);
    const random_program program =
        deepum_test::make_random_program(seed, {.loop_length = 16, .repetitions = 5, .max_words = 1U << 18});
    const std::uint64_t expected = deepum_test::reference_run{}.run(program);
    for (const char* policy : {"deepum", "auto"}) {
      CAPTURE(policy);
      for (const sim::worker_mode worker : {sim::worker_mode::thread, sim::worker_mode::virtual_time}) {
        REQUIRE(arena_run({policy, 8_MiB, worker, seed}).run(program) == expected);
      }
    }
  }
}

TEST_CASE("threads that launch through streams of their own do not disturb each other") {
  constexpr word size = 600'000;
  for (const sim::worker_mode worker : {sim::worker_mode::virtual_time, sim::worker_mode::thread}) {
    for (const char* policy : {"um", "deepum", "auto"}) {
      CAPTURE(policy);
      sim::device gpu(sim::find_profile("h200_pcie5"), {.memory = 12_MiB, .worker = worker});
      arena memory(gpu, {.capacity = 128_MiB, .device_budget = 12_MiB, .policy = policy});
      std::array<word, 3> wrong{};
      std::vector<std::thread> threads;
      for (word t = 0; t < wrong.size(); ++t) {
        threads.emplace_back([&, t] {
          stream s(memory);
          word* kept = memory.allocate<word>(size);
          std::vector<word> expected(size);
          s.launch("fill", 1, 1, 0, fill_kernel, overwrites(kept), size, t);
          for (word i = 0; i < size; ++i) {
            expected[i] = deepum_test::filled(i, t);
          }
          for (word round = 0; round < 6; ++round) {
            word* scratch = memory.allocate<word>(size);
            s.launch("fill", 1, 1, 0, fill_kernel, overwrites(scratch), size, round);
            s.launch("mix", 1, 1, 0, mix_kernel, kept, size, scratch, size, t);
            memory.deallocate(scratch);
            for (word i = 0; i < size; ++i) {
              expected[i] = deepum_test::mixed(expected[i], deepum_test::filled(i, round), t);
            }
          }
          s.synchronize();
          const auto view = memory.host_read(kept, size);
          wrong[t] = std::equal(view.begin(), view.end(), expected.begin()) ? 0 : 1;
        });
      }
      for (std::thread& t : threads) {
        t.join();
      }
      CHECK(wrong == std::array<word, 3>{});
    }
  }
}
