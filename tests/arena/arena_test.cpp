#include "support/failure.hpp"
#include "support/test_scale.hpp"
#include <deepum/deepum.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <random>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace arena_test {

using namespace deepum;
using namespace deepum::literals;
using deepum_test::failure;
using deepum_test::mentions;

sim::device_options with_memory(bytes memory) {
  sim::device_options o;
  o.memory = memory;
  return o;
}

/// A device of 64 MiB with an arena on it.
struct small_machine {
  explicit small_machine(arena_options o = {})
      : gpu(sim::find_profile("h200_pcie5"), with_memory(64_MiB)),
        memory(gpu, sized(std::move(o))) {}
  static arena_options sized(arena_options o) {
    if (o.capacity == bytes{0}) o.capacity = 128_MiB;
    o.headroom = 4_MiB;
    o.log = [](std::string_view) {};
    return o;
  }
  sim::device gpu;
  arena<sim::managed_memory> memory;
};

const auto set = sim::kernel([](char* p, char v, std::size_t n) { std::fill_n(p, n, v); },
                             [](sim::work& w, char* p, char, std::size_t n) { w.overwrites(p, n).flops(1e9); });

TEST_CASE("zero bytes are nullptr, and giving nullptr back is fine") {
  small_machine m;
  CHECK(m.memory.allocate<int>(0) == nullptr);
  m.memory.deallocate(nullptr);
  m.memory.prefetch(nullptr, bytes{0}, location::device());
  m.memory.mark_inactive(nullptr, bytes{0});
  CHECK(m.memory.make_array<int>(0).data() == nullptr);
  CHECK(m.memory.host_read<int>(nullptr, 0).size() == 0);
}

TEST_CASE("an arena that is full says so with the numbers") {
  small_machine m({.capacity = 8_MiB});
  void* p = m.memory.allocate_bytes(5_MiB);
  const std::string text = failure(status::out_of_arena_space, [&] { (void)m.memory.allocate_bytes(3_MiB); });
  CHECK(mentions(text, "3145728"));
  CHECK(mentions(text, "largest gap has 3145728"));
  CHECK(mentions(text, "8388608"));
  failure(status::out_of_arena_space, [&] { (void)m.memory.allocate<double>(~std::size_t{0}); });
  m.memory.deallocate(p);
  CHECK(m.memory.allocate_bytes(8_MiB) == p);
}

TEST_CASE("a wrong alignment, a wrong free and a foreign pointer are told apart") {
  small_machine m;
  failure(status::invalid_argument, [&] { (void)m.memory.allocate_bytes(bytes{10}, bytes{3}); });
  char* p = m.memory.allocate<char>(100);
  failure(status::invalid_argument, [&] { m.memory.deallocate(p + 1); });
  int local = 0;
  failure(status::foreign_pointer, [&] { m.memory.deallocate(&local); });
  failure(status::foreign_pointer, [&] { m.memory.prefetch(&local, bytes{4}, location::device()); });
  failure(status::foreign_pointer, [&] { (void)m.memory.host_read(&local, 1); });
  m.memory.deallocate(p);
  failure(status::double_free, [&] { m.memory.deallocate(p); });
}

TEST_CASE("a budget below one block and an unknown policy are refused; the environment goes before the policy") {
  sim::device gpu{sim::find_profile("h200_pcie5"), with_memory(64_MiB)};
  using arena_type = arena<sim::managed_memory>;
  failure(status::invalid_argument, [&] { arena_type(gpu, {.capacity = 8_MiB, .device_budget = bytes{100}}); });
  CHECK(mentions(failure(status::invalid_argument, [&] { arena_type(gpu, {.capacity = 8_MiB, .policy = "magic"}); }),
                 "magic"));
  ::setenv("DEEPUM_POLICY", "off", 1);
  CHECK(arena_type(gpu, {.capacity = 8_MiB, .policy = "magic"}).policy_name() == "off");
  ::unsetenv("DEEPUM_POLICY");
  CHECK(arena_type(gpu, {.capacity = 8_MiB}).policy_name() == "auto");
}

