// The workload reader: what it refuses, it refuses with a line; what it takes has the properties that a replay relies
// on, by definitions that look at one block at a time.

#include "replay/workload.hpp"
#include <deepum/error.hpp>

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

using namespace deepum;
using namespace deepum::replay;

namespace {

void check(bool holds, const char* what) { expects(holds, what); }

void check_set(const block_set& set, std::uint32_t end_block) {
  for (std::size_t i = 0; i < set.size(); ++i) {
    check(!set[i].empty(), "an empty range in a set");
    check(set[i].end_value() > set[i].begin_value() && set[i].end_value() <= end_block, "a block beyond the last");
    check(i == 0 || set[i - 1].end_value() < set[i].begin_value(), "ranges that are out of order, overlap or touch");
  }
}

bool contains(const block_set& set, std::uint32_t block) {
  for (const block_range r : set) {
    if (r.contains(block_id{block})) {
      return true;
    }
  }
  return false;
}

void check_block(const workload& w, std::uint32_t block) {
  for (std::size_t i = 0; i < w.launches.size(); ++i) {
    const auto at = static_cast<std::int64_t>(i);
    bool dies = false;
    bool lives_on = false;
    bool held_before = false;
    for (const workload_tensor& t : w.tensors) {
      if (!t.first_launch || !t.span.contains(block_id{block})) {
        continue;
      }
      dies |= !t.persistent && t.freed_after == i;
      lives_on |= t.persistent || (*t.first_launch <= at && at < t.freed_after);
      held_before |= t.persistent || (*t.first_launch < at && at <= t.freed_after);
    }
    check(contains(w.launches[i].dead, block) == (dies && !lives_on), "contents that die at the wrong launch");
    for (const touched_blocks& t : w.launches[i].touched) {
      check(!contains(t.fresh, block) || (!held_before && !contains(t.reads, block)),
            "fresh blocks that hold something");
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::optional<workload> read;
  try {
    read = parse_workload("fuzz", {reinterpret_cast<const char*>(data), size});
  } catch (const error& e) {
    check(e.code() == status::bad_format, "refused for another reason than its format");
    check(std::string_view(e.what()).starts_with("fuzz:"), "refused without a line");
    return 0;
  }
  const workload& w = *read;
  check(!w.launches.empty() && w.variants >= 1, "a workload without launches");
  check_set(w.persistent, w.end_block);
  std::uint32_t largest = 0;
  for (const workload_launch& l : w.launches) {
    check(l.touched.size() == 1 || l.touched.size() <= w.variants, "more variants than the workload has");
    check_set(l.dead, w.end_block);
    for (const workload_operand& o : l.operands) {
      check(o.tensor < w.tensors.size() && w.tensors[o.tensor].first_launch, "an operand that is no tensor");
    }
    for (const touched_blocks& t : l.touched) {
      check_set(t.reads, w.end_block);
      check_set(t.writes, w.end_block);
      check_set(t.fresh, w.end_block);
      largest = std::max(largest, block_count(t.all()));
    }
  }
  check(largest == w.largest_launch && largest <= w.blocks && w.blocks <= w.end_block, "sums that do not agree");
  for (std::uint32_t block = 0; block < std::min<std::uint32_t>(w.end_block, 32); ++block) {
    check_block(w, block);
  }
  return 0;
}
