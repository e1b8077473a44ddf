#pragma once

#include <deepum/arena/declaration.hpp>
#include <deepum/arena/sliced_launches.hpp>
#include <deepum/engine/upload_desk.hpp>
#include <deepum/error.hpp>
#include <deepum/separate.hpp>

#include <algorithm>
#include <string>
#include <vector>

namespace deepum {
inline namespace v0 {
namespace detail {

DEEPUM_SEPARATE bool sliced_launches::surely_whole(std::span<const operand> operands, bool complete) const {
  const arena_back& back = launches_.rooms.back;
  if (!complete || launches_.recorded) {
    return true;
  }
  if (launches_.rooms.order || back.engine().uploading() || !uploaded_.empty() ||
      (!back.faults() && back.engine().has_to_ask())) {
    return false;
  }
  const std::uint64_t room = back.engine().budget() / back.block();
  std::uint64_t blocks = 0;
  for (const operand& o : operands) {
    if (o.size == operand::whole) {
      return false;
    }
    blocks += o.size / back.block() + 2;
  }
  return blocks <= room;
}

DEEPUM_SEPARATE std::optional<slice_cuts> sliced_launches::cut(std::string_view name, launch_signature signature,
                                                               dim grid, std::span<sliced_pointer> pointers) {
  arena_back& back = launches_.rooms.back;
  if (launches_.captured()) {
    return std::nullopt;
  }
  std::vector<sliced_access> accesses;
  resolve(name, grid, pointers, accesses);
  const slicing planner(grid, accesses, back.grid());
  const std::uint64_t all = planner.footprint(all_of(grid));
  std::uint64_t room = back.engine().room_of_launches();
  const bool checked = launches_.rooms.order != nullptr;
  const bool arriving = follows_upload(signature.shape, accesses);
  if (all <= room && !checked && !arriving) {
    return std::nullopt;
  }
  watched_.clear();
  for (const sliced_access& a : accesses) {
    if (checked && a.offset) {
      watched_.push_back({a.offset->count, (*a.offset + a.size).count});
    }
  }
  if (const auto known = cuts_.find(signature.shape); known != cuts_.end() && known->second.grid == grid) {
    const slice_cuts& before = known->second;
    if (planner.fit(before, room)) {
      return before;
    }
  }
  std::optional<slice_cuts> cuts;
  if (all > room) {
    cuts = planner.cut(room);
  } else if (arriving) {
    cuts = planner.cut(all);
  } else {
    cuts = slice_cuts{grid, planner.smallest().second, 0};
    cuts->places = extent_along(grid, cuts->axis);
  }
  if (!cuts && all <= room) {
    return std::nullopt;
  }
  if (!cuts) {  // it may be what an arena::hold keeps that the launch touches
    room = std::max(room, back.engine().budget() / back.block());
    cuts = planner.cut(room);
  }
  if (!cuts) {
    if (back.faults() || grid == dim{}) {
      return std::nullopt;  // the driver brings what is missing, or the engine refuses what no slice can help
    }
    const auto in_bytes = [&](std::uint64_t blocks) { return std::to_string(blocks * back.block().count); };
    throw error(status::out_of_device_memory,
                "launch '" + std::string(name) + "' touches " + in_bytes(all) +
                    " bytes, and the smallest slices that the descriptions of its operands allow touch " +
                    in_bytes(std::min(all, planner.smallest().first)) + " or more; the budget is " + in_bytes(room) +
                    ": raise it, or describe more operands by_x, by_y, by_z or by_slice");
  }
  if (checked) {  // in slices even where it fits, so that the descriptions are checked, too
    cuts->places = std::min(cuts->places, (extent_along(grid, cuts->axis) - 1) / slices_when_checked + 1);
  }
  if (cuts_.size() >= most_remembered) {
    cuts_.clear();
  }
  cuts_[signature.shape] = *cuts;
  return cuts;
}

DEEPUM_SEPARATE bool sliced_launches::follows_upload(std::uint64_t shape, std::span<const sliced_access> accesses) {
  arena_back& back = launches_.rooms.back;
  const bool arriving =
      back.engine().uploading() && std::any_of(accesses.begin(), accesses.end(), [&](const sliced_access& a) {
        return a.offset && back.engine().uploads().any_on(back.grid().blocks_of(*a.offset, a.size));
      });
  if (arriving) {
    uploaded_[shape] = launches_after_upload;
    return true;
  }
  const auto before = uploaded_.find(shape);
  if (before == uploaded_.end()) {
    return false;
  }
  if (--before->second == 0) {
    uploaded_.erase(before);
  }
  return true;
}

DEEPUM_SEPARATE void sliced_launches::resolve(std::string_view name, dim grid, std::span<sliced_pointer> pointers,
                                              std::vector<sliced_access>& accesses) {
  std::vector<named_operand> named;
  std::size_t position = 0;
  for (sliced_pointer& p : pointers) {
    ++position;
    if (p.whole.address == nullptr) {
      continue;
    }
    launches_.rooms.launches.check_operand(name, p.whole);
    launches_.rooms.launches.name_operands(name, {&p.whole, 1}, named);
    if (named.empty()) {
      p.access.size = p.whole.size == operand::whole ? bytes{} : p.whole.size;
      continue;
    }
    p.access.offset = named.front().where.span.offset;
    p.access.size = named.front().where.span.size;
    check_shape(name, position, p.access.shape, p.access.mode, p.access.size, grid);
    if (p.access.part) {
      p.access.part = [part = std::move(p.access.part), most = p.access.size, of = std::string(name),
                       position](const grid_slice& slice) {
        const byte_span b = part(slice);
        if (b.size > most || b.offset > most - b.size) {
          throw error(status::invalid_argument, "launch '" + of + "': argument " + std::to_string(position) +
                                                    ", which it describes by_slice, has " + std::to_string(most.count) +
                                                    " bytes, and the function names " + std::to_string(b.size.count) +
                                                    " of them from byte " + std::to_string(b.offset.count) + " on");
        }
        return b;
      };
    }
    accesses.push_back(p.access);
  }
}

}  // namespace detail
}  // namespace v0
}  // namespace deepum
