#include "shuffled_workload.hpp"

#include "placement.hpp"
#include <deepum/error.hpp>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

namespace deepum::replay {
namespace {

template <class T>
void shuffle(std::vector<T>& values, random_bits& random) {
  for (std::size_t i = values.size(); i > 1; --i) {
    std::swap(values[i - 1], values[below(random, i)]);
  }
}

}  // namespace

/// The workload with tensors that do not persist at other addresses.
///
/// Blocks that such tensors share, directly or through others, are a stretch. Stretches are put one after another, in a
/// random order, where there is room among all that were there and the gaps between them, else behind the end.
workload_pointer rearranged(const workload& base, bool mirrored, random_bits& random) {
  std::vector<std::uint32_t> order;
  for (std::uint32_t i = 0; i != base.tensors.size(); ++i) {
    if (!base.tensors[i].persistent && base.tensors[i].first_launch) {
      order.push_back(i);
    }
  }
  std::stable_sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
    return base.tensors[a].span.begin_value() < base.tensors[b].span.begin_value();
  });
  struct piece {
    block_range blocks{};
    std::vector<std::uint32_t> tensors{};
  };
  std::vector<piece> pieces;
  for (const std::uint32_t i : order) {
    const block_range span = base.tensors[i].span;
    if (pieces.empty() || span.begin_value() >= pieces.back().blocks.end_value()) {
      pieces.push_back({span, {i}});
    } else {
      block_range& all = pieces.back().blocks;
      all.count = std::max(all.end_value(), span.end_value()) - all.begin_value();
      pieces.back().tensors.push_back(i);
    }
  }
  block_set fixed = base.persistent;
  std::erase_if(pieces, [&](const piece& p) {
    const bool stays = std::any_of(base.persistent.begin(), base.persistent.end(),
                                   [&](block_range r) { return r.overlaps(p.blocks); });
    if (stays) {
      fixed.push_back(p.blocks);
    }
    return stays || p.blocks.empty();
  });
  std::sort(fixed.begin(), fixed.end(), [](block_range a, block_range b) { return a.first < b.first; });
  std::vector<block_range> room;
  std::uint32_t at = 0;
  for (const block_range r : fixed) {
    if (r.begin_value() > at) {
      room.push_back({block_id{at}, r.begin_value() - at});
    }
    at = std::max(at, r.end_value());
  }
  if (at < base.end_block) {
    room.push_back({block_id{at}, base.end_block - at});
  }
  room.push_back({block_id{base.end_block}, 0xffffffffU - base.end_block});

  workload_description d = described(base);
  d.name += mirrored ? "/rearranged+mirrored" : "/rearranged";
  shuffle(pieces, random);
  for (const piece& p : pieces) {
    block_range& gap =
        *std::find_if(room.begin(), room.end(), [&](block_range r) { return r.count >= p.blocks.count; });
    const std::uint64_t begin = p.blocks.begin_value() * block_size.count;
    const std::uint64_t to = gap.begin_value() * block_size.count;
    for (const std::uint32_t i : p.tensors) {
      const workload_tensor& t = base.tensors[i];
      const std::uint64_t from_begin = t.address.count - begin;
      const std::uint64_t from_end = um_grid.size_of(p.blocks).count - from_begin - t.size.count;
      d.tensors[i].address = bytes{to + (mirrored ? from_end : from_begin)};
    }
    gap = {block_id{gap.begin_value() + p.blocks.count}, gap.count - p.blocks.count};
  }
  refit_all(d, base, {});
  return built(std::move(d));
}

workload_pointer in_random_order(const workload& base, const std::string& name, random_bits& random) {
  const std::size_t n = base.launches.size();
  std::vector<std::vector<std::uint32_t>> followers(n);
  std::vector<std::uint32_t> waits_for(n);
  for (std::uint32_t k = 0; k != n; ++k) {
    for (const workload_operand& o : base.launches[k].operands) {
      const workload_tensor& t = base.tensors[o.tensor];
      if (!t.persistent && *t.first_launch != k) {
        followers[*t.first_launch].push_back(k);
        ++waits_for[k];
      }
    }
  }
  std::vector<std::uint32_t> ready;
  for (std::uint32_t k = 0; k != n; ++k) {
    if (waits_for[k] == 0) {
      ready.push_back(k);
    }
  }
  const workload_description original = described(base);
  workload_description d = original;
  d.name += name;
  d.launches.clear();
  while (!ready.empty()) {
    std::swap(ready[below(random, ready.size())], ready.back());
    const std::uint32_t k = ready.back();
    ready.pop_back();
    d.launches.push_back(original.launches[k]);
    for (const std::uint32_t f : followers[k]) {
      if (--waits_for[f] == 0) {
        ready.push_back(f);
      }
    }
  }
  for (described_tensor& t : d.tensors) {
    t.freed_after.reset();
  }
  if (uses_addresses_again(base)) {
    place(d, {.which = all_but_persistent(base), .taken = base.persistent});
    refit_all(d, base, {});
  }
  return built(std::move(d));
}

workload_pointer with_random_lookups(const workload& base, std::size_t variants, random_bits& random) {
  const workload_tensor* table = nullptr;
  for (const workload_tensor& t : base.tensors) {
    if (t.persistent && t.first_launch && (table == nullptr || t.size > table->size)) {
      table = &t;
    }
  }
  if (table == nullptr || table->span.empty()) {
    throw error(status::invalid_argument, "'" + base.name + "' has no tensor that persists, and so nothing to look up");
  }
  std::vector<std::uint32_t> blocks(table->span.count);
  for (std::uint32_t b = 0; b != blocks.size(); ++b) {
    blocks[b] = b;
  }
  described_launch::lists lists;
  for (std::size_t v = 0; v != variants; ++v) {
    shuffle(blocks, random);
    lists.emplace_back(blocks.begin(), blocks.begin() + static_cast<std::ptrdiff_t>((blocks.size() + 7) / 8));
    std::sort(lists.back().begin(), lists.back().end());
  }
  workload_description d = described(base);
  d.name += "/lookups";
  for (std::size_t k = 0; k != d.launches.size(); ++k) {
    for (const workload_operand& o : base.launches[k].operands) {
      if (&base.tensors[o.tensor] == table) {
        d.launches[k].blocks[table->id] = lists;
      }
    }
  }
  return built(std::move(d));
}

}  // namespace deepum::replay
