/* A program in C11 on the library: what c_face_test.cpp runs. */

#include "cuda/c_program.h"

#include <deepum/deepum.h>

#include <stdio.h>
#include <string.h>

#define CHECK(call)                                                                  \
  do {                                                                               \
    if ((call) != DEEPUM_OK) {                                                       \
      snprintf(said, room, "line %d: %s: %s", __LINE__, #call, deepum_last_error()); \
      return 1;                                                                      \
    }                                                                                \
  } while (0)

static int fill_seven(cudaStream_t stream, void* p) { return (int)cudaMemsetAsync(p, 7, 1024, stream); }

int run_c_program(deepum_memory memory, const void* add_kernel, char* said, size_t room) {
  enum { layers = 6, n = 1 << 20 };
  deepum_arena_options options = DEEPUM_DEFAULT_OPTIONS;
  deepum_arena* arena = NULL;
  deepum_stream* stream = NULL;
  uint32_t* layer[layers];
  uint32_t* one = NULL;
  int step, i;

  options.memory = memory;
  options.capacity = 256u << 20;
  options.budget = 48u << 20; /* three chunks of paged memory, of seven allocations of at least a chunk */
  CHECK(deepum_arena_create(&options, &arena));
  CHECK(deepum_stream_create(arena, NULL, &stream));
  for (i = 0; i < layers; ++i) {
    CHECK(deepum_malloc(arena, (void**)&layer[i], 16u << 20));
    CHECK(deepum_memset(stream, layer[i], 0, 16u << 20));
  }
  CHECK(deepum_malloc(arena, (void**)&one, 4096));
  {
    uint32_t* host = NULL;
    CHECK(deepum_host_begin(arena, one, sizeof *one, DEEPUM_UPDATE, (void**)&host));
    *host = 1;
    CHECK(deepum_host_end(arena, one, sizeof *one, DEEPUM_UPDATE));
  }
  for (step = 0; step < 5; ++step) {
    for (i = 0; i < layers; ++i) {
      const uint32_t count = n;
      void* arguments[3];
      deepum_operand operands[2];
      dim3 grid, block;
      grid.x = 64, grid.y = 1, grid.z = 1;
      block.x = 256, block.y = 1, block.z = 1;
      arguments[0] = &layer[i], arguments[1] = &one, arguments[2] = (void*)&count;
      operands[0] = deepum_updates(layer[i], n * sizeof(uint32_t));
      operands[1] = deepum_reads(one, DEEPUM_WHOLE);
      CHECK(deepum_launch(stream, "add", operands, 2, add_kernel, grid, block, arguments, 0));
    }
  }
  for (i = 0; i < layers; ++i) {
    uint32_t last = 0;
    CHECK(deepum_memcpy_and_wait(stream, &last, layer[i] + n - 1, sizeof last));
    if (last != 5) {
      snprintf(said, room, "layer %d ends with %u after 5 steps", i, (unsigned)last);
      return 1;
    }
  }
  {
    deepum_operand whole = deepum_updates(layer[0], 1024);
    unsigned char bytes[4] = {0};
    CHECK(deepum_call(stream, "fill", &whole, 1, fill_seven, layer[0]));
    CHECK(deepum_memcpy(stream, bytes, layer[0], sizeof bytes));
    CHECK(deepum_synchronize(stream));
    if (memcmp(bytes, "\7\7\7\7", 4) != 0) {
      snprintf(said, room, "what a call enqueued was not done");
      return 1;
    }
  }
  {
    char json[64];
    size_t needed = 0;
    CHECK(deepum_statistics_json(arena, json, sizeof json, &needed));
    if (needed <= sizeof json || strlen(json) != sizeof json - 1 || json[0] != '{') {
      snprintf(said, room, "statistics: %s, %zu needed", json, needed);
      return 1;
    }
  }
  CHECK(deepum_stream_destroy(stream));
  for (i = 0; i < layers; ++i) {
    CHECK(deepum_free(arena, layer[i]));
  }
  CHECK(deepum_free(arena, one));
  CHECK(deepum_arena_destroy(arena));
  return 0;
}
