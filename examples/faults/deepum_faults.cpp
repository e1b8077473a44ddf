// Shows whether this machine's driver tells a process of its own page faults, and how well: attaches, lets the GPU
// touch pages that are known, and compares.

#include "absl/flags/flag.h"
#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "program/command_line.hpp"
#include <deepum/cuda/check.hpp>
#include <deepum/cuda/device.hpp>
#include <deepum/cuda/faults/uvm_events.hpp>
#include <deepum/cuda/managed_limit.hpp>
#include <deepum/error.hpp>
#include <deepum/units.hpp>

#include <deepum_uvm_events.h>

#include <cuda_runtime_api.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <memory>
#include <set>
#include <vector>

ABSL_FLAG(int, device, 0, "the GPU, as CUDA counts them");
ABSL_FLAG(int, size, 256, "MiB of managed memory to fault in, from 64 to 1024");

namespace {

using deepum::bytes;
using deepum::cuda::check;
using clock_type = std::chrono::steady_clock;

struct free_memory {
  void operator()(std::byte* p) const { (void)cudaFree(p); }
};

double microseconds_since(clock_type::time_point begin) {
  return std::chrono::duration<double, std::micro>(clock_type::now() - begin).count();
}

std::vector<deepum_uvm_record> take_all(deepum_uvm_events* events) {
  std::vector<deepum_uvm_record> all;
  deepum::cuda::take_uvm_records(events, [&](const deepum_uvm_record& r) { all.push_back(r); });
  return all;
}

deepum::cuda::uvm_events open_reader(const std::byte* base, bytes size) {
  deepum_uvm_options options{};
  options.first = reinterpret_cast<std::uintptr_t>(base);
  options.size = size.count;
  return deepum::cuda::open_uvm_events(options);
}

// All pages to the host, in the way that leaves no trace on the device.
void to_host(std::byte* base, bytes size, cudaStream_t stream) {
  for (std::size_t i = 0; i < size.count; i += 4096) {
    static_cast<volatile std::byte*>(base)[i] = std::byte{1};
  }
  check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
}

// The time that the GPU takes to fault everything in.
double fault_in(std::byte* base, bytes size, cudaStream_t stream) {
  to_host(base, size, stream);
  const auto begin = clock_type::now();
  check(cudaMemsetAsync(base, 2, size.count, stream), "cudaMemsetAsync");
  check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
  return microseconds_since(begin);
}

int run() {
  const deepum::cuda::device gpu{absl::GetFlag(FLAGS_device)};
  const int mebibytes = absl::GetFlag(FLAGS_size);
  if (mebibytes < 64 || mebibytes > 1024) {
    throw deepum::error(deepum::status::invalid_argument, "--size has to be from 64 to 1024");
  }
  const bytes size{static_cast<std::uint64_t>(mebibytes) << 20U};
  const deepum::cuda::managed_limit::share share(size);
  absl::PrintF("device      %s, CUDA %d.%d\n", gpu.properties().name, gpu.properties().driver_version / 1000,
               gpu.properties().driver_version % 1000 / 10);
  void* allocated = nullptr;
  check(cudaMallocManaged(&allocated, size.count, cudaMemAttachGlobal), "cudaMallocManaged");
  const std::unique_ptr<std::byte, free_memory> memory(static_cast<std::byte*>(allocated));
  std::byte* base = memory.get();
  cudaStream_t stream = nullptr;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");

  const auto began = clock_type::now();
  deepum::cuda::uvm_events events = open_reader(base, size);
  deepum_uvm_counts counts = deepum::cuda::counts_of(events.get());
  absl::PrintF("attached    in %.0f us, driver branch %u\n", microseconds_since(began), counts.driver_branch);

  // Known pages: the first bytes of scattered blocks.
  to_host(base, size, stream);
  (void)take_all(events.get());
  std::set<std::uint64_t> expected;
  const std::uint64_t blocks = size.count >> 21U;
  for (std::uint64_t i = 0; i < std::min<std::uint64_t>(37, blocks / 2); ++i) {
    const std::uint64_t block = (i * 131 + 7) % blocks;
    if (expected.insert(block).second) {
      check(cudaMemsetAsync(base + (block << 21U), 3, 64, stream), "cudaMemsetAsync");
    }
  }
  check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
  std::set<std::uint64_t> seen;
  for (const deepum_uvm_record& r : take_all(events.get())) {
    seen.insert((r.address - reinterpret_cast<std::uintptr_t>(base)) >> 21U);
  }
  std::size_t found = 0;
  for (const std::uint64_t block : expected) {
    found += seen.count(block);
  }
  absl::PrintF("known pages %d of %d seen, %d others\n", found, expected.size(), seen.size() - found);

  // Latency: from the launch to the record in hand, and the fault's whole round.
  std::vector<double> until_seen;
  std::vector<double> until_served;
  for (int i = 0; i < 50; ++i) {
    static_cast<volatile std::byte*>(base)[0] = std::byte{1};
    (void)take_all(events.get());
    const auto begin = clock_type::now();
    check(cudaMemsetAsync(base, 3, 64, stream), "cudaMemsetAsync");
    deepum_uvm_record one{};
    while (deepum_uvm_events_take(events.get(), &one, 1) == 0 && microseconds_since(begin) < 1e5) {
    }
    until_seen.push_back(microseconds_since(begin));
    check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
    until_served.push_back(microseconds_since(begin));
  }
  std::sort(until_seen.begin(), until_seen.end());
  std::sort(until_served.begin(), until_served.end());
  absl::PrintF("latency     median %.0f us from the launch to the record, %.0f us to the end of the launch\n",
               until_seen[25], until_served[25]);

  // Rate and cost: everything faulted in, with the reader attached and without.
  std::vector<double> with;
  with.reserve(5);
  std::uint64_t read = 0;
  for (int i = 0; i < 5; ++i) {
    const std::uint64_t before = deepum::cuda::counts_of(events.get()).read;
    with.push_back(fault_in(base, size, stream));
    (void)take_all(events.get());
    counts = deepum::cuda::counts_of(events.get());
    read = counts.read - before;
  }
  const bool complete = found == expected.size();
  const std::uint64_t dropped = counts.dropped_by_driver + counts.dropped_by_ring + counts.dropped_by_resync;
  std::vector<double> without;
  without.reserve(5);
  events.reset();
  for (int i = 0; i < 5; ++i) {
    without.push_back(fault_in(base, size, stream));
  }
  std::sort(with.begin(), with.end());
  std::sort(without.begin(), without.end());
  absl::PrintF("rate        %d records for %d MiB, %.2f million a second; %d dropped\n", read, mebibytes,
               static_cast<double>(read) / with[2], dropped);
  absl::PrintF("cost        %.1f ms with the reader, %.1f ms without: %+.1f %%\n", with[2] / 1e3, without[2] / 1e3,
               (with[2] / without[2] - 1) * 100);
  check(cudaStreamDestroy(stream), "cudaStreamDestroy");
  if (!complete || dropped != 0) {
    absl::PrintF("the feed does NOT work as it should on this machine\n");
    return 1;
  }
  absl::PrintF("the feed works\n");
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const absl::Status read =
        deepum_program::read_flags_alone(argc, argv, "shows whether the driver tells this process of its page faults");
    if (read.ok()) return run();
    absl::FPrintF(stderr, "deepum-faults: %s\n", read.message());
    return 1;
  } catch (const deepum::error& e) {
    absl::FPrintF(stderr, "deepum-faults: %s\n", e.what());
    return e.code() == deepum::status::unsupported ? 77 : 1;
  } catch (const std::exception& e) {
    absl::FPrintF(stderr, "deepum-faults: %s\n", e.what());
    return 1;
  }
}
