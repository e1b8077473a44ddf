#pragma once

#include <deepum/core/block.hpp>
#include <deepum/core/launch.hpp>
#include <deepum/core/sequence.hpp>
#include <deepum/engine/device_event.hpp>
#include <deepum/sim/contents.hpp>
#include <deepum/sim/event_loop.hpp>
#include <deepum/sim/worker.hpp>
#include <deepum/units.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace deepum {
inline namespace v0 {
namespace sim {

/// The driver keeps track of residency in pages of 64 KiB; a block is a mask of 32 of them.
inline constexpr bytes page_size = 64_KiB;
inline constexpr std::uint32_t all_pages = 0xffffffffU;

/// The pages that the bytes [begin, end) of a block lie in. Not for empty ranges.
[[nodiscard]] constexpr std::uint32_t pages_of(std::uint64_t begin, std::uint64_t end) {
  const std::uint64_t first = begin / page_size.count;
  const std::uint64_t last = (end - 1) / page_size.count;
  return (all_pages >> (31 - (last - first))) << first;
}

class address_space;

/// A part of what an operation touches: bytes of one block, in the order of first touch.
struct segment {
  address_space* space = nullptr;  ///< nullptr: memory outside every arena, always at hand
  block_id block{};
  std::uint32_t pages = 0;
  access mode = access::read;
  std::uint64_t size = 0;
};

/// An operation on its way through the memory it touches.
struct walk {
  std::string name{};
  std::uint64_t launch = 0;
  sequence<segment> segments{};
  std::size_t position = 0;

  [[nodiscard]] bool touches(const address_space& space, block_id b) const;
};

/// What an operation finds when it reaches a segment.
enum class touch_result : std::uint8_t {
  ready,    ///< go on
  remote,   ///< go on, through the link
  moving,   ///< wait until the block has stopped moving
  missing,  ///< page fault
  refused,  ///< no page fault can help: the operation fails
};

class executor;
class managed_space;

/// A range of addresses that host and device share: what managed and paged memory have in common.
///
/// Not synchronised: used under the lock of the device, where nothing else is said.
class address_space {
 public:
  address_space(event_loop& loop, bytes capacity, worker_mode mode, nanoseconds wake_up, std::uint64_t seed);
  address_space(const address_space&) = delete;
  address_space& operator=(const address_space&) = delete;
  virtual ~address_space();

  /// First byte, aligned to a block. Threads: any.
  [[nodiscard]] std::byte* base() const { return contents_.base(); }
  /// Length of the range. Threads: any.
  [[nodiscard]] bytes capacity() const { return contents_.capacity(); }
  [[nodiscard]] bool contains(const void* p) const;
  [[nodiscard]] event_loop& loop() const { return loop_; }
  [[nodiscard]] contents& data() { return contents_; }
  /// Of the device whose memory it is; nullptr while it is no device's.
  [[nodiscard]] executor* home() const { return home_; }
  void set_home(executor* e) { home_ = e; }

  /// Runs the pump from now on whenever `notify` was called or something happened. Threads: any.
  void attach(std::function<void()> pump);
  /// Returns when the pump has returned for the last time. Threads: any but the pump's.
  void detach();
  /// Wakes the pump. Threads: any.
  void notify();
  /// The clock of the device. Threads: any.
  [[nodiscard]] nanoseconds now() const;
  /// Appends what happened since the last call, in order of time. Threads: any.
  void poll(std::vector<device_event>& events);

  /// Tells the engine. Blocks that follow one another for the same cause become one event.
  void emit(device_event event);

  /// @name What an operation does with the memory
  /// @{
  [[nodiscard]] virtual touch_result touch(const segment&) = 0;
  /// The message for `touch_result::refused`.
  [[nodiscard]] virtual std::string refusal(const segment&) const { return {}; }
  /// The body of an operation that touches the segment runs next.
  virtual void before_body(const segment&) {}
  /// It has run.
  virtual void after_body(const segment&) {}
  /// The space as the driver knows it; nullptr where the driver does not move blocks by itself.
  [[nodiscard]] virtual managed_space* managed() { return nullptr; }
  /// @}

 private:
  event_loop& loop_;
  executor* home_ = nullptr;
  contents contents_;
  std::vector<device_event> events_;
  worker worker_;
};

}  // namespace sim
}  // namespace v0
}  // namespace deepum

#ifndef DEEPUM_SEPARATE_COMPILATION
#include <deepum/sim/impl/address_space.hpp>  // what it declares
#endif
