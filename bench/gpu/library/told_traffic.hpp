#pragma once

#include <deepum/core/block.hpp>
#include <deepum/cuda/faults/uvm_events.hpp>
#include <deepum/error.hpp>
#include <deepum/units.hpp>

#include <deepum_uvm_events.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace deepum::gpu_bench {

/// What the driver itself tells of a managed range: which bytes it copied, and from them which blocks are on the
/// device. It knows nothing of what the memory systems believe.
class told_traffic {
 public:
  /// @param base, size  The range. CUDA is initialised.
  told_traffic(const std::byte* base, bytes size, const deepum_uvm_system* system = nullptr)
      : base_(reinterpret_cast<std::uintptr_t>(base)),
        state_(static_cast<std::size_t>((size + block_size - bytes{1}) / block_size)) {
    deepum_uvm_options options{};
    options.kinds = 1U << DEEPUM_UVM_FAULT | 1U << DEEPUM_UVM_MIGRATION | 1U << DEEPUM_UVM_EVICTION;
    options.first = base_;
    options.size = size.count;
    options.queue_records = 1U << 18;
    options.ring_records = 1U << 18;
    options.poll_ms = 2;
    options.system = system;
    try {
      events_ = cuda::open_uvm_events(options);
    } catch (const error& e) {
      why_not_ = e.what();
    }
  }

  [[nodiscard]] bool works() const { return events_ != nullptr; }
  [[nodiscard]] const std::string& why_not() const { return why_not_; }

  struct totals {
    std::uint64_t in = 0;          ///< bytes copied to a GPU
    std::uint64_t out = 0;         ///< bytes copied to the host
    std::uint64_t faulted_in = 0;  ///< those of `in` that no command asked for
    std::uint64_t faults = 0;
    std::uint64_t lost = 0;         ///< records
    std::uint64_t peak_blocks = 0;  ///< of those that moved, on the device at a time: see `steady_blocks`
  };

  /// Reads what has happened since the last call. Of copies that are over, if the driver can be asked for them.
  void take() {
    if (!events_) {
      return;
    }
    flushes_ = deepum_uvm_events_flush(events_.get()) == 0;
    cuda::take_uvm_records(events_.get(), [&](const deepum_uvm_record& r) { add(r); });
    const deepum_uvm_counts c = cuda::counts_of(events_.get());
    totals_.lost = c.dropped_by_driver + c.dropped_by_ring + c.dropped_by_resync;
  }
  [[nodiscard]] const totals& seen() const { return totals_; }
  /// Without it, records of copies come some time after them, and where little moves none at all.
  [[nodiscard]] bool flushes() const { return flushes_; }
  /// Blocks that were never seen to move. Those of them that the program used were on the device all the time: nothing
  /// else lets it use them.
  [[nodiscard]] bool moved(block_id b) const { return state_[b.value] != state::unknown; }

 private:
  enum class state : std::uint8_t { unknown, host, device };

  void add(const deepum_uvm_record& r) {
    if (r.kind == DEEPUM_UVM_FAULT) {
      totals_.faults += r.repeats;
      return;
    }
    if ((r.kind != DEEPUM_UVM_MIGRATION && r.kind != DEEPUM_UVM_EVICTION) || r.bytes == 0 || r.address < base_) {
      return;
    }
    const bool inward = r.to != 0;
    (inward ? totals_.in : totals_.out) += r.bytes;
    if (inward && (r.cause == DEEPUM_UVM_CAUSE_COHERENCE || r.cause == DEEPUM_UVM_CAUSE_PREFETCH)) {
      totals_.faulted_in += r.bytes;
    }
    const std::uint64_t last = (r.address - base_ + r.bytes - 1) / block_size.count;
    for (std::uint64_t b = (r.address - base_) / block_size.count; b <= last && b < state_.size(); ++b) {
      on_device_ += inward && state_[b] != state::device ? 1 : 0;
      on_device_ -= !inward && state_[b] == state::device ? 1 : 0;
      state_[b] = inward ? state::device : state::host;
    }
    totals_.peak_blocks = on_device_ > totals_.peak_blocks ? on_device_ : totals_.peak_blocks;
  }

  std::uintptr_t base_;
  cuda::uvm_events events_{};
  std::string why_not_{};
  std::vector<state> state_;
  std::uint64_t on_device_ = 0;
  bool flushes_ = false;
  totals totals_{};
};

}  // namespace deepum::gpu_bench
