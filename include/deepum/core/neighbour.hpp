#pragma once

#include <deepum/cxx20.hpp>

#include <concepts>

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
  /// Its link to the host carries this arena's copies, too. No block stays there.
  bool link = true;
};

}  // namespace v0
}  // namespace deepum
