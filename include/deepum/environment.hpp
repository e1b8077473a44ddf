#pragma once

#include <deepum/units.hpp>

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace deepum {
inline namespace v0 {

/// The variables of the environment that go before what a program says. This is the one place that reads them. A value
/// that cannot be used is a line in the log, and counts as not set: the program goes on as without it. So does an empty
/// value, without a line.
///
/// Threads: any, while none changes the environment.
namespace detail::environment {

/// Where lines go; may be empty.
using sink = std::function<void(std::string_view)>;

/// DEEPUM_POLICY: the name of a policy.
/// @param known  The names that there are.
[[nodiscard]] std::optional<std::string> policy(std::span<const std::string_view> known, const sink& log);
/// DEEPUM_BUDGET: device memory, as `arena_options::device_budget` has it: a size (see `try_parse_size`), or a share of
/// the device's memory as 50% or 37.5%.
/// @param device_memory  What 100% are.
/// @param block          The least, apart from 0.
[[nodiscard]] std::optional<bytes> budget(bytes device_memory, bytes block, const sink& log);
/// DEEPUM_CHUNK: the size of a chunk of paged memory, as `device_options::chunk` has it.
/// @param smallest, largest  What a chunk may have; it is a power of two.
[[nodiscard]] std::optional<bytes> chunk(bytes smallest, bytes largest, const sink& log);
/// DEEPUM_CHECK: 1 for checked mode, 0 for none.
[[nodiscard]] std::optional<bool> checked(const sink& log);
/// DEEPUM_STATISTICS and DEEPUM_TRACE: a file that can be written.
[[nodiscard]] std::optional<std::string> statistics_file(const sink& log);
[[nodiscard]] std::optional<std::string> trace_file(const sink& log);

}  // namespace detail::environment
}  // namespace v0
}  // namespace deepum

#ifndef DEEPUM_SEPARATE_COMPILATION
#include <deepum/impl/environment.hpp>  // what it declares
#endif
