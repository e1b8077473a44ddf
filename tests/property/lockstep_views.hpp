#pragma once

#include "property/lockstep_sides.hpp"
#include "property/lockstep_step.hpp"
#include "property/lockstep_verdicts.hpp"
#include "property/lockstep_world.hpp"
#include "property/random_program.hpp"
#include "property/shadow.hpp"
#include <deepum/core/launch.hpp>
#include <deepum/error.hpp>
#include <deepum/host_view.hpp>
#include <deepum/units.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace deepum_test {

/// What the host reads and writes in a program in lockstep: views that stay open, and all contents in the end.
template <class Machine>
class lockstep_views {
 public:
  using arena_type = typename lockstep_sides<Machine>::arena_type;
  using word = shadow::word;

  /// All outlive it.
  lockstep_views(lockstep_sides<Machine>& sides, const lockstep_verdicts<Machine>& verdicts)
      : sides_(sides),
        verdicts_(verdicts) {}

  /// Opens one and compares what it shows; one that writes does so at once.
  void open(const step& s) {
    shadow& m = sides_.world.memory;
    const bool refused = s.mode == deepum::access::read && m.gave_up_any(s.a);
    sides_.await(s.a);
    auto words = std::unique_ptr<deepum::host_view<word>>();
    const std::uint64_t shortages = sides_.machine.shortages();
    try {
      words = std::make_unique<deepum::host_view<word>>(sides_.arena_of(s.a), m.address(s.a), m.words(s.a), s.mode);
    } catch (const deepum::error& e) {
      const bool was_short = e.code() == deepum::status::out_of_host_memory && verdicts_.may_be_short(e, 0, shortages);
      if (refused || was_short) {
        ++sides_.tolerated;
        if (s.mode != deepum::access::read) {  // whether it is in use again is not said
          sides_.arena_of(s.a).mark_active(m.address(s.a), sides_.size(s.a));
          m.revive(s.a);
        }
        return;
      }
      throw;
    }
    if (refused) {
      wrong("the host may read what was given up");
    }
    sides_.machine.host_touched(words->data(), sides_.size(s.a).count, s.mode);
    m.revive(s.a);
    if (s.mode == deepum::access::overwrite) {
      m.forget(s.a, false);
    } else {
      compare(s.a, *words, "a view that has just been opened");
    }
    if (s.mode != deepum::access::read) {
      write(s.a, *words, s.value);
    }
    ++(s.mode == deepum::access::read ? m.of(s.a).reading_views : m.of(s.a).writing_views);
    sides_.world.views.push_back({s.a, s.mode});
    open_.push_back({std::move(words), s.value});
  }
  /// Compares once more, and ends it.
  void close(std::size_t number) {
    shadow& m = sides_.world.memory;
    const lockstep_world::view v = sides_.world.views[number];
    const deepum::host_view<word>& words = *open_[number].words;
    sides_.machine.host_touched(words.data(), sides_.size(v.what).count,
                                v.mode == deepum::access::overwrite ? deepum::access::update : v.mode);
    compare(v.what, words, "a view that is about to end");
    if (v.mode != deepum::access::read && arena_type::host_uses_other_addresses) {
      write(v.what, words, open_[number].value + 1);
    }
    --(v.mode == deepum::access::read ? m.of(v.what).reading_views : m.of(v.what).writing_views);
    open_.erase(open_.begin() + static_cast<std::ptrdiff_t>(number));
    sides_.world.views.erase(sides_.world.views.begin() + static_cast<std::ptrdiff_t>(number));
  }
  /// @returns  Whether the host could read all of a buffer.
  bool check_all(const piece& all) {
    sides_.world.memory.revive(all);
    const deepum::bytes whole = sides_.size(all);
    sides_.arena_of(all).mark_active(sides_.world.memory.address(all), whole);
    try {
      const deepum::host_view<word> words(sides_.arena_of(all), sides_.world.memory.address(all),
                                          sides_.world.memory.words(all), deepum::access::read);
      sides_.machine.host_touched(words.data(), whole.count, deepum::access::read);
      compare(all, words, "the end");
    } catch (const deepum::error& e) {
      if (e.code() != deepum::status::out_of_host_memory || !verdicts_.may_be_short(e, 0, sides_.machine.shortages())) {
        throw;
      }
      return false;
    }
    return true;
  }

 private:
  struct open_view_of {
    std::unique_ptr<deepum::host_view<word>> words{};
    word value = 0;
  };

  void compare(const piece& p, const deepum::host_view<word>& words, const char* where) const {
    if (const auto at = sides_.world.memory.difference(p, words.data(), sides_.world.memory.of(p).unit)) {
      const shadow::cell& c = sides_.world.memory.cells(p)[*at];
      wrong(std::string(where) + " has " + std::to_string(words[*at * sides_.world.memory.of(p).unit]) + " in unit " +
            std::to_string(p.first + *at) + " of buffer " + std::to_string(p.buffer) + ", not " +
            std::to_string(c.value));
    }
  }
  void write(const piece& p, const deepum::host_view<word>& words, word value) {
    const std::span<shadow::cell> cells = sides_.world.memory.cells(p);
    for (word i = 0; i < p.n; ++i) {
      words[std::size_t{i} * sides_.world.memory.of(p).unit] = filled(i, value);
      cells[i] = {filled(i, value), true, false};
    }
  }

  lockstep_sides<Machine>& sides_;
  const lockstep_verdicts<Machine>& verdicts_;
  std::vector<open_view_of> open_{};
};

}  // namespace deepum_test
