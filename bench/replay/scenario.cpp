#include "scenario.hpp"

#include "placement.hpp"
#include <deepum/error.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

namespace deepum::replay {
namespace {

using workload_pointer = std::shared_ptr<const workload>;
using random_bits = std::mt19937_64;

// The distributions of the standard library differ from one to the other; this one does not.
std::size_t below(random_bits& random, std::size_t n) { return static_cast<std::size_t>(random() % n); }

template <class T>
void shuffle(std::vector<T>& values, random_bits& random) {
  for (std::size_t i = values.size(); i > 1; --i) {
    std::swap(values[i - 1], values[below(random, i)]);
  }
}

// --- What is known of the workload that others are derived from. ---

workload_description described(const workload& w) {
  expects(w.description != nullptr, "scenarios are derived from workloads that have their description");
  workload_description d = *w.description;
  for (std::size_t i = 0; i != d.tensors.size(); ++i) {
    d.tensors[i].address = w.tensors[i].address;
    d.tensors[i].line = 0;
  }
  for (described_launch& l : d.launches) {
    l.line = 0;
  }
  return d;
}

workload_pointer built(workload_description d) {
  const std::string name = d.name;
  return std::make_shared<const workload>(build_workload(name, std::move(d)));
}

std::vector<bool> all_but_persistent(const workload& w) {
  std::vector<bool> which;
  which.reserve(w.tensors.size());
  for (const workload_tensor& t : w.tensors) {
    which.push_back(!t.persistent);
  }
  return which;
}

/// Whether two tensors that do not persist have bytes in common.
bool uses_addresses_again(const workload& w) {
  std::vector<std::pair<std::uint64_t, std::uint64_t>> ranges;
  for (const workload_tensor& t : w.tensors) {
    if (!t.persistent && t.first_launch && t.size.count != 0) {
      ranges.emplace_back(t.address.count, t.address.count + t.size.count);
    }
  }
  std::sort(ranges.begin(), ranges.end());
  std::uint64_t end = 0;
  for (const auto& [from, to] : ranges) {
    if (from < end) {
      return true;
    }
    end = to;
  }
  return false;
}

/// The launch at which tensors that do not persist have the most bytes: where the forward pass of a training step ends,
/// for it leaves behind what the backward pass uses up.
std::uint32_t fullest_launch(const workload& w) {
  std::vector<std::uint64_t> born(w.launches.size() + 1);
  std::vector<std::uint64_t> freed(w.launches.size() + 1);
  for (const workload_tensor& t : w.tensors) {
    if (!t.persistent && t.first_launch) {
      born[*t.first_launch] += t.size.count;
      freed[t.freed_after + 1] += t.size.count;
    }
  }
  std::uint32_t fullest = 0;
  std::uint64_t alive = 0;
  std::uint64_t most = 0;
  for (std::uint32_t k = 0; k != w.launches.size(); ++k) {
    alive += born[k];
    alive -= freed[k];
    if (alive > most) {
      most = alive;
      fullest = k;
    }
  }
  return fullest;
}

// --- Look-ups of tensors that were moved or changed their size. ---

std::uint32_t span_count(const described_tensor& t) {
  const std::uint64_t first = *t.address / block_size;
  const std::uint64_t end = (t.address->count + t.size.count + block_size.count - 1) / block_size.count;
  return static_cast<std::uint32_t>(end - first);
}

/// Spreads lists of blocks over a tensor that lies in another number of blocks than before.
void refit(described_launch::lists& lists, std::uint32_t before, std::uint32_t now) {
  if (before == now) {
    return;
  }
  for (std::vector<std::uint32_t>& list : lists) {
    for (std::uint32_t& b : list) {
      b = static_cast<std::uint32_t>(std::uint64_t{b} * now / before);
    }
    std::sort(list.begin(), list.end());
    list.erase(std::unique(list.begin(), list.end()), list.end());
    if (now == 0) {
      list.clear();
    }
  }
}

/// @param original  Of a tensor, the one of the workload with which its lists agree.
void refit_all(workload_description& d, const workload& base,
               const std::unordered_map<std::int64_t, std::int64_t>& original) {
  std::unordered_map<std::int64_t, std::uint32_t> before;
  for (const workload_tensor& t : base.tensors) {
    before.emplace(t.id, t.span.count);
  }
  std::unordered_map<std::int64_t, std::uint32_t> now;
  for (const described_tensor& t : d.tensors) {
    now.emplace(t.id, span_count(t));
  }
  for (described_launch& l : d.launches) {
    for (auto& [id, lists] : l.blocks) {
      const auto found = original.find(id);
      refit(lists, before.at(found == original.end() ? id : found->second), now.at(id));
    }
  }
}

// --- The derived workloads. ---

nanoseconds part_of(nanoseconds time, double factor) {
  return nanoseconds{static_cast<std::int64_t>(std::ceil(static_cast<double>(time.count()) * factor))};
}

void keep_part(std::vector<std::uint32_t>& list, double factor) {
  const auto kept_before = [&](std::size_t i) { return std::ceil(static_cast<double>(i) * factor); };
  std::size_t kept = 0;
  for (std::size_t i = 0; i != list.size(); ++i) {
    if (kept_before(i + 1) > kept_before(i)) {
      list[kept++] = list[i];
    }
  }
  list.resize(kept);
}

/// The workload with some tensors smaller, and the launches that use them shorter. Addresses stay.
workload_description smaller(const workload& base, const std::vector<bool>& shrinks, double factor) {
  workload_description d = described(base);
  for (std::size_t i = 0; i != d.tensors.size(); ++i) {
    if (shrinks[i]) {
      d.tensors[i].size =
          bytes{static_cast<std::uint64_t>(std::ceil(static_cast<double>(d.tensors[i].size.count) * factor))};
    }
  }
  for (std::size_t k = 0; k != d.launches.size(); ++k) {
    const auto& operands = base.launches[k].operands;
    if (std::none_of(operands.begin(), operands.end(), [&](const workload_operand& o) { return shrinks[o.tensor]; })) {
      continue;
    }
    d.launches[k].duration = part_of(d.launches[k].duration, factor);
    for (const workload_operand& o : operands) {
      const auto sparse = d.launches[k].blocks.find(base.tensors[o.tensor].id);
      if (sparse != d.launches[k].blocks.end() && !shrinks[o.tensor]) {
        for (std::vector<std::uint32_t>& list : sparse->second) {
          keep_part(list, factor);
        }
      }
    }
  }
  return d;
}

workload_pointer part_of_batch(const workload& base, double factor) {
  std::vector<bool> shrinks = all_but_persistent(base);
  for (const workload_launch& l : base.launches) {
    for (const workload_operand& updated : l.operands) {
      const workload_tensor& t = base.tensors[updated.tensor];
      if (!t.persistent || updated.mode == access::read) {
        continue;
      }
      for (const workload_operand& o : l.operands) {
        if (base.tensors[o.tensor].size == t.size) {
          shrinks[o.tensor] = false;
        }
      }
    }
  }
  workload_description d = smaller(base, shrinks, factor);
  d.name += "/batch " + std::to_string(static_cast<int>(factor * 100)) + "%";
  place(d, {.which = all_but_persistent(base), .taken = base.persistent, .reuse = uses_addresses_again(base)});
  refit_all(d, base, {});
  return built(std::move(d));
}

workload_pointer half_model(const workload& base) {
  const std::vector<bool> all(base.tensors.size(), true);
  workload_description d = smaller(base, all, 0.5);
  d.name += "/half";
  place(d, {.which = all, .taken = {}, .from_block = base.end_block, .reuse = uses_addresses_again(base)});
  refit_all(d, base, {});
  return built(std::move(d));
}

/// Whether a tensor that does not persist has bytes in a block with one that does.
bool shares_what_persists(const workload& base) {
  return std::any_of(base.tensors.begin(), base.tensors.end(), [&](const workload_tensor& t) {
    return !t.persistent && t.first_launch &&
           std::any_of(base.persistent.begin(), base.persistent.end(),
                       [&](block_range r) { return r.overlaps(t.span); });
  });
}

/// The forward pass of the workload, without what updates the model.
workload_pointer forward_pass(const workload& base) {
  workload_description d = described(base);
  d.name += "/validation";
  std::unordered_set<std::int64_t> persistent;
  for (described_tensor& t : d.tensors) {
    t.freed_after.reset();
    if (t.persistent) {
      persistent.insert(t.id);
    }
  }
  d.launches.resize(fullest_launch(base) + std::size_t{1});
  std::erase_if(d.launches, [&](described_launch& l) {
    const std::size_t updates = std::erase_if(l.out, [&](std::int64_t id) { return persistent.contains(id); });
    return updates != 0 && l.out.empty();
  });
  if (d.launches.empty()) {
    throw error(status::invalid_argument, "'" + base.name +
                                              "' has no forward pass: up to the launch where the most is " +
                                              "alive, all launches write only what persists");
  }
  for (described_launch& l : d.launches) {
    std::erase_if(l.blocks, [&](const auto& sparse) {
      const auto names = [&](const std::vector<std::int64_t>& ids) {
        return std::find(ids.begin(), ids.end(), sparse.first) != ids.end();
      };
      return !names(l.in) && !names(l.out);
    });
  }
  // What persists need not have a part in the forward pass, which then knows nothing of it.
  if (uses_addresses_again(base) || shares_what_persists(base)) {
    place(d, {.which = all_but_persistent(base), .taken = base.persistent, .reuse = uses_addresses_again(base)});
    refit_all(d, base, {});
  }
  return built(std::move(d));
}

/// Launches [begin, end) of a step.
struct stretch {
  std::uint32_t begin = 0;
  std::uint32_t end = 0;
  [[nodiscard]] bool contains(std::uint32_t launch) const { return launch >= begin && launch < end; }
  [[nodiscard]] std::uint32_t length() const { return end - begin; }
};

stretch layer_forward(const workload& base) {
  const std::uint32_t forward = fullest_launch(base) + 1;
  const std::uint32_t length = std::max(forward / 16, 1U);
  const std::uint32_t begin = (forward - length) / 2;
  return {begin, begin + length};
}

/// The launches that use what a layer left behind, not counting those of the layer that follows.
stretch layer_backward(const workload& base, stretch layer) {
  const auto launches = static_cast<std::uint32_t>(base.launches.size());
  stretch found{launches, launches};
  for (std::uint32_t k = layer.end + layer.length(); k < launches; ++k) {
    const auto& operands = base.launches[k].operands;
    if (std::any_of(operands.begin(), operands.end(), [&](const workload_operand& o) {
          const workload_tensor& t = base.tensors[o.tensor];
          return !t.persistent && layer.contains(*t.first_launch);
        })) {
      found.begin = std::min(found.begin, k);
      found.end = k + 1;
    }
  }
  // What is spread over the step is more than a layer.
  constexpr std::uint32_t most_times = 6;
  return found.length() <= most_times * layer.length() ? found : stretch{launches, launches};
}

workload_pointer with_one_more_layer(const workload& base) {
  workload_description d = described(base);
  d.name += "/grown";
  const stretch forward = layer_forward(base);
  const stretch backward = layer_backward(base, forward);

  std::unordered_set<std::int64_t> numbers;
  std::unordered_map<std::int64_t, std::uint32_t> index;
  for (std::uint32_t i = 0; i != base.tensors.size(); ++i) {
    numbers.insert(base.tensors[i].id);
    index.emplace(base.tensors[i].id, i);
  }
  std::int64_t next_number = 0;
  std::vector<bool> moves(base.tensors.size());
  std::unordered_map<std::int64_t, std::int64_t> copies;
  std::unordered_map<std::int64_t, std::int64_t> originals;
  const auto in_second_layer = [&](std::int64_t id, stretch where) {
    const std::uint32_t i = index.at(id);
    const workload_tensor& t = base.tensors[i];
    if (!t.first_launch) {
      return id;
    }
    if (!t.persistent && !forward.contains(*t.first_launch) && !backward.contains(*t.first_launch)) {
      // An input. One that would be freed before the second layer uses it lives on, and so its address has to be
      // another.
      moves[i] = moves[i] || where.contains(t.freed_after);
      return id;
    }
    const auto [copy, is_new] = copies.emplace(id, 0);
    if (is_new) {
      while (!numbers.insert(next_number).second) {
        ++next_number;
      }
      copy->second = next_number;
      originals.emplace(next_number, id);
      d.tensors.push_back({.id = next_number, .size = t.size, .persistent = t.persistent});
    }
    return copy->second;
  };
  std::vector<described_launch> launches;
  std::vector<std::uint32_t> new_place(d.launches.size());
  for (std::uint32_t k = 0; k != d.launches.size(); ++k) {
    new_place[k] = static_cast<std::uint32_t>(launches.size());
    launches.push_back(d.launches[k]);
    for (const stretch where : {forward, backward}) {
      if (k + 1 != where.end || where.length() == 0) {
        continue;
      }
      for (std::uint32_t from = where.begin; from != where.end; ++from) {
        described_launch copy = d.launches[from];
        for (auto* ids : {&copy.in, &copy.out}) {
          for (std::int64_t& id : *ids) {
            id = in_second_layer(id, where);
          }
        }
        copy.blocks.clear();
        for (const auto& [id, lists] : d.launches[from].blocks) {
          copy.blocks.emplace(in_second_layer(id, where), lists);
        }
        launches.push_back(std::move(copy));
      }
    }
  }
  for (std::size_t i = 0; i != base.tensors.size(); ++i) {
    if (d.tensors[i].freed_after) {
      d.tensors[i].freed_after = new_place[base.tensors[i].freed_after];
    }
  }
  d.launches = std::move(launches);
  moves.resize(d.tensors.size(), true);
  place(d, {.which = std::move(moves), .taken = {}, .from_block = base.end_block, .reuse = uses_addresses_again(base)});
  refit_all(d, base, originals);
  return built(std::move(d));
}

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

// --- The programs. ---

class scenario {
 public:
  scenario(std::string_view name, workload_pointer base, const scenario_options& options)
      : options_(options),
        random_(options.seed),
        base_(*base) {
    result_.name = base->name + ": " + std::string(name);
    (void)add(std::move(base));
  }

