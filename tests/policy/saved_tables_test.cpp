#include "policy/saved_policies.hpp"
#include "support/test_scale.hpp"
#include <deepum/prediction/footprint_predictor.hpp>
#include <deepum/prediction/history.hpp>
#include <deepum/prediction/pair_tables.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <vector>

namespace saved_tables_test {

using namespace deepum_test;

constexpr execution_id last_id{8};

/// What was written, as it is read.
archive written(const std::function<void(archive_writer&)>& write) {
  archive_writer out(block_size);
  write(out);
  return out.finish();
}
template <class T>
archive saved(const T& table) {
  return written([&](archive_writer& out) { table.save(out); });
}

/// Why an archive is refused.
std::string refusal(const std::function<void()>& load) {
  try {
    load();
  } catch (const error& e) {
    CHECK(e.code() == status::bad_format);
    return std::string(e.what()).substr(std::string("saved tables are refused: ").size());
  }
  return "loaded";
}
std::string refusal(policy& into, const archive& a) {
  return refusal([&] { load_tables(into, a, law_blocks, block_size); });
}

/// A policy of that kind that has run a random program.
struct grown {
  grown(const saved_kind& kind, std::uint32_t seed, int launches) : chooser(kind.make()), program(seed) {
    driver d{*chooser, law_blocks, 9};
    program.run(d, launches);
    CHECK(d.lost.empty());
    tables = save_tables(*chooser, block_size);
  }
  std::unique_ptr<policy> chooser;
  small_program program;
  archive tables{};
};

/// Every change of one byte, and every length that is too short.
void for_each_damage(const archive& whole, const std::function<void(const archive&)>& visit) {
  for (std::size_t at = 0; at < whole.size(); ++at) {
    for (const unsigned flip : {0x01U, 0x80U, 0xffU}) {
      archive damaged = whole;
      damaged[at] ^= static_cast<std::byte>(flip);
      visit(damaged);
    }
    visit({whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(at)});
  }
}

TEST_CASE("a history that was saved and loaded goes on as if nothing had happened, but for what streams did last") {
  for (std::uint32_t seed = 1; seed <= deepum_test::scaled(40); ++seed) {
    CAPTURE(seed);
    for (const recognition how : {recognition::exact, recognition::adaptive}) {
      const auto match =
          how == recognition::exact ? execution_table::match::published : execution_table::match::longest_suffix;
      history kept(how, match, 12, 50);
      std::mt19937 random(seed);
      const auto draw = [&] { return launch_signature{random() % 20, random() % 5}; };
      for (std::uint32_t i = 0; i < seed * 17 % 150; ++i) {
        kept.observe(stream_id{static_cast<std::uint16_t>(random() % 2)}, draw());
      }
      const archive a = saved(kept);
      archive_reader in(a, block_size);
      history loaded = history::load(in, how, match, 12, 50);
      in.finish();
      REQUIRE(saved(loaded) == a);
      CHECK(loaded.execution_ids() == kept.execution_ids());
      CHECK(loaded.context(stream_id{0}) == execution_context{});
      for (int i = 0; i < 100; ++i) {
        const launch_signature s = draw();
        const observation expected = kept.observe(stream_id{2}, s);  // on which nothing was launched before
        const observation seen = loaded.observe(stream_id{2}, s);
        REQUIRE(seen.id == expected.id);
        CHECK(seen.is_new == expected.is_new);
        CHECK(seen.retired == expected.retired);
        CHECK(seen.was == expected.was);
        CHECK(loaded.predict(seen.context) == kept.predict(expected.context));
      }
      CHECK(saved(loaded) == saved(kept));
    }
  }
}

TEST_CASE("what launches need is the same after loading, and is learned on from there") {
  block_ledger all_there(law_blocks, location::device(), law_blocks, um_grid);
  for (std::uint32_t b = 0; b != law_blocks; ++b) {
    all_there.arrive(block_id{b}, true);
  }
  for (std::uint32_t seed = 1; seed <= deepum_test::scaled(40); ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    const auto below = [&](std::uint32_t n) { return static_cast<std::uint32_t>(random() % n); };
    const auto event = [&](const std::vector<footprint_predictor*>& all) {
      const execution_id id{1 + below(last_id.value)};
      launch_record r;
      r.complete = below(2) == 0;
      for (std::uint32_t n = below(3); n-- != 0;) {
        r.accesses.push_back({blocks(below(28), 1 + below(4)), static_cast<deepum::access>(below(3))});
      }
      std::vector<block_id> faults(below(5));
      for (block_id& b : faults) {
        b = block_id{below(law_blocks)};
      }
      for (footprint_predictor* n : all) {
        n->declare(id, r);
        for (const block_id b : faults) {
          n->fault(id, b, deepum::access::read);
        }
        n->finish(id, all_there);
      }
    };
    footprint_predictor kept;
    for (std::uint32_t i = 0; i < seed * 7 % 60; ++i) {
      event({&kept});
    }
    const archive a = saved(kept);
    footprint_predictor loaded;
    archive_reader in(a, block_size);
    loaded.load(in, last_id, law_blocks);
    in.finish();
    REQUIRE(saved(loaded) == a);
    for (int i = 0; i < 60; ++i) {
      for (std::uint32_t id = 1; id <= last_id.value; ++id) {
        REQUIRE(*loaded.of(execution_id{id}) == *kept.of(execution_id{id}));
      }
      event({&kept, &loaded});
    }
    CHECK(saved(loaded) == saved(kept));
  }
}

TEST_CASE("every policy saves what it loaded, and goes on with it") {
  for (const saved_kind& kind : saved_kinds()) {
    CAPTURE(kind.label);
    for (std::uint32_t seed = 1; seed <= deepum_test::scaled(10); ++seed) {
      CAPTURE(seed);
      grown first(kind, seed, 80);
      const auto second = kind.make();
      load_tables(*second, first.tables, law_blocks, block_size);
      REQUIRE(save_tables(*second, block_size) == first.tables);
      CHECK(second->statistics().execution_ids == first.chooser->statistics().execution_ids);
      driver d{*second, law_blocks, 9};
      first.program.run(d, 80);
      CHECK(d.lost.empty());
    }
  }
}

TEST_CASE("a policy without tables saves its name alone") {
  for (const char* name : {"um", "ideal"}) {
    const auto p = make_policy(name);
    const archive a = save_tables(*p, block_size);
    CHECK(refusal(*p, a) == "loaded");
    CHECK(refusal(*make_policy("deepum"), a) == "they are of the policy '" + std::string(name) + "', not of 'deepum'");
  }
}

TEST_CASE("a damaged archive is refused, and leaves the policy as a new one") {
  for (const saved_kind& kind : saved_kinds()) {
    CAPTURE(kind.label);
    const archive whole = grown(kind, 3, 12).tables;
    const archive nothing = save_tables(*kind.make(), block_size);
    REQUIRE(whole != nothing);
    const auto p = kind.make();
    std::size_t tried = 0;
    for_each_damage(whole, [&](const archive& damaged) {
      REQUIRE(refusal(*p, damaged) != "loaded");
      if (++tried % 64 == 0) REQUIRE(save_tables(*p, block_size) == nothing);
    });
    CHECK(save_tables(*p, block_size) == nothing);
    CHECK(refusal(*p, whole) == "loaded");
  }
}

TEST_CASE("contents that were changed before the checksum was taken are refused as a whole, or make tables that work") {
  for (const saved_kind& kind : saved_kinds()) {
    CAPTURE(kind.label);
    const archive whole = grown(kind, 2, 12).tables;
    const archive nothing = save_tables(*kind.make(), block_size);
    constexpr std::ptrdiff_t header = sizeof(detail::archive_header);
    std::size_t refused = 0;
    std::size_t tried = 0;
    for_each_damage({whole.begin() + header, whole.end()}, [&](const archive& payload) {
      if (++tried % 3 != 0) return;
      const archive sealed = written([&](archive_writer& out) { out.put_bytes(payload); });
      const auto p = kind.make();
      if (refusal(*p, sealed) != "loaded") {
        ++refused;
        REQUIRE(save_tables(*p, block_size) == nothing);
        return;
      }
      REQUIRE(save_tables(*p, block_size) == sealed);
      driver d{*p, law_blocks, 9};
      small_program(2).run(d, 12);
      REQUIRE(d.lost.empty());
    });
    CHECK(refused > tried / 6);
  }
}

TEST_CASE("tables of something else are refused with the reason") {
  const auto made = [](std::uint32_t version, const std::string& name) {
    return written([&](archive_writer& out) {
      out.section(make_archive_tag("plcy"), [&] {
        out.put(version);
        out.put(std::uint64_t{name.size()});
        out.put_bytes(std::as_bytes(std::span(name)));
      });
    });
  };
  const auto into_deepum = [](const archive& a, block_table_shape shape = {}) {
    policy_options o;
    o.block_table = shape;
    return refusal(*make_policy("deepum", o), a);
  };
  CHECK(into_deepum(made(4, "deepum")) == "version 4 of the tables; only version 3 is known");
  CHECK(into_deepum(made(3, "ideal")) == "they are of the policy 'ideal', not of 'deepum'");
  CHECK(into_deepum(made(3, "")) == "they are of the policy '', not of 'deepum'");
  CHECK(into_deepum(made(3, "\x1b[2J")) == "they are of another policy, not of 'deepum'");
  CHECK(into_deepum(made(3, std::string(500, 'x'))) == "they are of another policy, not of 'deepum'");
  CHECK(into_deepum(made(3, "deepum")) == "a section ends before its contents do");
  CHECK(into_deepum(saved(history(recognition::exact, execution_table::match::published))) ==
        "a section is missing or out of place");
  const archive published = save_tables(*make_policy("deepum"), block_size);
  CHECK(into_deepum(published) == "loaded");
  CHECK(into_deepum(published, {2048, 2, 5}) == "block tables of 2048 rows, 2 ways and 4 successors");

  archive longer(published.begin() + sizeof(detail::archive_header), published.end());
  longer.push_back({});
  CHECK(into_deepum(written([&](archive_writer& out) { out.put_bytes(longer); })) == "more contents than expected");
  longer = made(3, "um");
  longer.erase(longer.begin(), longer.begin() + sizeof(detail::archive_header));
  longer.push_back({});
  longer = written([&](archive_writer& out) { out.put_bytes(longer); });
  CHECK(refusal(*make_policy("um"), longer) == "more contents than expected");
}

TEST_CASE("tables of auto that predict blocks by pairs, as earlier versions could, are refused with the reason") {
  const auto tables = save_tables(*make_policy("auto"), block_size);
  archive pairs(tables.begin() + sizeof(detail::archive_header), tables.end());
  constexpr std::size_t head = sizeof(std::uint32_t) + sizeof(std::uint64_t);  // of a section
  constexpr std::size_t named = head + head + std::string_view("auto").size();
  pairs.at(named + head) = std::byte{1};
  CHECK(refusal(*make_policy("auto"), written([&](archive_writer& out) { out.put_bytes(pairs); })) ==
        "they predict blocks by pairs, this policy by footprints");
}

TEST_CASE("a history of other parameters is refused with the reason") {
  const auto load = [](const history& h, recognition how, execution_table::match match, std::uint32_t ids = 0,
                       std::size_t records = 0) {
    const archive a = saved(h);
    return refusal([&] {
      archive_reader in(a, block_size);
      (void)history::load(in, how, match, ids, records);
    });
  };
  using match = execution_table::match;
  history h(recognition::exact, match::published);
  for (std::uint64_t k = 0; k < 9; ++k) {
    h.observe(stream_id{0}, {k, k});
  }
  CHECK(load(h, recognition::exact, match::published) == "loaded");
  CHECK(load(h, recognition::exact, match::published, 9, 8) == "loaded");
  CHECK(load(h, recognition::exact, match::published, 8) == "more execution IDs than are kept");
  CHECK(load(h, recognition::exact, match::published, 0, 7) == "more execution records than are kept");
  CHECK(load(h, recognition::adaptive, match::published) ==
        "launches were recognised in another way, exact or adaptive");
  CHECK(load(h, recognition::exact, match::longest_suffix) ==
        "launches were predicted by other records, those of the whole context or of the longest suffix");
}

TEST_CASE("that a launch is not steady, and for how long, is saved") {
  const block_ledger nothing_there(law_blocks, location::device(), 1, um_grid);
  footprint_predictor kept;
  for (std::uint32_t b = 0; b != 3; ++b) {
    REQUIRE(kept.steady(execution_id{1}));
    kept.fault(execution_id{1}, block_id{b}, deepum::access::read);
    kept.finish(execution_id{1}, nothing_there);
  }
  REQUIRE_FALSE(kept.steady(execution_id{1}));
  footprint_predictor loaded;
  const archive a = saved(kept);
  archive_reader in(a, block_size);
  loaded.load(in, execution_id{1}, law_blocks);
  for (std::uint32_t i = 0; i != footprint_predictor::runs_unlearned; ++i) {
    CHECK_FALSE(loaded.steady(execution_id{1}));
    loaded.finish(execution_id{1}, nothing_there);
  }
  CHECK(loaded.steady(execution_id{1}));
}

TEST_CASE("needs that no launch can have are refused with the reason, and leave what was known") {
  const auto load = [](footprint_predictor& into, const archive& a) {
    const archive before = saved(into);
    const std::string why = refusal([&] {
      archive_reader in(a, block_size);
      into.load(in, last_id, law_blocks);
    });
    CHECK((why == "loaded" || saved(into) == before));
    return why;
  };
  struct declaration {
    std::uint32_t id = 1;
    std::vector<block_access> accesses{};
  };
  using numbers = std::array<std::uint32_t, 4>;  // known, surprises, runs unlearned, settled
  const auto declared = [&](const std::vector<declaration>& all, const std::vector<std::uint32_t>& learned = {},
                            const numbers& what = {1, 1, 1, 1}) {
    footprint_table footprints;
    footprints.at(execution_id{1}).touch(blocks(3), deepum::access::read, true);
    footprints.at(execution_id{2}).touch(blocks(4), deepum::access::read, true);
    footprint_predictor n;
    n.fault(execution_id{5}, block_id{7}, deepum::access::read);
    return load(n, written([&](archive_writer& out) {
                  out.section(make_archive_tag("need"), [&] {
                    footprints.save(out);
                    out.put(std::uint64_t{all.size()});
                    for (const declaration& d : all) {
                      out.put(d.id);
                      out.put(std::uint64_t{d.accesses.size()});
                      for (const block_access& a : d.accesses) {
                        out.put(a.range.first.value);
                        out.put(a.range.count);
                        out.put(a.mode);
                      }
                    }
                    out.put(std::uint64_t{learned.size()});
                    for (const std::uint32_t id : learned) {
                      out.put(id);
                      for (const std::uint32_t number : what) {
                        out.put(number);
                      }
                      out.put(std::uint64_t{0});
                    }
                  });
                }));
  };
  const std::string unknown = "a declaration of an execution ID that there is not, or out of order";
  const std::string beyond = "a launch that uses a block that the arena does not have, or none";
  CHECK(declared({{1, {reads(3)}}, {2, {updates(0, law_blocks), overwrites(1)}}}) == "loaded");
  CHECK(declared({{2, {reads(3)}}, {1, {reads(3)}}}) == unknown);
  CHECK(declared({{1, {reads(3)}}, {1, {reads(3)}}}) == unknown);
  CHECK(declared({{0, {reads(3)}}}) == unknown);
  CHECK(declared({{3, {reads(3)}}}) == unknown);
  CHECK(declared({{9, {reads(3)}}}) == unknown);
  CHECK(declared({{1, {}}}) == "a declaration names nothing");
  CHECK(declared({{1, {reads(3, 0)}}}) == beyond);
  CHECK(declared({{1, {reads(law_blocks)}}}) == beyond);
  CHECK(declared({{1, {reads(1, law_blocks)}}}) == beyond);
  CHECK(declared({{1, {{blocks(1), deepum::access{3}}}}}) == "an enumerator that does not exist");
  CHECK(declared({}, {1, 2}) == "loaded");
  const std::string nothing = "faults of an execution ID of which nothing was learned, or less than had been";
  CHECK(declared({}, {1}, {0, 0, 0, 0}) == nothing);
  CHECK(declared({}, {1}, {3, 0, 0, 4}) == nothing);
  for (const std::vector<std::uint32_t>& ids : {std::vector<std::uint32_t>{2, 1}, {1, 1}, {0}, {9}}) {
    CHECK(declared({}, ids) == "faults of an execution ID that there is not, or out of order");
  }
}

TEST_CASE("pair tables that no launch can have are refused with the reason") {
  const auto pairs = [&](const std::vector<std::uint32_t>& ids, bool start, bool end) {
    constexpr block_table_shape shape{4, 1, 1};
    const archive a = written([&](archive_writer& out) {
      out.section(make_archive_tag("pair"), [&] {
        for (const std::uint32_t size : {shape.rows, shape.ways, shape.successors}) {
          out.put(size);
        }
        out.put(std::uint64_t{ids.size()});
        for (const std::uint32_t id : ids) {
          out.put(id);
          out.put(std::uint64_t{3});
          block_table t{shape};
          if (start) t.set_start(block_id{1});
          if (end) t.set_end(block_id{1});
          t.save(out);
        }
      });
    });
    return refusal([&] {
      archive_reader in(a, block_size);
      (void)pair_tables::load(in, shape, last_id, law_blocks);
    });
  };
  CHECK(pairs({1, 8}, true, true) == "loaded");
  CHECK(pairs({2, 1}, true, true) == "a block table of an execution ID that there is not, or out of order");
  CHECK(pairs({0}, true, true) == "a block table of an execution ID that there is not, or out of order");
  CHECK(pairs({9}, true, true) == "a block table of an execution ID that there is not, or out of order");
  CHECK(pairs({1}, false, true) == "a block table of a launch has no start or no end");
  CHECK(pairs({1}, true, false) == "a block table of a launch has no start or no end");
}

TEST_CASE("a policy knows in the first round of its second run what faults told it in the first run") {
  std::vector<kernel> program;
  for (std::uint32_t k = 0; k < 6; ++k) {
    program.push_back(silent("k" + std::to_string(k), {reads(5 * k, 5)}));
  }
  const auto faults_of_rounds = [&](policy& p) {
    driver d{p, law_blocks, 12};
    d.make_live(blocks(0, law_blocks));
    std::vector<std::uint64_t> faults;
    for (int i = 0; i < 4; ++i) {
      const std::uint64_t before = d.faults;
      d.run(program);
      faults.push_back(d.faults - before);
    }
    CHECK(d.lost.empty());
    return faults;
  };
  for (const std::string name : {"deepum", "auto"}) {
    CAPTURE(name);
    const policy_options options{.lookahead = 1};
    const auto first = make_policy(name, options);
    const std::vector<std::uint64_t> cold = faults_of_rounds(*first);
    CHECK(cold.front() == 30);
    const auto second = make_policy(name, options);
    load_tables(*second, save_tables(*first, block_size), law_blocks, block_size);
    const std::vector<std::uint64_t> warm = faults_of_rounds(*second);
    CHECK(warm.front() <= 1);  // deepum has no chain before a fault
    CHECK(warm.back() == cold.back());
    CHECK(second->statistics().unpredicted == 1);
    CHECK(second->statistics().mispredicted == 0);
  }
}

}  // namespace saved_tables_test
