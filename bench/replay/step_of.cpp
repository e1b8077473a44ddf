#include "replay/step_of.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace deepum::replay {
namespace {

// What holds nothing alive need not be brought back. A use in two ways is joined, so each part is named in one way
// only.
void add_writes(step_description& step, const touched_blocks& touched) {
  auto fresh = touched.fresh.begin();
  for (const block_range r : touched.writes) {
    for (std::uint32_t b = r.begin_value(); b != r.end_value();) {
      while (fresh != touched.fresh.end() && fresh->end_value() <= b) {
        ++fresh;
      }
      const bool any = fresh != touched.fresh.end() && fresh->begin_value() < r.end_value();
      const bool is_fresh = any && fresh->begin_value() <= b;
      const std::uint32_t end = is_fresh ? std::min(fresh->end_value(), r.end_value())
                                : any    ? fresh->begin_value()
                                         : r.end_value();
      step.add_use({block_id{b}, end - b}, is_fresh ? deepum::access::overwrite : deepum::access::update);
      b = end;
    }
  }
}

}  // namespace

step_description step_of(const workload& w) {
  step_description step;
  for (std::size_t variant = 0; variant != w.variants; ++variant) {
    for (const workload_launch& l : w.launches) {
      const touched_blocks& touched = l.touches(variant);
      step.add_launch(l.duration);
      for (const block_range r : touched.reads) {
        step.add_use(r, deepum::access::read);
      }
      add_writes(step, touched);
      for (const block_range r : l.dead) {
        step.add_last_use(r);
      }
    }
  }
  return step;
}

}  // namespace deepum::replay
