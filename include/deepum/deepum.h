/* The library for programs in C (C11) and C++ (C++17): arenas, streams and launches on a CUDA device.
 *
 * Link deepum::c (docs/porting.md). Nothing here needs C++20; the C++ headers are another way to the same library.
 *
 * Every call that can fail returns a deepum_status, DEEPUM_OK where all is well; deepum_last_error() then says in one
 * line what was wrong and what to do. No call throws or ends the program. Pointers of an arena are plain pointers of
 * the device. Sizes are in bytes.
 *
 * Threads: calls on an arena from any thread; calls on a stream from one thread at a time.
 */
#ifndef DEEPUM_DEEPUM_H
#define DEEPUM_DEEPUM_H

/* C, which has other habits than the C++ of the library. NOLINTBEGIN */

#include <stddef.h>
#include <stdint.h>

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

/* --- Errors. --- */

/* What went wrong. The numbers stay. */
typedef enum deepum_status {
  DEEPUM_OK = 0,
  DEEPUM_INVALID_ARGUMENT = 1,     /* the caller passed something that can never work */
  DEEPUM_OUT_OF_ARENA_SPACE = 2,   /* the arena's address range has no gap that is large enough */
  DEEPUM_OUT_OF_DEVICE_MEMORY = 3, /* the device cannot hold what a launch needs */
  DEEPUM_OUT_OF_HOST_MEMORY = 4,   /* the host cannot back what was asked for */
  DEEPUM_FOREIGN_POINTER = 5,      /* a pointer that this arena did not hand out */
  DEEPUM_DOUBLE_FREE = 6,          /* a pointer that was given back already */
  DEEPUM_DEVICE_FAILURE = 7,       /* a call of CUDA failed; deepum_last_native_error() has its number */
  DEEPUM_UNSUPPORTED = 8,          /* this device, driver or build cannot do it */
  DEEPUM_IO_FAILURE = 9,           /* a file could not be read or written */
  DEEPUM_BAD_FORMAT = 10,          /* a file was read, but is not what it should be */
  DEEPUM_WRONG_DECLARATION = 11,   /* checked mode: a launch did what it does not declare */
  DEEPUM_OTHER_FAILURE = 100       /* something below the library failed, such as memory of the process */
} deepum_status;

/* What the last failing call of this thread had to say; "" where none has failed. Valid until the next one fails. */
const char* deepum_last_error(void);
/* The number that CUDA, or the function of deepum_call, returned in that call; 0 where none did. */
int deepum_last_native_error(void);

/* --- Arenas: memory of which more is allocated than the device has. --- */

typedef struct deepum_arena deepum_arena;

typedef enum deepum_memory {
  DEEPUM_MANAGED = 0, /* managed memory: launches need not declare anything to be right */
  DEEPUM_PAGED = 1    /* never faults, moves both ways at the rate of the link: launches declare all that they touch */
} deepum_memory;

/* Begin with DEEPUM_DEFAULT_OPTIONS; what is 0 or NULL is chosen by the library. */
typedef struct deepum_arena_options {
  size_t size;          /* sizeof(deepum_arena_options), by which later versions know what is there */
  int device;           /* number of the CUDA device */
  deepum_memory memory; /* kind */
  uint64_t capacity;    /* address range; 0: four times the device's memory, as far as there is memory for it */
  uint64_t budget;      /* device memory to hold at most; 0: what is free, less 512 MiB. DEEPUM_BUDGET overrides it */
  const char* policy;   /* NULL: "auto". DEEPUM_POLICY overrides it */
  const char* tables;   /* a file of deepum_save_tables to begin with; NULL: none */
  int zero_new;         /* not 0: new memory reads as zero, reused memory too */
  int checked;          /* not 0: finds wrong declarations, slowly. DEEPUM_CHECK overrides it */
  void (*log)(const char* line, void* user); /* NULL: to standard error. From any thread, one at a time */
  void* log_user;
} deepum_arena_options;

#define DEEPUM_DEFAULT_OPTIONS \
  { sizeof(deepum_arena_options), 0, DEEPUM_MANAGED, 0, 0, NULL, NULL, 0, 0, NULL, NULL }

/* Makes an arena. Managed memory needs DEEPUM_MANAGED_LIMIT only where that is set: see docs/guide.md.
 * options: NULL for all defaults. */
deepum_status deepum_arena_create(const deepum_arena_options* options, deepum_arena** made);
/* Ends it, and all memory in it. DEEPUM_INVALID_ARGUMENT, and nothing ends, while it has streams. NULL is fine.
 * A program may end without it, by exit() at any place outside of deepum_call: the reports that the environment asks
 * for are written then, and launches that have not finished end with the process, as those of CUDA do. */
deepum_status deepum_arena_destroy(deepum_arena* arena);

/* As cudaMalloc; size 0 gives NULL. Takes no device memory before a launch uses it. */
deepum_status deepum_malloc(deepum_arena* arena, void** p, uint64_t size);
/* As cudaFree, but waits for nothing: the memory is used again behind the launches that came before. NULL is fine. */
deepum_status deepum_free(deepum_arena* arena, void* p);
/* A pointer into these bytes means them from now on, not the whole allocation that they lie in: for programs that
 * carve tensors out of one allocation. Cost: linear in the parts that the allocation has. */
