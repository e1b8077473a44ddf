// As host.cpp: the header of the device's streams is missing.

#include <deepum/arena.hpp>
#include <deepum/sim/managed_memory.hpp>

void program(deepum::sim::device& gpu) {
  // error: the header of this device's stream is missing: include <deepum/cuda.hpp>
  deepum::arena arena{gpu, {.policy = "lru"}};
}
