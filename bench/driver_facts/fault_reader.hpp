#pragma once

#include "probe.hpp"
#include <deepum/error.hpp>

#include <deepum_uvm_events.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
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
    deepum_uvm_events* made = nullptr;
    std::array<char, 256> message{};
    if (const int code = deepum_uvm_events_open(&made, &options, message.data(), message.size()); code != 0) {
      throw error(status::unsupported, message.data(), "deepum_uvm_events_open", code);
    }
    events_.reset(made);
  }

  [[nodiscard]] std::vector<deepum_uvm_record> take_all() {
    std::vector<deepum_uvm_record> all;
    std::array<deepum_uvm_record, 512> some{};
    for (std::size_t n = some.size(); n == some.size();) {
      n = deepum_uvm_events_take(events_.get(), some.data(), some.size());
      all.insert(all.end(), some.begin(), some.begin() + static_cast<std::ptrdiff_t>(n));
    }
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
};

}  // namespace deepum::driver_facts
