// What the GPU benchmark works out before it measures: segments, what moves when, the least traffic, what it refuses.

#include "gpu/library/least_traffic.hpp"
#include "gpu/library/report.hpp"
#include "gpu/library/safety.hpp"
#include "gpu/library/step_program.hpp"
#include "gpu/opponents/residency_planner.hpp"
#include "gpu_bench/unit_programs.hpp"
#include <deepum/error.hpp>
#include <deepum/units.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <random>
#include <vector>

namespace schedules {

using namespace deepum::gpu_bench;
using namespace deepum::literals;
using namespace deepum_test;
using deepum::access;
using deepum::bytes;

TEST_CASE("blocks that a launch overwrites in part are updated") {
  step_program p{.capacity = 8_MiB};
  p.launches.push_back({"a", {{1_MiB, 4_MiB, access::overwrite}}});
  p.launches.push_back({"b", {{0_MiB, 4_MiB, access::overwrite}, {1_MiB, 1_MiB, access::read}}});
  const unit_program u = in_blocks(p);
  CHECK(u.size == std::vector<std::uint64_t>(4, 2U << 20));
  CHECK(u.launches[0] == std::vector<unit_use>{updates(0), overwrites(1), updates(2)});
  CHECK(u.launches[1] == std::vector<unit_use>{updates(0), overwrites(1)});
  CHECK(used_bytes(u) == 6U << 20);
}

TEST_CASE("operands become the parts that they reach into, and parts that stay are left out") {
  step_program p{.capacity = 8_MiB};
  p.parts = {{0_MiB, 1_MiB}, {1_MiB, 1_MiB}, {2_MiB, 1_MiB, true}, {4_MiB, 1_MiB}};
  p.launches.push_back({"a", {{0_MiB, 3_MiB, access::overwrite}}});
  p.launches.push_back({"b", {{1_MiB, 1_MiB - 100_B, access::overwrite}, {4_MiB, 4_KiB, access::overwrite}}});
  p.launches.push_back({"c", {{1_MiB + 4_KiB, 4_KiB, access::read}, {3_MiB, 4_KiB, access::update}}});
  const unit_program u = in_parts(p);
  CHECK(u.launches[0] == std::vector<unit_use>{overwrites(0), overwrites(1)});
  CHECK(u.launches[1] == std::vector<unit_use>{overwrites(1), updates(3)});
  CHECK(u.launches[2] == std::vector<unit_use>{reads(1)});
}

TEST_CASE("segments are as long as their units fit, and know how each is used first") {
  unit_program p{.size = {4, 4, 4, 20}};
  p.launches = {{overwrites(0)}, {reads(0), updates(1)}, {reads(2)}, {reads(3)}, {reads(0)}};
  const std::vector<segment> s = cut(p, 10);
  REQUIRE(s.size() == 4);
  CHECK(s[0].count == 2);
  CHECK(s[0].bytes == 8);
  CHECK(s[0].units == std::vector<unit_use>{overwrites(0), updates(1)});
  CHECK(s[1].units == std::vector<unit_use>{reads(2)});
  CHECK(s[2].first == 3);
  CHECK(s[2].bytes == 20);
  CHECK(s[3].units == std::vector<unit_use>{reads(0)});
}

TEST_CASE("room in one piece is where a gap is large enough, and gaps grow together again") {
  device_room room(10, true);
  CHECK(room.try_take(4) == 0);
  CHECK(room.try_take(3) == 4);
  CHECK(room.try_take(3) == 7);
  CHECK(!room.try_take(1));
  room.give_back(0, 4);
  room.give_back(7, 3);
  CHECK(!room.try_take(5));  // 7 are free, 4 in one piece
  CHECK(room.try_take(3) == 7);
  room.give_back(4, 3);
  CHECK(room.try_take(7) == 0);
}

// Follows a planner as a device would: contents are numbers, and every launch finds the newest.
void follow(const unit_program& p, residency_planner planner, std::uint64_t budget, bool in_one_piece) {
  std::vector<std::uint64_t> host(p.size.size(), 0);
  std::vector<std::uint64_t> device(p.size.size(), 0);
  std::vector<std::uint64_t> truth(p.size.size(), 0);
  std::vector<bool> dead(p.size.size(), false);
  std::map<std::uint32_t, std::uint64_t> at;  // resident units
  std::uint64_t clock = 0;
  std::uint64_t used = 0;
  const std::vector<segment> segments = planner.segments();
  for (std::size_t g = 0; g < 5 * segments.size(); ++g) {
    const segment& s = segments[g % segments.size()];
    const segment* before = g == 0 ? nullptr : &segments[(g - 1) % segments.size()];
    for (const move& m : planner.next()) {
      CAPTURE(m.unit);
      if (m.inward) {
        REQUIRE(!at.contains(m.unit));
        device[m.unit] = m.copies ? host[m.unit] : ~std::uint64_t{0};
        REQUIRE(!(m.copies && dead[m.unit]));
        at[m.unit] = m.at;
        used += p.size[m.unit];
        REQUIRE(used <= budget);
        for (const auto& [other, where] : at) {
          if (in_one_piece && other != m.unit) {
            REQUIRE((where + p.size[other] <= m.at || m.at + p.size[m.unit] <= where));
          }
        }
      } else {
        REQUIRE(at.erase(m.unit) == 1);
        used -= p.size[m.unit];
        const auto uses = [&](const segment& x) {
          return std::any_of(x.units.begin(), x.units.end(), [&](const unit_use& u) { return u.unit == m.unit; });
        };
        REQUIRE(!uses(s));
        REQUIRE((before == nullptr || !uses(*before)));
        if (m.copies) {
          host[m.unit] = device[m.unit];
        }
        dead[m.unit] = !m.copies && host[m.unit] != device[m.unit];
      }
    }
    for (std::size_t l = s.first; l < s.first + s.count; ++l) {
      for (const unit_use& u : p.launches[l]) {
        REQUIRE(at.contains(u.unit));
        if (u.mode != access::overwrite) {
          REQUIRE(device[u.unit] == truth[u.unit]);
        }
        if (u.written) {
          truth[u.unit] = device[u.unit] = ++clock;
          dead[u.unit] = false;
        }
      }
    }
  }
}

TEST_CASE("double buffering gives every launch the newest contents and stays in its budget") {
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    CAPTURE(seed);
    const bool in_one_piece = seed % 2 == 0;
    const unit_program p = random_units(seed, false);
    const std::uint64_t budget = std::max<std::uint64_t>(used_bytes(p) * (40 + seed % 50) / 100, 1);
    try {
      residency_planner planner = plan_residency(p, budget, 2 + static_cast<unsigned>(seed % 3), in_one_piece);
      follow(p, planner, budget, in_one_piece);
    } catch (const deepum::error& e) {
      CHECK(e.code() == deepum::status::invalid_argument);  // two launches in a row that do not fit
    }
  }
}

