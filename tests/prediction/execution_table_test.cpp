#include "support/test_scale.hpp"
#include <deepum/prediction/execution_table.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <random>
#include <utility>
#include <vector>

namespace execution_table_test {

using namespace deepum;
using match = execution_table::match;

execution_context context(std::uint32_t a, std::uint32_t b, std::uint32_t c, std::uint32_t current) {
  return {{execution_id{a}, execution_id{b}, execution_id{c}}, execution_id{current}};
}

std::optional<execution_id> id(std::uint32_t value) { return execution_id{value}; }

/// A sequence of launches, recorded as a stream would.
void record_sequence(execution_table& table, std::initializer_list<std::uint32_t> launches) {
  execution_context c;
  for (const std::uint32_t launch : launches) {
    if (c.current.valid()) {
      table.record(c, execution_id{launch});
    }
    c.push(execution_id{launch});
  }
}

TEST_CASE("a context holds the current launch and the three before it, oldest first") {
  execution_context c;
  for (std::uint32_t launch = 1; launch <= 5; ++launch) {
    c.push(execution_id{launch});
  }
  CHECK(c == context(2, 3, 4, 5));
}

TEST_CASE("a record predicts what followed its context") {
  for (const match how : {match::published, match::longest_suffix}) {
    execution_table table{how};
    CHECK_FALSE(table.predict(context(1, 2, 3, 4)).has_value());
    table.record(context(1, 2, 3, 4), execution_id{5});
    CHECK(table.predict(context(1, 2, 3, 4)) == id(5));
    CHECK_FALSE(table.predict(context(1, 2, 3, 5)).has_value());
    CHECK(table.records() == 1);
  }
}

TEST_CASE("the same launch after different histories is followed by what followed it then") {
  execution_table table{match::published};
  record_sequence(table, {1, 2, 9, 4, 1, 3, 9, 5});
  CHECK(table.predict(context(0, 1, 2, 9)) == id(4));
  CHECK(table.predict(context(4, 1, 3, 9)) == id(5));
}

TEST_CASE("as published, a context predicts only where all three preceding launches agree") {
  execution_table table{match::published};
  table.record(context(1, 2, 3, 4), execution_id{5});
  CHECK_FALSE(table.predict(context(9, 2, 3, 4)).has_value());
  CHECK_FALSE(table.predict(context(1, 9, 3, 4)).has_value());
  CHECK_FALSE(table.predict(context(1, 2, 9, 4)).has_value());
  CHECK_FALSE(table.predict(context(2, 1, 3, 4)).has_value());
}

TEST_CASE("of several records with one context the one recorded last predicts") {
  for (const match how : {match::published, match::longest_suffix}) {
    execution_table table{how};
    const execution_context c = context(1, 2, 3, 4);
    table.record(c, execution_id{5});
    table.record(c, execution_id{6});
    CHECK(table.predict(c) == id(6));
    table.record(c, execution_id{5});
    CHECK(table.predict(c) == id(5));
    CHECK(table.records() == 2);
  }
}

TEST_CASE("records of an entry are not limited in number") {
  execution_table table{match::published};
  for (std::uint32_t i = 1; i <= 5000; ++i) {
    table.record(context(i, 2, 3, 4), execution_id{i % 7 + 1});
  }
  CHECK(table.records() == 5000);
  for (std::uint32_t i = 1; i <= 5000; ++i) {
    REQUIRE(table.predict(context(i, 2, 3, 4)) == id(i % 7 + 1));
  }
}

TEST_CASE("longest suffix: without a whole record, the nearest preceding launches decide") {
  execution_table table{match::longest_suffix};
  table.record(context(1, 2, 3, 4), execution_id{10});
  table.record(context(9, 9, 3, 4), execution_id{11});
  table.record(context(9, 9, 9, 4), execution_id{12});
  CHECK(table.predict(context(1, 2, 3, 4)) == id(10));
  CHECK(table.predict(context(8, 2, 3, 4)) == id(10));
  CHECK(table.predict(context(1, 8, 3, 4)) == id(11));
  CHECK(table.predict(context(1, 2, 8, 4)) == id(12));
}

TEST_CASE("longest suffix: of records that agree equally far the one recorded last predicts") {
  execution_table table{match::longest_suffix};
  table.record(context(1, 2, 3, 4), execution_id{10});
  table.record(context(5, 2, 3, 4), execution_id{11});
  CHECK(table.predict(context(8, 2, 3, 4)) == id(11));
  table.record(context(1, 2, 3, 4), execution_id{10});
  CHECK(table.predict(context(8, 2, 3, 4)) == id(10));
}

TEST_CASE("with a limit the record recorded least recently goes first") {
  execution_table table{match::published, 2};
  table.record(context(1, 1, 1, 1), execution_id{5});
  table.record(context(2, 2, 2, 2), execution_id{6});
  table.record(context(1, 1, 1, 1), execution_id{5});
  table.record(context(3, 3, 3, 3), execution_id{7});
  CHECK(table.records() == 2);
  CHECK(table.predict(context(1, 1, 1, 1)) == id(5));
  CHECK_FALSE(table.predict(context(2, 2, 2, 2)).has_value());
  CHECK(table.predict(context(3, 3, 3, 3)) == id(7));
}

TEST_CASE("a forgotten ID is in no record, whatever its place there") {
  for (const match how : {match::published, match::longest_suffix}) {
    execution_table table{how};
    table.record(context(9, 2, 3, 4), execution_id{5});
    table.record(context(1, 9, 3, 4), execution_id{5});
    table.record(context(1, 2, 9, 4), execution_id{5});
    table.record(context(1, 2, 3, 9), execution_id{5});
    table.record(context(1, 2, 3, 4), execution_id{9});
    table.record(context(9, 9, 9, 9), execution_id{9});
    table.record(context(1, 2, 3, 4), execution_id{6});
    table.forget(execution_id{9});
    CHECK(table.records() == 1);
    CHECK(table.predict(context(1, 2, 3, 4)) == id(6));
    CHECK_FALSE(table.predict(context(1, 2, 3, 9)).has_value());
  }
}

TEST_CASE("when the last record of a context is forgotten, the one before it predicts again") {
  execution_table table{match::published};
  table.record(context(1, 2, 3, 4), execution_id{5});
  table.record(context(1, 2, 3, 4), execution_id{6});
  table.forget(execution_id{6});
  CHECK(table.predict(context(1, 2, 3, 4)) == id(5));
}

TEST_CASE("to forget no ID, or one that was never recorded, does nothing") {
  execution_table table{match::published};
  table.record(context(0, 0, 0, 4), execution_id{5});
  table.forget(execution_id{});
  table.forget(execution_id{77});
  CHECK(table.predict(context(0, 0, 0, 4)) == id(5));
}

TEST_CASE("random records, limits and forgotten IDs leave a table as a plain list would") {
  struct naive_record {
    execution_context context;
    execution_id next;
    bool operator==(const naive_record&) const = default;
  };
  for (std::uint64_t seed = 1; seed <= deepum_test::scaled(40); ++seed) {
    CAPTURE(seed);
    std::mt19937_64 random{seed};
    const match how = seed % 2 != 0 ? match::published : match::longest_suffix;
    const std::size_t limit = random() % 3 == 0 ? 0 : 1 + random() % 60;
    const auto ids = static_cast<std::uint32_t>(3 + random() % 6);
    const auto draw = [&] { return static_cast<std::uint32_t>(random() % ids); };
    execution_table table{how, limit};
    std::vector<naive_record> naive;  // least recently recorded first

    for (int step = 0; step < 1500; ++step) {
      const execution_context c = context(draw() % 3, draw() % 3, draw(), draw());
      const execution_id next{draw()};
      if (random() % 200 == 0) {
        table.forget(next);
        if (next.valid()) {
          std::erase_if(naive, [&](const naive_record& r) {
            return r.next == next || r.context.current == next ||
                   std::find(r.context.preceding.begin(), r.context.preceding.end(), next) != r.context.preceding.end();
          });
        }
      } else {
        table.record(c, next);
        std::erase(naive, naive_record{c, next});
        naive.push_back({c, next});
        if (limit != 0 && naive.size() > limit) {
          naive.erase(naive.begin());
        }
      }

      const execution_context asked = context(draw() % 3, draw() % 3, draw(), draw());
      std::optional<execution_id> want;
      int best = how == match::published ? 2 : -1;
      for (const naive_record& r : naive) {
        if (r.context.current != asked.current) {
          continue;
        }
        int agreeing = 0;
        while (agreeing < 3 && r.context.preceding[static_cast<std::size_t>(2 - agreeing)] ==
                                   asked.preceding[static_cast<std::size_t>(2 - agreeing)]) {
          ++agreeing;
        }
        if (agreeing >= best && (how == match::longest_suffix || agreeing == 3)) {
          best = agreeing;
          want = r.next;
        }
      }
      REQUIRE(table.predict(asked) == want);
      REQUIRE(table.records() == naive.size());
    }
  }
}

}  // namespace execution_table_test
