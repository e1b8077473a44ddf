#include "driver.hpp"
#include "support/test_scale.hpp"
#include <deepum/policy/make_policy.hpp>

#include <doctest/doctest.h>

#include <memory>
#include <random>

namespace policy_law_test {

using namespace deepum_test;

constexpr std::uint32_t block_count = 32;

class random_program {
 public:
  explicit random_program(std::uint32_t seed) : random_(seed) {
    const std::uint32_t count = 3 + below(12);
    for (std::uint32_t i = 0; i < count; ++i) {
      kernels_.push_back(random_kernel("k" + std::to_string(i)));
    }
  }

  std::uint32_t below(std::uint32_t n) { return static_cast<std::uint32_t>(random_() % n); }

  void run(driver& d, int launches) {
    for (int i = 0; i < launches; ++i) {
      if (below(40) == 0) {
        drain(d);
        change_liveness(d);
      }
      if (below(30) == 0) {
        drain(d);
        d.host_writes(some_live_blocks(d));
      }
      if (below(60) == 0) {
        d.map.set_budget(1 + below(block_count));
      }
      // Mostly in order, so that there is something to predict.
      at_ = below(10) == 0 ? below(static_cast<std::uint32_t>(kernels_.size()))
                           : (at_ + 1) % static_cast<std::uint32_t>(kernels_.size());
      kernel k = kernels_[at_];
      k.scalar = below(8) == 0 ? below(5) : 0;
      if (below(25) == 0) {
        k = random_kernel(k.name);  // the same name with other operands
      }
      const std::uint16_t stream = below(4) == 0 ? 1 : 0;
      while (d.conflicts(k, stream == 0 ? 1 : 0)) {  // the program orders its streams by events
        execute_one(d);
      }
      d.issue(k, stream);
      while (d.in_flight(0) + d.in_flight(1) > below(5)) {
        execute_one(d);
      }
    }
    drain(d);
  }

 private:
  kernel random_kernel(std::string name) {
    kernel k;
    k.name = std::move(name);
    k.complete = below(3) != 0;
    std::uint32_t at = below(8);
    while (at < block_count) {
      const std::uint32_t size = std::min(1 + below(3), block_count - at);
      k.touched.push_back({blocks(at, size), static_cast<deepum::access>(below(3))});
      if (k.complete || below(2) == 0) {
        k.declared.push_back(k.touched.back());
      }
      at += size + below(10);
    }
    std::shuffle(k.touched.begin(), k.touched.end(), random_);
    return k;
  }
  void execute_one(driver& d) {
    const bool other = d.in_flight(1) != 0 && (d.in_flight(0) == 0 || below(2) == 0);
    d.execute(other ? 1 : 0);
  }
  void drain(driver& d) {
    while (d.in_flight(0) + d.in_flight(1) != 0) {
      execute_one(d);
    }
  }
  void change_liveness(driver& d) {
    const std::uint32_t at = below(block_count);
    const block_range r = blocks(at, std::min(1 + below(5), block_count - at));
    d.make_dead(r, below(2) == 0 ? liveness::inactive : liveness::unallocated);
    if (below(3) != 0) {
      d.make_live(r);
    }
  }
  block_range some_live_blocks(driver& d) {
    const std::uint32_t at = below(block_count);
    return d.map[block_id{at}].life == liveness::live ? blocks(at) : blocks(0, 0);
  }

  std::mt19937 random_;
  std::vector<kernel> kernels_{};
  std::uint32_t at_ = 0;
};

struct variant {
  std::string name;
  policy_options options;
};

std::vector<variant> variants() {
  std::vector<variant> all;
  for (const std::string_view name : policy_names()) {
    all.push_back({std::string(name), {}});
  }
  policy_options o;
  o.advise = true;
  o.horizon = 20;
  all.push_back({"auto", o});
  o = {};
  o.max_execution_ids = 7;
  o.lookahead = 3;
  all.push_back({"auto", o});
  o = {};
  o.pre_evict = false;
  o.invalidate = false;
  o.lookahead = 2;
  all.push_back({"auto", o});
  all.push_back({"deepum", o});
  return all;
}

TEST_CASE("no policy ever loses contents, whatever the program does") {
  const std::size_t rounds = deepum_test::scaled(60);
  for (std::uint32_t seed = 1; seed <= rounds; ++seed) {
    std::size_t number = 0;
    for (const variant& v : variants()) {
      ++number;
      random_program program(seed);
      const auto p = make_policy(v.name, v.options);
      driver d{*p, block_count, 4 + seed % 29};
      d.host_copy_stays = seed % 2 == 0;
      d.make_live(blocks(0, block_count));
      program.run(d, 150);
      INFO("seed " << seed << ", variant " << number << ", policy " << v.name);
      REQUIRE_MESSAGE(d.lost.empty(), d.lost.front());
    }
  }
}

TEST_CASE("the same events give the same plans") {
  for (const variant& v : variants()) {
    std::vector<transfer> first;
    std::vector<driver_hint> first_hints;
    for (int run = 0; run < 2; ++run) {
      random_program program(5);
      const auto p = make_policy(v.name, v.options);
      driver d{*p, block_count, 12};
      d.make_live(blocks(0, block_count));
      program.run(d, 200);
      if (run == 0) {
        first = d.transfers;
        first_hints = d.hints;
      } else {
        CHECK(first == d.transfers);
        CHECK(first_hints == d.hints);
      }
    }
  }
}

TEST_CASE("plans make room before they use it, and never for more than there is") {
  for (std::uint32_t seed = 100; seed < 100 + deepum_test::scaled(40); ++seed) {
    for (const variant& v : variants()) {
      random_program program(seed);
      const auto p = make_policy(v.name, v.options);
      driver d{*p, block_count, 4 + seed % 20};
      d.make_live(blocks(0, block_count));
      for (int i = 0; i < 40; ++i) {
        program.run(d, 3);
        const plan next = d.next_plan();
        std::int64_t room = static_cast<std::int64_t>(d.map.budget()) - d.map.occupied();
        std::vector<bool> moved(block_count);
        for (const transfer& c : next.transfers) {
          for (std::uint32_t b = c.blocks.begin_value(); b != c.blocks.end_value(); ++b) {
            const bool here = d.map.present(block_id{b});
            if (to_string(c) == "prefetch") {
              CHECK_FALSE(here);
              CHECK_FALSE(moved[b]);
              CHECK(--room >= 0);
              moved[b] = true;
            } else if (here) {
              CHECK_FALSE(moved[b]);
              ++room;
              moved[b] = true;
            }
          }
        }
      }
      REQUIRE(d.lost.empty());
    }
  }
}

TEST_CASE("a policy that is asked again although nothing has happened says nothing") {
  for (const variant& v : variants()) {
    const auto p = make_policy(v.name, v.options);
    driver d{*p, block_count, 8};
    d.automatic = false;
    d.make_live(blocks(0, block_count));
    d.issue(honest("a", {reads(0, 12)}));
    d.ask();
    const plan again = d.ask();
    CHECK(again.transfers.empty());
    CHECK_FALSE(again.supersedes);
    d.map.set_budget(4);
    CHECK(d.ask().supersedes);
  }
}

}  // namespace policy_law_test
