#include <deepum/policy/make_policy.hpp>

#include <doctest/doctest.h>

#include <string>

namespace make_policy_test {

using namespace deepum;

TEST_CASE("every policy is made by its name") {
  for (const std::string_view name : policy_names()) {
    CHECK(make_policy(name)->name() == name);
  }
  CHECK(make_policy("off")->name() == "um");
}

TEST_CASE("an unknown policy is refused with the names of those that exist") {
  for (const std::string_view name : {"", "AUTO", "oracle"}) {
    try {
      (void)make_policy(name);
      FAIL("made a policy called " << std::string(name));
    } catch (const error& e) {
      CHECK(e.code() == status::invalid_argument);
      for (const std::string_view known : policy_names()) {
        CHECK(std::string(e.what()).find(known) != std::string::npos);
      }
    }
  }
}

}  // namespace make_policy_test
