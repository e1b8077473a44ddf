#pragma once

#include "property/lockstep_step.hpp"
#include "property/shadow.hpp"
#include <deepum/core/launch.hpp>
#include <deepum/units.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <set>
#include <vector>

namespace deepum_test {

/// How a program in lockstep is made.
struct lockstep_options {
  std::uint64_t seed = 1;
  std::uint32_t steps = 300;
  deepum::bytes live{std::uint64_t{24} << 20};  ///< of all buffers together, at most
  std::uint32_t buffer_blocks = 3;              ///< of one, at most
  std::uint32_t most_budget = 12;               ///< in blocks
  std::uint32_t least_budget = 8;
  std::uint8_t arenas = 1;
  std::uint8_t streams = 2;  ///< of each arena
  bool alone = true;         ///< no other thread uses the arenas
  bool time_is_virtual = true;
};

/// What a program in lockstep has going on. The library's side of it is with the run.
struct lockstep_world {
  struct view {
    piece what{};
    deepum::access mode = deepum::access::read;
  };
  struct hold {
    std::vector<piece> pieces{};
  };
  struct graph {
    std::vector<step> inner{};
    std::vector<std::vector<shadow::named>> operands{};  ///< of each, as they were when it was recorded
    std::vector<std::uint32_t> generations{};            ///< of the buffers of all operands
    std::uint8_t stream = 0;
  };

  static constexpr std::size_t most_graphs = 3;

  shadow memory{};
  std::vector<view> views{};
  std::vector<hold> holds{};
  std::vector<graph> graphs{};
  std::vector<piece> called{};  ///< operands of the calls whose bodies run now
  lockstep_options options{};
  bool paged = false;
  bool has_graphs = false;
  bool has_scratch = false;
  std::size_t block = std::size_t{2} << 20;
  std::uint32_t budget = 0;  ///< now, in blocks

  [[nodiscard]] std::uint8_t arena_of(std::uint8_t stream) const {
    return static_cast<std::uint8_t>(stream / options.streams);
  }

  /// Blocks that launches which go on are keeping on the device.
  [[nodiscard]] std::set<std::size_t> busy(const std::vector<piece>& more = {}) const {
    std::set<std::size_t> all = memory.blocks(more, block);
    for (const hold& h : holds) {
      all.merge(memory.blocks(h.pieces, block));
    }
    all.merge(memory.blocks(called, block));
    return all;
  }
  /// A view of the host writes a block of these. On memory that never faults launches with them are refused, whoever's
  /// the view is.
  [[nodiscard]] bool beside_written_view(const std::vector<piece>& pieces) const {
    if (!paged) {
      return false;
    }
    const std::set<std::size_t> touched = memory.blocks(pieces, block);
    return std::any_of(views.begin(), views.end(), [&](const view& v) {
      return v.mode != deepum::access::read && overlap(memory.blocks({v.what}, block), touched);
    });
  }
  /// On memory that never faults: a view of the host writes something.
  [[nodiscard]] bool writes_views() const {
    return paged &&
           std::any_of(views.begin(), views.end(), [](const view& v) { return v.mode != deepum::access::read; });
  }
  /// Blocks that the memory has to hold: in use, or open to the host; and where the pointer is.
  [[nodiscard]] std::size_t blocks_with_contents() const {
    std::vector<piece> open;
    for (const view& v : views) {
      open.push_back(v.what);
    }
    std::set<std::size_t> all = memory.blocks(open, block);
    for (std::uint8_t a = 0; a < options.arenas; ++a) {
      all.merge(memory.live_blocks(a, block));
    }
    return all.size() + 1;
  }
  [[nodiscard]] bool overlaps_view(const std::vector<piece>& pieces) const {
    const std::set<std::size_t> touched = memory.blocks(pieces, block);
    return std::any_of(views.begin(), views.end(),
                       [&](const view& v) { return overlap(memory.blocks({v.what}, block), touched); });
  }
  /// Whether memory of a graph was given back since it was recorded.
  [[nodiscard]] bool lost_memory(const graph& g) const {
    std::size_t i = 0;
    for (const std::vector<shadow::named>& operands : g.operands) {
      for (const shadow::named& o : operands) {
        if (memory.of(o.what).generation != g.generations[i++]) {
          return true;
        }
      }
    }
    return false;
  }

