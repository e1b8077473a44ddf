#pragma once

#include <deepum/core/location.hpp>
#include <deepum/core/transfer.hpp>
#include <deepum/policy/policy.hpp>
#include <deepum/units.hpp>

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace deepum {
inline namespace v0 {

/// Blocks that went over a link, or over several, by reason.
struct traffic {
  std::array<std::uint64_t, reason_count> blocks{};  ///< blocks that got or gave up room, by `reason`; not cleaned ones
  std::array<std::uint64_t, reason_count> bytes{};   ///< bytes of the whole blocks whose contents were copied, be it
                                                     ///< that they got or gave up room, or were cleaned (also in vain)

  [[nodiscard]] std::uint64_t blocks_for(reason why) const { return blocks[static_cast<unsigned>(why)]; }
  [[nodiscard]] std::uint64_t bytes_for(reason why) const { return bytes[static_cast<unsigned>(why)]; }
  [[nodiscard]] std::uint64_t all_blocks() const { return sum(blocks); }
  [[nodiscard]] std::uint64_t all_bytes() const { return sum(bytes); }

  traffic& operator+=(const traffic& b) {
    for (unsigned i = 0; i < reason_count; ++i) {
      blocks[i] += b.blocks[i];
      bytes[i] += b.bytes[i];
    }
    return *this;
  }
  traffic& operator-=(const traffic& b) {
    for (unsigned i = 0; i < reason_count; ++i) {
      blocks[i] -= b.blocks[i];
      bytes[i] -= b.bytes[i];
    }
    return *this;
  }
  friend traffic operator-(traffic a, const traffic& b) { return a -= b; }

 private:
  static std::uint64_t sum(const std::array<std::uint64_t, reason_count>& values) {
    std::uint64_t total = 0;
    for (const std::uint64_t v : values) {
      total += v;
    }
    return total;
  }
};

/// What went over one direction of a link.
struct link_traffic {
  location from = location::host();
  location to = location::device();
  traffic moved{};
};

/// What an engine has done since it began. The difference of two snapshots is what it did in between.
///
/// Prefetches are counted in blocks. Whether a prefetch was used can only be told where launches declare what they
/// touch: a block that left while launches with undeclared accesses ran is counted neither as used nor as wasted.
struct statistics {
  std::uint64_t launches = 0;             ///< issued
  std::uint64_t finished = 0;             ///< finished
  std::uint64_t refused_launches = 0;     ///< issued, and refused when it turned out that they can never begin
  std::uint64_t faults = 0;               ///< page faults that the device reported; blocks that a launch was held back
                                          ///< for, and nothing was bringing, where memory never faults
  std::uint64_t lost_faults = 0;          ///< page faults that happened and were not reported
  std::string fault_feed = "device";      ///< who reports them: the (simulated) device, driver, cupti, none, engine
  location runs_on = location::device();  ///< the device where launches run
  std::vector<link_traffic> links{};      ///< what goes over two links counts on both
  std::uint64_t read_in_place = 0;      ///< bytes of rows that launches read on the host, as far as they said how many
                                        ///< there are, spread evenly over their blocks
  std::uint64_t written_in_place = 0;   ///< the same, written
  std::uint64_t discarded = 0;          ///< blocks whose contents were given up, because a fact said that they are dead
  std::uint64_t prefetches_used = 0;    ///< a launch used the block before it left
  std::uint64_t prefetches_late = 0;    ///< the block faulted while its prefetch was under way
  std::uint64_t prefetches_wasted = 0;  ///< the block left unused
  std::uint64_t prefetches_cancelled = 0;  ///< planned, and forgotten before they were issued
  nanoseconds stalled{};                   ///< time that launches waited for blocks, held back or while they ran
  std::uint64_t failed_calls = 0;          ///< device calls and commands that failed
  std::uint64_t refused = 0;  ///< blocks that a policy wanted discarded or dropped without a fact to allow it. A clean
                              ///< that is not possible is left out and not counted
  std::uint64_t dropped = 0;  ///< blocks of commands that this memory kind cannot do, or that nothing would let go
  std::uint64_t unprepared_launches =
      0;  ///< held back, and begun all the same, because nothing that they miss was coming
  std::uint64_t oversized_launches = 0;  ///< launches that declared more than the budget
  std::uint64_t uploads = 0;             ///< uploads that began, but for parts of blocks, which are launches
  std::uint64_t uploaded = 0;            ///< blocks that uploads wrote
  policy_statistics policy{};            ///< predictions; `table_bytes`, `execution_ids`, `block_tables` are levels

  /// What came to the device where launches run, from wherever.
  [[nodiscard]] traffic in() const {
    return sum([this](const link_traffic& l) { return l.to == runs_on; });
  }
  /// What left it, for wherever.
  [[nodiscard]] traffic out() const {
    return sum([this](const link_traffic& l) { return l.from == runs_on; });
  }
  /// What went over one link.
  [[nodiscard]] traffic between(location from, location to) const {
    return sum([from, to](const link_traffic& l) { return l.from == from && l.to == to; });
  }
  /// The same, to be changed.
  [[nodiscard]] traffic& on(location from, location to) {
    for (link_traffic& l : links) {
      if (l.from == from && l.to == to) {
        return l.moved;
      }
    }
    return links.emplace_back(link_traffic{from, to, {}}).moved;
  }

  friend statistics operator-(statistics a, const statistics& b) {
    a.launches -= b.launches;
    a.finished -= b.finished;
    a.refused_launches -= b.refused_launches;
    a.faults -= b.faults;
    a.lost_faults -= b.lost_faults;
    for (const link_traffic& l : b.links) {
      a.on(l.from, l.to) -= l.moved;
    }
    a.read_in_place -= b.read_in_place;
    a.written_in_place -= b.written_in_place;
    a.discarded -= b.discarded;
    a.prefetches_used -= b.prefetches_used;
    a.prefetches_late -= b.prefetches_late;
    a.prefetches_wasted -= b.prefetches_wasted;
    a.prefetches_cancelled -= b.prefetches_cancelled;
    a.stalled -= b.stalled;
    a.failed_calls -= b.failed_calls;
    a.refused -= b.refused;
    a.dropped -= b.dropped;
    a.unprepared_launches -= b.unprepared_launches;
    a.oversized_launches -= b.oversized_launches;
    a.uploads -= b.uploads;
    a.uploaded -= b.uploaded;
    a.policy.launches -= b.policy.launches;
    a.policy.predicted -= b.policy.predicted;
    a.policy.mispredicted -= b.policy.mispredicted;
    a.policy.unpredicted -= b.policy.unpredicted;
    a.policy.shared_blocks -= b.policy.shared_blocks;
    return a;
  }

 private:
  template <class Chosen>
  [[nodiscard]] traffic sum(Chosen&& chosen) const {
    traffic total;
    for (const link_traffic& l : links) {
      if (chosen(l)) {
        total += l.moved;
      }
    }
    return total;
  }
};

}  // namespace v0
}  // namespace deepum
