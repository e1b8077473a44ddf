#include "workload.hpp"

#include "json_lines.hpp"
#include <deepum/error.hpp>

#include <algorithm>
#include <unordered_map>
#include <utility>

namespace deepum::replay {
namespace {

// Limits of what grows faster than the text: ranges of blocks in all launches and steps; pairs of a tensor and a piece
// of the address space.
constexpr std::size_t most_ranges = std::size_t{1} << 25U;
constexpr std::size_t most_pieces = std::size_t{1} << 22U;

void normalise(block_set& set) {
  std::sort(set.begin(), set.end(), [](block_range a, block_range b) { return a.first < b.first; });
  std::size_t kept = 0;
  for (const block_range r : set) {
    if (r.empty()) {
      continue;
    }
    if (kept != 0 && r.begin_value() <= set[kept - 1].end_value()) {
      set[kept - 1].count = std::max(set[kept - 1].end_value(), r.end_value()) - set[kept - 1].begin_value();
    } else {
      set[kept++] = r;
    }
  }
  set.resize(kept);
  set.shrink_to_fit();
}

block_set without(const block_set& from, const block_set& taken) {
  block_set rest;
  auto t = taken.begin();
  for (const block_range r : from) {
    std::uint32_t at = r.begin_value();
    while (t != taken.end() && t->end_value() <= at) {
      ++t;
    }
    for (auto u = t; u != taken.end() && u->begin_value() < r.end_value(); ++u) {
      if (u->begin_value() > at) {
        rest.push_back({block_id{at}, u->begin_value() - at});
      }
      at = std::min(u->end_value(), r.end_value());
    }
    if (at != r.end_value()) {
      rest.push_back({block_id{at}, r.end_value() - at});
    }
  }
  return rest;
}

class builder {
 public:
  builder(std::string_view source, workload_description description)
      : source_(source),
        from_(std::make_shared<const workload_description>(std::move(description))),
        launches_(from_->launches) {
    if (launches_.empty()) {
      refuse(source_, 0, "there is no launch");
    }
    result_.name = from_->name;
    result_.description = from_;
    take_tensors();
    place_tensors();
    resolve_operands();
    resolve_layers();
    find_lives();
    find_dead_and_fresh();
    find_touched();
    sum_up();
  }

  [[nodiscard]] workload take() { return std::move(result_); }

 private:
  void take_tensors() {
    result_.tensors.reserve(from_->tensors.size());
    for (const described_tensor& t : from_->tensors) {
      if (!by_id_.emplace(t.id, static_cast<std::uint32_t>(result_.tensors.size())).second) {
        refuse(source_, t.line, "tensor " + std::to_string(t.id) + " is there twice");
      }
      result_.tensors.push_back({.id = t.id,
                                 .address = t.address.value_or(bytes{}),
                                 .size = t.size,
                                 .span = {},
                                 .persistent = t.persistent,
                                 .first_launch = {},
                                 .freed_after = t.freed_after.value_or(0)});
    }
  }

  /// Gives addresses to tensors that have none: one after another, large ones on a block boundary.
  void place_tensors() {
    std::uint64_t cursor = 0;
    const auto round_up = [](std::uint64_t n, std::uint64_t to) { return (n + to - 1) / to * to; };
    for (std::size_t i = 0; i < result_.tensors.size(); ++i) {
      workload_tensor& t = result_.tensors[i];
      if (!from_->tensors[i].address) {
        if (t.size >= block_size) {
          cursor = round_up(cursor, block_size.count);
        }
        t.address = bytes{cursor};
        cursor += round_up(t.size.count, 512);
      }
      if (t.address.count > address_limit || t.size.count > address_limit - t.address.count) {
        refuse(source_, from_->tensors[i].line, "tensor " + std::to_string(t.id) + " ends beyond 8 PiB");
      }
      // No bytes inside a block still count as that block, as they do for the referee.
      const std::uint64_t first = t.address / block_size;
      const std::uint64_t end = (t.address.count + t.size.count + block_size.count - 1) / block_size.count;
      t.span = {block_id{static_cast<std::uint32_t>(first)}, static_cast<std::uint32_t>(end - first)};
    }
  }

