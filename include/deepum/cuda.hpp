#pragma once

// A CUDA device as the arena's: deepum::cuda::device gpu{0}; deepum::arena arena{gpu, {...}}; deepum::stream s{arena};
// memory without page faults: deepum::arena<deepum::cuda::mapped_memory> arena{gpu, {...}}.

#include <deepum/cuda/device.hpp>
#include <deepum/cuda/managed_memory.hpp>
#include <deepum/cuda/mapped_memory.hpp>
#include <deepum/cuda/stream.hpp>
