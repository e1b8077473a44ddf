#pragma once

#include "absl/strings/str_cat.h"
#include "probe.hpp"
#include <deepum/cuda/check.hpp>
#include <deepum/cuda/driver_context.hpp>
#include <deepum/units.hpp>

#include <cuda_runtime_api.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

namespace deepum::driver_facts {

[[nodiscard]] inline std::string in_mib(bytes size) { return absl::StrCat(size.count >> 20, " MiB"); }

/// What the link gives at best.
inline void pinned_copies(probe& p) {
  constexpr bytes size = 256_MiB;
  struct free_host {
    void operator()(std::byte* x) const { (void)cuda::succeeded(cudaFreeHost(x)); }
  };
  struct free_device {
    void operator()(std::byte* x) const { (void)cuda::succeeded(cudaFree(x)); }
  };
  std::array<std::unique_ptr<std::byte, free_host>, 2> host;
  std::array<std::unique_ptr<std::byte, free_device>, 2> device;
  for (std::size_t i = 0; i < 2; ++i) {
    void* made = nullptr;
    cuda::check(cudaMallocHost(&made, size.count), "cudaMallocHost");
    host[i].reset(static_cast<std::byte*>(made));
    cuda::check(cudaMalloc(&made, size.count), "cudaMalloc");
    device[i].reset(static_cast<std::byte*>(made));
  }
  const auto in = [&](std::size_t i, const stream& q) {
    cuda::check(cudaMemcpyAsync(device[i].get(), host[i].get(), size.count, cudaMemcpyHostToDevice, q.get()),
                "cudaMemcpyAsync");
  };
  const auto out = [&](std::size_t i, const stream& q) {
    cuda::check(cudaMemcpyAsync(host[i].get(), device[i].get(), size.count, cudaMemcpyDeviceToHost, q.get()),
                "cudaMemcpyAsync");
  };
  for (int r = 0; r < p.repeats(); ++r) {
    std::memset(host[0].get(), r + 1, size.count);
    std::memset(host[1].get(), 0, size.count);
    p.out().add("in", "GB/s", gigabytes_per_second(size, p.timed([&] { in(0, p.moves()); })));
    cuda::check(
        cudaMemcpyAsync(device[1].get(), device[0].get(), size.count, cudaMemcpyDeviceToDevice, p.moves().get()),
        "cudaMemcpyAsync");
    p.out().add("out", "GB/s", gigabytes_per_second(size, p.timed([&] { out(1, p.moves()); })));
    if (std::memcmp(host[0].get(), host[1].get(), size.count) != 0) {
      p.out().fail("a copy in and out has changed what it copied");
    }
    p.out().add("both at once, each", "GB/s", gigabytes_per_second(size, p.timed([&] {
                  in(0, p.moves());
                  out(1, p.work());
                })));
  }
}

/// What fresh memory costs, and what stays on the device of memory that has been there.
inline void fresh_memory(probe& p) {
  constexpr bytes size = 256_MiB;
  const auto write_by_host = [](region& r, word seed) {
    r.seed = seed;
    for (std::uint64_t i = 0; i < r.n; ++i) {
      r.first[i] = content(i, seed);
    }
  };
  const auto afterwards = [&](region& r, const std::string& touched) {
    const double before = free_mib();
    p.out().add(absl::StrCat(touched, ": first prefetch in"), "GB/s",
                gigabytes_per_second(size, p.timed([&] { p.in(r); })));
    p.verify(r, touched);
    const double there = free_mib();
    p.out().add("device memory that the first prefetch in takes, for 256 MiB", "MiB", before - there);
    p.out().add(absl::StrCat(touched, ": first prefetch out"), "GB/s",
                gigabytes_per_second(size, p.timed([&] { p.out(r); })));
    p.out().add("device memory that a prefetch out of 256 MiB gives back", "MiB", free_mib() - there);
    p.verify(r, "the first prefetch out");
    p.out().add(absl::StrCat(touched, ": second prefetch out"), "GB/s",
                gigabytes_per_second(size, p.timed([&] { p.out(r); })));
    p.verify_on_host(r, "the second prefetch out");
  };
  for (int i = 0; i < p.repeats(); ++i) {
    const word seed = 10 + static_cast<word>(i);
    {
      area fresh(size);
      p.out().add("the host touches it first: its first write", "ms/GiB",
                  ms_per_gib(size, p.timed([&] { write_by_host(fresh.all(), seed); })));
      afterwards(fresh.all(), "the host touches it first");
    }
    {
      area fresh(size);
      p.out().add("a prefetch to the host first: that prefetch", "ms/GiB",
                  ms_per_gib(size, p.timed([&] { p.out(fresh.all()); })));
      p.out().add("a prefetch to the host first: the host's first write", "ms/GiB",
                  ms_per_gib(size, p.timed([&] { write_by_host(fresh.all(), seed); })));
      afterwards(fresh.all(), "a prefetch to the host first");
    }
    {
      area fresh(size);
      p.out().add("a kernel touches it first: its first write", "ms/GiB",
                  ms_per_gib(size, p.timed([&] { p.write(fresh.all()); })));
      p.verify(fresh.all(), "the first write by a kernel");
      p.out().add("a kernel touches it first: first prefetch out", "GB/s",
                  gigabytes_per_second(size, p.timed([&] { p.out(fresh.all()); })));
      p.verify_on_host(fresh.all(), "the first prefetch out");
    }
  }
}

/// Prefetches by the program's own context, one after the other.
inline void prefetches(probe& p) {
  region& r = p.a();
  // New contents on the device, so that none that an earlier move has left behind can pass for them.
  const auto ready_to_leave = [&] {
    p.settle_in(r);
    p.write(r);
  };
  for (int i = 0; i < p.repeats(); ++i) {
    for (const bytes piece : {2_MiB, 16_MiB, 64_MiB, 1024_MiB}) {
      const std::string pieces = absl::StrCat(", pieces of ", in_mib(piece));
      ready_to_leave();
      double issued = 0;
      const double out = p.timed([&] {
        const stopwatch elapsed;
        p.out(r, piece, p.moves().get());
        issued = elapsed();
      });
      p.out().add(absl::StrCat("out", pieces), "GB/s", gigabytes_per_second(whole, out));
      p.out().add(absl::StrCat("out", pieces, ": the caller is blocked"), "%", 100 * issued / out);
      const double in = p.timed([&] {
        const stopwatch elapsed;
        p.in(r, piece, p.moves().get());
        issued = elapsed();
      });
      p.out().add(absl::StrCat("in", pieces), "GB/s", gigabytes_per_second(whole, in));
      p.out().add(absl::StrCat("in", pieces, ": the caller is blocked"), "%", 100 * issued / in);
      p.verify(r, absl::StrCat("prefetches", pieces));
      gpu_bench::idle_streams turns;
      p.settle_out(r);
      p.out().add(absl::StrCat("in, to a stream that is idle", pieces), "GB/s",
                  gigabytes_per_second(whole, p.timed([&] { p.in(r, piece, turns); })));
      p.verify(r, absl::StrCat("prefetches to idle streams", pieces));
    }
    p.out().add("in, of what is there already", "ms/GiB", ms_per_gib(whole, p.timed([&] { p.in(r); })));
  }
#if CUDART_VERSION >= 13000
  std::vector<void*> first;
  std::vector<std::size_t> size;
  const std::uint64_t blocks = whole / um_block;
  for (std::uint64_t i = 0; i < blocks; ++i) {
    first.push_back(r.address() + (i * 37 % blocks) * um_block.count);
    size.push_back(um_block.count);
  }
  const auto batch = [&](bool host) {
    cudaMemLocation where = cuda::api::location_of({.on_host = host, .device = p.ordinal()});
    std::size_t index = 0;
    cuda::check(
        cudaMemPrefetchBatchAsync(first.data(), size.data(), first.size(), &where, &index, 1, 0, p.moves().get()),
        "cudaMemPrefetchBatchAsync");
  };
  for (int i = 0; i < p.repeats(); ++i) {
    ready_to_leave();
    p.out().add("out, a batch of scattered 2 MiB", "GB/s", gigabytes_per_second(whole, p.timed([&] { batch(true); })));
    p.out().add("in, a batch of scattered 2 MiB", "GB/s", gigabytes_per_second(whole, p.timed([&] { batch(false); })));
    p.verify(r, "batches");
  }
#else
  p.out().leave_out("batches of prefetches came with CUDA 13.0");
#endif
}

/// Kernels that find nothing on the device.
inline void demand_faults(probe& p, const cuda::driver_context* own) {
  region& r = p.a();
  for (int i = 0; i < p.repeats(); ++i) {
    p.settle_out(r);
    p.out().add("read", "GB/s", gigabytes_per_second(whole, p.timed([&] { p.read(r); })));
    p.verify(r, "reads by faults");
    p.settle_out(r);
    p.out().add("write", "GB/s", gigabytes_per_second(whole, p.timed([&] { p.write(r); })));
    p.verify(r, "writes by faults");
  }
  region& leaving = p.b();
  for (const cuda::driver_context* context : contexts(own)) {
    const std::string name = context == nullptr ? "evictions in the same context" : "evictions in their own context";
    for (int i = 0; i < p.repeats(); ++i) {
      p.settle_out(r);
      p.settle_in(leaving);
      p.write(leaving);
      p.settle();
      std::atomic<bool> go{false};
      worker evictions(p.ordinal(), context, go, [&](cudaStream_t q) { p.out(leaving, 64_MiB, q); });
      go = true;
      const stopwatch elapsed;
      p.read(r);
      p.work().wait();
      p.out().add(absl::StrCat("read beside ", name), "GB/s", gigabytes_per_second(whole, elapsed()));
      p.out().add(absl::StrCat("read beside ", name, ": those"), "GB/s",
                  gigabytes_per_second(whole, evictions.seconds()));
      p.verify(r, "faults beside evictions");
      p.verify(leaving, "evictions beside faults");
    }
  }
}

/// One gibibyte comes while another leaves.
/// @param own  Two contexts, or nullptr each: the program's.
inline void both_ways(probe& p, const cuda::driver_context* first, const cuda::driver_context* second) {
  region& leaving = p.a();
  region& coming = p.b();
  const std::string name = first == nullptr ? "one context" : "a context each";
  for (const bytes piece : {16_MiB, 64_MiB}) {
    for (int i = 0; i < p.repeats(); ++i) {
      p.settle_in(coming);
      p.write(coming);
      p.settle_out(coming);
      p.settle_in(leaving);
      p.write(leaving);
      p.settle();
      std::atomic<bool> go{false};
      worker out(p.ordinal(), first, go, [&](cudaStream_t q) { p.out(leaving, piece, q); });
      worker in(p.ordinal(), second, go, [&](cudaStream_t q) { p.in(coming, piece, q); });
      go = true;
      const double in_seconds = in.seconds();
      const double out_seconds = out.seconds();
      p.out().add(absl::StrCat(name, ", pieces of ", in_mib(piece), ": in"), "GB/s",
                  gigabytes_per_second(whole, in_seconds));
      p.out().add(absl::StrCat(name, ", pieces of ", in_mib(piece), ": out"), "GB/s",
                  gigabytes_per_second(whole, out_seconds));
      p.verify(leaving, "leaving while others came");
      p.verify(coming, "coming while others left");
    }
  }
}

}  // namespace deepum::driver_facts
