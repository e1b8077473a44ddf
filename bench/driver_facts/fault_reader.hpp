#pragma once

#include "probe.hpp"
#include <deepum/cuda/faults/uvm_events.hpp>

#include <deepum_uvm_events.h>

#include <cstdint>
#include <vector>

namespace deepum::driver_facts {

/// The driver's events of a region, as kernel-helper/ reads them.
class fault_reader {
 public:
  /// @param kinds  Bits of deepum_uvm_kind.
  /// @errors  `status::unsupported`, with what the driver or the system says.
  explicit fault_reader(const region& r, unsigned kinds = 1U << DEEPUM_UVM_FAULT) {
    deepum_uvm_options options{};
    options.kinds = kinds;
    options.first = reinterpret_cast<std::uintptr_t>(r.first);
    options.size = r.size().count;
    options.ring_records = 1U << 20U;
    events_ = cuda::open_uvm_events(options);
  }

  [[nodiscard]] std::vector<deepum_uvm_record> take_all() {
    std::vector<deepum_uvm_record> all;
    cuda::take_uvm_records(events_.get(), [&](const deepum_uvm_record& r) { all.push_back(r); });
    return all;
  }
  /// GPU faults since the last call, repeats counted.
  [[nodiscard]] std::uint64_t take_faults() {
    std::uint64_t n = 0;
    for (const deepum_uvm_record& r : take_all()) {
      n += r.kind == DEEPUM_UVM_FAULT ? r.repeats : 0;
    }
    return n;
  }
  [[nodiscard]] deepum_uvm_counts counts() const { return cuda::counts_of(events_.get()); }

 private:
  cuda::uvm_events events_;
};

}  // namespace deepum::driver_facts
