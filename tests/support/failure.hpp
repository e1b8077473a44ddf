#pragma once

#include <deepum/error.hpp>

#include <doctest/doctest.h>

#include <string>

namespace deepum_test {

/// What a call says that has to fail. @returns  The message; empty where it did not fail, which is a failure here.
template <class Call>
std::string failure(deepum::status expected, Call&& call) {
  try {
    call();
  } catch (const deepum::error& e) {
    CHECK(e.code() == expected);
    return e.what();
  }
  FAIL_CHECK("nothing was thrown");
  return {};
}
inline bool mentions(const std::string& text, const std::string& what) { return text.find(what) != std::string::npos; }

}  // namespace deepum_test
