#pragma once

#include "deepum_uvm_events.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace deepum_test {

/// The driver's side of /dev/nvidia-uvm-tools without a driver: attach, threshold, enable, disable, a queue per
/// descriptor that is filled, found full and reported as the driver does it, and the faults a device can have.
///
/// Give `system()` to deepum_uvm_events_open and feed it with `push_...`. It speaks as a driver of 580 with CUDA
/// initialised unless told otherwise, and must outlive its readers. Every member may be called from any thread.
class fake_uvm_tools {
 public:
  /// A descriptor of the process, and whether the driver keeps a VA space behind it.
  struct descriptor {
    int number = 0;
    std::string target;
    bool va_space = false;
  };

  /// What the driver answers in its status words.
  static constexpr std::uint32_t illegal_action = 0x16;
  static constexpr std::uint32_t insufficient_permissions = 0x1b;
  static constexpr std::uint32_t invalid_address = 0x1e;
  static constexpr std::uint32_t invalid_argument = 0x1f;

  fake_uvm_tools() { set_version("580.65.06"); }
  fake_uvm_tools(const fake_uvm_tools&) = delete;
  fake_uvm_tools& operator=(const fake_uvm_tools&) = delete;

  [[nodiscard]] const deepum_uvm_system* system() const { return &system_; }

  // --- Events. Each goes to every attached queue that has its type enabled. ---

  /// A GPU fault. `batch` is the driver's batch; times in nanoseconds; GPUs count from 1.
  void push_fault(std::uint64_t address, deepum_uvm_access access = DEEPUM_UVM_READ, std::uint64_t gpu_time = 0,
                  std::uint32_t batch = 0, std::uint8_t gpu = 1, std::uint8_t client = 1) {
    record r{};
    r[0] = 3;
    r[1] = 2;  // the page table entry is invalid
    r[2] = driver_access(access);
    r[3] = gpu;
    put(r, 8, address);
    put(r, 16, gpu_time + cpu_lag);
    put(r, 24, gpu_time);
    put(r, 32, batch);
    r[36] = client;
    push_bytes(r);
  }
  void push_cpu_fault(std::uint64_t address, deepum_uvm_access access = DEEPUM_UVM_READ, std::uint64_t cpu_time = 0) {
    record r{};
    r[0] = 1;
    r[1] = driver_access(access);
    put(r, 8, address);
    put(r, 16, cpu_time);
    push_bytes(r);
  }
  /// Processor 0 is the host.
  void push_migration(std::uint64_t address, std::uint64_t bytes, std::uint8_t from = 0, std::uint8_t to = 1,
                      std::uint64_t gpu_time = 0, deepum_uvm_cause cause = DEEPUM_UVM_CAUSE_COHERENCE) {
    record r{};
    r[0] = 2;
    r[1] = static_cast<std::uint8_t>(cause);
    r[2] = from;
    r[3] = to;
    put(r, 8, address);
    put(r, 16, bytes);
    put(r, 24, gpu_time + cpu_lag);
    put(r, 48, gpu_time);
    push_bytes(r);
  }
  /// Keeps what is pushed from now on until somebody asks for a flush, as the driver keeps the records of its copies.
  void keep_until_flush() {
    const std::lock_guard lock(mutex_);
    keeps_ = true;
  }
  /// What 580 writes when it makes room: a migration of that cause, and no record of its own type.
  void push_eviction(std::uint64_t address, std::uint64_t bytes, std::uint8_t from = 1, std::uint8_t to = 0,
                     std::uint64_t gpu_time = 0) {
    push_migration(address, bytes, from, to, gpu_time, DEEPUM_UVM_CAUSE_EVICTION);
  }

  using record = std::array<std::uint8_t, 64>;
  /// Any record; byte 0 is its type.
  void push_bytes(const record& r) {
    const std::lock_guard lock(mutex_);
    if (keeps_) {
      kept_.push_back(r);
    } else {
      write(r);
    }
  }

  /// The CPU's clock runs this far ahead of the GPU's.
  static constexpr std::uint64_t cpu_lag = 1000;

  // --- What the device is like, and what goes wrong with it. Set before opening unless it says otherwise. ---

