#pragma once

#include <deepum/cxx20.hpp>

#include <cstddef>
#include <cstdint>
#include <utility>

namespace deepum {
inline namespace v0 {
namespace cuda {

/// When the next piece of what leaves may be given to the copy engine.
///
/// Copies to the host come in pieces, and blocks are mapped between them: else each would wait for a millisecond
/// (docs/adr/0007). While none waits to be mapped, the next piece stands behind the one that moves.
///
/// Threads: one at a time.
class copy_pace {
 public:
  static constexpr std::size_t pieces_in_flight = 2;       // one moves, the next is ready
  static constexpr std::uint32_t most_mapped_between = 8;  // blocks, between two pieces
  static constexpr std::uint32_t most_in_a_row = 4;        // pieces, without a pause for copies of the program

  /// @param in_flight      Pieces that the copy engine has.
  /// @param waits_for_map  Some block waits to be mapped.
  [[nodiscard]] bool may_send(std::size_t in_flight, bool waits_for_map) const {
    if (in_flight == 0) {
      return !waits_for_map || mapped_since_sent_ >= most_mapped_between;
    }
    return !waits_for_map && mapped_since_sent_ == 0 && !maps_between_ && in_flight < pieces_in_flight &&
           sent_in_a_row_ < most_in_a_row;
  }
  /// A piece is given to the copy engine. @param in_flight  Before it.
  void sent(std::size_t in_flight) {
    maps_between_ = std::exchange(mapped_since_sent_, 0) != 0;
    sent_in_a_row_ = in_flight == 0 ? 1 : sent_in_a_row_ + 1;
  }
  /// A block has been mapped, or that has failed.
  void mapped() { ++mapped_since_sent_; }

 private:
  std::uint32_t mapped_since_sent_ = 0;  // blocks, since the last piece
  bool maps_between_ = false;            // between that one and the piece before it
  std::uint32_t sent_in_a_row_ = 0;      // pieces, since the link paused
};

}  // namespace cuda
}  // namespace v0
}  // namespace deepum
