#pragma once

#include <deepum/arena.hpp>
#include <deepum/core/launch.hpp>
#include <deepum/cuda.hpp>
#include <deepum/interpose/entry_points.hpp>
#include <deepum/interpose/kernel_parameters.hpp>
#include <deepum/interpose/operand_scan.hpp>
#include <deepum/interpose/process_tree.hpp>
#include <deepum/interpose/program_memory.hpp>
#include <deepum/interpose/step_watch.hpp>
#include <deepum/operand.hpp>
#include <deepum/stream.hpp>

#include <cuda.h>

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

// What deepum-run keeps in a process: for each device that it uses an arena, and the streams that it launches on.
namespace deepum_run {

using arena_type = deepum::arena<deepum::cuda::managed_memory>;
using stream_type = deepum::stream<deepum::cuda::managed_memory>;
using deepum::interpose::default_stream;

/// A line on standard error, with the program's name in front.
void say(const std::string& line);
/// The same once for each text of the program.
void say_once(const char* line);

/// A stream of the program as the library launches on it. Streams of CUDA may be used by several threads at once, those
/// of the library may not.
struct adopted_stream {
  adopted_stream(arena_type& arena, CUstream native)
      : stream(arena, native, deepum::stream_options{.lookahead = {}, .blocking = false, .sole = true}) {}
  std::mutex mutex{};
  stream_type stream;
};

/// A device that the process uses.
class session {
 public:
  /// @errors  Those of an arena.
  explicit session(CUdevice device);
  ~session();
  session(const session&) = delete;
  session& operator=(const session&) = delete;

  [[nodiscard]] arena_type& arena() { return arena_; }
  [[nodiscard]] deepum::interpose::program_memory& memory() { return memory_; }
  [[nodiscard]] CUdevice device() const { return device_; }
  [[nodiscard]] CUcontext context() const { return context_; }
  [[nodiscard]] bool contains(std::uint64_t address) const {
    return arena_.contains(reinterpret_cast<const void*>(address));
  }

  /// The stream as the library knows it, adopted where it is new.
  /// @errors  Those of a stream.
  [[nodiscard]] adopted_stream& adopted(CUstream native, default_stream kind);
  /// The program destroys a stream: its launches are waited for.
  void forget(CUstream native);

  /// Other processes of the tree may have come or gone: the budget is divided anew. Cost: a system call for each.
  void share_budget();
  /// The same now and then, for the way of every launch.
  void share_budget_sometimes() {
    if ((launches_.fetch_add(1, std::memory_order_relaxed) & 1023U) == 1023U) {
      share_budget();
    }
  }

  /// The process ends, or the program resets the device: what it leaves behind is written. Never throws.
  /// @param line  The closing line is wanted.
  void finish(bool line) noexcept;
  /// Ends all streams, so that the session may be destroyed.
  void end_streams();

 private:
  [[nodiscard]] deepum::arena_options options(const deepum::cuda::device& gpu);

