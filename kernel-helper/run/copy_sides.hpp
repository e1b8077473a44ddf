#pragma once

#include <deepum/interpose/copy_extent.hpp>

#include <cuda.h>

#include <cstdint>

namespace deepum_run {

/// What a copy of rows reads: nothing where that is an array.
template <class Copy>
[[nodiscard]] deepum::interpose::copy_extent source_of(const Copy& c) {
  if (c.srcMemoryType == CU_MEMORYTYPE_ARRAY) {
    return {};
  }
  const auto first = c.srcMemoryType == CU_MEMORYTYPE_HOST ? reinterpret_cast<std::uint64_t>(c.srcHost) : c.srcDevice;
  if constexpr (requires { c.Depth; }) {
    return {first + (c.srcZ * c.srcHeight + c.srcY) * c.srcPitch + c.srcXInBytes,
            c.WidthInBytes,
            c.Height,
            c.Depth,
            c.srcPitch,
            c.srcHeight};
  } else {
    return {first + c.srcY * c.srcPitch + c.srcXInBytes, c.WidthInBytes, c.Height, 1, c.srcPitch, 0};
  }
}
/// What it writes, likewise.
template <class Copy>
[[nodiscard]] deepum::interpose::copy_extent target_of(const Copy& c) {
  if (c.dstMemoryType == CU_MEMORYTYPE_ARRAY) {
    return {};
  }
  const auto first = c.dstMemoryType == CU_MEMORYTYPE_HOST ? reinterpret_cast<std::uint64_t>(c.dstHost) : c.dstDevice;
  if constexpr (requires { c.Depth; }) {
    return {first + (c.dstZ * c.dstHeight + c.dstY) * c.dstPitch + c.dstXInBytes,
            c.WidthInBytes,
            c.Height,
            c.Depth,
            c.dstPitch,
            c.dstHeight};
  } else {
    return {first + c.dstY * c.dstPitch + c.dstXInBytes, c.WidthInBytes, c.Height, 1, c.dstPitch, 0};
  }
}

}  // namespace deepum_run