deepum_status deepum_name_part(deepum_arena* arena, const void* p, uint64_t size);

/* A hint: the bytes will be used on the device (to_device not 0) or on the host. */
deepum_status deepum_prefetch(deepum_arena* arena, const void* p, uint64_t size, int to_device);
/* The contents are of no value once the launches that were issued before have finished, until they are written. */
deepum_status deepum_mark_inactive(deepum_arena* arena, const void* p, uint64_t size);
/* The memory is in use again; what it holds is undefined. Before launches that do not declare it. */
deepum_status deepum_mark_active(deepum_arena* arena, const void* p, uint64_t size);

typedef enum deepum_access {
  DEEPUM_READ = 0,     /* left as it is */
  DEEPUM_UPDATE = 1,   /* read and written, or written in part */
  DEEPUM_OVERWRITE = 2 /* every byte is written before any is read: a promise, what was there is of no value */
} deepum_access;

/* The host uses bytes until deepum_host_end with the same arguments. Waits until it may; synchronise with launches
 * first. host: where the host finds them, which for managed memory is p itself. */
deepum_status deepum_host_begin(deepum_arena* arena, void* p, uint64_t size, deepum_access mode, void** host);
deepum_status deepum_host_end(deepum_arena* arena, void* p, uint64_t size, deepum_access mode);

/* Device memory that the contents hold at most, now. */
uint64_t deepum_budget(const deepum_arena* arena);
/* Changes it; 0: what is free, less 512 MiB. */
deepum_status deepum_set_budget(deepum_arena* arena, uint64_t budget);
/* What was done so far, as JSON, into text[0 .. size), with a 0 at the end, cut where it does not fit.
 * needed: room for all of it; NULL where that is not wanted. */
deepum_status deepum_statistics_json(deepum_arena* arena, char* text, size_t size, size_t* needed);
/* Saves what the policy has learned, for deepum_arena_options.tables of the next run. */
deepum_status deepum_save_tables(deepum_arena* arena, const char* path);

/* --- Streams and launches. --- */

typedef struct deepum_stream deepum_stream;

/* On a stream that the program has (cudaStreamLegacy is the default stream), in order with all that is enqueued there;
 * it outlives this. NULL: a stream of its own, ordered with no other one. */
deepum_status deepum_stream_create(deepum_arena* arena, cudaStream_t existing, deepum_stream** made);
/* Waits for its launches, and ends it. NULL is fine. */
deepum_status deepum_stream_destroy(deepum_stream* stream);
/* As cudaStreamSynchronize. */
deepum_status deepum_synchronize(deepum_stream* stream);
/* For events and what is not ported: on paged memory that goes through deepum_call. */
cudaStream_t deepum_native(const deepum_stream* stream);

/* Memory that a launch touches in one way. */
typedef struct deepum_operand {
  const void* p;
  uint64_t size; /* DEEPUM_WHOLE: the allocation that p lies in, or its part */
  deepum_access mode;
} deepum_operand;

#define DEEPUM_WHOLE UINT64_MAX

static inline deepum_operand deepum_reads(const void* p, uint64_t size) {
  deepum_operand o;
  o.p = p, o.size = size, o.mode = DEEPUM_READ;
  return o;
}
static inline deepum_operand deepum_updates(void* p, uint64_t size) {
  deepum_operand o;
  o.p = p, o.size = size, o.mode = DEEPUM_UPDATE;
  return o;
}
static inline deepum_operand deepum_overwrites(void* p, uint64_t size) {
  deepum_operand o;
  o.p = p, o.size = size, o.mode = DEEPUM_OVERWRITE;
  return o;
}

/* Launches a kernel as cudaLaunchKernel does, as a launch that the library recognises by its name and operands.
 * operands: all that it touches; none (n 0) means that this is not known. An error of a declaration (memory that is
 * free, a size beyond the allocation) comes before anything is launched. */
deepum_status deepum_launch(deepum_stream* stream, const char* name, const deepum_operand* operands, size_t n,
                            const void* kernel, dim3 grid, dim3 block, void** arguments, size_t shared);

/* What deepum_call runs: enqueues on the stream, and returns 0, or an error (of CUDA, of a library) that the call then
 * fails with as DEEPUM_DEVICE_FAILURE. */
typedef int (*deepum_enqueue)(cudaStream_t stream, void* user);
/* Runs enqueue(stream, user) at once; all that it enqueues counts as one launch: calls of libraries, kernels. */
deepum_status deepum_call(deepum_stream* stream, const char* name, const deepum_operand* operands, size_t n,
                          deepum_enqueue enqueue, void* user);

/* As cudaMemcpyAsync with cudaMemcpyDefault; either side may lie outside of the arena. */
deepum_status deepum_memcpy(deepum_stream* stream, void* to, const void* from, uint64_t size);
/* As cudaMemcpy: the copy is done when it returns. */
deepum_status deepum_memcpy_and_wait(deepum_stream* stream, void* to, const void* from, uint64_t size);
/* As cudaMemsetAsync. */
deepum_status deepum_memset(deepum_stream* stream, void* to, int value, uint64_t size);

#ifdef __cplusplus
}
#endif

/* NOLINTEND */

#endif
