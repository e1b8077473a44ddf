#include "derived_workload.hpp"

#include "placement.hpp"
#include <deepum/error.hpp>

#include <algorithm>
#include <cmath>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

namespace deepum::replay {

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

namespace {

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

}  // namespace

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

namespace {

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

/// A step with `factor` times the look-ups makes those of as many steps, of all where there are fewer.
void keep_more(described_launch::lists& lists, double factor) {
  const std::size_t steps = std::min(static_cast<std::size_t>(std::ceil(factor)), lists.size());
  described_launch::lists more(lists.size());
  for (std::size_t i = 0; i != lists.size(); ++i) {
    for (std::size_t s = 0; s != steps; ++s) {
      const std::vector<std::uint32_t>& added = lists[(i + s) % lists.size()];
      more[i].insert(more[i].end(), added.begin(), added.end());
    }
    std::sort(more[i].begin(), more[i].end());
    more[i].erase(std::unique(more[i].begin(), more[i].end()), more[i].end());
  }
  lists = std::move(more);
}

/// The workload with some tensors of another size, and the launches that use them shorter or longer. Addresses stay.
workload_description resized(const workload& base, const std::vector<bool>& shrinks, double factor) {
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
        if (factor > 1) {
          keep_more(sparse->second, factor);
          continue;
        }
        for (std::vector<std::uint32_t>& list : sparse->second) {
          keep_part(list, factor);
        }
      }
    }
  }
  return d;
}

}  // namespace

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
  workload_description d = resized(base, shrinks, factor);
  d.name += "/batch " + std::to_string(static_cast<int>(factor * 100)) + "%";
  place(d, {.which = all_but_persistent(base), .taken = base.persistent, .reuse = uses_addresses_again(base)});
  refit_all(d, base, {});
  return built(std::move(d));
}

workload_pointer with_addresses_again(const workload& base) {
  workload_description d = described(base);
  place(d, {.which = all_but_persistent(base), .taken = base.persistent, .reuse = true});
  refit_all(d, base, {});
  return built(std::move(d));
}

workload_pointer half_model(const workload& base) {
  const std::vector<bool> all(base.tensors.size(), true);
  workload_description d = resized(base, all, 0.5);
  d.name += "/half";
  place(d, {.which = all, .taken = {}, .from_block = base.end_block, .reuse = uses_addresses_again(base)});
  refit_all(d, base, {});
  return built(std::move(d));
}

namespace {

/// Whether a tensor that does not persist has bytes in a block with one that does.
bool shares_what_persists(const workload& base) {
  return std::any_of(base.tensors.begin(), base.tensors.end(), [&](const workload_tensor& t) {
    return !t.persistent && t.first_launch &&
           std::any_of(base.persistent.begin(), base.persistent.end(),
                       [&](block_range r) { return r.overlaps(t.span); });
  });
}

}  // namespace

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

namespace {

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

}  // namespace

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

}  // namespace deepum::replay