  /// Version in /proc/driver/nvidia/version, and the layout of that driver's parameters. Empty: there is no driver.
  void set_version(const std::string& version) {
    set_file("/proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  " + version +
                                                "  Release Build  (builder@host)\n" +
                                                "GCC version:  gcc version 12.2.0 (Debian 12.2.0-14)\n");
    const std::lock_guard lock(mutex_);
    if (version.empty()) files_.clear();
    branch_ = version.empty() ? 0 : std::atoi(version.c_str());
  }
  /// The text of a file; the layout of the parameters stays.
  void set_file(const std::string& path, const std::string& text) {
    const std::lock_guard lock(mutex_);
    files_[path] = text;
  }
  void remove_file(const std::string& path) {
    const std::lock_guard lock(mutex_);
    files_.erase(path);
  }
  /// The descriptors of the process, in the order in which it lists them.
  void set_descriptors(std::vector<descriptor> all) {
    const std::lock_guard lock(mutex_);
    descriptors_ = std::move(all);
  }
  /// Opening the device fails with this errno; 0: it does not.
  void fail_open(int error) { set(open_error_, error); }
  /// Requests of this number fail with this errno; 0: they do not.
  void fail_request(unsigned long request, int error) {
    const std::lock_guard lock(mutex_);
    request_errors_[request] = error;
  }
  /// The driver carries requests of this number out with this status; 0: as it should.
  void refuse(unsigned long request, std::uint32_t status) {
    const std::lock_guard lock(mutex_);
    statuses_[request] = status;
  }
  void refuse_attach(std::uint32_t status) { refuse(56, status); }
  /// The nth mapping from now fails, 0 being the next; -1: none does.
  void fail_map(int nth) { set(failing_map_, nth); }
  /// At any time: nobody who polls hears of records. Only the time-out ends the wait.
  void lose_wake_ups(bool lose = true) { set(lose_wake_ups_, lose); }
  /// At any time: polling fails with this errno, the next `times` times or, if that is -1, always; errno 0: it does
  /// not.
  void fail_polls(int error, int times = -1) {
    const std::lock_guard lock(mutex_);
    poll_error_ = error;
    poll_errors_left_ = times;
    woken_.notify_all();
  }
  /// Listing the descriptors fails with this errno; 0: it does not.
  void fail_descriptors(int error) { set(descriptors_error_, error); }
  /// At any time: somebody writes over the indices of all queues.
  void overwrite_indices(std::optional<std::uint32_t> get, std::optional<std::uint32_t> put) {
    const std::lock_guard lock(mutex_);
    for (auto& [number, t] : trackers_) {
      if (t.queue == nullptr) continue;
      if (get) {
        word(t, 0).store(*get);
        word(t, 1).store(*get);
      }
      if (put) {
        word(t, 2).store(*put);
        word(t, 3).store(*put);
      }
    }
  }

  // --- What is there to see. ---

  /// Open descriptors of the device, each with a queue once a reader has attached it.
  [[nodiscard]] std::size_t open_count() const {
    const std::lock_guard lock(mutex_);
    return trackers_.size();
  }
  [[nodiscard]] std::size_t mapping_count() const {
    const std::lock_guard lock(mutex_);
    return mappings_.size();
  }
  /// Whether memory was ever unmapped while the driver could still write to it.
  [[nodiscard]] bool unmapped_too_early() const { return get(unmapped_too_early_); }
  /// Types enabled in the queue of the reader opened last, as bits.
  [[nodiscard]] std::uint64_t enabled_types() const {
    const std::lock_guard lock(mutex_);
    return trackers_.empty() ? 0 : trackers_.rbegin()->second.types;
  }
  /// Records that wake the poller of the reader opened last.
  [[nodiscard]] std::uint32_t threshold() const {
    const std::lock_guard lock(mutex_);
    return trackers_.empty() ? 0 : trackers_.rbegin()->second.threshold;
  }
  /// Records that wait in the queue of the reader opened last.
  [[nodiscard]] std::uint32_t queued() const {
    const std::lock_guard lock(mutex_);
    if (trackers_.empty() || trackers_.rbegin()->second.queue == nullptr) return 0;
    const tracker& t = trackers_.rbegin()->second;
    return (word(t, 3).load() - word(t, 1).load()) & (t.slots - 1);
  }
  /// Descriptors that readers asked to attach, in order.
  [[nodiscard]] std::vector<int> attach_attempts() const {
    const std::lock_guard lock(mutex_);
    return attempts_;
  }
  /// Disable requests so far.
  [[nodiscard]] int disable_count() const { return get(disables_); }
  [[nodiscard]] int poll_count() const { return get(polls_); }

