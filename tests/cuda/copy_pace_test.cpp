#include <deepum/cuda/paged/copy_pace.hpp>

#include <doctest/doctest.h>

namespace copy_pace_test {

using deepum::cuda::copy_pace;

TEST_CASE("while no block waits to be mapped two pieces are in flight, and after four in a row the link pauses") {
  copy_pace pace;
  CHECK(pace.may_send(0, false));
  pace.sent(0);
  for (int sent = 1; sent < 4; ++sent) {
    CHECK(pace.may_send(1, false));
    CHECK_FALSE(pace.may_send(2, false));
    pace.sent(1);
  }
  CHECK_FALSE(pace.may_send(1, false));
  CHECK(pace.may_send(0, false));
}

TEST_CASE("while blocks wait to be mapped a piece begins when none moves and eight were mapped since the last one") {
  copy_pace pace;
  pace.sent(0);
  for (int mapped = 0; mapped < 8; ++mapped) {
    CHECK_FALSE(pace.may_send(0, true));
    CHECK(pace.may_send(0, false));  // none waits any more
    pace.mapped();
  }
  CHECK(pace.may_send(0, true));
  CHECK_FALSE(pace.may_send(1, true));
}

TEST_CASE("the piece behind one that was mapped before is not joined to it: more blocks are likely to come") {
  copy_pace pace;
  pace.mapped();
  pace.sent(0);
  CHECK_FALSE(pace.may_send(1, false));
  pace.sent(0);
  CHECK(pace.may_send(1, false));
  pace.mapped();
  CHECK_FALSE(pace.may_send(1, false));
}

}  // namespace copy_pace_test
