// pthread_setname_np, MAP_ANONYMOUS and MADV_DONTFORK are hidden from plain C11.
#define _GNU_SOURCE

#include "deepum_uvm_events.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

// --- The driver's protocol. All that is known of its layout is written here, and nowhere else. -----------------------
//
// Source of the facts: github.com/NVIDIA/open-gpu-kernel-modules, kernel-open/nvidia-uvm/{uvm_ioctl.h,uvm_types.h,
// uvm_tools.c}, read at 515.43.04, 550.40.07, 555.42.02, 560.28.03, 565.57.01, 575.51.02 and 615.71.09 (of the last
// uvm_ioctl.h alone). Run on 580.
//
// A reader opens /dev/nvidia-uvm-tools and lends it two stretches of its own memory, which the driver pins:
//   queue    a power of two of records of 64 bytes;
//   control  528 bytes: four 32-bit indices, then 64 counters of 64 bits.
// The driver appends at `put` and the reader takes at `get`; both are indices below the number of slots. One slot stays
// free, so a queue of N slots holds N - 1 records. When it is full, the driver adds one to the counter of the record's
// type and throws the record away. It trusts nothing in the control page and masks every index before use.
//
// Requests (the plain numbers; UVM ioctls carry neither direction nor size):
enum {
  request_attach = 56,     // UVM_TOOLS_INIT_EVENT_TRACKER
  request_threshold = 57,  // UVM_TOOLS_SET_NOTIFICATION_THRESHOLD
  request_enable = 58,     // UVM_TOOLS_EVENT_QUEUE_ENABLE_EVENTS
  request_disable = 59,    // UVM_TOOLS_EVENT_QUEUE_DISABLE_EVENTS
  request_flush = 67       // UVM_TOOLS_FLUSH_EVENTS, of /dev/nvidia-uvm itself
};
// Each request that the driver understands returns 0; whether it was carried out is in a status word, 0 if so.
//
// The parameters of request_attach differ. Up to byte 48 they are one, then come:
//   byte        48              52                 56              total
//   515 - 550   status (out)    -                                  56
//   555         status (out)    version (in)       granted (out)   64
//   560         version (in)    status (out)                       56
//   565 -       status (out)    -                                  56   (request 76 asks for version 2)
// Version 1 is the record of 64 bytes, which every branch can write; version 2 has 72 bytes and is not used. A branch
// that knows versions refuses any but 1 and 2. So both words are sent as 1 to every branch, and the answer tells where
// the status is: at 52 if the driver changed that word, else at 48. That point releases of one branch need not agree
// then does not matter. (No status the request can have is 1.)
//
// Statuses seen here: 0x16 NV_ERR_ILLEGAL_ACTION, the descriptor has no VA space (CUDA holds such a one too, for the
// process's memory map); 0x1b NV_ERR_INSUFFICIENT_PERMISSIONS, it is not /dev/nvidia-uvm at all.
union parameters {
  struct {
    uint64_t queue;              // 0: address of the queue
    uint64_t queue_records;      // 8: slots
    uint64_t control;            // 16: address of the control page
    uint8_t processor[16];       // 24: for counters only, not for queues
    uint32_t all_processors;     // 40: likewise
    uint32_t uvm_descriptor;     // 44: /dev/nvidia-uvm of this process
    uint32_t status_or_version;  // 48
    uint32_t version_or_status;  // 52
    uint32_t granted;            // 56
    uint32_t padding;            // 60
  } attach;
  struct {
    uint32_t records;  // 0: wake the poller when that many wait, once for each value of get_ahead
    uint32_t status;   // 4
  } threshold;
  struct {
    uint64_t types;   // 0: bit t is type t; 1 to 14 are allowed
    uint32_t status;  // 8
  } enable;           // and disable
  struct {
    uint32_t status;  // 0
  } flush;
  uint8_t bytes[64];
};
static_assert(sizeof(union parameters) == 64, "the largest parameters of any branch");
enum { queue_version = 1 };

