#pragma once

/// @file
/// What <deepum/src.hpp> is for the headers of `deepum/cuda/`: with DEEPUM_SEPARATE_COMPILATION, include it in one
/// source file of a program that has a CUDA device. The CMake target `deepum::compiled_cuda` does so.

#ifndef DEEPUM_SEPARATE_COMPILATION
#error "<deepum/cuda/src.hpp> is for programs that are compiled with DEEPUM_SEPARATE_COMPILATION, all their files"
#endif

#include <deepum/cuda.hpp>
#include <deepum/cuda/completion/impl/gpu_clock.hpp>
#include <deepum/cuda/completion/impl/launch_log.hpp>
#include <deepum/cuda/completion/impl/launch_watch.hpp>
#include <deepum/cuda/faults/impl/fault_intake.hpp>
#include <deepum/cuda/faults/impl/find_fault_feed.hpp>
#include <deepum/cuda/impl/device.hpp>
#include <deepum/cuda/impl/device_space.hpp>
#include <deepum/cuda/impl/managed_limit.hpp>
#include <deepum/cuda/impl/managed_memory.hpp>
#include <deepum/cuda/impl/paged_memory.hpp>
#include <deepum/cuda/impl/virtual_memory.hpp>
#include <deepum/cuda/managed/impl/migration_lane.hpp>
#include <deepum/cuda/paged/impl/arrivals.hpp>
#include <deepum/cuda/paged/impl/departures.hpp>
#include <deepum/cuda/paged/impl/device_chunks.hpp>
#include <deepum/cuda/paged/impl/host_chunks.hpp>
#include <deepum/cuda/paged/impl/launch_view.hpp>

namespace deepum {
inline namespace v0 {

template class cuda::basic_stream<cuda::managed_memory>;
template class arena<cuda::managed_memory>;
template class stream<cuda::managed_memory>;

template class cuda::basic_stream<cuda::paged_memory>;
template class arena<cuda::paged_memory>;
template class stream<cuda::paged_memory>;

}  // namespace v0
}  // namespace deepum
