/// Reads the unified-memory events of its own process (GPU page faults, migrations, evictions) from the NVIDIA driver's
/// /dev/nvidia-uvm-tools. C11, Linux, libc and pthread alone; no root. README.md beside this file has the protocol.
#ifndef DEEPUM_UVM_EVENTS_H
#define DEEPUM_UVM_EVENTS_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/// One reader: a queue in the driver, a thread that empties it, and a ring of records nobody has taken yet.
typedef struct deepum_uvm_events deepum_uvm_events;

/// What a record is about. In `deepum_uvm_options::kinds` kind k is the bit 1u << k.
enum deepum_uvm_kind {
  DEEPUM_UVM_FAULT = 0,      ///< a GPU touched a page it has no (sufficient) mapping of
  DEEPUM_UVM_CPU_FAULT = 1,  ///< a host thread touched a managed page that is elsewhere
  DEEPUM_UVM_MIGRATION = 2,  ///< pages were copied from one processor's memory to another's
  DEEPUM_UVM_EVICTION = 3,   ///< the same, to make room; a migration like others where this kind is not asked for
  DEEPUM_UVM_OVERFLOW = 4,   ///< a GPU's own fault buffer ran over; no public driver writes this record yet
  DEEPUM_UVM_KINDS = 5
};

/// How a faulting access would have used its page.
enum deepum_uvm_access {
  DEEPUM_UVM_READ = 0,
  DEEPUM_UVM_WRITE = 1,
  DEEPUM_UVM_ATOMIC = 2,
  DEEPUM_UVM_PREFETCH_ACCESS = 3  ///< a prefetch instruction; the kernel may never use the page
};

/// Why the driver migrated pages.
enum deepum_uvm_cause {
  DEEPUM_UVM_CAUSE_UNKNOWN = 0,
  DEEPUM_UVM_CAUSE_USER = 1,            ///< cudaMemPrefetchAsync and the like
  DEEPUM_UVM_CAUSE_COHERENCE = 2,       ///< somebody faulted on the page
  DEEPUM_UVM_CAUSE_PREFETCH = 3,        ///< the driver's own guess about the neighbours of a fault
  DEEPUM_UVM_CAUSE_EVICTION = 4,        ///< to make room
  DEEPUM_UVM_CAUSE_ACCESS_COUNTERS = 5  ///< the page was used remotely so often that it was moved
};

/// One event. Processors are numbered as the driver does: 0 is the host, GPUs count from 1 in the order in which the
/// driver registered them. A MIG instance bears the number of its GPU.
typedef struct deepum_uvm_record {
  uint64_t order;     ///< counts from 1 in the order of the driver's queue; a gap: the ring dropped what lay between
  uint64_t address;   ///< virtual; faults: of the page of the first access; others: start of the range
  uint64_t bytes;     ///< migration, eviction: length of the range; else 0
  uint64_t gpu_time;  ///< ns, that GPU's timer: fault: entry written; migration: copy began; else 0. Not sorted
  uint64_t cpu_time;  ///< ns, the driver's clock: fault: handling began; migration: copy queued
  uint32_t batch;     ///< GPU faults: number of the batch that the driver handled it in, per GPU; else 0
  uint8_t kind;       ///< deepum_uvm_kind
  uint8_t access;     ///< deepum_uvm_access; faults alone
  uint8_t gpu;        ///< faults: the processor that faulted; migration, eviction: the source
  uint8_t to;         ///< migration, eviction: the target; else 0
  uint32_t repeats;   ///< driver records that this one stands for, at least 1 (see deepum_uvm_options::keep_repeats)
  uint8_t cause;      ///< deepum_uvm_cause; migrations and evictions alone
  uint8_t reserved[3];
} deepum_uvm_record;

/// The parts of the operating system the reader uses. NULL in the options is the real one; tests give a fake device.
/// `context` goes to every function. Every function may be called from any thread; none may call the reader.
typedef struct deepum_uvm_system {
  void* context;
  /// Opens the device for reading and writing: a descriptor, or a negative errno.
  int (*open)(void* context, const char* path);
  void (*close)(void* context, int descriptor);
  /// 0, or a negative errno. `parameters` are at least 64 bytes, whatever the request.
  int (*ioctl)(void* context, int descriptor, unsigned long request, void* parameters);
  /// Waits until the driver has something: positive; 0 after the time-out; a negative errno on failure.
  int (*poll)(void* context, int descriptor, int timeout_ms);
  /// Calls `visit(state, descriptor, target)` for each open descriptor of the process with what its link in
  /// /proc/self/fd names, until `visit` returns other than 0. Returns 0, or a negative errno.
  int (*descriptors)(void* context, int (*visit)(void* state, int descriptor, const char* target), void* state);
  /// The text of a file, cut off at `size` - 1 and ended by a zero. 0, or a negative errno.
  int (*read_text)(void* context, const char* path, char* text, size_t size);
  /// Zeroed memory of whole pages that no child process inherits; NULL: none.
  void* (*map)(void* context, size_t bytes);
  void (*unmap)(void* context, void* memory, size_t bytes);
} deepum_uvm_system;

