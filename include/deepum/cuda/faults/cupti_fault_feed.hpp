#pragma once

#include <deepum/cuda/device.hpp>
#include <deepum/cuda/faults/fault_feed.hpp>
#include <deepum/error.hpp>
#include <deepum/units.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#if __has_include(<cupti.h>) && __has_include(<dlfcn.h>)
#define DEEPUM_HAVE_CUPTI 1
#include <dlfcn.h>

#include <cupti.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <mutex>
#endif

namespace deepum {
inline namespace v0 {
namespace cuda {

#ifdef DEEPUM_HAVE_CUPTI

/// Faults as CUPTI's unified-memory counters tell them: for where the driver's own events are out of reach. It doubles
/// the time of a fault, tells of it milliseconds later, and serves one user in a process.
///
/// The library is loaded at run time; nothing is linked for it.
class cupti_fault_feed final : public fault_feed {
 public:
  /// @errors  `status::unsupported` without CUPTI, or where another part of the process uses it.
  cupti_fault_feed(int ordinal, const std::byte* first_byte, bytes extent)
      : ordinal_(static_cast<std::uint32_t>(ordinal)),
        first_(reinterpret_cast<std::uintptr_t>(first_byte)),
        size_(extent.count) {
    cupti_fault_feed* none = nullptr;
    if (!instance().compare_exchange_strong(none, this)) {
      throw error(status::unsupported, "another arena of this process uses CUPTI already");
    }
    try {
      open();
    } catch (...) {
      instance().store(nullptr);
      throw;
    }
  }
  ~cupti_fault_feed() override {
    (void)disable_(CUPTI_ACTIVITY_KIND_UNIFIED_MEMORY_COUNTER);
    (void)flush_(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
    instance().store(nullptr);
  }

  [[nodiscard]] std::string name() const override { return "cupti"; }
  void take(std::vector<fault_sample>& out) override {
    // Asking makes it write what it holds back, and costs.
    const auto now = std::chrono::steady_clock::now();
    if (now - asked_ >= std::chrono::milliseconds(2)) {
      asked_ = now;
      (void)flush_(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
    }
    const std::lock_guard lock(mutex_);
    out.insert(out.end(), found_.begin(), found_.end());
    found_.clear();
  }
  void take_all(std::vector<fault_sample>& out) override {
    asked_ = {};
    take(out);
  }
  [[nodiscard]] bool late() const override { return true; }
  [[nodiscard]] bool alive() const override { return true; }
  [[nodiscard]] std::uint64_t lost() const override { return lost_.load(std::memory_order_relaxed); }

 private:
#if CUPTI_API_VERSION >= 130000
  using record = CUpti_ActivityUnifiedMemoryCounter3;
#else
  using record = CUpti_ActivityUnifiedMemoryCounter2;
#endif
  static constexpr std::size_t buffer_size = std::size_t{1} << 20;

  // CUPTI's callbacks carry no state of ours.
  static std::atomic<cupti_fault_feed*>& instance() {
    static std::atomic<cupti_fault_feed*> one{nullptr};
    return one;
  }

  void open() {
    static void* const library = load();
    if (library == nullptr) {
      throw error(status::unsupported,
                  "libcupti is not found; put the folder of CUDA's libcupti.so into LD_LIBRARY_PATH");
    }
    find(library, "cuptiActivityRegisterCallbacks", register_);
    find(library, "cuptiActivityConfigureUnifiedMemoryCounter", configure_);
    find(library, "cuptiActivityEnable", enable_);
    find(library, "cuptiActivityDisable", disable_);
    find(library, "cuptiActivityFlushAll", flush_);
    find(library, "cuptiActivityGetNextRecord", next_);
    find(library, "cuptiActivityGetNumDroppedRecords", dropped_);
    expect(register_(&give_buffer, &take_buffer), "cuptiActivityRegisterCallbacks");
    CUpti_ActivityUnifiedMemoryCounterConfig config{};
    config.scope = CUPTI_ACTIVITY_UNIFIED_MEMORY_COUNTER_SCOPE_PROCESS_SINGLE_DEVICE;
    config.kind = CUPTI_ACTIVITY_UNIFIED_MEMORY_COUNTER_KIND_GPU_PAGE_FAULT;
    config.deviceId = ordinal_;
    config.enable = 1;
    expect(configure_(&config, 1), "cuptiActivityConfigureUnifiedMemoryCounter");
    expect(enable_(CUPTI_ACTIVITY_KIND_UNIFIED_MEMORY_COUNTER), "cuptiActivityEnable");
  }
  static void* load() {
    const std::string major = std::to_string(CUDART_VERSION / 1000);
    for (const std::string& name :
         {"libcupti.so." + major, std::string("libcupti.so"), "/usr/local/cuda/lib64/libcupti.so." + major,
          "/usr/local/cuda/extras/CUPTI/lib64/libcupti.so." + major}) {
      if (void* library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL); library != nullptr) {
        return library;
      }
    }
    return nullptr;
  }
  template <class Function>
  static void find(void* library, const char* name, Function& out) {
    out = reinterpret_cast<Function>(dlsym(library, name));
    if (out == nullptr) {
      throw error(status::unsupported, std::string("libcupti has no ") + name);
    }
  }
  static void expect(CUptiResult result, const char* api) {
    if (result != CUPTI_SUCCESS) {
      throw error(status::unsupported, std::string(api) + " failed with " + std::to_string(static_cast<int>(result)),
                  api, static_cast<int>(result));
    }
  }

  static void CUPTIAPI give_buffer(std::uint8_t** buffer, std::size_t* size, std::size_t* most_records) {
    *buffer = static_cast<std::uint8_t*>(std::aligned_alloc(8, buffer_size));
    *size = *buffer == nullptr ? 0 : buffer_size;
    *most_records = 0;
  }
  static void CUPTIAPI take_buffer(CUcontext context, std::uint32_t queue, std::uint8_t* buffer, std::size_t,
                                   std::size_t valid) {
    if (cupti_fault_feed* self = instance().load(); self != nullptr) {
      self->read(context, queue, buffer, valid);
    }
    std::free(buffer);  // NOLINT(cppcoreguidelines-no-malloc): allocated by `give_buffer`
  }
  void read(CUcontext context, std::uint32_t queue, std::uint8_t* buffer, std::size_t valid) {
    const std::lock_guard lock(mutex_);
    for (CUpti_Activity* next = nullptr; next_(buffer, valid, &next) == CUPTI_SUCCESS;) {
      if (next->kind != CUPTI_ACTIVITY_KIND_UNIFIED_MEMORY_COUNTER) {
        continue;
      }
      const auto* r = reinterpret_cast<const record*>(next);
      if (r->counterKind == CUPTI_ACTIVITY_UNIFIED_MEMORY_COUNTER_KIND_GPU_PAGE_FAULT &&
          r->flags != CUPTI_ACTIVITY_UNIFIED_MEMORY_ACCESS_TYPE_PREFETCH && r->address - first_ < size_) {
        found_.push_back({static_cast<std::uintptr_t>(r->address),
                          r->flags == CUPTI_ACTIVITY_UNIFIED_MEMORY_ACCESS_TYPE_READ ? access::read : access::update,
                          nanoseconds{static_cast<std::int64_t>(r->start)}});
      }
    }
    std::size_t dropped = 0;
    if (dropped_(context, queue, &dropped) == CUPTI_SUCCESS) {
      lost_.fetch_add(dropped, std::memory_order_relaxed);
    }
  }

  std::uint32_t ordinal_;
  std::uintptr_t first_;
  std::uint64_t size_;
  decltype(&cuptiActivityRegisterCallbacks) register_ = nullptr;
  decltype(&cuptiActivityConfigureUnifiedMemoryCounter) configure_ = nullptr;
  decltype(&cuptiActivityEnable) enable_ = nullptr;
  decltype(&cuptiActivityDisable) disable_ = nullptr;
  decltype(&cuptiActivityFlushAll) flush_ = nullptr;
  decltype(&cuptiActivityGetNextRecord) next_ = nullptr;
  decltype(&cuptiActivityGetNumDroppedRecords) dropped_ = nullptr;
  std::chrono::steady_clock::time_point asked_{};
  std::mutex mutex_;
  std::vector<fault_sample> found_{};
  std::atomic<std::uint64_t> lost_{0};
};

/// @errors  `status::unsupported`.
[[nodiscard]] inline std::unique_ptr<fault_feed> make_cupti_fault_feed(int ordinal, const std::byte* base, bytes size) {
  return std::make_unique<cupti_fault_feed>(ordinal, base, size);
}

#else

/// @errors  `status::unsupported`, always: the program was built without CUPTI's headers.
[[nodiscard]] inline std::unique_ptr<fault_feed> make_cupti_fault_feed(int, const std::byte*, bytes) {
  throw error(status::unsupported, "built without cupti.h, which comes with the CUDA toolkit");
}

#endif

}  // namespace cuda
}  // namespace v0
}  // namespace deepum
