#pragma once

#include <deepum/core/block.hpp>
#include <deepum/core/block_grid.hpp>
#include <deepum/core/launch.hpp>
#include <deepum/core/layer.hpp>
#include <deepum/units.hpp>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace deepum::replay {

/// A set of blocks: ranges in ascending order that neither overlap nor touch.
using block_set = std::vector<block_range>;

/// Number of blocks in a set.
[[nodiscard]] std::uint32_t block_count(const block_set& set);
/// Whether a block is in a set. Cost: logarithmic in its ranges.
[[nodiscard]] bool contains(const block_set& set, block_id b);

/// Where addresses of tensors end: block numbers have 32 bits, and one value stays free for the end.
inline constexpr std::uint64_t address_limit = std::uint64_t{0xffffffffU} * block_size.count;

/// A tensor as a file or a program describes it.
struct described_tensor {
  std::int64_t id = 0;
  bytes size{};
  std::optional<bytes> address{};  ///< of its first byte; nothing: behind the tensors before it that have none either
  bool persistent = false;
  std::optional<std::uint32_t> freed_after{};  ///< the launch after which it is freed, unless it is used later still
  std::size_t line = 0;                        ///< of the file, for messages; 0: there is no file
};

/// The layer of a net that a launch belongs to, as a file or a program describes it. Launches that follow each other
/// and say the same of number and pass are of one scope.
struct described_layer {
  std::uint32_t number = 0;
  layer_pass pass = layer_pass::forward;
  layer_kind kind = layer_kind::other;
  std::vector<std::int64_t> input{};  ///< tensors; in the forward pass alone
};

/// Rows of a tensor that a launch touches, in the way in which it names the tensor.
struct described_rows {
  std::uint32_t row_bytes = 0;
  std::uint64_t rows = 0;
};

/// A launch as a file or a program describes it.
struct described_launch {
  /// One list for all steps, or lists that steps use in turn; blocks are counted from the first one of the tensor.
  using lists = std::vector<std::vector<std::uint32_t>>;

  std::string kernel{};
  nanoseconds duration{};
  std::vector<std::int64_t> in{};   ///< tensors that are read
  std::vector<std::int64_t> out{};  ///< tensors that are written; as a whole where they are not read too
  /// The blocks that are really touched of tensors with data-dependent accesses, by the tensor's number. At least one
  /// list each.
  std::map<std::int64_t, lists> blocks{};
  /// How much of them is touched, where that is not all of it.
  std::map<std::int64_t, described_rows> touched{};
  std::optional<described_layer> layer{};
  std::size_t line = 0;  ///< of the file, for messages; 0: there is no file
};

/// What a workload is built from.
struct workload_description {
  std::string name{};
  std::vector<described_tensor> tensors{};
  std::vector<described_launch> launches{};  ///< in order
};

/// A tensor of a workload.
struct workload_tensor {
  std::int64_t id = 0;  ///< as the file names it
  bytes address{};      ///< of its first byte
  bytes size{};
  block_range span{};       ///< blocks it lies in; small tensors share blocks, and addresses are used again
  bool persistent = false;  ///< alive across steps; the others are born at their first launch
  std::optional<std::uint32_t> first_launch{};  ///< nothing: no launch names it
  std::uint32_t freed_after = 0;                ///< its last launch, or a later one after which it is freed
};

/// What a launch does with one tensor.
struct workload_operand {
  std::uint32_t tensor = 0;     ///< index into `workload::tensors`
  access mode = access::read;   ///< `overwrite` where it is written only, and as a whole
  bool data_dependent = false;  ///< the launch touches only some of its blocks
  std::uint32_t row_bytes = 0;  ///< and of these only rows of so many bytes; 0: all of them
  std::uint64_t rows = 0;       ///< that many
  friend constexpr bool operator==(const workload_operand&, const workload_operand&) = default;
};

/// Rows of one tensor that a launch touches in one step.
struct touched_tensor {
  block_set blocks{};  ///< that they lie in
  std::uint32_t row_bytes = 0;
  std::uint64_t rows = 0;
  bool read = false;
  bool written = false;

  [[nodiscard]] double bytes_of(std::uint32_t some_blocks) const {
    return static_cast<double>(row_bytes) * static_cast<double>(rows) * some_blocks / block_count(blocks);
  }
};

/// The blocks that a launch touches in one step.
struct touched_blocks {
  block_set reads{};
  block_set writes{};
  block_set fresh{};                   ///< hold nothing alive before the launch, and are not read: they need no fetch
  std::vector<touched_tensor> rows{};  ///< where less than the blocks is touched, of what
  block_set looked_up{};               ///< blocks of which nothing but such rows is touched

  /// Blocks that are read or written.
  [[nodiscard]] block_set all() const;
};

/// A launch of a workload.
struct workload_launch {
  std::string kernel{};
  nanoseconds duration{};
  std::vector<workload_operand> operands{};  ///< tensors that are read, then those that are only written
  std::vector<touched_blocks> touched{};     ///< one for all steps, or one a step, used in turn
  block_set dead{};                          ///< contents are dead once the launch has run
  /// The layer that it belongs to, the same for all launches of a scope; its number is left 0.
  std::shared_ptr<const layer_scope> layer{};

  /// @param variant  Of the step, as `workload::variant_of` says.
  [[nodiscard]] const touched_blocks& touches(std::size_t variant) const { return touched[variant % touched.size()]; }
};

/// One training or inference step that is repeated, as `build_workload` finds it in its description.
///
/// What it says of the blocks of each launch is the same as what the referee's `workload.py` says.
struct workload {
  std::string name{};
  std::vector<workload_tensor> tensors{};   ///< in the order of the file
  std::vector<workload_launch> launches{};  ///< of one step; at least one
  std::size_t variants = 1;                 ///< steps until data-dependent accesses repeat
  nanoseconds compute{};                    ///< time of all launches of a step
  std::uint32_t blocks = 0;                 ///< that any launch of any step touches
  std::uint32_t largest_launch = 0;         ///< most blocks of one launch
  std::uint32_t end_block = 0;              ///< all spans of tensors that launches use lie before it
  block_set persistent{};                   ///< blocks with live contents across steps; they start on the host
  std::vector<std::string> warnings{};      ///< what is odd in the file, and does not keep it from being replayed
  std::shared_ptr<const workload_description> description{};  ///< that it was built from

  [[nodiscard]] std::size_t variant_of(std::size_t step) const { return step % variants; }
};

/// Finds out where tensors lie, how long they live, and what every launch touches, kills and finds dead.
/// @param source  Name of the file or program that describes it, for messages.
/// @errors        `status::bad_format` with the reason, and the line where there is a file: a tensor that is there
/// twice,
///                is not there or ends beyond 8 PiB, a block beyond its tensor, no launch, or so many overlapping
///                tensors or differing look-ups that memory would grow beyond a GiB or so.
[[nodiscard]] workload build_workload(std::string_view source, workload_description description);

/// Reads a workload in format version 1: JSON Lines, a header, then tensors and launches.
/// @param source  Name of the file, for messages.
/// @param text    Its contents, unpacked.
/// @errors        `status::bad_format` with the line and the reason. Memory: proportional to the text, except where
/// many
///                tensors overlap or many look-ups differ from step to step; such a file is refused beyond a GiB or so.
[[nodiscard]] workload parse_workload(std::string_view source, std::string_view text);

/// Reads a workload from a file, plain or gzip.
/// @errors  As `read_text` and `parse_workload`.
[[nodiscard]] workload read_workload(const std::string& path);

}  // namespace deepum::replay
