#pragma once

#include <deepum/core/block.hpp>
#include <deepum/core/layer.hpp>
#include <deepum/core/strong_id.hpp>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace deepum {
inline namespace v0 {

/// Number of a launch: 1, 2, 3, ... in the order of issue over all streams of an arena. 0 is no launch.
using launch_id = strong_id<struct launch_tag, std::uint64_t, zero_is::none>;

/// Number of a stream within its arena. History is kept for each stream.
using stream_id = strong_id<struct stream_tag, std::uint16_t>;

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
  bool sparse = false;          ///< rows here and there of these blocks are touched; which ones only the launch knows
  std::uint32_t row_bytes = 0;  ///< sparse: bytes of a row; 0: not known
  std::uint64_t touched = 0;    ///< sparse: bytes of all rows that are touched; 0: not known
  friend constexpr bool operator==(const block_access&, const block_access&) = default;
};

/// A block that an upload writes.
struct upload_block {
  launch_id upload{};
  block_id block{};
};

/// The two hashes by which a launch is recognised (DeepUM, section 3.1).
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
  bool upload = false;                   ///< the host overwrites the blocks: it executes nothing on the device
  std::shared_ptr<const layer_scope> layer{};  ///< the layer that it belongs to; none: the program named none
};

/// A page fault, as the fault feed reports it and the engine attributes it.
struct fault_record {
  block_id block{};
  access mode = access::read;  ///< read or update
  launch_id launch{};          ///< the launch that was executing; invalid where that is ambiguous
  nanoseconds at{};            ///< device clock
  std::uint32_t pages = 0;     ///< which 64 KiB of the block, as bits; 0: not known
};

}  // namespace v0
}  // namespace deepum
