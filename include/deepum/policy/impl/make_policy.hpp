#pragma once

#include <deepum/error.hpp>
#include <deepum/policy/auto.hpp>
#include <deepum/policy/deepum.hpp>
#include <deepum/policy/harvest.hpp>
#include <deepum/policy/ideal.hpp>
#include <deepum/policy/lru.hpp>
#include <deepum/policy/make_policy.hpp>
#include <deepum/policy/policy.hpp>
#include <deepum/policy/policy_options.hpp>
#include <deepum/policy/um.hpp>
#include <deepum/policy/vdnn.hpp>

#include <memory>
#include <string>
#include <string_view>

namespace deepum {
inline namespace v0 {

[[nodiscard]] DEEPUM_SEPARATE std::unique_ptr<policy> make_policy(std::string_view name,
                                                                  const policy_options& options) {
  if (name == "um" || name == "off") {
    return std::make_unique<um_policy>();
  }
  if (name == "ideal") {
    return std::make_unique<ideal_policy>();
  }
  if (name == "lru") {
    return std::make_unique<lru_policy>(options);
  }
  if (name == "vdnn") {
    return std::make_unique<vdnn_policy>(vdnn_policy::layer_end::computation_and_copies, options);
  }
  if (name == "vdnn_ext") {
    return std::make_unique<vdnn_policy>(vdnn_policy::layer_end::computation, options);
  }
  if (name == "harvest") {
    return std::make_unique<harvest_policy>(options);
  }
  if (name == "deepum") {
    return std::make_unique<deepum_policy>(options);
  }
  if (name == "auto") {
    return std::make_unique<auto_policy>(options);
  }
  std::string message = "there is no policy '" + std::string(name) + "'; there are";
  for (const std::string_view known : policy_names()) {
    message += ' ';
    message += known;
    message += ',';
  }
  throw error(status::invalid_argument, message + " and off, which is um");
}

}  // namespace v0
}  // namespace deepum
