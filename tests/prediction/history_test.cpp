#include "policy/driver.hpp"
#include <deepum/prediction/history.hpp>

#include <doctest/doctest.h>

namespace history_test {

using namespace deepum_test;

launch_signature signature(std::uint64_t name, std::uint64_t scalar = 0) { return {name * 1000 + scalar, name}; }
constexpr stream_id first{0};
constexpr stream_id second{1};

TEST_CASE("a sequence that came once is predicted from its fifth launch on, as published") {
  history h{recognition::exact, execution_table::match::published};
  for (int round = 0; round < 3; ++round) {
    for (std::uint64_t k = 1; k <= 6; ++k) {
      h.observe(first, signature(k));
    }
  }
  // The published table wants three preceding IDs, which the first four launches of all did not have.
  CHECK(h.count(outcome::mispredicted) == 0);
  CHECK(h.count(outcome::predicted) == 18 - 6 - 4);
  CHECK(h.execution_ids() == 6);
}

TEST_CASE("a chain of predictions follows the sequence round") {
  history h{recognition::exact, execution_table::match::longest_suffix};
  observation last{};
  std::vector<execution_id> ids;
  for (int round = 0; round < 2; ++round) {
    for (std::uint64_t k = 1; k <= 5; ++k) {
      last = h.observe(first, signature(k));
      if (round == 0) {
        ids.push_back(last.id);
      }
    }
  }
  execution_context context = last.context;
  for (std::size_t i = 0; i < 12; ++i) {
    const auto next = h.predict(context);
    REQUIRE(next.has_value());
    CHECK(*next == ids[i % 5]);
    context.push(*next);
  }
}

TEST_CASE("each stream has a history of its own, and the streams learn from each other") {
  history h{recognition::exact, execution_table::match::longest_suffix};
  for (std::uint64_t k = 1; k <= 4; ++k) {
    h.observe(first, signature(k));
    h.observe(second, signature(10 + k));
  }
  h.observe(second, signature(1));
  CHECK(h.observe(second, signature(2)).was == outcome::predicted);
  CHECK(h.observe(first, signature(1)).was == outcome::unpredicted);
  CHECK(h.observe(first, signature(3)).was == outcome::mispredicted);
  CHECK(h.count(outcome::mispredicted) == 1);
}

TEST_CASE("a launch whose scalars change is recognised where it is expected, and only in adaptive mode") {
  for (const recognition how : {recognition::exact, recognition::adaptive}) {
    history h{how, execution_table::match::longest_suffix};
    for (std::uint64_t step = 0; step < 4; ++step) {
      h.observe(first, signature(1));
      h.observe(first, signature(2, step));
      h.observe(first, signature(3));
    }
    CHECK(h.execution_ids() == (how == recognition::exact ? 6U : 3U));
  }
}

TEST_CASE("what is said of a retired ID is forgotten before it means another launch") {
  history h{recognition::exact, execution_table::match::longest_suffix, 2};
  h.observe(first, signature(1));
  h.observe(first, signature(2));
  const observation third = h.observe(first, signature(3));
  CHECK(third.retired.valid());
  CHECK(third.is_new);
  CHECK(h.predict({{}, third.id}) == std::nullopt);
  CHECK(h.context(first).current == third.id);
}

}  // namespace history_test
