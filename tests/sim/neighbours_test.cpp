// An arena on one simulated GPU that uses the links of others to the host.

#include "support/failure.hpp"
#include <deepum/arena.hpp>
#include <deepum/sim/kernel.hpp>
#include <deepum/sim/machine.hpp>
#include <deepum/sim/managed_memory.hpp>
#include <deepum/sim/paged_memory.hpp>
#include <deepum/sim/stream.hpp>
#include <deepum/stream.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace neighbours_test {

using namespace deepum;
using namespace deepum::literals;
using deepum_test::failure;
using arena_type = arena<sim::paged_memory>;

constexpr std::size_t tensor_words = (32_MiB).count / sizeof(std::uint32_t);
constexpr std::size_t stride = 4096;

const auto add_one = sim::kernel(
    [](std::uint32_t* x, std::size_t n) {
      for (std::size_t i = 0; i < n; i += stride)
        x[i] += 1;
    },
    [](sim::work& w, std::uint32_t* x, std::size_t n) { w.updates(x, n * sizeof *x).flops(1e6); });

sim::profile four_devices() {
  sim::profile p = sim::find_profile("4x_h200_nvlink");
  p.memory = 1_GiB;
  return p;
}

arena_options options(std::vector<neighbour> beside) {
  return {.capacity = 1_GiB, .device_budget = 256_MiB, .neighbours = std::move(beside), .log = {}};
}

struct churned {
  nanoseconds time{};
  statistics did{};
  bool right = true;
};

/// Adds to three times the memory that the device may hold, over and over. What it did in the second half.
churned churn(sim::machine& m, const std::vector<neighbour>& beside) {
  arena_type a(m[0], options(beside));
  stream s(a);
  std::vector<std::uint32_t*> all;
  for (std::uint32_t t = 0; t != 24; ++t) {
    all.push_back(a.allocate<std::uint32_t>(tensor_words));
    const auto view = a.host_overwrite(all.back(), tensor_words);
    for (std::size_t i = 0; i < tensor_words; i += stride)
      view[i] = t;
  }
  churned result;
  nanoseconds began{};
  statistics before;
  constexpr std::uint32_t rounds = 10;
  for (std::uint32_t r = 0; r != rounds; ++r) {
    if (r == rounds / 2) {
      s.synchronize();
      began = m.now();
      before = a.statistics();
    }
    for (std::uint32_t* x : all)
      s.launch("add_one", 1, 1, 0, add_one, x, tensor_words);
  }
  s.synchronize();
  result.time = m.now() - began;
  result.did = a.statistics() - before;
  for (std::uint32_t t = 0; t != all.size(); ++t) {
    const auto view = a.host_read(all[t], tensor_words);
    for (std::size_t i = 0; i < tensor_words; i += stride)
      result.right = result.right && view[i] == t + rounds;
  }
  return result;
}

TEST_CASE(
    "with the link of one neighbour copies take half the time, and with three what the memory of the host allows") {
  sim::machine m(four_devices());
  const churned alone = churn(m, {});
  CHECK(alone.right);
  CHECK(alone.did.links.size() == 2);

  const churned one = churn(m, {{.device = m[1]}});
  CHECK(one.right);
  CHECK(static_cast<double>(alone.time.count()) > 1.8 * static_cast<double>(one.time.count()));
  const location other = location::device(1);
  const std::uint64_t direct = one.did.between(location::host(), location::device()).all_bytes();
  const std::uint64_t detour = one.did.between(location::host(), other).all_bytes();
  CHECK(direct + detour > 0);
  CHECK(static_cast<double>(detour) > 0.45 * static_cast<double>(direct + detour));
  CHECK(one.did.between(other, location::device()).all_bytes() == detour);  // through, and nothing stays there

  const std::vector<neighbour> all{{.device = m[1]}, {.device = m[2]}, {.device = m[3]}};
  const churned three = churn(m, all);
  CHECK(three.right);
  CHECK(static_cast<double>(alone.time.count()) > 2.2 * static_cast<double>(three.time.count()));
  CHECK(static_cast<double>(alone.time.count()) < 2.8 * static_cast<double>(three.time.count()));  // the host's memory
  sim::profile fast = four_devices();
  fast.host_memory = 0;
  sim::machine rich(fast);
  CHECK(static_cast<double>(alone.time.count()) >
        3 * static_cast<double>(
                churn(rich, {{.device = rich[1]}, {.device = rich[2]}, {.device = rich[3]}}).time.count()));
}

TEST_CASE("a neighbour whose link is not to be used is left alone") {
  sim::machine m(four_devices());
  const churned without = churn(m, {{.device = m[1], .link = false}});
  CHECK(without.right);
  CHECK(without.did.between(location::host(), location::device(1)).all_bytes() == 0);
  CHECK(m[1].counters().to_peers.count == 0);
}

TEST_CASE("what is no neighbour is refused in words") {
  sim::machine m(four_devices());
  sim::device elsewhere(four_devices());
  failure(status::invalid_argument, [&] { arena_type a(m[0], options({{.device = m[0]}})); });
  failure(status::invalid_argument, [&] { arena_type a(m[1], options({{.device = m[2]}, {.device = m[1]}})); });
  failure(status::invalid_argument, [&] { arena_type a(elsewhere, options({{.device = m[1]}})); });
  failure(status::unsupported, [&] { arena<sim::managed_memory> a(m[0], options({{.device = m[1]}})); });
}

TEST_CASE("the neighbour's own copies share its link with those that pass through") {
  sim::machine m(four_devices());
  const churned quiet = churn(m, {{.device = m[1]}});
  // Copies of device 1 on the same links, from a program of its own.
  sim::paged_memory own(m[1], 128_MiB);
  std::uint64_t ticket = 0;
  bool stop = false;
  const auto go_on = [&] {
    std::vector<device_event> events;
    own.poll(events);
    if (stop) return;
    if (ticket % 2 == 0) {
      (void)own.start(transfer::prefetch(location::device(), reason::issued, {block_id{0}, 64}), ++ticket);
    }
  };
  go_on();
  const churned busy = churn(m, {{.device = m[1]}});
  stop = true;
  CHECK(busy.right);
  CHECK(busy.time >= quiet.time);
}

}  // namespace neighbours_test
