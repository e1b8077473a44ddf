#include "placement.hpp"

#include <deepum/error.hpp>

#include <algorithm>
#include <map>
#include <unordered_map>

namespace deepum::replay {
namespace {

constexpr std::uint64_t smallest_piece = 512;  // of what parse_workload hands out too

std::uint64_t round_up(std::uint64_t n, std::uint64_t to) { return (n + to - 1) / to * to; }

/// Gaps of the address space, in bytes.
class gaps {
 public:
  /// The begin of the smallest gap that is large enough, the first one of several.
  std::optional<std::uint64_t> take(std::uint64_t size) {
    auto best = ends_.end();
    for (auto gap = ends_.begin(); gap != ends_.end(); ++gap) {
      if (length(gap) >= size && (best == ends_.end() || length(gap) < length(best))) {
        best = gap;
      }
    }
    if (best == ends_.end()) {
      return std::nullopt;
    }
    const std::uint64_t begin = best->first;
    const std::uint64_t end = best->second;
    ends_.erase(best);
    if (begin + size != end) {
      ends_.emplace(begin + size, end);
    }
    return begin;
  }

  void give(std::uint64_t begin, std::uint64_t end) {
    if (begin == end) {
      return;
    }
    auto after = ends_.lower_bound(begin);
    if (after != ends_.end() && after->first == end) {
      end = after->second;
      after = ends_.erase(after);
    }
    if (after != ends_.begin() && std::prev(after)->second == begin) {
      std::prev(after)->second = end;
    } else {
      ends_.emplace(begin, end);
    }
  }

 private:
  using gap_map = std::map<std::uint64_t, std::uint64_t>;  // begin -> end
  static std::uint64_t length(gap_map::const_iterator gap) { return gap->second - gap->first; }

  gap_map ends_{};
};

class allocator {
 public:
  allocator(const block_set& taken, std::uint32_t from_block) {
    constexpr std::uint32_t end_of_space = 0xffffffffU;
    std::uint32_t at = from_block;
    for (const block_range r : taken) {
      if (r.begin_value() > at) {
        blocks_.give(at * block_size.count, r.begin_value() * block_size.count);
      }
      at = std::max(at, r.end_value());
    }
    blocks_.give(at * block_size.count, end_of_space * block_size.count);
  }

  std::uint64_t take(std::uint64_t size) {
    const std::uint64_t room = room_of(size);
    if (room >= block_size.count) {
      return take_blocks(room);
    }
    if (const auto found = pieces_.take(room)) {
      return *found;
    }
    const std::uint64_t block = take_blocks(block_size.count);
    pieces_.give(block + room, block + block_size.count);
    return block;
  }

  void give(std::uint64_t address, std::uint64_t size) {
    const std::uint64_t room = room_of(size);
    (room >= block_size.count ? blocks_ : pieces_).give(address, address + room);
  }

 private:
  static std::uint64_t room_of(std::uint64_t size) {
    const std::uint64_t room = round_up(std::max<std::uint64_t>(size, 1), smallest_piece);
    return room < block_size.count ? room : round_up(room, block_size.count);
  }
  std::uint64_t take_blocks(std::uint64_t room) {
    const auto found = blocks_.take(room);
    if (!found) {
      throw error(status::invalid_argument, "the tensors of a derived workload do not fit into 8 PiB");
    }
    return *found;
  }

  gaps blocks_{};  // begin and end on blocks
  gaps pieces_{};  // of blocks that hold small tensors
};

}  // namespace

std::vector<tensor_life> lives_of(const workload_description& d) {
  std::unordered_map<std::int64_t, std::size_t> index;
  std::vector<tensor_life> lives(d.tensors.size());
  for (std::size_t i = 0; i != d.tensors.size(); ++i) {
    index.emplace(d.tensors[i].id, i);
    lives[i].freed_after = d.tensors[i].freed_after.value_or(0);
  }
  const auto last = static_cast<std::uint32_t>(d.launches.size() - 1);
  for (std::uint32_t k = 0; k != d.launches.size(); ++k) {
    for (const auto* ids : {&d.launches[k].in, &d.launches[k].out}) {
      for (const std::int64_t id : *ids) {
        tensor_life& life = lives[index.at(id)];
        life.born = life.born.value_or(k);
        life.freed_after = std::min(std::max(life.freed_after, k), last);
      }
    }
  }
  return lives;
}

void place(workload_description& d, const placement& how) {
  expects(how.which.size() == d.tensors.size(), "place wants to know of every tensor whether it gets an address");
  allocator memory(how.taken, how.from_block);
  const std::vector<tensor_life> lives = lives_of(d);
  std::vector<std::vector<std::size_t>> born(d.launches.size());
  std::vector<std::vector<std::size_t>> freed(d.launches.size());
  const auto take = [&](std::size_t i) { d.tensors[i].address = bytes{memory.take(d.tensors[i].size.count)}; };
  for (std::size_t i = 0; i != d.tensors.size(); ++i) {
    if (!how.which[i] || !lives[i].born) {
      continue;
    }
    if (d.tensors[i].persistent) {
      take(i);
    } else {
      born[*lives[i].born].push_back(i);
      freed[lives[i].freed_after].push_back(i);
    }
  }
  for (std::size_t k = 0; k != d.launches.size(); ++k) {
    for (const std::size_t i : born[k]) {
      take(i);
    }
    if (how.reuse) {
      for (const std::size_t i : freed[k]) {
        memory.give(d.tensors[i].address->count, d.tensors[i].size.count);
      }
    }
  }
}

}  // namespace deepum::replay
