#include "support/test_scale.hpp"
#include <deepum/deepum.hpp>

#include <doctest/doctest.h>

#include <array>
#include <cstdlib>
#include <numeric>
#include <optional>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace stream_test {

using namespace deepum;
using namespace deepum::literals;

// The bodies work on one element in 16 KiB: enough to see a block that is stale, and fast.
constexpr std::size_t stride = 4096;

const auto add = sim::kernel(
    [](float* y, const float* x, float a, std::size_t n) {
      for (std::size_t i = 0; i < n; i += stride)
        y[i] = y[i] * 0.5F + x[i] * a;
    },
    [](sim::work& w, float* y, const float* x, float, std::size_t n) {
      w.updates(y, n * sizeof(float)).reads(x, n * sizeof(float)).flops(static_cast<double>(n) * 3);
    });

const auto set = sim::kernel(
    [](float* y, float a, std::size_t n) {
      for (std::size_t i = 0; i < n; i += stride)
        y[i] = a + static_cast<float>(i / stride);
    },
    [](sim::work& w, float* y, float, std::size_t n) { w.overwrites(y, n * sizeof(float)); });

sim::device_options small(bytes memory, sim::worker_mode mode = sim::worker_mode::virtual_time) {
  sim::device_options o;
  o.memory = memory;
  o.worker = mode;
  return o;
}

/// A few layers forth and back for some steps, two buffers of 6 MiB for each layer. Returns sums at the end.
template <class Memory>
std::vector<double> train(arena<Memory>& arena, std::size_t layers, int steps) {
  constexpr std::size_t n = 6 * 1024 * 1024 / sizeof(float);
  std::vector<float*> w;
  std::vector<float*> x;
  for (std::size_t i = 0; i < layers; ++i) {
    w.push_back(arena.template allocate<float>(n));
    x.push_back(arena.template allocate<float>(n));
  }
  std::vector<double> sums;
  {
    stream s{arena};
    for (std::size_t i = 0; i < layers; ++i)
      s.launch("set", 1, 1, 0, set, overwrites(w[i], n), static_cast<float>(i), n);
    for (int step = 0; step < steps; ++step) {
      for (std::size_t i = 0; i < layers; ++i) {
        arena.mark_active(x[i], bytes{n * 4});
        s.launch("set", 1, 1, 0, set, overwrites(x[i], n), 1.0F, n);
        s.launch("forward", 1, 1, 0, add, x[i], static_cast<const float*>(w[i]), 0.25F, n);
      }
      for (std::size_t i = layers; i-- > 0;) {
        s.launch("backward", 1, 1, 0, add, w[i], static_cast<const float*>(x[i]), 0.001F * static_cast<float>(step), n);
        arena.mark_inactive(x[i], bytes{n * 4});
      }
      s.synchronize();
    }
  }
  for (float* p : w) {
    const auto view = arena.host_read(p, n);
    double sum = 0;
    for (std::size_t i = 0; i < n; i += stride)
      sum += view[i] * static_cast<double>(i + 1);
    sums.push_back(sum);
  }
  for (float* p : w)
    arena.deallocate(p);
  for (float* p : x)
    arena.deallocate(p);
  return sums;
}

TEST_CASE("values are the same under every policy, at a third of the memory that is needed") {
  std::vector<double> wanted;
  for (const std::string name : {"ideal", "um", "deepum", "auto"}) {
    CAPTURE(name);
    const bytes memory = name == "ideal" ? 128_MiB : 18_MiB;
    sim::device gpu{sim::find_profile("h200_pcie5"), small(memory)};
    arena arena{gpu, {.capacity = 256_MiB, .device_budget = memory, .policy = name}};
    const std::vector<double> sums = train(arena, 5, 3);
    if (wanted.empty()) wanted = sums;
    CHECK(sums == wanted);
    const statistics s = arena.statistics();
    CHECK(s.launches == s.finished);
    CHECK(s.failed_calls == 0);
    CHECK(s.refused == 0);
    CHECK(s.stalled.count() > 0);
  }
}

TEST_CASE("whatever device call fails, the values stay right and the program comes to its end") {
  std::vector<double> wanted;
  bool failed = true;
  std::uint64_t nth = 0;
  for (; failed && nth < deepum_test::scaled(150); ++nth) {
    for (const sim::failure how : {sim::failure::at_call, sim::failure::half_way}) {
      CAPTURE(nth);
      sim::device gpu{sim::find_profile("h200_pcie5"), small(12_MiB)};
      arena arena{gpu, {.capacity = 64_MiB, .device_budget = 12_MiB, .log = [](std::string_view) {}}};
      if (nth > 0) arena.memory().fail_call(nth, how);
      const std::vector<double> sums = train(arena, 2, 3);
      if (wanted.empty()) wanted = sums;
      CHECK(sums == wanted);
      failed = nth == 0 || arena.statistics().failed_calls > 0;  // else there are fewer calls than that
    }
  }
  CHECK((nth > 20 || failed));  // the program makes so many calls, where it was asked that often
}