// The control page. Indices come in pairs so that readers may claim slots before they copy them; one reader alone needs
// one of each pair and sets both.
struct control {
  _Atomic uint32_t get_ahead;    // 0: first slot not yet claimed; poll and wake-ups compare with this
  _Atomic uint32_t get_behind;   // 4: first slot still in use; the driver finds the queue full by this
  _Atomic uint32_t put_ahead;    // 8: set just before put_behind
  _Atomic uint32_t put_behind;   // 12: first slot not yet written; set last, after the record
  _Atomic uint64_t dropped[64];  // 16: records thrown away, by type, since the page was attached
};
static_assert(sizeof(struct control) == 528, "UvmToolsEventControlData");
static_assert(sizeof(_Atomic uint32_t) == 4 && sizeof(_Atomic uint64_t) == 8,
              "atomics have the layout of the integers");

// Records of version 1, 64 bytes. Byte 0 is the type; offsets of what is read:
enum { record_bytes = 64 };
enum {
  type_cpu_fault = 1,  // access 1, address 8, cpu time 16
  type_migration = 2,  // cause 1, from 2, to 3, address 8, bytes 16, cpu time 24 (queued), gpu time 48 (began)
  type_fault = 3,      // access 2, gpu 3, address 8, cpu time 16, gpu time 24, batch (32 bits) 32, client 36
  type_overflow = 5    // reserved: the driver has no record of it yet
};
// Type 14, eviction, may be enabled, but 580 never writes it: what it evicts are migrations of that cause.
// Access: 1 read, 2 write, 3 atomic, 4 prefetch. Cause: as deepum_uvm_cause. Client: 1 compute, 2 copy engine and such.

// Branches whose layout is known. Between them nothing was seen to differ; beyond them nobody can know.
enum { first_branch = 515, last_branch = 615 };

static uint32_t bits32(const uint8_t* at) {
  uint32_t value;
  memcpy(&value, at, sizeof value);
  return value;
}

static uint64_t bits64(const uint8_t* at) {
  uint64_t value;
  memcpy(&value, at, sizeof value);
  return value;
}

static const uint8_t type_of_kind[DEEPUM_UVM_KINDS] = {
    [DEEPUM_UVM_FAULT] = type_fault,         [DEEPUM_UVM_CPU_FAULT] = type_cpu_fault,
    [DEEPUM_UVM_MIGRATION] = type_migration, [DEEPUM_UVM_EVICTION] = type_migration,
    [DEEPUM_UVM_OVERFLOW] = type_overflow,
};

/// Translates a record of the driver. False: of no type or access that is known.
static bool decode(const uint8_t* bytes, deepum_uvm_record* out) {
  memset(out, 0, sizeof *out);
  out->repeats = 1;
  unsigned access = 1;
  switch (bytes[0]) {
    case type_fault:
      out->kind = DEEPUM_UVM_FAULT;
      access = bytes[2];
      out->gpu = bytes[3];
      out->address = bits64(bytes + 8);
      out->cpu_time = bits64(bytes + 16);
      out->gpu_time = bits64(bytes + 24);
      out->batch = bits32(bytes + 32);
      break;
    case type_cpu_fault:
      out->kind = DEEPUM_UVM_CPU_FAULT;
      access = bytes[1];
      out->address = bits64(bytes + 8);
      out->cpu_time = bits64(bytes + 16);
      break;
    case type_migration:
      out->kind = DEEPUM_UVM_MIGRATION;
      out->cause = bytes[1] <= DEEPUM_UVM_CAUSE_ACCESS_COUNTERS ? bytes[1] : DEEPUM_UVM_CAUSE_UNKNOWN;
      out->gpu = bytes[2];
      out->to = bytes[3];
      out->address = bits64(bytes + 8);
      out->bytes = bits64(bytes + 16);
      out->cpu_time = bits64(bytes + 24);
      out->gpu_time = bits64(bytes + 48);
      break;
    case type_overflow:
      out->kind = DEEPUM_UVM_OVERFLOW;
      break;
    default:
      return false;
  }
  if (access < 1 || access > 4) return false;
  out->access = (uint8_t)(access - 1);
  return true;
}

