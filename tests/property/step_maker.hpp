#pragma once

#include "property/lockstep_step.hpp"
#include "property/lockstep_world.hpp"
#include "property/shadow.hpp"
#include <deepum/core/launch.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <random>
#include <set>
#include <utility>
#include <vector>

namespace deepum_test {

/// Makes up the next step of a valid program. The same seed and the same answers of the library give the same program.
class step_maker {
 public:
  /// @param world  Outlives it.
  explicit step_maker(const lockstep_world& world) : world_(world), random_(world.options.seed) {}

  /// What comes next.
  [[nodiscard]] step next() {
    if (live_count() < 3) {
      return make_allocate();
    }
    for (;;) {
      if (!planned_.empty()) {
        const step s = planned_.front();
        planned_.pop_front();
        if (still_makes_sense(s)) {
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
      if (recent_.size() >= 8 && below(40) == 0) {
        loop_ = {recent_.end() - static_cast<std::ptrdiff_t>(4 + below(recent_.size() - 4)), recent_.end()};
        loop_left_ = static_cast<std::uint32_t>(loop_.size()) * (2 + below(4));
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
  /// For what the run itself leaves to chance.
  [[nodiscard]] std::uint32_t below(std::uint64_t n) { return static_cast<std::uint32_t>(random_() % n); }

 private:
  using kind = step::kind;

  std::optional<step> repeat() {
    const std::size_t at = loop_.size() - 1 - (loop_left_ - 1) % loop_.size();
    --loop_left_;
    step s = loop_[at];
    s.value += s.value % 4 == 3 ? 4 : 0;
    if (!world_.possible(s) || world_.too_large(s) || world_.memory.reads_given_up(world_.memory.operands(s))) {
      return std::nullopt;
    }
    return s;
  }

  /// What comes about by chance too seldom: several steps that only together show something.
  void plan() {
    const std::uint32_t dice = below(3);
    const piece whole = {pick_buffer(), 0, 0};
    const piece a = {whole.buffer, 0, world_.memory.of(whole).size()};
    const auto add = [&](step s, const piece& on) -> step& {
      s.a = on;
      return planned_.emplace_back(std::move(s));
    };
    const auto add_fill = [&](const piece& on) -> step& {
      step& s = add(make_plain(kind::fill), on);
      s.by = step::route::call;
      return s;
    };
    const auto add_pause = [&](std::uint32_t most) { add(make_plain(kind::pause), {}).value = below(most); };
    const auto send_to_host = [&](const piece& on) {
      step& s = add(make_plain(kind::hint), on);
      s.value = s.value / 4 * 4 + 1;
    };
    const auto press = [&](std::uint32_t launches) {
      for (std::uint32_t i = 0; i < launches; ++i) {
        step s = guess_launch();
        s.ends = step::ending::well;
        planned_.push_back(std::move(s));
      }
    };
    if (dice == 0) {  // what is on the host alone is to be overwritten, and is not
      if (below(2) == 0) {
        add_fill(a);
      }
      send_to_host(a);
      add(make_plain(kind::synchronize), {});
      add_pause(2000);
      add_fill(a).ends = step::ending::throws_before;
      step& read = add(make_plain(kind::open_view), a);
      read.mode = deepum::access::read;
    } else if (dice == 1) {  // memory dies while launches are in flight, and no allocation follows
      add_fill(a);
      add(make_plain(kind::release), whole);
      add(make_plain(kind::synchronize), {});
      add_pause(world_.options.time_is_virtual ? 20000 : 200);
      press(12);
    } else {  // a view ends while what launches write beside it leaves the device
      step& read = add(make_plain(kind::open_view), a);
      read.mode = deepum::access::read;
      read.a.n = std::min(a.n, 1 + below(40));
      const piece b = beside(read.a);
      add_fill(b);
      if (below(2) == 0) {
        send_to_host(b);
      } else {
        press(1 + below(4));
      }
      add_pause(100);
      add(make_plain(kind::close_view), {}).value = static_cast<std::uint32_t>(world_.views.size());
      press(1 + below(6));
    }
  }
  /// A buffer that shares a block with the piece, where there is one.
  [[nodiscard]] piece beside(const piece& p) const {
    const std::set<std::size_t> near = world_.memory.blocks({p}, world_.block);
    for (std::uint32_t n = 0; n < world_.memory.buffers.size(); ++n) {
      const shadow::buffer& b = world_.memory.buffers[n];
      if (b.alive && n != p.buffer) {
        const std::set<std::size_t> own = world_.memory.blocks({{n, 0, b.size()}}, world_.block);
        if (std::any_of(own.begin(), own.end(), [&](std::size_t block) { return near.contains(block); })) {
          return {n, 0, b.size()};
        }
      }
    }
    return {p.buffer, 0, world_.memory.of(p).size()};
  }
  /// Whether a step that was planned is part of a valid program now.
  [[nodiscard]] bool still_makes_sense(const step& s) {
    if (s.what == kind::pause || s.what == kind::synchronize) {
      return true;
    }
    if (s.what == kind::close_view) {
      return s.value < world_.views.size();
    }
    const shadow::buffer& b = world_.memory.of(s.a);
    if (!b.alive) {
      return false;
    }
    switch (s.what) {
      case kind::release:
        return live_count() >= 4 && b.reading_views + b.writing_views + b.holds == 0;
      case kind::open_view:
        return may_open(s) && !gave_up_any(s.a);
      case kind::hint:
        return true;
      default:
        return world_.possible(s) && !world_.too_large(s) && !world_.memory.reads_given_up(world_.memory.operands(s));
    }
  }

  std::optional<step> roll() {
    if (world_.options.plans && below(60) == 0) {
      plan();
      return std::nullopt;
    }
    const std::uint32_t dice = below(1000);
    std::uint32_t limit = 0;
    const auto falls = [&](std::uint32_t share) { return dice < (limit += share); };
    if (falls(430)) return make_launch();
    if (falls(90)) return make_transfer();
    if (falls(70)) return make_allocate_if_room();
    if (falls(60)) return make_release();
    if (falls(20)) return make_split();
    if (falls(60)) return make_open_view();
    if (falls(60)) return make_numbered(kind::close_view, world_.views.size());
    if (falls(45)) return make_give_up();
    if (falls(20)) return make_on_any(kind::hint);
    if (falls(14)) return make_hold();
    if (falls(20)) return make_numbered(kind::end_hold, world_.holds.size());
    if (falls(25)) return make_nest();
    if (falls(10)) return make_record_graph();
    if (falls(25)) return make_launch_graph();
    if (falls(4)) return make_numbered(kind::drop_graph, world_.graphs.size());
    if (falls(6)) return make_set_budget();
    if (falls(8)) return make_plain(kind::disturb);
    if (falls(4)) return make_reopen();
    if (falls(5)) return make_plain(kind::ask);
    if (falls(14)) return make_plain(kind::synchronize);
    return make_pause();
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
  std::uint32_t pick_buffer() {
    for (;;) {
      const std::uint32_t n = below(world_.memory.buffers.size());
      if (world_.memory.buffers[n].alive) {
        return n;
      }
    }
  }
  /// Often all of it, or one of its parts.
  piece pick_piece() {
    const std::uint32_t n = pick_buffer();
    const shadow::buffer& b = world_.memory.buffers[n];
    const std::uint32_t first = below(b.size());
    switch (below(4)) {
      case 0:
        return {n, first, 1 + below(b.size() - first)};
      case 1:
        return world_.memory.part({n, first, 1});
      default:
        return {n, 0, b.size()};
    }
  }
  std::uint8_t pick_stream() {
    return static_cast<std::uint8_t>(below(3) == 0 ? below(world_.options.arenas * world_.options.streams)
                                                   : world_.options.streams * below(world_.options.arenas));
  }
  std::uint32_t value() { return below(1U << 30); }

  step make_plain(kind what) {
    step s;
    s.what = what;
    s.stream = pick_stream();
    s.value = value();
    return s;
  }
  std::optional<step> make_numbered(kind what, std::size_t of) {
    if (of == 0) {
      return std::nullopt;
    }
    step s = make_plain(what);
    s.value = below(of);
    return s;
  }
  step make_on_any(kind what) {
    step s = make_plain(what);
    s.a = pick_piece();
    return s;
  }

  step make_allocate() {
    step s = make_plain(kind::allocate);
    s.arena = world_.arena_of(s.stream);
    const std::size_t most = world_.options.buffer_blocks * world_.block;
    std::size_t size = 0;
    switch (below(5)) {
      case 0:
        size = 4 * (1 + below(4000));
        s.unit = 1;
        break;
      case 1:
        s.unit = 3001;
        size = 1 + below(world_.block / 2);
        break;
      case 2:
        s.unit = 4096;
        size = (world_.block / 2) * (1 + below(2 * world_.options.buffer_blocks));
        break;
      default:
        s.unit = 3001;
        size = 1 + below(most);
        break;
    }
    const std::size_t unit = s.unit * sizeof(shadow::word);
    s.a = {0, 0, static_cast<std::uint32_t>(std::max<std::size_t>(1, size / unit))};
    return s;
  }
  std::optional<step> make_allocate_if_room() {
    const step s = make_allocate();
    if (live_bytes() + std::size_t{s.a.n} * s.unit * sizeof(shadow::word) > world_.options.live.count) {
      return std::nullopt;
    }
    if (!world_.options.alone && !world_.holds.empty()) {
      return std::nullopt;  // it could wait for a launch that waits for what is held
    }
    return s;
  }
  std::optional<step> make_release() {
    step s = make_plain(kind::release);
    s.a = {pick_buffer(), 0, 0};
    const shadow::buffer& b = world_.memory.of(s.a);
    if (live_count() < 4 || b.reading_views + b.writing_views + b.holds != 0) {
      return std::nullopt;
    }
    return s;
  }
  std::optional<step> make_split() {
    step s = make_plain(kind::split);
    s.a = {pick_buffer(), 0, 0};
    const std::uint32_t size = world_.memory.of(s.a).size();
    std::uint32_t left = size;
    while (left > 1 && s.sizes.size() < 4) {
      s.sizes.push_back(1 + below(left));
      left -= s.sizes.back();
    }
    return s.sizes.empty() ? std::nullopt : std::optional(s);
  }

  // --- launches ----------------------------------------------------------------------------------------------------

  /// One that may be possible.
  step guess_launch() {
    step s = make_plain(kind::mix);
    const std::uint32_t dice = below(20);
    s.what = dice < 5     ? kind::fill
             : dice < 9   ? kind::derive
             : dice < 14  ? kind::mix
             : dice < 17  ? kind::gather
             : dice == 17 ? kind::chase
                          : kind::scratch;
    s.by = static_cast<step::route>(below(3));
    s.unsized = static_cast<std::uint8_t>(below(8));
    s.a = pick_piece();
    s.b = pick_piece();
    s.c = pick_piece();
    if (s.what == kind::scratch) {
      s.unit = 1 + below(world_.block / 4 * (1 + below(4)) / 2);
      s.by = step::route::call;
    }
    if ((s.what == kind::scratch && !world_.has_scratch) ||
        (s.what == kind::chase && (!world_.options.alone || !world_.holds.empty()))) {
      s.what = kind::mix;
    }
    if (s.what == kind::chase && world_.faultless) {
      s.by = step::route::call;
    }
    if (s.by == step::route::call && s.what != kind::scratch && below(12) == 0) {
      s.ends = below(2) == 0 ? step::ending::throws_before : step::ending::throws_after;
    } else if (below(60) == 0) {
      s.ends = step::ending::device_refuses;
    }
    return s;
  }
  /// Whether the program may go on with it. Some that have to be refused are made, too.
  bool allowed(const step& s, const std::vector<piece>& outer = {}) {
    if (!world_.possible(s, outer)) {
      return false;
    }
    const bool refused = world_.too_large(s) || world_.memory.reads_given_up(world_.memory.operands(s));
    return !refused || (outer.empty() && s.ends == step::ending::well && below(6) == 0);
  }
  std::optional<step> make_launch() {
    const step s = guess_launch();
    return allowed(s) ? std::optional(s) : std::nullopt;
  }
  step guess_transfer() {
    step s = make_plain(kind::copy);
    s.a = pick_piece();
    const std::uint32_t dice = below(8);
    if (dice < 4) {
      s.b = pick_piece();
      s.a.n = s.b.n = std::min(s.a.n, s.b.n);
    } else if (dice < 6) {
      s.what = kind::set_bytes;
    } else {
      s.what = dice == 6 ? kind::copy_in : kind::copy_out;
      s.a.n = std::min(s.a.n, 12U);
    }
    if (below(60) == 0) {
      s.ends = step::ending::device_refuses;
    }
    return s;
  }
  std::optional<step> make_transfer() {
    const step s = guess_transfer();
    return allowed(s) ? std::optional(s) : std::nullopt;
  }

  /// Launches, allocations and frees inside the body of a call.
  std::optional<step> make_nest() {
    step outer = guess_launch();
    outer.by = step::route::call;
    outer.ends = below(6) == 0 ? step::ending::throws_after : step::ending::well;
    if (outer.what == kind::chase || outer.what == kind::scratch || !allowed(outer) || world_.too_large(outer) ||
        world_.memory.reads_given_up(world_.memory.operands(outer))) {
      return std::nullopt;
    }
    if (!world_.options.alone) {
      return std::nullopt;  // two calls could keep the room that the launches within the other one need
    }
    step s = make_plain(kind::nest);
    s.stream = outer.stream;
    std::vector<piece> used = shadow::pieces(world_.memory.operands(outer));
    s.inner.push_back(outer);
    for (std::uint32_t tries = 1 + below(4); tries > 0; --tries) {
      const std::uint32_t dice = below(8);
      step i = dice < 5 ? guess_launch() : guess_transfer();
      if (i.what == kind::chase || i.what == kind::scratch) {
        continue;
      }
      i.ends = step::ending::well;
      if (allowed(i, used) && !world_.beside_written_view(shadow::pieces(world_.memory.operands(i)))) {
        const std::vector<piece> more = shadow::pieces(world_.memory.operands(i));
        used.insert(used.end(), more.begin(), more.end());
        s.inner.push_back(i);
      }
    }
    if (below(3) == 0) {
      if (const std::optional<step> freed = make_release();
          freed &&
          std::none_of(used.begin(), used.end(), [&](const piece& p) { return p.buffer == freed->a.buffer; })) {
        s.inner.push_back(*freed);
      }
    }
    if (below(3) == 0) {
      if (const std::optional<step> made = make_allocate_if_room()) {
        s.inner.push_back(*made);
      }
    }
    return s;
  }

  // --- the host, and contents that are given up --------------------------------------------------------------------

  std::optional<step> make_open_view() {
    step s = make_on_any(kind::open_view);
    s.mode = static_cast<deepum::access>(below(3));
    s.a.n = std::min(s.a.n, 1 + below(400));
    const bool reads = s.mode == deepum::access::read;
    if (!may_open(s)) {
      return std::nullopt;
    }
    if (reads && gave_up_any(s.a) && below(6) != 0) {
      return std::nullopt;
    }
    return s;
  }
  [[nodiscard]] bool may_open(const step& s) const {
    return world_.views.size() < 3 && world_.usable(s.a, s.mode) && !(world_.faultless && overlaps_busy({s.a})) &&
           (world_.options.alone || world_.holds.empty());
  }
  [[nodiscard]] bool gave_up_any(const piece& p) const {
    const auto cells = world_.memory.cells(p);
    return std::any_of(cells.begin(), cells.end(), [](const shadow::cell& c) { return c.given_up; });
  }
  [[nodiscard]] bool overlaps_busy(const std::vector<piece>& pieces) const {
    const std::set<std::size_t> busy = world_.busy();
    const std::set<std::size_t> wanted = world_.memory.blocks(pieces, world_.block);
    return std::any_of(wanted.begin(), wanted.end(), [&](std::size_t b) { return busy.contains(b); });
  }
  std::optional<step> make_give_up() {
    const std::uint32_t dice = below(8);
    step s = make_on_any(dice < 5 ? kind::give_up : dice < 6 ? kind::mark_active : kind::discard);
    const shadow::buffer& b = world_.memory.of(s.a);
    if (b.holds + b.reading_views + b.writing_views != 0) {
      return std::nullopt;
    }
    return s;
  }
  std::optional<step> make_hold() {
    step s = make_plain(kind::hold);
    s.a = pick_piece();
    s.b = pick_piece();
    if (world_.holds.size() >= (world_.options.alone ? 2U : 1U) || !world_.usable(s.a, deepum::access::update) ||
        !world_.usable(s.b, deepum::access::read) || world_.memory.of(s.a).arena != world_.arena_of(s.stream) ||
        world_.memory.of(s.b).arena != world_.arena_of(s.stream) || world_.overlaps_view({s.a, s.b})) {
      return std::nullopt;
    }
    if (!world_.options.alone && !world_.views.empty()) {
      return std::nullopt;
    }
    if (gave_up_any(s.a) || gave_up_any(s.b) || world_.busy({s.a, s.b}).size() > world_.budget / 2) {
      return std::nullopt;
    }
    return s;
  }

  // --- graphs ------------------------------------------------------------------------------------------------------

  std::optional<step> make_record_graph() {
    if (!world_.has_graphs || world_.graphs.size() >= 3) {
      return std::nullopt;
    }
    step s = make_plain(kind::record_graph);
    std::vector<piece> used;
    for (std::uint32_t tries = 2 + below(8); tries > 0; --tries) {
      step i = guess_launch();
      i.stream = s.stream;
      i.ends = step::ending::well;
      if (i.what == kind::chase || !world_.possible(i, used) || world_.too_large(i)) {
        continue;
      }
      const std::vector<piece> more = shadow::pieces(world_.memory.operands(i));
      used.insert(used.end(), more.begin(), more.end());
      s.inner.push_back(i);
    }
    const bool fits = !world_.faultless || world_.memory.blocks(used, world_.block).size() + 6 <= world_.budget;
    return s.inner.empty() || !fits ? std::nullopt : std::optional(s);
  }
  std::optional<step> make_launch_graph() {
    std::optional<step> s = make_numbered(kind::launch_graph, world_.graphs.size());
    if (!s) {
      return std::nullopt;
    }
    const lockstep_world::graph& g = world_.graphs[s->value];
    s->stream = g.stream;
    if (world_.lost_memory(g)) {
      return below(3) == 0 ? s : std::nullopt;
    }
    std::vector<piece> used;
    for (const std::vector<shadow::named>& operands : g.operands) {
      for (const shadow::named& o : operands) {
        if (!world_.usable(o.what, o.mode)) {
          return std::nullopt;
        }
        used.push_back(o.what);
      }
    }
    const bool fits = !world_.faultless || world_.busy(used).size() + 6 <= world_.budget;
    if (!fits || (!world_.options.alone && !world_.holds.empty())) {
      return std::nullopt;
    }
    return s;
  }

  // --- the rest ----------------------------------------------------------------------------------------------------

  std::optional<step> make_set_budget() {
    step s = make_plain(kind::set_budget);
    s.value = world_.options.least_budget + below(world_.options.most_budget - world_.options.least_budget + 1);
    if (!world_.options.alone || world_.busy().size() > s.value) {
      return std::nullopt;
    }
    return s;
  }
  std::optional<step> make_reopen() {
    step s = make_plain(kind::reopen);
    const bool recorded = std::any_of(world_.graphs.begin(), world_.graphs.end(),
                                      [&](const lockstep_world::graph& g) { return g.stream == s.stream; });
    return recorded ? std::nullopt : std::optional(s);
  }
  step make_pause() {
    step s = make_plain(kind::pause);
    s.value = below(4) == 0 ? below(20000) : below(200);
    return s;
  }

  const lockstep_world& world_;
  std::mt19937_64 random_;
  std::deque<step> recent_{};
  std::deque<step> planned_{};
  std::vector<step> loop_{};
  std::uint32_t loop_left_ = 0;
};

}  // namespace deepum_test
