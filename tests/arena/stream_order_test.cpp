// Memory that is taken and given back in the order of a stream (docs/adr/0018).

#include "support/bulk.hpp"
#include "support/failure.hpp"
#include <deepum/arena/allocation_table.hpp>
#include <deepum/deepum.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <optional>
#include <random>
#include <utility>
#include <vector>

namespace stream_order_test {

using namespace deepum;
using namespace deepum::literals;
namespace bulk = deepum_test::bulk;
using deepum_test::failure;

constexpr std::uintptr_t base = 0x7000'0000'0000;
constexpr stream_id first{0};
constexpr stream_id second{1};

TEST_CASE("what a stream gives back it gets again at once, others when the launches before have ended") {
  allocation_table t(base, 8_MiB, block_size);
  std::vector<liveness_change> changes;
  const std::uintptr_t p = *t.try_allocate(6_MiB, bytes{1}, changes, first);
  changes.clear();
  t.free(p, launch_id{7}, false, changes, first);
  REQUIRE(changes.size() == 1);
  CHECK(changes[0].now == liveness::inactive);
  CHECK(changes[0].last == launch_id{7});
  CHECK(t.allocated() == bytes{0});
  failure(status::double_free, [&] { t.free(p, launch_id{7}, false, changes, first); });
  CHECK_FALSE(t.try_allocate(6_MiB, bytes{1}, changes));
  CHECK_FALSE(t.try_allocate(6_MiB, bytes{1}, changes, second));
  changes.clear();
  CHECK(t.try_allocate(6_MiB, bytes{1}, changes, first) == p);
  REQUIRE(changes.size() == 1);
  CHECK(changes[0].range == block_range{block_id{0}, 3});
  CHECK(changes[0].now == liveness::live);
  t.free(p, launch_id{9}, false, changes, first);

  CHECK_FALSE(t.awaited());
  CHECK(t.kept_until() == launch_id{9});
  changes.clear();
  t.take_kept(launch_id{8}, changes);
  CHECK(changes.empty());
  CHECK_FALSE(t.try_allocate(8_MiB, bytes{1}, changes, second));
  t.take_kept(launch_id{9}, changes);
  REQUIRE(changes.size() == 1);
  CHECK(changes[0].now == liveness::unallocated);
  CHECK_FALSE(t.kept_until());
  CHECK(t.free_space() == 8_MiB);
  CHECK(t.try_allocate(8_MiB, bytes{1}, changes, second) == base);
}

TEST_CASE("what a stream keeps when it ends is anyone's behind the launches before") {
  allocation_table t(base, 4_MiB, block_size);
  std::vector<liveness_change> changes;
  t.free(*t.try_allocate(4_MiB, bytes{1}, changes, first), launch_id{3}, false, changes, first);
  t.retire(first);
  CHECK_FALSE(t.try_allocate(4_MiB, bytes{1}, changes, first));  // a stream of the same number is another one
  t.reclaim(launch_id{2}, changes);
  CHECK_FALSE(t.try_allocate(4_MiB, bytes{1}, changes));
  t.reclaim(launch_id{3}, changes);
  CHECK(t.try_allocate(4_MiB, bytes{1}, changes) == base);
}

TEST_CASE("memory may be given back in another order than it was taken in") {
  allocation_table t(base, 8_MiB, block_size);
  std::vector<liveness_change> changes;
  const std::uintptr_t a = *t.try_allocate(2_MiB, bytes{1}, changes);
  const std::uintptr_t b = *t.try_allocate(2_MiB, bytes{1}, changes, first);
  const std::uintptr_t c = *t.try_allocate(2_MiB, bytes{1}, changes, first);
  t.free(a, launch_id{1}, false, changes, second);
  t.free(b, launch_id{2}, false, changes, second);
  t.free(c, launch_id{3}, true, changes);
  CHECK(t.try_allocate(4_MiB, bytes{1}, changes, second) == std::min(a, b));
  CHECK(t.try_allocate(4_MiB, bytes{1}, changes));
}

TEST_CASE("small ranges lie in blocks of their own") {
  allocation_table t(base, 64_MiB, block_size);
  std::vector<liveness_change> changes;
  const std::uintptr_t large = *t.try_allocate(3_MiB, bytes{1}, changes, first);
  const std::uintptr_t small = *t.try_allocate(bytes{512}, bytes{1}, changes, first);
  const std::uintptr_t next = *t.try_allocate(bytes{512}, bytes{1}, changes, first);
  CHECK(small >= large + (4_MiB).count);
  CHECK(next == small + 512);
  changes.clear();
  t.free(large, launch_id{1}, false, changes, first);
  REQUIRE(changes.size() == 1);
  CHECK(changes[0].range.count == 2);  // all that it had
}

/// The memory of an eager training: activations that live until the way back, temporaries that do not, gradients, and
/// results that outlive their step. Who calls says how far the device is.
class training {
 public:
  explicit training(bool in_order) : in_order_(in_order) {}

