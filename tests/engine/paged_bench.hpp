#pragma once

#include "engine/fake_memory.hpp"
#include <deepum/engine/engine.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

namespace paged_bench_of_tests {

using namespace deepum;
using deepum::access;  // not the one of POSIX
using deepum_test::paged_fake_memory;
using deepum_test::scripted_policy;

inline block_range blocks(std::uint32_t first, std::uint32_t count = 1) { return {block_id{first}, count}; }

/// An engine on a fake memory that never faults, with all blocks live.
struct paged_bench {
  paged_bench(std::uint32_t budget, std::uint32_t size) : memory(size) {
    memory.free = block_size * 64;
    engine_options o;
    o.budget = block_size * budget;
    o.log = {};
    made = std::make_unique<engine>(memory, std::make_unique<scripted_policy>(script), o);
    CHECK(made->live(blocks(0, size)));
  }
  /// Carries out all that is issued, until nothing more is.
  void carry_out_all() {
    made->pump();
    while (done < memory.calls.size()) {
      const auto call = memory.calls[done++];
      memory.carry_out(call);
      made->pump();
    }
  }

  paged_fake_memory memory;
  scripted_policy::script script;
  std::unique_ptr<engine> made;
  std::size_t done = 0;
};

}  // namespace paged_bench_of_tests
