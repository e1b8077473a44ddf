#pragma once

#include <deepum/error.hpp>

#ifdef DEEPUM_KERNEL_HELPER

#include <deepum_uvm_events.h>

#include <array>
#include <cstddef>
#include <memory>

namespace deepum {
inline namespace v0 {
namespace cuda {

struct close_uvm_events {
  void operator()(deepum_uvm_events* events) const { deepum_uvm_events_close(events); }
};
/// The driver's events of a range, as kernel-helper/ reads them. Its functions say which threads may call them.
using uvm_events = std::unique_ptr<deepum_uvm_events, close_uvm_events>;

/// Begins to read the driver's events.
/// @errors  `status::unsupported`, with what the driver or the system says.
[[nodiscard]] inline uvm_events open_uvm_events(const deepum_uvm_options& options) {
  deepum_uvm_events* made = nullptr;
  std::array<char, 512> message{};
  if (const int code = deepum_uvm_events_open(&made, &options, message.data(), message.size()); code != 0) {
    throw error(status::unsupported, message.data(), "deepum_uvm_events_open", code);
  }
  return uvm_events(made);
}

/// Takes all records that are there, in the driver's order, and calls `see(const deepum_uvm_record&)` with each.
template <class See>
void take_uvm_records(deepum_uvm_events* events, See&& see) {
  std::array<deepum_uvm_record, 256> some;  // NOLINT(*-member-init): the reader fills it as far as it is read
  for (std::size_t n = some.size(); n == some.size();) {
    n = deepum_uvm_events_take(events, some.data(), some.size());
    for (std::size_t i = 0; i < n; ++i) {
      see(some[i]);
    }
  }
}

/// What has been read and lost since it was opened.
[[nodiscard]] inline deepum_uvm_counts counts_of(deepum_uvm_events* events) {
  deepum_uvm_counts counts{};
  deepum_uvm_events_counts(events, &counts);
  return counts;
}

}  // namespace cuda
}  // namespace v0
}  // namespace deepum

#endif