TEST_CASE("the types of the arguments say what a launch does with them") {
  sim::device gpu{sim::find_profile("h200_pcie5"), small(64_MiB)};
  arena_options o;
  o.capacity = 128_MiB;
  o.headroom = 4_MiB;
  o.policy = "um";
  arena arena{gpu, o};
  float* a = arena.allocate<float>(1 << 20);
  float* b = arena.allocate<float>(1 << 20);
  const auto declared = [&](auto... arguments) {
    detail::argument_reader<sizeof...(arguments)> reader("k");
    (reader.read(arguments, [&](const void* p) { return arena.offset_of(p); }), ...);
    std::vector<block_access> accesses;
    arena.rooms().launches.declare(reader.operands(), accesses);
    return std::pair(accesses, reader.complete());
  };
  using accesses = std::vector<block_access>;
  const block_range first{block_id{0}, 2};
  const block_range second{block_id{2}, 2};
  CHECK(declared(static_cast<const float*>(a), b, 5) ==
        std::pair(accesses{{first, access::read}, {second, access::update}}, true));
  CHECK(declared(a + 17, reads(b, 1)) ==
        std::pair(accesses{{first, access::update}, {{block_id{2}, 1}, access::read}}, true));
  CHECK(declared(overwrites(a, 1 << 20)) == std::pair(accesses{{first, access::overwrite}}, true));

  float outside = 0;
  CHECK(declared(&outside, nullptr) == std::pair(accesses{}, true));
  float** table = nullptr;
  CHECK_FALSE(declared(table).second);
  struct two_words {
    float* p;
    int n;
  };
  CHECK_FALSE(declared(two_words{a, 1}).second);
  CHECK_FALSE(declared(static_cast<void*>(a)).second);
  CHECK(declared(updates(static_cast<void*>(a), 4)).second);
}

TEST_CASE("an overwrite counts for whole blocks only, and for none that something else in the launch touches") {
  sim::device gpu{sim::find_profile("h200_pcie5"), small(64_MiB)};
  arena_options o;
  o.capacity = 128_MiB;
  o.headroom = 4_MiB;
  arena arena{gpu, o};
  char* p = arena.allocate<char>(8 << 20);
  const auto declared = [&](std::initializer_list<operand> operands) {
    std::vector<block_access> out;
    arena.rooms().launches.declare({operands.begin(), operands.size()}, out);
    return out;
  };
  using accesses = std::vector<block_access>;
  CHECK(declared({overwrites(p + 100, 5 << 20)}) == accesses{{{block_id{0}, 1}, access::update},
                                                             {{block_id{1}, 1}, access::overwrite},
                                                             {{block_id{2}, 1}, access::update}});
  CHECK(declared({overwrites(p, 1 << 20)}) == accesses{{{block_id{0}, 1}, access::update}});
  CHECK(declared({overwrites(p, 4 << 20), reads(p, 1)}) ==
        accesses{{{block_id{0}, 2}, access::update}, {{block_id{0}, 1}, access::read}});
  CHECK(declared({reads(p, 0)}).empty());
  const std::array<bytes, 2> parts{2_MiB, 2_MiB};
  arena.split(p, parts);
  CHECK(declared({updates(p + (3 << 20))}) == accesses{{{block_id{1}, 1}, access::update}});
}

TEST_CASE("an array and a span stand for their elements, so that nothing beside them is named") {
  sim::device gpu{sim::find_profile("h200_pcie5"), small(64_MiB)};
  arena arena{gpu, {.capacity = 128_MiB, .headroom = 4_MiB}};
  char* const p = arena.allocate<char>(8 << 20);
  const auto q = arena.make_array<float>(1 << 20);
  const auto declared = [&](std::initializer_list<operand> operands) {
    std::vector<block_access> out;
    arena.rooms().launches.declare({operands.begin(), operands.size()}, out);
    return out;
  };
  using accesses = std::vector<block_access>;
  const block_range middle{block_id{1}, 2};
  const std::span<char> carved(p + (2 << 20), 4 << 20);
  CHECK(declared({reads(carved)}) == accesses{{middle, access::read}});
  CHECK(declared({reads(std::span<const char>(carved))}) == accesses{{middle, access::read}});
  CHECK(declared({updates(carved)}) == accesses{{middle, access::update}});
  CHECK(declared({overwrites(carved)}) == accesses{{middle, access::overwrite}});
  CHECK(declared({overwrites(carved.first<(2 << 20)>())}) == accesses{{{block_id{1}, 1}, access::overwrite}});
  const block_range whole{block_id{4}, 2};
  CHECK(declared({reads(q)}) == accesses{{whole, access::read}});
  CHECK(declared({updates(q)}) == accesses{{whole, access::update}});
  CHECK(declared({overwrites(q)}) == accesses{{whole, access::overwrite}});
  CHECK(operand(overwrites(q)).size == q.size_in_bytes());
  CHECK(declared({overwrites(array<float, sim::managed_memory>())}).empty());
}

