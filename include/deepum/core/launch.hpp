#pragma once

#include <deepum/core/block.hpp>

#include <compare>
#include <cstdint>
#include <string>
#include <vector>

namespace deepum {
inline namespace v0 {

/// Number of a launch: 1, 2, 3, ... in the order of issue over all streams of an arena. 0 is no launch.
struct launch_id {
  std::uint64_t value = 0;

  constexpr launch_id() = default;
  constexpr explicit launch_id(std::uint64_t v) : value(v) {}
  [[nodiscard]] constexpr bool valid() const { return value != 0; }
  friend constexpr auto operator<=>(launch_id, launch_id) = default;
  friend constexpr bool operator==(launch_id, launch_id) = default;  // nvcc does not define the implied one
};

/// Number of a stream within its arena. History is kept for each stream.
struct stream_id {
  std::uint16_t value = 0;

  constexpr stream_id() = default;
  constexpr explicit stream_id(std::uint16_t v) : value(v) {}
  friend constexpr auto operator<=>(stream_id, stream_id) = default;
  friend constexpr bool operator==(stream_id, stream_id) = default;  // nvcc does not define the implied one
};

/// What a launch does with memory.
enum class access : std::uint8_t {
  read,       ///< contents are read and stay as they are
  update,     ///< contents may be read and written: `+=`, partial writes, beta != 0
  overwrite,  ///< every byte is written before it is read, so the old contents are dead (a fact, never a guess)
};

/// Blocks that a launch touches in one way. `access::overwrite` only where the blocks are overwritten as a whole.
struct block_access {
  block_range range{};
  access mode = access::update;
  friend constexpr bool operator==(const block_access&, const block_access&) = default;
};

/// The two hashes by which a launch is recognised (DeepUM, section 4.1).
struct launch_signature {
  std::uint64_t exact = 0;  ///< kernel name and all arguments, as published
  std::uint64_t shape = 0;  ///< kernel name and memory operands; scalars left out
  friend constexpr bool operator==(const launch_signature&, const launch_signature&) = default;
};

/// One launch, as the stream wrapper (or any other source of launches) reports it.
struct launch_record {
  launch_id id{};
  stream_id stream{};
  launch_signature signature{};
  std::vector<block_access> accesses{};  ///< declared blocks, in argument order, each range merged
  bool complete = true;                  ///< false: it may touch blocks that `accesses` does not name
  std::string name{};                    ///< for messages and traces
  bool hold = false;                     ///< an `arena::hold`: it executes nothing and ends when the program says so
};

/// A page fault, as the fault feed reports it and the engine attributes it.
struct fault_record {
  block_id block{};
  access mode = access::read;  ///< read or update
  launch_id launch{};          ///< the launch that was executing; invalid where that is ambiguous
  nanoseconds at{};            ///< device clock
};

}  // namespace v0
}  // namespace deepum