  [[nodiscard]] program take() { return std::move(result_); }

  void steady() { turns(3 * options_.steps, 0, 0); }

  void batch() {
    const std::uint32_t half = add(part_of_batch(base_, 0.5));
    const std::uint32_t three_quarters = add(part_of_batch(base_, 0.75));
    turns(options_.steps, 0, 0);
    turns(options_.steps, half, 1);
    turns(options_.steps, 0, 0);
    turns(options_.steps, three_quarters, 2);
  }

  void validation() {
    const std::uint32_t forward = add(forward_pass(base_));
    for (std::size_t step = 1; step <= 3 * options_.steps; ++step) {
      turns(1, 0, 0);
      if (step % options_.validation == 0) {
        turns(1, forward, 1);
      }
    }
  }

  void two_models() {
    const std::uint32_t other = add(half_model(base_));
    const auto turn = [&](bool second) {
      turns(1, second ? other : 0, second ? 1 : 0, stream_id{static_cast<std::uint16_t>(second ? 1 : 0)});
    };
    for (const std::string_view order : {std::string_view("001011"), std::string_view("1001")}) {
      for (std::size_t done = 0; done < 2 * options_.steps; done += order.size()) {
        for (const char model : order) {
          turn(model == '1');
        }
      }
    }
    for (std::size_t done = 0; done != 2 * options_.steps; ++done) {
      turn(below(random_, 2) == 1);
    }
  }