// --- The real operating system. --------------------------------------------------------------------------------------

static int real_open(void* context, const char* path) {
  (void)context;
  const int descriptor = open(path, O_RDWR | O_CLOEXEC);
  return descriptor < 0 ? -errno : descriptor;
}

static void real_close(void* context, int descriptor) {
  (void)context;
  close(descriptor);
}

static int real_ioctl(void* context, int descriptor, unsigned long request, void* parameters) {
  (void)context;
  return ioctl(descriptor, request, parameters) < 0 ? -errno : 0;
}

static int real_poll(void* context, int descriptor, int timeout_ms) {
  (void)context;
  struct pollfd entry = {.fd = descriptor, .events = POLLIN};
  const int ready = poll(&entry, 1, timeout_ms);
  if (ready < 0) return -errno;
  if (ready > 0 && !(entry.revents & POLLIN)) return entry.revents & POLLNVAL ? -EBADF : -EIO;
  return ready;
}

static int real_descriptors(void* context, int (*visit)(void*, int, const char*), void* state) {
  (void)context;
  DIR* const directory = opendir("/proc/self/fd");
  if (!directory) return -errno;
  for (const struct dirent* entry; (entry = readdir(directory));) {
    char* end;
    const long descriptor = strtol(entry->d_name, &end, 10);
    if (end == entry->d_name || *end) continue;
    char target[256];
    const ssize_t length = readlinkat(dirfd(directory), entry->d_name, target, sizeof target - 1);
    if (length < 0) continue;  // another thread has closed it
    target[length] = 0;
    if (visit(state, (int)descriptor, target)) break;
  }
  closedir(directory);
  return 0;
}

static int real_read_text(void* context, const char* path, char* text, size_t size) {
  (void)context;
  const int descriptor = open(path, O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) return -errno;
  size_t length = 0;
  int result = 0;
  while (length + 1 < size) {
    const ssize_t got = read(descriptor, text + length, size - 1 - length);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) result = -errno;
    if (got <= 0) break;
    length += (size_t)got;
  }
  text[length] = 0;
  close(descriptor);
  return result;
}

static void* real_map(void* context, size_t bytes) {
  (void)context;
  void* const memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return NULL;
  // After a fork this process's next write would go to a copy of the page, while the driver holds on to the old one.
  (void)madvise(memory, bytes, MADV_DONTFORK);
  return memory;
}

static void real_unmap(void* context, void* memory, size_t bytes) {
  (void)context;
  munmap(memory, bytes);
}

static const deepum_uvm_system real_system = {
    .open = real_open,
    .close = real_close,
    .ioctl = real_ioctl,
    .poll = real_poll,
    .descriptors = real_descriptors,
    .read_text = real_read_text,
    .map = real_map,
    .unmap = real_unmap,
};

// --- The reader. -----------------------------------------------------------------------------------------------------

enum {
  default_records = 1u << 16,  // at 1.6 million faults a second (10 GB/s of demand paging) 40 ms: two time-outs
  default_poll_ms = 20,
  // Wake-ups and time-outs empty the queue in steps of this many records, so that `take` need not wait for long.
  step_records = 4096,
  patience = 8  // failures of poll in a row before the thread gives up
};

// Who was the last fault of a block, access, GPU and client? Direct-mapped: two that fall on one slot evict each other,
// which costs a repeated record and nothing else.
struct recent {
  uint64_t key;
  uint64_t order;  // 0: free
  uint32_t batch;
};
enum { block_bits = 21, recent_bits = 12 };

struct deepum_uvm_events {
  const deepum_uvm_system* system;
  int descriptor;
  int poll_ms;
  unsigned kinds;
  uint64_t types;
  uint32_t slots;
  uint8_t* queue;
  struct control* control;
  uintptr_t first, size;
  bool keep_repeats;

  pthread_t thread;
  atomic_bool stop;

  pthread_mutex_t lock;  // guards all below, and who reads the queue
  uint32_t get;          // first slot not yet read; the control page has a copy
  deepum_uvm_record* ring;
  uint32_t ring_slots, oldest, waiting;
  uint64_t order;       // of the newest record
  uint64_t lost_up_to;  // order of the last record that the ring dropped
  struct recent* recent;
  deepum_uvm_counts counts;
};

