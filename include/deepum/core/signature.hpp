#pragma once

#include <deepum/core/hash.hpp>
#include <deepum/core/launch.hpp>

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace deepum {
inline namespace v0 {

/// Hashes a launch, argument by argument, into its two signatures (DeepUM, section 3.1).
///
/// `exact` takes in the name, the operands and the scalars in the order given; `shape` leaves the scalars out. Memory
/// goes in by its offset in the arena, so that the next run of a program which allocates in the same order has the same
/// signatures. The hash is 64 bits wide, and not safe against an adversary.
///
/// Not synchronised; a builder is a local variable. Cost: one or two multiplications for each 16 bytes, no allocation.
///
///     const launch_signature s = signature_builder("relu").operand(y, n, access::update).scalar(&k, sizeof
///     k).finish();
class signature_builder {
 public:
  /// @param kernel_name  The kernel's name.
  explicit signature_builder(std::string_view kernel_name)
      : exact_(detail::absorb_bytes(detail::hash_key_c, header(kind::name, kernel_name.size()), kernel_name.data(),
                                    kernel_name.size())),
        shape_(exact_) {}

  /// A pointer argument or a declared span. Memory that no arena manages is a scalar.
  /// @param offset  Of its first byte, from the beginning of the arena.
  /// @param size    In bytes, below 2^56; 0 where it is not known.
  /// @param mode    What the launch does with it.
  signature_builder& operand(std::uint64_t offset, std::uint64_t size, access mode) {
    const std::uint64_t head =
        header(static_cast<kind>(static_cast<unsigned>(kind::operand) + static_cast<unsigned>(mode)), size);
    exact_ = detail::absorb(exact_, offset, head);
    shape_ = detail::absorb(shape_, offset, head);
    return *this;
  }

  /// An argument by value.
  /// @param p  Its bytes, padding included. May be null where `n` is 0.
  /// @param n  Their number.
  signature_builder& scalar(const void* p, std::size_t n) {
    exact_ = detail::absorb_bytes(exact_, header(kind::scalar, n), p, n);
    return *this;
  }

  /// What is an address in the arena within the next `scalar`, which has zeros there: as an offset, like an operand's.
  /// @param at      Where in that argument, in bytes.
  /// @param offset  From the beginning of the arena.
  signature_builder& address(std::uint64_t at, std::uint64_t offset) {
    exact_ = detail::absorb(exact_, offset, header(kind::address, at));
    return *this;
  }

  /// The signatures of what was given so far.
  [[nodiscard]] launch_signature finish() const {
    return {detail::multiply_fold(exact_ ^ detail::hash_key_a, detail::hash_key_c),
            detail::multiply_fold(shape_ ^ detail::hash_key_b, detail::hash_key_c)};
  }

 private:
  enum class kind : std::uint8_t { name = 1, scalar = 2, operand = 3, address = 16 };  // operand + access mode

  [[nodiscard]] static constexpr std::uint64_t header(kind k, std::uint64_t size) {
    return (size << 8U) | static_cast<std::uint64_t>(k);
  }

  std::uint64_t exact_;
  std::uint64_t shape_;
};

}  // namespace v0
}  // namespace deepum
