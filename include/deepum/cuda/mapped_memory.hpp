#pragma once

#include <deepum/core/block.hpp>
#include <deepum/core/launch.hpp>
#include <deepum/core/location.hpp>
#include <deepum/cuda/check.hpp>
#include <deepum/cuda/device.hpp>
#include <deepum/cuda/gpu_clock.hpp>
#include <deepum/cuda/launch_log.hpp>
#include <deepum/cuda/launch_watch.hpp>
#include <deepum/cuda/virtual_memory.hpp>
#include <deepum/engine/memory_kind.hpp>
#include <deepum/error.hpp>
#include <deepum/policy/plan.hpp>
#include <deepum/units.hpp>

#include <cuda_runtime_api.h>

#include <algorithm>
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

/// Plain device memory behind one range of addresses that may be larger than the device: chunks are copied by the copy
/// engines and mapped where launches expect them, and no page ever faults (docs/adr/0007). A `faultless_memory_kind`.
///
/// Chunks of the device are created up to the budget, those of the host as they are needed, pinned and beside the
/// device. Both have permanent addresses of their own, through which they are copied; only launches use the arena's.
/// A thread of its own copies and maps, so that nobody else waits for the driver.
class mapped_memory {
 public:
  using device_type = device;
  using stream_type = basic_stream<mapped_memory>;
  using event_type = event;

  static constexpr bool faultless = true;
  static constexpr std::uint32_t commands_in_flight = 32;
  static constexpr bytes bytes_in_flight{std::uint64_t{256} << 20};

  /// @param capacity  Length of the address range; rounded up to whole chunks.
  /// @errors  `status::unsupported`, `status::invalid_argument` for a chunk size that cannot be,
  ///          `status::out_of_arena_space`, `status::device_failure`.
  mapped_memory(device& owner, bytes capacity)
      : owner_(current(owner)),
        chunk_(checked(owner.options().chunk)),
        blocks_(static_cast<std::uint32_t>((capacity + chunk_ - bytes{1}) / chunk_)),
        slots_(static_cast<std::uint32_t>((owner.properties().memory + chunk_ - bytes{1}) / chunk_)),
        virtual_(owner.properties().ordinal),
        base_(virtual_, chunk_ * blocks_, chunk_),
        on_device_(virtual_, chunk_ * slots_, chunk_),
        on_host_(virtual_, chunk_ * blocks_, chunk_),
        watch_(owner.properties().ordinal),
        slot_of_(std::make_unique<std::atomic<std::uint32_t>[]>(blocks_)),
        host_(blocks_),
        arrival_(std::make_unique<std::atomic<std::uint64_t>[]>(blocks_)),
        stale_(std::make_unique<std::atomic<bool>[]>(blocks_)),
        limit_(slots_) {
    for (std::uint32_t b = 0; b < blocks_; ++b) {
      slot_of_[b].store(none, std::memory_order_relaxed);
    }
    thread_ = std::thread([this] { run(); });
  }
  /// Nothing uses the memory any more.
  ~mapped_memory() {
    detach();
    {
      const std::lock_guard lock(jobs_mutex_);
      stopping_ = true;
    }
    changed_.notify_one();
    thread_.join();
    give_all_back();
  }
  mapped_memory(const mapped_memory&) = delete;
  mapped_memory& operator=(const mapped_memory&) = delete;

  [[nodiscard]] device& owner() const { return owner_; }
  /// The device's addresses. The host must not use them: it finds nothing there.
  [[nodiscard]] std::byte* base() const { return base_.begin; }
  [[nodiscard]] bytes capacity() const { return base_.size; }
  [[nodiscard]] bytes block() const { return chunk_; }
  [[nodiscard]] location place() const { return location::device(); }

