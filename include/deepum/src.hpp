#pragma once

/// @file
/// The parts of the library that can be compiled once instead of in every source file, most of what an arena costs to
/// compile. Define DEEPUM_SEPARATE_COMPILATION for the whole program, and include this file in one of its source files,
/// with a CUDA device <deepum/cuda/src.hpp> too. The CMake targets `deepum::compiled` and `deepum::compiled_cuda` do
/// so.

#ifndef DEEPUM_SEPARATE_COMPILATION
#error "<deepum/src.hpp> is for programs that are compiled with DEEPUM_SEPARATE_COMPILATION, all their files"
#endif

#include <deepum/arena/impl/back.hpp>
#include <deepum/arena/impl/checker.hpp>
#include <deepum/arena/impl/front.hpp>
#include <deepum/arena/impl/host_contents.hpp>
#include <deepum/arena/impl/lending.hpp>
#include <deepum/arena/impl/new_memory.hpp>
#include <deepum/arena/impl/produced_bytes.hpp>
#include <deepum/arena/impl/reports.hpp>
#include <deepum/arena/impl/residency.hpp>
#include <deepum/arena/impl/rooms.hpp>
#include <deepum/arena/impl/set_up.hpp>
#include <deepum/arena/impl/slice_arguments.hpp>
#include <deepum/arena/impl/sliced_launches.hpp>
#include <deepum/arena/impl/slicing.hpp>
#include <deepum/arena/impl/stream_copies.hpp>
#include <deepum/arena/impl/stream_launches.hpp>
#include <deepum/arena/impl/stream_uploads.hpp>
#include <deepum/arena/impl/submission.hpp>
#include <deepum/arena/impl/upload_runner.hpp>
#include <deepum/core/impl/sequence.hpp>
#include <deepum/deepum.hpp>
#include <deepum/engine/impl/accounting.hpp>
#include <deepum/engine/impl/admission.hpp>
#include <deepum/engine/impl/block_contents.hpp>
#include <deepum/engine/impl/budget.hpp>
#include <deepum/engine/impl/demand_pager.hpp>
#include <deepum/engine/impl/discards.hpp>
#include <deepum/engine/impl/dispatcher.hpp>
#include <deepum/engine/impl/engine.hpp>
#include <deepum/engine/impl/event_intake.hpp>
#include <deepum/engine/impl/fact_intake.hpp>
#include <deepum/engine/impl/gates.hpp>
#include <deepum/engine/impl/host_access.hpp>
#include <deepum/engine/impl/inbox.hpp>
#include <deepum/engine/impl/neighbour_tier.hpp>
#include <deepum/engine/impl/upload_desk.hpp>
#include <deepum/engine/impl/uploads.hpp>
#include <deepum/impl/environment.hpp>
#include <deepum/impl/trace.hpp>
#include <deepum/policy/impl/make_policy.hpp>
#include <deepum/sim/impl/active_walks.hpp>
#include <deepum/sim/impl/address_space.hpp>
#include <deepum/sim/impl/command_queue.hpp>
#include <deepum/sim/impl/contents.hpp>
#include <deepum/sim/impl/copy_way.hpp>
#include <deepum/sim/impl/device.hpp>
#include <deepum/sim/impl/device_memory.hpp>
#include <deepum/sim/impl/driver.hpp>
#include <deepum/sim/impl/event_loop.hpp>
#include <deepum/sim/impl/executor.hpp>
#include <deepum/sim/impl/fault_service.hpp>
#include <deepum/sim/impl/link.hpp>
#include <deepum/sim/impl/machine.hpp>
#include <deepum/sim/impl/managed_memory.hpp>
#include <deepum/sim/impl/managed_space.hpp>
#include <deepum/sim/impl/paged_contents.hpp>
#include <deepum/sim/impl/paged_memory.hpp>
#include <deepum/sim/impl/profile.hpp>
#include <deepum/sim/impl/stream.hpp>
#include <deepum/sim/impl/worker.hpp>
#include <deepum/tracing/impl/trace_entries.hpp>
#include <deepum/tracing/impl/trace_file.hpp>

namespace deepum {
inline namespace v0 {

template class arena<sim::managed_memory>;
template class arena<sim::paged_memory>;
template class stream<sim::managed_memory>;
template class stream<sim::paged_memory>;

}  // namespace v0
}  // namespace deepum