TEST_CASE("the budget follows the device where none is given, and can be set") {
  sim::device gpu{sim::find_profile("h200_pcie5"), with_memory(64_MiB)};
  arena memory{gpu, {.capacity = 128_MiB, .headroom = 4_MiB}};
  CHECK(memory.budget() == 60_MiB);
  memory.set_budget(10_MiB);
  CHECK(memory.budget() == 10_MiB);
  failure(status::invalid_argument, [&] { memory.set_budget(1_MiB); });
}

TEST_CASE("the same calls give the same addresses") {
  std::vector<std::vector<std::ptrdiff_t>> runs;
  for (int run = 0; run < 2; ++run) {
    small_machine m;
    std::mt19937 random(5);
    std::vector<char*> held;
    std::vector<std::ptrdiff_t>& offsets = runs.emplace_back();
    for (int i = 0; i < 200; ++i) {
      if (held.size() > 8 && random() % 2 == 0) {
        const std::size_t k = random() % held.size();
        m.memory.deallocate(held[k]);
        held.erase(held.begin() + static_cast<std::ptrdiff_t>(k));
      } else {
        held.push_back(m.memory.allocate<char>(1 + random() % (3U << 20U)));
        offsets.push_back(held.back() - reinterpret_cast<char*>(m.memory.memory().base()));
      }
    }
  }
  CHECK(runs[0] == runs[1]);
}

TEST_CASE("memory that a launch in flight may use is reused only when it has finished") {
  small_machine m({.capacity = 8_MiB});
  stream s{m.memory};
  char* p = m.memory.allocate<char>(8 << 20);
  const launch_id l = s.launch("set", 1, 1, 0, set, p, 'a', std::size_t{8 << 20});
  m.memory.deallocate(p);
  CHECK(m.memory.footprint().allocated == bytes{0});
  CHECK_FALSE(m.memory.engine().finished(l));
  char* q = m.memory.allocate<char>(8 << 20);  // nothing else would do, so it waits
  CHECK(q == p);
  CHECK(m.memory.engine().finished(l));
}

TEST_CASE("other space is taken before anybody waits") {
  small_machine m({.capacity = 8_MiB});
  stream s{m.memory};
  char* p = m.memory.allocate<char>(4 << 20);
  const launch_id l = s.launch("set", 1, 1, 0, set, p, 'a', std::size_t{4 << 20});
  m.memory.deallocate(p);
  CHECK(m.memory.allocate<char>(4 << 20) != p);
  CHECK_FALSE(m.memory.engine().finished(l));
}

TEST_CASE("what the host writes into reused memory survives a discard of what was there") {
  for (const char* policy : {"um", "deepum", "auto"}) {
    CAPTURE(std::string(policy));
    small_machine m({.capacity = 16_MiB, .device_budget = 8_MiB, .policy = policy});
    stream s{m.memory};
    for (char round = 1; round < 20; ++round) {
      char* p = m.memory.allocate<char>(12 << 20);
      s.launch("set", 1, 1, 0, set, p, round, std::size_t{12 << 20});
      m.memory.deallocate(p);
      char* q = m.memory.allocate<char>(6 << 20);
      {
        const auto view = m.memory.host_overwrite(q, 6 << 20);
        std::fill(view.begin(), view.end(), static_cast<char>(-round));
      }
      char* r = m.memory.allocate<char>(6 << 20);
      s.launch("set", 1, 1, 0, set, r, round, std::size_t{6 << 20});
      s.synchronize();
      const auto view = m.memory.host_read(q, 6 << 20);
      CHECK(std::count(view.begin(), view.end(), static_cast<char>(-round)) == 6 << 20);
      m.memory.deallocate(q);
      m.memory.deallocate(r);
    }
  }
}