  /// @returns  The blocks at which the memory of each launch begins.
  template <class Finished>
  std::vector<std::uint64_t> step(Finished&& finished) {
    finished_ = finished;
    seen_.clear();
    std::vector<std::uintptr_t> kept;
    for (const bytes size : {6_MiB, 24_MiB, 8_MiB, 3_MiB, 24_MiB, 9_MiB, 1_MiB, 24_MiB}) {
      const std::uintptr_t temporary = take(size);
      kept.push_back(take(bytes{size.count / 2 + 4096}));
      kept.push_back(take(bytes{700}));
      launch({temporary, kept.back()});
      give(temporary);
    }
    const std::uintptr_t loss = take(bytes{512});
    const std::uintptr_t logits = take(10_MiB);
    launch({loss, logits});
    give(std::exchange(loss_, loss));
    std::vector<std::uintptr_t> gradients;
    for (; !kept.empty(); kept.pop_back()) {
      if (kept.size() % 2 == 0) {
        gradients.push_back(take(5_MiB));
      }
      launch({kept.back()});
      give(kept.back());
    }
    give(logits);
    for (const std::uintptr_t g : gradients) {
      launch({g});
    }
    for (const std::uintptr_t g : gradients) {
      give(g);
    }
    return seen_;
  }
  [[nodiscard]] std::uint64_t launches() const { return launches_; }

 private:
  std::uintptr_t take(bytes size) {
    changes_.clear();
    table_.reclaim(launch_id{finished_(launches_)}, changes_);
    return table_.try_allocate(size, bytes{512}, changes_, order()).value();
  }
  void give(std::uintptr_t p) {
    if (p != 0) {
      table_.free(p, launch_id{launches_}, finished_(launches_) >= launches_, changes_, order());
    }
  }
  void launch(std::initializer_list<std::uintptr_t> operands) {
    ++launches_;
    for (const std::uintptr_t p : operands) {
      seen_.push_back((p - base) / block_size.count);
    }
  }
  [[nodiscard]] std::optional<stream_id> order() const {
    return in_order_ ? std::optional<stream_id>(first) : std::nullopt;
  }

