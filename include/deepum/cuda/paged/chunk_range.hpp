#pragma once

#include <deepum/cuda/virtual_memory.hpp>
#include <deepum/units.hpp>

#include <cuda.h>

#include <cstddef>
#include <cstdint>

namespace deepum {
inline namespace v0 {
namespace cuda {

/// A reserved range of addresses with a place for each of a number of chunks. Nothing is mapped there in the end.
///
/// Threads: any, one at a time for each chunk.
class chunk_range {
 public:
  /// @param calls  Outlives it.
  /// @errors  `status::out_of_arena_space`.
  chunk_range(const virtual_memory& calls, bytes chunk, std::uint32_t count)
      : memory_(calls),
        chunk_(chunk),
        count_(count),
        begin_(calls.reserve(chunk * count, chunk)) {}
  ~chunk_range() { memory_.give_back(begin_, size()); }
  chunk_range(const chunk_range&) = delete;
  chunk_range& operator=(const chunk_range&) = delete;

  [[nodiscard]] std::byte* begin() const { return begin_; }
  [[nodiscard]] bytes size() const { return chunk_ * count_; }
  [[nodiscard]] std::uint32_t count() const { return count_; }
  [[nodiscard]] std::byte* at(std::uint32_t i) const { return begin_ + (chunk_ * i).count; }

  [[nodiscard]] CUresult map(std::uint32_t i, virtual_memory::handle h) const { return memory_.map(at(i), chunk_, h); }
  /// Where that succeeds nothing is mapped there, perhaps because nothing was. Else it may be either way.
  // A driver that reports an error is asked once more: it may have done it all the same.
  CUresult unmap(std::uint32_t i) const {
    const CUresult result = memory_.unmap(at(i), chunk_);
    return result == CUDA_SUCCESS ? result : memory_.unmap(at(i), chunk_);
  }
  /// See `virtual_memory::allow`.
  [[nodiscard]] CUresult allow(std::uint32_t i, bool by_host = false) const {
    return memory_.allow(at(i), chunk_, by_host);
  }
  CUresult forbid(std::uint32_t i) const { return memory_.forbid(at(i), chunk_); }

 private:
  const virtual_memory& memory_;
  const bytes chunk_;
  const std::uint32_t count_;
  std::byte* const begin_;
};

}  // namespace cuda
}  // namespace v0
}  // namespace deepum