 private:
  /// The driver's view of one open /dev/nvidia-uvm-tools.
  struct tracker {
    std::uint8_t* queue = nullptr;  // none before the descriptor is attached
    std::uint8_t* control = nullptr;
    std::uint32_t slots = 0;
    std::uint32_t threshold = 0;
    std::uint64_t types = 0;
    bool wake_up_sent = false;
    std::uint32_t wake_up_get = 0;
    std::uint64_t wake_ups = 0;
  };

  static constexpr std::size_t page = 4096;
  static constexpr std::size_t control_bytes = 528;

  template <class T>
  void set(T& member, T value) {
    const std::lock_guard lock(mutex_);
    member = value;
    woken_.notify_all();
  }
  template <class T>
  [[nodiscard]] T get(const T& member) const {
    const std::lock_guard lock(mutex_);
    return member;
  }

  template <class T>
  static void put(record& r, std::size_t at, T value) {
    std::memcpy(r.data() + at, &value, sizeof value);
  }
  static std::uint8_t driver_access(deepum_uvm_access access) { return static_cast<std::uint8_t>(access + 1); }

  /// Word of the control page: 0 get_ahead, 1 get_behind, 2 put_ahead, 3 put_behind.
  static std::atomic_ref<std::uint32_t> word(const tracker& t, std::size_t i) {
    return std::atomic_ref<std::uint32_t>(reinterpret_cast<std::uint32_t*>(t.control)[i]);
  }

  static bool needs_wake_up(const tracker& t) {
    const std::uint32_t get_ahead = word(t, 0).load();
    const std::uint32_t put_behind = word(t, 3).load() & (t.slots - 1);
    return ((t.slots + put_behind - get_ahead) & (t.slots - 1)) >= t.threshold;
  }

  void enqueue(tracker& t, const record& r) {
    const std::uint32_t mask = t.slots - 1;
    const std::uint32_t get_behind = word(t, 1).load() & mask;
    const std::uint32_t put_behind = word(t, 3).load() & mask;
    if (((t.slots + get_behind - put_behind) & mask) == 1) {
      auto* dropped = reinterpret_cast<std::uint64_t*>(t.control + 16);
      std::atomic_ref<std::uint64_t>(dropped[r[0]]).fetch_add(1);
      return;
    }
    std::memcpy(t.queue + std::size_t{put_behind} * r.size(), r.data(), r.size());
    word(t, 2).store((put_behind + 1) & mask);
    word(t, 3).store((put_behind + 1) & mask);

    // One wake-up for each value of get_ahead.
    const std::uint32_t get_ahead = word(t, 0).load();
    if (needs_wake_up(t) && !(t.wake_up_sent && t.wake_up_get == get_ahead)) {
      t.wake_up_sent = true;
      t.wake_up_get = get_ahead;
      ++t.wake_ups;
      if (!lose_wake_ups_) woken_.notify_all();
    }
  }

  int open(const std::string& path) {
    const std::lock_guard lock(mutex_);
    if (open_error_ != 0) return -open_error_;
    if (path != "/dev/nvidia-uvm-tools" || branch_ == 0) return -ENOENT;
    trackers_[next_descriptor_];
    return next_descriptor_++;
  }

  void close(int number) {
    const std::lock_guard lock(mutex_);
    trackers_.erase(number);
    woken_.notify_all();
  }

  void write(const record& r) {
    for (auto& [number, t] : trackers_) {
      if (t.queue != nullptr && (t.types >> (r[0] & 63u) & 1u) != 0) enqueue(t, r);
    }
  }

