#pragma once

#include "property/lockstep_graphs.hpp"
#include "property/lockstep_launcher.hpp"
#include "property/lockstep_sides.hpp"
#include "property/lockstep_step.hpp"
#include "property/lockstep_verdicts.hpp"
#include "property/lockstep_views.hpp"
#include "property/lockstep_world.hpp"
#include "property/shadow.hpp"
#include "property/step_maker.hpp"
#include "property/traffic_watch.hpp"
#include <deepum/arena.hpp>
#include <deepum/core/launch.hpp>
#include <deepum/core/location.hpp>
#include <deepum/core/plan.hpp>
#include <deepum/error.hpp>
#include <deepum/stream.hpp>
#include <deepum/units.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace deepum_test {

/// A random program that runs on arenas and on a shadow in lockstep: after each operation the library has done what the
/// shadow says, or has refused what it says has to be refused.
///
/// A machine has the kernels (`fill()`, `derive()`, `mix()`, `gather()`, `chase()`: what `stream::launch` takes) and
/// `enqueue(native, kernel, arguments...)` for bodies of calls; `host_touched(p, size, mode)` for what it has to be
/// told of the host; `now()`; `pause(microseconds)`; `disturb(dice)`, which does something to it that no program may
/// notice; `refuse(step)`, which makes the next call for this step fail, or says that it cannot; `notice(world)`.
template <class Machine>
class lockstep_run {
 public:
  using arena_type = deepum::arena<typename Machine::memory_type>;
  using stream_type = deepum::stream<typename Machine::memory_type>;
  using word = shadow::word;

  /// @param arenas  Those of `options.arenas`. All outlive the run.
  lockstep_run(Machine& machine, std::span<const std::unique_ptr<arena_type>> arenas, const lockstep_options& options,
               const std::string& name, traffic_watch* watch = nullptr)
      : sides_(machine, arenas, options, name, watch) {}
  ~lockstep_run() {
    graphs_.clear();
    sides_.libraries.clear();
  }
  lockstep_run(const lockstep_run&) = delete;
  lockstep_run& operator=(const lockstep_run&) = delete;

  /// Runs the program. @returns  What went wrong, with what was done last; empty where nothing did.
  [[nodiscard]] std::string run() {
    try {
      for (std::uint32_t i = 0; i < sides_.world.options.steps && !sides_.machine.over(); ++i) {
        const step s = maker_.next();
        sides_.story.next(text(s));
        const deepum::nanoseconds before = sides_.machine.now();
        take(s);
        if (sides_.world.options.time_is_virtual &&
            sides_.machine.now() - before > std::chrono::seconds(1) + paused(s)) {
          wrong("took more than a second of virtual time");
        }
        if (sides_.watch != nullptr && sides_.watch->wrong()) {
          wrong(sides_.watch->message());
        }
      }
      finish();
    } catch (const std::exception& e) {
      return std::string(e.what()) + "\n" + sides_.story.story();
    }
    return {};
  }
  /// Launches that it made, refused ones too.
  [[nodiscard]] std::uint64_t launches() const { return sides_.launches; }
  /// Refusals that it did not expect and that it may not wonder at.
  [[nodiscard]] std::uint64_t tolerated() const { return sides_.tolerated; }

 private:
  using kind = step::kind;

  static deepum::nanoseconds paused(const step& s) {
    return s.what == kind::pause ? std::chrono::microseconds(s.value) : std::chrono::microseconds(0);
  }

  // --- steps -------------------------------------------------------------------------------------------------------

  void take(const step& s) {
    if (sides_.watch != nullptr) {
      sides_.watch->revives(sides_.world, s);
    }
    if (is_launch(s.what) || is_transfer(s.what)) {
      take_launch(s);
      return;
    }
    shadow& m = sides_.world.memory;
    switch (s.what) {
      case kind::allocate:
        allocate(s);
        break;
      case kind::release:
        release(s.a.buffer);
        break;
      case kind::split:
        split(s);
        break;
      case kind::open_view:
        views_.open(s);
        break;
      case kind::close_view:
        views_.close(s.value);
        break;
      case kind::give_up:
        sides_.arena_of(s.a).mark_inactive(m.address(s.a), sides_.size(s.a));
        m.forget(s.a, true);
        break;
      case kind::mark_active:
        sides_.arena_of(s.a).mark_active(m.address(s.a), sides_.size(s.a));
        m.revive(s.a);
        break;
      case kind::discard:
        sides_.arena_of(s.a).discard(m.address(s.a), sides_.size(s.a));
        m.forget(s.a, false);
        break;
      case kind::hint:
        hint(s);
        break;
      case kind::hold:
        hold(s);
        break;
      case kind::end_hold:
        end_hold(s.value);
        break;
      case kind::nest:
        nest(s);
        break;
      case kind::record_graph:
      case kind::launch_graph:
      case kind::drop_graph:
        graphs_.take(s);
        break;
      case kind::set_budget:
        if (sides_.arenas.size() == 1) {
          sides_.arenas.front()->set_budget(deepum::bytes{sides_.world.block * s.value});
          sides_.world.budget = s.value;
        }
        break;
      case kind::disturb:
        sides_.machine.disturb(s.value);
        break;
      case kind::reopen:
        sides_.reopen(s.stream);
        break;
      case kind::ask:
        (void)sides_.arenas[sides_.world.arena_of(s.stream)]->statistics();
        break;
      case kind::pause:
        sides_.machine.pause(std::chrono::microseconds(s.value));
        break;
      default:
        sides_.synchronize();
        break;
    }
  }

