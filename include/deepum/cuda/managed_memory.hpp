#pragma once

#include <deepum/core/block.hpp>
#include <deepum/core/launch.hpp>
#include <deepum/core/location.hpp>
#include <deepum/core/plan.hpp>
#include <deepum/cuda/check.hpp>
#include <deepum/cuda/current_device.hpp>
#include <deepum/cuda/device.hpp>
#include <deepum/cuda/device_space.hpp>
#include <deepum/cuda/faults/fault_intake.hpp>
#include <deepum/cuda/managed/block_marks.hpp>
#include <deepum/cuda/managed/migration_lane.hpp>
#include <deepum/cuda/managed_limit.hpp>
#include <deepum/cuda/relaxed_capture.hpp>
#include <deepum/engine/device_event.hpp>
#include <deepum/engine/memory_space.hpp>
#include <deepum/units.hpp>

#include <cuda_runtime_api.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace deepum {
inline namespace v0 {
namespace cuda {

template <class Memory>
class basic_stream;
class event;
class launch_log;

/// Managed memory of the CUDA driver: pages move on page faults and on command.
///
/// Host and device use the same bytes at the same addresses, always correctly; what the commands and the declarations
/// change is only when bytes move. Within DEEPUM_MANAGED_LIMIT (see `managed_limit`).
///
/// Four threads: one runs the pump, and one to the device and two to the host give the driver its commands
/// (`migration_lane`; one to the host where `migration_context::shared` is chosen). While launches are in flight the
/// pump's thread looks for their ends (`launch_watch`).
class managed_memory final : public device_space {
 public:
  using stream_type = basic_stream<managed_memory>;
  using capture_guard = relaxed_capture;

  /// Ranges are merged before the driver gets them, so the lanes are given some to merge.
  static constexpr memory_capabilities traits{
      .shortest_row = bytes{128}, .commands_in_flight = 16, .bytes_in_flight = 128_MiB};

  /// @param capacity  Length of the address range, whole blocks. Pages are populated when they are touched.
  /// @errors  `status::unsupported` where pages cannot move while kernels run, `status::out_of_arena_space` above
  ///          DEEPUM_MANAGED_LIMIT, `status::out_of_host_memory`, `status::device_failure`.
  managed_memory(device& owner, bytes capacity);
  /// Nothing uses the memory any more.
  ~managed_memory() override;

  [[nodiscard]] std::byte* base() const override { return base_.get(); }
  [[nodiscard]] bytes capacity() const override { return capacity_; }

  /// The largest arena that the environment allows now; nothing where it does not say.
  [[nodiscard]] static std::optional<bytes> most_capacity() { return managed_limit::left(); }

  /// Device memory that is free, or held by blocks that are not on the device: the driver keeps their chunks and takes
  /// them back without a copy when memory is needed. Costs a system call, 5 us. Threads: any.
  [[nodiscard]] bytes free_memory() const override;

  /// @name Commands
  /// See `memory_space` and `sim::managed_memory`, which has the same. Prefetches, advice and discards are one lane,
  /// evictions the other.
  ///
  /// A block that is advised read-mostly is duplicated when it is prefetched: an eviction of it copies nothing.
  /// @{
  bool start(const transfer& what, std::uint64_t ticket) override;
  /// Read-mostly ends at once, before the call returns: a launch that writes duplicated blocks would fault on every
  /// page of them, 15 s for each GiB.
  bool advise(block_range range, advice hint, location l) override;
  /// Discarded blocks of the range get pages again, as soon as there is nothing else to do: a launch that writes them
  /// without a prefetch faults on every single page of them (docs/adr/0006). Threads: any.
  void repopulate(block_range range) override;
  /// @}

  /// The host touches bytes of the range: what is on the device moves to the host first, all of it at once. Blocks.
  /// Threads: any.
  void host_access(bytes offset, bytes size, access mode) override;

  /// What was discarded gets pages of the host, by a command: the driver forgets with it that the contents are of no
  /// use. Blocks. Threads: any.
  [[nodiscard]] std::byte* fill_address(bytes offset, bytes size) override;

  /// @name Events
  /// @{

  /// Threads: any.
  void poll(std::vector<device_event>& events) override;
  /// @}

  /// @name Faults
  /// @{

  /// Where they are learned from: `driver`, `cupti` or `none`. Without a feed a launch is taken to have touched all
  /// that it declares, and nothing else is learned.
  [[nodiscard]] const std::string& fault_feed() const { return faults_.name(); }
  [[nodiscard]] std::string fault_source() const override { return faults_.name(); }
  [[nodiscard]] bool sees_faults() const override { return faults_.alive(); }
  /// Faults that the feed lost. Threads: any.
  [[nodiscard]] std::uint64_t lost_faults() const override { return faults_.lost(); }
  /// One line for people: which feed was chosen, and why not a better one.
  [[nodiscard]] const std::string& description() const { return faults_.description(); }
  /// @}

  /// @name For streams
  /// @{
  /// Whether the end of the next launch should be timed: at first, and while there are faults to attribute.
  [[nodiscard]] bool time_launches() { return faults_.time_launches(); }
  /// @}

 private:
  struct release {
    const primary_context* on = nullptr;
    void operator()(std::byte* p) const {
      const own_calls calls(*on);
      (void)succeeded(cudaFree(p));
    }
  };
  using allocation = std::unique_ptr<std::byte, release>;

  static device& checked(device& owner);
  static allocation allocate(const device& owner, bytes capacity);

  bool submit(migration_lane& lane, const migration& m);
  [[nodiscard]] std::deque<migration_lane> make_outward();
  /// The lane to the host that has less to do.
  [[nodiscard]] migration_lane& outward();
  void wait_for_outward();

  /// Blocks that hold device memory without being there. When the device is full, the driver may have taken it back.
  [[nodiscard]] std::uint64_t kept_chunks(bytes free) const;
  static constexpr bytes nearly_full = 64_MiB;

  void note_arrival(block_range range);

  void emit(const device_event& e);

  /// A fault brings its block, or a part of it. See `fault_intake::take`.
  void take_faults(bool in_flight, bool launched, nanoseconds looked, std::vector<device_event>& events);
  void wait_for_commands() override;

  managed_limit::share share_;
  bytes capacity_;
  allocation base_;
  block_marks marks_;
  std::atomic<std::uint64_t> chunks_{0};   // blocks with `mark::chunk`
  std::atomic<std::uint64_t> present_{0};  // blocks with `mark::present`

  migration_lane inward_;  // their threads use what is above
  std::deque<migration_lane> outward_;
  fault_intake faults_;  // last: it tries a feed out when the rest is set up
};

}  // namespace cuda
}  // namespace v0
}  // namespace deepum

#ifndef DEEPUM_SEPARATE_COMPILATION
#include <deepum/cuda/impl/managed_memory.hpp>  // what it declares
#endif
