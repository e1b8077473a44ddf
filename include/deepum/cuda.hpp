#pragma once

// A CUDA device as the arena's: deepum::cuda::device gpu{0}; deepum::arena arena{gpu, {...}}; deepum::stream s{arena};
// memory without page faults: deepum::arena<deepum::cuda::paged_memory> arena{gpu, {...}}.

#include <deepum/cuda/device.hpp>
#include <deepum/cuda/managed_memory.hpp>
#include <deepum/cuda/paged_memory.hpp>
#include <deepum/cuda/stream.hpp>

#ifdef DEEPUM_SEPARATE_COMPILATION

// Arenas and streams of the two memory kinds are compiled once as well: <deepum/cuda/src.hpp> has the definitions.

#include <deepum/arena.hpp>
#include <deepum/engine/engine.hpp>
#include <deepum/stream.hpp>

namespace deepum {
inline namespace v0 {

extern template class cuda::basic_stream<cuda::managed_memory>;
extern template class arena<cuda::managed_memory>;
extern template class stream<cuda::managed_memory>;

extern template class cuda::basic_stream<cuda::paged_memory>;
extern template class arena<cuda::paged_memory>;
extern template class stream<cuda::paged_memory>;

}  // namespace v0
}  // namespace deepum

#endif
