// Look-ups in place: programs that gather and scatter rows of tables larger than the budget, on both kinds of memory.

#include "support/failure.hpp"
#include <deepum/deepum.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <string>
#include <type_traits>
#include <vector>

namespace rows_in_place_arena_test {

using namespace deepum;
using namespace deepum::literals;
using word = std::uint32_t;

constexpr std::size_t row = 64;  // words
constexpr std::size_t rows = (32_MiB).count / sizeof(word) / row;
constexpr std::size_t looked_up_rows = 256;
constexpr deepum::looked_up some{looked_up_rows, row};

// Launch `step` looks other rows up.
std::size_t place(std::size_t i, std::size_t step) { return (i * 7919 + step * 104729) % rows; }

const auto gather = sim::kernel(
    "gather",
    [](word* out, const word* table, std::size_t step) {
      for (std::size_t i = 0; i != looked_up_rows; ++i) {
        std::copy_n(table + place(i, step) * row, row, out + i * row);
      }
    },
    [](sim::work& w, word* out, const word* table, std::size_t step) {
      for (std::size_t i = 0; i != looked_up_rows; ++i) {
        w.reads(table + place(i, step) * row, row * sizeof(word));
      }
      w.overwrites(out, looked_up_rows * row * sizeof(word));
    });
const auto scatter = sim::kernel(
    "scatter",
    [](word* table, const word* in, std::size_t step) {
      for (std::size_t i = 0; i != looked_up_rows; ++i) {
        for (std::size_t j = 0; j != row; ++j) {
          table[place(i, step) * row + j] += in[i * row + j] + 1;
        }
      }
    },
    [](sim::work& w, word* table, const word* in, std::size_t step) {
      for (std::size_t i = 0; i != looked_up_rows; ++i) {
        w.updates(table + place(i, step) * row, row * sizeof(word));
      }
      w.reads(in, looked_up_rows * row * sizeof(word));
    });
const auto decay = sim::kernel(
    "decay",
    [](word* table) {
      for (std::size_t i = 0; i != rows * row; ++i) {
        table[i] = table[i] * 3 + 1;
      }
    },
    [](sim::work& w, word* table) { w.updates(table, rows * row * sizeof(word)); });

/// Four tables of 32 MiB, which steps look up and update.
template <class Memory>
struct program {
  explicit program(bytes budget, const std::string& policy = "auto")
      : gpu(sim::find_profile("h200_pcie5"), {.memory = 512_MiB}),
        memory(gpu, {.capacity = 256_MiB, .device_budget = budget, .policy = policy, .log = {}}),
        s(memory) {
    for (word*& t : tables) {
      t = memory.template allocate<word>(rows * row);
      const auto view = memory.host_overwrite(t, rows * row);
      std::iota(view.begin(), view.end(), static_cast<word>(&t - tables));
    }
    found = memory.template allocate<word>(looked_up_rows * row);
  }
  void step(std::size_t number) {
    for (word* const t : tables) {
      s.launch("gather", 1, 1, 0, gather, overwrites(found, looked_up_rows * row), gathers(t, rows * row, some),
               number);
      s.launch("scatter", 1, 1, 0, scatter, scatters(t, rows * row, some), reads(found), number);
    }
  }
  void pass() {
    for (word* const t : tables) {
      s.launch("decay", 1, 1, 0, decay, t);
    }
  }
  /// All that the tables hold.
  [[nodiscard]] std::uint64_t result() {
    s.synchronize();
    std::uint64_t sum = 0;
    for (word* const t : tables) {
      const auto view = memory.host_read(t, rows * row);
      for (const word w : view) {
        sum = sum * 31 + w;
      }
    }
    return sum;
  }

