/* A process that has initialised CUDA and has an arena. */
#include <stdint.h>
#include <stdio.h>

void in_function(void* arena, uint64_t arena_bytes) {
  // In a scope of its own, so that it may have its own names for what is there.
  {
    // the block
  }
}
