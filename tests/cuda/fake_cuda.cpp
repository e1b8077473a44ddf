#include "cuda/fake_cuda.hpp"

#include <deepum/core/block.hpp>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cuda.h>

#include <algorithm>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <set>
#include <thread>

#ifdef __SANITIZE_THREAD__
// The run-time library of ThreadSanitizer has these; there is no header for all of them.
extern "C" {
void AnnotateIgnoreSyncBegin(const char* file, int line);
void AnnotateIgnoreSyncEnd(const char* file, int line);
void AnnotateIgnoreReadsBegin(const char* file, int line);
void AnnotateIgnoreReadsEnd(const char* file, int line);
void AnnotateIgnoreWritesBegin(const char* file, int line);
void AnnotateIgnoreWritesEnd(const char* file, int line);
void __tsan_acquire(void* address);
void __tsan_release(void* address);
}
#endif

namespace {

using namespace deepum_test::fake_cuda;
using deepum::access;  // not the one of POSIX
using deepum::nanoseconds;

constexpr std::size_t block_bytes = deepum::block_size.count;
constexpr std::size_t granularity = std::size_t{2} << 20;  ///< of the virtual memory management
constexpr std::size_t unlimited = std::numeric_limits<std::size_t>::max();

/// One recording of an event.
struct recording {
  bool done = false;
  nanoseconds at{};
};

struct event {
  bool timing = true;
  std::shared_ptr<recording> latest;  ///< none before the first
  CUcontext context = nullptr;
  bool captured = false;  ///< it was last recorded in a stream that was being captured
};

/// Bytes that an operation of a stream reads or writes.
struct use {
  const std::byte* first;
  std::size_t size;
  bool writes;
};

struct fifo;

struct operation {
  std::function<void()> work;
  std::vector<use> uses;  ///< as far as they are known before it begins
  /// What has to be finished in other streams before: the order that the legacy stream makes.
  std::vector<std::pair<std::shared_ptr<fifo>, std::uint64_t>> behind;
};

/// Operations that were captured. A graph and what was made of it are the same here.
struct recorded_graph {
  std::vector<std::function<void()>> operations;
  std::vector<std::shared_ptr<void>> objects;  ///< of the program's, destroyed with the last of them
};

struct fifo {
  std::deque<operation> queue;
  std::vector<use> uses;  ///< of the operation that is executed
  std::uint64_t issued = 0;
  std::uint64_t finished = 0;
  bool blocking = true;  ///< ordered with the legacy stream, which is so too
  bool held = false;
  bool capturing = false;
  cudaStreamCaptureMode capture_mode = cudaStreamCaptureModeGlobal;
  std::thread::id capturer{};                 ///< the thread that began the capture; none: a test did
  bool invalidated = false;                   ///< somebody has done what the capture forbids
  std::shared_ptr<recorded_graph> recording;  ///< of a capture that cudaStreamBeginCapture began
  cudaGraph_t graph = nullptr;                ///< what that will be
  bool closing = false;
  CUcontext context = nullptr;  ///< of the legacy stream: none
  std::thread worker;
};

struct allocation {
  cudaMemoryType type{};
  std::byte* base = nullptr;
  std::size_t size = 0;
  std::vector<block> blocks;  ///< of managed memory
};

/// What a handle of the virtual memory management stands for: a piece of the file.
struct physical {
  std::size_t offset = 0;
  std::size_t size = 0;
  bool on_device = false;
  bool released = false;
  unsigned mappings = 0;
};

/// A mapping.
struct view {
  std::size_t size = 0;
  CUmemGenericAllocationHandle handle = 0;
  CUmemAccess_flags device = CU_MEM_ACCESS_FLAGS_PROT_NONE;
  CUmemAccess_flags host = CU_MEM_ACCESS_FLAGS_PROT_NONE;
};

struct injection {
  std::string name;  ///< empty: any
  unsigned left = 0;
  cudaError_t error{};
  bool always = false;
};

/// All that `reset` sets back.
struct state {
  int device_count = 1;
  std::map<int, int> attributes{{cudaDevAttrConcurrentManagedAccess, 1}, {cudaDevAttrManagedMemory, 1},
                                {cudaDevAttrUnifiedAddressing, 1},       {cudaDevAttrMultiProcessorCount, 132},
                                {cudaDevAttrComputeCapabilityMajor, 9},  {cudaDevAttrComputeCapabilityMinor, 0},
                                {cudaDevAttrAsyncEngineCount, 3},        {cudaDevAttrWarpSize, 32}};
  std::size_t total = std::size_t{1} << 30;
  std::size_t foreign = 0;
  bool no_contexts = false;  ///< cuCtxCreate fails
  std::map<const void*, std::shared_ptr<recorded_graph>> graphs;
  std::map<const void*, std::shared_ptr<void>> user_objects;  ///< that no graph has taken
  std::size_t plain = 0;                                      ///< cudaMalloc
  std::uint64_t migrations = 0;
  nanoseconds clock_offset{};
  std::mt19937_64 random;
  std::chrono::microseconds longest_delay{};
  nanoseconds leaving_time{};
  fault_sink sink;
  nanoseconds fault_delay{};

  std::map<const void*, std::shared_ptr<fifo>> streams;  ///< nullptr: the legacy stream, once it is used
  std::vector<std::shared_ptr<fifo>> destroyed;
  std::map<const void*, event> events;
  std::map<const std::byte*, allocation> allocations;  ///< by base
  std::map<CUcontext, int> contexts;                   ///< by cuCtxCreate, with their devices
  std::map<int, int> retained;                         ///< primary contexts, how often
  std::set<int> opened;                                ///< devices whose primary context has been made

  std::size_t host_total = unlimited;     ///< for handles
  std::size_t address_space = unlimited;  ///< for reserved ranges
  std::size_t reserved_bytes = 0;
  std::map<const std::byte*, std::size_t> reserved;  ///< sizes, by base
  std::map<const std::byte*, view> views;            ///< by first byte
  std::map<CUmemGenericAllocationHandle, physical> handles;
  std::size_t file_size = 0;
  std::vector<std::pair<std::byte*, std::size_t>> abandoned;  ///< given back when no kernel runs any more

  cudaError_t broken = cudaSuccess;
  std::vector<injection> injections;

  statistics counted;
  std::uint64_t leaving = 0;   ///< bytes of copies from handles of the device to the host's that are under way
  std::uint64_t in_a_row = 0;  ///< of such copies, since none was
  std::map<std::string, std::uint64_t, std::less<>> calls;
  std::vector<hint> hints;
  std::vector<launch> launches;
  std::vector<std::string> failed;
};

/// Never destroyed: workers may outlive main's statics.
struct runtime {
  std::mutex mutex;
  std::condition_variable changed;  ///< an operation was issued or is done, or something was set
  state now;
  std::map<const void*, std::function<bound_kernel(void**)>> kernels;
  std::uintptr_t next_handle = 0x1000;
  const int file = ::memfd_create("fake device memory", MFD_CLOEXEC);  ///< of which handles are pieces
};
runtime& rt() {
  static auto* const r = new runtime;
  return *r;
}

thread_local cudaError_t last_error = cudaSuccess;
thread_local cudaStreamCaptureMode capture_mode = cudaStreamCaptureModeGlobal;
thread_local std::vector<CUcontext> contexts_below;
thread_local int thread_device = 0;                ///< what cudaSetDevice has chosen
thread_local CUcontext current_context = nullptr;  ///< none: the next call of the runtime takes that device's
thread_local fifo* executing = nullptr;            ///< the stream whose worker this is

/// Ends the body of a kernel, or another operation, that has made an illegal access.
struct illegal_access {};

CUcontext primary(int device) { return reinterpret_cast<CUcontext>(static_cast<std::uintptr_t>(0x10 + device)); }
bool is_primary(CUcontext c) { return reinterpret_cast<std::uintptr_t>(c) < 0x1000 && c != nullptr; }
CUcontext context_now() { return current_context != nullptr ? current_context : primary(thread_device); }

// --- What ThreadSanitizer sees. The fake's own mutex orders all that is done with it, which would hide races of those
// who use it. So it is kept from seeing what happens under the mutex, and told of the order that CUDA promises. ---

void ignore([[maybe_unused]] bool on) {
#ifdef __SANITIZE_THREAD__
  (on ? AnnotateIgnoreSyncBegin : AnnotateIgnoreSyncEnd)(__FILE__, __LINE__);
  (on ? AnnotateIgnoreReadsBegin : AnnotateIgnoreReadsEnd)(__FILE__, __LINE__);
  (on ? AnnotateIgnoreWritesBegin : AnnotateIgnoreWritesEnd)(__FILE__, __LINE__);
#endif
}

/// The fake's mutex, held.
class guard {
 public:
  guard() : held_(rt().mutex, std::defer_lock) { lock(); }
  ~guard() {
    if (held_.owns_lock()) unlock();
  }
  guard(const guard&) = delete;
  guard& operator=(const guard&) = delete;

  void lock() {
    ignore(true);
    held_.lock();
  }
  void unlock() {
    held_.unlock();
    ignore(false);
  }
  template <class F>
  void wait(F done) {
    rt().changed.wait(held_, std::move(done));
  }

