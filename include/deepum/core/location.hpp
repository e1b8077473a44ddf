#pragma once

#include <deepum/cxx20.hpp>

#include <bit>
#include <compare>
#include <cstdint>
#include <string>

namespace deepum {
inline namespace v0 {

/// A place that can hold a copy of a block: host memory, this device, or a neighbour device.
///
/// Location 0 is the host, location 1 + i is device i, as the arena counts them.
class location {
 public:
  static constexpr unsigned limit = 16;  ///< copies are kept as a bit mask of this many places

  [[nodiscard]] static constexpr location host() { return location{0}; }
  [[nodiscard]] static constexpr location device(unsigned index = 0) {
    return location{static_cast<std::uint8_t>(index + 1)};
  }
  /// No place in particular: in what is asked for, any that will do.
  [[nodiscard]] static constexpr location any() { return location{0xff}; }
  /// The place of that index.
  [[nodiscard]] static constexpr location at(unsigned index) { return location{static_cast<std::uint8_t>(index)}; }

  [[nodiscard]] constexpr bool is_host() const { return index_ == 0; }
  [[nodiscard]] constexpr bool is_any() const { return index_ == 0xff; }
  [[nodiscard]] constexpr bool is_device() const { return !is_host() && !is_any(); }
  [[nodiscard]] constexpr unsigned index() const { return index_; }
  friend constexpr auto operator<=>(location, location) = default;
  friend constexpr bool operator==(location, location) = default;  // nvcc does not define the implied one

 private:
  constexpr explicit location(std::uint8_t index) : index_(index) {}
  std::uint8_t index_;
};

/// The words for messages, JSON and traces: `host`, or `device` with its number.
[[nodiscard]] inline std::string to_string(location l) {
  return l.is_host() ? "host" : l.is_any() ? "any" : "device " + std::to_string(l.index() - 1);
}

/// The set of places at which a block's contents are current.
///
/// Empty: the block has never been written, or its contents were discarded.
class copy_set {
 public:
  constexpr copy_set() = default;
  constexpr explicit copy_set(location place) : bits_(bit(place)) {}

  [[nodiscard]] constexpr bool at(location l) const { return (bits_ & bit(l)) != 0; }
  [[nodiscard]] constexpr bool only_at(location l) const { return bits_ == bit(l); }
  [[nodiscard]] constexpr bool empty() const { return bits_ == 0; }
  [[nodiscard]] constexpr int count() const { return std::popcount(bits_); }
  constexpr void add(location l) { bits_ = static_cast<std::uint16_t>(bits_ | bit(l)); }
  constexpr void remove(location l) { bits_ = static_cast<std::uint16_t>(bits_ & ~bit(l)); }
  friend constexpr bool operator==(copy_set, copy_set) = default;

 private:
  static constexpr std::uint16_t bit(location l) { return static_cast<std::uint16_t>(1U << l.index()); }
  std::uint16_t bits_ = 0;
};

}  // namespace v0
}  // namespace deepum