  /// Device memory that is free, or in chunks that hold nothing. Costs a system call, 5 us. Threads: any.
  [[nodiscard]] bytes free_memory() const {
    std::size_t free = 0;
    std::size_t total = 0;
    if (!worked(cudaSetDevice(owner_.properties().ordinal)) || !worked(cudaMemGetInfo(&free, &total))) {
      return {};
    }
    return bytes{free} + chunk_ * empty_slots_.load(std::memory_order_relaxed);
  }
  /// Device memory in chunks, full or empty. Threads: any.
  [[nodiscard]] bytes device_memory() const { return chunk_ * created_.load(std::memory_order_relaxed); }
  /// Host memory in chunks. Threads: any.
  [[nodiscard]] bytes host_memory() const { return chunk_ * host_chunks_.load(std::memory_order_relaxed); }

  /// @name Commands
  /// See `faultless_memory_kind`. A block counts as arrived when it is mapped and its copy is on its way.
  /// @{
  bool prefetch(block_range range, std::uint64_t ticket) {
    return submit(inward_, {job::kind::prefetch, range, ticket});
  }
  bool populate(block_range range, std::uint64_t ticket) {
    return submit(inward_, {job::kind::populate, range, ticket});
  }
  bool evict(block_range range, std::uint64_t ticket) { return submit(outward_, {job::kind::evict, range, ticket}); }
  bool clean(block_range range, std::uint64_t ticket) { return submit(outward_, {job::kind::clean, range, ticket}); }
  bool drop(block_range range, std::uint64_t ticket) { return submit(outward_, {job::kind::drop, range, ticket}); }
  bool discard(block_range range, std::uint64_t ticket) {
    return submit(outward_, {job::kind::discard, range, ticket});
  }
  /// No driver takes advice here.
  static bool advise(block_range, advice, location) { return true; }

  /// Chunks of the device to hold at most. Empty ones beyond that are given back.
  void set_limit(std::uint64_t blocks) {
    limit_.store(static_cast<std::uint32_t>(std::min<std::uint64_t>(blocks, slots_)), std::memory_order_relaxed);
    wake();
  }
  /// Their chunks of the host may serve other blocks.
  void outdated(block_range range) {
    for (std::uint32_t b = range.begin_value(); b < range.end_value(); ++b) {
      stale_[b].store(true, std::memory_order_relaxed);
    }
  }
  /// Threads: any.
  [[nodiscard]] std::byte* host_address(bytes offset, bytes size) {
    const block_range range = blocks_of(offset, size, chunk_);
    for (std::uint32_t b = range.begin_value(); b < range.end_value(); ++b) {
      if (!give_host_chunk(block_id{b})) {
        return nullptr;
      }
    }
    return on_host_.begin + offset.count;
  }
  /// Threads: any.
  [[nodiscard]] std::string last_failure() const {
    const std::lock_guard lock(failure_mutex_);
    return last_failure_;
  }
  [[nodiscard]] bool host_is_full() const {
    const std::lock_guard lock(failure_mutex_);
    return host_is_full_;
  }
  /// @}

  /// @name Events
  /// See `launch_watch`.
  /// @{
  [[nodiscard]] nanoseconds now() const { return gpu_clock::host_now(); }
  /// Threads: any.
  void poll(std::vector<device_event>& events) {
    const std::lock_guard lock(watch_.mutex());
    (void)worked(cudaSetDevice(owner_.properties().ordinal));
    {
      const std::lock_guard happened(happened_mutex_);
      events.insert(events.end(), happened_.begin(), happened_.end());
      happened_.clear();
    }
    (void)watch_.take_launched();
    bool in_flight = false;
    for (launch_log* log : watch_.logs()) {
      in_flight = log->collect(watch_.clock(), events) || in_flight;
    }
    watch_.note_in_flight(in_flight);
  }
  void notify() { watch_.notify(); }
  void hurry() { watch_.hurry(); }
  void attach(std::function<void()> pump) { watch_.attach(std::move(pump)); }
  void detach() {
    watch_.detach();
    wait();
  }
  /// @}

