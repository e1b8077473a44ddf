#pragma once

#include "property/lockstep_step.hpp"
#include "property/lockstep_world.hpp"
#include "property/shadow.hpp"
#include "property/step_dice.hpp"
#include "property/step_plans.hpp"
#include <deepum/core/launch.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <numeric>
#include <optional>
#include <set>
#include <utility>
#include <vector>

namespace deepum_test {

/// Makes up the next step of a valid program. The same seed and the same answers of the library give the same program.
class step_maker {
 public:
  /// @param world  Outlives it.
  explicit step_maker(const lockstep_world& world) : world_(world), dice_(world) {}

  /// What comes next.
  [[nodiscard]] step next() {
    if (live_count() < 3) {
      return dice_.allocation();
    }
    for (;;) {
      if (!planned_.empty()) {
        step s = std::move(planned_.front());
        planned_.pop_front();
        if (still_makes_sense(s)) {
          if (s.what == kind::launch_graph) {
            s.stream = world_.graphs[s.value].stream;
          }
          return s;
        }
        continue;
      }
      if (loop_left_ != 0) {
        if (const std::optional<step> again = repeat()) {
          return *again;
        }
        continue;
      }
      if (recent_.size() >= 8 && dice_.below(40) == 0) {
        loop_ = {recent_.end() - static_cast<std::ptrdiff_t>(4 + dice_.below(recent_.size() - 4)), recent_.end()};
        loop_left_ = static_cast<std::uint32_t>(loop_.size()) * (2 + dice_.below(4));
        continue;
      }
      std::optional<step> made = roll();
      if (made) {
        if (is_launch(made->what) || is_transfer(made->what)) {
          recent_.push_back(*made);
          if (recent_.size() > 16) {
            recent_.pop_front();
          }
        }
        return *std::move(made);
      }
    }
  }

 private:
  using kind = step::kind;

  std::optional<step> repeat() {
    const std::size_t at = loop_.size() - 1 - (loop_left_ - 1) % loop_.size();
    --loop_left_;
    step s = loop_[at];
    s.value += s.value % 4 == 3 ? 4 : 0;
    if (!world_.possible(s) || world_.must_be_refused(s)) {
      return std::nullopt;
    }
    return s;
  }

  /// Whether a step that was planned is part of a valid program now.
  [[nodiscard]] bool still_makes_sense(const step& s) {
    switch (s.what) {
      case kind::pause:
      case kind::synchronize:
        return true;
      case kind::allocate:
        return has_room(s);
      case kind::close_view:
        return s.value < world_.views.size();
      case kind::drop_graph:
        return s.value < world_.graphs.size();
      case kind::record_graph:
        return may_record(s);
      case kind::launch_graph:
        return s.value < world_.graphs.size() && may_launch(world_.graphs[s.value]);
      default:
        break;
    }
    const shadow::buffer& b = world_.memory.of(s.a);
    if (!b.alive) {
      return false;
    }
    switch (s.what) {
      case kind::release:
        return live_count() >= 4 && b.unused();
      case kind::split:
        return std::accumulate(s.sizes.begin(), s.sizes.end(), 0U) <= b.size();
      case kind::give_up:
        return b.unused();
      case kind::open_view:
        return world_.may_open(s);
      case kind::hint:
        return true;
      default:
        return world_.possible(s) && !world_.must_be_refused(s);
    }
  }

  std::optional<step> roll() {
    if (world_.options.alone && dice_.below(30) == 0) {
      planned_ = plans_.make();
      return std::nullopt;
    }
    const std::uint32_t dice = dice_.below(1000);
    std::uint32_t limit = 0;
    const auto falls = [&](std::uint32_t share) { return dice < (limit += share); };
    if (falls(430)) return make_launch();
    if (falls(90)) return make_transfer();
    if (falls(70)) return make_allocate_if_room();
    if (falls(60)) return make_release();
    if (falls(20)) return make_split();
    if (falls(60)) return make_open_view();
    if (falls(60)) return dice_.numbered(kind::close_view, world_.views.size());
    if (falls(45)) return make_give_up();
    if (falls(20)) return dice_.on_any(kind::hint);
    if (falls(world_.options.alone ? 14 : 60)) return make_hold();
    if (falls(20)) return dice_.numbered(kind::end_hold, world_.holds.size());
    if (falls(25)) return make_nest();
    if (falls(10)) return make_record_graph();
    if (falls(25)) return make_launch_graph();
    if (falls(4)) return dice_.numbered(kind::drop_graph, world_.graphs.size());
    if (falls(6)) return make_set_budget();
    if (falls(8)) return dice_.plain(kind::disturb);
    if (falls(4)) return make_reopen();
    if (falls(5)) return dice_.plain(kind::ask);
    if (falls(14)) return dice_.plain(kind::synchronize);
    return dice_.pause();
  }

  // --- what programs are made of -----------------------------------------------------------------------------------

