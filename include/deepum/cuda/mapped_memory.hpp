#pragma once

#include <deepum/core/block.hpp>
#include <deepum/core/launch.hpp>
#include <deepum/core/location.hpp>
#include <deepum/core/plan.hpp>
#include <deepum/cuda/device.hpp>
#include <deepum/cuda/gpu_clock.hpp>
#include <deepum/cuda/launch_watch.hpp>
#include <deepum/cuda/virtual_memory.hpp>
#include <deepum/engine/device_event.hpp>
#include <deepum/engine/memory_space.hpp>
#include <deepum/units.hpp>

#include <cuda_runtime_api.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <unordered_set>
#include <utility>
#include <vector>

namespace deepum {
inline namespace v0 {
namespace cuda {

template <class Memory>
class basic_stream;
class event;
class launch_log;

/// Plain device memory behind one range of addresses that may be larger than the device: chunks are copied by the copy
/// engines and mapped where launches expect them, and no page ever faults (docs/adr/0007). A block is a chunk.
///
/// Chunks of the device are created up to the budget, those of the host as they are needed, pinned and beside the
/// device. Both have permanent addresses of their own, through which they are copied; only launches use the arena's.
/// A thread of its own copies and maps, so that nobody else waits for the driver.
class mapped_memory final : public memory_space {
 public:
  using device_type = device;
  using stream_type = basic_stream<mapped_memory>;
  using event_type = event;

  static constexpr memory_capabilities traits{
      .faults = false, .keeps_home_copy = true, .commands_in_flight = 32, .bytes_in_flight = 256_MiB};

  /// @param capacity  Length of the address range; rounded up to whole chunks.
  /// @errors  `status::unsupported`, `status::invalid_argument` for a chunk size that cannot be,
  ///          `status::out_of_arena_space`, `status::device_failure`.
  mapped_memory(device& owner, bytes capacity);
  /// Nothing uses the memory any more.
  ~mapped_memory() override;

  [[nodiscard]] device& owner() const { return owner_; }
  /// The device's addresses. The host must not use them: it finds nothing there.
  [[nodiscard]] std::byte* base() const override { return base_.begin; }
  [[nodiscard]] bytes capacity() const override { return base_.size; }
  [[nodiscard]] location place() const override { return location::device(); }

  /// Device memory that is free, or in chunks that hold nothing. Costs a system call, 5 us. Threads: any.
  [[nodiscard]] bytes free_memory() const override;
  /// Device memory in chunks, full or empty. Threads: any.
  [[nodiscard]] bytes device_memory() const { return chunk_ * created_.load(std::memory_order_relaxed); }
  /// Host memory in chunks. Threads: any.
  [[nodiscard]] bytes host_memory() const { return chunk_ * host_chunks_.load(std::memory_order_relaxed); }

  /// @name Commands
  /// See `memory_space`. A block counts as arrived when it is mapped and its copy is on its way.
  /// @{
  bool prefetch(block_range range, std::uint64_t ticket) override;
  bool populate(block_range range, std::uint64_t ticket) override;
  bool evict(block_range range, std::uint64_t ticket) override;
  bool clean(block_range range, std::uint64_t ticket) override;
  bool drop(block_range range, std::uint64_t ticket) override;
  bool discard(block_range range, std::uint64_t ticket) override;
  /// No driver takes advice here.
  bool advise(block_range, advice, location) override { return true; }

  /// Chunks of the device to hold at most. Empty ones beyond that are given back.
  void set_limit(std::uint64_t blocks) override;
  /// Their chunks of the host may serve other blocks, until the host or a copy uses them again. The engine alone knows
  /// when that is so: nothing here marks a chunk by itself.
  void outdated(block_range range) override;
  /// Threads: any.
  [[nodiscard]] std::byte* host_address(bytes offset, bytes size) override;
  /// Threads: any.
  [[nodiscard]] std::string last_failure() const override;
  [[nodiscard]] bool host_is_full() const override;
  /// @}

  /// @name Events
  /// See `launch_watch`.
  /// @{
  [[nodiscard]] nanoseconds now() const override { return gpu_clock::host_now(); }
  /// Threads: any.
  void poll(std::vector<device_event>& events) override;
  void notify() override { watch_.notify(); }
  void hurry() override { watch_.hurry(); }
  void attach(std::function<void()> pump) { watch_.attach(std::move(pump)); }
  void detach();
  /// @}

  /// @name For streams
  /// @{
  void add(launch_log& log) { watch_.add(log); }
  void remove(launch_log& log);
  void issued(launch_log& log, bool first) { watch_.issued(log, first); }
  [[nodiscard]] static bool time_launches() { return false; }
  [[nodiscard]] bool mark_launches() { return watch_.mark_launches(); }
  [[nodiscard]] bool several_streams() const { return watch_.several_streams(); }

  /// What is put into the queue from now on comes behind the copies of these blocks. @param complete  False: of all.
  /// @errors  `status::device_failure`.
  void order_after_arrival(cudaStream_t queue, const std::vector<block_access>& blocks, bool complete);

  /// @}

  /// @name Checked mode
  /// See `memory_space`.
  /// @{
  void guard() override { guarded_ = true; }
  /// @errors  None: a launch that does not get in fails, and says so.
  void let_in(const std::vector<block_access>& blocks) override;
  void keep_out(const std::vector<block_access>& blocks) override;
  /// @}

 private:
  using handle = virtual_memory::handle;
  static constexpr std::uint32_t none = 0xffffffffU;

  /// A reserved range of addresses.
  struct addresses {
    addresses(const virtual_memory& v, bytes n, bytes alignment) : owner(v), begin(v.reserve(n, alignment)), size(n) {}
    ~addresses() { owner.give_back(begin, size); }
    addresses(const addresses&) = delete;
    addresses& operator=(const addresses&) = delete;

    const virtual_memory& owner;
    std::byte* begin;
    bytes size;
  };
  struct job {
    enum class kind : std::uint8_t { prefetch, populate, evict, clean, drop, discard };
    kind what = kind::prefetch;
    block_range range{};
    std::uint64_t ticket = 0;
  };
  /// A command that brings blocks, until all of them have come.
  struct bringing {
    job what{};
    std::uint32_t left = 0;  // blocks that have not
    bool well = true;
  };
  using bringing_ref = std::list<bringing>::iterator;
  /// A block that has a chunk of the device, and is not mapped yet.
  struct coming {
    block_id block{};
    std::uint32_t slot = 0;
    std::uint64_t copy = 0;  // its `arrival`; 0: it has no contents
    bringing_ref command{};
  };
  /// A copy to the device that is on its way, of one block.
  struct arrival {
    std::uint64_t number = 0;  // 1, 2, 3, ...
    cudaEvent_t copied = nullptr;
    bringing_ref command{};
    block_id block{};
    nanoseconds began{};
  };
  /// Copies to the host that are on their way, of a part of a command.
  struct departure {
    job what{};
    block_range part{};
    cudaEvent_t copied = nullptr;  // null: nothing is copied
    bool last = false;             // of the command
    bool well = true;              // all of the command that went before, and this
    nanoseconds began{};           // the copies; those of a clean: of all its parts
  };
  struct slot {
    handle memory = 0;
    bool exists = false;
  };
  struct host_chunk {
    handle memory = 0;
    bool exists = false;
  };

  static bytes checked(bytes chunk);
  [[nodiscard]] std::byte* at(const addresses& range, block_id b) const;
  [[nodiscard]] std::byte* at_slot(std::uint32_t s) const { return on_device_.begin + (chunk_ * s).count; }

  // --- the program's threads ---------------------------------------------------------------------------------------

  bool submit(std::deque<job>& queue, const job& j);
  void wake();
  /// Until nothing is queued or under way.
  void wait();

  void emit(const device_event& e);
  void report(device_event::kind what, block_range range, std::uint64_t ticket, nanoseconds began = {});
  /// The command is over.
  /// @param began  The copies that an event of it has not told of.
  void end(const job& j, bool well, nanoseconds began = {});
  void note_failure(std::string what, bool host);

  // --- host memory -------------------------------------------------------------------------------------------------

  /// @returns  Whether the block has a chunk of the host. Threads: any.
  bool give_host_chunk(block_id b);
  /// Launches find the host's chunk where the device has none. Under the lock.
  void map_to_host(block_id b);
  bool no_host_chunk(host_chunk& c);
  /// A chunk of the host whose contents are of no use: the device has newer ones, or nobody wants any.
  bool take_outdated_chunk(handle& out);
  [[nodiscard]] bool has_host_chunk(block_id b);
  [[nodiscard]] bool host_mapped() const { return owner_.options().evicted == evicted_chunks::host_mapped; }

  // --- the thread that copies and maps -----------------------------------------------------------------------------

  void run();

  // Inward.

  /// @returns  False where it has to wait for chunks of the device.
  bool begin_inward(const job& j);
  /// @param copy  Set to its number.
  bool begin_copy(block_id b, std::uint32_t s, bringing_ref command, std::uint64_t& copy);
  /// Maps the block that has waited longest. While copies to the host follow one another without a pause, the driver
  /// takes a millisecond for it, else 35 us (docs/adr/0007).
  void map_next();
  /// One more block of the command is there, or will not be. Reported ones stay when the command as a whole has failed.
  void has_come(bringing_ref command);
  bool map_block(block_id b, std::uint32_t s);
  void end_arrivals();
  /// Nothing is being copied into the block's chunk of the device.
  void await_arrival(block_id b);

  // Outward.

  [[nodiscard]] static bool needs_no_copy(const job& j);
  void give_up_contents();
  /// Copies to the host come in pieces, and blocks are mapped between them: else each would wait for a millisecond.
  /// While none is, the next piece waits behind the one that moves.
  [[nodiscard]] bool may_send() const;
  /// Gives the copy engine the next piece of what leaves.
  void send_next();
  /// First of all, because the link waits for it.
  void keep_sending();
  void end_departures();
  /// The device has the blocks no more. Those that it has not are left alone.
  void take_away(block_range range);

  // Chunks of the device.

  std::uint32_t take_slot();
  void give_slot(std::uint32_t s);
  /// Gives empty chunks back that are more than the budget.
  void trim();
  void destroy_slot(std::uint32_t s);

  cudaEvent_t spare_event();

  /// The thread has ended.
  void give_all_back();

  static constexpr auto look_every = std::chrono::microseconds(10);
  static constexpr bytes piece = 16_MiB;                   // of what leaves
  static constexpr std::size_t pieces_in_flight = 2;       // one moves, the next is ready
  static constexpr std::uint32_t most_mapped_between = 8;  // blocks, between two pieces
  static constexpr std::uint32_t most_in_a_row = 4;        // pieces, without a pause for copies of the program

  device& owner_;
  const bytes chunk_;
  const std::uint32_t blocks_;  // of the arena
  const std::uint32_t slots_;   // chunks that the device could hold
  virtual_memory virtual_;
  addresses base_;       // for launches
  addresses on_device_;  // every chunk of the device, for copies
  addresses on_host_;    // every chunk of the host, by block, for copies and for the host
  launch_watch watch_;

  std::mutex happened_mutex_;
  std::vector<device_event> happened_{};
  mutable std::mutex failure_mutex_;
  std::string last_failure_{};
  bool host_is_full_ = false;

  // Of the thread.
  std::vector<slot> slot_handles_{};
  std::vector<std::uint32_t> empty_{};   // slots with memory and without contents
  std::vector<std::uint32_t> unused_{};  // slots without memory
  std::list<bringing> commands_{};       // inward, that have begun
  std::deque<coming> coming_{};          // to be mapped
  std::uint64_t mapped_up_to_ = 0;       // copy whose block was mapped last
  std::deque<job> given_up_{};           // without a copy
  std::deque<job> leaving_{};            // with one
  std::uint32_t begun_ = 0;              // blocks of the first of those
  nanoseconds sending_since_{};          // of that one
  std::deque<departure> departures_{};   // copies under way
  std::vector<departure> departed_{};    // those that are done
  std::uint32_t mapped_since_sent_ = 0;  // blocks, since the last piece
  bool maps_between_ = false;            // between that one and the piece before it
  std::uint32_t sent_in_a_row_ = 0;      // pieces, since the link paused
  std::vector<cudaEvent_t> spare_events_{};
  cudaStream_t in_ = nullptr;
  cudaStream_t out_ = nullptr;

  std::unique_ptr<std::atomic<std::uint32_t>[]> slot_of_;  // by block; written by the thread

  std::mutex host_mutex_;
  std::vector<host_chunk> host_;                        // by block
  std::unordered_set<std::uint32_t> mapped_to_host_{};  // blocks that launches find on the host
  std::uint32_t outdated_next_ = 0;

  std::mutex arrivals_mutex_;  // `arrivals_` is read by launches
  std::deque<arrival> arrivals_{};
  std::unique_ptr<std::atomic<std::uint64_t>[]> arrival_;  // by block: number of its last copy
  std::atomic<std::uint64_t> last_arrival_{0};
  std::atomic<std::uint64_t> arrived_{0};  // all copies up to this one are done

  std::unique_ptr<std::atomic<bool>[]> stale_;  // by block: its chunk of the host may be taken
  std::atomic<std::uint32_t> limit_;
  std::atomic<std::uint32_t> created_{0};
  std::atomic<std::uint32_t> empty_slots_{0};
  std::atomic<std::uint32_t> host_chunks_{0};

  bool guarded_ = false;
  std::mutex guard_mutex_;
  std::vector<std::uint32_t> let_in_;  // launches that may use each block

  std::mutex jobs_mutex_;
  std::condition_variable changed_;
  std::condition_variable idle_;
  std::deque<job> inward_{};
  std::deque<job> outward_{};
  std::size_t jobs_ = 0;  // queued or under way
  bool wanted_ = false;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace cuda
}  // namespace v0
}  // namespace deepum

#ifndef DEEPUM_SEPARATE_COMPILATION
#include <deepum/cuda/impl/mapped_memory.hpp>  // what it declares
#endif
