#pragma once

#include <deepum/arena/upload_options.hpp>
#include <deepum/core/launch.hpp>
#include <deepum/core/neighbour.hpp>
#include <deepum/engine/engine_options.hpp>
#include <deepum/policy/policy.hpp>
#include <deepum/policy/policy_options.hpp>
#include <deepum/units.hpp>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace deepum {
inline namespace v0 {

/// How an arena is set up.
struct arena_options {
  bytes capacity{};       ///< address range; 0: four times the device's memory, as far as there is memory for it
  bytes device_budget{};  ///< device memory to hold at most; 0: what is free, less the headroom. DEEPUM_BUDGET in the
                          ///< environment overrides it
  bytes headroom{std::uint64_t{512} << 20};  ///< left free where no budget is given
  /// Devices beside this one that it may use. Where the memory kind cannot, the arena is refused
  /// (`status::unsupported`).
  std::vector<neighbour> neighbours{};
  std::string policy = "auto";  ///< one of `policy_names()`, or off; DEEPUM_POLICY in the environment overrides it
  policy_options tuning{};      ///< for the policy
  /// A policy of the program's own instead. DEEPUM_POLICY does not override it.
  std::function<std::unique_ptr<deepum::policy>(const policy_options&)> make_policy{};
  /// A file of `arena::save_tables` to begin with, so that a second run of a program moves blocks ahead of its very
  /// first launches. None, or none there yet: the policy begins with nothing. It does so too, with a line in the log,
  /// where it is no regular file, damaged, or of another policy, version or block table shape.
  std::string tables{};
  /// New memory reads as zero, reused memory too, as `cudaMalloc` in a fresh process has it. Else it holds what others
  /// have left there. Costs a fill of what was handed out before; on memory that never faults only of what a launch or
  /// view uses without overwriting all of it.
  bool zero_new = false;
  /// Checked mode, for finding wrong declarations: launches run one at a time, new memory and what was given up read as
  /// no number (new memory as zero with `zero_new`), and a launch that does what it does not declare throws
  /// `status::wrong_declaration` with its name and the operand. Slow: a launch reads its operands twice more.
  /// DEEPUM_CHECK in the environment overrides it.
  bool checked = false;
  upload_options uploads{};                                          ///< how `stream::upload` copies
  std::function<void(std::string_view)> log = engine_options{}.log;  ///< see `engine_options`
  std::function<void(const device_event&, launch_id)> observer{};    ///< see `engine_options`
};

/// Bytes that a program has taken from an arena.
struct arena_footprint {
  bytes allocated{};  ///< now
  bytes peak{};       ///< at most so far
};

}  // namespace v0
}  // namespace deepum
