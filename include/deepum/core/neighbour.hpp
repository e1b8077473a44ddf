#pragma once

#include <deepum/cxx20.hpp>
#include <deepum/units.hpp>

#include <concepts>
#include <cstdint>

namespace deepum {
inline namespace v0 {

/// Another device of the machine, by its number there. Made of the device itself.
class device_number {
 public:
  template <class Device>
    requires requires(const Device& d) {
      { d.ordinal() } -> std::convertible_to<int>;
    }
  device_number(const Device& d)  // NOLINT(google-explicit-constructor): a device stands for itself
      : value_(d.ordinal()) {}

  [[nodiscard]] int value() const { return value_; }

 private:
  int value_;
};

/// A device beside the one where launches run, and what an arena may use of it. It outlives the arena.
struct neighbour {
  device_number device;
  /// Of its memory, at most, to hold blocks that leave the device where launches run (docs/adr/0019); 0: none.
  bytes memory{};
  /// Of its memory, what is left free for its owner. What is lent is given back as its owner takes memory; of a sudden
  /// the owner can have no more than this.
  bytes reserve{std::uint64_t{512} << 20};
  /// Its link to the host carries this arena's copies, too. False: only those of blocks that it holds.
  bool link = true;
};

}  // namespace v0
}  // namespace deepum