  /// Whether a launch or transfer may be made now, but for what `refused` says.
  /// @param outer  Operands of the call that it is made within.
  [[nodiscard]] bool possible(const step& s, const std::vector<piece>& outer = {}) const {
    const bool reads_a = s.what == step::kind::copy_out;
    if (!usable(s.a, reads_a ? deepum::access::read : deepum::access::update) ||
        (reads_b(s.what) && !usable(s.b, deepum::access::read)) ||
        (s.what == step::kind::gather && !usable(s.c, deepum::access::read))) {
      return false;
    }
    const std::uint8_t arena = arena_of(s.stream);
    const auto elsewhere = [&](const piece& p) { return memory.of(p).arena != arena; };
    if ((s.what == step::kind::chase && arena != 0) || elsewhere(s.a) ||
        (reads_b(s.what) && s.what != step::kind::copy && elsewhere(s.b)) ||
        (s.what == step::kind::gather && elsewhere(s.c))) {
      return false;
    }
    if (s.what == step::kind::scratch && s.a.buffer == s.b.buffer) {
      return false;  // it reads all of b before it writes
    }
    if (s.what == step::kind::copy &&
        (s.a.buffer == s.b.buffer || s.a.n != s.b.n || memory.of(s.a).unit != memory.of(s.b).unit)) {
      return false;
    }
    if (hides_b(s) && memory.gave_up_any(s.b)) {
      return false;  // what is not declared is not in use again
    }
    const std::vector<shadow::named> operands = memory.operands(s);
    for (std::size_t i = 0; i < operands.size(); ++i) {
      const piece& used = i == 0 ? s.a : i == 1 ? s.b : s.c;
      const piece& o = operands[i].what;
      if (used.first < o.first || used.first + used.n > o.first + o.n) {
        return false;  // a pointer without a size means its part, and the launch would touch more
      }
      if (operands[i].mode == deepum::access::overwrite) {
        if (o.n != used.n) {
          return false;  // more would be given up than is written
        }
        for (std::size_t j = 1; j < operands.size(); ++j) {
          if (operands[j].what.buffer == o.buffer) {
            return false;
          }
        }
      }
    }
    const std::vector<piece> touched = shadow::pieces(operands);
    if (beside_held(s.what == step::kind::scratch, touched)) {
      return false;
    }
    if (!paged) {
      return true;
    }
    std::set<std::size_t> all = memory.blocks(touched, block);
    if (too_large(s)) {
      return true;
    }
    all.merge(busy(outer));
    return all.size() + other_blocks(s) <= budget;
  }
  /// Whether a launch or transfer has to be refused: it is too large, or reads what was given up. A managed arena does
  /// not know another one's memory, which the driver brings like any other: it cannot say what was given up there.
  [[nodiscard]] bool must_be_refused(const step& s) const {
    std::vector<shadow::named> operands = memory.operands(s);
    if (!paged) {
      std::erase_if(operands, [&](const shadow::named& o) { return memory.of(o.what).arena != arena_of(s.stream); });
    }
    return too_large(s) || memory.reads_given_up(operands);
  }
  /// On memory that never faults: a launch that can never be made.
  [[nodiscard]] bool too_large(const step& s) const {
    const std::size_t beside = s.what == step::kind::chase ? other_blocks(s) : 0;  // scratch memory may share blocks
    return paged && is_launch(s.what) &&
           memory.blocks(shadow::pieces(memory.operands(s)), block).size() + beside > budget;
  }
  /// Blocks that a launch touches beside the buffers, at most.
  [[nodiscard]] std::size_t other_blocks(const step& s) const {
    if (s.what == step::kind::chase) {
      return 1;  // where the pointer is
    }
    return s.what == step::kind::scratch ? s.unit * sizeof(shadow::word) / block + 2 : 0;
  }

  [[nodiscard]] bool usable(const piece& p, deepum::access mode) const {
    if (p.buffer >= memory.buffers.size()) {
      return false;
    }
    const shadow::buffer& b = memory.of(p);
    return b.alive && p.n != 0 && p.first < b.size() && p.n <= b.size() - p.first && b.writing_views == 0 &&
           (mode == deepum::access::read || b.reading_views == 0);
  }
  /// Whether the host may open a view: a read of what was given up is to be refused.
  [[nodiscard]] bool may_open(const step& s) const {
    return views.size() < 3 && usable(s.a, s.mode) && !(paged && overlap(busy(), memory.blocks({s.a}, block))) &&
           (options.alone || holds.empty());
  }

 private:
  [[nodiscard]] static bool overlap(const std::set<std::size_t>& blocks, const std::set<std::size_t>& others) {
    return std::any_of(blocks.begin(), blocks.end(), [&](std::size_t b) { return others.contains(b); });
  }
  /// Where others hold memory, too, a thread that holds some launches nothing else: they could wait for each other.
  [[nodiscard]] bool beside_held(bool scratch, const std::vector<piece>& touched) const {
    if (options.alone || holds.empty()) {
      return false;
    }
    const std::set<std::size_t> held = busy();
    const std::set<std::size_t> wanted = memory.blocks(touched, block);
    return scratch || std::any_of(wanted.begin(), wanted.end(), [&](std::size_t b) { return !held.contains(b); });
  }
};

}  // namespace deepum_test
