#pragma once

#include <deepum/error.hpp>

#include <source_location>
#include <string>

namespace deepum {
inline namespace v0 {
namespace interop {
namespace detail {

/// Throws what a library reports.
/// @param good   What it reports where nothing is wrong.
/// @param words  The library's own for its numbers.
/// @errors  `status::device_failure`, with the number and the words.
template <class Status>
void check_library(Status result, Status good, const char* (*words)(Status), const char* api,
                   std::source_location where) {
  if (result != good) [[unlikely]] {
    throw error(status::device_failure, std::string(api) + ": " + words(result), api, static_cast<int>(result), where);
  }
}

}  // namespace detail
}  // namespace interop
}  // namespace v0
}  // namespace deepum
