#pragma once

#include <deepum/arena/allocation_table.hpp>
#include <deepum/arena/back.hpp>
#include <deepum/arena/byte_interval.hpp>
#include <deepum/arena/device_queue.hpp>
#include <deepum/arena/launch_access.hpp>
#include <deepum/arena/launch_order.hpp>
#include <deepum/core/launch.hpp>
#include <deepum/error.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace deepum {
inline namespace v0 {
namespace detail {

/// One launch in checked mode (`arena_options::checked`): from when its memory is there until it has run.
///
/// Operands that it only reads are summed up before and after. Operands that it overwrites are made unrecognisable
/// before, and must not be found so after. Where memory never faults, the blocks that it only reads are summed up as a
/// whole, because what is written there beside its operands would be lost; and it gets access to the blocks that it
/// declares and to no others (`memory_space::guard`).
///
/// A launch that was made within it, in the body of `stream::call`, is checked by itself; the outer one then is not.
class launch_check : private launch_order::turn {
 public:
  /// Waits for its turn.
  /// @param admitted  The launch.
  /// @param on        Where it is going to be. Outlives this.
  /// @param touched   That it may touch.
  /// @param complete  It touches nothing else, so that what it reads is not reached in another way.
  /// @param copies    It is the library's own copy or fill, which does what it says.
  /// @param sliced    Where it is a slice of a launch: the operands of the whole launch.
  /// @errors          Those of the device. Then nothing has changed.
  launch_check(arena_back& holder, launch_order& one_at_a_time, std::pair<launch_id, stream_id> admitted,
               device_queue& on, std::string_view launch_name, std::span<const named_operand> operands,
               std::vector<block_access> touched, bool complete, bool copies, std::span<const byte_interval> sliced);
  ~launch_check() override;
  launch_check(const launch_check&) = delete;
  launch_check& operator=(const launch_check&) = delete;

  /// All of it was given to the device. Waits until it has run.
  /// @errors  `status::wrong_declaration` where it did what it does not declare; `status::device_failure`, with its
  ///          name, where it failed.
  void finish();

 private:
  static constexpr std::size_t piece = std::size_t{1} << 20;   // of what is read back at a time
  static constexpr std::size_t summed = std::size_t{1} << 16;  // bytes for each sum
  /// What is to be overwritten, before: no number in any floating-point format, and not what new memory is filled with,
  /// which a launch may well copy.
  static constexpr std::uint32_t mark = 0xfff3fff9;
  static constexpr std::size_t none = static_cast<std::size_t>(-1);
  static constexpr std::size_t another_slice = none - 1;  // has it

  struct watched {
    byte_interval where{};
    std::size_t operand = none;
    std::vector<std::uint64_t> sums{};
  };
  struct overwritten {
    byte_interval where{};
    std::size_t operand = none;
    std::vector<std::byte> before{};
  };
  using visitor = std::function<void(std::uint64_t at, std::span<const std::byte> bytes_there)>;

  void pause() override;
  void go_on() override;
  /// Waits for what was enqueued. @returns  How it failed, for people.
  std::optional<error> settle() noexcept;
  [[nodiscard]] std::vector<byte_interval> intervals(bool (*wanted)(access)) const;

  // What is only read.
  void note_read();
  /// What belongs to other slices, as far as it is there.
  void note_other_slices(std::span<const byte_interval> sliced);
  [[nodiscard]] std::optional<error> written_though_read();
  [[nodiscard]] std::vector<std::uint64_t> sums_of(byte_interval where);

  // What is overwritten.
  void note_overwritten();
  /// The launch does not run after all.
  void restore() noexcept;
  /// Elements have four bytes, as a rule. Two that follow each other cannot be there by chance, nor can the first or
  /// the last one, which are what is forgotten most often.
  [[nodiscard]] std::optional<error> left_unwritten();

  [[nodiscard]] std::byte* here(std::uint64_t offset) const { return back_.memory().base() + offset; }
  void for_each_piece(byte_interval where, const visitor& visit);
  /// An operand, for people.
  [[nodiscard]] std::string text_of(std::size_t i) const;
  /// A part of an operand.
  [[nodiscard]] std::string text_of(byte_interval part, std::size_t of) const;
  [[nodiscard]] std::string address(std::uint64_t offset) const;

  arena_back& back_;
  launch_order& order_;
  launch_order::interruption interrupted_;
  device_queue& queue_;
  std::string name_;
  std::vector<named_operand> operands_;
  std::vector<block_access> blocks_;
  access_for access_;
  kept_on_device kept_;
  std::vector<watched> watched_{};
  std::vector<overwritten> overwritten_{};
  bool interrupted_once_ = false;  // by a launch within it
  bool ended_ = false;
};

}  // namespace detail
}  // namespace v0
}  // namespace deepum

#ifndef DEEPUM_SEPARATE_COMPILATION
#include <deepum/arena/impl/checker.hpp>  // what it declares
#endif
