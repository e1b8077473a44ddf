// Random programs against two naive twins: plain arrays for the contents, and a set of blocks that follows only what
// the events say.
#include "simulated_gpu.hpp"
#include "support/test_scale.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <random>
#include <set>
#include <vector>

namespace deepum_test::driver_model_test {

constexpr std::uint32_t blocks = 12;

/// What can be known from the events alone.
struct event_twin {
  std::set<std::uint32_t> resident;
  nanoseconds last{};

  void follow(const std::vector<device_event>& events) {
    for (const device_event& e : events) {
      CHECK(e.at >= last);
      last = e.at;
      for (std::uint32_t b = e.range.begin_value(); b < e.range.end_value(); ++b) {
        if (e.what == kind::arrived) {
          resident.insert(b);
        } else if (e.what == kind::departed) {
          CHECK(resident.count(b) == 1);
          resident.erase(b);
        }
      }
    }
  }
};

void random_program(std::uint64_t seed) {
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  const auto below = [&](std::uint64_t n) { return static_cast<std::uint32_t>(random() % n); };
  const std::uint32_t rooms = 1 + below(blocks + 2);
  sim::profile p = sim::find_profile(sim::profile_names()[seed % 3]);
  p.fault_duplicates = 1 + below(16);
  simulated_gpu gpu(rooms, blocks, p, {.delay_seed = seed % 2});
  sim::stream second(gpu.memory);
  sim::event order;
  event_twin twin;
  std::vector<std::uint32_t> expected(blocks);  // one number for each block, at a place of its own
  const auto number = [&](std::uint32_t b) {
    return reinterpret_cast<std::uint32_t*>(gpu.at(b)) + (b * 37U % 32U) * (sim::page_size.count / 4);
  };
  const auto mix = sim::kernel(
      "mix", [](std::uint32_t* to, const std::uint32_t* from, std::uint32_t add) { *to = *to * 3 + *from + add; },
      [](sim::work& w, std::uint32_t* to, const std::uint32_t* from, std::uint32_t) {
        w.reads(from, 4).updates(to, 4);
      });
  const auto range = [&] {
    const std::uint32_t first = below(blocks);
    return block_range{block_id{first}, 1 + below(blocks - first)};
  };
  bool in_second = false;
  for (int step = 0; step < 120; ++step) {
    sim::stream& s = in_second ? second : gpu.stream;
    switch (below(12)) {
      case 0:
      case 1:
      case 2:
      case 3: {
        const std::uint32_t to = below(blocks);
        const std::uint32_t from = below(blocks);
        s.launch(1U, 1U, 0, mix, number(to), static_cast<const std::uint32_t*>(number(from)),
                 static_cast<std::uint32_t>(step) * 7U);
        expected[to] = expected[to] * 3 + expected[from] + static_cast<std::uint32_t>(step) * 7U;
        break;
      }
      case 4:
        deepum_test::prefetch(gpu.memory, range(), ++gpu.ticket);
        break;
      case 5:
        deepum_test::evict(gpu.memory, range(), ++gpu.ticket);
        break;
      case 6: {
        const auto hint = static_cast<advice>(1 + below(6));
        gpu.memory.advise(range(), hint, below(2) == 0 ? location::host() : location::device());
        break;
      }
      case 7: {
        s.synchronize();
        const std::uint32_t b = below(blocks);
        gpu.memory.host_access(bytes{static_cast<std::uint64_t>(reinterpret_cast<std::byte*>(number(b)) - gpu.at(0))},
                               bytes{4}, access::update);
        CHECK(*number(b) == expected[b]);
        *number(b) = ++expected[b];
        break;
      }
      case 8: {  // discard, ordered behind all users, then new contents
        s.synchronize();
        const std::uint32_t b = below(blocks);
        gpu.discard(b, 1);
        CHECK(*number(b) == 0xDBDBDBDBU);
        s.fill(gpu.at(b), 0, block_size.count);
        expected[b] = 0;
        break;
      }
      case 9:
        s.record(order);
        in_second = !in_second;
        (in_second ? second : gpu.stream).wait(order);
        break;
      case 10:
        gpu.device.set_foreign_memory(block_size * below(rooms));
        break;
      case 11:
        gpu.device.host_work(nanoseconds{below(2'000'000)});
        break;
    }
    if (below(8) == 0) {
      twin.follow(gpu.events());
    }
  }
  gpu.stream.synchronize();
  second.synchronize();
  gpu.settle();
  twin.follow(gpu.events());
  std::uint32_t held = 0;
  for (std::uint32_t b = 0; b < blocks; ++b) {
    CAPTURE(b);
    CHECK(*number(b) == expected[b]);
    const sim::block_record r = gpu.record(b);
    CHECK((r.on_device != 0) == (twin.resident.count(b) == 1));
    CHECK((r.read_mostly || (r.on_device & r.on_host) == 0));
    CHECK((r.room || r.on_device == 0));
    held += r.room ? 1 : 0;
  }
  CHECK(held <= rooms);
  gpu.device.set_foreign_memory(bytes{});
  CHECK(gpu.memory.free_memory() == block_size * (rooms - held));
}

TEST_CASE("random programs compute what plain arrays compute, and events tell exactly which blocks are on the device") {
  for (std::uint64_t seed = 1; seed <= scaled(60); ++seed) {
    random_program(seed);
  }
}

}  // namespace deepum_test::driver_model_test
