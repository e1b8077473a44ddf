#pragma once

#include <deepum/core/block.hpp>
#include <deepum/core/launch.hpp>
#include <deepum/core/location.hpp>
#include <deepum/cuda/block_marks.hpp>
#include <deepum/cuda/check.hpp>
#include <deepum/cuda/device.hpp>
#include <deepum/cuda/fault_feed.hpp>
#include <deepum/cuda/find_fault_feed.hpp>
#include <deepum/cuda/gpu_clock.hpp>
#include <deepum/cuda/launch_log.hpp>
#include <deepum/cuda/launch_watch.hpp>
#include <deepum/cuda/managed_limit.hpp>
#include <deepum/cuda/migration_lane.hpp>
#include <deepum/cuda/relaxed_capture.hpp>
#include <deepum/engine/memory_kind.hpp>
#include <deepum/error.hpp>
#include <deepum/policy/plan.hpp>
#include <deepum/units.hpp>

#include <cuda_runtime_api.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace deepum {
inline namespace v0 {
namespace cuda {

template <class Memory>
class basic_stream;
class event;

/// Managed memory of the CUDA driver: pages move on page faults and on command.
///
/// Host and device use the same bytes at the same addresses, always correctly; what the commands and the declarations
/// change is only when bytes move. Within DEEPUM_MANAGED_LIMIT (see `managed_limit`).
///
/// Three threads: one runs the pump, and one for each direction gives the driver its commands (`migration_lane`). While
/// launches are in flight the pump's thread looks for their ends every 20 us.
class managed_memory {
 public:
  using device_type = device;
  using stream_type = basic_stream<managed_memory>;
  using event_type = event;

  /// Ranges are merged before the driver gets them, so the lanes are given some to merge.
  static constexpr std::uint32_t commands_in_flight = 16;
  static constexpr bytes bytes_in_flight{std::uint64_t{128} << 20};

  /// @param capacity  Length of the address range, whole blocks. Pages are populated when they are touched.
  /// @errors  `status::unsupported` where pages cannot move while kernels run, `status::out_of_arena_space` above
  ///          DEEPUM_MANAGED_LIMIT, `status::out_of_host_memory`, `status::device_failure`.
  managed_memory(device& owner, bytes capacity)
      : owner_(checked(owner)),
        share_(capacity),
        capacity_(capacity),
        base_(allocate(owner, capacity)),
        marks_(static_cast<std::uint32_t>(capacity / block_size)),
        watch_(owner.properties().ordinal),
        inward_(owner, base_.get(), marks_, [this](const device_event& e) { emit(e); }),
        outward_(owner, base_.get(), marks_, [this](const device_event& e) { emit(e); }) {
    found_feed found = find_fault_feed(owner.options(), owner.properties().ordinal, base_.get(), capacity,
                                       [this](cuda::fault_feed& feed) { return calibrate(feed); });
    feed_ = std::move(found.feed);
    feed_name_ = feed_ ? feed_->name() : "none";
    feed_alive_.store(feed_ != nullptr, std::memory_order_relaxed);
    description_ = std::move(found.description);
  }
  /// Nothing uses the memory any more.
  ~managed_memory() { detach(); }
  managed_memory(const managed_memory&) = delete;
  managed_memory& operator=(const managed_memory&) = delete;

  [[nodiscard]] device& owner() const { return owner_; }
  [[nodiscard]] std::byte* base() const { return base_.get(); }
  [[nodiscard]] bytes capacity() const { return capacity_; }
  [[nodiscard]] location place() const { return location::device(); }

  /// The largest arena that the environment allows now; nothing where it does not say.
  [[nodiscard]] static std::optional<bytes> most_capacity() { return managed_limit::left(); }

  /// Device memory that is free, or held by blocks that are not on the device: the driver keeps their chunks and takes
  /// them back without a copy when somebody needs memory. Costs a system call, 5 us. Threads: any.
  [[nodiscard]] bytes free_memory() const {
    std::size_t free = 0;
    std::size_t total = 0;
    if (!worked(cudaSetDevice(owner_.properties().ordinal)) || !worked(cudaMemGetInfo(&free, &total))) {
      return {};
    }
    return std::min(bytes{free} + block_size * kept_chunks(bytes{free}), bytes{total});
  }

  /// @name Commands
  /// See `memory_kind` and `sim::managed_memory`, which has the same. Prefetches, advice and discards are one lane,
  /// evictions the other.
  ///
  /// A block that is advised read-mostly is duplicated when it is prefetched: an eviction of it copies nothing.
  /// @{
  bool prefetch(block_range range, std::uint64_t ticket) {
    return submit(inward_, {.what = action::prefetch, .range = range, .ticket = ticket});
  }
  bool evict(block_range range, std::uint64_t ticket) {
    return submit(outward_, {.what = action::evict, .why = reason::requested, .range = range, .ticket = ticket});
  }
  bool discard(block_range range, std::uint64_t ticket) {
    return submit(inward_, {.what = action::discard, .range = range, .ticket = ticket});
  }
  /// Read-mostly ends at once, before the call returns: a launch that writes duplicated blocks would fault on every
  /// page of them, 15 s for each GiB.
  bool advise(block_range range, advice hint, location l) {
    if (hint == advice::unset_read_mostly) {
      inward_.end_duplication(range);
      return true;
    }
    return submit(inward_, {.what = action::advise,
                            .hint = hint,
                            .where = {.on_host = l.is_host(), .device = owner_.properties().ordinal},
                            .range = range});
  }
  /// Discarded blocks of the range get pages again, as soon as there is nothing else to do: a launch that writes them
  /// without a prefetch faults on every single page of them (docs/adr/0006).
  void renew(block_range range) {
    for_each_run(
        range, [this](block_id b) { return marks_.has(b, mark::discarded); },
        [this](block_range run) {
          for (; !run.empty(); run.first.value += migration_lane::blocks_outward) {
            const std::uint32_t count = std::min(run.count, migration_lane::blocks_outward);
            outward_.renew_when_idle({run.first, count});
            run.count -= count;
          }
        });
  }
  /// @}

  /// The host touches bytes of the range: what is on the device moves to the host first, all of it at once. Blocks.
  /// Threads: any.
  void host_access(bytes offset, bytes size, access mode) {
    expects(offset + size <= capacity_, "the host touches bytes outside the arena");
    const block_range range = blocks_of(offset, size);
    if (range.empty()) {
      return;
    }
    if (mode != access::read) {
      inward_.end_duplication(range);
    }
    // What is duplicated is current on the host already.
    for_each_run(
        range, [this](block_id b) { return !marks_.has(b, mark::duplicated); },
        [this](block_range run) { outward_.submit({.what = action::evict, .why = reason::host, .range = run}); });
    outward_.wait();
  }

  /// @name Events
  /// @{

  [[nodiscard]] nanoseconds now() const { return gpu_clock::host_now(); }

  /// Threads: any.
  void poll(std::vector<device_event>& events) {
    const std::lock_guard lock(watch_.mutex());
    (void)worked(cudaSetDevice(owner_.properties().ordinal));
    const relaxed_capture relaxed;
    std::size_t first = events.size();
    {
      const std::lock_guard happened(happened_mutex_);
      events.insert(events.end(), happened_.begin(), happened_.end());
      happened_.clear();
    }
    watch_.clock().keep_up();
    const nanoseconds looked = gpu_clock::host_now();
    bool in_flight = false;
    const bool launched = watch_.take_launched();
    std::size_t front = events.size();
    for (launch_log* log : watch_.logs()) {
      const std::size_t from = events.size();
      in_flight = log->collect(watch_.clock(), events) || in_flight;
      // A launch that was over at an unknown time goes before the faults: else they were taken to be its own, all of
      // them. Of the stream's launches the order stays.
      std::size_t until = events.size();
      while (until != from && events[until - 1].timed) {
        --until;
      }
      if (until != from) {
        const auto begin = events.begin();
        std::rotate(begin + static_cast<std::ptrdiff_t>(front), begin + static_cast<std::ptrdiff_t>(from),
                    begin + static_cast<std::ptrdiff_t>(until));
        front += until - from;
        first = front;
      }
    }
    // The driver knows of a fault before the launch goes on, so that after the ends of launches come all their faults.
    take_faults(in_flight, launched, looked, events);
    watch_.note_in_flight(in_flight);
    std::stable_sort(events.begin() + static_cast<std::ptrdiff_t>(first), events.end(),
                     [](const device_event& a, const device_event& b) { return a.at < b.at; });
  }

  /// See `launch_watch`.
  void notify() { watch_.notify(); }
  void hurry() { watch_.hurry(); }
  void attach(std::function<void()> pump) { watch_.attach(std::move(pump)); }
  void detach() {
    watch_.detach();
    inward_.wait();
    outward_.wait();
  }
  /// @}

  /// @name Faults
  /// @{

  /// Where they are learned from: `driver`, `cupti` or `none`. Without a feed a launch is taken to have touched all
  /// that it declares, and nothing else is learned.
  [[nodiscard]] const std::string& fault_feed() const { return feed_name_; }
  [[nodiscard]] bool sees_faults() const { return feed_alive_.load(std::memory_order_relaxed); }
  /// Faults that the feed lost. Threads: any.
  [[nodiscard]] std::uint64_t lost_faults() const { return lost_.load(std::memory_order_relaxed); }
  /// One line for people: which feed was chosen, and why not a better one.
  [[nodiscard]] const std::string& description() const { return description_; }
  /// @}

  /// @name For streams
  /// @{
  void add(launch_log& log) { watch_.add(log); }
  /// All its launches have finished.
  void remove(launch_log& log) {
    std::vector<device_event> events;
    watch_.remove(log, events);
    for (const device_event& e : events) {
      emit(e);
    }
  }
  /// A launch has been given to the device.
  void issued() { watch_.issued(); }
  /// Whether the end of the next launch should be timed: at first, and while there are faults to attribute.
  [[nodiscard]] bool time_launches() { return launch_watch::count_down(timed_left_); }
  [[nodiscard]] bool mark_launches() { return watch_.mark_launches(); }
  [[nodiscard]] bool several_streams() const { return watch_.several_streams(); }
  /// @}

 private:
  struct release {
    void operator()(std::byte* p) const { (void)worked(cudaFree(p)); }
  };
  using allocation = std::unique_ptr<std::byte, release>;

  static constexpr std::int64_t launches_timed = 512;  // after the last fault, to begin with
  static constexpr std::int64_t most_launches_timed = 1 << 20;

  static device& checked(device& owner) {
    owner.make_current();
    if (!owner.properties().concurrent_managed_access) {
      throw error(
          status::unsupported,
          owner.properties().name +
              " cannot move managed memory while kernels run (concurrentManagedAccess is 0, as on Windows, WSL and "
              "Tegra), so nothing can be brought ahead there; allocate with cudaMalloc what fits the device");
    }
    return owner;
  }
  static allocation allocate(const device& owner, bytes capacity) {
    owner.make_current();
    void* p = nullptr;
    check(cudaMallocManaged(&p, capacity.count, cudaMemAttachGlobal), "cudaMallocManaged");
    allocation memory(static_cast<std::byte*>(p));
    if (reinterpret_cast<std::uintptr_t>(p) % block_size.count != 0) {
      throw error(status::unsupported, "the driver's managed memory does not begin at a block of 2 MiB");
    }
    return memory;
  }

  bool submit(migration_lane& lane, const migration& m) {
    expects(!m.range.empty() && m.range.end_value() <= capacity_ / block_size,
            "a command for blocks outside the arena");
    watch_.command_submitted(m.ticket);
    lane.submit(m);
    return true;
  }

  /// Blocks that hold device memory without being there. When the device is full, the driver may have taken it back.
  [[nodiscard]] std::uint64_t kept_chunks(bytes free) const {
    const std::uint64_t chunks = chunks_.load(std::memory_order_relaxed);
    return free < nearly_full ? 0 : chunks - std::min(chunks, present_.load(std::memory_order_relaxed));
  }
  static constexpr bytes nearly_full{std::uint64_t{64} << 20};

  void note_arrival(block_range range) {
    chunks_.fetch_add(marks_.set(range, mark::chunk), std::memory_order_relaxed);
    present_.fetch_add(marks_.set(range, mark::present), std::memory_order_relaxed);
  }

  void emit(const device_event& e) {
    if (e.what == device_event::kind::arrived) {
      note_arrival(e.range);
    } else if (e.what == device_event::kind::departed) {
      present_.fetch_sub(marks_.clear(e.range, mark::present), std::memory_order_relaxed);
    } else if (e.what == device_event::kind::completed || e.what == device_event::kind::failed) {
      watch_.command_ended();
    }
    {
      const std::lock_guard lock(happened_mutex_);
      happened_.push_back(e);
    }
    hurry();
  }

  // --- faults ------------------------------------------------------------------------------------------------------

  /// Finds out what lies between the feed's clock and the host's, with faults of the GPU on the first page. A fault
  /// that came late, because this thread was not running when it should have asked for it, says little: then once more.
  /// @returns  Whether the feed told of them.
  bool calibrate(cuda::fault_feed& feed) {
    cudaStream_t q = nullptr;
    cudaEvent_t before = nullptr;
    cudaEvent_t after = nullptr;
    const bool made = worked(cudaStreamCreateWithFlags(&q, cudaStreamNonBlocking)) &&
                      worked(cudaEventCreateWithFlags(&before, cudaEventDefault)) &&
                      worked(cudaEventCreateWithFlags(&after, cudaEventDefault));
    std::vector<fault_sample> faults;
    int prompt = 0;
    for (int i = 0; made && prompt < calibrations && i < most_calibrations; ++i) {
      *static_cast<volatile std::byte*>(base_.get()) = std::byte{0};  // to the host
      faults.clear();
      feed.take_all(faults);
      faults.clear();
      if (!worked(cudaEventRecord(before, q)) || !worked(cudaMemsetAsync(base_.get(), 0, 64, q))) {
        continue;
      }
      const bool ended = worked(cudaEventRecord(after, q));
      // Twice where that fails: what is still to be written then would be written into the program's data.
      if (worked(cudaStreamSynchronize(q)) || worked(cudaStreamSynchronize(q))) {
        const nanoseconds patience = gpu_clock::host_now() + (feed.late() ? longest_lateness : nanoseconds{});
        for (feed.take_all(faults); faults.empty() && gpu_clock::host_now() < patience; feed.take_all(faults)) {
          std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
        for (const fault_sample& f : faults) {
          if (holds(f.address)) {
            watch_.clock().learn_fault(f.at, watch_.clock().time_of(before));
          }
        }
        if (!watch_.clock().knows_faults()) {
          break;
        }
        prompt += ended && watch_.clock().time_of(after) - watch_.clock().time_of(before) < promptly ? 1 : 0;
      }
    }
    *static_cast<volatile std::byte*>(base_.get()) = std::byte{0};
    faults.clear();
    feed.take_all(faults);
    for (const cudaEvent_t e : {before, after}) {
      if (e != nullptr) {
        (void)worked(cudaEventDestroy(e));
      }
    }
    if (q != nullptr) {
      (void)worked(cudaStreamDestroy(q));
    }
    return watch_.clock().knows_faults();
  }
  static constexpr int calibrations = 8;
  static constexpr int most_calibrations = 64;
  static constexpr nanoseconds promptly = std::chrono::milliseconds(1);  // serving it takes a tenth of that
  static constexpr nanoseconds longest_lateness = std::chrono::milliseconds(300);

  [[nodiscard]] bool holds(std::uintptr_t address) const {
    const auto first = reinterpret_cast<std::uintptr_t>(base_.get());
    return address >= first && address - first < capacity_.count;
  }

  /// A fault brings its block, or a part of it.
  /// @param looked  When the ends of launches were looked for. Later faults wait while launches are in flight: one that
  ///                had not ended then may have by now, and they would be taken to be its own.
  void take_faults(bool in_flight, bool launched, nanoseconds looked, std::vector<device_event>& events) {
    if (!feed_) {
      return;
    }
    if (in_flight) {
      feed_->take(samples_);
    } else if (launched || feed_->late()) {
      feed_->take_all(samples_);  // the last launch has just finished
    }
    lost_.store(feed_->lost(), std::memory_order_relaxed);
    if (!feed_->alive()) {
      feed_alive_.store(false, std::memory_order_relaxed);
    }
    const bool certain = std::none_of(watch_.logs().begin(), watch_.logs().end(),
                                      [](const launch_log* l) { return l->some_unmarked(); });
    const auto later = std::stable_partition(samples_.begin(), samples_.end(), [&](const fault_sample& f) {
      return !in_flight || watch_.clock().time_of_fault(f.at) <= looked;
    });
    for (auto f = samples_.begin(); f != later; ++f) {
      if (!holds(f->address)) {
        continue;
      }
      if (timed_left_.load(std::memory_order_relaxed) <= 0) {  // they recur after longer than that
        timed_ahead_ = std::min(4 * timed_ahead_, most_launches_timed);
      }
      timed_left_.store(timed_ahead_, std::memory_order_relaxed);
      const block_range block{block_id{static_cast<std::uint32_t>(
                                  (f->address - reinterpret_cast<std::uintptr_t>(base_.get())) / block_size.count)},
                              1};
      const nanoseconds at = watch_.clock().time_of_fault(f->at);
      events.push_back(
          {.what = device_event::kind::fault, .mode = f->mode, .timed = certain, .range = block, .at = at});
      note_arrival(block);
      marks_.clear(block, mark::discarded);
      events.push_back({.what = device_event::kind::arrived,
                        .why = reason::fault,
                        .host_copy_stays = f->mode == access::read && marks_.has(block.first, mark::duplicated),
                        .range = block,
                        .at = at});
    }
    samples_.erase(samples_.begin(), later);
  }

  device& owner_;
  managed_limit::share share_;
  bytes capacity_;
  allocation base_;
  block_marks marks_;
  launch_watch watch_;
  std::atomic<std::uint64_t> chunks_{0};   // blocks with `mark::chunk`
  std::atomic<std::uint64_t> present_{0};  // blocks with `mark::present`

  std::mutex happened_mutex_;
  std::vector<device_event> happened_{};  // what the lanes told

  std::unique_ptr<cuda::fault_feed> feed_{};
  std::vector<fault_sample> samples_{};
  std::string feed_name_{};
  std::string description_{};
  std::atomic<bool> feed_alive_{false};
  std::atomic<std::uint64_t> lost_{0};
  std::int64_t timed_ahead_ = launches_timed;  // under the watch's lock
  std::atomic<std::int64_t> timed_left_{launches_timed};
  migration_lane inward_;  // last: their threads use what is above
  migration_lane outward_;
};

}  // namespace cuda
}  // namespace v0
}  // namespace deepum