  int request(int number, unsigned long request, std::uint8_t* p) {
    const std::lock_guard lock(mutex_);
    if (request == 67) return flush(number, p);
    const auto found = trackers_.find(number);
    if (found == trackers_.end()) return -EBADF;
    tracker& t = found->second;
    if (const int error = request_errors_[request]; error != 0) return -error;
    std::size_t status_at = 0;
    std::uint32_t status = 0;
    switch (request) {
      case 56:
        status_at = branch_ >= 560 && branch_ < 565 ? 52 : 48;
        status = attach(t, p);
        break;
      case 57:
        status_at = 4;
        status = t.queue == nullptr ? invalid_argument : statuses_[57];
        if (status == 0) t.threshold = at<std::uint32_t>(p, 0);
        break;
      case 58:
      case 59: {
        status_at = 8;
        const auto types = at<std::uint64_t>(p, 0);
        status = t.queue == nullptr ? invalid_argument : statuses_[request];
        if (request == 58 && (types & ~std::uint64_t{0x7ffe}) != 0) status = invalid_argument;
        if (status == 0) t.types = request == 58 ? t.types | types : t.types & ~types;
        if (request == 59) ++disables_;
        break;
      }
      default:
        return -EINVAL;
    }
    std::memcpy(p + status_at, &status, sizeof status);
    return 0;
  }

  // A request of /dev/nvidia-uvm, not of the tools' device.
  int flush(int number, std::uint8_t* p) {
    const bool known = std::any_of(descriptors_.begin(), descriptors_.end(),
                                   [number](const descriptor& d) { return d.number == number; });
    if (!known) return -EBADF;
    if (const int error = request_errors_[67]; error != 0) return -error;
    const std::uint32_t status = statuses_[67];
    if (status == 0) {
      for (const record& r : kept_) {
        write(r);
      }
      kept_.clear();
    }
    std::memcpy(p, &status, sizeof status);
    return 0;
  }

  template <class T>
  static T at(const std::uint8_t* p, std::size_t offset) {
    T value;
    std::memcpy(&value, p + offset, sizeof value);
    return value;
  }

  std::uint32_t attach(tracker& t, std::uint8_t* p) {
    const auto number = static_cast<int>(at<std::uint32_t>(p, 44));
    attempts_.push_back(number);
    // Branches that know versions of the record; only the first is spoken here.
    if (branch_ >= 555 && branch_ < 565 && at<std::uint32_t>(p, branch_ < 560 ? 52 : 48) != 1) return invalid_argument;
    const auto found = std::find_if(descriptors_.begin(), descriptors_.end(),
                                    [number](const descriptor& d) { return d.number == number; });
    if (found == descriptors_.end() || !found->target.starts_with("/dev/nvidia-uvm")) return insufficient_permissions;
    if (!found->va_space) return illegal_action;
    if (const std::uint32_t status = statuses_[56]; status != 0) return status;

    const auto slots = at<std::uint64_t>(p, 8);
    if (slots < 2 || slots > UINT32_MAX || (slots & (slots - 1)) != 0) return invalid_argument;
    auto* const queue = mapped(at<std::uint64_t>(p, 0), slots * sizeof(record));
    auto* const control = mapped(at<std::uint64_t>(p, 16), control_bytes);
    if (queue == nullptr || control == nullptr) return invalid_address;
    if (t.queue != nullptr) return invalid_argument;
    t.queue = queue;
    t.control = control;
    t.slots = static_cast<std::uint32_t>(slots);
    t.threshold = t.slots / 2;
    if (branch_ >= 555 && branch_ < 560) std::memset(p + 56, 1, 1);  // the version that was granted
    return 0;
  }

  /// The mapping of that many bytes at that address; the driver can pin no other memory.
  std::uint8_t* mapped(std::uint64_t address, std::size_t bytes) const {
    auto* const memory = reinterpret_cast<std::uint8_t*>(address);
    const auto found = mappings_.find(memory);
    return found != mappings_.end() && bytes <= found->second ? memory : nullptr;
  }