 private:
  std::unique_lock<std::mutex> held_;
};

/// What was done before `release_order(x)` happens before what is done after a later `acquire_order(x)`.
void release_order([[maybe_unused]] void* what) {
#ifdef __SANITIZE_THREAD__
  ignore(false);
  __tsan_release(what);
  ignore(true);
#endif
}
void acquire_order([[maybe_unused]] void* what) {
#ifdef __SANITIZE_THREAD__
  ignore(false);
  __tsan_acquire(what);
  ignore(true);
#endif
}

/// f(state), with the mutex.
template <class F>
auto locked(F f) {
  const guard held;
  return f(rt().now);
}

// --- All that follows needs the mutex, unless it says otherwise. ---

bool sticks(cudaError_t e) {
  return e == cudaErrorECCUncorrectable || e == cudaErrorLaunchTimeout || e == cudaErrorIllegalAddress ||
         e == cudaErrorAssert || (e >= cudaErrorHardwareStackError && e <= cudaErrorLaunchFailure);
}

nanoseconds clock_now() { return std::chrono::steady_clock::now().time_since_epoch() + rt().now.clock_offset; }

// --- Memory. ---

/// The allocation that [p, p + size) lies in.
allocation* find(const void* p, std::size_t size = 1) {
  auto& all = rt().now.allocations;
  const auto* first = static_cast<const std::byte*>(p);
  auto it = all.upper_bound(first);
  if (it == all.begin()) return nullptr;
  allocation& a = std::prev(it)->second;
  const auto offset = static_cast<std::size_t>(first - a.base);
  return offset < a.size && size <= a.size - offset ? &a : nullptr;
}

allocation* find_managed(const void* p, std::size_t size) {
  allocation* a = size == 0 ? nullptr : find(p, size);
  return a != nullptr && a->type == cudaMemoryTypeManaged ? a : nullptr;
}

/// Calls f(block, first byte of [p, p + size) in it) for managed memory, nothing for other memory.
template <class F>
void for_each_block(const void* p, std::size_t size, F f) {
  allocation* a = find_managed(p, size);
  if (a == nullptr) return;
  const auto begin = static_cast<std::size_t>(static_cast<const std::byte*>(p) - a->base);
  for (std::size_t i = begin / block_bytes; i <= (begin + size - 1) / block_bytes; ++i) {
    f(a->blocks[i], a->base + std::max(begin, i * block_bytes));
  }
}

void leave_device(block& b) {
  if (b.on_device) --rt().now.counted.device_blocks;
  b.on_device = false;
}

void copy_to_host(block& b) {
  if (b.on_device && !b.on_host && !b.discarded) ++rt().now.counted.to_host;
  b.on_host = true;
}

std::size_t used() {
  const state& s = rt().now;
  return s.counted.device_blocks * block_bytes + s.plain + s.counted.device_handles.count + s.foreign;
}

/// Evicts until `size` more bytes fit.
bool make_room(std::size_t size) {
  state& s = rt().now;
  while (used() + size > s.total) {
    block* victim = nullptr;
    for (auto& [base, a] : s.allocations) {
      for (block& b : a.blocks) {
        if (b.on_device && (victim == nullptr || b.migrated < victim->migrated)) victim = &b;
      }
    }
    if (victim == nullptr) return false;
    if (!victim->discarded) copy_to_host(*victim);
    leave_device(*victim);
    ++s.counted.driver_evictions;
  }
  return true;
}

void to_device(block& b, bool writes) {
  state& s = rt().now;
  if (!b.on_device) {
    if (!make_room(block_bytes)) {
      b.on_host = true;
      return;
    }
    if (b.on_host && !b.discarded) ++s.counted.to_device;
    b.on_device = true;
    ++s.counted.device_blocks;
  }
  if (!b.read_mostly || writes) b.on_host = false;
  b.mapped = false;
  b.migrated = ++s.migrations;
}

void to_host(block& b) {
  copy_to_host(b);
  if (!b.read_mostly) leave_device(b);
}

/// Without the mutex.
void touch(const void* p, std::size_t size, access mode) {
  const bool writes = mode != access::read;
  guard lock;
  // A block stays where it is while the mutex is free: memory is given back when no stream has work left.
  for_each_block(p, size, [&](block& b, const std::byte* first) {
    const bool host_preferred = !b.read_mostly && b.preferred == cudaCpuDeviceId;
    const bool remote = !b.on_device && host_preferred && (b.accessed_by || b.mapped);
    if (remote) {
      b.on_host = true;
    } else if (!b.on_device || (b.on_host && writes)) {
      ++rt().now.counted.faults;
      const auto at = clock_now();
      const auto sink = rt().now.sink;
      const auto delay = rt().now.fault_delay;
      lock.unlock();
      if (sink) sink(first, mode, at);
      if (delay > nanoseconds{}) std::this_thread::sleep_for(delay);
      lock.lock();
      if (!b.on_device && host_preferred) {
        b.mapped = b.on_host = true;
      } else {
        to_device(b, writes);
      }
    }
    if (writes) b.discarded = false;
  });
}

// --- Virtual memory management: the books. ---

std::byte* pointer(CUdeviceptr p) { return reinterpret_cast<std::byte*>(static_cast<std::uintptr_t>(p)); }

/// Whether [p, p + size) lies in one reserved range.
bool in_reserved(const void* p, std::size_t size = 1) {
  auto& all = rt().now.reserved;
  const auto* first = static_cast<const std::byte*>(p);
  auto it = all.upper_bound(first);
  if (it == all.begin()) return false;
  --it;
  const auto offset = static_cast<std::size_t>(first - it->first);
  return offset < it->second && size <= it->second - offset;
}

/// The mapping that `p` lies in, or end().
std::map<const std::byte*, view>::iterator find_view(const std::byte* p) {
  auto& views = rt().now.views;
  auto it = views.upper_bound(p);
  if (it == views.begin()) return views.end();
  --it;
  return p < it->first + it->second.size ? it : views.end();
}

/// Whether [p, p + size) is mapped without a gap and `f` is true of all its mappings.
template <class F>
bool all_views(const void* p, std::size_t size, F f) {
  if (!in_reserved(p, size)) return false;
  const auto* at = static_cast<const std::byte*>(p);
  const auto* end = at + size;
  while (at < end) {
    const auto it = find_view(at);
    if (it == rt().now.views.end() || !f(it->second)) return false;
    at = it->first + it->second.size;
  }
  return true;
}

/// Whether [p, p + size) is made of whole mappings.
bool whole_views(const std::byte* p, std::size_t size) {
  if (size == 0 || !all_views(p, size, [](const view&) { return true; })) return false;
  const auto last = find_view(p + size - 1);
  return find_view(p)->first == p && last->first + last->second.size == p + size;
}

bool allows(CUmemAccess_flags flags, access mode) {
  return mode == access::read ? flags != CU_MEM_ACCESS_FLAGS_PROT_NONE : flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
}

/// Whether [p, p + size) touches no reserved range, or the device may access it.
bool device_may(const void* p, std::size_t size, access mode) {
  return !in_reserved(p) || all_views(p, size, [&](const view& v) { return allows(v.device, mode); });
}

/// Whether an operation that is queued or executed uses [p, p + size).
bool in_use(const std::byte* p, std::size_t size, bool by_writes_alone) {
  const auto overlaps = [&](const use& u) {
    return u.first < p + size && p < u.first + u.size && (u.writes || !by_writes_alone);
  };
  const auto uses_it = [&](const fifo& f) {
    return std::any_of(f.uses.begin(), f.uses.end(), overlaps) ||
           std::any_of(f.queue.begin(), f.queue.end(),
                       [&](const operation& o) { return std::any_of(o.uses.begin(), o.uses.end(), overlaps); });
  };
  state& s = rt().now;
  return std::any_of(s.streams.begin(), s.streams.end(), [&](auto& entry) { return uses_it(*entry.second); }) ||
         std::any_of(s.destroyed.begin(), s.destroyed.end(), [&](auto& f) { return uses_it(*f); });
}

/// Gives the memory of a handle back if nothing refers to it.
void drop_if_unused(std::map<CUmemGenericAllocationHandle, physical>::iterator it) {
  const physical& m = it->second;
  if (!m.released || m.mappings > 0) return;
  state& s = rt().now;
  (m.on_device ? s.counted.device_handles : s.counted.host_handles) -= deepum::bytes{m.size};
  ::fallocate(rt().file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(m.offset),
              static_cast<off_t>(m.size));
  s.handles.erase(it);
}

// --- Streams. ---

void work(fifo& f) {
  executing = &f;
  guard lock;
  for (;;) {
    lock.wait([&] { return f.queue.empty() ? f.closing : !f.held || rt().now.broken != cudaSuccess; });
    if (f.queue.empty()) return;
    operation next = std::move(f.queue.front());
    f.queue.pop_front();
    f.uses = std::move(next.uses);
    std::chrono::microseconds delay{};
    if (state& s = rt().now; s.longest_delay.count() > 0) {
      delay = std::chrono::microseconds(s.random() % static_cast<std::uint64_t>(s.longest_delay.count()));
    }
    for (const auto& [other, issued] : next.behind) {
      lock.wait([&, count = issued] { return other->finished >= count || rt().now.broken != cudaSuccess; });
      acquire_order(other.get());
    }
    if (rt().now.broken != cudaSuccess) next.work = nullptr;
    acquire_order(&f);
    lock.unlock();
    if (delay.count() > 0) std::this_thread::sleep_for(delay);
    try {
      if (next.work) next.work();
    } catch (const illegal_access&) {  // the device is broken
    }
    next.work = nullptr;
    lock.lock();
    release_order(&f);
    f.uses.clear();
    ++f.finished;
    rt().changed.notify_all();
  }
}

std::shared_ptr<fifo> start_stream(const void* handle, bool blocking = true) {
  auto f = std::make_shared<fifo>();
  f->blocking = blocking;
  f->context = handle == nullptr ? nullptr : context_now();
  f->worker = std::thread([f] { work(*f); });
  rt().now.streams[handle] = f;
  return f;
}

const void* key(cudaStream_t stream) {
  return stream == cudaStreamLegacy || stream == cudaStreamPerThread ? nullptr : stream;
}

/// nullptr where there is no such stream.
std::shared_ptr<fifo> find_stream(cudaStream_t stream) {
  const auto it = rt().now.streams.find(key(stream));
  if (it != rt().now.streams.end()) return it->second;
  return key(stream) == nullptr ? start_stream(nullptr) : nullptr;
}

/// What an operation that is put into `f` now has to wait for: in the legacy stream for that of all blocking ones, in
/// these for that of the legacy one.
std::vector<std::pair<std::shared_ptr<fifo>, std::uint64_t>> others_before(const fifo& f) {
  std::vector<std::pair<std::shared_ptr<fifo>, std::uint64_t>> behind;
  const auto legacy = rt().now.streams.find(nullptr);
  if (!f.blocking || legacy == rt().now.streams.end()) return behind;
  const auto add = [&](const std::shared_ptr<fifo>& other) {
    if (other.get() != &f && other->blocking && other->finished != other->issued) {
      behind.emplace_back(other, other->issued);
    }
  };
  if (legacy->second.get() != &f) {
    add(legacy->second);
    return behind;
  }
  for (const auto& [handle, other] : rt().now.streams) {
    add(other);
  }
  std::for_each(rt().now.destroyed.begin(), rt().now.destroyed.end(), add);
  return behind;
}

void put(fifo& f, std::function<void()> work, std::vector<use> uses = {}) {
  if (f.capturing) {
    ++rt().now.counted.captured;
    if (f.recording) f.recording->operations.push_back(std::move(work));
    return;
  }
  release_order(&f);
  f.queue.push_back({std::move(work), std::move(uses), others_before(f)});
  ++f.issued;
  rt().changed.notify_all();
}

/// Whether it is done (without one: yes, there is nothing to wait for).
bool done(const std::shared_ptr<recording>& r) {
  if (r == nullptr) return true;
  if (r->done) acquire_order(r.get());
  return r->done;
}

/// Waits until it is done or the device is broken.
cudaError_t wait(guard& lock, const std::shared_ptr<recording>& r) {
  lock.wait([&r] { return rt().now.broken != cudaSuccess || done(r); });
  return rt().now.broken;
}

/// Waits for what has been put into the stream so far. On a broken device that is only taken out.
cudaError_t drain(guard& lock, const std::shared_ptr<fifo>& f) {
  lock.wait([&f, issued = f->issued] { return f->finished >= issued; });
  acquire_order(f.get());
  return rt().now.broken;
}

cudaError_t drain_all(guard& lock) {
  std::vector<std::shared_ptr<fifo>> all = rt().now.destroyed;
  for (auto& [handle, f] : rt().now.streams) {
    all.push_back(f);
  }
  for (auto& f : all) {
    (void)drain(lock, f);
  }
  return rt().now.broken;
}

// --- Calls. ---

enum : unsigned {
  deviceless = 1,    ///< works without a device
  releases = 2,      ///< is done even where an error is injected
  unsafe = 4,        ///< a capture may forbid it
  of_driver = 8,     ///< a function of the driver API, which leaves no last error
  contextless = 16,  ///< makes no context
};

cudaError_t noted(cudaError_t e, unsigned flags = 0) {
  if (e != cudaSuccess && (flags & of_driver) == 0) last_error = e;
  if (sticks(e) && rt().now.broken == cudaSuccess) {
    rt().now.broken = e;
    rt().changed.notify_all();
  }
  return e;
}

/// For operations: breaks the device and ends the operation unless the device may access [p, p + size).
void check_access(const void* p, std::size_t size, access mode) {
  if (device_may(p, size, mode)) return;
  noted(cudaErrorIllegalAddress);
  throw illegal_access{};
}

cudaError_t injected(const char* name) {
  state& s = rt().now;
  for (auto it = s.injections.begin(); it != s.injections.end(); ++it) {
    if ((it->name.empty() || it->name == name) && (it->always || --it->left == 0)) {
      const cudaError_t e = it->error;
      if (!it->always) s.injections.erase(it);
      ++s.counted.failures;
      s.failed.emplace_back(name);
      return e;
    }
  }
  return cudaSuccess;
}

int device_of(CUcontext c) {
  return is_primary(c) ? static_cast<int>(reinterpret_cast<std::uintptr_t>(c) - 0x10) : rt().now.contexts.at(c);
}

/// Whether the stream is captured in a way that forbids unsafe calls to this thread.
bool forbids(const fifo& f) {
  const bool own = f.capturer == std::this_thread::get_id() && f.capture_mode != cudaStreamCaptureModeRelaxed;
  const bool global = f.capture_mode == cudaStreamCaptureModeGlobal && capture_mode == cudaStreamCaptureModeGlobal;
  return f.capturing && capture_mode != cudaStreamCaptureModeRelaxed && (own || global);
}
/// The thread does what captures of these streams forbid. @returns  Whether there are any.
template <class Which>
bool spoils_captures(Which which) {
  bool any = false;
  for (auto& [handle, f] : rt().now.streams) {
    if (which(*f)) {
      f->invalidated = any = true;
    }
  }
  rt().now.counted.capture_violations += any ? 1 : 0;
  return any;
}

/// The frame of each function: counts the call, fails it if it has to, or else does `body(lock)`.
template <class F>
cudaError_t call(const char* name, unsigned flags, F body) {
  guard lock;
  state& s = rt().now;
  ++s.counted.calls;
  ++s.calls[name];
  cudaError_t e = injected(name);
  if (e == cudaSuccess) e = s.broken;
  if (e == cudaSuccess && s.device_count == 0 && (flags & deviceless) == 0) e = cudaErrorNoDevice;
  if (e == cudaSuccess && (flags & (of_driver | deviceless | contextless)) == 0) {
    current_context = context_now();
    if (is_primary(current_context)) s.opened.insert(device_of(current_context));
  }
  if (e == cudaSuccess && (flags & unsafe) != 0 && spoils_captures([](const fifo& f) { return forbids(f); })) {
    return noted(cudaErrorStreamCaptureUnsupported, flags);
  }
  if (e == cudaSuccess || (flags & releases) != 0) {
    const cudaError_t result = body(lock);
    if (e == cudaSuccess) e = result;
  }
  return noted(e, flags);
}

/// What a captured stream answers whoever asks how far it is, in any mode.
cudaError_t spoiled_capture(fifo& f) {
  ++rt().now.counted.capture_violations;
  f.invalidated = true;
  return cudaErrorStreamCaptureUnsupported;
}

/// Whether this is the legacy stream, and cannot be used because a stream that is ordered with it is captured.
bool legacy_is_blocked(cudaStream_t stream) {
  const auto blocks = [](auto& entry) { return entry.second->capturing && entry.second->blocking; };
  return key(stream) == nullptr && std::any_of(rt().now.streams.begin(), rt().now.streams.end(), blocks);
}
cudaError_t spoiled_by_legacy() {
  spoils_captures([](const fifo& f) { return f.capturing && f.blocking; });
  return cudaErrorStreamCaptureImplicit;
}

/// An answer through a pointer.
template <class T>
cudaError_t give(T* to, T value) {
  if (to == nullptr) return cudaErrorInvalidValue;
  *to = value;
  return cudaSuccess;
}

template <class T>
T new_handle() {
  return reinterpret_cast<T>(rt().next_handle += 0x10);
}

cudaError_t allocate(void** p, std::size_t size, cudaMemoryType type) {
  if (p == nullptr) return cudaErrorInvalidValue;
  if (size == 0) return give(p, static_cast<void*>(nullptr));  // but cudaMallocManaged refuses it
  state& s = rt().now;
  const std::size_t whole = (size + block_bytes - 1) / block_bytes * block_bytes;
  if (whole < size || (type == cudaMemoryTypeDevice && !make_room(size))) return cudaErrorMemoryAllocation;
  // One block more than needed, of which the ends are given back, for the alignment.
  void* mapped =
      ::mmap(nullptr, whole + block_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED) return cudaErrorMemoryAllocation;
  auto* const start = static_cast<std::byte*>(mapped);
  const std::size_t before = (block_bytes - reinterpret_cast<std::uintptr_t>(start) % block_bytes) % block_bytes;
  if (before > 0) ::munmap(start, before);
  ::munmap(start + before + whole, block_bytes - before);

  allocation& a = s.allocations[start + before];
  a = {type, start + before, size, {}};
  if (type == cudaMemoryTypeDevice) s.plain += size;
  if (type == cudaMemoryTypeManaged) {
    a.blocks.resize(whole / block_bytes);
    s.counted.managed += deepum::bytes{size};
    s.counted.managed_peak = std::max(s.counted.managed_peak, s.counted.managed);
  }
  *p = a.base;
  return cudaSuccess;
}

void unmap(const allocation& a) { ::munmap(a.base, (a.size + block_bytes - 1) / block_bytes * block_bytes); }

cudaError_t release(guard& lock, void* p, bool host) {
  if (p == nullptr) return cudaSuccess;
  drain_all(lock);
  state& s = rt().now;
  const auto it = s.allocations.find(static_cast<std::byte*>(p));
  if (it == s.allocations.end() || (it->second.type == cudaMemoryTypeHost) != host) return cudaErrorInvalidValue;
  const allocation& a = it->second;
  if (a.type == cudaMemoryTypeDevice) s.plain -= a.size;
  if (a.type == cudaMemoryTypeManaged) s.counted.managed -= deepum::bytes{a.size};
  for (block b : a.blocks) {
    leave_device(b);
  }
  unmap(a);
  s.allocations.erase(it);
  return cudaSuccess;
}

/// Of a graph or what was made of it. What they have of the program's ends with the last of them, without the mutex.
cudaError_t destroy_graph(const char* name, const void* graph) {
  std::shared_ptr<recorded_graph> last;
  return call(name, releases, [&](guard&) {
    auto& all = rt().now.graphs;
    const auto it = all.find(graph);
    if (it == all.end()) return cudaErrorInvalidValue;
    last = std::move(it->second);
    all.erase(it);
    return cudaSuccess;
  });
}

/// A location as the older calls number it. Nothing where it is none that the fake has.
std::optional<int> number_of(cudaMemLocation l) {
  switch (l.type) {
    case cudaMemLocationTypeDevice:
      return l.id >= 0 && l.id < rt().now.device_count ? std::optional(l.id) : std::nullopt;
    case cudaMemLocationTypeHost:
    case cudaMemLocationTypeHostNuma:
    case cudaMemLocationTypeHostNumaCurrent:
      return cudaCpuDeviceId;
    default:
      return std::nullopt;
  }
}

/// A range to prefetch, discard, or both.
struct range {
  void* first;
  std::size_t size;
  int to;  ///< not for a discard
};

/// One operation of a stream on ranges that have been checked.
void put_ranges(cudaStream_t stream, fifo& f, hint::kind what, std::vector<range> ranges) {
  for (const range& r : ranges) {
    rt().now.hints.push_back({what, r.first, r.size, r.to, 0, stream});
    if (what == hint::kind::discard) continue;
    for_each_block(r.first, r.size, [&](block& b, const std::byte*) { b.last_prefetch = r.to; });
  }
  put(f, [what, ranges = std::move(ranges)] {
    for (const range& r : ranges) {
      if (what != hint::kind::prefetch) std::memset(r.first, poison, r.size);
      const guard lock;
      const allocation* a = find_managed(r.first, r.size);
      const auto end = static_cast<std::size_t>(static_cast<std::byte*>(r.first) - a->base) + r.size;
      for_each_block(r.first, r.size, [&](block& b, const std::byte* first) {
        if (what != hint::kind::prefetch) {
          const auto begin = static_cast<std::size_t>(first - a->base);
          b.discarded |= begin % block_bytes == 0 && end >= std::min(begin + block_bytes, a->size);
        }
        if (what == hint::kind::discard) return;
        if (r.to == cudaCpuDeviceId) {
          to_host(b);
        } else {
          to_device(b, false);
        }
        b.discarded = false;
      });
    }
  });
}

/// The three batch calls. `locations` is not looked at for a discard.
cudaError_t put_batch(cudaStream_t stream, hint::kind what, void** firsts, const std::size_t* sizes, std::size_t count,
                      const cudaMemLocation* locations, const std::size_t* indices, std::size_t n,
                      unsigned long long flags) {
  const bool moves = what != hint::kind::discard;
  if (rt().now.attributes[cudaDevAttrConcurrentManagedAccess] == 0) return cudaErrorNotSupported;
  if (firsts == nullptr || sizes == nullptr || count == 0 || flags != 0 || stream == nullptr ||
      stream == cudaStreamLegacy ||
      (moves && (locations == nullptr || indices == nullptr || n == 0 || n > count || indices[0] != 0))) {
    return cudaErrorInvalidValue;
  }
  for (std::size_t k = 1; k < n; ++k) {
    if (indices[k] <= indices[k - 1] || indices[k] >= count) return cudaErrorInvalidValue;
  }
  std::vector<range> ranges;
  for (std::size_t i = 0, k = 0; i < count; ++i) {
    if (k + 1 < n && indices[k + 1] == i) ++k;
    const std::optional<int> to = moves ? number_of(locations[k]) : cudaInvalidDeviceId;
    if (!to || find_managed(firsts[i], sizes[i]) == nullptr) return cudaErrorInvalidValue;
    ranges.push_back({firsts[i], sizes[i], *to});
  }
  const auto f = find_stream(stream);
  if (f == nullptr) return cudaErrorInvalidResourceHandle;
  put_ranges(stream, *f, what, std::move(ranges));
  return cudaSuccess;
}

// --- The driver API, as far as it is asked for through the runtime's. Its error codes have the same numbers. ---

template <class F>
CUresult driver_call(const char* name, F body, unsigned flags = 0) {
  return static_cast<CUresult>(call(name, of_driver | flags, [&](guard&) { return body(rt().now); }));
}

CUresult device_get(CUdevice* device, int ordinal) {
  return driver_call("cuDeviceGet", [&](state& s) {
    return ordinal >= 0 && ordinal < s.device_count ? give(device, ordinal) : cudaErrorInvalidDevice;
  });
}
CUresult primary_retain(CUcontext* context, CUdevice device) {
  return driver_call("cuDevicePrimaryCtxRetain", [&](state& s) {
    ++s.retained[device];
    s.opened.insert(device);
    return give(context, primary(device));
  });
}
CUresult primary_release(CUdevice device) {
  return driver_call(
      "cuDevicePrimaryCtxRelease",
      [&](state& s) { return s.retained[device]-- > 0 ? cudaSuccess : cudaErrorDeviceUninitialized; }, releases);
}
CUresult context_get_current(CUcontext* context) {
  return driver_call("cuCtxGetCurrent", [&](state&) { return give(context, current_context); });
}
CUresult exchange_capture_mode(CUstreamCaptureMode* mode) {
  return driver_call("cuThreadExchangeStreamCaptureMode", [&](state&) {
    const auto before = static_cast<CUstreamCaptureMode>(capture_mode);
    capture_mode = static_cast<cudaStreamCaptureMode>(std::exchange(*mode, before));
    return cudaSuccess;
  });
}
CUresult context_create(CUcontext* made, unsigned, CUdevice device) {
  return driver_call(
      "cuCtxCreate",
      [&](state& s) {
        if (s.no_contexts) return cudaErrorMemoryAllocation;
        contexts_below.push_back(current_context);
        current_context = new_handle<CUcontext>();
        s.contexts[current_context] = device;
        return give(made, current_context);
      },
      unsafe);
}
CUresult context_pop(CUcontext* was) {
  return driver_call("cuCtxPopCurrent", [&](state&) {
    if (contexts_below.empty()) return cudaErrorDeviceUninitialized;
    const CUcontext top = std::exchange(current_context, contexts_below.back());
    contexts_below.pop_back();
    return give(was, top);
  });
}
CUresult context_set_current(CUcontext context) {
  return driver_call("cuCtxSetCurrent", [&](state& s) {
    if (context != nullptr && !is_primary(context) && !s.contexts.contains(context)) {
      return cudaErrorDeviceUninitialized;
    }
    current_context = context;
    return cudaSuccess;
  });
}
CUresult context_destroy(CUcontext context) {
  const auto destroy = [&](state& s) {
    if (s.contexts.erase(context) == 0) return cudaErrorDeviceUninitialized;
    // Its streams and events end with it; whoever destroys them later is told so.
    for (auto it = s.streams.begin(); it != s.streams.end();) {
      if (it->second->context == context) {
        it->second->closing = true;
        s.destroyed.push_back(it->second);
        it = s.streams.erase(it);
      } else {
        ++it;
      }
    }
    std::erase_if(s.events, [&](auto& e) { return e.second.context == context; });
    rt().changed.notify_all();
    return cudaSuccess;
  };
  return driver_call("cuCtxDestroy", destroy, releases);
}

// --- Virtual memory management: the calls. ---

bool whole(std::size_t n) { return n != 0 && n % granularity == 0; }
/// Whether a call may name [p, p + size) as far as the granularity goes.
bool whole(CUdeviceptr p, std::size_t size) { return whole(p) && whole(size); }

/// Why the fake has no memory with these properties.
cudaError_t refusal(const CUmemAllocationProp* prop) {
  if (prop == nullptr || prop->type != CU_MEM_ALLOCATION_TYPE_PINNED) return cudaErrorInvalidValue;
  switch (prop->location.type) {
    case CU_MEM_LOCATION_TYPE_DEVICE:
    case CU_MEM_LOCATION_TYPE_HOST_NUMA:
      if (prop->location.id < 0 || prop->location.id >= rt().now.device_count) return cudaErrorInvalidDevice;
      break;
    case CU_MEM_LOCATION_TYPE_HOST:
      break;
    default:
      return cudaErrorInvalidValue;
  }
  return prop->requestedHandleTypes == CU_MEM_HANDLE_TYPE_NONE ? cudaSuccess : cudaErrorNotSupported;
}

CUresult allocation_granularity(std::size_t* answer, const CUmemAllocationProp* prop,
                                CUmemAllocationGranularity_flags) {
  return driver_call("cuMemGetAllocationGranularity", [&](state&) {
    const cudaError_t e = refusal(prop);
    return e == cudaSuccess ? give(answer, granularity) : e;
  });
}

CUresult address_reserve(CUdeviceptr* p, std::size_t size, std::size_t alignment, CUdeviceptr hint,
                         unsigned long long flags) {
  const auto reserve = [&](state& s) {
    if (p == nullptr || !whole(size) || (alignment & (alignment - 1)) != 0 || hint % granularity != 0 || flags != 0) {
      return cudaErrorInvalidValue;
    }
    const std::size_t step = std::max(alignment, granularity);
    const bool fits = s.reserved_bytes <= s.address_space && size <= s.address_space - s.reserved_bytes;
    if (!fits || size > unlimited - step) return cudaErrorMemoryAllocation;
    // More than needed, of which the ends are given back, for the alignment.
    void* mapped = ::mmap(pointer(hint), size + step, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapped == MAP_FAILED) return cudaErrorMemoryAllocation;
    auto* const start = static_cast<std::byte*>(mapped);
    const std::size_t before = (step - reinterpret_cast<std::uintptr_t>(start) % step) % step;
    if (before > 0) ::munmap(start, before);
    ::munmap(start + before + size, step - before);
    s.reserved[start + before] = size;
    s.reserved_bytes += size;
    return give(p, static_cast<CUdeviceptr>(reinterpret_cast<std::uintptr_t>(start + before)));
  };
  return driver_call("cuMemAddressReserve", reserve, unsafe);
}

CUresult address_free(CUdeviceptr p, std::size_t size) {
  const auto free = [&](state& s) {
    const auto it = s.reserved.find(pointer(p));
    if (it == s.reserved.end() || it->second != size) return cudaErrorInvalidValue;
    const auto view = s.views.lower_bound(pointer(p));
    if (view != s.views.end() && view->first < pointer(p) + size) return cudaErrorInvalidValue;
    s.reserved.erase(it);
    s.reserved_bytes -= size;
    if (s.broken == cudaSuccess) {
      ::munmap(pointer(p), size);
    } else {
      s.abandoned.emplace_back(pointer(p), size);
    }
    return cudaSuccess;
  };
  return driver_call("cuMemAddressFree", free, releases | unsafe);
}

CUresult create_handle(CUmemGenericAllocationHandle* handle, std::size_t size, const CUmemAllocationProp* prop,
                       unsigned long long flags) {
  const auto create = [&](state& s) {
    if (handle == nullptr || flags != 0) return cudaErrorInvalidValue;
    if (const cudaError_t e = refusal(prop); e != cudaSuccess) return e;
    if (!whole(size)) return cudaErrorInvalidValue;
    const bool on_device = prop->location.type == CU_MEM_LOCATION_TYPE_DEVICE;
    deepum::bytes& held = on_device ? s.counted.device_handles : s.counted.host_handles;
    deepum::bytes& peak = on_device ? s.counted.device_handles_peak : s.counted.host_handles_peak;
    const bool fits =
        on_device ? size <= s.total && make_room(size) : size <= s.host_total && held.count <= s.host_total - size;
    if (!fits) return cudaErrorMemoryAllocation;
    static const std::vector<char> dirt(granularity, static_cast<char>(poison));
    for (std::size_t done = 0; done < size;) {
      const auto n =
          ::pwrite(rt().file, dirt.data(), std::min(dirt.size(), size - done), static_cast<off_t>(s.file_size + done));
      if (n <= 0) return cudaErrorMemoryAllocation;
      done += static_cast<std::size_t>(n);
    }
    *handle = rt().next_handle += 0x10;
    s.handles[*handle] = {s.file_size, size, on_device};
    s.file_size += size;
    held += deepum::bytes{size};
    peak = std::max(peak, held);
    return cudaSuccess;
  };
  return driver_call("cuMemCreate", create, unsafe);
}

CUresult release_handle(CUmemGenericAllocationHandle handle) {
  const auto release = [&](state& s) {
    const auto it = s.handles.find(handle);
    if (it == s.handles.end() || it->second.released) return cudaErrorInvalidValue;
    it->second.released = true;
    drop_if_unused(it);
    return cudaSuccess;
  };
  return driver_call("cuMemRelease", release, releases | unsafe);
}

CUresult map_handle(CUdeviceptr p, std::size_t size, std::size_t offset, CUmemGenericAllocationHandle handle,
                    unsigned long long flags) {
  const auto map = [&](state& s) {
    const auto it = s.handles.find(handle);
    if (!whole(p, size) || offset != 0 || flags != 0 || it == s.handles.end() || it->second.released ||
        size > it->second.size || !in_reserved(pointer(p), size)) {
      return cudaErrorInvalidValue;
    }
    const auto next = s.views.lower_bound(pointer(p));
    if (find_view(pointer(p)) != s.views.end() || (next != s.views.end() && next->first < pointer(p) + size)) {
      return cudaErrorInvalidValue;
    }
    if (::mmap(pointer(p), size, PROT_NONE, MAP_SHARED | MAP_FIXED, rt().file, static_cast<off_t>(it->second.offset)) ==
        MAP_FAILED) {
      return cudaErrorMemoryAllocation;
    }
    s.views[pointer(p)] = {size, handle};
    ++it->second.mappings;
    ++s.counted.maps;
    return cudaSuccess;
  };
  return driver_call("cuMemMap", map, unsafe);
}

/// What a program gets that takes memory away from work in flight.
cudaError_t taken_while_in_use() {
  if (rt().now.broken == cudaSuccess) ++rt().now.counted.taken_in_use;
  return noted(cudaErrorIllegalAddress, of_driver);
}

CUresult unmap_range(CUdeviceptr p, std::size_t size) {
  const auto unmap = [&](state& s) {
    if (!whole(p, size) || !whole_views(pointer(p), size)) return cudaErrorInvalidValue;
    const cudaError_t e = in_use(pointer(p), size, false) ? taken_while_in_use() : cudaSuccess;
    // On a broken device the pages stay: a kernel's body that is still on its way must not crash the program.
    if (s.broken == cudaSuccess) {
      ::mmap(pointer(p), size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    }
    for (auto it = find_view(pointer(p)); it != s.views.end() && it->first < pointer(p) + size;) {
      const auto handle = s.handles.find(it->second.handle);
      --handle->second.mappings;
      drop_if_unused(handle);
      it = s.views.erase(it);
    }
    ++s.counted.unmaps;
    return e;
  };
  return driver_call("cuMemUnmap", unmap, releases | unsafe);
}

CUresult is_capturing(CUstream stream, CUstreamCaptureStatus* status) {
  return driver_call("cuStreamIsCapturing", [&](state&) {
    const auto f = find_stream(stream);
    if (f == nullptr) return cudaErrorInvalidResourceHandle;
    if (legacy_is_blocked(stream)) return cudaErrorStreamCaptureImplicit;
    return give(status, f->capturing ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE);
  });
}
CUresult set_access(CUdeviceptr p, std::size_t size, const CUmemAccessDesc* desc, std::size_t count) {
  const auto set = [&](state& s) {
    if (!whole(p, size) || !whole_views(pointer(p), size) || desc == nullptr || count == 0) {
      return cudaErrorInvalidValue;
    }
    std::optional<CUmemAccess_flags> device;
    std::optional<CUmemAccess_flags> host;
    for (std::size_t i = 0; i < count; ++i) {
      const auto [location, flags] = desc[i];
      if (flags != CU_MEM_ACCESS_FLAGS_PROT_NONE && flags != CU_MEM_ACCESS_FLAGS_PROT_READ &&
          flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE) {
        return cudaErrorInvalidValue;
      }
      if (location.type == CU_MEM_LOCATION_TYPE_DEVICE) {
        if (location.id < 0 || location.id >= s.device_count) return cudaErrorInvalidDevice;
        device = flags;
      } else if (location.type == CU_MEM_LOCATION_TYPE_HOST || location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA) {
        host = flags;
      } else {
        return cudaErrorInvalidValue;
      }
    }
    const auto on_host = [&](const view& v) { return !s.handles.at(v.handle).on_device; };
    if (host && !all_views(pointer(p), size, on_host)) return cudaErrorNotSupported;
    cudaError_t e = cudaSuccess;
    if (device && *device != CU_MEM_ACCESS_FLAGS_PROT_READWRITE &&
        in_use(pointer(p), size, *device == CU_MEM_ACCESS_FLAGS_PROT_READ)) {
      e = taken_while_in_use();
    }
    for (auto it = find_view(pointer(p)); it != s.views.end() && it->first < pointer(p) + size; ++it) {
      view& v = it->second;
      v.device = device.value_or(v.device);
      v.host = host.value_or(v.host);
      const bool reads = allows(v.device, access::read) || allows(v.host, access::read);
      const bool writes = allows(v.device, access::update) || allows(v.host, access::update);
      if (s.broken != cudaSuccess) continue;  // as in `unmap_range`
      ::mprotect(const_cast<std::byte*>(it->first), v.size, (reads ? PROT_READ : 0) | (writes ? PROT_WRITE : 0));
    }
    ++s.counted.access_changes;
    if (device && !all_views(pointer(p), size, on_host)) {
      ++s.counted.device_mappings;
      s.counted.leaving_beside_access = s.counted.leaving_beside_access + deepum::bytes{s.leaving};
    }
    return e;
  };
  return driver_call("cuMemSetAccess", set, unsafe);
}

void advise(block& b, cudaMemoryAdvise advice, int place) {
  switch (advice) {
    case cudaMemAdviseSetReadMostly:
      b.read_mostly = true;
      break;
    case cudaMemAdviseUnsetReadMostly:
      if (b.on_device && b.on_host) {
        if (b.preferred == 0) {
          b.on_host = false;
        } else {
          leave_device(b);
        }
      }
      b.read_mostly = false;
      break;
    case cudaMemAdviseSetPreferredLocation:
      b.preferred = place;
      break;
    case cudaMemAdviseUnsetPreferredLocation:
      b.preferred = cudaInvalidDeviceId;
      break;
    case cudaMemAdviseSetAccessedBy:
      b.accessed_by |= place == 0;
      break;
    case cudaMemAdviseUnsetAccessedBy:
      b.accessed_by &= place != 0;
      break;
  }
  if (b.preferred != cudaCpuDeviceId) b.mapped = false;
}

}  // namespace

namespace deepum_test {

void device_touch(const void* p, std::size_t size, deepum::access mode) {
  if (size == 0) return;
  {
    const guard lock;
    if (in_reserved(p)) {
      check_access(p, size, mode);
      if (executing != nullptr) {
        executing->uses.push_back({static_cast<const std::byte*>(p), size, mode != access::read});
      }
    } else if (find(p, size) == nullptr) {
      noted(cudaErrorIllegalAddress);
      throw illegal_access{};
    }
  }
  touch(p, size, mode);
}

void host_touch(const void* p, std::size_t size, deepum::access mode) {
  const guard lock;
  for_each_block(p, size, [&](block& b, const std::byte*) {
    if (!b.on_host) ++rt().now.counted.host_faults;
    to_host(b);
    if (mode == deepum::access::read) return;
    leave_device(b);
    b.discarded = false;
  });
}

namespace fake_cuda {

std::string reset() {
  guard lock;
  state& s = rt().now;
  std::string left;
  std::vector<std::shared_ptr<fifo>> all = s.destroyed;
  for (auto& [handle, f] : s.streams) {
    if (handle != nullptr) left += "a stream\n";
    all.push_back(f);
  }
  for (std::size_t i = 0; i < s.events.size(); ++i) {
    left += "an event\n";
  }
  for (auto& [device, count] : s.retained) {
    if (count != 0) left += "a primary context that is kept\n";
  }
  for (std::size_t i = 0; i < s.contexts.size(); ++i) {
    left += "a context\n";
  }
  for (auto& [base, a] : s.allocations) {
    left += "an allocation of " + std::to_string(a.size) + " bytes\n";
  }
  for (auto& [base, size] : s.reserved) {
    left += "a reserved range of " + std::to_string(size) + " bytes\n";
  }
  for (auto& [handle, m] : s.handles) {
    if (!m.released) left += "a memory handle of " + std::to_string(m.size) + " bytes\n";
  }
  for (auto& [first, v] : s.views) {
    left += "a mapping of " + std::to_string(v.size) + " bytes\n";
  }
  for (std::size_t i = 0; i < s.graphs.size(); ++i) {
    left += "a graph\n";
  }
  for (auto& f : all) {
    f->held = false;
    f->closing = true;
  }
  rt().changed.notify_all();
  lock.unlock();
  for (auto& f : all) {
    f->worker.join();
  }
  lock.lock();
  for (auto& [base, a] : s.allocations) {
    unmap(a);
  }
  for (auto& [base, size] : s.reserved) {
    ::munmap(const_cast<std::byte*>(base), size);
  }
  for (auto& [base, size] : s.abandoned) {
    ::munmap(base, size);
  }
  if (s.file_size > 0 && ::ftruncate(rt().file, 0) != 0) std::abort();
  s = state{};
  last_error = cudaSuccess;
  capture_mode = cudaStreamCaptureModeGlobal;
  contexts_below.clear();
  current_context = nullptr;
  thread_device = 0;
  return left;
}

void set_device_count(int n) {
  locked([&](state& s) { s.device_count = n; });
}
void set_refuse_contexts(bool refuse) {
  locked([&](state& s) { s.no_contexts = refuse; });
}
void set_attribute(cudaDeviceAttr attribute, int value) {
  locked([&](state& s) { s.attributes[attribute] = value; });
}
void set_device_memory(deepum::bytes total) {
  locked([&](state& s) {
    s.total = total.count;
    make_room(0);
  });
}
void set_foreign_memory(deepum::bytes held) {
  locked([&](state& s) {
    s.foreign = held.count;
    make_room(0);
  });
}
void set_host_memory(deepum::bytes total) {
  locked([&](state& s) { s.host_total = total.count; });
}
void set_address_space(deepum::bytes total) {
  locked([&](state& s) { s.address_space = total.count; });
}
void set_clock_offset(nanoseconds offset) {
  locked([&](state& s) { s.clock_offset = offset; });
}
nanoseconds device_clock() {
  return locked([](state&) { return clock_now(); });
}
void set_delays(std::uint64_t seed, std::chrono::microseconds longest) {
  locked([&](state& s) {
    s.random.seed(seed);
    s.longest_delay = longest;
  });
}
void set_leaving_time(nanoseconds time) {
  locked([&](state& s) { s.leaving_time = time; });
}
void set_fault_sink(fault_sink sink) {
  locked([&](state& s) { s.sink = std::move(sink); });
}
void set_fault_delay(nanoseconds delay) {
  locked([&](state& s) { s.fault_delay = delay; });
}
void register_kernel(const void* function, std::function<bound_kernel(void** args)> bind) {
  locked([&](state&) { rt().kernels[function] = std::move(bind); });
}
void set_held(cudaStream_t stream, bool held) {
  locked([&](state&) {
    const auto f = find_stream(stream);
    if (f == nullptr) return;
    release_order(f.get());  // tests look at the memory while the stream is held
    f->held = held;
    rt().changed.notify_all();
  });
}
void hold(cudaStream_t stream) { set_held(stream, true); }
void resume(cudaStream_t stream) { set_held(stream, false); }
void set_capturing(cudaStream_t stream, bool capturing) {
  locked([&](state&) {
    if (const auto f = find_stream(stream)) {
      f->capturing = capturing;
      f->capture_mode = cudaStreamCaptureModeGlobal;
      f->capturer = {};
      f->invalidated = false;
    }
  });
}
void fail_call(std::string_view name, unsigned nth, cudaError_t error) {
  locked([&](state& s) { s.injections.push_back({std::string(name), nth, error}); });
}
void forget_failures() {
  locked([](state& s) { s.injections.clear(); });
}
void fail_all_calls(std::string_view name, cudaError_t error) {
  locked([&](state& s) { s.injections.push_back({std::string(name), 0, error, true}); });
}
void fail_nth_call_of_any(unsigned nth, cudaError_t error) { fail_call({}, nth, error); }
void break_device(cudaError_t error) {
  locked([&](state& s) {
    s.broken = error;
    rt().changed.notify_all();
  });
}
statistics stats() {
  return locked([](state& s) { return s.counted; });
}
std::uint64_t calls(std::string_view name) {
  return locked([&](state& s) {
    const auto it = s.calls.find(name);
    return it == s.calls.end() ? 0 : it->second;
  });
}
std::vector<int> opened_devices() {
  return locked([](state& s) { return std::vector<int>(s.opened.begin(), s.opened.end()); });
}
std::vector<std::string> failed_calls() {
  return locked([](state& s) { return s.failed; });
}
bool host_may_access(const void* p, std::size_t size, deepum::access mode) {
  return locked([&](state&) {
    if (in_reserved(p)) return all_views(p, size, [&](const view& v) { return allows(v.host, mode); });
    const allocation* a = find(p);
    return a == nullptr || a->type != cudaMemoryTypeDevice;
  });
}
std::vector<hint> hints() {
  return locked([](state& s) { return s.hints; });
}
std::vector<launch> launches() {
  return locked([](state& s) { return s.launches; });
}
block block_at(const void* p) {
  const guard lock;
  block found;
  for_each_block(p, 1, [&](block& b, const std::byte*) { found = b; });
  return found;
}

}  // namespace fake_cuda
}  // namespace deepum_test

// --- The runtime API, as cuda_runtime_api.h of CUDA 13 declares it. ---

extern "C" {

cudaError_t cudaGetDeviceCount(int* count) {
  return call("cudaGetDeviceCount", deviceless, [&](guard&) {
    const cudaError_t e = give(count, rt().now.device_count);
    return rt().now.device_count == 0 ? cudaErrorNoDevice : e;
  });
}
cudaError_t cudaSetDevice(int device) {
  return call("cudaSetDevice", contextless, [&](guard&) {
    if (device < 0 || device >= rt().now.device_count) return cudaErrorInvalidDevice;
    thread_device = device;
    current_context = primary(device);
    rt().now.opened.insert(device);
    return cudaSuccess;
  });
}
cudaError_t cudaGetDevice(int* device) {
  return call("cudaGetDevice", contextless, [&](guard&) { return give(device, device_of(context_now())); });
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* prop, int device) {
  return call("cudaGetDeviceProperties", contextless, [&](guard&) {
    if (device < 0 || device >= rt().now.device_count) return cudaErrorInvalidDevice;
    auto& attributes = rt().now.attributes;
    *prop = {};
    std::strcpy(prop->name, "fake GPU");
    prop->totalGlobalMem = rt().now.total;
    prop->major = attributes[cudaDevAttrComputeCapabilityMajor];
    prop->minor = attributes[cudaDevAttrComputeCapabilityMinor];
    prop->warpSize = attributes[cudaDevAttrWarpSize];
    prop->multiProcessorCount = attributes[cudaDevAttrMultiProcessorCount];
    prop->asyncEngineCount = attributes[cudaDevAttrAsyncEngineCount];
    prop->unifiedAddressing = attributes[cudaDevAttrUnifiedAddressing];
    prop->managedMemory = attributes[cudaDevAttrManagedMemory];
    prop->concurrentManagedAccess = attributes[cudaDevAttrConcurrentManagedAccess];
    prop->pageableMemoryAccess = attributes[cudaDevAttrPageableMemoryAccess];
    return cudaSuccess;
  });
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attr, int device) {
  return call("cudaDeviceGetAttribute", contextless, [&](guard&) {
    if (device < 0 || device >= rt().now.device_count) return cudaErrorInvalidDevice;
    if (attr < cudaDevAttrMaxThreadsPerBlock || attr >= cudaDevAttrMax) return cudaErrorInvalidValue;
    return give(value, rt().now.attributes[attr]);
  });
}
cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  return call("cudaMemGetInfo", unsafe, [&](guard&) {
    *total = rt().now.total;
    *free = *total - std::min(*total, used());
    return cudaSuccess;
  });
}
cudaError_t cudaDriverGetVersion(int* version) {
  return call("cudaDriverGetVersion", deviceless, [&](guard&) { return give(version, CUDART_VERSION); });
}
cudaError_t cudaRuntimeGetVersion(int* version) {
  return call("cudaRuntimeGetVersion", deviceless, [&](guard&) { return give(version, CUDART_VERSION); });
}

cudaError_t cudaGetDriverEntryPointByVersion(const char* symbol, void** function, unsigned, unsigned long long,
                                             cudaDriverEntryPointQueryResult* found) {
  return call("cudaGetDriverEntryPointByVersion", deviceless, [&](guard&) {
    static const std::map<std::string_view, void*> functions{
        {"cuDeviceGet", reinterpret_cast<void*>(&device_get)},
        {"cuDevicePrimaryCtxRetain", reinterpret_cast<void*>(&primary_retain)},
        {"cuDevicePrimaryCtxRelease", reinterpret_cast<void*>(&primary_release)},
        {"cuCtxGetCurrent", reinterpret_cast<void*>(&context_get_current)},
        {"cuThreadExchangeStreamCaptureMode", reinterpret_cast<void*>(&exchange_capture_mode)},
        {"cuCtxCreate", reinterpret_cast<void*>(&context_create)},
        {"cuCtxPopCurrent", reinterpret_cast<void*>(&context_pop)},
        {"cuCtxSetCurrent", reinterpret_cast<void*>(&context_set_current)},
        {"cuCtxDestroy", reinterpret_cast<void*>(&context_destroy)},
        {"cuMemGetAllocationGranularity", reinterpret_cast<void*>(&allocation_granularity)},
        {"cuMemAddressReserve", reinterpret_cast<void*>(&address_reserve)},
        {"cuMemAddressFree", reinterpret_cast<void*>(&address_free)},
        {"cuMemCreate", reinterpret_cast<void*>(&create_handle)},
        {"cuMemRelease", reinterpret_cast<void*>(&release_handle)},
        {"cuMemMap", reinterpret_cast<void*>(&map_handle)},
        {"cuMemUnmap", reinterpret_cast<void*>(&unmap_range)},
        {"cuMemSetAccess", reinterpret_cast<void*>(&set_access)},
        {"cuStreamIsCapturing", reinterpret_cast<void*>(&is_capturing)}};
    const auto it = functions.find(symbol);
    const bool there = it != functions.end();
    if (found != nullptr) *found = there ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
    return give(function, there ? it->second : nullptr);
  });
}

cudaError_t cudaMallocManaged(void** p, std::size_t size, unsigned flags) {
  return call("cudaMallocManaged", unsafe, [&](guard&) {
    if (size == 0 || (flags != cudaMemAttachGlobal && flags != cudaMemAttachHost)) return cudaErrorInvalidValue;
    if (rt().now.attributes[cudaDevAttrManagedMemory] == 0) return cudaErrorNotSupported;
    return allocate(p, size, cudaMemoryTypeManaged);
  });
}
cudaError_t cudaMalloc(void** p, std::size_t size) {
  return call("cudaMalloc", unsafe, [&](guard&) { return allocate(p, size, cudaMemoryTypeDevice); });
}
cudaError_t cudaMallocHost(void** p, std::size_t size) {
  return call("cudaMallocHost", unsafe, [&](guard&) { return allocate(p, size, cudaMemoryTypeHost); });
}
cudaError_t cudaHostAlloc(void** p, std::size_t size, unsigned) {
  return call("cudaHostAlloc", unsafe, [&](guard&) { return allocate(p, size, cudaMemoryTypeHost); });
}
cudaError_t cudaFree(void* p) {
  return call("cudaFree", releases | unsafe, [&](guard& lock) { return release(lock, p, false); });
}
cudaError_t cudaFreeHost(void* p) {
  return call("cudaFreeHost", releases | unsafe, [&](guard& lock) { return release(lock, p, true); });
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  return call("cudaStreamCreateWithFlags", unsafe, [&](guard&) {
    if (flags != cudaStreamDefault && flags != cudaStreamNonBlocking) return cudaErrorInvalidValue;
    *stream = new_handle<cudaStream_t>();
    start_stream(*stream, flags == cudaStreamDefault);
    return cudaSuccess;
  });
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  return call("cudaStreamDestroy", releases | unsafe, [&](guard&) {
    const auto it = rt().now.streams.find(stream);
    if (it == rt().now.streams.end() || stream == nullptr) return cudaErrorInvalidResourceHandle;
    it->second->closing = true;
    rt().now.destroyed.push_back(std::move(it->second));
    rt().now.streams.erase(it);
    rt().changed.notify_all();
    return cudaSuccess;
  });
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  return call("cudaStreamSynchronize", unsafe, [&](guard& lock) {
    const auto f = find_stream(stream);
    if (f != nullptr && f->capturing) return spoiled_capture(*f);
    if (legacy_is_blocked(stream)) return spoiled_by_legacy();
    return f == nullptr ? cudaErrorInvalidResourceHandle : drain(lock, f);
  });
}
cudaError_t cudaStreamQuery(cudaStream_t stream) {
  return call("cudaStreamQuery", unsafe, [&](guard&) {
    const auto f = find_stream(stream);
    if (f == nullptr) return cudaErrorInvalidResourceHandle;
    if (f->capturing) return spoiled_capture(*f);
    if (legacy_is_blocked(stream)) return spoiled_by_legacy();
    if (f->finished != f->issued) return cudaErrorNotReady;
    acquire_order(f.get());
    return cudaSuccess;
  });
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  return call("cudaStreamWaitEvent", 0, [&](guard&) {
    const auto f = find_stream(stream);
    const auto e = rt().now.events.find(event);
    if (f == nullptr || e == rt().now.events.end()) return cudaErrorInvalidResourceHandle;
    if (e->second.latest == nullptr) return cudaSuccess;
    put(*f, [latest = e->second.latest] {
      guard lock;
      (void)wait(lock, latest);
    });
    return cudaSuccess;
  });
}
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  return call("cudaStreamIsCapturing", 0, [&](guard&) {
    const auto f = find_stream(stream);
    if (f == nullptr) return cudaErrorInvalidResourceHandle;
    if (legacy_is_blocked(stream)) return cudaErrorStreamCaptureImplicit;
    return give(status, f->capturing ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone);
  });
}
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  return call("cudaStreamBeginCapture", 0, [&](guard&) {
    const auto f = find_stream(stream);
    if (f == nullptr) return cudaErrorInvalidResourceHandle;
    if (f->capturing) return cudaErrorIllegalState;
    f->capturing = true;
    f->capture_mode = mode;
    f->capturer = std::this_thread::get_id();
    f->invalidated = false;
    f->recording = std::make_shared<recorded_graph>();
    f->graph = new_handle<cudaGraph_t>();
    return cudaSuccess;
  });
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  return call("cudaStreamEndCapture", releases, [&](guard&) {
    const auto f = find_stream(stream);
    if (f == nullptr) return cudaErrorInvalidResourceHandle;
    if (!f->capturing || f->recording == nullptr) return cudaErrorIllegalState;
    if (f->capture_mode != cudaStreamCaptureModeRelaxed && f->capturer != std::this_thread::get_id()) {
      return cudaErrorStreamCaptureWrongThread;
    }
    f->capturing = false;
    if (f->invalidated) {
      f->recording = nullptr;
      f->graph = nullptr;
      (void)give(graph, cudaGraph_t{});
      return cudaErrorStreamCaptureInvalidated;
    }
    rt().now.graphs[f->graph] = std::exchange(f->recording, nullptr);
    return give(graph, std::exchange(f->graph, nullptr));
  });
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* made, cudaGraph_t graph, unsigned long long) {
  return call("cudaGraphInstantiate", unsafe, [&](guard&) {
    const auto it = rt().now.graphs.find(graph);
    if (it == rt().now.graphs.end()) return cudaErrorInvalidValue;
    const auto handle = new_handle<cudaGraphExec_t>();
    rt().now.graphs[handle] = it->second;
    return give(made, handle);
  });
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream) {
  return call("cudaGraphLaunch", 0, [&](guard&) {
    const auto it = rt().now.graphs.find(graph);
    const auto f = find_stream(stream);
    if (it == rt().now.graphs.end() || f == nullptr) return cudaErrorInvalidValue;
    for (const std::function<void()>& work : it->second->operations) {
      put(*f, [work, alive = it->second] { work(); });
    }
    return cudaSuccess;
  });
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) { return destroy_graph("cudaGraphDestroy", graph); }
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph) { return destroy_graph("cudaGraphExecDestroy", graph); }
cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, cudaStreamCaptureStatus* status, unsigned long long*,
                                     cudaGraph_t* graph, const cudaGraphNode_t**, const cudaGraphEdgeData**,
                                     std::size_t*) {
  return call("cudaStreamGetCaptureInfo", 0, [&](guard&) {
    const auto f = find_stream(stream);
    if (f == nullptr) return cudaErrorInvalidResourceHandle;
    if (graph != nullptr) *graph = f->graph;
    if (legacy_is_blocked(stream)) return cudaErrorStreamCaptureImplicit;
    return give(status, f->capturing ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone);
  });
}
cudaError_t cudaUserObjectCreate(cudaUserObject_t* made, void* p, cudaHostFn_t destroy, unsigned count, unsigned) {
  return call("cudaUserObjectCreate", 0, [&](guard&) {
    if (count != 1) return cudaErrorInvalidValue;  // all that is used here
    *made = new_handle<cudaUserObject_t>();
    rt().now.user_objects[*made] = std::shared_ptr<void>(p, destroy);
    return cudaSuccess;
  });
}
cudaError_t cudaUserObjectRelease(cudaUserObject_t object, unsigned) {
  std::shared_ptr<void> last;  // ends without the mutex
  return call("cudaUserObjectRelease", releases, [&](guard&) {
    auto& all = rt().now.user_objects;
    const auto it = all.find(object);
    if (it == all.end()) return cudaErrorInvalidValue;
    last = std::move(it->second);
    all.erase(it);
    return cudaSuccess;
  });
}
cudaError_t cudaGraphRetainUserObject(cudaGraph_t graph, cudaUserObject_t object, unsigned count, unsigned flags) {
  return call("cudaGraphRetainUserObject", 0, [&](guard&) {
    state& s = rt().now;
    const auto it = s.user_objects.find(object);
    if (it == s.user_objects.end() || count != 1 || flags != cudaGraphUserObjectMove) return cudaErrorInvalidValue;
    std::shared_ptr<recorded_graph> into = s.graphs.contains(graph) ? s.graphs.at(graph) : nullptr;
    for (auto& [handle, f] : s.streams) {
      if (f->graph == graph && graph != nullptr) into = f->recording;
    }
    if (into == nullptr) return cudaErrorInvalidValue;
    into->objects.push_back(std::move(it->second));
    s.user_objects.erase(it);
    return cudaSuccess;
  });
}
cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  return call("cudaThreadExchangeStreamCaptureMode", 0, [&](guard&) {
    std::swap(*mode, capture_mode);
    return cudaSuccess;
  });
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  return call("cudaEventCreateWithFlags", 0, [&](guard&) {
    *event = new_handle<cudaEvent_t>();
    rt().now.events[*event] = {(flags & cudaEventDisableTiming) == 0, nullptr, context_now()};
    return cudaSuccess;
  });
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  return call("cudaEventDestroy", releases,
              [&](guard&) { return rt().now.events.erase(event) == 1 ? cudaSuccess : cudaErrorInvalidResourceHandle; });
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return call("cudaEventRecord", 0, [&](guard&) {
    const auto f = find_stream(stream);
    const auto e = rt().now.events.find(event);
    if (f == nullptr || e == rt().now.events.end()) return cudaErrorInvalidResourceHandle;
    if (key(stream) != nullptr && f->context != e->second.context) return cudaErrorInvalidResourceHandle;
    if (legacy_is_blocked(stream)) return spoiled_by_legacy();
    auto latest = std::make_shared<recording>();
    e->second.captured = f->capturing;
    if (!f->capturing) e->second.latest = latest;
    put(*f, [latest] {
      const guard lock;
      release_order(latest.get());
      latest->done = true;
      latest->at = clock_now();
    });
    return cudaSuccess;
  });
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  return call("cudaEventQuery", unsafe, [&](guard&) {
    const auto e = rt().now.events.find(event);
    if (e == rt().now.events.end()) return cudaErrorInvalidResourceHandle;
    if (e->second.captured) return cudaErrorCapturedEvent;
    return done(e->second.latest) ? cudaSuccess : cudaErrorNotReady;
  });
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  return call("cudaEventSynchronize", unsafe, [&](guard& lock) {
    const auto e = rt().now.events.find(event);
    if (e == rt().now.events.end()) return cudaErrorInvalidResourceHandle;
    if (e->second.captured) return cudaErrorCapturedEvent;
    return wait(lock, std::shared_ptr<recording>(e->second.latest));  // which may be recorded anew meanwhile
  });
}
cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t start, cudaEvent_t end) {
  return call("cudaEventElapsedTime", 0, [&](guard&) {
    const auto a = rt().now.events.find(start);
    const auto b = rt().now.events.find(end);
    for (const auto& e : {a, b}) {
      if (e == rt().now.events.end() || !e->second.timing || e->second.latest == nullptr) {
        return cudaErrorInvalidResourceHandle;
      }
    }
    if (!done(a->second.latest) || !done(b->second.latest)) return cudaErrorNotReady;
    *ms = std::chrono::duration<float, std::milli>(b->second.latest->at - a->second.latest->at).count();
    return cudaSuccess;
  });
}

