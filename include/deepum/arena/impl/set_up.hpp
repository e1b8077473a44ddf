#pragma once

#include <deepum/arena/set_up.hpp>
#include <deepum/core/archive.hpp>
#include <deepum/core/block.hpp>
#include <deepum/environment.hpp>
#include <deepum/error.hpp>
#include <deepum/separate.hpp>

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <limits>

namespace deepum {
inline namespace v0 {
namespace detail {

DEEPUM_SEPARATE std::string after_environment(arena_options& options, std::span<const std::string_view> known) {
  options.checked = environment::checked(options.log).value_or(options.checked);
  if (options.make_policy) {
    return {};
  }
  return environment::policy(known, options.log).value_or(options.policy);
}

DEEPUM_SEPARATE bytes checked_capacity(bytes device, std::optional<bytes> most, const arena_options& options) {
  bytes capacity = options.capacity;
  if (capacity.count == 0) {
    const auto pages = static_cast<std::uint64_t>(std::max(::sysconf(_SC_PHYS_PAGES), 0L));
    const bytes host{pages * static_cast<std::uint64_t>(std::max(::sysconf(_SC_PAGESIZE), 0L))};
    capacity = std::min(4 * device, device + host);
    capacity = std::min(capacity, most.value_or(capacity));
  }
  constexpr bytes numbered = block_size * std::numeric_limits<std::uint32_t>::max();
  if (capacity > numbered) {
    throw error(status::invalid_argument, "an arena has at most " + std::to_string(numbered.count) + " bytes, not " +
                                              std::to_string(capacity.count));
  }
  return block_size * ((capacity + block_size - bytes{1}) / block_size);
}

DEEPUM_SEPARATE bytes checked_budget(bytes budget, bytes block) {
  if (budget.count != 0 && budget < block) {
    throw error(status::invalid_argument, "a device budget of " + std::to_string(budget.count) +
                                              " bytes is less than a block of " + std::to_string(block.count) +
                                              " bytes; 0 means what is free");
  }
  return budget;
}

DEEPUM_SEPARATE bytes first_budget(bytes device, bytes block, const arena_options& options) {
  const std::optional<bytes> wanted = environment::budget(device, block, options.log);
  return wanted ? *wanted : checked_budget(options.device_budget, block);
}

DEEPUM_SEPARATE void load_tables(engine& into, const std::string& path,
                                 const std::function<void(std::string_view)>& log) {
  std::string why;
  try {
    into.load_tables(load_archive(path));
    return;
  } catch (const error& e) {
    if (e.code() == status::io_failure && e.native_code() == ENOENT) {
      return;  // the first run
    }
    why = e.code() == status::io_failure ? e.what() : path + ": " + e.what();
  }
  if (log) {
    log(why + "; the policy begins without tables");
  }
}

}  // namespace detail
}  // namespace v0
}  // namespace deepum
