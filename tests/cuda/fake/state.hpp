#pragma once

#include "cuda/fake_cuda.hpp"
#include <deepum/core/block.hpp>
#include <deepum/core/launch.hpp>
#include <deepum/units.hpp>

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <array>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

/// What the fake CUDA is made of. fake_cuda.hpp says what it models; nothing but the files beside this one includes it.
namespace fake_runtime {

using namespace deepum_test::fake_cuda;
using deepum::access;  // not the one of POSIX
using deepum::nanoseconds;

inline constexpr std::size_t block_bytes = deepum::block_size.count;
inline constexpr std::size_t granularity = std::size_t{2} << 20;  ///< of the virtual memory management
inline constexpr std::size_t unlimited = std::numeric_limits<std::size_t>::max();

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

/// A stream.
struct fifo {
  std::deque<operation> queue;
  std::vector<use> uses;  ///< of the operation that is executed
  std::uint64_t issued = 0;
  std::uint64_t finished = 0;
  bool blocking = true;  ///< ordered with the legacy stream, which is so too
  bool legacy = false;   ///< it is the default stream of its device
  bool held = false;
  bool capturing = false;
  cudaStreamCaptureMode capture_mode = cudaStreamCaptureModeGlobal;
  std::thread::id capturer{};                 ///< the thread that began the capture; none: a test did
  bool invalidated = false;                   ///< somebody has done what the capture forbids
  std::shared_ptr<recorded_graph> recording;  ///< of a capture that cudaStreamBeginCapture began
  cudaGraph_t graph = nullptr;                ///< what that will be
  bool closing = false;
  CUcontext context = nullptr;
  int device = 0;  ///< of the context
  std::thread worker;
};

struct allocation {
  cudaMemoryType type{};
  std::byte* base = nullptr;
  std::size_t size = 0;
  std::vector<block> blocks;  ///< of managed memory
  int device = 0;             ///< of cudaMalloc
};

/// What a handle of the virtual memory management stands for: a piece of the file.
struct physical {
  std::size_t offset = 0;
  std::size_t size = 0;
  int device = cudaCpuDeviceId;  ///< whose memory it is
  bool released = false;
  unsigned mappings = 0;

  [[nodiscard]] bool on_device() const { return device != cudaCpuDeviceId; }
};

/// A mapping.
struct view {
  std::size_t size = 0;
  CUmemGenericAllocationHandle handle = 0;
  std::array<CUmemAccess_flags, most_devices> device{};  ///< by device; none at first
  CUmemAccess_flags host = CU_MEM_ACCESS_FLAGS_PROT_NONE;
};

struct injection {
  std::string name;  ///< empty: any
  unsigned left = 0;
  cudaError_t error{};
  bool always = false;
  unsigned times = 1;
  bool refused = false;  ///< what gives back does not, either
};

/// One device's memory.
struct gpu {
  std::size_t total = std::size_t{1} << 30;
  std::size_t foreign = 0;
  std::size_t plain = 0;      ///< cudaMalloc
  std::uint64_t blocks = 0;   ///< of managed memory
  std::size_t handles = 0;    ///< bytes
  std::size_t most_used = 0;  ///< at any time
  std::set<int> peers;        ///< whose memory its kernels may use: cudaDeviceEnablePeerAccess

  [[nodiscard]] std::size_t used() const { return blocks * block_bytes + plain + handles + foreign; }
};

/// All that `reset` sets back.
struct state {
  int device_count = 1;
  bool peers = true;  ///< devices may use the memory of one another, if they ask for it
  std::map<int, int> attributes{{cudaDevAttrConcurrentManagedAccess, 1}, {cudaDevAttrManagedMemory, 1},
                                {cudaDevAttrUnifiedAddressing, 1},       {cudaDevAttrMultiProcessorCount, 132},
                                {cudaDevAttrComputeCapabilityMajor, 9},  {cudaDevAttrComputeCapabilityMinor, 0},
                                {cudaDevAttrAsyncEngineCount, 3},        {cudaDevAttrWarpSize, 32}};
  std::array<gpu, most_devices> gpus{};
  bool no_contexts = false;  ///< cuCtxCreate fails
  std::map<const void*, std::shared_ptr<recorded_graph>> graphs;
  std::map<const void*, std::shared_ptr<void>> user_objects;  ///< that no graph has taken
  std::uint64_t migrations = 0;
  nanoseconds clock_offset{};
  std::mt19937_64 random;
  std::chrono::microseconds longest_delay{};
  nanoseconds leaving_time{};
  fault_sink sink;
  nanoseconds fault_delay{};

  std::map<const void*, std::shared_ptr<fifo>> streams;  ///< by handle; the legacy ones, once used, by `legacy_key`
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
  int file;  ///< of which handles are pieces
};
[[nodiscard]] runtime& rt();

extern thread_local cudaError_t last_error;
extern thread_local cudaStreamCaptureMode capture_mode;
extern thread_local std::vector<CUcontext> contexts_below;
extern thread_local int thread_device;          ///< what cudaSetDevice has chosen
extern thread_local CUcontext current_context;  ///< none: the next call of the runtime takes that device's
extern thread_local fifo* executing;            ///< the stream whose worker this is

/// Ends the body of a kernel, or another operation, that has made an illegal access.
struct illegal_access {};

inline CUcontext primary(int device) { return reinterpret_cast<CUcontext>(static_cast<std::uintptr_t>(0x10 + device)); }
inline bool is_primary(CUcontext c) { return reinterpret_cast<std::uintptr_t>(c) < 0x1000 && c != nullptr; }
inline CUcontext context_now() { return current_context != nullptr ? current_context : primary(thread_device); }
inline int device_of(CUcontext c) {
  return is_primary(c) ? static_cast<int>(reinterpret_cast<std::uintptr_t>(c) - 0x10) : rt().now.contexts.at(c);
}
inline int device_now() { return device_of(context_now()); }
/// Of the operation that the calling worker executes; else the thread's current one.
inline int executing_device() { return executing != nullptr ? executing->device : device_now(); }
inline bool is_device(int ordinal) { return ordinal >= 0 && ordinal < rt().now.device_count; }

// --- What ThreadSanitizer sees. The fake's own mutex orders all that is done with it, which would hide races of those
// who use it. So it is kept from seeing what happens under the mutex, and told of the order that CUDA promises. ---

void ignore(bool on);
/// What was done before `release_order(x)` happens before what is done after a later `acquire_order(x)`.
void release_order(void* what);
void acquire_order(void* what);

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

/// f(state), with the mutex.
template <class F>
auto locked(F f) {
  const guard held;
  return f(rt().now);
}

/// The device's clock, with the mutex.
[[nodiscard]] nanoseconds clock_now();

}  // namespace fake_runtime