  void allocate(const step& s) {
    word* address = nullptr;
    try {
      address = sides_.arenas[s.arena]->template allocate<word>(std::size_t{s.a.n} * s.unit);
    } catch (const deepum::error& e) {
      if (e.code() != deepum::status::out_of_arena_space) {
        throw;
      }
      ++sides_.tolerated;  // gaps, or memory that a call has to end for; that none is lost is seen in the end
      return;
    }
    shadow::buffer b;
    b.address = address;
    b.unit = s.unit;
    b.arena = s.arena;
    b.stream = static_cast<std::uint8_t>(s.arena * sides_.world.options.streams);
    b.alive = true;
    b.cells.resize(s.a.n);
    sides_.world.memory.buffers.push_back(std::move(b));
  }
  void release(std::uint32_t number) {
    shadow::buffer& b = sides_.world.memory.buffers[number];
    sides_.arenas[b.arena]->deallocate(b.address);
    b.alive = false;
    ++b.generation;
  }
  void split(const step& s) {
    shadow::buffer& b = sides_.world.memory.of(s.a);
    std::vector<deepum::bytes> parts;
    std::uint32_t end = 0;
    b.part_ends.clear();
    for (const std::uint32_t n : s.sizes) {
      parts.push_back(deepum::bytes{std::uint64_t{n} * b.unit * sizeof(word)});
      b.part_ends.push_back(end += n);
    }
    if (end < b.size()) {
      b.part_ends.push_back(b.size());
    }
    sides_.arenas[b.arena]->split(b.address, parts);
  }
  void hint(const step& s) {
    arena_type& arena = sides_.arena_of(s.a);
    const word* const p = sides_.world.memory.address(s.a);
    switch (s.value % 4) {
      case 0:
        arena.prefetch(p, sides_.size(s.a), deepum::location::device());
        break;
      case 1:
        arena.prefetch(p, sides_.size(s.a), deepum::location::host());
        break;
      case 2:
        arena.advise(p, sides_.size(s.a), deepum::advice::set_read_mostly);
        break;
      default:
        arena.advise(p, sides_.size(s.a), deepum::advice::unset_read_mostly);
        break;
    }
  }

  // --- launches ----------------------------------------------------------------------------------------------------

  void take_launch(const step& s) {
    shadow& m = sides_.world.memory;
    const std::vector<shadow::named> operands = m.operands(s);
    std::vector<piece> used = shadow::pieces(operands);
    if (hides_b(s)) {
      used.push_back(s.b);  // what follows on it is ordered by the program, since nothing else knows of this use
    }
    stream_type& stream = sides_.behind(s.stream, used);
    const bool fails = s.ends == step::ending::device_refuses && sides_.machine.refuse(s);
    bool enqueued = false;
    const bool made = verdicts_.attempt(verdicts_.expected(s, operands), fails, [&] {
      if (s.what == kind::chase) {
        sides_.point_at(s.b);
      }
      sides_.launcher.launch(stream, sides_.libraries[s.stream].get(), s, operands, enqueued);
    });
    if (fails) {
      sides_.machine.relent();
    }
    if (made || enqueued) {
      m.declare(operands);
      m.compute(s);
      check_copied_out(s);
      if (!made) {
        verdicts_.use_again(operands, sides_.world.paged);
      }
    } else if (is_transfer(s.what) &&
               !sides_.world.must_be_refused(s)) {  // a large one is several launches: some were made
      verdicts_.use_again(operands);
      if (s.what != kind::copy_out) {
        m.forget(s.a, false);
      }
    } else if (!verdicts_.expected(s, operands).refused) {
      verdicts_.use_again(operands);
    }
  }
  void check_copied_out(const step& s) {
    if (s.what == kind::copy_out) {
      if (const auto at = sides_.launcher.wrongly_copied_out(s.a)) {
        wrong("memcpy to the host gave a wrong word in unit " + std::to_string(*at));
      }
    }
  }