  [[nodiscard]] std::uint32_t index_of(const described_launch& launch, std::int64_t id) const {
    const auto found = by_id_.find(id);
    if (found == by_id_.end()) {
      refuse(source_, launch.line,
             "tensor " + std::to_string(id) + " is not in the " + (launch.line != 0 ? "file" : "description"));
    }
    return found->second;
  }

  void resolve_operands() {
    result_.launches.resize(launches_.size());
    std::unordered_map<std::int64_t, std::size_t> places;
    for (std::size_t i = 0; i < launches_.size(); ++i) {
      const described_launch& from = launches_[i];
      workload_launch& to = result_.launches[i];
      to.kernel = from.kernel;
      to.duration = from.duration;
      result_.compute += from.duration;
      places.clear();
      for (const std::int64_t id : from.in) {
        if (places.emplace(id, to.operands.size()).second) {
          to.operands.push_back({index_of(from, id), access::read, from.blocks.contains(id)});
        }
      }
      for (const std::int64_t id : from.out) {
        const auto [place, only_written] = places.emplace(id, to.operands.size());
        if (only_written) {
          const bool in_part = from.blocks.contains(id);
          to.operands.push_back({index_of(from, id), in_part ? access::update : access::overwrite, in_part});
        } else if (to.operands[place->second].mode == access::read) {
          to.operands[place->second].mode = access::update;
        }
      }
      for (const auto& [id, rows] : from.touched) {
        const auto place = places.find(id);
        if (place == places.end()) {
          refuse(source_, from.line, "\"touched\" names tensor " + std::to_string(id) + ", which is not an operand");
        }
        to.operands[place->second].row_bytes = rows.row_bytes;
        to.operands[place->second].rows = rows.rows;
      }
      for (const auto& [id, lists] : from.blocks) {
        const std::uint32_t count = result_.tensors[index_of(from, id)].span.count;
        expects(!lists.empty(), "at least one list of blocks for a data-dependent access");
        result_.variants = std::max(result_.variants, lists.size());
        for (const std::vector<std::uint32_t>& list : lists) {
          for (const std::uint32_t b : list) {
            if (b >= count) {
              refuse(source_, from.line,
                     "\"blocks\" names block " + std::to_string(b) + " of tensor " + std::to_string(id) +
                         ", which lies in " + std::to_string(count));
            }
          }
        }
      }
    }
  }

  void resolve_layers() {
    for (std::size_t i = 0; i < launches_.size(); ++i) {
      if (!launches_[i].layer) {
        continue;
      }
      const described_layer& from = *launches_[i].layer;
      const auto goes_on = [&](const std::optional<described_layer>& before) {
        return before && before->number == from.number && before->pass == from.pass;
      };
      if (i != 0 && goes_on(launches_[i - 1].layer)) {
        result_.launches[i].layer = result_.launches[i - 1].layer;
        continue;
      }
      layer_scope made{.layer = from.number, .pass = from.pass, .kind = from.kind};
      for (const std::int64_t id : from.input) {
        const workload_tensor& t = result_.tensors[index_of(launches_[i], id)];
        made.input.push_back(um_grid.whole_blocks_of(t.address, t.size));
        made.shared += t.span.count - made.input.back().count;
      }
      result_.launches[i].layer = std::make_shared<const layer_scope>(std::move(made));
    }
  }

  void find_lives() {
    born_written_.resize(result_.tensors.size());
    const auto last = static_cast<std::uint32_t>(launches_.size() - 1);
    for (std::uint32_t i = 0; i <= last; ++i) {
      const auto use = [&](std::int64_t id, bool written) {
        const std::uint32_t index = by_id_.at(id);
        workload_tensor& t = result_.tensors[index];
        if (!t.first_launch) {
          t.first_launch = i;
          born_written_[index] = written;
        }
        t.freed_after = std::min(std::max(t.freed_after, i), last);
      };
      for (const std::int64_t id : launches_[i].in) {
        use(id, false);
      }
      for (const std::int64_t id : launches_[i].out) {
        use(id, true);
      }
    }
  }

