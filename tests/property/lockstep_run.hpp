#pragma once

#include "property/lockstep_launcher.hpp"
#include "property/lockstep_step.hpp"
#include "property/lockstep_world.hpp"
#include "property/random_program.hpp"
#include "property/shadow.hpp"
#include "property/step_maker.hpp"
#include "property/story.hpp"
#include "property/traffic_watch.hpp"
#include <deepum/arena.hpp>
#include <deepum/error.hpp>
#include <deepum/host_view.hpp>
#include <deepum/operand.hpp>
#include <deepum/stream.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
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
  lockstep_run(Machine& machine, std::span<const std::unique_ptr<arena_type>> arenas, lockstep_options options,
               std::string name, traffic_watch* watch = nullptr)
      : machine_(machine),
        watch_(watch),
        dog_(name + ", seed " + std::to_string(options.seed)) {
    world_.options = options;
    world_.paged = arena_type::host_uses_other_addresses;
    world_.has_graphs = requires(stream_type& s) { s.record_graph("", [] {}); };
    world_.has_scratch = Machine::has_scratch;
    world_.block = arenas.front()->block().count;
    world_.budget = static_cast<std::uint32_t>(arenas.front()->budget().count / world_.block);
    for (const auto& a : arenas) {
      arenas_.push_back(a.get());
    }
    for (std::uint8_t a = 0; a < options.arenas; ++a) {
      for (std::uint8_t s = 0; s < options.streams; ++s) {
        open_stream(a);
      }
    }
    slot_ = arenas_.front()->template allocate<word*>(world_.block / sizeof(word*));
    launcher_.set_slot(slot_);
    if (watch_ != nullptr) {
      watch_->spare(slot_, world_.block, world_.block);
    }
    maker_.emplace(world_);
  }
  ~lockstep_run() {
    graphs_.clear();
    libraries_.clear();
    holds_.clear();
    views_.clear();
  }
  lockstep_run(const lockstep_run&) = delete;
  lockstep_run& operator=(const lockstep_run&) = delete;

  /// Runs the program. @returns  What went wrong, with what was done last; empty where nothing did.
  [[nodiscard]] std::string run() {
    try {
      for (std::uint32_t i = 0; i < world_.options.steps && !machine_.over(); ++i) {
        const step s = maker_->next();
        dog_.next(text(s));
        const deepum::nanoseconds before = machine_.now();
        take(s);
        if (world_.options.time_is_virtual && machine_.now() - before > std::chrono::seconds(1) + paused(s)) {
          wrong("took more than a second of virtual time");
        }
        if (watch_ != nullptr && watch_->wrong()) {
          wrong(watch_->message());
        }
      }
      finish();
    } catch (const std::exception& e) {
      return std::string(e.what()) + "\n" + dog_.story();
    }
    return {};
  }
  /// Launches that it made, refused ones too.
  [[nodiscard]] std::uint64_t launches() const { return launches_; }
  /// Refusals that it did not expect and that it may not wonder at.
  [[nodiscard]] std::uint64_t tolerated() const { return tolerated_; }

 private:
  using kind = step::kind;

  [[noreturn]] static void wrong(const std::string& what) { throw std::runtime_error(what); }

  static deepum::nanoseconds paused(const step& s) {
    return s.what == kind::pause ? std::chrono::microseconds(s.value) : std::chrono::microseconds(0);
  }

  // --- streams and their order -------------------------------------------------------------------------------------

  void open_stream(std::uint8_t arena) {
    streams_.push_back(std::make_unique<stream_type>(*arenas_[arena]));
    libraries_.push_back(machine_.open_library(*arenas_[arena], *streams_.back()));
  }
  /// The step's stream, behind all that uses the buffers already.
  stream_type& behind(std::uint8_t number, const std::vector<piece>& used) {
    for (const piece& p : used) {
      shadow::buffer& b = world_.memory.of(p);
      if (b.stream != number) {
        typename stream_type::event_type done;
        machine_.insist([&] { streams_[b.stream]->record(done); });
        machine_.insist([&] { streams_[number]->wait(done); });
        b.stream = number;
      }
    }
    return *streams_[number];
  }
  void synchronize() {
    for (const auto& s : streams_) {
      machine_.insist([&] { s->synchronize(); });
    }
    if (watch_ != nullptr && world_.holds.empty()) {
      watch_->settled(world_, machine_.now());
    }
  }
  void await(const piece& p) {
    machine_.insist([&] { streams_[world_.memory.of(p).stream]->synchronize(); });
  }

  // --- steps -------------------------------------------------------------------------------------------------------

  void take(const step& s) {
    if (watch_ != nullptr) {
      watch_->revives(world_, s);
    }
    if (is_launch(s.what) || is_transfer(s.what)) {
      take_launch(s);
      return;
    }
    shadow& m = world_.memory;
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
        open_view(s);
        break;
      case kind::close_view:
        close_view(s.value);
        break;
      case kind::give_up:
        arena_of(s.a).mark_inactive(m.address(s.a), size(s.a));
        m.forget(s.a, true);
        break;
      case kind::mark_active:
        arena_of(s.a).mark_active(m.address(s.a), size(s.a));
        m.revive(s.a);
        break;
      case kind::discard:
        arena_of(s.a).discard(m.address(s.a), size(s.a));
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
        if constexpr (requires(stream_type& t) { t.record_graph("", [] {}); }) {
          take_graph(s);
        }
        break;
      case kind::set_budget:
        if (arenas_.size() == 1) {
          arenas_.front()->set_budget(deepum::bytes{world_.block * s.value});
          world_.budget = s.value;
        }
        break;
      case kind::disturb:
        machine_.disturb(s.value);
        break;
      case kind::reopen:
        reopen(s.stream);
        break;
      case kind::ask:
        (void)arenas_[world_.arena_of(s.stream)]->statistics();
        break;
      case kind::pause:
        machine_.pause(std::chrono::microseconds(s.value));
        break;
      default:
        synchronize();
        break;
    }
  }

  [[nodiscard]] arena_type& arena_of(const piece& p) { return *arenas_[world_.memory.of(p).arena]; }
  [[nodiscard]] deepum::bytes size(const piece& p) const {
    return deepum::bytes{world_.memory.words(p) * sizeof(word)};
  }

  void allocate(const step& s) {
    word* address = nullptr;
    try {
      address = arenas_[s.arena]->template allocate<word>(std::size_t{s.a.n} * s.unit);
    } catch (const deepum::error& e) {
      if (e.code() != deepum::status::out_of_arena_space) {
        throw;
      }
      ++tolerated_;  // gaps, or memory that a call has to end for; that none is lost is seen in the end
      return;
    }
    shadow::buffer b;
    b.address = address;
    b.unit = s.unit;
    b.arena = s.arena;
    b.stream = static_cast<std::uint8_t>(s.arena * world_.options.streams);
    b.alive = true;
    b.cells.resize(s.a.n);
    world_.memory.buffers.push_back(std::move(b));
  }
  void release(std::uint32_t number) {
    shadow::buffer& b = world_.memory.buffers[number];
    arenas_[b.arena]->deallocate(b.address);
    b.alive = false;
    ++b.generation;
  }
  void split(const step& s) {
    shadow::buffer& b = world_.memory.of(s.a);
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
    arenas_[b.arena]->split(b.address, parts);
  }
  void hint(const step& s) {
    arena_type& arena = arena_of(s.a);
    const word* const p = world_.memory.address(s.a);
    switch (s.value % 4) {
      case 0:
        arena.prefetch(p, size(s.a), deepum::location::device());
        break;
      case 1:
        arena.prefetch(p, size(s.a), deepum::location::host());
        break;
      case 2:
        arena.advise(p, size(s.a), deepum::advice::set_read_mostly);
        break;
      default:
        arena.advise(p, size(s.a), deepum::advice::unset_read_mostly);
        break;
    }
  }
  void reopen(std::uint8_t number) {
    libraries_[number].reset();
    streams_[number].reset();
    streams_[number] = std::make_unique<stream_type>(*arenas_[world_.arena_of(number)]);
    libraries_[number] = machine_.open_library(*arenas_[world_.arena_of(number)], *streams_[number]);
  }

  // --- launches ----------------------------------------------------------------------------------------------------

  /// What becomes of a launch.
  struct expectation {
    bool refused = false;         ///< it has to be refused
    bool may_be_refused = false;  ///< where a view writes a block that the shadow does not know the launch to touch
    bool may_lack_space = false;  ///< of the arena
    std::size_t blocks = 0;       ///< that it needs on the device at once, with those that are kept there
  };
  /// @param scratch  Memory that the program does not see is touched, too.
  [[nodiscard]] expectation expected(const std::vector<piece>& touched, bool refused, bool scratch) const {
    return {.refused = refused || world_.beside_written_view(touched),
            // where scratch memory lies is not known, and others have views, too
            .may_be_refused = (scratch && world_.writes_views()) || (world_.paged && !world_.options.alone),
            .may_lack_space = scratch,
            .blocks = scratch ? std::size_t{world_.budget} : world_.busy(touched).size()};
  }
  [[nodiscard]] expectation expected(const step& s, const std::vector<shadow::named>& operands) const {
    expectation e = expected(shadow::pieces(operands), world_.must_be_refused(s), s.what == kind::scratch);
    e.blocks += world_.other_blocks(s);
    return e;
  }
  /// Whether memory may be short, on the device for so many blocks, or on the host for all that has contents.
  /// @param before  `shortages()` before the call: other threads' programs make memory short, too, and end that.
  [[nodiscard]] bool may_be_short(const deepum::error& e, std::size_t blocks, std::uint64_t before) const {
    if (e.code() != deepum::status::out_of_device_memory && e.code() != deepum::status::out_of_host_memory) {
      return false;
    }
    if (arenas_.size() != 1 || !world_.options.alone) {
      return machine_.short_of_memory() || machine_.shortages() != before;
    }
    return machine_.lacks_device_memory(blocks) || machine_.lacks_host_memory(world_.blocks_with_contents());
  }

  /// Makes a launch. @param make  Throws where the launch is not made.
  /// @returns  Whether it was made.
  template <class Make>
  bool attempt(const expectation& expected, bool must_fail, Make&& make) {
    ++launches_;
    const std::uint64_t shortages = machine_.shortages();
    try {
      make();
    } catch (const body_failed&) {
      return false;
    } catch (const deepum::error& e) {
      if (expected.refused) {
        return false;
      }
      if ((expected.may_lack_space && e.code() == deepum::status::out_of_arena_space) ||
          (expected.may_be_refused && e.code() == deepum::status::invalid_argument) || must_fail ||
          may_be_short(e, expected.blocks, shortages)) {
        ++tolerated_;
        return false;
      }
      throw;
    }
    if (expected.refused) {
      wrong("a launch was made that has to be refused");
    }
    return true;
  }

  void take_launch(const step& s) {
    shadow& m = world_.memory;
    const std::vector<shadow::named> operands = m.operands(s);
    std::vector<piece> used = shadow::pieces(operands);
    if (hides_b(s)) {
      used.push_back(s.b);  // what follows on it is ordered by the program, since nothing else knows of this use
    }
    stream_type& stream = behind(s.stream, used);
    const bool fails = s.ends == step::ending::device_refuses && machine_.refuse(s);
    bool enqueued = false;
    const bool made = attempt(expected(s, operands), fails, [&] {
      if (s.what == kind::chase) {
        point_at(s.b);
      }
      launcher_.launch(stream, libraries_[s.stream].get(), s, operands, enqueued);
    });
    if (fails) {
      machine_.relent();
    }
    if (made || enqueued) {
      m.declare(operands);
      m.compute(s);
      check_copied_out(s);
      if (!made) {
        use_again(operands, world_.paged);
      }
    } else if (is_transfer(s.what) && !world_.must_be_refused(s)) {  // a large one is several launches: some were made
      use_again(operands);
      if (s.what != kind::copy_out) {
        m.forget(s.a, false);
      }
    } else if (!expected(s, operands).refused) {
      use_again(operands);
    }
  }
  /// After a launch that was submitted and not made: whether what it would have written is in use again is not said.
  // What a body has enqueued before it throws runs, and what the launch would have overwritten is as that left it, or
  // as it was before (`stream::call`).
  void use_again(const std::vector<shadow::named>& operands, bool enqueued = false) {
    for (const shadow::named& o : operands) {
      if (enqueued && o.mode == deepum::access::overwrite) {
        world_.memory.forget(o.what, false);
      }
      if (o.mode != deepum::access::read) {
        arena_of(o.what).mark_active(world_.memory.address(o.what), size(o.what));
        world_.memory.revive(o.what);
      }
    }
  }
  void check_copied_out(const step& s) {
    if (s.what == kind::copy_out) {
      if (const auto at = launcher_.wrongly_copied_out(s.a)) {
        wrong("memcpy to the host gave a wrong word in unit " + std::to_string(*at));
      }
    }
  }

  void point_at(const piece& target) {
    synchronize();
    const deepum::host_view<word*> slot(*arenas_.front(), slot_, 1, deepum::access::overwrite);
    machine_.host_touched(slot.data(), sizeof(word*), deepum::access::overwrite);
    slot[0] = world_.memory.address(target);
  }

  void nest(const step& s) {
    shadow& m = world_.memory;
    const step& outer = s.inner.front();
    const std::vector<shadow::named> operands = m.operands(outer);
    stream_type& stream = behind(outer.stream, shadow::pieces(operands));
    const bool first = s.value % 2 == 0;
    const bool made = attempt(expected(outer, operands), false, [&] {
      stream.call(launcher_.text_of(outer.what), launcher_.listed(operands), [&](auto&& native) {
        m.declare(operands);
        world_.called = shadow::pieces(operands);
        const auto own = [&] {
          (void)behind(outer.stream, shadow::pieces(operands));
          launcher_.enqueue(native, outer);
          m.compute(outer);
        };
        if (first) {
          own();
        }
        for (std::size_t i = 1; i < s.inner.size(); ++i) {
          dog_.next("within: " + text(s.inner[i]));
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
    world_.called.clear();
    if (!made) {
      use_again(operands, world_.paged && outer.ends == step::ending::throws_after);
    }
  }

  // --- the host ----------------------------------------------------------------------------------------------------

  struct open_view_of {
    std::unique_ptr<deepum::host_view<word>> words{};
    word value = 0;
  };

  void open_view(const step& s) {
    shadow& m = world_.memory;
    const bool refused = s.mode == deepum::access::read && m.gave_up_any(s.a);
    await(s.a);
    auto words = std::unique_ptr<deepum::host_view<word>>();
    const std::uint64_t shortages = machine_.shortages();
    try {
      words = std::make_unique<deepum::host_view<word>>(arena_of(s.a), m.address(s.a), m.words(s.a), s.mode);
    } catch (const deepum::error& e) {
      const bool was_short = e.code() == deepum::status::out_of_host_memory && may_be_short(e, 0, shortages);
      if (refused || was_short) {
        ++tolerated_;
        if (s.mode != deepum::access::read) {  // whether it is in use again is not said
          arena_of(s.a).mark_active(m.address(s.a), size(s.a));
          m.revive(s.a);
        }
        return;
      }
      throw;
    }
    if (refused) {
      wrong("the host may read what was given up");
    }
    machine_.host_touched(words->data(), size(s.a).count, s.mode);
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
    world_.views.push_back({s.a, s.mode});
    views_.push_back({std::move(words), s.value});
  }
  void close_view(std::size_t number) {
    shadow& m = world_.memory;
    const lockstep_world::view v = world_.views[number];
    const deepum::host_view<word>& words = *views_[number].words;
    machine_.host_touched(words.data(), size(v.what).count,
                          v.mode == deepum::access::overwrite ? deepum::access::update : v.mode);
    compare(v.what, words, "a view that is about to end");
    if (v.mode != deepum::access::read && arena_type::host_uses_other_addresses) {
      write(v.what, words, views_[number].value + 1);
    }
    --(v.mode == deepum::access::read ? m.of(v.what).reading_views : m.of(v.what).writing_views);
    views_.erase(views_.begin() + static_cast<std::ptrdiff_t>(number));
    world_.views.erase(world_.views.begin() + static_cast<std::ptrdiff_t>(number));
  }
  void compare(const piece& p, const deepum::host_view<word>& words, const char* where) const {
    if (const auto at = world_.memory.difference(p, words.data(), world_.memory.of(p).unit)) {
      const shadow::cell& c = world_.memory.cells(p)[*at];
      wrong(std::string(where) + " has " + std::to_string(words[*at * world_.memory.of(p).unit]) + " in unit " +
            std::to_string(p.first + *at) + " of buffer " + std::to_string(p.buffer) + ", not " +
            std::to_string(c.value));
    }
  }
  void write(const piece& p, const deepum::host_view<word>& words, word value) {
    const std::span<shadow::cell> cells = world_.memory.cells(p);
    for (word i = 0; i < p.n; ++i) {
      words[std::size_t{i} * world_.memory.of(p).unit] = filled(i, value);
      cells[i] = {filled(i, value), true, false};
    }
  }

  // --- holds -------------------------------------------------------------------------------------------------------

  void hold(const step& s) {
    shadow& m = world_.memory;
    const std::vector<shadow::named> operands{{s.a, deepum::access::update, true}, {s.b, deepum::access::read, true}};
    const bool made =
        attempt({.may_be_refused = !world_.options.alone && world_.paged, .blocks = world_.busy({s.a, s.b}).size()},
                false, [&] {
                  holds_.push_back(std::make_unique<deepum::residency<typename Machine::memory_type>>(
                      arena_of(s.a), launcher_.listed(operands)));
                });
    if (!made) {
      return;
    }
    ++m.of(s.a).holds;
    ++m.of(s.b).holds;
    world_.holds.push_back({{s.a, s.b}});
  }
  void end_hold(std::size_t number) {
    for (const piece& p : world_.holds[number].pieces) {
      --world_.memory.of(p).holds;
    }
    holds_.erase(holds_.begin() + static_cast<std::ptrdiff_t>(number));
    world_.holds.erase(world_.holds.begin() + static_cast<std::ptrdiff_t>(number));
  }

  // --- graphs ------------------------------------------------------------------------------------------------------

  void take_graph(const step& s) {
    shadow& m = world_.memory;
    if (s.what == kind::drop_graph) {
      synchronize();
      graphs_.erase(graphs_.begin() + s.value);
      world_.graphs.erase(world_.graphs.begin() + s.value);
      return;
    }
    if (s.what == kind::record_graph) {
      lockstep_world::graph g;
      g.inner = s.inner;
      g.stream = s.stream;
      (void)attempt({.may_lack_space = true}, false, [&] {
        graphs_.push_back(streams_[s.stream]->record_graph("graph", [&] {
          for (const step& i : s.inner) {
            bool enqueued = false;
            launcher_.launch(*streams_[s.stream], libraries_[s.stream].get(), i, m.operands(i), enqueued);
          }
        }));
      });
      if (graphs_.size() == world_.graphs.size()) {
        return;  // a library found no room for its scratch memory
      }
      for (const step& i : s.inner) {
        g.operands.push_back(m.operands(i));
        for (const shadow::named& o : g.operands.back()) {
          g.generations.push_back(m.of(o.what).generation);
        }
      }
      world_.graphs.push_back(std::move(g));
      return;
    }
    const lockstep_world::graph& g = world_.graphs[s.value];
    expectation e;
    e.refused = world_.lost_memory(g);
    std::vector<piece> used;
    std::vector<shadow::named> all;
    for (std::size_t i = 0; i < g.inner.size() && !e.refused; ++i) {
      const std::vector<piece> more = shadow::pieces(g.operands[i]);
      used.insert(used.end(), more.begin(), more.end());
      all.insert(all.end(), g.operands[i].begin(), g.operands[i].end());
    }
    e.refused = e.refused || m.reads_given_up(all);
    const bool scratch =
        std::any_of(g.inner.begin(), g.inner.end(), [](const step& i) { return i.what == kind::scratch; });
    e = expected(used, e.refused, scratch);
    stream_type& stream = e.refused ? *streams_[s.stream] : behind(s.stream, used);
    const bool fails = !e.refused && s.ends == step::ending::device_refuses && machine_.refuse(s);
    const bool made = attempt(e, fails, [&] { stream.launch(graphs_[s.value]); });
    if (fails) {
      machine_.relent();
    }
    if (made) {
      for (std::size_t i = 0; i < g.inner.size(); ++i) {
        m.declare(g.operands[i]);
        m.compute(g.inner[i]);
      }
    } else if (!e.refused) {
      use_again(all);
    }
  }

  // --- the end -----------------------------------------------------------------------------------------------------

  void finish() {
    dog_.next("the end: all contents");
    while (!world_.views.empty()) {
      close_view(0);
    }
    while (!world_.holds.empty()) {
      end_hold(0);
    }
    graphs_.clear();
    world_.graphs.clear();
    machine_.calm();
    synchronize();
    std::deque<std::uint32_t> left;
    for (std::uint32_t n = 0; n < world_.memory.buffers.size(); ++n) {
      if (world_.memory.buffers[n].alive) {
        left.push_back(n);
      }
    }
    std::size_t tries = 0;
    while (!left.empty()) {
      const std::uint32_t n = left.front();
      dog_.next("the end: buffer " + std::to_string(n) + " of " + std::to_string(left.size()) + " that are left");
      left.pop_front();
      const bool seen = check_in_the_end({n, 0, world_.memory.buffers[n].size()});
      if (seen || ++tries > left.size() + 1) {  // else the host has room for none of them
        tolerated_ += seen ? 0 : 1;
        release(n);
        tries = 0;
      } else {
        left.push_back(n);  // there may be room on the host when others are given back
      }
    }
    libraries_.clear();
    arenas_.front()->deallocate(slot_);
    if (world_.options.alone) {
      dog_.next("the end: one allocation of all that there is");
      for (arena_type* a : arenas_) {
        std::byte* const all = a->template allocate<std::byte>(a->capacity().count);
        a->deallocate(all);
      }
    }
  }

  /// @returns  Whether the host could read all of a buffer.
  bool check_in_the_end(const piece& all) {
    world_.memory.revive(all);
    const deepum::bytes whole = size(all);
    arena_of(all).mark_active(world_.memory.address(all), whole);
    try {
      const deepum::host_view<word> words(arena_of(all), world_.memory.address(all), world_.memory.words(all),
                                          deepum::access::read);
      machine_.host_touched(words.data(), whole.count, deepum::access::read);
      compare(all, words, "the end");
    } catch (const deepum::error& e) {
      if (e.code() != deepum::status::out_of_host_memory || !may_be_short(e, 0, machine_.shortages())) {
        throw;
      }
      return false;
    }
    return true;
  }

  struct nothing {};
  template <class Stream, bool Has>
  struct graph_of {
    using type = nothing;
  };
  template <class Stream>
  struct graph_of<Stream, true> {
    using type = decltype(std::declval<Stream&>().record_graph("", [] {}));
  };
  using graph_type = typename graph_of<stream_type, requires(stream_type& s) { s.record_graph("", [] {}); }>::type;

  Machine& machine_;
  traffic_watch* watch_;
  watched_story dog_;
  lockstep_world world_{};
  lockstep_launcher<Machine> launcher_{machine_, world_.memory};
  std::optional<step_maker> maker_{};
  std::vector<arena_type*> arenas_{};
  word** slot_ = nullptr;
  std::vector<std::unique_ptr<stream_type>> streams_{};
  std::vector<std::unique_ptr<typename lockstep_launcher<Machine>::library_type>> libraries_{};
  std::vector<open_view_of> views_{};
  std::vector<std::unique_ptr<deepum::residency<typename Machine::memory_type>>> holds_{};
  std::vector<graph_type> graphs_{};
  std::uint64_t launches_ = 0;
  std::uint64_t tolerated_ = 0;
};

}  // namespace deepum_test