  /// @name For streams
  /// @{
  void add(launch_log& log) { watch_.add(log); }
  void remove(launch_log& log) {
    std::vector<device_event> events;
    watch_.remove(log, events);
    for (const device_event& e : events) {
      emit(e);
    }
  }
  void issued() { watch_.issued(); }
  [[nodiscard]] static bool time_launches() { return false; }
  [[nodiscard]] bool mark_launches() { return watch_.mark_launches(); }
  [[nodiscard]] bool several_streams() const { return watch_.several_streams(); }

  /// What is put into the queue from now on comes behind the copies of these blocks. @param complete  False: of all.
  /// @errors  `status::device_failure`.
  void order_after_arrival(cudaStream_t queue, const std::vector<block_access>& blocks, bool complete) {
    std::uint64_t last = complete ? 0 : last_arrival_.load(std::memory_order_acquire);
    for (const block_access& a : blocks) {
      for (std::uint32_t b = a.range.begin_value(); b < a.range.end_value(); ++b) {
        last = std::max(last, arrival_[b].load(std::memory_order_acquire));
      }
    }
    if (last <= arrived_.load(std::memory_order_acquire)) {
      return;
    }
    const std::lock_guard lock(arrivals_mutex_);
    if (!arrivals_.empty() && last >= arrivals_.front().number) {
      check(cudaStreamWaitEvent(queue, arrivals_[last - arrivals_.front().number].copied, 0), "cudaStreamWaitEvent");
    }
  }

