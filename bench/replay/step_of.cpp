#include "replay/step_of.hpp"

namespace deepum::replay {

step_description step_of(const workload& w) {
  step_description step;
  const auto add = [&](const block_set& set, deepum::access mode) {
    for (const block_range r : set) {
      step.add_use(r, mode);
    }
  };
  for (std::size_t variant = 0; variant != w.variants; ++variant) {
    for (const workload_launch& l : w.launches) {
      const touched_blocks& t = l.touches(variant);
      step.add_launch(l.duration);
      add(t.reads, deepum::access::read);
      // What holds nothing alive need not be brought back. A use in two ways is joined, so the rest is named piece by
      // piece.
      for (const block_range r : t.writes) {
        for (std::uint32_t b = r.begin_value(); b != r.end_value();) {
          const auto fresh = [&](std::uint32_t block) { return contains(t.fresh, block_id{block}); };
          const bool is_fresh = fresh(b);
          const std::uint32_t from = b;
          while (b != r.end_value() && fresh(b) == is_fresh) {
            ++b;
          }
          step.add_use({block_id{from}, b - from}, is_fresh ? deepum::access::overwrite : deepum::access::update);
        }
      }
      for (const block_range r : l.dead) {
        step.add_death(r);
      }
    }
  }
  return step;
}

}  // namespace deepum::replay