TEST_CASE("an operand tells whether the program declared it") {
  float x = 0;
  detail::argument_reader<2> reader("k");
  const auto anywhere = [](const void*) { return std::optional<bytes>(bytes{0}); };
  reader.read(&x, anywhere);
  reader.read(updates(&x), anywhere);
  REQUIRE(reader.operands().size() == 2);
  CHECK_FALSE(reader.operands()[0].declared);
  CHECK(reader.operands()[1].declared);
}

TEST_CASE("a call is closed also when what it enqueues throws") {
  sim::device gpu{sim::find_profile("h200_pcie5"), small(64_MiB)};
  arena_options o;
  o.capacity = 128_MiB;
  o.headroom = 4_MiB;
  arena arena{gpu, o};
  float* p = arena.allocate<float>(1000);
  stream s{arena, {.lookahead = 4}};
  CHECK_THROWS_AS(s.call("bad", {updates(p)}, [](sim::stream&) { throw std::runtime_error("no"); }),
                  std::runtime_error);
  s.call("good", {updates(p)}, [&](sim::stream& q) { q.launch(1, 1, 0, set, p, 3.0F, std::size_t{1000}); });
  s.synchronize();
  const statistics after = arena.statistics();
  CHECK(after.launches == 2);
  CHECK(after.finished == 2);
  CHECK(arena.host_read(p, 1000)[0] == 3.0F);
}

TEST_CASE("memcpy and memset are launches, and nothing to move is none") {
  sim::device gpu{sim::find_profile("h200_pcie5"), small(64_MiB)};
  arena_options o;
  o.capacity = 128_MiB;
  o.headroom = 4_MiB;
  arena arena{gpu, o};
  char* p = arena.allocate<char>(5 << 20);
  char* q = arena.allocate<char>(5 << 20);
  stream s{arena};
  s.memset(p, 7, 5_MiB);
  s.memcpy(q, p, 5_MiB);
  s.memcpy(q + 1, "xyz", bytes{3});
  char out[5] = {};
  s.memcpy(out, q, bytes{5});
  CHECK_FALSE(s.memset(p, 7, bytes{0}).valid());
  CHECK_FALSE(s.memcpy(p, q, bytes{0}).valid());
  s.synchronize();
  CHECK(std::string(out, 5) == "\7xyz\7");
  CHECK(arena.statistics().launches == 4);
}

TEST_CASE("a launch larger than the budget runs, is counted, and logged once") {
  sim::device gpu{sim::find_profile("h200_pcie5"), small(8_MiB)};
  std::vector<std::string> log;
  arena arena{
      gpu, {.capacity = 64_MiB, .device_budget = 8_MiB, .log = [&](std::string_view line) { log.emplace_back(line); }}};
  constexpr std::size_t n = ((20U << 20U) / sizeof(float)) + 1;
  float* p = arena.allocate<float>(n);
  stream s{arena};
  for (int i = 0; i < 3; ++i)
    s.launch("set", 1, 1, 0, set, p, static_cast<float>(i), n);
  s.synchronize();
  CHECK(arena.host_read(p + n - 1, 1)[0] == 2.0F + static_cast<float>((n - 1) / stride));
  CHECK(arena.statistics().oversized_launches == 3);
  CHECK(log.size() == 1);
}

// What a launch touches is found in memory that the library does not know.
struct look_up {
  std::byte* table;
  const std::vector<std::uint32_t>* pieces;
};
struct hidden_look_up {
  const look_up* what;
};
const auto gather = sim::kernel(
    [](hidden_look_up h) {
      for (const std::uint32_t p : *h.what->pieces)
        h.what->table[p * block_size.count] ^= std::byte{1};
    },
    [](sim::work& w, hidden_look_up h) {
      for (const std::uint32_t p : *h.what->pieces)
        w.updates(h.what->table + p * block_size.count, block_size.count);
    });