  /// Which contents die with which launch, and which launches find nothing alive.
  ///
  /// The spans of tensors cut the address space into pieces. A tensor is alive in its pieces from its first launch up
  /// to, but not including, the launch that it is freed after. What none of them is alive in is dead.
  void find_dead_and_fresh() {
    fresh_.resize(launches_.size());
    std::vector<std::uint32_t> cuts;
    for (const workload_tensor& t : result_.tensors) {
      if (t.first_launch) {
        cuts.push_back(t.span.begin_value());
        cuts.push_back(t.span.end_value());
      }
    }
    std::sort(cuts.begin(), cuts.end());
    cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
    const auto piece_at = [&](std::uint32_t block) {
      return static_cast<std::size_t>(std::lower_bound(cuts.begin(), cuts.end(), block) - cuts.begin());
    };

    // The tensors of each piece, one list after another.
    std::vector<std::size_t> begins(cuts.size() + 1);
    std::size_t total = 0;
    const auto for_each_piece = [&](auto&& visit) {
      for (std::uint32_t i = 0; i < result_.tensors.size(); ++i) {
        const workload_tensor& t = result_.tensors[i];
        if (t.first_launch) {
          const std::size_t end = piece_at(t.span.end_value());
          for (std::size_t p = piece_at(t.span.begin_value()); p < end; ++p) {
            visit(i, p);
          }
        }
      }
    };
    for_each_piece([&](std::uint32_t i, std::size_t p) {
      if (++total > most_pieces) {
        refuse(source_, from_->tensors[i].line, "too many tensors overlap");
      }
      ++begins[p + 1];
    });
    for (std::size_t p = 1; p < begins.size(); ++p) {
      begins[p] += begins[p - 1];
    }
    std::vector<std::uint32_t> holders(total);
    std::vector<std::size_t> ends(begins.begin(), begins.end() - 1);
    for_each_piece([&](std::uint32_t i, std::size_t p) { holders[ends[p]++] = i; });

    struct period {  // launches from, ..., to - 1; -1 is before the first one
      std::int64_t from, to;
    };
    std::vector<period> alive;
    const auto is_alive = [&](std::int64_t launch) {
      const auto after = std::upper_bound(alive.begin(), alive.end(), launch,
                                          [](std::int64_t at, const period& p) { return at < p.from; });
      return after != alive.begin() && launch < std::prev(after)->to;
    };
    for (std::size_t p = 0; p + 1 < cuts.size(); ++p) {
      const block_range piece{block_id{cuts[p]}, cuts[p + 1] - cuts[p]};
      alive.clear();
      for (std::size_t h = begins[p]; h < begins[p + 1]; ++h) {
        const workload_tensor& t = result_.tensors[holders[h]];
        if (t.persistent) {
          alive.push_back({-1, static_cast<std::int64_t>(launches_.size())});
        } else if (*t.first_launch < t.freed_after) {
          alive.push_back({*t.first_launch, t.freed_after});
        }
      }
      std::sort(alive.begin(), alive.end(), [](const period& a, const period& b) { return a.from < b.from; });
      std::size_t kept = 0;
      for (const period& a : alive) {
        if (kept != 0 && a.from <= alive[kept - 1].to) {
          alive[kept - 1].to = std::max(alive[kept - 1].to, a.to);
        } else {
          alive[kept++] = a;
        }
      }
      alive.resize(kept);
      for (std::size_t h = begins[p]; h < begins[p + 1]; ++h) {
        const workload_tensor& t = result_.tensors[holders[h]];
        if (t.persistent) {
          continue;
        }
        const std::uint32_t first = *t.first_launch;
        if (!is_alive(t.freed_after)) {
          result_.launches[t.freed_after].dead.push_back(piece);
        }
        if (born_written_[holders[h]] && !is_alive(std::int64_t{first} - 1)) {
          fresh_[first].push_back(piece);
        }
      }
    }
    for (std::size_t i = 0; i < launches_.size(); ++i) {
      normalise(result_.launches[i].dead);
      normalise(fresh_[i]);
    }
  }

