#pragma once

#include "session.hpp"

#include <cuda.h>

#include <cstddef>

// Memory that the program takes and gives back, whatever function it calls for that.
namespace deepum_run {

/// A stream in whose order memory is taken and given back.
struct ordered_in {
  CUstream stream;
  default_stream kind;
};

/// Memory of the arena of the thread's device.
/// @param managed  The program asks for managed memory.
/// @param on       Launches of this stream use it first; null: nobody knows which.
[[nodiscard]] CUresult take_memory(CUdeviceptr* out, std::size_t size, bool managed, const ordered_in* on = nullptr);
/// @param on  Behind what was put into this stream; null: behind all.
CUresult give_back(session& s, CUdeviceptr p, const ordered_in* on = nullptr);

}  // namespace deepum_run
