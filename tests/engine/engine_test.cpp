#include "engine/engine_bench.hpp"
#include "support/test_scale.hpp"
#include <deepum/engine/engine.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <thread>
#include <vector>

namespace engine_test {

using namespace engine_bench_of_tests;
using bench = engine_bench;

TEST_CASE("launches are numbered in order, and the policy hears of everything in the order of the inbox") {
  bench b(8);
  b.script.told.clear();
  const stream_id second = b.made->open_stream(7);
  const launch_id one = b.launch({{blocks(0), access::read}});
  b.made->host_access(blocks(5), access::read);
  const launch_id two = b.launch_on(second, {});
  b.made->dead(blocks(9, 2), liveness::inactive, two);
  b.made->pump();
  CHECK(one.value + 1 == two.value);
  CHECK(b.made->last_launch() == two);
  CHECK(b.script.told ==
        std::vector<std::string>{"stream 1 7", "launch 1", "host 5+1", "launch 2", "dead 9+2 after 2", "asked"});
}

TEST_CASE("the first message after a pump notifies the memory, the next ones do not") {
  bench b(8);
  const int before = b.memory.notifications;
  b.launch({});
  b.launch({});
  CHECK(b.memory.notifications == before + 1);
  b.made->pump();
  b.launch({});
  CHECK(b.memory.notifications == before + 2);
}

TEST_CASE("a launch counts as finished when it and all before it on every stream have finished") {
  bench b(8);
  const stream_id second = b.made->open_stream(std::nullopt);
  const launch_id a = b.launch({});
  const launch_id c = b.launch_on(second, {});
  const launch_id d = b.launch({});
  b.memory.finish(c);
  b.made->pump();
  CHECK_FALSE(b.made->finished(a));
  CHECK_FALSE(b.made->finished(c));
  b.memory.finish(a);
  b.made->pump();
  CHECK(b.made->finished(a));
  CHECK(b.made->finished(c));
  CHECK_FALSE(b.made->finished(d));
  CHECK(b.made->finished(launch_id{}));
}

TEST_CASE("a policy is asked until it has nothing to say, and only when something happened") {
  bench b(64);
  b.script.told.clear();
  b.made->pump();
  CHECK(b.script.told.empty());
  b.script.plans.push_back({.supersedes = false, .transfers = {prefetch(blocks(0))}});
  b.script.plans.push_back({.supersedes = false, .transfers = {prefetch(blocks(1))}});
  b.launch({});
  b.made->pump();
  CHECK(std::count(b.script.told.begin(), b.script.told.end(), "asked") == 3);
  CHECK(b.issued() == "prefetch(0+1) prefetch(1+1)");
}

TEST_CASE("whatever call fails, everything still comes to an end and the map stays true") {
  for (std::uint64_t nth = 0; nth < 24; ++nth) {
    CAPTURE(nth);
    bench b(6, 16);
    b.memory.fail_call = nth;
    for (std::uint32_t step = 0; step < 12; ++step) {
      const block_range r = blocks((step * 3) % 12, 3);
      const launch_id l = b.launch({{r, access::update}});
      b.plan(plan{.hints = {{.blocks = r, .what = advice::set_read_mostly}},
                  .transfers = {evict(blocks((step * 3 + 6) % 12, 3)), prefetch(r)}});
      b.settle();
      if (step % 4 == 3) {
        b.made->dead(r, liveness::inactive, l);
        b.plan({discard(r)});
        b.settle();
      }
      b.memory.finish(l);
      b.made->pump();
      b.settle();
      CHECK(b.made->live(r));
    }
    std::uint32_t present = 0;
    for (std::uint32_t i = 0; i < 16; ++i) {
      present += b.script.map->present(block_id{i}) ? 1U : 0U;
      CHECK(b.state(i).moving == motion::none);
      CHECK(b.state(i).users == 0);
    }
    CHECK(present == b.script.map->occupied());
    CHECK(b.made->snapshot().failed_calls == (nth < b.memory.calls.size() + 1 ? 1 : 0));
    CHECK(b.made->finished(b.made->last_launch()));
  }
}

TEST_CASE("random plans and random devices: the law, the room and the order hold") {
  const unsigned seed = 20230325;
  CAPTURE(seed);
  std::mt19937 random(seed);
  const auto draw = [&](std::uint32_t n) { return static_cast<std::uint32_t>(random() % n); };
  const std::size_t rounds = deepum_test::scaled(300);
  for (std::size_t round = 0; round < rounds; ++round) {
    bench b(5, 12);
    std::vector<launch_id> running;
    std::vector<bool> dead(12, false);
    std::size_t judged = 0;
    for (int step = 0; step < 60; ++step) {
      const block_range r = blocks(draw(10), 1 + draw(3));
      switch (draw(8)) {
        case 0:
          running.push_back(b.launch({{r, draw(2) ? access::read : access::update}}, draw(4) != 0));
          break;
        case 1:
          if (!running.empty()) {
            b.memory.finish(running.front(), step);
            running.erase(running.begin());
          }
          break;
        case 2:
          b.script.plans.push_back(
              {.supersedes = draw(3) == 0,
               .transfers = {prefetch(r), evict(blocks(draw(10), 2)), discard(blocks(draw(10), 2))}});
          break;
        case 3:
          b.made->dead(r, liveness::inactive, b.made->last_launch());
          for (std::uint32_t i = r.begin_value(); i < r.end_value(); ++i)
            dead[i] = true;
          break;
        case 4:
          (void)b.made->live(r);
          for (std::uint32_t i = r.begin_value(); i < r.end_value(); ++i)
            dead[i] = false;
          break;
        case 5:
          if (b.carried_out < b.memory.calls.size()) {
            const auto call = b.memory.calls[b.carried_out++];
            draw(6) == 0 ? b.memory.fail(call) : b.memory.carry_out(call);
          }
          break;
        default:
          break;
      }
      b.made->pump();
      CHECK(b.script.map->occupied() <= 5);
      for (; judged < b.memory.calls.size(); ++judged) {
        const auto& call = b.memory.calls[judged];
        if (call.what == "discard") {
          for (std::uint32_t i = call.range.begin_value(); i < call.range.end_value(); ++i) {
            CHECK(dead[i]);
            CHECK(b.state(i).users == 0);
          }
        }
      }
    }
    for (const launch_id l : running)
      b.memory.finish(l, 100);
    b.made->pump();
    b.settle();
    std::uint32_t present = 0;
    for (std::uint32_t i = 0; i < 12; ++i) {
      present += b.script.map->present(block_id{i}) ? 1U : 0U;
      CHECK(b.state(i).users == 0);
      CHECK(b.state(i).moving == motion::none);
    }
    CHECK(present == b.script.map->occupied());
  }
}

TEST_CASE("several threads may submit, ask and pump at once") {
  bench b(64);
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&b, t] {
      const stream_id s = b.made->open_stream(std::nullopt);
      for (std::uint32_t i = 0; i < 500; ++i) {
        const block_range r = blocks(static_cast<std::uint32_t>(t) * 8 + i % 8);
        b.launch_on(s, {{r, access::update}});
        if (i % 7 == 0) b.made->host_access(r, access::read);
        if (i % 11 == 0) (void)b.made->live(r);
        if (i % 13 == 0) b.made->pump();
        if (i % 17 == 0) (void)b.made->snapshot();
      }
    });
  }
  for (std::thread& t : threads)
    t.join();
  b.made->pump();
  CHECK(b.made->snapshot().launches == 1500);
  CHECK(b.made->last_launch().value == 1500);
}

}  // namespace engine_test