  CUdevice device_;
  CUcontext context_ = nullptr;
  deepum::interpose::step_watch steps_;
  deepum::cuda::device gpu_;
  std::uint64_t device_key_ = 0;  // the same in all processes
  deepum::bytes capacity_{};
  deepum::bytes tree_budget_{};  // of all processes on the device; 0: what is free, which each finds out for itself
  std::size_t place_;            // among them
  std::atomic<std::uint32_t> launches_{0};
  std::atomic<std::uint32_t> sharing_{1};  // processes that the budget is divided among
  arena_type arena_;
  deepum::interpose::program_memory memory_;
  std::shared_mutex mutex_{};  // of what follows
  std::unordered_map<CUstream, std::unique_ptr<adopted_stream>> streams_{};
};

/// The session of the thread's current context, if there is one yet; nullptr too where the context is not the primary
/// one of its device, or the process is about to end.
[[nodiscard]] session* current_session();
/// The session of the thread's current device, which is made the first time.
/// @param failure  What to return to the program where there is none.
[[nodiscard]] session* open_session(CUresult& failure);
/// The session of a device, if there is one.
[[nodiscard]] session* session_on(CUdevice device);
/// The session whose memory an address is; nullptr where it is none's.
[[nodiscard]] session* session_of(std::uint64_t address);
/// Whether the process ends, or is the fork of one that had sessions: nothing is done any more.
[[nodiscard]] bool process_is_over();
/// Ends the session of a device, if there is one.
void close_session(CUdevice device);
/// Work has been put into streams that the library does not know of: what is given back has to wait for all of the
/// device.
/// @param why  Begins the line that says so, once.
void note_unseen_work(const char* why);
[[nodiscard]] bool unseen_work();
/// Some stream has been captured since the process began.
void note_capture();
[[nodiscard]] bool captures_seen();
/// Whether a stream is being captured.
[[nodiscard]] bool capturing(CUstream stream, default_stream kind);
/// A stream handle as the form of a function means it.
[[nodiscard]] inline CUstream meant(CUstream stream, default_stream kind) {
  return stream != nullptr ? stream : kind == default_stream::per_thread ? CU_STREAM_PER_THREAD : CU_STREAM_LEGACY;
}

/// The driver has refused a call within a launch.
struct refused_by_driver {
  CUresult result;
};

/// Does what the program asked for as a launch of the library's; by itself where it cannot be one.
/// @param real  () -> CUresult: the driver's call.
template <class Signature, class Real>
CUresult launch_as(session& s, CUstream stream, default_stream kind, std::string_view name, const Signature& signature,
                   std::span<const deepum::operand> operands, bool complete, Real&& real) {
  bool called = false;
  try {
    adopted_stream& on = s.adopted(stream, kind);
    const std::lock_guard lock(on.mutex);
    on.stream.call(name, signature(), operands, complete, [&](CUstream) {
      called = true;
      if (const CUresult result = real(); result != CUDA_SUCCESS) {
        throw refused_by_driver{result};
      }
    });
    return CUDA_SUCCESS;
  } catch (const refused_by_driver& e) {
    return e.result;
  } catch (const std::exception& e) {
    if (called) {
      return CUDA_SUCCESS;  // the device has it
    }
    say_once(e.what());
  }
  note_unseen_work("a launch could not be reported");
  return real();
}

/// A copy or fill: it touches what its operands say, and nothing else.
/// @param operands  Those outside the arena are left out.
template <class Real>
CUresult copy_as_launch(CUstream stream, default_stream kind, const char* name,
                        std::initializer_list<deepum::operand> operands, Real&& real) {
  session* const s = current_session();
  if (s == nullptr) {
    return real();
  }
  deepum::operand inside[2];
  std::size_t count = 0;
  for (const deepum::operand& o : operands) {
    if (o.size.count != 0 && s->arena().contains(o.address) && count != 2) {
      inside[count++] = o;
    }
  }
  stream = meant(stream, kind);
  if (count == 0 || capturing(stream, kind)) {
    return real();
  }
  const auto signature = [&] {
    deepum::signature_builder made(name);
    for (std::size_t i = 0; i < count; ++i) {
      made.operand(deepum::interpose::operand_scan::recognised(*s->arena().offset_of(inside[i].address)),
                   inside[i].size.count, inside[i].mode);
    }
    return made.finish();
  };
  return launch_as(*s, stream, kind, name, signature, {inside, count}, true, std::forward<Real>(real));
}

/// What is known of a kernel, for as long as no module is unloaded. Threads: any.
/// @param kernel  A CUfunction, or a CUkernel in its place.
[[nodiscard]] std::shared_ptr<const deepum::interpose::kernel_description> described(CUfunction kernel);
/// Memory was given back: what is allocated at its addresses next begins uncut.
void forget_cuts();
/// Modules were unloaded: another kernel may have the handle of an old one.
void forget_kernels();

}  // namespace deepum_run
