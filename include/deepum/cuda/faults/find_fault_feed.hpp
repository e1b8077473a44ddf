#pragma once

#include <deepum/cuda/device.hpp>
#include <deepum/cuda/faults/fault_feed.hpp>
#include <deepum/separate.hpp>
#include <deepum/units.hpp>

#include <cstddef>
#include <functional>
#include <memory>
#include <string>

namespace deepum {
inline namespace v0 {
namespace cuda {

/// The feed that was chosen.
struct found_feed {
  std::unique_ptr<fault_feed> feed{};  ///< none: nothing is learned from faults
  std::string description{};           ///< one line for people
};

/// The source that the environment names, or that of the options.
/// @errors  `status::invalid_argument` for a name that does not exist.
[[nodiscard]] DEEPUM_SEPARATE fault_source chosen_source(fault_source wanted);

/// Opens the device's own feed, or the best that works.
/// @param works  Tries a feed out: whether it told of a fault that was made on purpose.
[[nodiscard]] DEEPUM_SEPARATE found_feed find_fault_feed(const device& of, std::byte* base, bytes size,
                                                         const std::function<bool(fault_feed&)>& works);

}  // namespace cuda
}  // namespace v0
}  // namespace deepum

#ifndef DEEPUM_SEPARATE_COMPILATION
#include <deepum/cuda/faults/impl/find_fault_feed.hpp>  // what it declares
#endif
