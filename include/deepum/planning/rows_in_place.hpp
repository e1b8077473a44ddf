#pragma once

#include <deepum/core/block.hpp>
#include <deepum/core/block_map.hpp>
#include <deepum/core/launch.hpp>
#include <deepum/core/plan.hpp>
#include <deepum/core/sequence.hpp>
#include <deepum/units.hpp>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace deepum {
inline namespace v0 {

/// Where rows that launches look up are touched: on the device, so that the blocks around them are brought, or in
/// place.
///
/// A *table* is memory that launches gather from or scatter into. Where all that is alive fits the budget, tables are
/// brought like any other memory. Else rows are touched in place until that has cost the link as many bytes as to bring
/// the table would have, and only then the table is brought, if it fits beside what is no table, or is touched twice as
/// much as tables that are there, which then are in place again: so whatever comes, not more than twice what would have
/// been best is spent. A table of which one launch touches as many bytes as it has is brought at once.
///
/// Launches that use a table without looking up rows have it brought as ever; then rows are found on the device.
///
/// A table that was *learned*, because launches fault on few pages of many blocks (`look_up_detector`), is in place
/// while not everything fits. What is read in place raises no faults. So now and then one block in 64 of it is opened
/// to faults again, another one each time, until two have faulted: where these are used as a whole the table is none.
///
/// Not synchronised. Cost: of a launch that looks nothing up, none; else linear in the tables.
class rows_in_place {
 public:
  /// Contents matter, or do not any more.
  void on_live(block_range range, const block_map& map) {
    live_blocks_.resize(map.size());
    for (const block_id b : range) {
      live_ += live_blocks_[b.value] ? 0 : 1;
      live_blocks_[b.value] = true;
    }
  }
  void on_dead(block_range range) {
    for (const block_id b : range) {
      if (b.value < live_blocks_.size() && live_blocks_[b.value]) {
        --live_;
        live_blocks_[b.value] = false;
      }
    }
    erase_if(tables_, [&](const table& t) {
      const bool died = t.blocks.overlaps(range);
      if (died && t.asked != 0) {
        gone_.push_back(t.blocks);
      }
      return died;
    });
  }

  /// A launch was issued. @returns  The same without what it touches in place: what has to be brought for it.
  [[nodiscard]] const launch_record& on_launch(const launch_record& record, const block_map& map) {
    ++launches_;
    if (map.shortest_row().count == 0 || !looks_up(record)) {
      return record;
    }
    for (const block_access& a : record.accesses) {
      if (a.sparse) {
        touch(a, map);
      }
    }
    decide(map);
    needed_ = record;
    std::erase_if(needed_.accesses, [&](const block_access& a) { return a.sparse && stays_away(a, map); });
    return needed_;
  }

  /// Launches look rows up in this memory and do not say so.
  void learn(block_range range, const block_map& map) {
    if (map.shortest_row().count == 0 ||
        std::any_of(tables_.begin(), tables_.end(), [&](const table& t) { return t.blocks.overlaps(range); })) {
      return;
    }
    tables_.push_back({.blocks = range, .learned = true});
    decide(map);
  }
  /// A launch faulted. @returns  Whether that was on a table that was learned, of which it is known how it is used.
  [[nodiscard]] bool on_fault(const fault_record& fault) {
    const auto at = std::find_if(tables_.begin(), tables_.end(),
                                 [&](const table& t) { return t.learned && t.blocks.contains(fault.block); });
    if (at == tables_.end() || !at->in_place) {
      return false;
    }
    if (at->open && in_sample(fault.block)) {
      auto seen = std::find_if(at->sampled.begin(), at->sampled.end(),
                               [&](const sampled_block& s) { return s.block == fault.block; });
      if (seen == at->sampled.end()) {
        at->sampled.push_back({fault.block});
        seen = at->sampled.end() - 1;
      }
      seen->pages |= fault.pages;
    }
    return true;
  }

  /// Whether launches find everything as it was decided.
  [[nodiscard]] bool settled(const block_map& map) const {
    return std::none_of(tables_.begin(), tables_.end(),
                        [&](const table& t) { return t.in_place && t.asked < most_asked && !told(t, map); });
  }
  /// Puts into a plan what the memory has to know.
  void write(const block_map& map, plan& out) {
    for (const block_range r : gone_) {
      tell(r, false, out);
    }
    gone_.clear();
    for (table& t : tables_) {
      if (t.in_place ? t.asked < most_asked && !told(t, map) : t.asked != 0) {
        tell(t.blocks, t.in_place, out);
        t.asked = t.in_place ? t.asked + 1 : 0;
      }
    }
    sample(out);
  }

  /// Heap memory held.
  [[nodiscard]] bytes memory() const { return bytes{tables_.capacity() * sizeof(table) + live_blocks_.capacity() / 8}; }

 private:
  static constexpr std::uint32_t most_asked = 3;  // the memory may not be able to
  static constexpr std::uint64_t window = 512;    // launches
  static constexpr std::uint32_t sample_part = 64;
  static constexpr std::uint64_t launches_between_samples =
      1024;  // so that their faults cost less than 1 % of the time
  static constexpr std::uint64_t longest_sample = 64;
  static constexpr std::uint32_t sampled_enough = 2;
  static constexpr std::uint32_t many_pages = 12;        // of the 32 of a block
  static constexpr std::uint64_t guessed_fraction = 64;  // of a table, where a launch does not say how much it touches

  struct sampled_block {
    block_id block{};
    std::uint32_t pages = 0;
  };
  struct table {
    block_range blocks{};
    std::uint64_t spent = 0;   // bytes of the link that launches have taken in place since it was brought last
    std::uint64_t recent = 0;  // that they would take in place, of late
    bool in_place = true;
    bool learned = false;
    bool open = false;                  // learned: blocks of the sample are open to faults
    sequence<sampled_block> sampled{};  // those that have faulted
    std::uint32_t asked = 0;  // how often the memory was told that it is; 0: it need not be told that it is not

    [[nodiscard]] double heat() const {
      return static_cast<double>(recent) * (in_place ? 1 : 2) / static_cast<double>(blocks.count);
    }
  };

  static bool looks_up(const launch_record& record) {
    return std::any_of(record.accesses.begin(), record.accesses.end(), [](const block_access& a) { return a.sparse; });
  }
  static std::uint64_t size_of(block_range range, const block_map& map) { return map.grid().size_of(range).count; }
  // What a launch takes of the link in place.
  static std::uint64_t cost_of(const block_access& a, const block_map& map) {
    if (a.touched == 0) {
      return std::max<std::uint64_t>(1, size_of(a.range, map) / guessed_fraction);
    }
    const std::uint64_t least = map.shortest_row().count;
    return a.row_bytes == 0 || a.row_bytes >= least ? a.touched : a.touched / a.row_bytes * least;
  }
  [[nodiscard]] bool stays_away(const block_access& a, const block_map& map) const {
    const auto at =
        std::find_if(tables_.begin(), tables_.end(), [&](const table& t) { return t.blocks.overlaps(a.range); });
    return at->in_place && cost_of(a, map) < size_of(a.range, map);
  }
  static bool told(const table& t, const block_map& map) {
    return map.in_place(t.blocks.first) && map.in_place(t.blocks.last());
  }
  static void tell(block_range range, bool in_place, plan& out) {
    out.hints.push_back({.blocks = range, .what = in_place ? advice::set_in_place : advice::unset_in_place});
  }

  [[nodiscard]] bool in_sample(block_id b) const { return b.value % sample_part == sample_ % sample_part; }
  // Opens the next sample, or closes it when it has told enough, or nothing for long.
  void sample(plan& out) {
    const bool begins = launches_ - sampled_at_ >= launches_between_samples;
    if (begins) {
      sampled_at_ = launches_;
      ++sample_;
    }
    for (std::size_t i = tables_.size(); i != 0; --i) {
      table& t = tables_[i - 1];
      if (!t.learned || !t.in_place || t.asked == 0) {
        continue;
      }
      if (begins && !t.open) {
        t.open = true;
        t.sampled.clear();
        tell_sample(t, false, out);
      } else if (t.open && (t.sampled.size() >= sampled_enough || launches_ - sampled_at_ >= longest_sample)) {
        t.open = false;
        std::size_t pages = 0;
        for (const sampled_block& s : t.sampled) {
          pages += static_cast<std::size_t>(std::popcount(s.pages));
        }
        if (pages > many_pages * t.sampled.size()) {
          tell(t.blocks, false, out);  // it is used as a whole
          tables_.erase(tables_.begin() + static_cast<std::ptrdiff_t>(i - 1));
        } else {
          tell_sample(t, true, out);
        }
      }
    }
  }
  void tell_sample(const table& t, bool in_place, plan& out) const {
    for (const block_id b : t.blocks) {
      if (in_sample(b)) {
        tell({b, 1}, in_place, out);
      }
    }
  }

  // Tables that overlap are one.
  void touch(const block_access& a, const block_map& map) {
    const std::uint64_t cost = cost_of(a, map);
    table all{.blocks = a.range};  // and it is said, not learned
    bool known = false;
    for (std::size_t i = tables_.size(); i != 0; --i) {
      const table& t = tables_[i - 1];
      if (!t.blocks.overlaps(all.blocks)) {
        continue;
      }
      const std::uint32_t from = std::min(all.blocks.begin_value(), t.blocks.begin_value());
      const block_range both{block_id{from}, std::max(all.blocks.end_value(), t.blocks.end_value()) - from};
      all.asked = both == t.blocks ? t.asked : std::min(t.asked, 1U);
      all.in_place = known ? all.in_place && t.in_place : t.in_place;
      all.blocks = both;
      all.spent += t.spent;
      all.recent += t.recent;
      known = true;
      tables_.erase(tables_.begin() + static_cast<std::ptrdiff_t>(i - 1));
    }
    all.spent += all.in_place ? cost : 0;
    all.recent += cost;
    tables_.push_back(all);
  }

  // Blocks that are alive, at most of late.
  std::uint64_t alive() {
    if (launches_ - window_began_ >= window) {
      window_began_ = launches_;
      live_before_ = live_now_;
      live_now_ = live_;
      for (table& t : tables_) {
        t.recent /= 2;
      }
    }
    live_now_ = std::max(live_now_, live_);
    return std::max(live_now_, live_before_);
  }

  void decide(const block_map& map) {
    std::uint64_t in_tables = 0;
    for (const table& t : tables_) {
      in_tables += t.blocks.count;
    }
    const std::uint64_t all = std::max(alive(), in_tables);
    const bool all_fit = all <= map.budget();
    std::uint64_t room = map.budget() - std::min<std::uint64_t>(map.budget(), all - in_tables);
    // Those that are touched most go first, and those that are there before others that are touched less than twice as
    // much.
    std::sort(tables_.begin(), tables_.end(), [](const table& x, const table& y) {
      const double a_block_of_x = x.heat();
      const double a_block_of_y = y.heat();
      return a_block_of_x != a_block_of_y ? a_block_of_x > a_block_of_y : x.blocks.first < y.blocks.first;
    });
    for (table& t : tables_) {
      // How much rows of a learned table cost is not known, but that they cost little.
      const bool is_worth_it = all_fit || (!t.learned && (!t.in_place || t.spent >= size_of(t.blocks, map)));
      const bool comes = is_worth_it && (all_fit || t.blocks.count <= room);
      room -= comes ? std::min<std::uint64_t>(room, t.blocks.count) : 0;
      if (t.in_place == comes) {
        t.in_place = !comes;
        t.spent = 0;
      }
    }
  }

  sequence<table> tables_{};  // they do not overlap
  std::vector<bool> live_blocks_{};
  std::uint64_t live_ = 0;  // of those
  std::uint64_t launches_ = 0;
  std::uint64_t window_began_ = 0;  // in `launches_`
  std::uint64_t live_now_ = 0;      // most since then
  std::uint64_t live_before_ = 0;
  std::vector<block_range> gone_{};  // tables that the memory is still told to be in place
  std::uint64_t sampled_at_ = 0;     // in `launches_`
  std::uint32_t sample_ = 0;
  launch_record needed_{};  // of the launch that was issued last
};

}  // namespace v0
}  // namespace deepum
