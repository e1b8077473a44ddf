#pragma once

#include <deepum/units.hpp>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

namespace deepum::gpu_bench {

/// One batch size that was tried.
struct batch_tried {
  std::int64_t batch = 0;
  std::string why_not{};  ///< empty: it worked
};
struct largest_batch {
  std::int64_t batch = 0;  ///< 0: not even one
  std::vector<batch_tried> tried{};
};

/// The largest batch that works, if every smaller one does too: twice as much as long as it works, then halves.
/// @param most   No more is tried.
/// @param works  Of a batch size: why it does not; empty where it does.
template <class Works>
[[nodiscard]] largest_batch find_largest_batch(std::int64_t most, Works&& works) {
  largest_batch out;
  const auto attempt = [&](std::int64_t batch) {
    out.tried.push_back({batch, works(batch)});
    return out.tried.back().why_not.empty();
  };
  std::int64_t fails = most + 1;
  for (std::int64_t batch = 1; batch <= most;) {
    if (!attempt(batch)) {
      fails = batch;
      break;
    }
    out.batch = batch;
    if (batch == most) {
      break;
    }
    batch = std::min(2 * batch, most);
  }
  while (out.batch + 1 < fails) {
    const std::int64_t middle = out.batch + (fails - out.batch) / 2;
    (attempt(middle) ? out.batch : fails) = middle;
  }
  return out;
}

/// Where a system keeps contents.
enum class keeps : std::uint8_t {
  on_device,   ///< all of them
  either_way,  ///< on the device or on the host: the library
  on_host,     ///< all of them on the host, those in use on the device too: copies by hand
};

/// Host memory that contents need at least.
[[nodiscard]] inline bytes host_memory_for(keeps where, bytes footprint, bytes budget) {
  switch (where) {
    case keeps::on_device:
      return {};
    case keeps::either_way:
      return footprint > budget ? footprint - budget : bytes{};
    case keeps::on_host:
      return footprint;
  }
  return {};
}

}  // namespace deepum::gpu_bench