  void growth() {
    const std::uint32_t grown = add(with_one_more_layer(base_));
    turns(options_.steps, 0, 0);
    turns(2 * options_.steps, grown, 1);
  }

  void reuse() {
    const std::uint32_t once = add(rearranged(base_, true, random_));
    const std::uint32_t again = add(rearranged(base_, false, random_));
    turns(options_.steps, 0, 0);
    turns(options_.steps, once, 1);
    turns(options_.steps, again, 2);
  }

  void random() {
    turns(options_.steps, 0, 0);
    for (std::size_t i = 0; i != options_.steps; ++i) {
      turns(1, add(in_random_order(base_, "/random " + std::to_string(i), random_)), 1);
    }
    turns(options_.steps, 0, 0);
  }

  void lookups() {
    if (base_.variants > 1) {
      steady();
      return;
    }
    const std::uint32_t derived = add(with_random_lookups(base_, 2 * options_.steps, random_));
    turns(options_.steps, 0, 0);
    turns(2 * options_.steps, derived, 1);
  }

 private:
  std::uint32_t add(workload_pointer w) {
    result_.workloads.push_back(std::move(w));
    steps_.push_back(0);
    return static_cast<std::uint32_t>(result_.workloads.size() - 1);
  }

  void turns(std::size_t n, std::uint32_t workload, std::uint32_t regime, stream_id stream = {}) {
    for (std::size_t i = 0; i != n; ++i) {
      result_.turns.push_back({.workload = workload,
                               .stream = stream,
                               .variant = result_.workloads[workload]->variant_of(steps_[workload]++),
                               .regime = regime});
    }
  }

