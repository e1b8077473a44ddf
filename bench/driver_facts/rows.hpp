#pragma once

#include "absl/strings/str_cat.h"
#include "gpu/library/hand_memory.hpp"
#include "moves.hpp"
#include "probe.hpp"
#include <deepum/cuda/check.hpp>
#include <deepum/cuda/virtual_memory.hpp>
#include <deepum/error.hpp>
#include <deepum/units.hpp>

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace deepum::driver_facts {

/// Memory of the host in chunks, mapped for the device and the host side by side. No managed memory.
class host_chunks {
 public:
  static constexpr bytes chunk = 16_MiB;

  /// @errors  `status::unsupported`, `status::out_of_arena_space`, `status::device_failure`.
  host_chunks(int ordinal, bytes size) : virtual_(ordinal), size_(size), begin_(virtual_.reserve(size, chunk)) {
    for (bytes at{}; at < size; at += chunk) {
      cuda::virtual_memory::handle made = 0;
      if (virtual_.create(true, chunk, made) != CUDA_SUCCESS) {
        throw error(status::device_failure, "the host has no memory for chunks");
      }
      handles_.push_back(made);
      if (virtual_.map(begin_ + at.count, chunk, made) != CUDA_SUCCESS ||
          virtual_.allow(begin_ + at.count, chunk, true) != CUDA_SUCCESS) {
        throw error(status::device_failure, "a chunk of the host could not be mapped");
      }
    }
  }
  ~host_chunks() {
    for (std::size_t i = 0; i < handles_.size(); ++i) {
      (void)virtual_.unmap(begin_ + i * chunk.count, chunk);
      virtual_.release(handles_[i]);
    }
    virtual_.give_back(begin_, size_);
  }
  host_chunks(const host_chunks&) = delete;
  host_chunks& operator=(const host_chunks&) = delete;

  [[nodiscard]] std::byte* base() const { return begin_; }

 private:
  cuda::virtual_memory virtual_;
  bytes size_;
  std::byte* begin_;
  std::vector<cuda::virtual_memory::handle> handles_{};
};

/// Rows of one memory, picked at random, read, written and added to by a kernel. Rates are of useful bytes.
inline void rows_of(probe& p, region r, const std::string& memory) {
  constexpr std::uint32_t piece = 16;  // bytes that a thread takes at a time
  for (const std::uint32_t row : {64U, 128U, 256U, 512U, 2048U}) {
    const std::uint64_t picks = (whole.count / 4) / row;
    const std::string rows = absl::StrCat(memory, ", rows of ", row, " B: ");
    for (int i = 0; i < p.repeats(); ++i) {
      const double reading = p.timed([&] { p.gather(r, row / piece, picks); });
      p.out().add(absl::StrCat(rows, "read"), "GB/s", gigabytes_per_second(bytes{picks * row}, reading));
      const double writing = p.timed([&] { p.scatter(r, row / piece, picks); });
      p.out().add(absl::StrCat(rows, "written"), "GB/s", gigabytes_per_second(bytes{picks * row}, writing));
    }
    p.verify(r, absl::StrCat(rows, "writes"), true);
  }
}

/// The same by atomic additions of one word each: what they cost, whether they are atomic, and whether the memory is
/// where it was.
inline void atomics_of(probe& p, region r, const std::string& memory) {
  constexpr std::uint64_t picks = std::uint64_t{1} << 16U;
  constexpr std::uint32_t row = 256;
  for (int i = 0; i < p.repeats(); ++i) {
    const double up = p.timed([&] { p.add_to_rows(r, row, picks, 1); });
    p.out().add(absl::StrCat(memory, ", atomic additions"), "million/s",
                static_cast<double>(picks * row / sizeof(word)) / up / 1e6);
    // Taken back, so that an addition that got lost shows.
    p.add_to_rows(r, row, picks, ~word{0});
    p.verify(r, absl::StrCat(memory, ", atomic additions"), true);
    const double all = p.timed([&] { p.read(r); });
    p.out().add(absl::StrCat(memory, ", all of it read after them"), "GB/s", gigabytes_per_second(r.size(), all));
  }
}

/// Rows where they are: host memory of every kind that the device can reach, by size of the row.
inline void rows_in_place(probe& p) {
  {
    region& r = p.a();
    p.settle_in(r);
    p.write(r);
    p.settle_out(r);
    p.advise(r, cudaMemAdviseSetPreferredLocation, true);
    p.advise(r, cudaMemAdviseSetAccessedBy);
    rows_of(p, r, "managed");
    atomics_of(p, r, "managed");
    p.advise(r, cudaMemAdviseUnsetAccessedBy);
    p.advise(r, cudaMemAdviseUnsetPreferredLocation, true);
    p.verify(r, "rows in place");
  }
  const auto filled = [&](std::byte* base) {
    region r{reinterpret_cast<word*>(base), whole.count / sizeof(word), 0};
    p.write(r);
    return r;
  };
  {
    const gpu_bench::memory_pool pinned(gpu_bench::memory_pool::kind::pinned, whole);
    const region r = filled(pinned.base());
    rows_of(p, r, "pinned by the runtime");
    atomics_of(p, r, "pinned by the runtime");
  }
  const host_chunks chunks(p.ordinal(), whole);
  const region r = filled(chunks.base());
  rows_of(p, r, "chunks of the host");
  atomics_of(p, r, "chunks of the host");
}

}  // namespace deepum::driver_facts
