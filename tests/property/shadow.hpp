#pragma once

#include "property/lockstep_step.hpp"
#include "property/random_program.hpp"
#include <deepum/core/launch.hpp>
#include <deepum/error.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <vector>

namespace deepum_test {

/// What an arena has to hold, unit by unit: a naive model that knows nothing of blocks that move.
///
/// It also says by the rules of the documentation what is undefined (fresh memory, contents that were given up) and
/// which launches have to be refused.
class shadow {
 public:
  using word = std::uint32_t;

  struct cell {
    word value = 0;
    bool known = false;
    bool given_up = false;
  };
  struct buffer {
    word* address = nullptr;
    std::uint32_t unit = 1;
    std::uint8_t arena = 0;
    std::uint8_t stream = 0;  ///< that used it last
    bool alive = false;
    std::uint32_t reading_views = 0;
    std::uint32_t writing_views = 0;
    std::uint32_t holds = 0;
    std::uint32_t generation = 0;  ///< changes when it is freed
    std::vector<cell> cells{};
    std::vector<std::uint32_t> part_ends{};  ///< in units; empty: not split

    [[nodiscard]] std::uint32_t size() const { return static_cast<std::uint32_t>(cells.size()); }
    /// No view and no hold is on it.
    [[nodiscard]] bool unused() const { return reading_views + writing_views + holds == 0; }
    [[nodiscard]] std::size_t bytes() const { return std::size_t{unit} * cells.size() * sizeof(word); }
  };
  /// An operand of a launch as the library has to understand it.
  struct named {
    piece what{};
    deepum::access mode = deepum::access::update;
    bool sized = true;
  };

  std::vector<buffer> buffers{};

  [[nodiscard]] buffer& of(const piece& p) { return buffers[p.buffer]; }
  [[nodiscard]] const buffer& of(const piece& p) const { return buffers[p.buffer]; }
  [[nodiscard]] std::span<cell> cells(const piece& p) { return std::span(of(p).cells).subspan(p.first, p.n); }
  [[nodiscard]] std::span<const cell> cells(const piece& p) const {
    return std::span(of(p).cells).subspan(p.first, p.n);
  }
  [[nodiscard]] word* address(const piece& p) const { return of(p).address + std::size_t{p.first} * of(p).unit; }
  [[nodiscard]] std::size_t words(const piece& p) const { return std::size_t{p.n} * of(p).unit; }

  [[nodiscard]] bool gave_up_any(const piece& p) const {
    const auto all = cells(p);
    return std::any_of(all.begin(), all.end(), [](const cell& c) { return c.given_up; });
  }

  /// What a pointer to the piece means without a size.
  [[nodiscard]] piece part(const piece& p) const {
    const buffer& b = of(p);
    if (b.part_ends.empty()) {
      return {p.buffer, 0, b.size()};
    }
    const auto end = std::upper_bound(b.part_ends.begin(), b.part_ends.end(), p.first);
    const std::uint32_t first = end == b.part_ends.begin() ? 0 : *(end - 1);
    return {p.buffer, first, *end - first};
  }

  /// The operands that a launch or transfer declares.
  [[nodiscard]] std::vector<named> operands(const step& s) const {
    using kind = step::kind;
    std::vector<named> all;
    const bool transfer = is_transfer(s.what);
    const auto add = [&](const piece& p, deepum::access mode, unsigned bit) {
      const bool sized =
          transfer || s.by == step::route::sized || (s.by == step::route::call && (s.unsized >> bit & 1U) == 0);
      all.push_back({sized ? p : part(p), mode, sized});
    };
    const bool whole = s.what == kind::fill || s.what == kind::derive;
    if (s.what == kind::copy_out) {
      add(s.a, deepum::access::read, 0);
    } else {
      add(s.a, transfer || (whole && s.by != step::route::plain) ? deepum::access::overwrite : deepum::access::update,
          0);
    }
    if (reads_b(s.what) && !hides_b(s)) {
      add(s.b, deepum::access::read, 1);
    }
    if (s.what == kind::gather) {
      add(s.c, deepum::access::read, 2);
    }
    return all;
  }

