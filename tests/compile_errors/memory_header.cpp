// As host.cpp: the header of the device's memory is missing.

#include <deepum/arena.hpp>
#include <deepum/sim/device.hpp>

void program(deepum::sim::device& gpu) {
  // error: the header of this device's memory is missing: include <deepum/cuda.hpp>
  deepum::arena arena{gpu, {.policy = "lru"}};
}
