#pragma once

#include <deepum/arena/allocation_table.hpp>
#include <deepum/arena/declaration.hpp>
#include <deepum/core/launch.hpp>
#include <deepum/error.hpp>
#include <deepum/units.hpp>

#include <algorithm>
#include <cstddef>
#include <functional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace deepum {
inline namespace v0 {
namespace detail {

/// Whether a name is new. A program that makes up names does not fill the memory with them.
inline bool note_name(std::set<std::string, std::less<>>& names, std::string_view name) {
  constexpr std::size_t most = 64;
  return names.size() < most && !names.contains(name) && names.emplace(name).second;
}

/// Launches that use memory whose contents were given up (docs/adr/0008): what they may not do, and what is in use
/// again by them.
///
/// Not synchronised: the arena calls it under its lock.
class given_up_memory {
 public:
  /// @param allocations  Outlives it.
  explicit given_up_memory(allocation_table& allocations) : table_(allocations) {}

  /// Whether some of it is among what the operands name. Cost: nothing while all that is allocated is of value.
  [[nodiscard]] bool is_used_by(std::span<const named_operand> operands) const {
    return table_.any_given_up() && is_named_by(operands);
  }
  /// A launch reads nothing that was given up, unless it writes the same bytes.
  /// @errors  `status::invalid_argument` where it does. Without a size, that is where nothing of what it names is of
  ///          value.
  void check_reads(std::string_view launch, std::span<const named_operand> operands) const {
    for (const named_operand& o : operands) {
      const bytes lost = o.mode == access::read ? lost_in(o.where.span, operands) : bytes{};
      if (lost.count != 0 && (o.sized || lost == o.where.span.size)) {
        throw error(status::invalid_argument, "launch '" + std::string(launch) + "' reads " + text_of(o) +
                                                  ", of which " + std::to_string(lost.count) +
                                                  " were given up (mark_inactive) and not written since");
      }
    }
  }
  /// In checked mode a launch does not update what was given up, unless it overwrites the same bytes as well: a graph
  /// may do both.
  /// @errors  `status::wrong_declaration` where it does.
  void check_updates(std::string_view launch, std::span<const named_operand> operands) const {
    for (const named_operand& o : operands) {
      const bytes lost = table_.given_up(o.where.span);
      const bool overwrites = std::any_of(operands.begin(), operands.end(), [&](const named_operand& other) {
        return other.mode == access::overwrite && overlap(other.where.span, o.where.span);
      });
      if (o.mode == access::update && !overwrites && lost.count != 0 && (o.sized || lost == o.where.span.size)) {
        throw error(status::wrong_declaration,
                    "launch '" + std::string(launch) + "' updates " + text_of(o) + ", of which " +
                        std::to_string(lost.count) +
                        " were given up (mark_inactive), so that what they hold is undefined: declare overwrites(p, n) "
                        "where it writes all of them, or mark_active before");
      }
    }
  }
  /// Memory that a launch writes is in use again.
  /// @param changes  What became of blocks by that is appended.
  /// @returns        A line for the log; empty where it is not worth one.
  [[nodiscard]] std::string use_again(std::string_view launch, std::span<const named_operand> operands,
                                      std::vector<liveness_change>& changes) {
    std::string warning;
    for (const named_operand& o : operands) {
      if (o.mode == access::read || table_.given_up(o.where.span).count == 0) {
        continue;
      }
      if (o.mode == access::update && warning.empty() && note_name(updated_by_, launch)) {
        warning = "launch '" + std::string(launch) + "' updates " + text_of(o) +
                  " that were given up (mark_inactive) at least in part; what they hold is undefined: declare "
                  "overwrites(p, n) where it writes all of them (logged once)";
      }
      table_.use_again(o.where.span, changes);
    }
    return warning;
  }

 private:
  [[gnu::noinline]] bool is_named_by(std::span<const named_operand> operands) const {
    return std::any_of(operands.begin(), operands.end(),
                       [&](const named_operand& o) { return table_.given_up(o.where.span).count != 0; });
  }
  static bool overlap(byte_span a, byte_span b) { return a.offset < b.offset + b.size && b.offset < a.offset + a.size; }
  /// Bytes of a span that were given up and that none of the operands writes.
  [[nodiscard]] bytes lost_in(byte_span span, std::span<const named_operand> operands) const {
    for (const named_operand& o : operands) {
      const byte_span written = o.where.span;
      if (o.mode == access::read || !overlap(written, span)) {
        continue;
      }
      const bytes end = span.offset + span.size;
      bytes lost{};
      if (span.offset < written.offset) {
        lost += lost_in({span.offset, written.offset - span.offset}, operands);
      }
      if (written.offset + written.size < end) {
        lost += lost_in({written.offset + written.size, end - (written.offset + written.size)}, operands);
      }
      return lost;
    }
    return table_.given_up(span);
  }

  allocation_table& table_;
  std::set<std::string, std::less<>> updated_by_{};  // launches that were logged
};

}  // namespace detail
}  // namespace v0
}  // namespace deepum
