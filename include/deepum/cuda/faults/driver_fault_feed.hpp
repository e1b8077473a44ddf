#pragma once

#include <deepum/cuda/faults/fault_feed.hpp>
#include <deepum/error.hpp>
#include <deepum/units.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#ifdef DEEPUM_KERNEL_HELPER
#include <deepum_uvm_events.h>

#include <array>
#endif

namespace deepum {
inline namespace v0 {
namespace cuda {

#ifdef DEEPUM_KERNEL_HELPER

/// Faults as the driver's event queue tells them (kernel-helper/README.md). Every fault that the driver has begun to
/// serve is told by the next `take`.
class driver_fault_feed final : public fault_feed {
 public:
  /// @param base, size  Faults of other addresses are left out.
  /// @param system      For tests: what stands for the device; nullptr: the device.
  /// @errors  `status::unsupported`, with what the driver or the system says.
  driver_fault_feed(const std::byte* base, bytes size, const deepum_uvm_system* system = nullptr) {
    deepum_uvm_options options{};
    options.kinds = 1U << DEEPUM_UVM_FAULT;
    options.first = reinterpret_cast<std::uintptr_t>(base);
    options.size = size.count;
    options.system = system;
    deepum_uvm_events* made = nullptr;
    std::array<char, 256> message{};
    if (const int code = deepum_uvm_events_open(&made, &options, message.data(), message.size()); code != 0) {
      throw error(status::unsupported, message.data(), "deepum_uvm_events_open", code);
    }
    events_.reset(made);
  }

  [[nodiscard]] std::string name() const override { return "driver"; }
  void take(std::vector<fault_sample>& out) override {
    for (std::size_t taken = records_.size(); taken == records_.size();) {
      taken = deepum_uvm_events_take(events_.get(), records_.data(), records_.size());
      for (std::size_t i = 0; i < taken; ++i) {
        const deepum_uvm_record& r = records_[i];
        // A prefetch instruction says nothing of what the kernel uses.
        if (r.kind == DEEPUM_UVM_FAULT && r.access != DEEPUM_UVM_PREFETCH_ACCESS) {
          out.push_back({static_cast<std::uintptr_t>(r.address),
                         r.access == DEEPUM_UVM_READ ? access::read : access::update,
                         nanoseconds{static_cast<std::int64_t>(r.gpu_time)}});
        }
      }
    }
  }
  /// Without its thread the feed goes on: `take` reads the driver's queue itself.
  [[nodiscard]] bool alive() const override { return true; }
  [[nodiscard]] std::uint64_t lost() const override {
    const deepum_uvm_counts c = counts();
    return c.dropped_faults + c.dropped_by_ring + c.dropped_by_resync;
  }
  [[nodiscard]] deepum_uvm_counts counts() const {
    deepum_uvm_counts c{};
    deepum_uvm_events_counts(events_.get(), &c);
    return c;
  }

 private:
  struct close {
    void operator()(deepum_uvm_events* e) const { deepum_uvm_events_close(e); }
  };
  std::unique_ptr<deepum_uvm_events, close> events_;
  std::vector<deepum_uvm_record> records_{512};
};

/// @errors  `status::unsupported`.
[[nodiscard]] inline std::unique_ptr<fault_feed> make_driver_fault_feed(const std::byte* base, bytes size) {
  return std::make_unique<driver_fault_feed>(base, size);
}

#else

/// @errors  `status::unsupported`, always: the program was built without the reader.
[[nodiscard]] inline std::unique_ptr<fault_feed> make_driver_fault_feed(const std::byte*, bytes) {
  throw error(status::unsupported,
              "built without kernel-helper; link the CMake target deepum::cuda, or compile "
              "kernel-helper/deepum_uvm_events.c with the program and define DEEPUM_KERNEL_HELPER");
}

#endif

}  // namespace cuda
}  // namespace v0
}  // namespace deepum
