#include "prediction/saved_tables.hpp"
#include "support/test_scale.hpp"
#include <deepum/core/archive.hpp>
#include <deepum/prediction/block_table.hpp>
#include <deepum/prediction/execution_id_table.hpp>
#include <deepum/prediction/execution_table.hpp>
#include <deepum/prediction/footprint.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <optional>
#include <random>
#include <string>
#include <vector>

namespace archive_test {

using namespace deepum;
using deepum_test::archive, deepum_test::arena_blocks, deepum_test::events, deepum_test::tables;

tables grown(std::uint64_t seed, int steps) {
  tables t;
  events e(seed);
  for (int i = 0; i < steps; ++i) {
    e.apply(t);
  }
  return t;
}

/// Why an archive is refused; nothing where it is not.
std::optional<std::string> refusal(const archive& a) {
  try {
    (void)tables::load(a);
  } catch (const error& e) {
    CHECK(e.code() == status::bad_format);
    return e.what();
  }
  return std::nullopt;
}

/// Why a loader refuses what was written here.
std::string refusal_of(const std::function<void(archive_writer&)>& write,
                       const std::function<void(archive_reader&)>& read) {
  archive_writer out(block_size);
  write(out);
  const archive a = out.finish();
  try {
    archive_reader in(a, block_size);
    read(in);
    in.finish();
  } catch (const error& e) {
    CHECK(e.code() == status::bad_format);
    return std::string(e.what()).substr(std::string("saved tables are refused: ").size());
  }
  return "loaded";
}

TEST_CASE("tables that were saved and loaded go on as if nothing had happened") {
  for (std::uint64_t seed = 1; seed <= deepum_test::scaled(30); ++seed) {
    CAPTURE(seed);
    const int steps = static_cast<int>(seed * 37 % 400);
    tables kept = grown(seed, steps);
    tables loaded = tables::load(kept.save());
    CHECK(loaded.save() == kept.save());
    events for_kept(seed + 1000);
    events for_loaded(seed + 1000);
    for (int i = 0; i < 300; ++i) {
      REQUIRE(for_kept.apply(kept) == for_loaded.apply(loaded));
    }
    CHECK(loaded.save() == kept.save());
  }
}

TEST_CASE("empty tables are saved and loaded") {
  const tables loaded = tables::load(tables{}.save());
  CHECK(loaded.ids.size() == 0);
  CHECK(loaded.successions.records() == 0);
  CHECK(loaded.pairs.empty());
}

TEST_CASE("an archive with any byte changed is refused") {
  const archive whole = grown(1, 12).save();
  for (std::size_t at = 0; at < whole.size(); ++at) {
    for (const unsigned flip : {0x01U, 0x80U, 0xffU}) {
      CAPTURE(at);
      archive damaged = whole;
      damaged[at] ^= static_cast<std::byte>(flip);
      REQUIRE(refusal(damaged));
    }
  }
}

TEST_CASE("an archive that ends early, or goes on, is refused") {
  const archive whole = grown(1, 12).save();
  for (std::size_t length = 0; length < whole.size(); ++length) {
    REQUIRE(refusal({whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(length)}));
  }
  archive longer = whole;
  longer.push_back({});
  CHECK(refusal(longer));
}

TEST_CASE("contents that were changed before the checksum was taken are refused, or make tables that work") {
  const archive whole = grown(2, 12).save();
  constexpr std::size_t header = sizeof(detail::archive_header);
  for (std::size_t at = header; at < whole.size(); ++at) {
    for (const unsigned flip : {0x01U, 0x80U, 0xffU}) {
      CAPTURE(at);
      archive payload(whole.begin() + header, whole.end());
      payload[at - header] ^= static_cast<std::byte>(flip);
      archive_writer out(block_size);
      out.put_bytes(payload);
      try {
        tables t = tables::load(out.finish());
        events e(1);
        for (int i = 0; i < 20; ++i) {
          e.apply(t);
        }
      } catch (const error& e) {
        REQUIRE(e.code() == status::bad_format);
      }
    }
  }
}

TEST_CASE("what is no archive, or one of another kind, is refused with the reason") {
  const archive whole = tables{}.save();
  const auto with = [&](std::size_t at, std::uint32_t value) {
    archive a = whole;
    std::memcpy(a.data() + at, &value, sizeof value);
    return refusal(a).value_or("loaded");
  };
  CHECK(refusal({}) == "saved tables are refused: shorter than its header");
  CHECK(with(0, 0x464c457fU) == "saved tables are refused: not an archive of tables");
  CHECK(with(8, 0x04030201U) == "saved tables are refused: written on a machine of another byte order");
  CHECK(with(12, 2) == "saved tables are refused: version 2 of the format; only version 1 is known");
  CHECK(with(16, 65536) == "saved tables are refused: written for blocks of 65536 bytes");
  CHECK(with(24, 1).starts_with("saved tables are refused: the header says 1 bytes, "));
  CHECK(with(32, 1) == "saved tables are refused: damaged: the checksum is wrong");
}

TEST_CASE("tables that do not fit the one that loads them are refused with the reason") {
  const tables t = grown(3, 100);
  const auto load_ids = [](archive_reader& in) { (void)execution_id_table::load(in, recognition::exact, 3); };
  const auto load_records = [](std::uint32_t last_id, std::size_t max) {
    return [=](archive_reader& in) {
      (void)execution_table::load(in, execution_id{last_id}, execution_table::match::published, max);
    };
  };
  const auto save_records = [&](archive_writer& out) { t.successions.save(out); };
  CHECK(refusal_of([&](archive_writer& out) { t.ids.save(out); }, load_ids) == "more execution IDs than are kept");
  CHECK(refusal_of(save_records, load_ids) == "a section is missing or out of place");
  CHECK(refusal_of([](archive_writer&) {}, load_ids) == "a section ends before its contents do");
  CHECK(refusal_of(save_records, load_records(40, 5)) == "more execution records than are kept");
  CHECK(refusal_of(save_records, load_records(1, 0)) == "an execution record names an ID that there is not");
  CHECK(refusal_of(save_records, load_records(40, 0)) == "loaded");

  const auto save_pairs = [&](archive_writer& out) { t.pairs[0].save(out); };
  const auto load_pairs = [](block_table_shape shape, std::uint32_t blocks) {
    return [=](archive_reader& in) { (void)block_table::load(in, shape, blocks); };
  };
  CHECK(refusal_of(save_pairs, load_pairs(tables::shape, arena_blocks)) == "loaded");
  CHECK(refusal_of(save_pairs, load_pairs({8, 2, 4}, arena_blocks)) ==
        "block tables of 8 rows, 2 ways and 3 successors");
  CHECK(refusal_of(save_pairs, load_pairs(tables::shape, 5)) ==
        "a block table names a block that the arena does not have");

  const auto save_footprints = [&](archive_writer& out) { t.footprints.save(out); };
  const auto load_footprints = [](std::uint32_t last_id, std::uint32_t blocks) {
    return [=](archive_reader& in) { (void)footprint_table::load(in, execution_id{last_id}, blocks); };
  };
  CHECK(refusal_of(save_footprints, load_footprints(40, arena_blocks)) == "loaded");
  CHECK(refusal_of(save_footprints, load_footprints(1, arena_blocks)) ==
        "a footprint of an execution ID that there is not, or out of order");
  CHECK(refusal_of(save_footprints, load_footprints(40, 4)) ==
        "a footprint names a block that the arena does not have, or none");
}

TEST_CASE("contents that no table can have are refused with the reason") {
  const auto ids = [](const std::vector<std::uint64_t>& exact, const std::vector<std::uint32_t>& order) {
    return refusal_of(
        [&](archive_writer& out) {
          out.section(make_archive_tag("exid"), [&] {
            out.put(std::uint64_t{exact.size()});
            for (const std::uint64_t e : exact) {
              out.put(e);
              out.put(std::uint64_t{0});
            }
            for (const std::uint32_t o : order) {
              out.put(o);
            }
          });
        },
        [](archive_reader& in) { (void)execution_id_table::load(in, recognition::exact); });
  };
  CHECK(ids({5, 6}, {2, 1}) == "loaded");
  CHECK(ids({5, 5}, {2, 1}) == "two execution IDs of one launch");
  CHECK(ids({5, 6}, {2, 2}) == "the order of execution IDs names one twice, or none");
  CHECK(ids({5, 6}, {2, 0}) == "the order of execution IDs names one twice, or none");
  CHECK(ids({5, 6}, {2, 3}) == "the order of execution IDs names one twice, or none");
  CHECK(ids({5, 6}, {2}) == "a section ends before its contents do");
  CHECK(ids({5, 6}, {2, 1, 1}) == "more contents than expected");

  const auto records = [](const std::vector<std::uint32_t>& numbers) {
    return refusal_of(
        [&](archive_writer& out) {
          out.section(make_archive_tag("exco"), [&] {
            out.put(std::uint64_t{numbers.size() / 5});
            out.put_bytes(std::as_bytes(std::span(numbers)));
          });
        },
        [](archive_reader& in) {
          (void)execution_table::load(in, execution_id{9}, execution_table::match::published);
        });
  };
  CHECK(records({1, 2, 3, 4, 5, 1, 2, 3, 4, 6}) == "loaded");
  CHECK(records({1, 2, 3, 4, 5, 1, 2, 3, 4, 5}) == "an execution record is there twice");

  const auto entries = [](const std::vector<footprint_entry>& es) {
    return refusal_of(
        [&](archive_writer& out) {
          out.put(std::uint64_t{es.size()});
          for (const footprint_entry& e : es) {
            out.put(e.range.first.value);
            out.put(e.range.count);
            out.put(e.mode);
            out.put(e.mode_known);
          }
        },
        [](archive_reader& in) { (void)footprint::load(in, arena_blocks); });
  };
  const auto range = [](std::uint32_t first, std::uint32_t count) { return block_range{block_id{first}, count}; };
  CHECK(entries({{range(5, 2), access::read, true}, {range(3, 2), access::update, false}}) == "loaded");
  CHECK(entries({{range(5, 2), access::read, true}, {range(3, 3), access::read, true}}) ==
        "a footprint names a block twice");
  CHECK(entries({{range(5, 0), access::read, true}})
            .starts_with("a footprint names a block that the arena does not have"));
  CHECK(entries({{range(60, 5), access::read, true}})
            .starts_with("a footprint names a block that the arena does not have"));
  CHECK(entries({{range(6, 0xffffffffU), access::read, true}}).starts_with("a footprint names a block that"));
  CHECK(entries({{range(5, 1), access::overwrite, false}}) == "a footprint takes a guess for more than an update");
  CHECK(entries({{range(5, 1), deepum::access{3}, true}}) == "an enumerator that does not exist");

  constexpr std::uint32_t none = 0xffffffffU;
  const auto row = [](std::uint32_t number, const std::vector<std::uint32_t>& cells, std::uint32_t rows = 1) {
    return refusal_of(
        [&](archive_writer& out) {
          out.section(make_archive_tag("blco"), [&] {
            for (const std::uint32_t n : {4U, 2U, 2U, none, none}) {
              out.put(n);
            }
            out.put(std::uint64_t{rows});
            for (std::uint32_t i = 0; i < rows; ++i) {
              out.put(number);
            }
            out.put_bytes(std::as_bytes(std::span(cells)));
          });
        },
        [](archive_reader& in) {
          (void)block_table::load(in, {4, 2, 2}, arena_blocks);
        });
  };
  CHECK(row(1, {5, 6, none, none, none, none}) == "loaded");
  CHECK(row(1, {5, 6, 7, 9, 1, none}) == "loaded");
  CHECK(row(2, {5, 6, 7, 9, 1, none}) == "a row of a block table is not as it is written");
  CHECK(row(1, {none, none, none, none, none, none}) == "a row of a block table is not as it is written");
  CHECK(row(1, {5, none, none, none, none, none}) == "a row of a block table is not as it is written");
  CHECK(row(1, {5, 6, none, 9, none, none}) == "a row of a block table is not as it is written");
  CHECK(row(1, {5, 6, 7, none, 9, none}) == "a row of a block table is not as it is written");
  CHECK(row(1, {5, none, 7, none, none, none}) == "a row of a block table is not as it is written");
  CHECK(row(4, {5, 6, 7, none, none, none}) == "a row of a block table is there twice, or beyond its end");
  CHECK(row(1, {5, 6, 7, none, none, none}, 2) == "a row of a block table is there twice, or beyond its end");
  CHECK(row(1, {5, 6, 7, none, none}) == "a section ends before its contents do");
}

TEST_CASE("an archive that states more contents than it has takes no memory for them") {
  CHECK(refusal_of(
            [](archive_writer& out) { out.section(make_archive_tag("exid"), [&] { out.put(~std::uint64_t{0}); }); },
            [](archive_reader& in) { (void)execution_id_table::load(in, recognition::exact); }) ==
        "a section ends before its contents do");
}

TEST_CASE("an archive is written to a file as a whole, and a file that is not there is an error of its own") {
  const std::string path =
      (std::filesystem::temp_directory_path() / ("deepum_archive_test_" + std::to_string(std::random_device{}())))
          .string();
  const archive first = grown(4, 10).save();
  save_archive(path, first);
  CHECK(load_archive(path) == first);
  archive large(std::size_t{3} << 20U, std::byte{7});
  save_archive(path, large);
  CHECK(load_archive(path) == large);
  CHECK_FALSE(std::filesystem::exists(path + ".part"));
  std::remove(path.c_str());

  const auto code_of = [](auto&& run) {
    try {
      run();
    } catch (const error& e) {
      return e.code();
    }
    return status::unsupported;
  };
  CHECK(code_of([&] { (void)load_archive(path); }) == status::io_failure);
  CHECK(code_of([&] { (void)load_archive("/"); }) == status::io_failure);
  CHECK(code_of([&] { save_archive("/nowhere/at/all", first); }) == status::io_failure);
}

}  // namespace archive_test
