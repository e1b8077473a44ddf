#pragma once

#include <deepum/units.hpp>

#include <cstdint>
#include <optional>
#include <string>

namespace deepum::gpu_bench {

/// Whether the program may use managed memory: only inside a limit that its user has set, and that is small beside what
/// is free. Managed memory that outgrows the device can make a shared card very slow for everybody.
/// @param limit   What DEEPUM_MANAGED_LIMIT allows.
/// @param free    Device memory that is free.
/// @param wanted  The largest arena of the run.
/// @returns       Why it may not; nothing where it may.
[[nodiscard]] inline std::optional<std::string> refusal(std::optional<bytes> limit, bytes free, bytes wanted) {
  constexpr std::uint64_t most = std::uint64_t{4} << 30;
  constexpr std::uint64_t share = 8;
  const auto mib = [](std::uint64_t n) { return std::to_string(n >> 20) + " MiB"; };
  if (!limit) {
    return "set DEEPUM_MANAGED_LIMIT: the managed memory that this program may have, for example 4GiB";
  }
  if (limit->count > most) {
    return "DEEPUM_MANAGED_LIMIT is " + mib(limit->count) + ", and this program wants it at 4096 MiB at most";
  }
  if (limit->count > free.count / share) {
    return "DEEPUM_MANAGED_LIMIT is " + mib(limit->count) + ", more than an eighth of the " + mib(free.count) +
           " of device memory that are free";
  }
  if (wanted > *limit) {
    return "the program needs " + mib(wanted.count) + " of managed memory, and DEEPUM_MANAGED_LIMIT is " +
           mib(limit->count) + ": make the model smaller";
  }
  return std::nullopt;
}

}  // namespace deepum::gpu_bench
