#pragma once

#include <deepum/cxx20.hpp>

#include <cstdint>
#include <span>
#include <string_view>

namespace deepum {
inline namespace v0 {
namespace interpose {

/// Which stream the default stream means to who asks for a function of the driver.
enum class default_stream : std::uint8_t { legacy, per_thread };

/// A function of the driver that another one stands in for.
///
/// The driver exports each form of a function under a name of its own (`cuMemAlloc_v2`, `cuLaunchKernel_ptsz`), and
/// hands them out by a base name and a version too.
struct entry_point {
  const char* exported = nullptr;                  ///< name of the symbol
  const char* base = nullptr;                      ///< name for `cuGetProcAddress`
  int since = 0;                                   ///< CUDA version that has brought this form: 3020 for 3.2
  default_stream stream = default_stream::legacy;  ///< which one a default stream among its arguments is
  bool only_form = true;                           ///< there is none of its own for the other kind of default stream
  void* replacement = nullptr;                     ///< what stands in
  void** real = nullptr;                           ///< where the driver's own is kept
};

/// The entry point that the driver exports under a name; nullptr where nothing stands in for it.
[[nodiscard]] inline const entry_point* find_exported(std::span<const entry_point> all, std::string_view symbol) {
  for (const entry_point& e : all) {
    if (symbol == e.exported) {
      return &e;
    }
  }
  return nullptr;
}

/// The entry point that `cuGetProcAddress` means: of the forms of a function that the version asked for knows, the
/// newest.
/// @param version  CUDA version that the program was compiled for: 12040 for 12.4.
/// @param wanted   For functions that have a form for each kind of default stream.
/// @returns        nullptr where nothing stands in for it, or only for newer forms.
[[nodiscard]] inline const entry_point* find_by_version(std::span<const entry_point> all, std::string_view base,
                                                        int version, default_stream wanted) {
  const entry_point* found = nullptr;
  for (const entry_point& e : all) {
    if (base == e.base && e.since <= version && (e.only_form || e.stream == wanted) &&
        (found == nullptr || found->since < e.since)) {
      found = &e;
    }
  }
  return found;
}

}  // namespace interpose
}  // namespace v0
}  // namespace deepum
