#pragma once

#include <deepum/core/block.hpp>
#include <deepum/core/block_grid.hpp>
#include <deepum/core/launch.hpp>
#include <deepum/units.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace deepum::gpu_bench {

/// What happens behind the last launch of a program.
enum class afterwards : std::uint8_t {
  repeats,  ///< it begins anew
  ends,     ///< all contents count
};

/// A part of a program's memory, as its allocations were split.
struct part {
  bytes offset{};
  bytes size{};
  bool resident = false;  ///< on the device always, whoever moves the others
};

/// Bytes that a launch touches in one way.
struct touch {
  bytes offset{};
  bytes size{};
  access mode = access::update;
};

/// What a program says of its memory's contents: whether they are of value.
struct value_change {
  bytes offset{};
  bytes size{};
  bool of_value = true;
};

/// One step of a program, as it was recorded: what each launch touches, in order of issue.
struct step_program {
  struct launch {
    std::string name{};
    std::vector<touch> touches{};
    std::vector<value_change> changes{};  ///< said behind it, in order; behind the last one: also before the first one
  };
  bytes capacity{};
  std::vector<part> parts{};  ///< by address
  std::vector<launch> launches{};
};

/// How a launch uses a unit of memory: a block, or a part.
struct unit_use {
  std::uint32_t unit = 0;
  access mode = access::read;  ///< overwrite: as a whole, before anything of it is read
  bool written = false;        ///< by the end

  friend bool operator==(const unit_use&, const unit_use&) = default;
};

/// A step in units that move as a whole. The same units are named by every step.
struct unit_program {
  std::vector<std::uint64_t> size{};              ///< bytes, by unit
  std::vector<std::vector<unit_use>> launches{};  ///< by launch: its units, each once, by number
};

namespace detail {

/// Of several uses of a unit, the first decides whether old contents count. Overwrites count only where nothing else of
/// the same launch touches the unit: in which order it does so is not known.
inline void merge_uses(std::vector<unit_use>& uses) {
  std::stable_sort(uses.begin(), uses.end(), [](const unit_use& a, const unit_use& b) { return a.unit < b.unit; });
  std::size_t kept = 0;
  for (const unit_use& u : uses) {
    if (kept != 0 && uses[kept - 1].unit == u.unit) {
      unit_use& k = uses[kept - 1];
      if (k.mode != u.mode) {
        k.mode = access::update;
      }
      k.written = k.written || u.written;
    } else {
      uses[kept++] = u;
    }
  }
  uses.resize(kept);
}

}  // namespace detail

/// The step in blocks of managed memory.
[[nodiscard]] inline unit_program in_blocks(const step_program& p) {
  unit_program out;
  out.size.assign(um_grid.blocks_of(bytes{}, p.capacity).count, block_size.count);
  for (const step_program::launch& l : p.launches) {
    std::vector<unit_use>& uses = out.launches.emplace_back();
    for (const touch& t : l.touches) {
      const block_range touched = um_grid.blocks_of(t.offset, t.size);
      const block_range whole = um_grid.whole_blocks_of(t.offset, t.size);
      for (std::uint32_t b = touched.begin_value(); b != touched.end_value(); ++b) {
        const bool as_a_whole = t.mode == access::overwrite && whole.contains(block_id{b});
        uses.push_back({b,
                        as_a_whole               ? access::overwrite
                        : t.mode == access::read ? access::read
                                                 : access::update,
                        t.mode != access::read});
      }
    }
    detail::merge_uses(uses);
  }
  return out;
}

/// The step in parts. Those that are resident always are units that no launch uses.
[[nodiscard]] inline unit_program in_parts(const step_program& p) {
  constexpr std::uint64_t padding = 255;  // behind the last element, which nobody reads
  unit_program out;
  for (const part& each : p.parts) {
    out.size.push_back(each.size.count);
  }
  for (const step_program::launch& l : p.launches) {
    std::vector<unit_use>& uses = out.launches.emplace_back();
    for (const touch& t : l.touches) {
      const bytes end = t.offset + t.size;
      auto it = std::upper_bound(p.parts.begin(), p.parts.end(), t.offset,
                                 [](bytes offset, const part& each) { return offset < each.offset; });
      for (it = it == p.parts.begin() ? it : it - 1; it != p.parts.end() && it->offset < end; ++it) {
        if (it->resident || it->offset + it->size <= t.offset) {
          continue;
        }
        const bool whole = t.offset <= it->offset && it->offset + it->size <= end + bytes{padding};
        uses.push_back({static_cast<std::uint32_t>(it - p.parts.begin()),
                        t.mode == access::overwrite && whole ? access::overwrite
                        : t.mode == access::read             ? access::read
                                                             : access::update,
                        t.mode != access::read});
      }
    }
    detail::merge_uses(uses);
  }
  return out;
}

/// Bytes of the units that a step uses.
[[nodiscard]] inline std::uint64_t used_bytes(const unit_program& p) {
  std::vector<bool> used(p.size.size());
  for (const auto& launch : p.launches) {
    for (const unit_use& u : launch) {
      used[u.unit] = true;
    }
  }
  std::uint64_t total = 0;
  for (std::size_t i = 0; i < used.size(); ++i) {
    total += used[i] ? p.size[i] : 0;
  }
  return total;
}

}  // namespace deepum::gpu_bench
