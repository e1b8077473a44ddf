#pragma once

#include <deepum/core/block.hpp>
#include <deepum/core/sequence.hpp>
#include <deepum/units.hpp>

#include <cstddef>
#include <cstdint>

namespace deepum {
inline namespace v0 {
namespace sim {

/// The bytes of an arena: the newest copy of each block at the common addresses, an older copy beside it where host and
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

  void poison(block_id b);
  /// Memory of the block is given back.
  void empty(block_id b);
  /// The newest copy, to and from other memory.
  void read(block_id b, std::byte* to);
  void write(block_id b, const std::byte* from);

  /// Keeps the contents as they are now as the older copy.
  void keep_older(block_id b);
  /// The older copy, which has been kept, is lost.
  void poison_older(block_id b);
  /// The older copy comes back.
  void restore_older(block_id b);
  void forget_older(block_id b);
  /// The older copy, which has been kept, to and from other memory.
  void read_older(block_id b, std::byte* to);
  void write_older(block_id b, const std::byte* from);

  /// @name Checked mode
  /// @{

  /// From now on a touch of a block that is not let in ends the program. Once, before anything is touched.
  void guard();
  /// The block may be touched until `keep_out`; calls are counted.
  void let_in(block_id b);
  void keep_out(block_id b);
  /// @}

 private:
  /// The contents' own access to a block.
  class admission {
   public:
    admission(contents& held, block_id opened) : contents_(held), block_(opened) { contents_.let_in(block_); }
    ~admission() { contents_.keep_out(block_); }
    admission(const admission&) = delete;
    admission& operator=(const admission&) = delete;

   private:
    contents& contents_;
    block_id block_;
  };

  class range {
   public:
    range() = default;
    explicit range(bytes wanted);
    range(range&& from) noexcept : start_(from.start_), length_(from.length_) { from.start_ = nullptr; }
    range& operator=(range&& other) noexcept;
    ~range();
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
  sequence<std::uint32_t> let_in_{};  // how often each block is; empty: not guarded
};

}  // namespace sim
}  // namespace v0
}  // namespace deepum

#ifndef DEEPUM_SEPARATE_COMPILATION
#include <deepum/sim/impl/contents.hpp>  // what it declares
#endif