  void find_touched() {
    std::size_t ranges = 0;
    for (std::size_t i = 0; i < launches_.size(); ++i) {
      const described_launch& from = launches_[i];
      workload_launch& to = result_.launches[i];
      // Lists of one length are used in turn; lists of different lengths meet again only after all variants.
      std::size_t steps = 1;
      std::size_t most = from.in.size() + from.out.size();
      for (const auto& [id, lists] : from.blocks) {
        if (lists.size() != 1) {
          steps = steps == 1 || steps == lists.size() ? lists.size() : result_.variants;
        }
        for (const std::vector<std::uint32_t>& list : lists) {
          most = std::max(most, from.in.size() + from.out.size() + list.size());
        }
      }
      if (steps * (most + 8) > most_ranges - ranges) {
        refuse(source_, from.line, "too many look-ups that differ from step to step");
      }
      ranges += steps * (most + 8);
      to.touched.resize(steps);
      for (std::size_t variant = 0; variant < steps; ++variant) {
        touched_blocks& t = to.touched[variant];
        t.reads = blocks_of_all(from, from.in, variant);
        t.writes = blocks_of_all(from, from.out, variant);
        t.fresh = without(fresh_[i], t.reads);
        block_set whole;
        for (const workload_operand& o : to.operands) {
          const std::int64_t id = result_.tensors[o.tensor].id;
          const block_set blocks = from.touched.empty() ? block_set{} : blocks_of_all(from, {id}, variant);
          whole.insert(whole.end(), o.rows == 0 ? blocks.begin() : blocks.end(), blocks.end());
          if (o.rows != 0) {
            const auto names = [id](const std::vector<std::int64_t>& ids) {
              return std::find(ids.begin(), ids.end(), id) != ids.end();
            };
            t.looked_up.insert(t.looked_up.end(), blocks.begin(), blocks.end());
            t.rows.push_back({.blocks = blocks,
                              .row_bytes = o.row_bytes,
                              .rows = o.rows,
                              .read = names(from.in),
                              .written = names(from.out)});
          }
        }
        normalise(whole);
        normalise(t.looked_up);
        t.looked_up = without(t.looked_up, whole);
      }
    }
  }
  [[nodiscard]] block_set blocks_of_all(const described_launch& launch, const std::vector<std::int64_t>& ids,
                                        std::size_t variant) const {
    block_set set;
    for (const std::int64_t id : ids) {
      const block_range span = result_.tensors[by_id_.at(id)].span;
      const auto sparse = launch.blocks.find(id);
      if (sparse == launch.blocks.end()) {
        set.push_back(span);
        continue;
      }
      const auto& lists = sparse->second;
      for (const std::uint32_t b : lists[variant % lists.size()]) {
        set.push_back({block_id{span.begin_value() + b}, 1});
      }
    }
    normalise(set);
    return set;
  }

  void sum_up() {
    block_set every;
    std::size_t merged = 0;
    for (const workload_launch& launch : result_.launches) {
      for (const touched_blocks& t : launch.touched) {
        const block_set all = t.all();
        result_.largest_launch = std::max(result_.largest_launch, block_count(all));
        every.insert(every.end(), all.begin(), all.end());
        if (every.size() > 2 * merged + 4096) {
          normalise(every);
          merged = every.size();
        }
      }
    }
    normalise(every);
    result_.blocks = block_count(every);
    for (const workload_tensor& t : result_.tensors) {
      if (t.first_launch) {
        result_.end_block = std::max(result_.end_block, t.span.end_value());
        if (t.persistent) {
          result_.persistent.push_back(t.span);
        }
      }
    }
    normalise(result_.persistent);
  }

  std::string_view source_;
  std::shared_ptr<const workload_description> from_;
  const std::vector<described_launch>& launches_;
  std::unordered_map<std::int64_t, std::uint32_t> by_id_{};  // index of the tensor
  std::vector<bool> born_written_{};  // by index, its first launch writes it and does not read it
  std::vector<block_set> fresh_{};    // by launch, what it may read not taken off yet
  workload result_{};
};

}  // namespace

bool contains(const block_set& set, block_id b) {
  const auto after =
      std::upper_bound(set.begin(), set.end(), b, [](block_id x, const block_range& r) { return x < r.first; });
  return after != set.begin() && std::prev(after)->contains(b);
}

std::uint32_t block_count(const block_set& set) {
  std::uint32_t sum = 0;
  for (const block_range r : set) {
    sum += r.count;
  }
  return sum;
}

block_set touched_blocks::all() const {
  block_set set = reads;
  set.insert(set.end(), writes.begin(), writes.end());
  normalise(set);
  return set;
}

workload build_workload(std::string_view source, workload_description description) {
  return builder(source, std::move(description)).take();
}

}  // namespace deepum::replay