  int poll(int number, int timeout_ms) {
    std::unique_lock lock(mutex_);
    ++polls_;
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(timeout_ms);
    for (;;) {
      if (poll_error_ != 0 && poll_errors_left_ != 0) {
        if (poll_errors_left_ > 0) --poll_errors_left_;
        return -poll_error_;
      }
      const auto found = trackers_.find(number);
      if (found == trackers_.end() || found->second.queue == nullptr) return -EIO;
      found->second.wake_up_sent = false;
      if (!lose_wake_ups_ && needs_wake_up(found->second)) return 1;
      if (woken_.wait_until(lock, deadline) == std::cv_status::timeout) return 0;
    }
  }

  int list(int (*visit)(void*, int, const char*), void* state) const {
    std::vector<descriptor> all;
    {
      const std::lock_guard lock(mutex_);
      if (descriptors_error_ != 0) return -descriptors_error_;
      all = descriptors_;
    }
    for (const descriptor& d : all) {
      if (visit(state, d.number, d.target.c_str()) != 0) break;
    }
    return 0;
  }

  int read_text(const char* path, char* text, std::size_t size) const {
    const std::lock_guard lock(mutex_);
    const auto found = files_.find(path);
    if (found == files_.end()) return -ENOENT;
    const std::size_t length = std::min(found->second.size(), size - 1);
    std::memcpy(text, found->second.data(), length);
    text[length] = 0;
    return 0;
  }

  void* map(std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    if (failing_map_ >= 0 && failing_map_-- == 0) return nullptr;
    // As long as asked for, and no longer, so that AddressSanitizer sees who goes beyond.
    void* memory = nullptr;
    if (posix_memalign(&memory, page, bytes) != 0) return nullptr;
    std::memset(memory, 0, bytes);
    mappings_[static_cast<std::uint8_t*>(memory)] = bytes;
    return memory;
  }

  void unmap(void* memory, std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    const auto found = mappings_.find(static_cast<std::uint8_t*>(memory));
    if (found == mappings_.end() || found->second != bytes) std::abort();
    for (const auto& [number, t] : trackers_) {
      if (t.queue == memory || t.control == memory) unmapped_too_early_ = true;
    }
    mappings_.erase(found);
    std::free(memory);
  }

  static fake_uvm_tools& self(void* context) { return *static_cast<fake_uvm_tools*>(context); }

  const deepum_uvm_system system_{
      this,
      [](void* c, const char* path) { return self(c).open(path); },
      [](void* c, int number) { self(c).close(number); },
      [](void* c, int number, unsigned long what, void* p) {
        return self(c).request(number, what, static_cast<std::uint8_t*>(p));
      },
      [](void* c, int number, int timeout_ms) { return self(c).poll(number, timeout_ms); },
      [](void* c, int (*visit)(void*, int, const char*), void* state) { return self(c).list(visit, state); },
      [](void* c, const char* path, char* text, std::size_t size) { return self(c).read_text(path, text, size); },
      [](void* c, std::size_t bytes) { return self(c).map(bytes); },
      [](void* c, void* memory, std::size_t bytes) { self(c).unmap(memory, bytes); },
  };

  mutable std::mutex mutex_;
  std::condition_variable woken_;
  std::map<int, tracker> trackers_;
  std::map<std::uint8_t*, std::size_t> mappings_;
  std::map<std::string, std::string> files_;
  std::map<unsigned long, int> request_errors_;
  std::map<unsigned long, std::uint32_t> statuses_;
  // CUDA holds /dev/nvidia-uvm twice, and only one of the two has the VA space.
  std::vector<descriptor> descriptors_{{0, "/dev/null"}, {7, "/dev/nvidia-uvm"}, {9, "/dev/nvidia-uvm", true}};
  std::vector<int> attempts_;
  int branch_ = 0;
  int next_descriptor_ = 100;
  int open_error_ = 0;
  bool keeps_ = false;
  std::vector<record> kept_{};  // until a flush
  int failing_map_ = -1;
  int poll_error_ = 0;
  int poll_errors_left_ = -1;
  int descriptors_error_ = 0;
  int disables_ = 0;
  int polls_ = 0;
  bool lose_wake_ups_ = false;
  bool unmapped_too_early_ = false;
};

}  // namespace deepum_test