TEST_CASE("where launches look up other blocks from now on, the faults end as soon as they did at first") {
  constexpr std::uint32_t table_pieces = 160;
  constexpr std::uint32_t pieces = 16;
  constexpr int steps = 6;
  // Twelve launches touch some 113 different pieces.
  for (const std::uint32_t budget : {80U, 90U}) {
    CAPTURE(budget);
    sim::device gpu{sim::find_profile("h200_pcie5"), small(block_size * (budget + 8))};
    arena arena{gpu,
                {.capacity = block_size * (table_pieces + 8),
                 .device_budget = block_size * budget,
                 .policy = "auto",
                 .log = [](std::string_view) {}}};
    stream s{arena};
    auto* table = arena.allocate<std::byte>(table_pieces * block_size.count);
    s.memset(table, 0, block_size * table_pieces);
    s.synchronize();
    std::array<std::vector<std::uint32_t>, 12> chosen;
    std::array<look_up, 12> look_ups;
    std::mt19937_64 random(budget);
    for (int phase = 0; phase != 4; ++phase) {
      CAPTURE(phase);
      for (std::size_t l = 0; l != chosen.size(); ++l) {
        chosen[l].resize(table_pieces);
        std::iota(chosen[l].begin(), chosen[l].end(), 0U);
        for (std::size_t i = 0; i != pieces; ++i)
          std::swap(chosen[l][i], chosen[l][i + random() % (table_pieces - i)]);
        chosen[l].resize(pieces);
        look_ups[l] = {table, &chosen[l]};
      }
      std::vector<std::uint64_t> faults;
      for (int step = 0; step != steps; ++step) {
        const std::uint64_t before = arena.statistics().faults;
        for (std::size_t l = 0; l != chosen.size(); ++l)
          s.launch("gather " + std::to_string(l), 1, 1, 0, gather, hidden_look_up{&look_ups[l]});
        s.synchronize();
        faults.push_back(arena.statistics().faults - before);
      }
      CHECK(faults.back() * 10 <= faults.front());
    }
  }
}

TEST_CASE("an event orders two streams") {
  sim::device gpu{sim::find_profile("h200_pcie5"), small(64_MiB)};
  arena_options o;
  o.capacity = 128_MiB;
  o.headroom = 4_MiB;
  arena arena{gpu, o};
  constexpr std::size_t n = 1U << 20U;
  float* x = arena.allocate<float>(n);
  float* y = arena.allocate<float>(n);
  stream a{arena};
  stream b{arena};
  sim::event written;
  a.launch("set", 1, 1, 0, set, x, 1.0F, n);
  a.launch("set", 1, 1, 0, set, y, 0.0F, n);
  a.record(written);
  b.wait(written);
  b.launch("add", 1, 1, 0, add, y, static_cast<const float*>(x), 2.0F, n);
  b.synchronize();
  CHECK(arena.host_read(y, n)[stride] == 0.5F + 4.0F);
}

TEST_CASE("threads with streams of their own share an arena, whoever runs the pump") {
  for (const sim::worker_mode mode : {sim::worker_mode::virtual_time, sim::worker_mode::thread}) {
    sim::device gpu{sim::find_profile("h200_pcie5"), small(12_MiB, mode)};
    arena arena{gpu, {.capacity = 96_MiB, .device_budget = 12_MiB}};
    std::vector<float> results(3);
    std::vector<std::thread> threads;
    for (std::size_t t = 0; t < results.size(); ++t) {
      threads.emplace_back([&, t] {
        constexpr std::size_t n = (5U << 20U) / sizeof(float);
        stream s{arena};
        const auto x = arena.template make_array<float>(n);
        for (std::size_t step = 0; step < deepum_test::scaled(10); ++step) {
          const auto y = arena.template make_array<float>(n);
          s.launch("set", 1, 1, 0, set, overwrites(x.data(), n), static_cast<float>(t), n);
          s.launch("set", 1, 1, 0, set, overwrites(y.data(), n), 1.0F, n);
          s.launch("add", 1, 1, 0, add, y.data(), static_cast<const float*>(x.data()), 2.0F, n);
          if (step % 3 == 0) s.synchronize();
          s.memcpy(&results[t], y.data() + 2 * stride, bytes{sizeof(float)});
          arena.mark_inactive(x.data(), x.size_in_bytes());
          arena.mark_active(x.data(), x.size_in_bytes());
        }
      });
    }
    for (std::thread& t : threads)
      t.join();
    for (std::size_t t = 0; t < results.size(); ++t)
      CHECK(results[t] == 1.5F + 2.0F * static_cast<float>(t + 2));
    const statistics s = arena.statistics();
    CHECK(s.launches == s.finished);
    CHECK(arena.footprint().allocated == bytes{0});
  }
}

}  // namespace stream_test
