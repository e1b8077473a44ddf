#pragma once

#include <deepum/core/launch.hpp>
#include <deepum/engine/device_event.hpp>
#include <deepum/units.hpp>

#include <cuda_runtime_api.h>

#include <cstddef>
#include <deque>
#include <mutex>
#include <optional>
#include <vector>

namespace deepum {
inline namespace v0 {
namespace cuda {

class gpu_clock;

/// The launches of one stream that have not been seen to finish, each with the event behind it.
///
/// An event that tells the time costs the host a microsecond more than one that does not, and each event costs the
/// device 1.6 us between two launches (docs/adr/0006). So launches are timed and marked only where that may be of use.
///
/// Threads: `begin` and `end` by the stream's, `collect` by any one at a time.
class launch_log {
 public:
  explicit launch_log(cudaStream_t watched) : stream_(watched) {}
  ~launch_log();
  launch_log(const launch_log&) = delete;
  launch_log& operator=(const launch_log&) = delete;

  /// Work enqueued from now on until `end` belongs to this launch. Launches may nest: `end` ends the innermost one,
  /// and they are reported in the order of their ends.
  /// @param timed   Its end is timed.
  /// @param begun   Its beginning too: of use where several streams execute at a time.
  /// @param marked  Its end is marked at all. Else it has finished when a later one has, or all of the stream.
  void begin(launch_id id, bool timed, bool begun, bool marked = true);
  /// @returns  Whether `collect` need not be called now, and has to be from now on.
  bool end();

  /// Whether one of the launches that were not reported yet may have finished all the same. Of the thread of `collect`.
  [[nodiscard]] bool some_unmarked() const { return unmarked_ != 0; }
  /// Reports the launches that have finished, in order. Never waits for the device.
  /// @returns  Whether some are in flight yet. If not, it need not be called until `end` says so.
  bool collect(gpu_clock& clock, std::vector<device_event>& events);

 private:
  struct entry {
    launch_id id{};
    cudaEvent_t began = nullptr;
    cudaEvent_t ended = nullptr;  // none: the event could not be recorded; it has finished when the next one has
    bool timed = false;
    bool marked = true;
  };
  [[nodiscard]] static bool is_timed(const entry& e) { return e.timed && e.ended != nullptr; }

  /// Whether the stream is being captured; nothing where the runtime does not say.
  [[nodiscard]] std::optional<bool> captured() const;
  static bool is_unmarked(const entry& e) { return e.ended == nullptr; }

  /// An event in the stream; none where that fails, or where a capture would take it into its graph.
  cudaEvent_t record(bool timed);

  /// How many launches at the front have finished. A device that fails finishes all.
  [[nodiscard]] std::size_t finished_now() const;

  void give_back(cudaEvent_t event, bool timed);
  static void destroy(const entry& e);

  cudaStream_t stream_;
  entry open_{};                // between `begin` and `end`, the innermost
  std::vector<entry> outer_{};  // those that it is nested in
  std::mutex mutex_;
  std::vector<entry> added_{};
  bool collected_ = false;  // `collect` has to be called
  std::vector<cudaEvent_t> timed_{};
  std::vector<cudaEvent_t> untimed_{};
  std::deque<entry> waiting_{};  // of `collect`, like what follows
  std::size_t unmarked_ = 0;     // of those
  std::vector<nanoseconds> times_{};
  nanoseconds last_finish_{};
};

}  // namespace cuda
}  // namespace v0
}  // namespace deepum

#ifndef DEEPUM_SEPARATE_COMPILATION
#include <deepum/cuda/completion/impl/launch_log.hpp>  // what it declares
#endif