  scenario_options options_;
  random_bits random_;
  const workload& base_;              // the first one of the program
  std::vector<std::size_t> steps_{};  // by workload, how many it has done
  program result_{};
};

struct named_scenario {
  std::string_view name;
  void (scenario::*make)();
};
constexpr std::array<named_scenario, 8> scenarios{{{"steady", &scenario::steady},
                                                   {"batch", &scenario::batch},
                                                   {"validation", &scenario::validation},
                                                   {"two_models", &scenario::two_models},
                                                   {"growth", &scenario::growth},
                                                   {"reuse", &scenario::reuse},
                                                   {"random", &scenario::random},
                                                   {"lookups", &scenario::lookups}}};
constexpr auto names = [] {
  std::array<std::string_view, scenarios.size()> all;
  for (std::size_t i = 0; i != all.size(); ++i) {
    all[i] = scenarios[i].name;
  }
  return all;
}();

}  // namespace

std::span<const std::string_view> scenario_names() { return names; }

program make_scenario(std::string_view name, std::shared_ptr<const workload> base, const scenario_options& options) {
  expects(base != nullptr, "a scenario needs a workload");
  expects(options.steps > 0 && options.validation > 0, "a scenario needs at least one step of each regime");
  const auto found =
      std::find_if(scenarios.begin(), scenarios.end(), [&](const named_scenario& s) { return s.name == name; });
  if (found == scenarios.end()) {
    std::string all;
    for (const std::string_view n : names) {
      all += (all.empty() ? "" : ", ") + std::string(n);
    }
    throw error(status::invalid_argument, "there is no scenario '" + std::string(name) + "'; there are " + all);
  }
  scenario s(name, std::move(base), options);
  (s.*found->make)();
  return s.take();
}

}  // namespace deepum::replay
