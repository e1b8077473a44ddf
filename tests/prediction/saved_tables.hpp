#pragma once

#include <deepum/core/archive.hpp>
#include <deepum/prediction/block_table.hpp>
#include <deepum/prediction/execution_id_table.hpp>
#include <deepum/prediction/execution_table.hpp>
#include <deepum/prediction/footprint.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

namespace deepum_test {

using namespace deepum;

using archive = std::vector<std::byte>;

inline constexpr std::uint32_t arena_blocks = 64;

/// One of each table, as a policy has them.
struct tables {
  execution_id_table ids{recognition::adaptive, 40};
  execution_table successions{execution_table::match::longest_suffix, 120};
  footprint_table footprints{};
  std::vector<block_table> pairs{};

  static constexpr block_table_shape shape{8, 2, 3};

  [[nodiscard]] archive save() const {
    archive_writer out(block_size);
    ids.save(out);
    successions.save(out);
    footprints.save(out);
    out.put(std::uint64_t{pairs.size()});
    for (const block_table& t : pairs) {
      t.save(out);
    }
    return out.finish();
  }
  [[nodiscard]] static tables load(const archive& from) {
    archive_reader in(from, block_size);
    tables t;
    t.ids = execution_id_table::load(in, recognition::adaptive, 40);
    const execution_id last{t.ids.size()};
    t.successions = execution_table::load(in, last, execution_table::match::longest_suffix, 120);
    t.footprints = footprint_table::load(in, last, arena_blocks);
    const std::size_t count = in.get_count(1);
    for (std::size_t i = 0; i < count; ++i) {
      t.pairs.push_back(block_table::load(in, shape, arena_blocks));
    }
    in.finish();
    return t;
  }
};

/// Draws what happens to the tables, the same for two sets of them.
class events {
 public:
  explicit events(std::uint64_t seed) : random_(seed) {}

  /// One event for all the tables. @returns  All that can be seen of them in its course.
  std::vector<std::uint64_t> apply(tables& t) {
    std::vector<std::uint64_t> seen;
    const identified found = t.ids.identify(signature(draw(60)), execution_id{draw(12)});
    seen = {found.id.value, found.is_new, found.rebound, found.retired.value, t.ids.size()};
    if (found.retired.valid()) {
      t.successions.forget(found.retired);
      t.footprints.forget(found.retired);
    }
    execution_context context;
    for (execution_id& id : context.preceding) {
      id = draw_id(t);
    }
    context.current = draw_id(t);
    t.successions.record(context, found.id);
    context.preceding[0] = draw_id(t);
    context.current = draw_id(t);
    seen.push_back(t.successions.predict(context).value_or(execution_id{99}).value);
    seen.push_back(t.successions.records());
    if (draw(50) == 0) {
      t.successions.forget(draw_id(t));
    }

    const block_range range{block_id{draw(arena_blocks - 4)}, draw(4)};
    t.footprints.at(found.id).touch(range, static_cast<deepum::access>(draw(3)), draw(2) != 0);
    for (const footprint_entry& e : t.footprints.at(found.id).entries()) {
      seen.insert(seen.end(), {e.range.first.value, e.range.count, static_cast<std::uint64_t>(e.mode), e.mode_known});
    }
    seen.push_back(t.footprints.at(found.id).block_count());
    seen.push_back(t.footprints.at(found.id).contains(block_id{draw(arena_blocks)}));

    while (t.pairs.size() < 3) {
      t.pairs.emplace_back(tables::shape);
    }
    block_table& pairs = t.pairs[draw(3)];
    pairs.record(block_id{draw(arena_blocks)}, block_id{draw(arena_blocks)});
    if (draw(10) == 0) {
      pairs.set_start(block_id{draw(arena_blocks)});
      pairs.set_end(block_id{draw(arena_blocks)});
    }
    for (const block_id b : pairs.successors(block_id{draw(arena_blocks)})) {
      seen.push_back(b.value);
    }
    seen.push_back(pairs.start().value_or(block_id{99}).value);
    seen.push_back(pairs.end().value_or(block_id{99}).value);
    return seen;
  }

 private:
  static launch_signature signature(std::uint64_t n) { return {.exact = n * 0x9e3779b97f4a7c15ULL, .shape = n % 7}; }
  std::uint32_t draw(std::uint32_t below) { return static_cast<std::uint32_t>(random_() % below); }
  execution_id draw_id(const tables& t) { return execution_id{draw(std::min(t.ids.size(), 5U) + 1)}; }

  std::mt19937_64 random_;
};

}  // namespace deepum_test
