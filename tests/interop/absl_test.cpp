#include <deepum/error.hpp>
#include <deepum/interop/absl.hpp>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <doctest/doctest.h>

#include <memory>
#include <stdexcept>
#include <string>

namespace absl_test {

using deepum::error;
using deepum::status;
using namespace deepum::interop;

TEST_CASE("every error becomes a status and is the same error again") {
  for (int code = static_cast<int>(status::invalid_argument); code <= static_cast<int>(status::wrong_declaration);
       ++code) {
    CAPTURE(code);
    const error e(static_cast<status>(code), "what was wrong", "cudaMalloc with a blank", -700);
    const absl::Status s = to_absl_status(e);
    CHECK(!s.ok());
    CHECK(s.code() != absl::StatusCode::kUnknown);
    CHECK(s.message() == "what was wrong");
    const error again = to_error(s);
    CHECK(again.code() == e.code());
    CHECK(again.native_code() == -700);
    CHECK(again.api() == "cudaMalloc with a blank");
    CHECK(std::string(again.what()) == "what was wrong");
  }
  CHECK(to_error(to_absl_status(error(status::double_free, "x"))).api().empty());
}

TEST_CASE("what there is too little of is an exhausted resource, and a wrong argument an invalid one") {
  CHECK(absl::IsResourceExhausted(to_absl_status(error(status::out_of_arena_space, ""))));
  CHECK(absl::IsInvalidArgument(to_absl_status(error(status::foreign_pointer, ""))));
  CHECK(absl::IsUnimplemented(to_absl_status(error(status::unsupported, ""))));
}

TEST_CASE("a status of others becomes the nearest error, and one with a strange payload too") {
  CHECK(to_error(absl::NotFoundError("no file")).code() == status::io_failure);
  CHECK(to_error(absl::InvalidArgumentError("x")).code() == status::invalid_argument);
  CHECK(std::string(to_error(absl::InternalError("boom")).what()) == "boom");
  for (const char* payload : {"", "99 0 x", "0 0 x", "1", "one 0 x"}) {
    CAPTURE(payload);
    absl::Status s = absl::DataLossError("x");
    s.SetPayload("deepum.error", absl::Cord(payload));
    CHECK(to_error(s).code() == status::bad_format);
  }
}

TEST_CASE("a call becomes a status, with its value where it has one, and errors of others pass") {
  CHECK(status_of([] {}).ok());
  CHECK(status_of([] { throw error(status::unsupported, "not here"); }) ==
        to_absl_status(error(status::unsupported, "not here")));
  const absl::StatusOr<std::unique_ptr<int>> value = status_of([] { return std::make_unique<int>(7); });
  REQUIRE(value.ok());
  CHECK(**value == 7);
  const absl::StatusOr<int> none = status_of([]() -> int { throw error(status::bad_format, "no"); });
  CHECK(absl::IsDataLoss(none.status()));
  CHECK_THROWS_AS((void)status_of([] { throw std::logic_error("other"); }), std::logic_error);
}

}  // namespace absl_test
