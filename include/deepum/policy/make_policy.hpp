#pragma once

#include <deepum/policy/policy.hpp>
#include <deepum/policy/policy_options.hpp>
#include <deepum/separate.hpp>

#include <array>
#include <memory>
#include <string_view>

namespace deepum {
inline namespace v0 {

/// The policies that `make_policy` knows. `off` is another name for `um`.
[[nodiscard]] inline constexpr std::array<std::string_view, 8> policy_names() {
  return {"ideal", "um", "lru", "vdnn", "vdnn_ext", "harvest", "deepum", "auto"};
}

/// Whether the policy is `lru` in a program that names no layers (`stream::layer`).
[[nodiscard]] inline constexpr bool needs_layers(std::string_view policy_name) {
  return policy_name.starts_with("vdnn");
}

/// Whether the policy is for arenas that neighbours lend memory to (`arena_options::neighbours`).
[[nodiscard]] inline constexpr bool needs_neighbours(std::string_view policy_name) { return policy_name == "harvest"; }

/// A policy by its name, as `DEEPUM_POLICY` and `--policy` give it.
/// @errors  `status::invalid_argument` for a name that is none of `policy_names()` and not `off`.
[[nodiscard]] DEEPUM_SEPARATE std::unique_ptr<policy> make_policy(std::string_view name,
                                                                  const policy_options& options = {});

}  // namespace v0
}  // namespace deepum

#ifndef DEEPUM_SEPARATE_COMPILATION
#include <deepum/policy/impl/make_policy.hpp>  // what it makes
#endif
