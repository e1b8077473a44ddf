#pragma once

#include "absl/strings/str_cat.h"
#include "fault_reader.hpp"
#include "probe.hpp"
#include <deepum/cuda/api.hpp>
#include <deepum/cuda/check.hpp>
#include <deepum/error.hpp>
#include <deepum/units.hpp>

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace deepum::driver_facts {

/// Of what is catastrophic, so much and no more: a write of 1 GiB of duplicated pages takes 15 seconds.
inline constexpr bytes few = 16_MiB;

/// A read that may fault: its time, and the faults that the driver tells of, where it does.
inline void add_read(probe& p, const region& r, const std::string& name, std::optional<fault_reader>& faults) {
  if (faults) {
    (void)faults->take_all();
  }
  p.out().add(absl::StrCat("read ", name), "GB/s", gigabytes_per_second(r.size(), p.timed([&] { p.read(r); })));
  if (faults) {
    p.out().add(absl::StrCat("read ", name, ": faults"), "1/GiB", static_cast<double>(faults->take_faults()));
  }
}

[[nodiscard]] inline std::optional<fault_reader> try_read_faults(probe& p, const region& r) {
  try {
    return std::optional<fault_reader>(std::in_place, r);
  } catch (const error& e) {
    p.out().leave_out(absl::StrCat("faults are not counted: ", e.what()));
  }
  return std::nullopt;
}

/// Duplicates: how they come, and how they go without a copy.
inline void read_mostly(probe& p) {
  region& r = p.a();
  std::optional<fault_reader> faults = try_read_faults(p, r);
  const auto set = [&] { p.advise(r, cudaMemAdviseSetReadMostly); };
  const auto unset = [&] { p.advise(r, cudaMemAdviseUnsetReadMostly); };
  const auto ms = [&](auto&& what) { return ms_per_gib(whole, p.timed(what)); };
  for (int i = 0; i < p.repeats(); ++i) {
    p.settle_in(r);
    p.write(r);
    p.settle_out(r);
    p.verify_on_host(r, "a prefetch out");  // and so the host has mapped its pages
    p.out().add("set, pages that the host has mapped", "ms/GiB", ms(set));
    p.out().add("prefetch in, which duplicates", "ms/GiB", ms([&] { p.in(r); }));
    add_read(p, r, "of duplicates", faults);
    p.out().add("unset: the device's copy goes", "ms/GiB", ms(unset));
    p.out().add("set again", "ms/GiB", ms(set));
    p.out().add("prefetch in again", "ms/GiB", ms([&] { p.in(r); }));
    p.verify(r, "duplication", true);
    p.out().add("unset again", "ms/GiB", ms(unset));
    add_read(p, r, "after the device's copy has gone", faults);
    p.verify(r, "the end of duplication");
  }

  for (int i = 0; i < p.repeats(); ++i) {
    region part = r.part(256_MiB, few);
    p.write(part);
    p.settle_out(part);
    p.advise(part, cudaMemAdviseSetReadMostly);
    p.settle_in(part);
    p.out().add("write of duplicates, measured on 16 MiB", "ms/GiB", ms_per_gib(few, p.timed([&] { p.write(part); })));
    p.verify(part, "a write of duplicates", true);
    p.advise(part, cudaMemAdviseUnsetReadMostly);
    p.verify(part, "a write of duplicates and the end of duplication");
    p.settle_out(part);
    p.verify_on_host(part, "a write of duplicates and a prefetch out");
  }
  p.settle_in(r);
  p.write(r);
}

/// Contents given up, and what brings their pages back.
inline void discards(probe& p) {
  if (!cuda::api::has_discard) {
    p.out().leave_out("discard came with CUDA 13.0");
    return;
  }
  region& r = p.a();
  std::vector<void*> blocks;
  std::vector<std::size_t> sizes;
  for (bytes at{}; at < whole; at += um_block) {
    blocks.push_back(r.address() + at.count);
    sizes.push_back(um_block.count);
  }
  const auto discard = [&](const region& what) {
    std::vector<void*> first{what.address()};
    std::vector<std::size_t> size{what.size().count};
    cuda::check(cuda::api::discard(first, size, p.moves().get()), "cudaMemDiscardBatchAsync");
  };
  const auto ms = [&](auto&& what) { return ms_per_gib(whole, p.timed(what)); };
  // What is written after all this has to stay.
  const auto written = [&](const char* after) {
    p.out().add(absl::StrCat("write after ", after), "ms/GiB", ms([&] { p.write(r); }));
    p.verify(r, absl::StrCat("a write after ", after));
    p.settle_out(r);
    p.verify(r, absl::StrCat("a write after ", after, " and a prefetch out"));
  };
  gpu_bench::idle_streams turns;
  for (int i = 0; i < p.repeats(); ++i) {
    p.settle_in(r);
    p.out().add("discard as 512 ranges", "ms/GiB", ms([&] {
                  cuda::check(cuda::api::discard(blocks, sizes, p.moves().get()), "cudaMemDiscardBatchAsync");
                }));
    p.out().add("prefetch in of what was discarded", "ms/GiB", ms([&] { p.in(r); }));
    written("discard and prefetch");
    p.settle_in(r);
    discard(r);
    p.out().add("prefetch in of what was discarded, pieces of 2 MiB", "ms/GiB",
                ms([&] { p.in(r, um_block, p.moves().get()); }));
    discard(r);
    p.out().add("prefetch in of what was discarded, pieces of 2 MiB, to a stream that is idle", "ms/GiB",
                ms([&] { p.in(r, um_block, turns); }));
    written("discard and prefetch in pieces");
    p.out().add("discard as one range", "ms/GiB", ms([&] { discard(r); }));
    p.out().add("prefetch out of what was discarded", "ms/GiB", ms([&] { p.out(r); }));
    p.settle_in(r);
    written("discard and prefetch out");
#if CUDART_VERSION >= 13000
    const auto both = [&] {
      cudaMemLocation where = cuda::api::location_of({.on_host = false, .device = p.ordinal()});
      std::size_t index = 0;
      cuda::check(cudaMemDiscardAndPrefetchBatchAsync(blocks.data(), sizes.data(), blocks.size(), &where, &index, 1, 0,
                                                      p.moves().get()),
                  "cudaMemDiscardAndPrefetchBatchAsync");
    };
    p.out().add("discard+prefetch batch of 512 ranges, contents on the device", "ms/GiB", ms(both));
    written("a discard+prefetch batch");
    p.settle_out(r);
    p.out().add("discard+prefetch batch of 512 ranges, contents on the host", "ms/GiB", ms(both));
    written("a discard+prefetch batch from the host");
#endif
  }
  for (int i = 0; i < p.repeats(); ++i) {
    region part = r.part(512_MiB, few);
    p.settle_in(part);
    discard(part);
    p.out().add("write of what was discarded, without a prefetch; on 16 MiB", "ms/GiB",
                ms_per_gib(few, p.timed([&] { p.write(part); })));
    p.verify(part, "a write of what was discarded");
    p.settle_out(part);
    p.verify_on_host(part, "a write of what was discarded and a prefetch out");
  }
  p.settle_in(r);
  p.write(r);
}

/// Memory that stays on the host and is read over the link.
inline void in_place(probe& p) {
  region& r = p.a();
  std::optional<fault_reader> faults = try_read_faults(p, r);
  for (int i = 0; i < p.repeats(); ++i) {
    p.settle_in(r);
    p.write(r);
    p.settle_out(r);
    const double seconds = p.timed([&] {
      p.advise(r, cudaMemAdviseSetPreferredLocation, true);
      p.advise(r, cudaMemAdviseSetAccessedBy);
    });
    p.out().add("set both", "ms/GiB", ms_per_gib(whole, seconds));
    add_read(p, r, "in place", faults);
    p.verify(r, "a read in place", true);
    p.advise(r, cudaMemAdviseUnsetAccessedBy);
    p.advise(r, cudaMemAdviseUnsetPreferredLocation, true);
    p.verify(r, "the end of reads in place");
  }
}

}  // namespace deepum::driver_facts