  [[nodiscard]] std::uint32_t live_count() const {
    return static_cast<std::uint32_t>(std::count_if(world_.memory.buffers.begin(), world_.memory.buffers.end(),
                                                    [](const shadow::buffer& b) { return b.alive; }));
  }
  [[nodiscard]] std::size_t live_bytes() const {
    std::size_t sum = 0;
    for (const shadow::buffer& b : world_.memory.buffers) {
      sum += b.alive ? (b.bytes() + world_.block / 2) / world_.block * world_.block + 256 : 0;
    }
    return sum;
  }
  std::optional<step> make_allocate_if_room() {
    const step s = dice_.allocation();
    return has_room(s) ? std::optional(s) : std::nullopt;
  }
  [[nodiscard]] bool has_room(const step& s) const {
    return live_bytes() + std::size_t{s.a.n} * s.unit * sizeof(shadow::word) <= world_.options.live.count &&
           (world_.options.alone ||
            world_.holds.empty());  // else it could wait for a launch that waits for what is held
  }
  std::optional<step> make_release() {
    step s = dice_.plain(kind::release);
    s.a = {dice_.buffer(), 0, 0};
    return live_count() >= 4 && world_.memory.of(s.a).unused() ? std::optional(s) : std::nullopt;
  }
  std::optional<step> make_split() {
    step s = dice_.plain(kind::split);
    s.a = {dice_.buffer(), 0, 0};
    s.sizes = dice_.parts(s.a);
    return s.sizes.empty() ? std::nullopt : std::optional(s);
  }

  // --- launches ----------------------------------------------------------------------------------------------------

  /// Whether the program may go on with it. Some that have to be refused are made, too.
  bool allowed(const step& s, const std::vector<piece>& outer = {}) {
    if (!world_.possible(s, outer)) {
      return false;
    }
    const bool refused = world_.must_be_refused(s);
    return !refused || (outer.empty() && s.ends == step::ending::well && dice_.below(6) == 0);
  }
  std::optional<step> make_launch() {
    const step s = dice_.launch();
    return allowed(s) ? std::optional(s) : std::nullopt;
  }
  std::optional<step> make_transfer() {
    const step s = dice_.transfer();
    return allowed(s) ? std::optional(s) : std::nullopt;
  }

  /// Launches, allocations and frees inside the body of a call.
  std::optional<step> make_nest() {
    step outer = dice_.launch();
    outer.by = step::route::call;
    outer.ends = dice_.below(6) == 0 ? step::ending::throws_after : step::ending::well;
    if (outer.what == kind::chase || outer.what == kind::scratch || !allowed(outer) || world_.must_be_refused(outer)) {
      return std::nullopt;
    }
    if (!world_.options.alone) {
      return std::nullopt;  // two calls could keep the room that the launches within the other one need
    }
    step s = dice_.plain(kind::nest);
    s.stream = outer.stream;
    std::vector<piece> used = shadow::pieces(world_.memory.operands(outer));
    s.inner.push_back(outer);
    for (std::uint32_t tries = 1 + dice_.below(4); tries > 0; --tries) {
      const std::uint32_t dice = dice_.below(8);
      step i = dice < 5 ? dice_.launch() : dice_.transfer();
      if (i.what == kind::chase || i.what == kind::scratch) {
        continue;
      }
      i.ends = step::ending::well;
      if (allowed(i, used) && !world_.beside_written_view(shadow::pieces(world_.memory.operands(i))) &&
          !counts_on_overwritten(i, outer)) {
        const std::vector<piece> more = shadow::pieces(world_.memory.operands(i));
        used.insert(used.end(), more.begin(), more.end());
        s.inner.push_back(i);
      }
    }
    if (dice_.below(3) == 0) {
      if (const std::optional<step> freed = make_release();
          freed &&
          std::none_of(used.begin(), used.end(), [&](const piece& p) { return p.buffer == freed->a.buffer; })) {
        s.inner.push_back(*freed);
      }
    }
    if (dice_.below(3) == 0) {
      if (const std::optional<step> made = make_allocate_if_room()) {
        s.inner.push_back(*made);
      }
    }
    return s;
  }

  /// Whether a launch within a call needs what that has declared to overwrite.
  [[nodiscard]] bool counts_on_overwritten(const step& inner, const step& outer) const {
    const std::vector<shadow::named> declared = world_.memory.operands(outer);
    const std::vector<shadow::named> used = world_.memory.operands(inner);
    return std::any_of(used.begin(), used.end(), [&](const shadow::named& u) {
      return u.mode != deepum::access::overwrite &&
             std::any_of(declared.begin(), declared.end(), [&](const shadow::named& d) {
               return d.mode == deepum::access::overwrite && d.what.buffer == u.what.buffer;
             });
    });
  }

  // --- the host, and contents that are given up --------------------------------------------------------------------