  sim::device gpu;
  arena<Memory> memory;
  stream<Memory> s;
  word* tables[4]{};
  word* found = nullptr;
};

TEST_CASE_TEMPLATE("rows of tables that do not fit are touched where they are, and no block moves for them", Memory,
                   sim::managed_memory, sim::paged_memory) {
  program<Memory> p(64_MiB);
  p.step(0);
  p.s.synchronize();
  const statistics before = p.memory.statistics();
  const nanoseconds began = p.gpu.now();
  const sim::device_counters counted = p.gpu.counters();
  for (std::size_t i = 1; i != 6; ++i) {
    p.step(i);
  }
  p.s.synchronize();
  const nanoseconds time = p.gpu.now() - began;
  const statistics used = p.memory.statistics() - before;
  CHECK(used.in().all_bytes() == 0);
  CHECK(used.out().all_bytes() == 0);
  CHECK(used.faults == 0);
  constexpr std::uint64_t a_launch = looked_up_rows * row * sizeof(word);
  CHECK(used.read_in_place == 5 * 4 * 2 * a_launch);
  CHECK(used.written_in_place == 5 * 4 * a_launch);
  CHECK((p.gpu.counters().in_remote - counted.in_remote).count == used.read_in_place);
  CHECK((p.gpu.counters().out_remote - counted.out_remote).count == used.written_in_place);
  // Rows of 256 bytes: 51 GB/s of managed memory, 27 of chunks of the host, and launches take some time themselves.
  const double rate = std::is_same_v<Memory, sim::managed_memory> ? 51e9 : 27e9;
  const double least = static_cast<double>(used.read_in_place) / rate * 1e9;
  CHECK(static_cast<double>(time.count()) >= least);
  CHECK(static_cast<double>(time.count()) <= least + 5 * 8 * 8'000);

  // What was written there is what others find: the host, and launches that use all of a table.
  p.pass();
  p.step(7);
  const std::uint64_t result = p.result();
  program<Memory> all(200_MiB);
  for (std::size_t i = 0; i != 6; ++i) {
    all.step(i);
  }
  all.pass();
  all.step(7);
  CHECK(result == all.result());
  CHECK(all.memory.statistics().read_in_place == 0);  // all of it fits
}

TEST_CASE_TEMPLATE("every policy computes the same, whatever else is launched between look-ups", Memory,
                   sim::managed_memory, sim::paged_memory) {
  std::uint64_t expected = 0;
  for (const char* policy : {"ideal", "auto", "um", "lru", "deepum"}) {
    CAPTURE(policy);
    program<Memory> p(policy == std::string("ideal") ? 200_MiB : 48_MiB, policy);
    for (std::size_t i = 0; i != 6; ++i) {
      p.step(i);
      if (i % 3 == 1) {
        p.pass();
      }
      if (i == 3) {
        p.s.synchronize();
        const auto view = p.memory.host_write(p.tables[1], rows * row);
        view.begin()[12345] += 17;
      }
    }
    const std::uint64_t result = p.result();
    expected = expected == 0 ? result : expected;
    CHECK(result == expected);
    CHECK(p.memory.statistics().failed_calls == 0);
  }
}

TEST_CASE("on memory that never faults a table may be larger than the budget") {
  for (const char* policy : {"auto", "um", "lru"}) {
    CAPTURE(policy);
    program<sim::paged_memory> p(16_MiB, policy);
    for (std::size_t i = 0; i != 3; ++i) {
      p.step(i);
    }
    p.s.synchronize();
    CHECK(p.memory.statistics().read_in_place > 0);
    // All of a table does not fit.
    CHECK(deepum_test::mentions(deepum_test::failure(status::out_of_device_memory, [&] { p.pass(); }), "decay"));
  }
}

TEST_CASE_TEMPLATE("a program says itself that memory is in place, and takes it back", Memory, sim::managed_memory,
                   sim::paged_memory) {
  program<Memory> p(64_MiB, "um");
  for (word* const t : p.tables) {
    p.memory.advise(t, 32_MiB, advice::set_in_place);
  }
  p.step(0);
  p.s.synchronize();
  const statistics first = p.memory.statistics();
  CHECK(first.read_in_place > 0);
  CHECK(first.in().all_bytes() <= (2_MiB).count);  // of what is found
  for (word* const t : p.tables) {
    p.memory.advise(t, 32_MiB, advice::unset_in_place);
  }
  p.step(1);
  p.s.synchronize();
  CHECK((p.memory.statistics() - first).read_in_place == 0);
  CHECK((p.memory.statistics() - first).in().all_bytes() >= (32_MiB).count);
}

TEST_CASE("the host waits for launches that write rows in place, and launches for the host") {
  program<sim::paged_memory> p(64_MiB);
  p.step(0);
  p.step(1);
  const std::uint64_t early = p.result();  // without a wait of the program's own for the launches in between
  p.step(2);
  {
    const auto view = p.memory.host_write(p.tables[0], rows * row);
    view.begin()[0] = 1;
  }
  p.step(3);
  CHECK(p.result() != early);
  CHECK(p.memory.statistics().failed_calls == 0);
}

TEST_CASE("look-ups that nobody declares are learned from faults, and dense readers have their memory brought") {
  program<sim::managed_memory> p(64_MiB);
  const auto look_up = [&](std::size_t step) {
    for (word* const t : p.tables) {
      p.s.call("gather", {overwrites(p.found, looked_up_rows * row)},
               [&](sim::stream& q) { q.launch(1, 1, 0, gather, p.found, static_cast<const word*>(t), step); });
    }
  };
  std::vector<std::uint64_t> faults;
  std::vector<nanoseconds> times;
  for (std::size_t step = 0; step != 40; ++step) {
    const statistics before = p.memory.statistics();
    const nanoseconds began = p.gpu.now();
    look_up(step / 6);  // the same rows six times
    p.s.synchronize();
    faults.push_back((p.memory.statistics() - before).faults);
    times.push_back(p.gpu.now() - began);
  }
  CHECK(faults[0] > 50);
  for (std::size_t step = 4; step != 40; ++step) {
    CAPTURE(step);
    CHECK(faults[step] == 0);
    CHECK(times[step] < times[0] / 10);
  }
  // A pass over all of a table, declared, has it brought.
  const statistics before = p.memory.statistics();
  p.pass();
  p.s.synchronize();
  CHECK((p.memory.statistics() - before).in().all_bytes() >= (3 * 32_MiB).count);
  CHECK((p.memory.statistics() - before).faults <= 4);
}

TEST_CASE("an operand says which rows it touches, and which it may") {
  float table[4]{};
  const operand read = gathers(table, 4, {3, 2});
  CHECK(read.sparse);
  CHECK(read.mode == access::read);
  CHECK(read.size == bytes{16});
  CHECK(read.row == bytes{8});
  CHECK(read.touched == bytes{24});
  const operand written = scatters(table, 4);
  CHECK(written.sparse);
  CHECK(written.mode == access::update);
  CHECK(written.touched == bytes{});
  CHECK_FALSE(operand(reads(table, 4)).sparse);
  CHECK(operand(gathers(table, 4, {std::uint64_t{1} << 62U, 2})).touched.count == ~std::uint64_t{0});
  CHECK(deepum_test::mentions(
      deepum_test::failure(status::invalid_argument, [&] { (void)gathers(table, ~std::uint64_t{0}); }), "elements"));
}

}  // namespace rows_in_place_arena_test