/// Whether the record is of a kind and about addresses that somebody wants.
static bool wanted(const deepum_uvm_events* r, const deepum_uvm_record* record) {
  if (!(r->kinds >> record->kind & 1u)) return false;
  if (!r->size || record->kind == DEEPUM_UVM_OVERFLOW) return true;
  const uint64_t last = record->bytes ? record->address + (record->bytes - 1) : record->address;
  return record->address <= (uint64_t)r->first + (r->size - 1) && last >= r->first;
}

/// Slot of the ring with the record of that order, which is waiting. Orders in the ring have no gaps.
static uint32_t slot_of(const deepum_uvm_events* r, uint64_t order) {
  const uint64_t slot = r->oldest + (order - r->ring[r->oldest].order);
  return (uint32_t)(slot % r->ring_slots);
}

/// Appends to the ring. The oldest record gives way: the newest are those a prediction needs.
static void push(deepum_uvm_events* r, const deepum_uvm_record* record) {
  if (r->waiting == r->ring_slots) {
    r->lost_up_to = r->ring[r->oldest].order;
    r->oldest = (r->oldest + 1) % r->ring_slots;
    r->waiting--;
    r->counts.dropped_by_ring++;
  }
  deepum_uvm_record* const slot = &r->ring[(uint32_t)(((uint64_t)r->oldest + r->waiting) % r->ring_slots)];
  *slot = *record;
  slot->order = ++r->order;
  r->waiting++;
}

/// Appends a GPU fault, unless the same batch had one of the same block, access and GPU: the driver writes up to 350
/// records for one block, each for another page or another unit of the GPU.
static void push_fault(deepum_uvm_events* r, const deepum_uvm_record* record, unsigned client) {
  const uint64_t key =
      record->address >> block_bits << 12 | (uint64_t)record->gpu << 4 | (client & 3u) << 2 | record->access;
  struct recent* const seen = &r->recent[key * UINT64_C(0x9e3779b97f4a7c15) >> (64 - recent_bits)];
  if (seen->order > r->lost_up_to && seen->key == key && seen->batch == record->batch) {
    r->counts.collapsed++;
    if (r->waiting && seen->order >= r->ring[r->oldest].order) {
      uint32_t* const repeats = &r->ring[slot_of(r, seen->order)].repeats;
      if (*repeats != UINT32_MAX) ++*repeats;
    }
    return;
  }
  push(r, record);
  *seen = (struct recent){.key = key, .order = r->order, .batch = record->batch};
}

/// Tells the driver how far its queue has been read.
static void release(deepum_uvm_events* r) {
  atomic_store_explicit(&r->control->get_ahead, r->get, memory_order_relaxed);
  atomic_store_explicit(&r->control->get_behind, r->get, memory_order_release);
}

/// How many records wait in the driver's queue.
///
/// The control page is ordinary memory of the process. Where its indices make no sense, somebody wrote over them: the
/// driver goes on at `put`, masked, and so does the reader, at the cost of what lay in between.
static uint32_t pending(deepum_uvm_events* r) {
  const uint32_t mask = r->slots - 1;
  const uint32_t put = atomic_load_explicit(&r->control->put_behind, memory_order_acquire);
  const uint32_t get = atomic_load_explicit(&r->control->get_behind, memory_order_relaxed);
  const uint32_t count = (put - r->get) & mask;
  if (put <= mask && get == r->get) return count;
  r->counts.resyncs++;
  r->counts.dropped_by_resync += count;
  r->get = put & mask;
  if (put > mask) atomic_compare_exchange_strong(&r->control->put_behind, &(uint32_t){put}, r->get);
  release(r);
  return 0;
}

