#pragma once

#include "absl/strings/str_cat.h"
#include "fault_reader.hpp"
#include "probe.hpp"
#include <deepum/cuda/check.hpp>
#include <deepum/units.hpp>

#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <limits>
#include <optional>
#include <string>
#include <vector>

namespace deepum::driver_facts {

/// How many records demand paging makes, and what it costs to have them: with and without the reader in turn.
inline void fault_records(probe& p) {
  constexpr int turns = 6;
  struct kind {
    std::string name;
    unsigned bits;
  };
  const unsigned faults = 1U << DEEPUM_UVM_FAULT;
  const std::array<kind, 3> kinds{
      {{"no reader", 0},
       {"fault records", faults},
       {"fault and migration records", faults | (1U << DEEPUM_UVM_MIGRATION) | (1U << DEEPUM_UVM_EVICTION)}}};
  region& r = p.a();
  (void)fault_reader(r);  // or there is nothing to measure
  const auto page_in = [&](const kind& k) {
    p.settle_out(r);
    std::optional<fault_reader> reader;
    if (k.bits != 0) {
      reader.emplace(r, k.bits);
    }
    const double seconds = p.timed([&] { p.read(r); });
    p.out().add(absl::StrCat("demand paging with ", k.name), "ms/GiB", ms_per_gib(whole, seconds));
    if (reader) {
      std::uint64_t told = 0;
      std::uint64_t taken = 0;
      for (const deepum_uvm_record& record : reader->take_all()) {
        told += record.kind == DEEPUM_UVM_FAULT ? record.repeats : 0;
        taken += record.kind == DEEPUM_UVM_FAULT ? 1 : 0;
      }
      const deepum_uvm_counts c = reader->counts();
      p.out().add(absl::StrCat(k.name, ": faults told"), "1/GiB", static_cast<double>(told));
      p.out().add(absl::StrCat(k.name, ": of faults, after collapsing"), "1/GiB", static_cast<double>(taken));
      p.out().add(absl::StrCat(k.name, ": all records read"), "1/GiB", static_cast<double>(c.read));
      p.out().add(absl::StrCat(k.name, ": lost"), "1/GiB",
                  static_cast<double>(c.dropped_by_driver + c.dropped_by_ring + c.dropped_by_resync));
    }
    reader.reset();
    p.verify(r, absl::StrCat("demand paging with ", k.name));
    return seconds;
  };
  for (int i = 0; i < turns; ++i) {
    const double without = page_in(kinds[0]);
    const double with_faults = page_in(kinds[1]);
    const double with_all = page_in(kinds[2]);
    p.out().add("cost of fault records, beside the turn without", "%", 100 * (with_faults / without - 1));
    p.out().add("cost of fault and migration records, beside the turn without", "%", 100 * (with_all / without - 1));
  }
}

/// How long after an event the next memset's fault is recorded, in the GPU's time.
///
/// An event's place on the GPU's timer is not told. It is enclosed: a kernel reads the timer between two events, and of
/// many such kernels the closest ones count.
inline void event_to_fault(probe& p) {
  constexpr int trials = 20;
  constexpr unsigned long long long_enough = 100'000;  // ns, to queue all that follows
  region& r = p.a();
  fault_reader reader(r);
  p.settle_out(r);
  (void)reader.take_all();
  for (const bool queued : {false, true}) {
    const std::string name = queued ? "queued behind a kernel" : "on an idle stream";
    const event base(cudaEventDefault);
    base.record(p.work());
    p.settle();
    std::int64_t least_offset = std::numeric_limits<std::int64_t>::min();
    std::int64_t greatest_offset = std::numeric_limits<std::int64_t>::max();
    std::vector<std::int64_t> differences;  // of the fault on the timer and the event behind `base`
    for (int i = 0; i < trials; ++i) {
      // Each one has a block of its own, which is on the host.
      std::byte* page = r.address() + um_block.count * static_cast<std::size_t>((queued ? trials : 0) + i);
      const event first(cudaEventDefault);
      const event second(cudaEventDefault);
      const event last(cudaEventDefault);
      (void)reader.take_all();
      p.settle();
      if (queued) {
        probe::launch(p.work(), 1, 1, probe::kernels().wait, long_enough, p.pinned() + 1);
      }
      first.record(p.work());
      probe::launch(p.work(), 1, 1, probe::kernels().wait, 0, p.pinned());
      second.record(p.work());
      if (!queued) {
        p.work().wait();
      }
      last.record(p.work());
      cuda::check(cudaMemsetAsync(page, 7, 64, p.work().get()), "cudaMemsetAsync");
      p.work().wait();
      const auto timer = static_cast<std::int64_t>(*static_cast<volatile unsigned long long*>(p.pinned()));
      least_offset = std::max(least_offset, timer - second.since(base));
      greatest_offset = std::min(greatest_offset, timer - first.since(base));
      std::optional<std::int64_t> fault;
      for (const deepum_uvm_record& record : reader.take_all()) {
        const auto at = static_cast<std::int64_t>(record.gpu_time);
        if (record.kind == DEEPUM_UVM_FAULT && (!fault || at < *fault)) {
          fault = at;
        }
      }
      if (fault) {
        differences.push_back(*fault - last.since(base));
      }
      for (int byte = 0; byte < 64; ++byte) {
        if (page[byte] != std::byte{7}) {
          p.out().fail("a memset by a fault is not what the host reads");
          break;
        }
      }
    }
    p.out().add(absl::StrCat(name, ": faults told of"), absl::StrCat("of ", trials),
                static_cast<double>(differences.size()));
    for (const std::int64_t d : differences) {
      p.out().add(absl::StrCat(name, ": at least"), "us", static_cast<double>(d - greatest_offset) / 1e3);
    }
    p.out().add(absl::StrCat(name, ": and at most so much more"), "us",
                static_cast<double>(greatest_offset - least_offset) / 1e3);
  }
  p.settle_in(r);
  p.write(r);
  p.verify(r, "single faults");
}

}  // namespace deepum::driver_facts