/// All zeroes is a reader of all GPU faults.
typedef struct deepum_uvm_options {
  uint32_t queue_records;  ///< slots of the driver's queue, a power of two from 2 to 2^22; 0: 65536 (4 MiB)
  uint32_t ring_records;   ///< records kept until they are taken, 1 to 2^24; 0: 65536 (4 MiB)
  unsigned kinds;          ///< bits of deepum_uvm_kind; 0: GPU faults alone; migrations and evictions slow faults down
  uintptr_t first, size;   ///< only addresses in [first, first + size), ranges that overlap it; size 0: all
  int keep_repeats;  ///< not 0: hand over every fault record; 0: those alike in 2 MiB block, access, GPU and batch once
  int poll_ms;       ///< the thread looks at least this often, 1 to 1000; 0: 20
  int uvm_descriptor;      ///< this process's /dev/nvidia-uvm with the VA space; 0: look for it in /proc/self/fd
  unsigned driver_branch;  ///< treat the driver as of this branch (580, say); 0: read its version
  const deepum_uvm_system* system;  ///< NULL: the real one; must outlive the reader
} deepum_uvm_options;

/// What happened since the reader was opened.
typedef struct deepum_uvm_counts {
  uint64_t read;               ///< records read from the driver's queue
  uint64_t handed_over;        ///< records given by deepum_uvm_events_take
  uint64_t waiting;            ///< records in the ring now
  uint64_t collapsed;          ///< fault records that `repeats` of another stands for
  uint64_t filtered;           ///< records of other kinds, or outside [first, first + size)
  uint64_t unknown;            ///< records of a type or access this reader does not know
  uint64_t dropped_by_driver;  ///< records of all kinds the driver threw away because its queue was full
  uint64_t dropped_faults;     ///< GPU faults among them
  uint64_t dropped_by_ring;    ///< oldest records of the ring that gave way to newer ones
  uint64_t dropped_by_resync;  ///< records skipped when the queue's indices made no sense
  uint64_t resyncs;            ///< how often they did not
  uint64_t wake_ups;           ///< returns of poll with something to read
  uint64_t timeouts;           ///< returns of poll after the time-out
  uint64_t poll_errors;        ///< failures of poll
  int thread_alive;            ///< 0: the thread gave up (poll kept failing); `take` still reads all there is
  unsigned driver_branch;      ///< 580, say
  int uvm_descriptor;          ///< the descriptor whose VA space is observed
} deepum_uvm_counts;

/// Starts reading the events of this process. CUDA must be initialised in it (cudaFree(0) is enough), since the driver
/// names the process by its open /dev/nvidia-uvm. Several readers may be open at once; each gets every record.
/// @param out           The reader, or NULL on failure.
/// @param options       NULL: all zeroes.
/// @param message       What was wrong and what to do, cut off at `message_size`; empty on success. May be NULL.
/// @returns 0, or: EINVAL an option, ENOENT no driver or no device node, EACCES no right to it, ENODEV CUDA is not
///          initialised in this process, ENOTSUP unknown driver branch, EPERM the driver refused every VA space,
///          ENOMEM, or another errno of the call that failed.
/// Cost: milliseconds, two mappings of 4 MiB by default, one thread, one descriptor.
int deepum_uvm_events_open(deepum_uvm_events** out, const deepum_uvm_options* options, char* message,
                           size_t message_size);

/// Reads what the driver has written so far, then hands over the oldest records nobody has taken, in order of `order`.
/// Any thread, several at once: each record goes to one of them. Waits for no driver call and allocates nothing; needs
/// no live thread. What does not fit stays for the next call. A fault reaches the queue when the driver handles it, a
/// migration some time after the copy.
/// @returns How many were written to `out`. Cost: about 20 ns a record under one lock.
size_t deepum_uvm_events_take(deepum_uvm_events* events, deepum_uvm_record* out, size_t capacity);

/// Has the driver write the records of all copies that are over. It looks at its channels now and then only, and may
/// keep the records of a prefetch for as long as the program moves little. Faults are written without it. Any thread.
/// Cost: waits for the driver's own thread.
/// @returns 0, or an errno.
int deepum_uvm_events_flush(deepum_uvm_events* events);

/// Any thread.
void deepum_uvm_events_counts(const deepum_uvm_events* events, deepum_uvm_counts* counts);

/// Stops the thread, detaches from the driver and frees all; waits for up to `poll_ms`. What nobody took is lost.
/// Nobody may use the reader any more, nor a child process that inherited it. NULL is fine.
void deepum_uvm_events_close(deepum_uvm_events* events);

#ifdef __cplusplus
}
#endif

#endif
