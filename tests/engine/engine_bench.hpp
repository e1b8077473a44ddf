#pragma once

#include "engine/fake_memory.hpp"
#include <deepum/engine/engine.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace engine_bench_of_tests {

using namespace deepum;
using deepum_test::fake_memory;
using deepum_test::scripted_policy;

inline block_range blocks(std::uint32_t first, std::uint32_t count = 1) { return {block_id{first}, count}; }

/// An engine on a fake memory, with all blocks live.
template <class Memory>
struct engine_bench_on {
  static engine_options with_budget(std::uint32_t budget) {
    engine_options o;
    o.budget = block_size * budget;
    return o;
  }

  explicit engine_bench_on(std::uint32_t budget, std::uint32_t size = 64)
      : engine_bench_on(with_budget(budget), size) {}
  engine_bench_on(engine_options o, std::uint32_t size) : memory(size) {
    o.log = [this](std::string_view line) { log.emplace_back(line); };
    made = std::make_unique<engine>(memory, std::make_unique<scripted_policy>(script), std::move(o));
    stream = made->open_stream(std::nullopt);
    CHECK(made->live({block_id{0}, size}));
    made->pump();
  }

  launch_id launch(std::vector<block_access> accesses, bool complete = true) {
    return launch_on(stream, std::move(accesses), complete);
  }
  launch_id launch_on(stream_id s, std::vector<block_access> accesses, bool complete = true) {
    launch_record r;
    r.stream = s;
    r.accesses = std::move(accesses);
    r.complete = complete;
    r.name = "k";
    return made->submit(std::move(r));
  }
  void plan(std::vector<transfer> transfers, bool supersedes = false) {
    plan(deepum::plan{.supersedes = supersedes, .transfers = std::move(transfers)});
  }
  void plan(deepum::plan p) {
    script.plans.push_back(std::move(p));
    made->set_budget(made->budget());  // something happens, so that the policy is asked
    made->pump();
  }
  /// The blocks are on the device, brought by the driver.
  void bring(block_range r) {
    memory.driver_brings(r);
    made->pump();
  }
  /// Carries out all that was issued, until nothing more is.
  void settle() {
    while (carried_out < memory.calls.size()) {
      if (memory.calls[carried_out].what != "advise") memory.carry_out(memory.calls[carried_out]);
      ++carried_out;
      made->pump();
    }
  }
  /// What was issued since the last look.
  std::string issued() {
    std::string text;
    for (; looked < memory.calls.size(); ++looked) {
      const auto& c = memory.calls[looked];
      text += (text.empty() ? "" : " ") + c.what + "(" + std::to_string(c.range.first.value) + "+" +
              std::to_string(c.range.count) + ")";
    }
    return text;
  }
  block_state state(std::uint32_t b) const { return (*script.map)[block_id{b}]; }

  Memory memory;
  scripted_policy::script script;
  std::vector<std::string> log;
  std::unique_ptr<engine> made;
  stream_id stream;
  std::size_t looked = 0;
  std::size_t carried_out = 0;
};
using engine_bench = engine_bench_on<fake_memory>;

inline transfer prefetch(block_range r, reason why = reason::predicted) {
  return transfer::prefetch(location::device(), why, r);
}
inline transfer evict(block_range r) { return transfer::evict(location::host(), reason::make_room, r); }
inline transfer discard(block_range r) { return transfer::discard(reason::dead, r); }

}  // namespace engine_bench_of_tests
