#include "replay/card.hpp"

#include "replay/derived_workload.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <cstdint>
#include <vector>

namespace card_test {

using namespace deepum;
using namespace deepum::replay;
using namespace std::chrono_literals;

sim::profile card(double flops, double bandwidth) {
  sim::profile p;
  p.name = "card";
  p.peak_flops = flops;
  p.flops_efficiency = 1;
  p.memory_bandwidth = bandwidth;
  return p;
}

TEST_CASE("products come out of the sizes of operands, where the kernel is a known one") {
  const double m = 100;
  const double k = 30;
  const double n = 7;
  CHECK(*products_of("mm.default", {m * k, k * n}, m * n) == doctest::Approx(m * k * n));
  CHECK(*products_of("addmm.default", {n, m * k, k * n}, m * n) == doctest::Approx(m * k * n));
  CHECK(*products_of("convolution.default", {m * k, k * n}, m * n) == doctest::Approx(m * k * n));
  // Two products of that size, of the gradient with the filters and with the input.
  CHECK(*products_of("convolution_backward.default", {m * n, m * k, k * n}, m * k) == doctest::Approx(2 * m * k * n));
  CHECK_FALSE(products_of("mm.default", {m * k}, m * n));
  CHECK_FALSE(products_of("mul.Tensor", {m, m}, m));
  CHECK_FALSE(products_of("bmm.default", {m, m}, m));
}

/// Launches on tensors of 4 MB: they stream, they multiply 1000 by 1000, they are a layer of the G10 simulator.
workload_pointer four_kinds() {
  workload_description d;
  d.name = "kinds";
  for (std::int64_t id = 0; id != 3; ++id) {
    d.tensors.push_back({.id = id, .size = bytes{4'000'000}, .persistent = true});
  }
  const auto add = [&](const char* name, nanoseconds time) {
    d.launches.push_back({.kernel = name, .duration = time, .in = {0, 1}, .out = {2}, .blocks = {}});
  };
  add("mul.Tensor", 110us);
  add("mul.Tensor", 5us);
  add("mm.default", 110us);
  add("Linear_Forward", 110us);
  return built(d);
}

TEST_CASE("on another card bytes take the ratio of the memories' rates, and products the time of the new one") {
  std::vector<scaled_kernels> kinds;
  const workload_description d = on_card(*four_kinds(), card(100e12, 4e12), card(10e12, 1e12), 10us, &kinds);
  CHECK(d.launches[0].duration == 10us + 4 * 100us);
  CHECK(d.launches[1].duration == 5us);           // all of it is latency
  CHECK(d.launches[2].duration == 10us + 200us);  // 2 x 10^9 operations at 10^13 a second
  CHECK(d.launches[3].duration == 10us + 1000us);
  REQUIRE(kinds.size() == 3);
  CHECK(kinds[0].kernel == "Linear_Forward");  // the longest first
  CHECK(kinds[0].by_products == 1);
  CHECK(kinds[1].kernel == "mul.Tensor");
  CHECK(kinds[1].launches == 2);
  CHECK(kinds[1].recorded == 115us);
  CHECK(kinds[1].scaled == 415us);
  CHECK(kinds[1].by_products == 0);
  CHECK(kinds[1].factor() == doctest::Approx(415.0 / 115));
}

TEST_CASE("products that the card does at once leave a launch to its bytes") {
  const workload_description d = on_card(*four_kinds(), card(100e12, 4e12), card(10e15, 1e12), 0us, nullptr);
  CHECK(d.launches[2].duration == 15us);  // 12 MB at 80 % of the memory's rate
}

TEST_CASE("a fault on a card costs its share of a batch, its block and its pages") {
  sim::profile p = card(1, 1);
  p.fault_entries = 256;
  p.fault_duplicates = 4;
  p.fault_batch = 400us;
  p.fault_block = 20us;
  p.fault_page = 3us;
  p.link_in = 12e9;
  p.prefetch_out = 10e9;
  p.prefetch_out_beside_in = 8e9;
  p.pinned = 12.5e9;
  p.pinned_both = 11e9;
  const link_costs managed = costs_on(p, false);
  CHECK(managed.fault_latency == 200us + 20us + 96us);
  CHECK(managed.h2d_gbps == doctest::Approx(12));
  CHECK(managed.d2h_gbps == doctest::Approx(10));
  CHECK(managed.both_gbps == doctest::Approx(20));
  CHECK(costs_on(p, false, 512).fault_latency == 800us + 20us + 96us);
  const link_costs home = costs_on(p, true);
  CHECK(home.h2d_gbps == doctest::Approx(12.5));
  CHECK(home.d2h_gbps == doctest::Approx(12.5));
  CHECK(home.both_gbps == doctest::Approx(22));
}

TEST_CASE("a larger batch looks up what several recorded steps do, and a smaller one a part of it") {
  workload_description d;
  d.name = "table";
  d.tensors = {{.id = 0, .size = 8 * block_size, .persistent = true}, {.id = 1, .size = 4 * block_size}};
  d.launches = {{.kernel = "look_up", .duration = 100ns, .in = {0}, .out = {1}, .blocks = {}}};
  d.launches[0].blocks[0] = {{0, 1}, {1, 5}, {2}};
  const workload_pointer base = built(d);
  const workload_pointer twice = part_of_batch(*base, 2);
  CHECK(twice->description->launches[0].blocks.at(0) == described_launch::lists{{0, 1, 5}, {1, 2, 5}, {0, 1, 2}});
  CHECK(twice->tensors[1].size == 8 * block_size);
  CHECK(twice->tensors[0].size == 8 * block_size);
  CHECK(twice->launches[0].duration == 200ns);
  const workload_pointer more = part_of_batch(*base, 48);
  CHECK(more->description->launches[0].blocks.at(0) ==
        described_launch::lists{{0, 1, 2, 5}, {0, 1, 2, 5}, {0, 1, 2, 5}});
}

TEST_CASE("addresses are used again after a free, where the step is placed anew") {
  workload_description d;
  d.name = "chain";
  for (std::int64_t id = 0; id != 4; ++id) {
    d.tensors.push_back({.id = id, .size = 2 * block_size, .persistent = id == 0});
  }
  for (std::int64_t id = 1; id != 4; ++id) {
    d.launches.push_back({.kernel = "next", .duration = 1ns, .in = {id - 1}, .out = {id}, .blocks = {}});
  }
  const workload_pointer base = built(d);
  CHECK(base->blocks == 8);
  const workload_pointer packed = with_addresses_again(*base);
  CHECK(packed->blocks == 6);
  CHECK(packed->tensors[0].address == base->tensors[0].address);
}

}  // namespace card_test