  std::optional<step> make_open_view() {
    step s = dice_.on_any(kind::open_view);
    s.mode = static_cast<deepum::access>(dice_.below(3));
    s.a.n = std::min(s.a.n, 1 + dice_.below(400));
    const bool reads = s.mode == deepum::access::read;
    if (!world_.may_open(s)) {
      return std::nullopt;
    }
    if (reads && world_.memory.gave_up_any(s.a) && dice_.below(6) != 0) {
      return std::nullopt;
    }
    return s;
  }
  std::optional<step> make_give_up() {
    const std::uint32_t dice = dice_.below(8);
    step s = dice_.on_any(dice < 5 ? kind::give_up : dice < 6 ? kind::mark_active : kind::discard);
    return world_.memory.of(s.a).unused() ? std::optional(s) : std::nullopt;
  }
  std::optional<step> make_hold() {
    step s = dice_.plain(kind::hold);
    s.a = dice_.some();
    s.b = dice_.some();
    if (world_.holds.size() >= (world_.options.alone ? 2U : 1U) || !world_.usable(s.a, deepum::access::update) ||
        !world_.usable(s.b, deepum::access::read) || world_.memory.of(s.a).arena != world_.arena_of(s.stream) ||
        world_.memory.of(s.b).arena != world_.arena_of(s.stream) || world_.overlaps_view({s.a, s.b})) {
      return std::nullopt;
    }
    if (!world_.options.alone && !world_.views.empty()) {
      return std::nullopt;
    }
    if (world_.memory.gave_up_any(s.a) || world_.memory.gave_up_any(s.b) ||
        world_.busy({s.a, s.b}).size() > world_.budget / 2) {
      return std::nullopt;
    }
    return s;
  }

  // --- graphs ------------------------------------------------------------------------------------------------------

  std::optional<step> make_record_graph() {
    if (!world_.has_graphs || world_.graphs.size() >= lockstep_world::most_graphs) {
      return std::nullopt;
    }
    step s = dice_.plain(kind::record_graph);
    std::vector<piece> used;
    for (std::uint32_t tries = 2 + dice_.below(8); tries > 0; --tries) {
      step i = dice_.launch();
      i.stream = s.stream;
      i.ends = step::ending::well;
      if (i.what == kind::chase || !world_.possible(i, used) || world_.too_large(i)) {
        continue;
      }
      const std::vector<piece> more = shadow::pieces(world_.memory.operands(i));
      used.insert(used.end(), more.begin(), more.end());
      s.inner.push_back(i);
    }
    return !s.inner.empty() && fits_as_graph(world_.memory.blocks(used, world_.block)) ? std::optional(s)
                                                                                       : std::nullopt;
  }
  /// Beside its buffers a graph has scratch memory.
  [[nodiscard]] bool fits_as_graph(const std::set<std::size_t>& blocks) const {
    return !world_.paged || blocks.size() + 6 <= world_.budget;
  }
  /// Whether a graph of one launch may be recorded.
  [[nodiscard]] bool may_record(const step& s) const {
    const step& one = s.inner.front();
    return world_.graphs.size() < lockstep_world::most_graphs && world_.possible(one) && !world_.too_large(one) &&
           fits_as_graph(world_.memory.blocks(shadow::pieces(world_.memory.operands(one)), world_.block));
  }
  std::optional<step> make_launch_graph() {
    std::optional<step> s = dice_.numbered(kind::launch_graph, world_.graphs.size());
    if (!s) {
      return std::nullopt;
    }
    const lockstep_world::graph& g = world_.graphs[s->value];
    s->stream = g.stream;
    return may_launch(g) && (!world_.lost_memory(g) || dice_.below(3) == 0) ? s : std::nullopt;
  }
  /// Whether a graph may be launched. One that has lost memory has to be refused.
  [[nodiscard]] bool may_launch(const lockstep_world::graph& g) const {
    if (world_.lost_memory(g)) {
      return true;
    }
    std::vector<piece> used;
    for (const std::vector<shadow::named>& operands : g.operands) {
      for (const shadow::named& o : operands) {
        if (!world_.usable(o.what, o.mode)) {
          return false;
        }
        used.push_back(o.what);
      }
    }
    return fits_as_graph(world_.busy(used)) && (world_.options.alone || world_.holds.empty());
  }

  // --- the rest ----------------------------------------------------------------------------------------------------

  std::optional<step> make_set_budget() {
    step s = dice_.plain(kind::set_budget);
    s.value = world_.options.least_budget + dice_.below(world_.options.most_budget - world_.options.least_budget + 1);
    if (!world_.options.alone || world_.busy().size() > s.value) {
      return std::nullopt;
    }
    return s;
  }
  std::optional<step> make_reopen() {
    step s = dice_.plain(kind::reopen);
    const bool recorded = std::any_of(world_.graphs.begin(), world_.graphs.end(),
                                      [&](const lockstep_world::graph& g) { return g.stream == s.stream; });
    return recorded ? std::nullopt : std::optional(s);
  }

  const lockstep_world& world_;
  step_dice dice_;
  step_plans plans_{world_, dice_};
  std::deque<step> recent_{};
  std::deque<step> planned_{};
  std::vector<step> loop_{};
  std::uint32_t loop_left_ = 0;
};

}  // namespace deepum_test
