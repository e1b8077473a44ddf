#include <deepum/log.hpp>

#include <doctest/doctest.h>

#include <cstdlib>
#include <string>

namespace log_test {

using namespace deepum;

/// DEEPUM_LOG as long as it lives.
struct variable {
  explicit variable(const char* value) {
    if (const char* const before = std::getenv("DEEPUM_LOG")) before_ = before;
    value != nullptr ? setenv("DEEPUM_LOG", value, 1) : unsetenv("DEEPUM_LOG");
  }
  ~variable() { before_.empty() ? unsetenv("DEEPUM_LOG") : setenv("DEEPUM_LOG", before_.c_str(), 1); }
  variable(const variable&) = delete;
  variable& operator=(const variable&) = delete;

 private:
  std::string before_{};
};

TEST_CASE("DEEPUM_LOG says how much is logged; what is no number from 0 to 2 changes nothing") {
  const struct {
    const char* value;
    verbosity wanted;
  } cases[] = {{nullptr, verbosity::changes}, {"", verbosity::changes},    {"0", verbosity::none},
               {"1", verbosity::changes},     {"2", verbosity::set_up},    {"3", verbosity::changes},
               {"20", verbosity::changes},    {"all", verbosity::changes}, {"-1", verbosity::changes}};
  for (const auto& c : cases) {
    CAPTURE(c.value);
    const variable set{c.value};
    CHECK(wanted_verbosity() == c.wanted);
    CHECK(static_cast<bool>(default_log()) == (c.wanted >= verbosity::changes));
    CHECK(static_cast<bool>(default_log(verbosity::set_up)) == (c.wanted >= verbosity::set_up));
    CHECK_FALSE(default_log(verbosity::none));
  }
}

TEST_CASE("the variable is read when the sink is made") {
  std::function<void(std::string_view)> sink;
  {
    const variable set{"2"};
    sink = default_log(verbosity::set_up);
  }
  const variable quiet{"0"};
  CHECK(static_cast<bool>(sink));
}

}  // namespace log_test