  /// Whether a launch reads what was given up, in a way that is an error: what it writes itself it may read.
  [[nodiscard]] bool reads_given_up(const std::vector<named>& operands) const {
    return std::any_of(operands.begin(), operands.end(), [&](const named& o) {
      std::uint32_t dead = 0;
      for (std::uint32_t i = o.what.first; i < o.what.first + o.what.n; ++i) {
        const bool written = std::any_of(operands.begin(), operands.end(), [&](const named& w) {
          return w.mode != deepum::access::read && w.what.buffer == o.what.buffer && i >= w.what.first &&
                 i - w.what.first < w.what.n;
        });
        dead += of(o.what).cells[i].given_up && !written ? 1 : 0;
      }
      return o.mode == deepum::access::read && (o.sized ? dead != 0 : dead == o.what.n);
    });
  }

  /// The declared operands take effect, in the order of submission.
  void declare(const std::vector<named>& operands) {
    for (const named& o : operands) {
      for (cell& c : cells(o.what)) {
        if (o.mode != deepum::access::read) {
          c.given_up = false;
        }
      }
    }
  }

  /// What a launch or a transfer within arenas computes.
  void compute(const step& s) {
    using kind = step::kind;
    const std::span<cell> a = cells(s.a);
    const std::span<const cell> b = reads_b(s.what) ? cells(s.b) : std::span<const cell>();
    for (std::uint32_t i = 0; i < a.size(); ++i) {
      switch (s.what) {
        case kind::fill:
          a[i] = {filled(i, s.value), true, a[i].given_up};
          break;
        case kind::derive:
          a[i] = {mixed(filled(i, s.value), b[i % b.size()].value, s.value), b[i % b.size()].known, a[i].given_up};
          break;
        case kind::mix:
        case kind::chase:
        case kind::scratch:
          update(a[i], b[i % b.size()], s.value);
          break;
        case kind::gather: {
          const cell& index = cells(s.c)[i % s.c.n];
          if (index.known) {
            update(a[i], b[index.value % b.size()], s.value);
          } else {
            a[i].known = false;
          }
          break;
        }
        case kind::copy:
          a[i] = {b[i].value, b[i].known, a[i].given_up};
          break;
        case kind::copy_in:
          a[i] = {filled(i, s.value), true, a[i].given_up};
          break;
        case kind::set_bytes:
          a[i] = {(s.value & 0xffU) * 0x01010101U, true, a[i].given_up};
          break;
        default:
          break;
      }
    }
  }

  /// Contents are of no value from now on.
  void forget(const piece& p, bool given_up) {
    for (cell& c : cells(p)) {
      c.known = false;
      c.given_up = c.given_up || given_up;
    }
  }
  void revive(const piece& p) {
    for (cell& c : cells(p)) {
      c.given_up = false;
    }
  }

  /// The first unit where words differ from what is known; nothing where none does.
  /// @param seen  The word of each unit, `stride` words apart.
  [[nodiscard]] std::optional<std::uint32_t> difference(const piece& p, const word* seen, std::size_t stride) const {
    const std::span<const cell> expected = cells(p);
    for (std::uint32_t i = 0; i < p.n; ++i) {
      if (expected[i].known && seen[i * stride] != expected[i].value) {
        return i;
      }
    }
    return std::nullopt;
  }

  /// @name Blocks: where buffers lie, not what the library makes of it.
  /// @{
  [[nodiscard]] std::set<std::size_t> blocks(const std::vector<piece>& pieces, std::size_t block) const {
    std::set<std::size_t> all;
    for (const piece& p : pieces) {
      const auto begin = reinterpret_cast<std::uintptr_t>(address(p));
      for (std::size_t at = begin / block; p.n != 0 && at <= (begin + words(p) * sizeof(word) - 1) / block; ++at) {
        all.insert(at);
      }
    }
    return all;
  }
  [[nodiscard]] static std::vector<piece> pieces(const std::vector<named>& operands) {
    std::vector<piece> all;
    for (const named& o : operands) {
      all.push_back(o.what);
    }
    return all;
  }
  /// Blocks with a byte that is allocated and was not given up.
  [[nodiscard]] std::set<std::size_t> live_blocks(std::uint8_t arena, std::size_t block) const {
    std::vector<piece> live;
    for (std::uint32_t n = 0; n < buffers.size(); ++n) {
      const buffer& b = buffers[n];
      if (!b.alive || b.arena != arena) {
        continue;
      }
      for (std::uint32_t i = 0; i < b.size(); ++i) {
        if (!b.cells[i].given_up || i + 1 == b.size()) {  // behind the last unit lies what the size was rounded up by
          live.push_back({n, i, 1});
        }
      }
    }
    return blocks(live, block);
  }
  /// @}

 private:
  static void update(cell& a, const cell& b, word value) {
    a.value = mixed(a.value, b.value, value);
    a.known = a.known && b.known;
  }
};

}  // namespace deepum_test