/// Reads `count` records, which are there, into the ring.
static void drain(deepum_uvm_events* r, uint32_t count) {
  if (!count) return;
  for (uint32_t i = 0; i < count; ++i) {
    uint8_t* const slot = r->queue + (size_t)r->get * record_bytes;
    r->get = (r->get + 1) & (r->slots - 1);
    deepum_uvm_record record;
    const bool known = decode(slot, &record);
    const unsigned client = slot[36];
    if (record.cause == DEEPUM_UVM_CAUSE_EVICTION && r->kinds >> DEEPUM_UVM_EVICTION & 1u)
      record.kind = DEEPUM_UVM_EVICTION;
    slot[0] = 0;  // should the indices ever lie, a slot that has been read is not taken for a new record
    if (!known) {
      r->counts.unknown++;
    } else if (!wanted(r, &record)) {
      r->counts.filtered++;
    } else if (record.kind == DEEPUM_UVM_FAULT && !r->keep_repeats) {
      push_fault(r, &record, client);
    } else {
      push(r, &record);
    }
  }
  r->counts.read += count;
  release(r);
}

static void nap(void) { nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL); }

static void* run(void* argument) {
  deepum_uvm_events* const r = argument;
  int failures = 0;
  while (failures < patience && !atomic_load(&r->stop)) {
    const int ready = r->system->poll(r->system->context, r->descriptor, r->poll_ms);
    const bool failed = ready < 0 && ready != -EINTR;
    failures = failed ? failures + 1 : 0;

    // Whatever poll said, records may be there: a lost wake-up costs no more than the time-out.
    pthread_mutex_lock(&r->lock);
    if (failed) {
      r->counts.poll_errors++;
    } else if (ready > 0) {
      r->counts.wake_ups++;
    } else {
      r->counts.timeouts++;
    }
    // No more than were there to begin with, so that a fast writer does not keep the thread from its other duties.
    uint32_t left = pending(r);
    const bool idle = left == 0;
    while (left) {
      const uint32_t step = left < step_records ? left : step_records;
      drain(r, step);
      pthread_mutex_unlock(&r->lock);
      pthread_mutex_lock(&r->lock);
      const uint32_t now = pending(r);  // `take` may have read on meanwhile
      left = left - step < now ? left - step : now;
    }
    pthread_mutex_unlock(&r->lock);
    if (idle && ready != 0) nap();  // a failing poll, or one that is ready without a reason, must not burn a core
  }
  pthread_mutex_lock(&r->lock);
  r->counts.thread_alive = 0;
  pthread_mutex_unlock(&r->lock);
  return NULL;
}

// --- Opening and closing. --------------------------------------------------------------------------------------------

struct teller {
  char* message;
  size_t size;
};

/// Writes the message and returns the code.
__attribute__((format(printf, 3, 4))) static int fail(const struct teller* to, int code, const char* format, ...) {
  if (to->message && to->size) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(to->message, to->size, format, arguments);
    va_end(arguments);
  }
  return code;
}

static int check(const deepum_uvm_options* o, const struct teller* tell) {
  if (o->queue_records < 2 || o->queue_records > 1u << 22 || (o->queue_records & (o->queue_records - 1)))
    return fail(tell, EINVAL, "queue_records is %u; it must be a power of two from 2 to 4194304, or 0",
                o->queue_records);
  if (o->ring_records > 1u << 24)
    return fail(tell, EINVAL, "ring_records is %u; it may be 1 to 16777216, or 0", o->ring_records);
  if (o->kinds >> DEEPUM_UVM_KINDS)
    return fail(tell, EINVAL, "kinds is %#x; only the bits 0 to %d mean something", o->kinds, DEEPUM_UVM_KINDS - 1);
  if (o->size && o->size - 1 > UINTPTR_MAX - o->first)
    return fail(tell, EINVAL, "the range of %#zx bytes from %#zx goes beyond the last address", (size_t)o->size,
                (size_t)o->first);
  if (o->poll_ms < 1 || o->poll_ms > 1000)
    return fail(tell, EINVAL, "poll_ms is %d; it may be 1 to 1000, or 0", o->poll_ms);
  if (o->uvm_descriptor < 0) return fail(tell, EINVAL, "uvm_descriptor is %d, no descriptor", o->uvm_descriptor);
  const deepum_uvm_system* const s = o->system;
  if (!s->open || !s->close || !s->ioctl || !s->poll || !s->descriptors || !s->read_text || !s->map || !s->unmap)
    return fail(tell, EINVAL, "system lacks a function");
  return 0;
}

