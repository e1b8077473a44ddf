#pragma once

#include <deepum/deepum.h>
#include <deepum/error.hpp>

#include <exception>
#include <new>
#include <string>
#include <utility>

namespace deepum {
inline namespace v0 {
namespace detail {

/// What the last failing call of a thread through deepum.h had to say.
struct c_failure {
  std::string message{};
  int native = 0;
};

[[nodiscard]] inline c_failure& last_c_failure() {
  thread_local c_failure last;
  return last;
}

/// Notes a failure for `deepum_last_error`. Never throws: where there is no memory for the line, there is none.
inline deepum_status failed(deepum_status why, const char* line, int native = 0) noexcept {
  c_failure& last = last_c_failure();
  last.native = native;
  try {
    last.message = line;
  } catch (...) {
    last.message.clear();
  }
  return why;
}

/// Runs what a function of deepum.h does. No exception leaves it.
template <class Work>
[[nodiscard]] deepum_status as_status(Work&& work) noexcept {
  try {
    std::forward<Work>(work)();
    return DEEPUM_OK;
  } catch (const error& e) {
    return failed(static_cast<deepum_status>(e.code()), e.what(), e.native_code());
  } catch (const std::bad_alloc&) {
    return failed(DEEPUM_OTHER_FAILURE, "the process has no memory left for the library's own tables");
  } catch (const std::exception& e) {
    return failed(DEEPUM_OTHER_FAILURE, e.what());
  } catch (...) {
    return failed(DEEPUM_OTHER_FAILURE, "something that is no std::exception was thrown");
  }
}

/// @errors  `status::invalid_argument` for null, with the name of the argument.
inline void wanted(const void* argument, const char* call, const char* name) {
  if (argument == nullptr) {
    throw error(status::invalid_argument, std::string(call) + ": " + name + " is NULL");
  }
}

}  // namespace detail
}  // namespace v0
}  // namespace deepum
