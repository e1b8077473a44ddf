#include <deepum/prediction/trust.hpp>

#include <doctest/doctest.h>

namespace trust_test {

using namespace deepum;

TEST_CASE("trust is lost when half of the last 32 predictions were wrong, and comes back after 16 right ones") {
  prediction_trust t;
  for (int i = 0; i < 15; ++i) {
    t.record(outcome::mispredicted);
    t.record(outcome::unpredicted);
  }
  CHECK(t.trusted());
  t.record(outcome::mispredicted);
  CHECK_FALSE(t.trusted());
  for (int i = 0; i < 15; ++i) {
    t.record(outcome::predicted);
  }
  t.record(outcome::mispredicted);
  for (int i = 0; i < 15; ++i) {
    t.record(outcome::predicted);
  }
  CHECK_FALSE(t.trusted());
  t.record(outcome::predicted);
  CHECK(t.trusted());

  SUBCASE("one wrong prediction in three is not too often") {
    for (int i = 0; i < 300; ++i) {
      t.record(i % 3 == 0 ? outcome::mispredicted : outcome::predicted);
    }
    CHECK(t.trusted());
  }
}

}  // namespace trust_test
