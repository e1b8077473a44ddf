#pragma once

// Everything that needs no CUDA.

#include <deepum/arena.hpp>
#include <deepum/dim.hpp>
#include <deepum/error.hpp>
#include <deepum/grid_slice.hpp>
#include <deepum/host_view.hpp>
#include <deepum/operand.hpp>
#include <deepum/sim/device.hpp>
#include <deepum/sim/kernel.hpp>
#include <deepum/sim/machine.hpp>
#include <deepum/sim/managed_memory.hpp>
#include <deepum/sim/paged_memory.hpp>
#include <deepum/sim/stream.hpp>
#include <deepum/slices.hpp>
#include <deepum/stream.hpp>
#include <deepum/units.hpp>
#include <deepum/version.hpp>

#ifdef DEEPUM_SEPARATE_COMPILATION
// Compiled once too: see <deepum/src.hpp>.
namespace deepum {
inline namespace v0 {

extern template class arena<sim::managed_memory>;
extern template class arena<sim::paged_memory>;
extern template class stream<sim::managed_memory>;
extern template class stream<sim::paged_memory>;

}  // namespace v0
}  // namespace deepum
#endif