  [[nodiscard]] bool strict() const { return owner_.options().strict; }
  /// The blocks that a launch declares are all that it may use, until `end_strict`. Others wait for that.
  void begin_strict(const std::vector<block_access>& blocks) {
    strict_mutex_.lock();
    allowed_ = blocks;
    for (const block_access& a : allowed_) {
      (void)virtual_.allow(at(base_, a.range.first), chunk_ * a.range.count);
    }
  }
  /// @param queue  Where the launch is. @returns  Whether it, and all before it, went well.
  bool end_strict(cudaStream_t queue) {
    const bool well = worked(cudaStreamSynchronize(queue));
    for (const block_access& a : allowed_) {
      (void)virtual_.forbid(at(base_, a.range.first), chunk_ * a.range.count);
    }
    strict_mutex_.unlock();
    return well;
  }
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
  };
  /// Copies to the host that are on their way, of a part of a command.
  struct departure {
    job what{};
    block_range part{};
    cudaEvent_t copied = nullptr;  // null: nothing is copied
    bool last = false;             // of the command
    bool well = true;              // all of the command that went before, and this
  };
  struct slot {
    handle memory = 0;
    bool exists = false;
  };
  struct host_chunk {
    handle memory = 0;
    bool exists = false;
  };

  static device& current(device& owner) {
    owner.make_current();
    return owner;
  }
  static bytes checked(bytes chunk) {
    if (chunk < bytes{std::uint64_t{2} << 20} || chunk > bytes{std::uint64_t{32} << 20} ||
        (chunk.count & (chunk.count - 1)) != 0) {
      throw error(status::invalid_argument, "a chunk of mapped memory is a power of two from 2 MiB to 32 MiB, not " +
                                                std::to_string(chunk.count) + " bytes");
    }
    return chunk;
  }
  [[nodiscard]] std::byte* at(const addresses& range, block_id b) const {
    return range.begin + (chunk_ * b.value).count;
  }
  [[nodiscard]] std::byte* at_slot(std::uint32_t s) const { return on_device_.begin + (chunk_ * s).count; }

  // --- the program's threads ---------------------------------------------------------------------------------------

  bool submit(std::deque<job>& queue, const job& j) {
    expects(!j.range.empty() && j.range.end_value() <= blocks_, "a command for blocks outside the arena");
    watch_.command_submitted(j.ticket);
    {
      const std::lock_guard lock(jobs_mutex_);
      queue.push_back(j);
      ++jobs_;
    }
    changed_.notify_one();
    return true;
  }
  void wake() {
    {
      const std::lock_guard lock(jobs_mutex_);
      wanted_ = true;
    }
    changed_.notify_one();
  }
  /// Until nothing is queued or under way.
  void wait() {
    std::unique_lock lock(jobs_mutex_);
    idle_.wait(lock, [this] { return jobs_ == 0; });
  }

  void emit(const device_event& e) {
    {
      const std::lock_guard lock(happened_mutex_);
      happened_.push_back(e);
    }
    watch_.hurry();
  }
  void report(device_event::kind what, block_range range, std::uint64_t ticket) {
    device_event e{.what = what, .why = reason::predicted, .range = range, .at = gpu_clock::host_now()};
    e.ticket = ticket;
    emit(e);
  }
  /// The command is over.
  void end(const job& j, bool well) {
    watch_.command_ended();
    report(well ? device_event::kind::completed : device_event::kind::failed, j.range, j.ticket);
    {
      const std::lock_guard lock(jobs_mutex_);
      --jobs_;
    }
    idle_.notify_all();
  }
  void note_failure(std::string what, bool host) {
    const std::lock_guard lock(failure_mutex_);
    last_failure_ = std::move(what);
    host_is_full_ = host;
  }

  // --- host memory -------------------------------------------------------------------------------------------------

  /// @returns  Whether the block has a chunk of the host. Threads: any.
  bool give_host_chunk(block_id b) {
    const std::lock_guard lock(host_mutex_);
    stale_[b.value].store(false, std::memory_order_relaxed);
    host_chunk& mine = host_[b.value];
    if (mine.exists) {
      return true;
    }
    const bytes limit = owner_.options().host_limit;
    CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
    if (limit.count == 0 || chunk_ * (host_chunks_.load(std::memory_order_relaxed) + 1) <= limit) {
      result = virtual_.create(true, chunk_, mine.memory);
      host_chunks_.fetch_add(result == CUDA_SUCCESS ? 1 : 0, std::memory_order_relaxed);
    }
    if (result != CUDA_SUCCESS && !take_outdated_chunk(mine.memory)) {
      note_failure("the host has no chunk left: " + std::to_string(host_memory().count) + " bytes are held" +
                       (limit.count != 0 ? ", device_options::host_limit is " + std::to_string(limit.count)
                                         : ", cuMemCreate says " + std::to_string(static_cast<int>(result))),
                   true);
      return false;
    }
    std::byte* const here = at(on_host_, b);
    if (virtual_.map(here, chunk_, mine.memory) != CUDA_SUCCESS) {
      return no_host_chunk(mine);
    }
    if (virtual_.allow(here, chunk_, true) != CUDA_SUCCESS) {
      (void)virtual_.unmap(here, chunk_);
      return no_host_chunk(mine);
    }
    mine.exists = true;
    if (host_mapped() && slot_of_[b.value].load(std::memory_order_relaxed) == none) {
      map_to_host(b);
    }
    return true;
  }
  /// Launches find the host's chunk where the device has none. Under the lock.
  void map_to_host(block_id b) {
    std::byte* const here = at(base_, b);
    if (!mapped_to_host_.contains(b.value) && virtual_.map(here, chunk_, host_[b.value].memory) == CUDA_SUCCESS) {
      mapped_to_host_.insert(b.value);
      (void)virtual_.allow(here, chunk_);
    }
  }
  bool no_host_chunk(host_chunk& c) {
    virtual_.release(c.memory);
    host_chunks_.fetch_sub(1, std::memory_order_relaxed);
    note_failure("a chunk of the host could not be mapped", true);
    return false;
  }
  /// A chunk of the host whose contents are of no use: the device has newer ones, or nobody wants any.
  bool take_outdated_chunk(handle& out) {
    for (std::uint32_t n = 0; n < blocks_; ++n) {
      outdated_next_ = outdated_next_ + 1 < blocks_ ? outdated_next_ + 1 : 0;
      host_chunk& c = host_[outdated_next_];
      const bool read =
          arrival_[outdated_next_].load(std::memory_order_acquire) > arrived_.load(std::memory_order_acquire);
      if (c.exists && stale_[outdated_next_].load(std::memory_order_relaxed) && !read && !host_mapped() &&
          virtual_.unmap(at(on_host_, block_id{outdated_next_}), chunk_) == CUDA_SUCCESS) {
        c.exists = false;
        out = c.memory;
        return true;
      }
    }
    return false;
  }
  [[nodiscard]] bool has_host_chunk(block_id b) {
    const std::lock_guard lock(host_mutex_);
    return host_[b.value].exists;
  }
  [[nodiscard]] bool host_mapped() const { return owner_.options().evicted == evicted_chunks::host_mapped; }

  // --- the thread that copies and maps -----------------------------------------------------------------------------

  void run() {
    (void)worked(cudaSetDevice(owner_.properties().ordinal));
    cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    (void)worked(cudaThreadExchangeStreamCaptureMode(&mode));
    sleep_precisely();
    for (cudaStream_t* s : {&in_, &out_}) {
      if (!worked(cudaStreamCreateWithFlags(s, cudaStreamNonBlocking))) {
        *s = nullptr;  // then copies fail, and say so
      }
    }
    std::deque<job> in;
    for (;;) {
      {
        std::unique_lock lock(jobs_mutex_);
        const auto something = [this] { return stopping_ || wanted_ || !inward_.empty() || !outward_.empty(); };
        const bool at_once = !coming_.empty() || !departed_.empty() || may_send();
        if (!at_once && commands_.empty() && departures_.empty() && in.empty()) {
          changed_.wait(lock, something);
        } else if (!at_once && !something()) {
          lock.unlock();
          std::this_thread::sleep_for(look_every);
          lock.lock();
        }
        if (stopping_) {
          break;  // after `wait`: nothing is left
        }
        wanted_ = false;
        in.insert(in.end(), inward_.begin(), inward_.end());
        inward_.clear();
        for (; !outward_.empty(); outward_.pop_front()) {
          (needs_no_copy(outward_.front()) ? given_up_ : leaving_).push_back(outward_.front());
        }
      }
      keep_sending();
      end_departures();
      end_arrivals();
      give_up_contents();
      trim();
      while (!in.empty() && begin_inward(in.front())) {
        in.pop_front();
      }
      // One block at a time, so that what happens meanwhile is seen.
      if (!coming_.empty()) {
        map_next();
      }
    }
    for (const cudaStream_t s : {in_, out_}) {
      if (s != nullptr) {
        settle(s);
        (void)worked(cudaStreamDestroy(s));
      }
    }
    for (const cudaEvent_t e : spare_events_) {
      (void)worked(cudaEventDestroy(e));
    }
  }

  // Inward.

  /// @returns  False where it has to wait for chunks of the device.
  bool begin_inward(const job& j) {
    std::vector<std::uint32_t> got;
    while (got.size() < j.range.count) {
      const std::uint32_t s = take_slot();
      if (s == none) {
        for (; !got.empty(); got.pop_back()) {
          give_slot(got.back());
        }
        if (!departures_.empty() || !leaving_.empty()) {
          return false;
        }
        end(j, false);
        return true;
      }
      got.push_back(s);
    }
    const bringing_ref command = commands_.insert(commands_.end(), {.what = j, .left = j.range.count});
    for (std::uint32_t i = 0; i < j.range.count; ++i) {
      const block_id b{j.range.first.value + i};
      std::uint64_t copy = 0;
      if (j.what == job::kind::prefetch && has_host_chunk(b) && !begin_copy(b, got[i], command, copy)) {
        give_slot(got[i]);
        command->well = false;
        has_come(command);
        continue;
      }
      coming_.push_back({b, got[i], copy, command});
    }
    return true;
  }
  /// @param copy  Set to its number.
  bool begin_copy(block_id b, std::uint32_t s, bringing_ref command, std::uint64_t& copy) {
    cudaEvent_t e = spare_event();
    if (e == nullptr || !worked(cudaMemcpyAsync(at_slot(s), at(on_host_, b), chunk_.count, cudaMemcpyDefault, in_)) ||
        !worked(cudaEventRecord(e, in_))) {
      note_failure("a copy to the device failed", false);
      if (e != nullptr) {
        settle(in_);  // it may be on its way
        spare_events_.push_back(e);
      }
      return false;
    }
    const std::lock_guard lock(arrivals_mutex_);
    copy = last_arrival_.load(std::memory_order_relaxed) + 1;
    arrivals_.push_back({copy, e, command});
    arrival_[b.value].store(copy, std::memory_order_release);
    last_arrival_.store(copy, std::memory_order_release);
    return true;
  }
  /// Maps the block that has waited longest. While copies to the host follow one another without a pause, the driver
  /// takes a millisecond for it, else 35 us (docs/adr/0007).
  void map_next() {
    const coming c = coming_.front();
    coming_.pop_front();
    ++mapped_since_sent_;
    const bool mapped = map_block(c.block, c.slot);
    keep_sending();  // the copy that went before is likely to have ended with that
    if (mapped) {
      slot_of_[c.block.value].store(c.slot, std::memory_order_relaxed);
      report(device_event::kind::arrived, {c.block, 1}, c.command->what.ticket);
    } else {
      c.command->well = false;
      if (c.copy != 0) {
        settle(in_);
      }
      give_slot(c.slot);
    }
    if (c.copy == 0) {
      has_come(c.command);
    } else {
      mapped_up_to_ = c.copy;
    }
  }
  /// One more block of the command is there, or will not be. Reported ones stay when the command as a whole has failed.
  void has_come(bringing_ref command) {
    if (--command->left == 0) {
      end(command->what, command->well);
      commands_.erase(command);
    }
  }
  bool map_block(block_id b, std::uint32_t s) {
    std::byte* const here = at(base_, b);
    if (host_mapped()) {
      const std::lock_guard lock(host_mutex_);
      if (mapped_to_host_.erase(b.value) != 0) {
        (void)virtual_.unmap(here, chunk_);
      }
    }
    CUresult result = virtual_.map(here, chunk_, slot_handles_[s].memory);
    if (result == CUDA_SUCCESS && !strict()) {
      result = virtual_.allow(here, chunk_);
      if (result != CUDA_SUCCESS) {
        (void)virtual_.unmap(here, chunk_);
      }
    }
    if (result != CUDA_SUCCESS) {
      note_failure("a chunk could not be mapped: the driver says " + std::to_string(static_cast<int>(result)), false);
    }
    return result == CUDA_SUCCESS;
  }
  void end_arrivals() {
    for (;;) {
      arrival a;
      {
        const std::lock_guard lock(arrivals_mutex_);
        if (arrivals_.empty() || arrivals_.front().number > mapped_up_to_ ||
            !reached(cudaEventQuery, arrivals_.front().copied)) {
          return;
        }
        a = arrivals_.front();
        arrivals_.pop_front();
        arrived_.store(a.number, std::memory_order_release);
        spare_events_.push_back(a.copied);
      }
      has_come(a.command);
    }
  }
  /// Nothing is being copied into the block's chunk of the device.
  void await_arrival(block_id b) {
    if (arrival_[b.value].load(std::memory_order_relaxed) > arrived_.load(std::memory_order_relaxed)) {
      settle(in_);
    }
  }

  // Outward.

  [[nodiscard]] static bool needs_no_copy(const job& j) {
    return j.what == job::kind::drop || j.what == job::kind::discard;
  }
  void give_up_contents() {
    for (; !given_up_.empty(); given_up_.pop_front()) {
      const job& j = given_up_.front();
      take_away(j.range);
      if (j.what == job::kind::drop) {
        report(device_event::kind::departed, j.range, j.ticket);
      }
      end(j, true);
    }
  }
  /// Copies to the host come in pieces, and blocks are mapped between them: else each would wait for a millisecond.
  /// While none is, the next piece waits behind the one that moves.
  [[nodiscard]] bool may_send() const {
    if (leaving_.empty()) {
      return false;
    }
    if (departures_.empty()) {
      return coming_.empty() || mapped_since_sent_ >= most_mapped_between;
    }
    return coming_.empty() && mapped_since_sent_ == 0 && !maps_between_ && departures_.size() < pieces_in_flight &&
           sent_in_a_row_ < most_in_a_row;
  }
  /// Gives the copy engine the next piece of what leaves.
  void send_next() {
    maps_between_ = std::exchange(mapped_since_sent_, 0) != 0;
    sent_in_a_row_ = departures_.empty() ? 1 : sent_in_a_row_ + 1;
    const job j = leaving_.front();
    const block_range left{block_id{j.range.first.value + begun_}, j.range.count - begun_};
    block_range part{left.first, std::min(left.count, std::max(1U, static_cast<std::uint32_t>(piece / chunk_)))};
    // As many as the host has memory for; the others stay.
    std::uint32_t found = 0;
    bool well = out_ != nullptr;
    for (; well && found < part.count && give_host_chunk(block_id{part.first.value + found}); ++found) {
      await_arrival(block_id{part.first.value + found});
    }
    const bool all = found == part.count;
    part.count = found;
    for (std::uint32_t b = part.begin_value(); well && b < part.end_value(); ++b) {
      well = worked(cudaMemcpyAsync(at(on_host_, block_id{b}), at_slot(slot_of_[b].load(std::memory_order_relaxed)),
                                    chunk_.count, cudaMemcpyDefault, out_));
    }
    cudaEvent_t e = well && found != 0 ? spare_event() : nullptr;
    if (found != 0 && (e == nullptr || !worked(cudaEventRecord(e, out_)))) {
      note_failure("a copy to the host failed", false);
      settle(out_);  // some may be on their way
      if (e != nullptr) {
        spare_events_.push_back(std::exchange(e, nullptr));
      }
      well = false;
    }
    if (!well) {
      part.count = 0;
    }
    well = well && all;
    begun_ += part.count;
    const bool last = !well || begun_ == j.range.count;
    departures_.push_back({j, part, e, last, well});
    if (last) {
      outdated({block_id{part.end_value()}, j.range.end_value() - part.end_value()});  // the host gets none of them
      leaving_.pop_front();
      begun_ = 0;
    }
  }
  /// First of all, because the link waits for it.
  void keep_sending() {
    while (!departures_.empty() &&
           (departures_.front().copied == nullptr || reached(cudaEventQuery, departures_.front().copied))) {
      departed_.push_back(departures_.front());
      departures_.pop_front();
    }
    if (may_send()) {
      send_next();
    }
  }
  void end_departures() {
    for (const departure& d : departed_) {
      if (d.copied != nullptr) {
        spare_events_.push_back(d.copied);
      }
      if (d.what.what == job::kind::evict && !d.part.empty()) {
        take_away(d.part);
        report(device_event::kind::departed, d.part, d.what.ticket);
      }
      if (d.last) {
        end(d.what, d.well);
      }
    }
    departed_.clear();
  }
  /// The device has the blocks no more. Those that it has not are left alone.
  void take_away(block_range range) {
    for (std::uint32_t b = range.begin_value(); b < range.end_value(); ++b) {
      const std::uint32_t s = slot_of_[b].exchange(none, std::memory_order_relaxed);
      if (s == none) {
        continue;
      }
      await_arrival(block_id{b});
      std::byte* const here = at(base_, block_id{b});
      (void)virtual_.unmap(here, chunk_);
      if (host_mapped()) {
        const std::lock_guard lock(host_mutex_);
        if (host_[b].exists) {
          map_to_host(block_id{b});
        }
      }
      give_slot(s);
    }
  }

  // Chunks of the device.

  std::uint32_t take_slot() {
    if (!empty_.empty()) {
      const std::uint32_t s = empty_.back();
      empty_.pop_back();
      empty_slots_.fetch_sub(1, std::memory_order_relaxed);
      return s;
    }
    if (created_.load(std::memory_order_relaxed) >= limit_.load(std::memory_order_relaxed)) {
      note_failure(
          "all " + std::to_string(created_.load(std::memory_order_relaxed)) + " chunks of the budget are in use",
          false);
      return none;
    }
    std::uint32_t s = static_cast<std::uint32_t>(slot_handles_.size());
    if (!unused_.empty()) {
      s = unused_.back();
    }
    handle made = 0;
    if (const CUresult result = virtual_.create(false, chunk_, made); result != CUDA_SUCCESS) {
      note_failure("the device has no memory for another chunk of " + std::to_string(chunk_.count) +
                       " bytes beside the " + std::to_string(created_.load(std::memory_order_relaxed)) +
                       " that are there; the driver says " + std::to_string(static_cast<int>(result)),
                   false);
      return none;
    }
    std::byte* const here = at_slot(s);
    if (virtual_.map(here, chunk_, made) != CUDA_SUCCESS) {
      virtual_.release(made);
      note_failure("a chunk of the device could not be mapped", false);
      return none;
    }
    if (virtual_.allow(here, chunk_) != CUDA_SUCCESS) {
      (void)virtual_.unmap(here, chunk_);
      virtual_.release(made);
      note_failure("a chunk of the device could not be made accessible", false);
      return none;
    }
    if (s == slot_handles_.size()) {
      slot_handles_.push_back({});
    } else {
      unused_.pop_back();
    }
    slot_handles_[s] = {made, true};
    created_.fetch_add(1, std::memory_order_relaxed);
    return s;
  }
  void give_slot(std::uint32_t s) {
    empty_.push_back(s);
    empty_slots_.fetch_add(1, std::memory_order_relaxed);
  }
  /// Gives empty chunks back that are more than the budget.
  void trim() {
    while (!empty_.empty() && created_.load(std::memory_order_relaxed) > limit_.load(std::memory_order_relaxed)) {
      destroy_slot(empty_.back());
      unused_.push_back(empty_.back());
      empty_.pop_back();
      empty_slots_.fetch_sub(1, std::memory_order_relaxed);
    }
  }
  void destroy_slot(std::uint32_t s) {
    settle(in_);  // a copy into it that nobody waited for
    (void)virtual_.unmap(at_slot(s), chunk_);
    virtual_.release(slot_handles_[s].memory);
    slot_handles_[s] = {};
    created_.fetch_sub(1, std::memory_order_relaxed);
  }

  cudaEvent_t spare_event() {
    cudaEvent_t e = nullptr;
    if (!spare_events_.empty()) {
      e = spare_events_.back();
      spare_events_.pop_back();
    } else if (!worked(cudaEventCreateWithFlags(&e, cudaEventDisableTiming))) {
      e = nullptr;
    }
    return e;
  }

  /// The thread has ended.
  void give_all_back() {
    for (std::uint32_t b = 0; b < blocks_; ++b) {
      if (slot_of_[b].load(std::memory_order_relaxed) != none || mapped_to_host_.contains(b)) {
        (void)virtual_.unmap(at(base_, block_id{b}), chunk_);
      }
      if (host_[b].exists) {
        (void)virtual_.unmap(at(on_host_, block_id{b}), chunk_);
        virtual_.release(host_[b].memory);
      }
    }
    for (std::uint32_t s = 0; s < slot_handles_.size(); ++s) {
      if (slot_handles_[s].exists) {
        (void)virtual_.unmap(at_slot(s), chunk_);
        virtual_.release(slot_handles_[s].memory);
      }
    }
  }

  static constexpr auto look_every = std::chrono::microseconds(10);
  static constexpr bytes piece{std::uint64_t{16} << 20};   // of what leaves
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

  std::mutex strict_mutex_;  // held while a launch runs
  std::vector<block_access> allowed_{};

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