/// The first word like 580.65.06, wherever it stands: the line before it differs between the kinds of the driver.
/// `version` receives it; returns the branch, 0 if there is none.
static unsigned branch_in(const char* text, char* version, size_t size) {
  for (const char* word = text; *word;) {
    const size_t length = strcspn(word, " \t\r\n");
    unsigned branch = 0;
    size_t digits = 0;
    for (; digits < length && digits < 6 && word[digits] >= '0' && word[digits] <= '9'; ++digits)
      branch = branch * 10 + (unsigned)(word[digits] - '0');
    if (digits && digits + 1 < length && word[digits] == '.' && word[digits + 1] >= '0' && word[digits + 1] <= '9') {
      snprintf(version, size, "%.*s", (int)(length < size ? length : size - 1), word);
      return branch;
    }
    word += length;
    word += strspn(word, " \t\r\n");
  }
  return 0;
}

static int find_branch(deepum_uvm_events* r, const deepum_uvm_options* o, const struct teller* tell) {
  if (o->driver_branch) {
    r->counts.driver_branch = o->driver_branch;
    return 0;
  }
  static const char* const files[] = {"/proc/driver/nvidia/version", "/sys/module/nvidia/version"};
  char text[1024], version[32] = "";
  unsigned branch = 0;
  for (size_t i = 0; !branch && i < sizeof files / sizeof *files; ++i)
    if (r->system->read_text(r->system->context, files[i], text, sizeof text) == 0)
      branch = branch_in(text, version, sizeof version);
  if (!branch)
    return fail(tell, ENOENT,
                "no version of an NVIDIA driver in %s or %s: load the driver, or, where these files are hidden, set "
                "driver_branch (to 580, say)",
                files[0], files[1]);
  if (branch < first_branch || branch > last_branch)
    return fail(tell, ENOTSUP,
                "driver %s is of branch %u, and only %d to %d are known here: use one of them, update this reader, or, "
                "if the header uvm_ioctl.h of that driver has not changed, set driver_branch to %d",
                version, branch, first_branch, last_branch, branch < first_branch ? first_branch : last_branch);
  r->counts.driver_branch = branch;
  return 0;
}

static const char tools_path[] = "/dev/nvidia-uvm-tools";

struct search {
  deepum_uvm_events* reader;
  unsigned tried;
  int error;        // of the last try: negative errno, or 0
  uint32_t status;  // of the last try
  bool found;
};

/// Asks the driver for the events of the VA space behind `descriptor`. Returns 1 when it agreed.
static int attach(struct search* search, int descriptor) {
  deepum_uvm_events* const r = search->reader;
  union parameters p = {.attach = {.queue = (uintptr_t)r->queue,
                                   .queue_records = r->slots,
                                   .control = (uintptr_t)r->control,
                                   .all_processors = 1,
                                   .uvm_descriptor = (uint32_t)descriptor,
                                   .status_or_version = queue_version,
                                   .version_or_status = queue_version}};
  search->tried++;
  search->error = r->system->ioctl(r->system->context, r->descriptor, request_attach, &p);
  search->status =
      p.attach.version_or_status != queue_version ? p.attach.version_or_status : p.attach.status_or_version;
  search->found = search->error == 0 && search->status == 0;
  if (search->found) r->counts.uvm_descriptor = descriptor;
  return search->found;
}

static int visit(void* state, int descriptor, const char* target) {
  const char* const slash = strrchr(target, '/');
  return slash && strcmp(slash + 1, "nvidia-uvm") == 0 ? attach(state, descriptor) : 0;
}