TEST_CASE("what is clean or about to be overwritten leaves pinned memory's device without a copy") {
  unit_program p{.size = {4, 4, 4}};
  p.launches = {{overwrites(0)}, {reads(1)}, {updates(2)}};
  residency_planner planner(p, cut(p, 4), 8, true);
  std::vector<move> all;
  for (int i = 0; i < 9; ++i) {
    for (const move& m : planner.next())
      all.push_back(m);
  }
  for (std::size_t i = 0; i < all.size(); ++i) {
    CAPTURE(i);
    CHECK(all[i].copies == (all[i].inward ? all[i].unit != 0 : all[i].unit == 2));
  }
}

// The least traffic by trying everything: which of the units stay behind each launch.
std::uint64_t least_by_trying(const unit_program& p, std::uint64_t budget) {
  const std::size_t n = p.size.size();
  const std::size_t steps = 3;
  std::map<std::uint32_t, std::uint64_t> costs{{0, 0}};  // set of resident units with contents -> bytes so far
  for (std::size_t step = 0; step < steps; ++step) {
    for (const auto& launch : p.launches) {
      std::map<std::uint32_t, std::uint64_t> next;
      for (const auto& [set, cost] : costs) {
        std::uint32_t with = set;
        std::uint64_t sum = cost;
        std::uint32_t own = 0;
        for (const unit_use& u : launch) {
          sum += (set >> u.unit & 1U) == 0 && u.mode != access::overwrite ? p.size[u.unit] : 0;
          own |= 1U << u.unit;
        }
        with |= own;
        // Any subset may stay while it runs, beside its own units.
        for (std::uint32_t kept = with & ~own;; kept = (kept - 1) & (with & ~own)) {
          std::uint64_t used = 0;
          for (std::uint32_t u = 0; u < n; ++u)
            used += ((kept | own) >> u & 1U) != 0 ? p.size[u] : 0;
          if (used <= budget || kept == 0) {
            const auto [it, fresh] = next.try_emplace(kept | own, sum);
            it->second = std::min(it->second, sum);
          }
          if (kept == 0) break;
        }
      }
      costs = std::move(next);
    }
  }
  std::uint64_t least = ~std::uint64_t{0};
  for (const auto& [set, cost] : costs)
    least = std::min(least, cost);
  return least;
}

