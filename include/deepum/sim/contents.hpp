#pragma once

#include <deepum/core/block.hpp>
#include <deepum/error.hpp>
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

/// The bytes of an arena: the newest copy of each block where everybody sees it, an older copy beside it where host and
/// device differ. Memory is committed when it is touched.
///
/// Not synchronised: used under the lock of the device. The program's own access to `base()` is its own affair.
class contents {
 public:
  static constexpr int poison_byte = 0xDB;  ///< what discarded contents and never written device copies read as

  /// @param capacity  Whole blocks.
  /// @errors  `status::invalid_argument`, `status::out_of_host_memory`.
  explicit contents(bytes capacity) : capacity_(capacity), newest_(capacity) {}

  [[nodiscard]] std::byte* base() const { return newest_.aligned(); }
  [[nodiscard]] bytes capacity() const { return capacity_; }

  void poison(block_id b) { std::memset(at(newest_, b), poison_byte, block_size.count); }

  /// Keeps the contents as they are now as the older copy.
  void keep_older(block_id b) {
    if (older_.aligned() == nullptr) {
      older_ = range(capacity_);
    }
    std::memcpy(at(older_, b), at(newest_, b), block_size.count);
  }
  /// The older copy comes back.
  void restore_older(block_id b) {
    std::memcpy(at(newest_, b), at(older_, b), block_size.count);
    forget_older(b);
  }
  void forget_older(block_id b) { ::madvise(at(older_, b), block_size.count, MADV_DONTNEED); }

 private:
  class range {
   public:
    range() = default;
    explicit range(bytes capacity) : length_((capacity + block_size).count) {
      if (capacity.count == 0 || capacity.count % block_size.count != 0) {
        throw error(status::invalid_argument, "the capacity of an arena has to be whole blocks of 2 MiB, not " +
                                                  std::to_string(capacity.count) + " bytes");
      }
      void* start =
          ::mmap(nullptr, length_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
      if (start == MAP_FAILED) {
        throw error(status::out_of_host_memory,
                    "cannot reserve " + std::to_string(length_) + " bytes of addresses; ask for a smaller arena",
                    "mmap");
      }
      start_ = static_cast<std::byte*>(start);
      ::madvise(start, length_, MADV_HUGEPAGE);  // whole blocks are touched; without it each costs 512 page faults
    }
    range(range&& other) noexcept : start_(other.start_), length_(other.length_) { other.start_ = nullptr; }
    range& operator=(range&& other) noexcept {
      std::swap(start_, other.start_);
      std::swap(length_, other.length_);
      return *this;
    }
    ~range() {
      if (start_ != nullptr) {
        ::munmap(start_, length_);
      }
    }
    [[nodiscard]] std::byte* aligned() const {
      if (start_ == nullptr) {
        return nullptr;
      }
      const auto address = reinterpret_cast<std::uintptr_t>(start_);
      return start_ + (block_size.count - address % block_size.count) % block_size.count;
    }

   private:
    std::byte* start_ = nullptr;
    std::size_t length_ = 0;
  };

  [[nodiscard]] static std::byte* at(const range& r, block_id b) { return r.aligned() + b.value * block_size.count; }

  bytes capacity_;
  range newest_;
  range older_;
};

}  // namespace sim
}  // namespace v0
}  // namespace deepum
