#pragma once

#include <deepum/cuda/faults/fault_feed.hpp>
#include <deepum/cuda/faults/uvm_events.hpp>
#include <deepum/error.hpp>
#include <deepum/units.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

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
    events_ = open_uvm_events(options);
  }

  [[nodiscard]] std::string name() const override { return "driver"; }
  void take(std::vector<fault_sample>& out) override {
    take_uvm_records(events_.get(), [&](const deepum_uvm_record& r) {
      // A prefetch instruction says nothing of what the kernel uses.
      if (r.kind == DEEPUM_UVM_FAULT && r.access != DEEPUM_UVM_PREFETCH_ACCESS) {
        out.push_back({static_cast<std::uintptr_t>(r.address),
                       r.access == DEEPUM_UVM_READ ? access::read : access::update,
                       nanoseconds{static_cast<std::int64_t>(r.gpu_time)}});
      }
    });
  }
  /// Without its thread the feed goes on: `take` reads the driver's queue itself.
  [[nodiscard]] bool alive() const override { return true; }
  [[nodiscard]] std::uint64_t lost() const override {
    const deepum_uvm_counts c = counts();
    return c.dropped_faults + c.dropped_by_ring + c.dropped_by_resync;
  }
  [[nodiscard]] deepum_uvm_counts counts() const { return counts_of(events_.get()); }

 private:
  uvm_events events_;
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
