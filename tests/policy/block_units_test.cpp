// What a policy asks for at a time is an amount of memory, whatever the size of a block is.

#include "driver.hpp"
#include <deepum/policy/make_policy.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>

namespace block_units_test {

using namespace deepum_test;
using namespace deepum::literals;

/// 2 GiB in blocks of one size, of which half fits.
struct bench {
  bench(const std::string& name, bytes block)
      : unit(block),
        count(static_cast<std::uint32_t>(2_GiB / block)),
        chooser(make_policy(name)),
        d(*chooser, count, count / 2, block_grid{block}) {
    d.automatic = false;
    d.make_live(blocks(0, count));
    d.host_writes(blocks(0, count));
  }
  /// Commands of one kind: bytes in all of them, and in the largest.
  struct volume {
    bytes all{};
    bytes largest{};
  };
  [[nodiscard]] volume of(std::string_view what, const plan& p) const {
    volume v;
    for (const transfer& c : p.transfers) {
      if (to_string(c) == what) {
        v.all += unit * c.blocks.count;
        v.largest = std::max(v.largest, unit * c.blocks.count);
      }
    }
    return v;
  }
  [[nodiscard]] block_access half(std::uint32_t which) const { return reads(which * (count / 2), count / 2); }
  void bring(std::uint32_t which) {
    d.carry_out(transfer::prefetch(location::device(), reason::predicted, half(which).range));
  }

  bytes unit;
  std::uint32_t count;
  std::unique_ptr<policy> chooser;
  driver d;
};

TEST_CASE("a plan asks for 256 MiB, in commands of 64 MiB where room has to be made") {
  for (const char* name : {"lru", "auto"}) {
    for (const bytes unit : {2_MiB, 4_MiB, 16_MiB, 32_MiB}) {
      CAPTURE(name);
      CAPTURE(unit.count);
      bench b(name, unit);
      b.d.issue(honest("a", {b.half(0)}));
      CHECK(b.of("prefetch", b.d.next_plan()).all == 256_MiB);
      b.d.execute();  // now there is no room any more
      b.d.issue(honest("b", {b.half(1)}));
      const plan into_none = b.d.next_plan();
      CHECK(b.of("prefetch", into_none).all == 256_MiB);
      CHECK(b.of("prefetch", into_none).largest == 64_MiB);
      CHECK(b.of("evict", into_none).all == 256_MiB);
      CHECK(b.of("evict", into_none).largest == 64_MiB);
    }
  }
}

TEST_CASE("a chain of correlated blocks asks for as much") {
  for (const bytes unit : {2_MiB, 16_MiB}) {
    CAPTURE(unit.count);
    bench b("deepum", unit);
    for (int round = 0; round < 3; ++round) {
      for (const std::uint32_t which : {0U, 1U}) {
        b.d.run(silent(which == 0 ? "a" : "b", {b.half(which)}));
      }
    }
    const launch_id l = b.d.issue(silent("a", {}));
    b.d.fault(0, l);
    const plan p = b.d.next_plan();
    CHECK(b.of("prefetch", p).all == 256_MiB);
    CHECK(b.of("prefetch", p).largest == 64_MiB);
    CHECK(b.of("evict", p).largest == 64_MiB);
  }
}

TEST_CASE("what is over the budget leaves in commands of 64 MiB") {
  for (const char* name : {"um", "lru", "auto", "deepum"}) {
    for (const bytes unit : {2_MiB, 16_MiB}) {
      CAPTURE(name);
      CAPTURE(unit.count);
      bench b(name, unit);
      b.bring(0);
      b.d.map.set_budget(b.count / 4);
      CHECK(b.of("evict", b.d.next_plan()).largest <= 64_MiB);
    }
  }
}

TEST_CASE("blocks that died are forgotten 64 MiB at a time") {
  for (const bytes unit : {2_MiB, 16_MiB}) {
    CAPTURE(unit.count);
    bench b("auto", unit);
    b.d.make_dead(b.half(0).range);
    const bench::volume v = b.of("discard", b.d.next_plan());
    CHECK(v.all == 1_GiB);
    CHECK(v.largest == 64_MiB);
  }
}

TEST_CASE("room that is kept free for faults is 256 MiB at most") {
  for (const bytes unit : {2_MiB, 16_MiB}) {
    CAPTURE(unit.count);
    const auto count = static_cast<std::uint32_t>(16_GiB / unit);
    const auto chooser = make_policy("auto");
    driver d(*chooser, count, count / 2, block_grid{unit});
    d.automatic = false;
    d.make_live(blocks(0, count));
    // Every run of the launch touches other blocks, which it does not declare.
    for (std::uint32_t i = 0; i < 40; ++i) {
      d.run(silent("a", {reads(i * (count / 80), count / 80)}));
    }
    d.carry_out(transfer::prefetch(location::device(), reason::predicted, blocks(0, count / 2)));
    REQUIRE(d.map.room() == 0);
    CHECK(blocks_of(d.next_plan().transfers, "evict").size() * unit == 256_MiB);
  }
}

}  // namespace block_units_test