cudaError_t cudaLaunchKernel(const void* func, dim3 grid, dim3 block, void** args, std::size_t shared,
                             cudaStream_t stream) {
  return call("cudaLaunchKernel", 0, [&](guard&) {
    const auto kernel = rt().kernels.find(func);
    if (kernel == rt().kernels.end()) return cudaErrorInvalidDeviceFunction;
    if (grid.x == 0 || grid.y == 0 || grid.z == 0 || block.x == 0 || block.y == 0 || block.z == 0 ||
        std::uint64_t{block.x} * block.y * block.z > 1024) {
      return cudaErrorInvalidConfiguration;
    }
    const auto f = find_stream(stream);
    if (f == nullptr || (key(stream) != nullptr && f->context != context_now())) {
      return cudaErrorInvalidResourceHandle;
    }
    rt().now.launches.push_back({func, grid, block, shared, stream});
    put(*f, kernel->second(args));
    return cudaSuccess;
  });
}
cudaError_t cudaMemcpyAsync(void* dst, const void* src, std::size_t count, cudaMemcpyKind kind, cudaStream_t stream) {
  return call("cudaMemcpyAsync", 0, [&](guard& lock) {
    if (kind > cudaMemcpyDefault) return cudaErrorInvalidMemcpyDirection;
    // A range that begins in an allocation has to end there.
    for (const void* p : {static_cast<const void*>(dst), src}) {
      if (p == nullptr || (find(p) != nullptr && count > 0 && find(p, count) == nullptr)) return cudaErrorInvalidValue;
    }
    if (!device_may(src, count, access::read) || !device_may(dst, count, access::overwrite)) {
      return cudaErrorInvalidValue;
    }
    const auto f = find_stream(stream);
    if (f == nullptr) return cudaErrorInvalidResourceHandle;
    if (count == 0) return cudaSuccess;
    const auto pageable = [](const void* p) { return find(p) == nullptr && !in_reserved(p); };
    const bool waits = pageable(dst) || pageable(src);
    const auto& handles = rt().now.handles;
    const bool leaves = all_views(src, count, [&](const view& v) { return handles.at(v.handle).on_device; }) &&
                        all_views(dst, count, [&](const view& v) { return !handles.at(v.handle).on_device; });
    if (leaves) {
      rt().now.in_a_row = count + (rt().now.leaving != 0 ? rt().now.in_a_row : 0);
      rt().now.leaving += count;
      rt().now.counted.leaving_in_a_row = std::max(rt().now.counted.leaving_in_a_row, deepum::bytes{rt().now.in_a_row});
    }
    const nanoseconds leaving_time = leaves ? rt().now.leaving_time : nanoseconds{};
    const auto copy = [=] {
      {
        const guard held;
        check_access(src, count, access::read);
        check_access(dst, count, access::overwrite);
      }
      touch(src, count, access::read);
      touch(dst, count, access::overwrite);
      std::memcpy(dst, src, count);
      std::this_thread::sleep_for(leaving_time);
      const guard held;
      rt().now.leaving -= leaves ? count : 0;
    };
    put(*f, copy,
        {{static_cast<const std::byte*>(src), count, false}, {static_cast<const std::byte*>(dst), count, true}});
    return waits ? drain(lock, f) : cudaSuccess;
  });
}
cudaError_t cudaMemsetAsync(void* p, int value, std::size_t count, cudaStream_t stream) {
  return call("cudaMemsetAsync", 0, [&](guard&) {
    const auto f = find_stream(stream);
    if (f == nullptr) return cudaErrorInvalidResourceHandle;
    if (count == 0) return cudaSuccess;
    if (in_reserved(p) ? !device_may(p, count, access::overwrite) : find(p, count) == nullptr) {
      return cudaErrorInvalidValue;
    }
    const auto set = [=] {
      {
        const guard held;
        check_access(p, count, access::overwrite);
      }
      touch(p, count, access::overwrite);
      std::memset(p, value, count);
    };
    put(*f, set, {{static_cast<const std::byte*>(p), count, true}});
    return cudaSuccess;
  });
}

