#pragma once

#include "engine/engine_bench.hpp"
#include "engine/fake_memory.hpp"
#include <deepum/engine/engine.hpp>

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace home_copy_bench_of_tests {

using namespace engine_bench_of_tests;
using deepum::access;  // not the one of POSIX
using deepum_test::home_copy_fake_memory;

inline constexpr std::uint32_t arena_blocks = 32;

inline transfer drop(block_range r) { return transfer::drop(reason::make_room, r); }
inline transfer clean(block_range r) { return transfer::clean(reason::write_back, r); }

inline block_access reads(std::uint32_t first, std::uint32_t count = 1) { return {blocks(first, count), access::read}; }
inline block_access updates(std::uint32_t first, std::uint32_t count = 1) {
  return {blocks(first, count), access::update};
}
inline block_access overwrites(std::uint32_t first, std::uint32_t count = 1) {
  return {blocks(first, count), access::overwrite};
}

/// An engine on memory with a home copy, with all blocks live.
struct bench : engine_bench_on<home_copy_fake_memory> {
  explicit bench(std::uint32_t budget = arena_blocks, engine_options o = {})
      : engine_bench_on(with(std::move(o), budget), arena_blocks),
        other(made->open_stream(std::nullopt)) {
    made->pump();
  }
  static engine_options with(engine_options o, std::uint32_t budget) {
    o.budget = block_size * budget;
    return o;
  }

  launch_id submit(std::vector<block_access> accesses, bool complete = true) {
    return submit_on(stream, std::move(accesses), complete);
  }
  launch_id submit_on(stream_id s, std::vector<block_access> accesses, bool complete = true) {
    const launch_id id = launch_on(s, std::move(accesses), complete);
    made->pump();
    return id;
  }
  void finish(launch_id id) {
    memory.finish(id);
    made->pump();
  }
  void host_writes(block_range r) {
    made->host_access(r, access::update);
    made->pump();
  }
  /// The device has the blocks, and so has the host.
  void bring(block_range r) {
    host_writes(r);
    engine_bench_on::bring(r);
    issued();
  }
  /// The device has the blocks, the host has older contents or none.
  void bring_dirty(block_range r) {
    bring(r);
    finish(submit({{r, access::update}}));
  }
  /// Carries out the oldest command.
  void step() {
    memory.carry_out(memory.calls.at(carried_out++));
    made->pump();
  }
  void fail_next() {
    memory.fail(memory.calls.at(carried_out++));
    made->pump();
  }
  bool on_host(std::uint32_t b) const { return state(b).copies.at(location::host()); }
  bool on_device(std::uint32_t b) const { return state(b).copies.at(location::device()); }
  bool resident(std::uint32_t b) const { return script.map->resident(block_id{b}); }
  statistics seen() { return made->snapshot(); }

  stream_id other;
};

}  // namespace home_copy_bench_of_tests