static int find_process(deepum_uvm_events* r, const deepum_uvm_options* o, const struct teller* tell) {
  struct search search = {.reader = r};
  if (o->uvm_descriptor) {
    attach(&search, o->uvm_descriptor);
  } else {
    const int error = r->system->descriptors(r->system->context, visit, &search);
    if (error && !search.found)
      return fail(tell, -error, "cannot list this process's descriptors in /proc/self/fd: %s", strerror(-error));
  }
  if (search.found) return 0;
  if (!search.tried)
    return fail(tell, ENODEV,
                "this process has no open /dev/nvidia-uvm: initialise CUDA first (cudaFree(0)), then open the reader");
  if (search.error)
    return fail(tell, -search.error, "the driver (branch %u) does not understand the request for events: %s",
                r->counts.driver_branch, strerror(-search.error));
  return fail(tell, EPERM,
              "the driver (branch %u) refused the events of all %u open /dev/nvidia-uvm, the last with status %#x: "
              "initialise CUDA first (cudaFree(0)), and open the reader in the process that did",
              r->counts.driver_branch, search.tried, search.status);
}

static int enable(deepum_uvm_events* r, const struct teller* tell) {
  union parameters p = {.threshold = {.records = r->slots / 4 ? r->slots / 4 : 1}};
  int error = r->system->ioctl(r->system->context, r->descriptor, request_threshold, &p);
  if (error || p.threshold.status)
    return fail(tell, error ? -error : EIO, "the driver did not take the wake-up threshold: errno %d, status %#x",
                -error, p.threshold.status);
  p = (union parameters){.enable = {.types = r->types}};
  error = r->system->ioctl(r->system->context, r->descriptor, request_enable, &p);
  if (error || p.enable.status)
    return fail(tell, error ? -error : EIO, "the driver did not enable the events %#llx: errno %d, status %#x",
                (unsigned long long)r->types, -error, p.enable.status);
  return 0;
}

static int start(deepum_uvm_events* r, const struct teller* tell) {
  // Signals are the program's: none of its handlers should find itself on this thread.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  r->counts.thread_alive = 1;
  const int error = pthread_create(&r->thread, NULL, run, r);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  if (error) return fail(tell, error, "cannot start a thread: %s", strerror(error));
  pthread_setname_np(r->thread, "deepum-uvm");
  return 0;
}

/// Gives back whatever there is of a reader without a thread.
static void dismantle(deepum_uvm_events* r) {
  const deepum_uvm_system* const s = r->system;
  // The driver lets go of the memory when the descriptor is closed, so this comes first.
  if (r->descriptor >= 0) s->close(s->context, r->descriptor);
  if (r->queue) s->unmap(s->context, r->queue, (size_t)r->slots * record_bytes);
  if (r->control) s->unmap(s->context, r->control, sizeof *r->control);
  free(r->ring);
  free(r->recent);
  pthread_mutex_destroy(&r->lock);
  free(r);
}

static int assemble(deepum_uvm_events* r, const deepum_uvm_options* o, const struct teller* tell) {
  r->ring = calloc(o->ring_records, sizeof *r->ring);
  r->recent = calloc((size_t)1 << recent_bits, sizeof *r->recent);
  if (!r->ring || !r->recent) return fail(tell, ENOMEM, "no memory for a ring of %u records", o->ring_records);
  int error = find_branch(r, o, tell);
  if (error) return error;

  const deepum_uvm_system* const s = r->system;
  r->descriptor = s->open(s->context, tools_path);
  if (r->descriptor == -ENOENT || r->descriptor == -ENXIO || r->descriptor == -ENODEV)
    return fail(tell, ENOENT,
                "no %s: load nvidia-uvm and make its nodes (nvidia-modprobe -u -c 0), and let a container see this one",
                tools_path);
  if (r->descriptor == -EACCES || r->descriptor == -EPERM)
    return fail(tell, EACCES, "no right to %s: it needs mode 0666, or, in a container, to be among its devices",
                tools_path);
  if (r->descriptor < 0) return fail(tell, -r->descriptor, "cannot open %s: %s", tools_path, strerror(-r->descriptor));

  r->queue = s->map(s->context, (size_t)r->slots * record_bytes);
  r->control = s->map(s->context, sizeof *r->control);
  if (!r->queue || !r->control) return fail(tell, ENOMEM, "no memory for a queue of %u records", r->slots);
  if ((error = find_process(r, o, tell))) return error;
  if ((error = enable(r, tell))) return error;
  return start(r, tell);
}