TEST_CASE("the least traffic is what trying every choice finds") {
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    CAPTURE(seed);
    unit_program p = random_units(seed, true);
    if (p.size.size() > 9) continue;
    for (const std::uint64_t budget : {3U, 4U, 6U, 100U}) {
      CAPTURE(budget);
      CHECK(least_bytes_in(p, budget, 3) == least_by_trying(p, budget));
    }
  }
}

TEST_CASE("the best mix uses both directions at once only where that pays") {
  CHECK(best_mix_seconds(40, 10, {.in = 40, .out = 10, .in_both = 40, .out_both = 10}) == doctest::Approx(1));
  CHECK(best_mix_seconds(40, 10, {.in = 40, .out = 10, .in_both = 10, .out_both = 2}) == doctest::Approx(2));
  // One second of both moves 30 in and 10 out; 10 more come alone.
  CHECK(best_mix_seconds(40, 10, {.in = 40, .out = 12, .in_both = 30, .out_both = 10}) == doctest::Approx(1.25));
  CHECK(best_mix_seconds(40, 0, {.in = 40, .out = 12, .in_both = 30, .out_both = 10}) == doctest::Approx(1));
  CHECK(best_mix_seconds(0, 0, {.in = 40, .out = 12, .in_both = 30, .out_both = 10}) == 0);
}

TEST_CASE(
    "managed memory is refused without a limit, above 4 GiB, above an eighth of the device, and where it is little") {
  CHECK(refusal(std::nullopt, 100_GiB, 1_GiB));
  CHECK(refusal(5_GiB, 100_GiB, 1_GiB));
  CHECK(refusal(4_GiB, 31_GiB, 1_GiB));
  CHECK(refusal(2_GiB, 100_GiB, 3_GiB));
  CHECK(!refusal(4_GiB, 32_GiB, 4_GiB));
}

TEST_CASE("the table has a line for each system, with what it is compared with") {
  program_report r{.name = "train", .description = "a model", .footprint = 100U << 20};
  r.managed = {.in = 40e9, .out = 12e9, .in_both = 40e9, .out_both = 10e9};
  const auto with = [&](const char* name, std::uint64_t budget, std::int64_t ms, std::uint64_t moved) {
    system_run s{.name = name, .budget = budget};
    for (int i = -1; i <= 1; ++i)
      s.steps.push_back({.ns = (ms + i) * 1'000'000, .did = {.in = moved, .out = moved}});
    r.runs.push_back(s);
  };
  with("resident", 0, 5, 0);
  with("um", 50U << 20, 100, 200'000'000);
  with("auto", 50U << 20, 25, 200'000'000);
  r.bounds.push_back({50U << 20, 100'000'000});
  const std::string text = table_of(r);
  CAPTURE(text);
  CHECK(text.find("25.00 [   24.50    25.50]   4.00x    20.0    70.0") != std::string::npos);
  CHECK(text.find("least traffic        8.75 ms") != std::string::npos);
  CHECK(json_of(r)["runs"][2]["median_ns"] == 25e6);
}

}  // namespace schedules
