#pragma once

#include <deepum/core/strong_id.hpp>

#include <cstdint>

namespace deepum {
inline namespace v0 {

/// Names a launch that recurs (DeepUM, section 3.1): a small number that an `execution_id_table` gives out. 0 is none.
using execution_id = strong_id<struct execution_tag, std::uint32_t, zero_is::none>;

}  // namespace v0
}  // namespace deepum