int deepum_uvm_events_open(deepum_uvm_events** out, const deepum_uvm_options* options, char* message,
                           size_t message_size) {
  const struct teller tell = {message, message_size};
  fail(&tell, 0, "%s", "");
  if (!out) return fail(&tell, EINVAL, "there is no place for the reader: out is NULL");
  *out = NULL;

  deepum_uvm_options o = options ? *options : (deepum_uvm_options){0};
  if (!o.queue_records) o.queue_records = default_records;
  if (!o.ring_records) o.ring_records = default_records;
  if (!o.kinds) o.kinds = 1u << DEEPUM_UVM_FAULT;
  if (!o.poll_ms) o.poll_ms = default_poll_ms;
  if (!o.system) o.system = &real_system;
  int error = check(&o, &tell);
  if (error) return error;

  deepum_uvm_events* const r = calloc(1, sizeof *r);
  if (!r) return fail(&tell, ENOMEM, "no memory for the reader");
  r->system = o.system;
  r->descriptor = -1;
  r->poll_ms = o.poll_ms;
  r->kinds = o.kinds;
  r->slots = o.queue_records;
  r->ring_slots = o.ring_records;
  r->first = o.first;
  r->size = o.size;
  r->keep_repeats = o.keep_repeats != 0;
  for (unsigned kind = 0; kind < DEEPUM_UVM_KINDS; ++kind)
    if (o.kinds >> kind & 1u) r->types |= UINT64_C(1) << type_of_kind[kind];
  atomic_init(&r->stop, false);
  pthread_mutex_init(&r->lock, NULL);

  error = assemble(r, &o, &tell);
  if (error) {
    dismantle(r);
    return error;
  }
  *out = r;
  return 0;
}

size_t deepum_uvm_events_take(deepum_uvm_events* r, deepum_uvm_record* out, size_t capacity) {
  size_t taken = 0;
  if (!out) capacity = 0;
  pthread_mutex_lock(&r->lock);
  // In turns, so that nothing is lost to a ring that is smaller than the queue; and only what is there now, so that a
  // fast writer cannot hold the caller.
  uint32_t left = pending(r);
  for (;;) {
    for (; taken < capacity && r->waiting; ++taken, --r->waiting) {
      out[taken] = r->ring[r->oldest];
      r->oldest = (r->oldest + 1) % r->ring_slots;
    }
    const uint32_t room = r->ring_slots - r->waiting;
    const uint32_t step = left < room ? left : room;
    if (!step) break;
    drain(r, step);
    left -= step;
  }
  r->counts.handed_over += taken;
  pthread_mutex_unlock(&r->lock);
  return taken;
}

int deepum_uvm_events_flush(deepum_uvm_events* r) {
  union parameters p = {.flush = {0}};
  const int error = r->system->ioctl(r->system->context, r->counts.uvm_descriptor, request_flush, &p);
  return error ? -error : p.flush.status ? EIO : 0;
}

void deepum_uvm_events_counts(const deepum_uvm_events* events, deepum_uvm_counts* counts) {
  deepum_uvm_events* const r = (deepum_uvm_events*)(uintptr_t)events;  // to lock it; readers are never const objects
  pthread_mutex_lock(&r->lock);
  *counts = r->counts;
  counts->waiting = r->waiting;
  for (size_t type = 0; type < 64; ++type)
    counts->dropped_by_driver += atomic_load_explicit(&r->control->dropped[type], memory_order_relaxed);
  counts->dropped_faults = atomic_load_explicit(&r->control->dropped[type_fault], memory_order_relaxed);
  pthread_mutex_unlock(&r->lock);
}

void deepum_uvm_events_close(deepum_uvm_events* r) {
  if (!r) return;
  atomic_store(&r->stop, true);
  pthread_join(r->thread, NULL);
  union parameters p = {.enable = {.types = r->types}};
  (void)r->system->ioctl(r->system->context, r->descriptor, request_disable, &p);
  dismantle(r);
}
