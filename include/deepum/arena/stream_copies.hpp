#pragma once

#include <deepum/arena/lending_arenas.hpp>
#include <deepum/arena/stream_launches.hpp>
#include <deepum/core/launch.hpp>
#include <deepum/operand.hpp>
#include <deepum/units.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string_view>

namespace deepum {
inline namespace v0 {
namespace detail {

/// Copies and fills of a stream, each a launch of its own. Where memory never faults they are made in pieces that fit
/// the budget, and reach memory of other arenas.
///
/// `stream` documents the calls of the same names. Threads: as for its stream.
class stream_copies {
 public:
  /// @param of  Outlives it.
  explicit stream_copies(stream_launches& of) : launches_(of), rooms_(of.rooms), queue_(of.queue) {}

  launch_id memcpy(void* to, const void* from, bytes size);
  /// A copy within the arena or from outside of all arenas, by launches.
  launch_id copy(void* to, const void* from, bytes size);
  launch_id memset(void* to, int with, bytes size);

 private:
  static constexpr bytes most_staged{std::uint64_t{64} << 20};

  /// The budget bounds what a launch must have on the device as a whole.
  /// @param piece  What is done with each, from its beginning on.
  launch_id in_pieces(const void* to, const void* from, bytes size,
                      const std::function<launch_id(bytes begin, bytes piece)>& piece);
  /// Whether what a piece of a copy touches fits the budget.
  [[nodiscard]] bool fit_together(const void* a, const void* b) const;
  /// Copies where a side lies in another arena whose memory never faults. Each of the arenas lends a piece at a time.
  launch_id memcpy_between(lending_arena* to_other, std::byte* to, lending_arena* from_other, const std::byte* from,
                           bytes size);
  /// Work in pieces is checked as a whole before the first of them.
  void check_transfer(std::string_view name, lending_arena* other, const operand& o);
  /// How much may be copied from or to an address in one piece, so that it touches a part of its arena's budget.
  [[nodiscard]] bytes most_of(const lending_arena* other, const void* p) const;
  /// All arenas are on this device: they keep what they lend until the copy is done.
  launch_id copy_lent(lending_arena* to_other, std::byte* to, lending_arena* from_other, const std::byte* from,
                      bytes size);
  /// By way of the host: the other device does not reach this one's memory, or the budget has no room for both sides.
  launch_id copy_staged(lending_arena* to_other, std::byte* to, lending_arena* from_other, const std::byte* from,
                        bytes size);
  /// The runtime takes a copy into a graph only where it finds the memory. So all of it is there until the graph is
  /// made.
  void record_transfer(std::span<const operand> operands, const std::function<void()>& enqueue);
  launch_id transfer(std::string_view name, std::span<const operand> operands, const std::function<void()>& enqueue);

  stream_launches& launches_;
  arena_rooms& rooms_;
  device_queue& queue_;
};

}  // namespace detail
}  // namespace v0
}  // namespace deepum

#ifndef DEEPUM_SEPARATE_COMPILATION
#include <deepum/arena/impl/stream_copies.hpp>  // what it declares
#endif
