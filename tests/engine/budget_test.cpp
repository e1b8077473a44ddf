#include "engine/engine_bench.hpp"
#include <deepum/engine/engine.hpp>

#include <doctest/doctest.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace budget_test {

using namespace engine_bench_of_tests;
using bench = engine_bench;

TEST_CASE("what has arrived holds its memory, also before the command that brought it is done") {
  deepum_test::fake_memory memory(64);
  scripted_policy::script script;
  engine_options o;
  o.headroom = block_size * 2;
  o.log = {};
  memory.free = block_size * 10;
  engine made(memory, std::make_unique<scripted_policy>(script), o);
  CHECK(made.budget() == block_size * 8);
  CHECK(made.live(blocks(0, 4)));
  script.plans.push_back({.supersedes = false, .transfers = {prefetch(blocks(0, 4))}});
  (void)made.open_stream(std::nullopt);
  made.pump();
  REQUIRE(memory.calls.size() == 1);
  device_event arrived;
  arrived.what = device_event::kind::arrived;
  arrived.range = blocks(0, 3);
  arrived.ticket = memory.calls[0].ticket;
  memory.reports.push_back(arrived);
  memory.free = block_size * 7;
  for (int i = 0; i < 64; ++i) {
    made.pump();
  }
  CHECK(made.budget() == block_size * 8);
}

TEST_CASE("without a budget the engine follows the free memory, less the headroom") {
  std::vector<std::string> log;
  engine_options o;
  o.headroom = block_size * 2;
  o.log = [&](std::string_view line) { log.emplace_back(line); };
  fake_memory memory(64);
  memory.free = block_size * 10;
  scripted_policy::script script;
  engine e(memory, std::make_unique<scripted_policy>(script), o);
  CHECK(e.budget() == block_size * 8);
  CHECK(e.live(blocks(0, 64)));
  memory.driver_brings(blocks(0, 3));
  memory.free = block_size * 4;  // 3 are ours, 3 somebody else's
  for (int i = 0; i < 64; ++i)
    e.pump();
  CHECK(e.budget() == block_size * 5);
  CHECK(log == std::vector<std::string>{"the budget is " + std::to_string((block_size * 5).count) +
                                        " bytes now: others hold more of the device"});
  memory.free = block_size * 5;
  for (int i = 0; i < 64; ++i)
    e.pump();
  CHECK(e.budget() == block_size * 6);
  e.set_budget(block_size * 3);
  CHECK(e.budget() == block_size * 3);
  CHECK(log.size() == 1);  // what grows, and what the program chose, needs no line
}

}  // namespace budget_test
