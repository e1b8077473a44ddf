#pragma once

#include <deepum/cxx20.hpp>

#include <string_view>

// The one place where the version is written; the build reads these three lines.
#define DEEPUM_VERSION_MAJOR 0
#define DEEPUM_VERSION_MINOR 1
#define DEEPUM_VERSION_PATCH 0

#define DEEPUM_DETAIL_STRING_OF(x) #x
#define DEEPUM_DETAIL_STRING(x) DEEPUM_DETAIL_STRING_OF(x)

/// The version as a string literal, for example "0.1.0".
#define DEEPUM_VERSION_STRING                \
  DEEPUM_DETAIL_STRING(DEEPUM_VERSION_MAJOR) \
  "." DEEPUM_DETAIL_STRING(DEEPUM_VERSION_MINOR) "." DEEPUM_DETAIL_STRING(DEEPUM_VERSION_PATCH)

namespace deepum {
inline namespace v0 {

/// The version of these headers; the macros above are for conditional compilation.
inline constexpr std::string_view version = DEEPUM_VERSION_STRING;

}  // namespace v0
}  // namespace deepum
