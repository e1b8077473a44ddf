#pragma once

#include <deepum/core/launch.hpp>
#include <deepum/units.hpp>

#include <cuda_runtime_api.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

/// A CUDA runtime without a GPU. The files of fake/ define the functions of the runtime API that deepum uses, with the
/// signatures of the installed headers; a test program links it instead of libcudart. This is what it models.
///
/// Up to eight devices, one at first, and real threads: each stream is a FIFO with a worker of its own. The legacy
/// stream is ordered with those that are not made non-blocking, each with what was put into the other before. A
/// destroyed stream still does its work. cudaFree and its like wait for the device. A copy from or to pageable memory
/// waits for its stream. All handles differ, so that one that is used too late is found out.
///
/// A kernel is an ordinary function that was registered; it runs once for each launch, on the worker, and says by
/// `device_touch` what a GPU would touch before it does so.
///
/// Each device has memory, streams and a default stream of its own, and each thread a current device. What is asked of
/// another device's stream or event than the current one's fails where CUDA says so: a launch, a recording, the time
/// between events of two devices. Copies, waits and queries work. A kernel finds memory of cudaMalloc on another device
/// where cudaDeviceEnablePeerAccess was called, and paged memory where cuMemSetAccess let its device in; a managed
/// block moves between them, and is on one device at a time. Whatever breaks one device breaks all.
///
/// Contexts are modelled as far as it takes to see a thread use the wrong one. Each device has a primary one, of which
/// a thread takes that of its current device when it first needs one; `opened_devices` tells whose were made.
/// Further contexts are made through the driver's functions that cudaGetDriverEntryPointByVersion gives (cuDeviceGet,
/// cuCtxCreate, cuCtxPopCurrent, cuCtxSetCurrent, cuCtxDestroy). A stream or event belongs to the context that was
/// current when it was made: a launch needs the stream's context to be current, a recording an event of the stream's
/// context.
///
/// Managed memory is made of whole 2 MiB blocks, each with a copy on the device, on the host, both (read-mostly alone)
/// or none; operations on a part of a block move all of it. Contents are in one place for host and device, so moving
/// them cannot corrupt them; what can is a discard: it fills its bytes with `poison` when the stream gets there.
/// * A device access to a block without a copy there faults, as does a write to a block that has both copies. The block
///   then moves, unless the host is its preferred location: then it is mapped and read remotely (without a fault where
///   accessed-by was set). Accesses do not make a block recently used; faults and prefetches do.
/// * Device memory is bounded. Where a block or a cudaMalloc finds it full, the least recently migrated block is
///   evicted by the driver. Where nothing is left to evict, blocks stay on the host and cudaMalloc fails.
/// * Prefetch to the host leaves the device's copy of a read-mostly block. When read-mostly is unset, of two copies
///   that on the device stays if it is the preferred location, else that on the host (measured, driver 580).
/// * Discarded contents are never copied, until the block is written or prefetched.
///
/// The driver's virtual memory management (cuMemGetAllocationGranularity, cuMemAddressReserve, cuMemCreate, cuMemMap,
/// cuMemSetAccess and what undoes them) works with whole multiples of 2 MiB.
/// * A reserved range is address space alone. A handle is memory, of the device or of the host, that begins as
/// `poison`.
///   A mapping shows the bytes of its handle, from the first on: several mappings of one handle show the same bytes,
///   and an address that is mapped anew shows those of the other handle. A released handle lives until its last mapping
///   ends. A range is unmapped, or its access set, by whole mappings; a range that has mappings is not freed. To unmap
///   where nothing is mapped is no error, as on an H200.
/// * Handles of the device count against its memory; managed blocks make room for them, as for cudaMalloc. Handles of
///   the host and reserved ranges have limits that can be set.
/// * A mapping begins without access. The device's and the host's are granted apart, and for memory of the device the
///   host's is refused, as it is where the two are joined by PCIe. Here both are threads of one process, so a page lets
///   in who may access it in either way: the device's access is checked by `device_touch`, copies and memsets, the
///   host's can be asked for by `host_may_access`.
/// * Neither unmapping nor the loss of device access waits for anything. If an operation in flight uses the memory (a
///   kernel that is executed and has touched it, a copy or memset that is queued or executed), the device breaks with
///   an illegal address; the call returns that error, where a real one may say nothing. The pages of a broken device
///   stay as they are until `reset`, so that a kernel's body that is still executed does not crash the program.
///
/// The device's clock is the steady clock plus an offset.
///
/// Errors: the last one is kept for each thread until cudaGetLastError; those that break a real context (an illegal
/// address, a launch failure ...) break the device: nothing is executed any more and every call fails with it until
/// `reset`. A call that frees, unmaps or destroys does so even where it returns an injected error, as the real ones do
/// when they hand on the error of earlier work.
///
/// While a stream is captured, what is put into it is counted and not executed. A capture in global mode forbids calls
/// to all threads that are in this mode too, one in thread-local mode to its own thread; threads in relaxed mode may do
/// all of it. Forbidden is what does not put work into a stream: malloc, free, virtual memory management but for the
/// granularity, query, synchronize; and calls of which NVIDIA does not say that they are safe: free memory, streams and
/// contexts made or destroyed, prefetch, advice, discard, graphs instantiated or destroyed. Events may be made and
/// recorded. To ask or await the captured stream itself, or the device, is never allowed, nor to use the
/// legacy stream while one that is ordered with it is captured. Whoever does what is
/// forbidden gets an error, and cudaStreamEndCapture gives no graph. What was put into a stream between
/// cudaStreamBeginCapture and cudaStreamEndCapture is executed by cudaGraphLaunch, in order. Who asks how far an event
/// is that was last recorded in a captured stream is told cudaErrorCapturedEvent. User objects are given to one graph,
/// also to that of a capture, and end with the last of the graph, what was instantiated of it, and its launches.
///
/// All functions may be called from any thread. ThreadSanitizer is shown the order that CUDA promises and no other: a
/// call before the work it puts into a stream, and work before a wait or a query that finds it done. So it sees races
/// of callers with each other and with kernels, and of kernels and discards in streams that do not wait for each other.
/// Mapping and unmapping let it forget what was done at these addresses, and it takes two mappings of one handle for
/// different memory.
namespace deepum_test {

/// What a GPU does when a kernel touches [p, p + size): faults are served block by block. For bodies of kernels only.
/// An address that is in no allocation, or in a reserved range without this access of the device, is an illegal one: it
/// breaks the device, and the kernel ends there (an exception unwinds the body).
void device_touch(const void* p, std::size_t size, deepum::access mode);

/// What the host's page tables do when the program touches [p, p + size): the blocks move to the host.
void host_touch(const void* p, std::size_t size, deepum::access mode);

namespace fake_cuda {

inline constexpr int poison = 0xCD;  ///< every byte of discarded contents

/// Ends a test: resumes and ends all streams, frees all, and sets everything but the kernels back to the beginning.
/// @returns  What the test has left behind, one item a line: streams, events, contexts, allocations, reserved ranges,
///           memory handles, mappings, graphs. Empty if nothing.
[[nodiscard]] std::string reset();

// --- The machine. Before anything is set: one device of 1 GiB, all of it free. ---

inline constexpr int most_devices = 8;
void set_device_count(int n);
void set_peer_access(bool possible);                      ///< of devices to the memory of one another; at first it is
void set_refuse_contexts(bool refuse);                    ///< cuCtxCreate fails
void set_attribute(cudaDeviceAttr attribute, int value);  ///< e.g. cudaDevAttrConcurrentManagedAccess, 0
void set_device_memory(deepum::bytes total);              ///< of every device
void set_device_memory(int device, deepum::bytes total);
/// Device memory that others hold; managed blocks make room for it.
void set_foreign_memory(deepum::bytes held, int device = 0);
void set_host_memory(deepum::bytes total);          ///< what handles may hold of it; without a limit at first
void set_address_space(deepum::bytes total);        ///< what may be reserved; without a limit at first
void set_clock_offset(deepum::nanoseconds offset);  ///< device clock less steady clock
[[nodiscard]] deepum::nanoseconds device_clock();
/// Every operation of a stream begins with a delay of up to `longest`, at random. 0: none.
void set_delays(std::uint64_t seed, std::chrono::microseconds longest);
/// Every copy from a handle of the device to one of the host takes as long as this, at least.
void set_leaving_time(deepum::nanoseconds time);

/// `sink` is told of each fault on the device when it happens, on the thread of the stream: first byte that was touched
/// in the block, how, and when on the device's clock.
using fault_sink = std::function<void(const void* address, deepum::access mode, deepum::nanoseconds at)>;
void set_fault_sink(fault_sink sink);
void set_fault_delay(deepum::nanoseconds delay);  ///< how long a fault takes to be served

// --- Kernels. ---

using bound_kernel = std::function<void()>;
void register_kernel(const void* function, std::function<bound_kernel(void** args)> bind);

/// Makes `function` known to cudaLaunchKernel, which copies the arguments when it is called.
template <class... P>
void register_kernel(void (*function)(P...)) {
  register_kernel(reinterpret_cast<const void*>(function), [function](void** args) -> bound_kernel {
    return [&]<std::size_t... I>(std::index_sequence<I...>) -> bound_kernel {
      std::tuple<P...> values{*static_cast<P*>(args[I])...};
      return [function, values] { std::apply(function, values); };
    }(std::index_sequence_for<P...>{});
  });
}

// --- Streams. ---

void hold(cudaStream_t stream);    ///< the GPU is busy: nothing more of this stream begins
void resume(cudaStream_t stream);  ///< ends `hold`
void set_capturing(cudaStream_t stream, bool capturing);

// --- Failures. ---

/// The `nth` call of `name` from now on (1: the next) returns `error`, and does nothing unless it gives something back.
void fail_call(std::string_view name, unsigned nth, cudaError_t error);
/// So many calls of `name`, from the `nth` on, return `error` and do nothing, not even where they give something back.
void refuse_calls(std::string_view name, unsigned nth, unsigned times, cudaError_t error);
void fail_all_calls(std::string_view name, cudaError_t error);  ///< from now on
/// `fail_call` for the nth call of any function; those that only report errors do not count.
void fail_nth_call_of_any(unsigned nth, cudaError_t error);
/// What was to fail and has not yet does not fail any more.
void forget_failures();
/// The device breaks, with an error that sticks. A kernel may call this.
void break_device(cudaError_t error);

// --- What has happened. ---

struct statistics {
  std::uint64_t calls = 0;               ///< of all functions that count for `fail_nth_call_of_any`
  std::uint64_t failures = 0;            ///< calls that failed because of `fail_call` or `fail_nth_call_of_any`
  std::uint64_t faults = 0;              ///< on the device
  std::uint64_t host_faults = 0;         ///< blocks that `host_touch` had to bring
  std::uint64_t to_device = 0;           ///< blocks that were copied to the device
  std::uint64_t to_host = 0;             ///< blocks that were copied to the host, by evictions too
  std::uint64_t between_devices = 0;     ///< blocks that were copied from one device to another
  std::uint64_t driver_evictions = 0;    ///< blocks the driver took off the device to make room
  std::uint64_t captured = 0;            ///< operations that were put into a captured stream
  std::uint64_t capture_violations = 0;  ///< calls that a capture forbids
  std::uint64_t device_blocks = 0;       ///< managed blocks on a device now
  deepum::bytes managed{};               ///< managed memory that is allocated now
  deepum::bytes managed_peak{};
  deepum::bytes device_handles{};  ///< device memory that handles hold now, released but mapped ones too
  deepum::bytes device_handles_peak{};
  deepum::bytes host_handles{};  ///< likewise of the host
  deepum::bytes host_handles_peak{};
  std::uint64_t maps = 0;             ///< calls of cuMemMap that have done it
  std::uint64_t unmaps = 0;           ///< of cuMemUnmap
  std::uint64_t access_changes = 0;   ///< of cuMemSetAccess
  std::uint64_t device_mappings = 0;  ///< those of them that gave the device its memory
  deepum::bytes
      leaving_beside_access{};       ///< copies from the device's handles to the host's under way then, all added up
  deepum::bytes leaving_in_a_row{};  ///< of such copies, each given while another was under way, at most
  deepum::bytes peer_copies{};       ///< by cudaMemcpyPeerAsync
  std::uint64_t taken_in_use = 0;    ///< calls that took memory away from operations in flight: 0 or 1
  std::uint64_t most_mappings = 0;   ///< of one handle at a time
};
[[nodiscard]] statistics stats();
[[nodiscard]] deepum::bytes used_memory(int device);       ///< by all that is on the device, and by others
[[nodiscard]] deepum::bytes most_used_memory(int device);  ///< of what room was made for, at any time
[[nodiscard]] std::uint64_t calls(std::string_view name);  ///< calls of one function, whatever they returned
[[nodiscard]] std::uint64_t calls_of_this_thread(std::string_view name);  ///< since it began, whatever was reset
[[nodiscard]] std::uint64_t calls_of_this_thread();                       ///< of all functions
[[nodiscard]] std::vector<int> opened_devices();                          ///< whose primary context has been made
[[nodiscard]] std::vector<std::string> failed_calls();  ///< functions that `statistics::failures` counts, in order

/// Whether the host may access all of [p, p + size) in this way: what is mapped there with the host's access, all that
/// is in no reserved range but for memory of cudaMalloc.
[[nodiscard]] bool host_may_access(const void* p, std::size_t size, deepum::access mode);

/// A range that a call which succeeded has named; in order of the calls, batches range by range.
struct hint {
  enum class kind : std::uint8_t { prefetch, advise, discard, discard_and_prefetch };
  kind what;
  const void* address;
  std::size_t size;
  int location;  ///< a device, cudaCpuDeviceId, or cudaInvalidDeviceId (discard)
  int advice;    ///< cudaMemoryAdvise, or 0
  cudaStream_t stream;
};
[[nodiscard]] std::vector<hint> hints();

struct launch {
  const void* function;
  dim3 grid;
  dim3 block;
  std::size_t shared;
  cudaStream_t stream;
};
[[nodiscard]] std::vector<launch> launches();

/// A block of managed memory.
struct block {
  bool on_device = false;
  bool on_host = false;
  bool read_mostly = false;
  int device = cudaInvalidDeviceId;  ///< which, where it is on one
  unsigned accessed_by = 0;          ///< by which devices: one bit each, device 0 the lowest
  bool discarded = false;
  bool mapped = false;                      ///< a fault has mapped the host's copy into the device
  int preferred = cudaInvalidDeviceId;      ///< a device, or cudaCpuDeviceId
  int last_prefetch = cudaInvalidDeviceId;  ///< where the last call wanted it
  std::uint64_t migrated = 0;               ///< grows with each fault and prefetch to the device, of any block
};
/// The block that `p` lies in, which has to be managed memory.
[[nodiscard]] block block_at(const void* p);

}  // namespace fake_cuda
}  // namespace deepum_test