  bool in_order_;
  allocation_table table_{base, 2_GiB, block_size};
  std::vector<liveness_change> changes_{};
  std::vector<std::uint64_t> seen_{};
  std::function<std::uint64_t(std::uint64_t)> finished_{};
  std::uintptr_t loss_ = 0;
  std::uint64_t launches_ = 0;
};

/// Steps that differ from the third one, of fifty, when the device is behind by a random number of launches.
int steps_that_drift(bool in_order, std::uint32_t seed) {
  std::mt19937 random(seed);
  training t(in_order);
  std::uint64_t finished = 0;
  const auto some = [&](std::uint64_t launches) {
    return finished = std::max(finished, launches - std::min<std::uint64_t>(launches, random() % 200));
  };
  std::vector<std::uint64_t> third;
  int drifted = 0;
  for (int i = 0; i < 50; ++i) {
    const std::vector<std::uint64_t> now = t.step(some);
    third = i == 2 ? now : third;
    drifted += i > 2 && now != third ? 1 : 0;
  }
  return drifted;
}

TEST_CASE("a step gets the same blocks from the third one on, whenever launches end") {
  for (std::uint32_t seed = 1; seed != 20; ++seed) {
    CHECK(steps_that_drift(true, seed) == 0);
  }
  CHECK(steps_that_drift(false, 1) > 20);  // where nobody says in which order it is given back
}

constexpr std::size_t in_block = (2_MiB).count / sizeof(float);
const sim::kernel set{
    [](float* a, std::size_t n, float v) { bulk::fill(a, n, v); },
    [](sim::work& w, float* a, std::size_t n, float) { w.overwrites(a, n * sizeof(float)).flops(1e8); }};
const sim::kernel add{[](float* a, const float* b, std::size_t n) { bulk::add(a, b, n); },
                      [](sim::work& w, float* a, const float* b, std::size_t n) {
                        w.reads(b, n * sizeof(float)).updates(a, n * sizeof(float)).flops(1e8);
                      }};

TEST_CASE_TEMPLATE("programs that take and give back memory in stream order compute what they should", Memory,
                   sim::managed_memory, sim::paged_memory) {
  sim::device gpu(sim::find_profile("h200_pcie5"), {.memory = 128_MiB});
  arena<Memory> memory(gpu, {.capacity = 128_MiB, .device_budget = 24_MiB});
  constexpr std::size_t n = 4 * in_block;
  float* const sum = memory.template allocate<float>(n);
  stream one(memory);
  stream other(memory);
  one.launch("set", 1, 1, 0, set, overwrites(sum, n), n, 0.F);
  sim::event done;
  for (int step = 0; step < 30; ++step) {
    std::array<float*, 5> t{};
    for (std::size_t i = 0; i < t.size(); ++i) {
      t[i] = static_cast<float*>(one.allocate_bytes(bytes{n * sizeof(float)}));
      one.launch("set", 1, 1, 0, set, overwrites(t[i], n), n, static_cast<float>(i + 1));
    }
    // A buffer of the other stream is used there, and given back there behind this stream's use.
    auto* const b = static_cast<float*>(other.allocate_bytes(bytes{n * sizeof(float)}));
    other.launch("set", 1, 1, 0, set, overwrites(b, n), n, 10.F);
    other.record(done);
    one.wait(done);
    one.launch("add", 1, 1, 0, add, updates(sum, n), reads(b, n), n);
    for (float* const each : t) {
      one.launch("add", 1, 1, 0, add, updates(sum, n), reads(each, n), n);
      one.deallocate(each);
    }
    one.record(done);
    other.wait(done);
    other.deallocate(b);
  }
  one.synchronize();
  CHECK(memory.host_read(sum, 1)[0] == 30.F * (10 + 1 + 2 + 3 + 4 + 5));
  CHECK(memory.host_read(sum + n - 1, 1)[0] == 750.F);
}

TEST_CASE("memory that streams keep is given up where there is no other room") {
  sim::device gpu(sim::find_profile("h200_pcie5"), {.memory = 128_MiB});
  arena<sim::managed_memory> memory(gpu, {.capacity = 32_MiB, .device_budget = 16_MiB});
  constexpr std::size_t n = 12 * in_block;
  stream one(memory);
  stream other(memory);
  for (int i = 0; i < 10; ++i) {
    for (auto* const s : {&one, &other}) {
      auto* const p = static_cast<float*>(s->allocate_bytes(bytes{n * sizeof(float)}));
      s->launch("set", 1, 1, 0, set, overwrites(p, n), n, 1.F);
      s->deallocate(p);
    }
    float* const p = memory.allocate<float>(16 * in_block);
    memory.deallocate(p);
  }
  failure(status::out_of_arena_space, [&] { (void)one.allocate_bytes(34_MiB); });
  CHECK(memory.footprint().allocated == bytes{0});
}

}  // namespace stream_order_test
