#pragma once

#include <deepum/arena/options.hpp>
#include <deepum/engine/engine.hpp>
#include <deepum/units.hpp>

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace deepum {
inline namespace v0 {
namespace detail {

/// How an arena is set up: what the environment says, then what the options say, checked.

/// Puts what the environment says in the place of options. @returns  The name of the policy; none for the program's
/// own.
/// @param known  Names of policies.
[[nodiscard]] std::string after_environment(arena_options& options, std::span<const std::string_view> known);
/// @returns  An address range of whole blocks.
/// @param device  Memory of the device.
/// @param most    What the memory kind can have.
/// @errors        `status::invalid_argument` for more than blocks can be numbered.
[[nodiscard]] bytes checked_capacity(bytes device, std::optional<bytes> most, const arena_options& options);
/// @errors  `status::invalid_argument` for less than a block.
[[nodiscard]] bytes checked_budget(bytes budget, bytes block);
/// The budget to begin with. @errors  As above.
[[nodiscard]] bytes first_budget(bytes device, bytes block, const arena_options& options);
/// A run without what an earlier one has learned is slower and nothing else, so no error comes out of here.
void load_tables(engine& into, const std::string& path, const std::function<void(std::string_view)>& log);

}  // namespace detail
}  // namespace v0
}  // namespace deepum

#ifndef DEEPUM_SEPARATE_COMPILATION
#include <deepum/arena/impl/set_up.hpp>  // what it declares
#endif