cudaError_t cudaMemPrefetchAsync(const void* p, std::size_t count, cudaMemLocation location, unsigned flags,
                                 cudaStream_t stream) {
  return call("cudaMemPrefetchAsync", 0, [&](guard&) {
    const auto to = number_of(location);
    if (rt().now.attributes[cudaDevAttrConcurrentManagedAccess] == 0 || !to) return cudaErrorInvalidDevice;
    if (flags != 0 || find_managed(p, count) == nullptr) return cudaErrorInvalidValue;
    const auto f = find_stream(stream);
    if (f == nullptr) return cudaErrorInvalidResourceHandle;
    put_ranges(stream, *f, hint::kind::prefetch, {{const_cast<void*>(p), count, *to}});
    return cudaSuccess;
  });
}
cudaError_t cudaMemPrefetchBatchAsync(void** dptrs, std::size_t* sizes, std::size_t count, cudaMemLocation* locations,
                                      std::size_t* indices, std::size_t n, unsigned long long flags,
                                      cudaStream_t stream) {
  return call("cudaMemPrefetchBatchAsync", 0, [&](guard&) {
    return put_batch(stream, hint::kind::prefetch, dptrs, sizes, count, locations, indices, n, flags);
  });
}
cudaError_t cudaMemDiscardBatchAsync(void** dptrs, std::size_t* sizes, std::size_t count, unsigned long long flags,
                                     cudaStream_t stream) {
  return call("cudaMemDiscardBatchAsync", 0, [&](guard&) {
    return put_batch(stream, hint::kind::discard, dptrs, sizes, count, nullptr, nullptr, 0, flags);
  });
}
cudaError_t cudaMemDiscardAndPrefetchBatchAsync(void** dptrs, std::size_t* sizes, std::size_t count,
                                                cudaMemLocation* locations, std::size_t* indices, std::size_t n,
                                                unsigned long long flags, cudaStream_t stream) {
  return call("cudaMemDiscardAndPrefetchBatchAsync", 0, [&](guard&) {
    return put_batch(stream, hint::kind::discard_and_prefetch, dptrs, sizes, count, locations, indices, n, flags);
  });
}
cudaError_t cudaMemAdvise(const void* p, std::size_t count, cudaMemoryAdvise advice, cudaMemLocation location) {
  return call("cudaMemAdvise", 0, [&](guard&) {
    // These three are about the range alone.
    const bool anywhere = advice == cudaMemAdviseSetReadMostly || advice == cudaMemAdviseUnsetReadMostly ||
                          advice == cudaMemAdviseUnsetPreferredLocation;
    const auto place = anywhere ? cudaInvalidDeviceId : number_of(location);
    if (!place || (*place == 0 && rt().now.attributes[cudaDevAttrConcurrentManagedAccess] == 0)) {
      return cudaErrorInvalidDevice;
    }
    if (find_managed(p, count) == nullptr || advice < cudaMemAdviseSetReadMostly ||
        advice > cudaMemAdviseUnsetAccessedBy) {
      return cudaErrorInvalidValue;
    }
    rt().now.hints.push_back({hint::kind::advise, p, count, *place, advice, nullptr});
    for_each_block(p, count, [&](block& b, const std::byte*) { advise(b, advice, *place); });
    return cudaSuccess;
  });
}
cudaError_t cudaMemRangeGetAttribute(void* data, std::size_t size, cudaMemRangeAttribute attribute, const void* p,
                                     std::size_t count) {
  return call("cudaMemRangeGetAttribute", 0, [&](guard&) {
    const bool list = attribute == cudaMemRangeAttributeAccessedBy;
    if (find_managed(p, count) == nullptr || (list ? size == 0 || size % 4 != 0 : size != 4)) {
      return cudaErrorInvalidValue;
    }
    // `found` is what all blocks agree on.
    bool all_read_mostly = true;
    bool all_accessed_by = true;
    std::optional<int> found;
    for_each_block(p, count, [&](block& b, const std::byte*) {
      all_read_mostly &= b.read_mostly;
      all_accessed_by &= b.accessed_by;
      const bool preferred = attribute == cudaMemRangeAttributePreferredLocation ||
                             attribute == cudaMemRangeAttributePreferredLocationType ||
                             attribute == cudaMemRangeAttributePreferredLocationId;
      const int at = preferred ? b.preferred : b.last_prefetch;
      found = !found || *found == at ? at : cudaInvalidDeviceId;
    });
    std::vector<int> result(size / 4, cudaInvalidDeviceId);
    switch (attribute) {
      case cudaMemRangeAttributeReadMostly:
        result[0] = all_read_mostly ? 1 : 0;
        break;
      case cudaMemRangeAttributeAccessedBy:
        if (all_accessed_by) result[0] = 0;
        break;
      case cudaMemRangeAttributePreferredLocationType:
      case cudaMemRangeAttributeLastPrefetchLocationType:
        result[0] = *found == cudaInvalidDeviceId ? cudaMemLocationTypeInvalid
                    : *found == cudaCpuDeviceId   ? cudaMemLocationTypeHost
                                                  : cudaMemLocationTypeDevice;
        break;
      default:
        result[0] = *found;
    }
    std::memcpy(data, result.data(), size);
    return cudaSuccess;
  });
}
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* p) {
  return call("cudaPointerGetAttributes", 0, [&](guard&) {
    const allocation* a = find(p);
    const auto v = find_view(static_cast<const std::byte*>(p));
    const bool mapped = v != rt().now.views.end();
    *attributes = {};
    attributes->type = a != nullptr                                      ? a->type
                       : !mapped                                         ? cudaMemoryTypeUnregistered
                       : rt().now.handles.at(v->second.handle).on_device ? cudaMemoryTypeDevice
                                                                         : cudaMemoryTypeHost;
    attributes->device = a == nullptr && !mapped ? cudaInvalidDeviceId : 0;
    attributes->devicePointer = a == nullptr && !mapped ? nullptr : const_cast<void*>(p);
    attributes->hostPointer = attributes->type == cudaMemoryTypeDevice ? nullptr : const_cast<void*>(p);
    return cudaSuccess;
  });
}
cudaError_t cudaDeviceSynchronize() {
  return call("cudaDeviceSynchronize", 0, [&](guard& lock) {
    return spoils_captures([](const fifo& f) { return f.capturing; }) ? cudaErrorStreamCaptureUnsupported
                                                                      : drain_all(lock);
  });
}

