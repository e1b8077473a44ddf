#pragma once

#include <deepum/engine/observer.hpp>
#include <deepum/log.hpp>
#include <deepum/units.hpp>

#include <cstdint>
#include <functional>
#include <string_view>

namespace deepum {
inline namespace v0 {

/// How an engine treats its device.
struct engine_options {
  bytes budget{};                            ///< device memory to hold at most; 0: what is free, less the headroom
  bytes headroom{std::uint64_t{512} << 20};  ///< left free where no budget is given
  std::uint32_t commands_in_flight =
      0;                    ///< on each link at a time; 0: the memory's choice, or 2: one moves, one is ready
  bytes bytes_in_flight{};  ///< on each link at a time, bounds what a new plan cannot take back; 0: the memory's, or
                            ///< 256 MiB
  std::uint32_t failures_until_pause = 8;  ///< commands that fail in a row before prefetching pauses
  std::uint64_t launches_of_pause = 1024;  ///< launches that finish before it is tried again
  /// Takes messages for people, one line each. Called by the migration thread under the engine's lock.
  std::function<void(std::string_view)> log = default_log();
  /// Called like `log`.
  deepum::observer observer{};
};

}  // namespace v0
}  // namespace deepum