  void nest(const step& s) {
    shadow& m = sides_.world.memory;
    const step& outer = s.inner.front();
    const std::vector<shadow::named> operands = m.operands(outer);
    stream_type& stream = sides_.behind(outer.stream, shadow::pieces(operands));
    const bool first = s.value % 2 == 0;
    const bool made = verdicts_.attempt(verdicts_.expected(outer, operands), false, [&] {
      stream.call(sides_.launcher.text_of(outer.what), sides_.launcher.listed(operands), [&](auto&& native) {
        m.declare(operands);
        sides_.world.called = shadow::pieces(operands);
        const auto own = [&] {
          (void)sides_.behind(outer.stream, shadow::pieces(operands));
          sides_.launcher.enqueue(native, outer);
          m.compute(outer);
        };
        if (first) {
          own();
        }
        for (std::size_t i = 1; i < s.inner.size(); ++i) {
          sides_.story.next("within: " + text(s.inner[i]));
          take(s.inner[i]);
        }
        if (!first) {
          own();
        }
        if (outer.ends == step::ending::throws_after) {
          throw body_failed{};
        }
      });
    });
    sides_.world.called.clear();
    if (!made) {
      verdicts_.use_again(operands, sides_.world.paged && outer.ends == step::ending::throws_after);
    }
  }

  // --- holds -------------------------------------------------------------------------------------------------------

  void hold(const step& s) {
    shadow& m = sides_.world.memory;
    const std::vector<shadow::named> operands{{s.a, deepum::access::update, true}, {s.b, deepum::access::read, true}};
    const bool made =
        verdicts_.attempt({.may_be_refused = !sides_.world.options.alone && sides_.world.paged,
                           .blocks = sides_.world.busy({s.a, s.b}).size()},
                          false, [&] {
                            holds_.push_back(std::make_unique<deepum::residency<typename Machine::memory_type>>(
                                sides_.arena_of(s.a), sides_.launcher.listed(operands)));
                          });
    if (!made) {
      return;
    }
    ++m.of(s.a).holds;
    ++m.of(s.b).holds;
    sides_.world.holds.push_back({{s.a, s.b}});
  }
  void end_hold(std::size_t number) {
    for (const piece& p : sides_.world.holds[number].pieces) {
      --sides_.world.memory.of(p).holds;
    }
    holds_.erase(holds_.begin() + static_cast<std::ptrdiff_t>(number));
    sides_.world.holds.erase(sides_.world.holds.begin() + static_cast<std::ptrdiff_t>(number));
  }

  // --- the end -----------------------------------------------------------------------------------------------------

  void finish() {
    sides_.story.next("the end: all contents");
    while (!sides_.world.views.empty()) {
      views_.close(0);
    }
    while (!sides_.world.holds.empty()) {
      end_hold(0);
    }
    graphs_.clear();
    sides_.machine.calm();
    sides_.synchronize();
    std::deque<std::uint32_t> left;
    for (std::uint32_t n = 0; n < sides_.world.memory.buffers.size(); ++n) {
      if (sides_.world.memory.buffers[n].alive) {
        left.push_back(n);
      }
    }
    std::size_t tries = 0;
    while (!left.empty()) {
      const std::uint32_t n = left.front();
      sides_.story.next("the end: buffer " + std::to_string(n) + " of " + std::to_string(left.size()) +
                        " that are left");
      left.pop_front();
      const bool seen = views_.check_all({n, 0, sides_.world.memory.buffers[n].size()});
      if (seen || ++tries > left.size() + 1) {  // else the host has room for none of them
        sides_.tolerated += seen ? 0 : 1;
        release(n);
        tries = 0;
      } else {
        left.push_back(n);  // there may be room on the host when others are given back
      }
    }
    sides_.libraries.clear();
    sides_.arenas.front()->deallocate(sides_.slot);
    if (sides_.world.options.alone) {
      sides_.story.next("the end: one allocation of all that there is");
      for (arena_type* a : sides_.arenas) {
        std::byte* const all = a->template allocate<std::byte>(a->capacity().count);
        a->deallocate(all);
      }
    }
  }

  lockstep_sides<Machine> sides_;
  lockstep_verdicts<Machine> verdicts_{sides_};
  lockstep_views<Machine> views_{sides_, verdicts_};
  lockstep_graphs<Machine> graphs_{sides_, verdicts_};
  step_maker maker_{sides_.world};
  std::vector<std::unique_ptr<deepum::residency<typename Machine::memory_type>>> holds_{};
};

}  // namespace deepum_test