cudaError_t cudaPeekAtLastError() {
  const guard lock;
  ++rt().now.calls["cudaPeekAtLastError"];
  return rt().now.broken != cudaSuccess ? rt().now.broken : last_error;
}
cudaError_t cudaGetLastError() {
  const guard lock;
  ++rt().now.calls["cudaGetLastError"];
  const cudaError_t e = std::exchange(last_error, cudaSuccess);
  return rt().now.broken != cudaSuccess ? rt().now.broken : e;
}
const char* cudaGetErrorName(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return "cudaSuccess";
    case cudaErrorInvalidValue:
      return "cudaErrorInvalidValue";
    case cudaErrorMemoryAllocation:
      return "cudaErrorMemoryAllocation";
    case cudaErrorInvalidConfiguration:
      return "cudaErrorInvalidConfiguration";
    case cudaErrorInvalidDeviceFunction:
      return "cudaErrorInvalidDeviceFunction";
    case cudaErrorNoDevice:
      return "cudaErrorNoDevice";
    case cudaErrorInvalidDevice:
      return "cudaErrorInvalidDevice";
    case cudaErrorInvalidResourceHandle:
      return "cudaErrorInvalidResourceHandle";
    case cudaErrorNotReady:
      return "cudaErrorNotReady";
    case cudaErrorIllegalAddress:
      return "cudaErrorIllegalAddress";
    case cudaErrorLaunchFailure:
      return "cudaErrorLaunchFailure";
    case cudaErrorNotSupported:
      return "cudaErrorNotSupported";
    case cudaErrorStreamCaptureUnsupported:
      return "cudaErrorStreamCaptureUnsupported";
    case cudaErrorStreamCaptureInvalidated:
      return "cudaErrorStreamCaptureInvalidated";
    default:
      return "unrecognized error code";
  }
}
const char* cudaGetErrorString(cudaError_t error) {
  return error == cudaSuccess ? "no error" : cudaGetErrorName(error);
}

}  // extern "C"
