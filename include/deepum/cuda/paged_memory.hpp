#pragma once

#include <deepum/core/block.hpp>
#include <deepum/core/launch.hpp>
#include <deepum/core/location.hpp>
#include <deepum/core/plan.hpp>
#include <deepum/cuda/device.hpp>
#include <deepum/cuda/device_space.hpp>
#include <deepum/cuda/paged/arrivals.hpp>
#include <deepum/cuda/paged/command.hpp>
#include <deepum/cuda/paged/departures.hpp>
#include <deepum/cuda/paged/device_chunks.hpp>
#include <deepum/cuda/paged/failure_note.hpp>
#include <deepum/cuda/paged/host_chunks.hpp>
#include <deepum/cuda/paged/launch_view.hpp>
#include <deepum/cuda/virtual_memory.hpp>
#include <deepum/engine/device_event.hpp>
#include <deepum/engine/memory_space.hpp>
#include <deepum/units.hpp>

#include <cuda_runtime_api.h>

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace deepum {
inline namespace v0 {
namespace cuda {

template <class Memory>
class basic_stream;

/// Plain device memory behind one range of addresses that may be larger than the device: chunks are copied by the copy
/// engines and mapped where launches expect them, and no page ever faults (docs/adr/0007). A block is a chunk.
///
/// Chunks of the device are created up to the budget, those of the host as they are needed, pinned and beside the
/// device. Both have permanent addresses of their own, through which they are copied; only launches use the arena's.
/// A thread of its own copies and maps, so that no other waits for the driver.
class paged_memory final : public device_space {
 public:
  using stream_type = basic_stream<paged_memory>;

  static constexpr memory_capabilities traits{.faults = false,
                                              .keeps_home_copy = true,
                                              .shortest_row = bytes{512},
                                              .commands_in_flight = 32,
                                              .bytes_in_flight = 256_MiB};

  /// @param capacity  Length of the address range; rounded up to whole chunks.
  /// @errors  `status::unsupported`, `status::invalid_argument` for a chunk size that cannot be,
  ///          `status::out_of_arena_space`, `status::device_failure`.
  paged_memory(device& owner, bytes capacity);
  /// Nothing uses the memory any more.
  ~paged_memory() override;

  /// The device's addresses. The host must not use them: it finds nothing there.
  [[nodiscard]] std::byte* base() const override { return view_.addresses().begin(); }
  [[nodiscard]] bytes capacity() const override { return view_.addresses().size(); }

  /// Device memory that is free, or in chunks that hold nothing. Costs a system call, 5 us. Threads: any.
  [[nodiscard]] bytes free_memory() const override;
  /// Device memory in chunks, full or empty. Threads: any.
  [[nodiscard]] bytes device_memory() const { return chunk_ * device_.created(); }
  /// Host memory in chunks. Threads: any.
  [[nodiscard]] bytes host_memory() const { return host_.held(); }

  /// @name Commands
  /// See `memory_space`. A block counts as arrived when it is mapped and its copy is on its way.
  /// @{
  bool start(const transfer& what, std::uint64_t ticket) override;
  /// No driver takes advice here. Blocks that are in place have their chunk of the host mapped for launches whenever
  /// they are not on the device; each change of that costs as much as an arrival (docs/adr/0007).
  bool advise(block_range range, advice hint, location where) override;

  /// Chunks of the device to hold at most. Empty ones beyond that are given back.
  void set_limit(std::uint64_t blocks) override;
  /// Their chunks of the host may serve other blocks, until the host or a copy uses them again. The engine alone knows
  /// when that is so: nothing here marks a chunk by itself.
  void mark_stale(block_range range) override;
  /// Threads: any.
  [[nodiscard]] std::byte* host_address(bytes offset, bytes size) override;
  /// Threads: any.
  [[nodiscard]] std::string last_failure() const override;
  [[nodiscard]] bool host_is_full() const override;
  /// @}

  /// @name For streams
  /// @{
  [[nodiscard]] static bool time_launches() { return false; }
  /// Work put into `queue` from now on comes behind the copies of these blocks. @param complete  False: of all.
  /// @errors  `status::device_failure`.
  void order_after_arrival(cudaStream_t queue, const std::vector<block_access>& blocks, bool complete);

  /// @}

  /// @name Checked mode
  /// See `memory_space`.
  /// @{
  void guard() override { view_.exclusive().turn_on(); }
  /// @errors  None: a launch that does not get in fails, and says so.
  void let_in(const std::vector<block_access>& blocks) override;
  void keep_out(const std::vector<block_access>& blocks) override;
  /// @}

 private:
  /// A command that brings blocks, until all of them have come.
  struct bringing {
    paged_command what{};
    std::uint32_t left = 0;  // blocks that have not
    bool ok = true;
  };
  using bringing_ref = std::list<bringing>::iterator;
  /// A block that has a chunk of the device, and is not mapped yet.
  struct coming {
    block_id block{};
    std::uint32_t slot = 0;
    std::uint64_t copy = 0;  // see `arrivals`; 0: it has no contents
    bringing_ref command{};
  };

  static bytes checked(bytes chunk);

  // --- the program's threads ---------------------------------------------------------------------------------------

  void wake();
  void wait_for_commands() override;

  void report(device_event::kind what, block_range range, std::uint64_t ticket, nanoseconds began = {});
  /// The command is over.
  /// @param began  The copies that an event of it has not told of.
  void end(const paged_command& c, bool ok, nanoseconds began = {});

  // --- the thread that copies and maps -----------------------------------------------------------------------------

  void run();
  /// Waits for commands, or for a moment while something is under way, and takes the commands.
  /// @returns  False where the thread is to end: nothing is left.
  bool take_commands(std::deque<paged_command>& inward);

  /// @returns  False where it has to wait for chunks of the device.
  bool begin_inward(const paged_command& c);
  /// As many chunks of the device as it has blocks, or none.
  [[nodiscard]] std::vector<std::uint32_t> take_slots(std::uint32_t count);
  /// Maps the block that has waited longest.
  void map_next();
  /// One more block of the command is there, or will not be. Reported ones stay when the command as a whole has failed.
  void has_come(bringing_ref command);
  void end_arrivals();

  void give_up_contents();
  void end_departures();
  /// The device has the blocks no more. Those that it has not are left alone.
  void take_away(block_range range);
  /// The chunk holds nothing any more. Others may have it when it is mapped nowhere.
  void give_back(std::uint32_t slot);

  static constexpr std::uint32_t placed_at_once = 16;  // then others have their turn
  static constexpr auto look_every = std::chrono::microseconds(10);

  const bytes chunk_;
  const std::uint32_t blocks_;  // of the arena
  virtual_memory virtual_;
  failure_note failure_{};
  arrivals arrivals_;
  launch_view view_;
  device_chunks device_;
  host_chunks host_;
  departures departures_;

  /// Launches find the host's chunk of the blocks while they are not on the device, or not any more.
  struct placing {
    block_range range{};
    bool in_place = false;
  };
  void place_next();
  /// Tells the engine which blocks that are in place launches find on the host now, and which they do not.
  void tell_reached(block_range range);

  // Of the thread.
  std::list<bringing> commands_{};        // inward, that have begun
  std::deque<coming> coming_{};           // to be mapped
  std::deque<bringing_ref> copying_{};    // of the copies that are under way, in their order
  std::uint64_t mapped_up_to_ = 0;        // copy whose block was mapped last
  std::deque<paged_command> given_up_{};  // without a copy

  std::mutex jobs_mutex_;
  std::condition_variable changed_;
  std::condition_variable idle_;
  std::deque<paged_command> queued_{};
  std::deque<placing> placings_{};
  std::size_t jobs_ = 0;  // queued or under way
  bool wanted_ = false;
  bool stopping_ = false;
  std::thread thread_;
};

/// The old name, for one version.
using mapped_memory [[deprecated("cuda::paged_memory")]] = paged_memory;

}  // namespace cuda
}  // namespace v0
}  // namespace deepum

#ifndef DEEPUM_SEPARATE_COMPILATION
#include <deepum/cuda/impl/paged_memory.hpp>  // what it declares
#endif
