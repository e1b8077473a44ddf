#pragma once

#if __has_include(<absl/status/status.h>)  // without Abseil this header has nothing

#ifdef __CUDACC__
#error "deepum/interop/absl.hpp is for host code: nvcc does not compile all of Abseil"
#endif

#include <deepum/error.hpp>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/strings/cord.h>
#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_split.h>
#include <absl/strings/string_view.h>
#include <absl/types/optional.h>

#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace deepum {
inline namespace v0 {
namespace interop {

namespace detail {

/// Under this name a status carries the numbers and the call of the error that it was made of: "code native api".
inline constexpr char absl_payload[] = "deepum.error";

}  // namespace detail

/// The code of Abseil's that says the most to a program that knows nothing of this library.
[[nodiscard]] constexpr absl::StatusCode absl_code(status code) {
  switch (code) {
    case status::invalid_argument:
    case status::foreign_pointer:
    case status::wrong_declaration:
      return absl::StatusCode::kInvalidArgument;
    case status::out_of_arena_space:
    case status::out_of_device_memory:
    case status::out_of_host_memory:
      return absl::StatusCode::kResourceExhausted;
    case status::double_free:
      return absl::StatusCode::kFailedPrecondition;
    case status::device_failure:
      return absl::StatusCode::kInternal;
    case status::unsupported:
      return absl::StatusCode::kUnimplemented;
    case status::io_failure:
      return absl::StatusCode::kUnavailable;
    case status::bad_format:
      return absl::StatusCode::kDataLoss;
  }
  return absl::StatusCode::kUnknown;
}

/// An error as a status, with the message and, as its payload, all that `to_error` needs.
/// @errors  None.
[[nodiscard]] inline absl::Status to_absl_status(const error& e) {
  absl::Status s(absl_code(e.code()), e.what());
  s.SetPayload(detail::absl_payload,
               absl::Cord(absl::StrCat(static_cast<int>(e.code()), " ", e.native_code(), " ", e.api())));
  return s;
}

/// A status as an error: the one that it was made of by `to_absl_status`, or the nearest one. Its `where()` is here.
/// @param s  Not OK.
/// @errors   None.
[[nodiscard]] inline error to_error(const absl::Status& s) {
  expects(!s.ok(), "a status that is OK is no error");
  const std::string message(s.message());
  if (const absl::optional<absl::Cord> payload = s.GetPayload(detail::absl_payload)) {
    const std::vector<std::string> parts = absl::StrSplit(std::string(*payload), absl::MaxSplits(' ', 2));
    int code = 0;
    int native = 0;
    if (parts.size() == 3 && absl::SimpleAtoi(parts[0], &code) && absl::SimpleAtoi(parts[1], &native) &&
        code >= static_cast<int>(status::invalid_argument) && code <= static_cast<int>(status::wrong_declaration)) {
      return error(static_cast<status>(code), message, parts[2], native);
    }
  }
  switch (s.code()) {
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kOutOfRange:
      return error(status::invalid_argument, message);
    case absl::StatusCode::kResourceExhausted:
      return error(status::out_of_host_memory, message);
    case absl::StatusCode::kUnimplemented:
      return error(status::unsupported, message);
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kUnavailable:
      return error(status::io_failure, message);
    case absl::StatusCode::kDataLoss:
      return error(status::bad_format, message);
    default:
      return error(status::device_failure, message);
  }
}

/// Runs `call()`, and catches the errors of this library.
/// @returns  A status, or an `absl::StatusOr` of what `call` returns.
/// @errors   Those of others.
template <class Call>
[[nodiscard]] auto status_of(Call&& call) {
  using result = std::invoke_result_t<Call>;
  if constexpr (std::is_void_v<result>) {
    try {
      std::forward<Call>(call)();
      return absl::OkStatus();
    } catch (const error& e) {
      return to_absl_status(e);
    }
  } else {
    using status_or = absl::StatusOr<std::decay_t<result>>;
    try {
      return status_or(std::forward<Call>(call)());
    } catch (const error& e) {
      return status_or(to_absl_status(e));
    }
  }
}

}  // namespace interop
}  // namespace v0
}  // namespace deepum

#endif
