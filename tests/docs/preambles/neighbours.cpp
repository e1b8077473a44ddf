// A simulated machine of several devices.
#include <deepum/arena.hpp>
#include <deepum/core/location.hpp>
#include <deepum/sim/machine.hpp>
#include <deepum/sim/paged_memory.hpp>
#include <deepum/sim/stream.hpp>
#include <deepum/units.hpp>

using namespace deepum::literals;
using arena_type = deepum::arena<deepum::sim::paged_memory>;

void in_function(deepum::sim::machine& machine) {
  // the block
}
