#pragma once

#include <deepum/core/block.hpp>
#include <deepum/error.hpp>
#include <deepum/separate.hpp>
#include <deepum/sim/contents.hpp>
#include <deepum/units.hpp>

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>

namespace deepum {
inline namespace v0 {
namespace sim {

DEEPUM_SEPARATE void contents::poison(block_id b) {
  const admission here(*this, b);
  std::memset(at(newest_, b), poison_byte, block_size.count);
}

DEEPUM_SEPARATE void contents::empty(block_id b) { ::madvise(at(newest_, b), block_size.count, MADV_DONTNEED); }

DEEPUM_SEPARATE void contents::read(block_id b, std::byte* to) {
  const admission here(*this, b);
  std::memcpy(to, at(newest_, b), block_size.count);
}

DEEPUM_SEPARATE void contents::write(block_id b, const std::byte* from) {
  const admission here(*this, b);
  std::memcpy(at(newest_, b), from, block_size.count);
}

DEEPUM_SEPARATE void contents::read_older(block_id b, std::byte* to) {
  std::memcpy(to, at(older_, b), block_size.count);
}

DEEPUM_SEPARATE void contents::write_older(block_id b, const std::byte* from) {
  std::memcpy(at(older_, b), from, block_size.count);
}

DEEPUM_SEPARATE void contents::keep_older(block_id b) {
  if (older_.aligned() == nullptr) {
    older_ = range(capacity_);
  }
  const admission here(*this, b);
  std::memcpy(at(older_, b), at(newest_, b), block_size.count);
}

DEEPUM_SEPARATE void contents::poison_older(block_id b) { std::memset(at(older_, b), poison_byte, block_size.count); }

DEEPUM_SEPARATE void contents::restore_older(block_id b) {
  const admission here(*this, b);
  std::memcpy(at(newest_, b), at(older_, b), block_size.count);
  forget_older(b);
}

DEEPUM_SEPARATE void contents::forget_older(block_id b) { ::madvise(at(older_, b), block_size.count, MADV_DONTNEED); }

DEEPUM_SEPARATE void contents::guard() {
  let_in_.assign(capacity_ / block_size, 0);
  ::mprotect(base(), capacity_.count, PROT_NONE);
}

DEEPUM_SEPARATE void contents::let_in(block_id b) {
  if (!let_in_.empty() && let_in_[b.value]++ == 0) {
    ::mprotect(at(newest_, b), block_size.count, PROT_READ | PROT_WRITE);
  }
}

DEEPUM_SEPARATE void contents::keep_out(block_id b) {
  if (!let_in_.empty() && --let_in_[b.value] == 0) {
    ::mprotect(at(newest_, b), block_size.count, PROT_NONE);
  }
}

DEEPUM_SEPARATE contents::range::range(bytes wanted) : length_((wanted + block_size).count) {
  if (wanted.count == 0 || wanted.count % block_size.count != 0) {
    throw error(status::invalid_argument, "the capacity of an arena has to be whole blocks of 2 MiB, not " +
                                              std::to_string(wanted.count) + " bytes");
  }
  void* start = ::mmap(nullptr, length_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (start == MAP_FAILED) {
    throw error(status::out_of_host_memory,
                "cannot reserve " + std::to_string(length_) + " bytes of addresses; ask for a smaller arena", "mmap");
  }
  start_ = static_cast<std::byte*>(start);
  ::madvise(start, length_, MADV_HUGEPAGE);  // whole blocks are touched; without it each costs 512 page faults
}

DEEPUM_SEPARATE contents::range& contents::range::operator=(range&& other) noexcept {
  std::swap(start_, other.start_);
  std::swap(length_, other.length_);
  return *this;
}

DEEPUM_SEPARATE contents::range::~range() {
  if (start_ != nullptr) {
    ::munmap(start_, length_);
  }
}

}  // namespace sim
}  // namespace v0
}  // namespace deepum