TEST_CASE("memory is not used again before a discard that is on its way has ended") {
  small_machine m({.device_budget = 60_MiB, .policy = "auto"});
  stream s{m.memory};
  char* p = m.memory.allocate<char>(40 << 20);
  s.launch("set", 1, 1, 0, set, p, 'x', std::size_t{40 << 20});
  s.synchronize();
  const block_range blocks{block_id{0}, 20};
  m.memory.mark_inactive(p, 40_MiB);
  m.memory.set_budget(4_MiB);  // so that the policy wants the room
  for (int i = 0; i < 100 && m.memory.engine().settled(blocks); ++i)
    m.gpu.host_work(std::chrono::microseconds(1));
  REQUIRE_FALSE(m.memory.engine().settled(blocks));
  m.memory.mark_active(p, 40_MiB);
  CHECK(m.memory.engine().settled(blocks));
  const auto view = m.memory.host_overwrite(p, 40 << 20);
  std::fill(view.begin(), view.end(), 'y');
  m.gpu.host_work(std::chrono::milliseconds(10));
  CHECK(std::count(view.begin(), view.end(), 'y') == 40 << 20);
}

TEST_CASE("discarded contents are gone, live neighbours stay, and the room is given up") {
  small_machine m({.policy = "um"});
  stream s{m.memory};
  char* p = m.memory.allocate<char>(8 << 20);
  s.launch("set", 1, 1, 0, set, p, 'x', std::size_t{8 << 20});
  s.synchronize();
  const bytes before = m.memory.memory().free_memory();
  m.memory.discard(p + (1 << 20), 6_MiB);  // covers the blocks 1 and 2 as a whole
  CHECK(m.memory.memory().free_memory() == before + 4_MiB);
  const auto view = m.memory.host_read(p, 8 << 20);
  CHECK(view[(2 << 20) - 1] == 'x');
  CHECK(view[2 << 20] != 'x');
  CHECK(view[6 << 20] == 'x');
  CHECK(m.memory.statistics().discarded == 2);
}

TEST_CASE("an explicit prefetch brings what was asked for to where it was asked") {
  small_machine m({.policy = "um"});
  stream s{m.memory};
  char* p = m.memory.allocate<char>(8 << 20);
  {
    const auto view = m.memory.host_overwrite(p, 8 << 20);
    std::fill(view.begin(), view.end(), 'h');
  }
  m.memory.prefetch(p, 8_MiB, location::device());
  m.gpu.host_work(std::chrono::milliseconds(50));
  CHECK(m.memory.memory().free_memory() == 56_MiB);
  m.memory.prefetch(std::span<char>(p, 4 << 20), location::host());
  m.gpu.host_work(std::chrono::milliseconds(50));
  CHECK(m.memory.memory().free_memory() == 60_MiB);
  CHECK(m.memory.host_read(p, 8 << 20)[5] == 'h');
  const statistics t = m.memory.statistics();
  CHECK(t.in().bytes_for(reason::requested) == (8_MiB).count);
  CHECK(t.out().bytes_for(reason::requested) == (4_MiB).count);
}

TEST_CASE("arrays own their memory and can be moved") {
  small_machine m;
  using array_type = array<float, sim::managed_memory>;
  static_assert(!std::is_copy_constructible_v<array_type>);
  array_type a = m.memory.make_array<float>(1000);
  float* p = a.data();
  array_type b = std::move(a);
  CHECK(b.data() == p);
  CHECK(b.size_in_bytes() == bytes{4000});
  CHECK(m.memory.footprint().allocated == bytes{4000});
  b = m.memory.make_array<float>(10);
  CHECK(m.memory.footprint().allocated == bytes{40});
  b = {};
  CHECK(m.memory.footprint().allocated == bytes{0});
  CHECK(m.memory.footprint().peak == bytes{4040});
}

TEST_CASE("containers of the standard library take their memory from the arena") {
  small_machine m;
  using allocator_type = allocator<int, sim::managed_memory>;
  {
    std::vector<int, allocator_type> v{allocator_type(m.memory)};
    for (int i = 0; i < 1000; ++i)
      v.push_back(i);
    CHECK(v[999] == 999);
    CHECK(m.memory.contains(v.data()));
  }
  CHECK(m.memory.footprint().allocated == bytes{0});
}

TEST_CASE("the default address range is larger than the device") {
  sim::device gpu{sim::find_profile("h200_pcie5"), with_memory(64_MiB)};
  arena memory{gpu};
  CHECK(memory.capacity() == 256_MiB);
}

}  // namespace arena_test
