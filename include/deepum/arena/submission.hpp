#pragma once

#include <deepum/arena/allocation_table.hpp>
#include <deepum/arena/back.hpp>
#include <deepum/arena/declaration.hpp>
#include <deepum/arena/front.hpp>
#include <deepum/arena/given_up.hpp>
#include <deepum/arena/lending_arenas.hpp>
#include <deepum/core/launch.hpp>
#include <deepum/operand.hpp>
#include <deepum/units.hpp>

#include <cstddef>
#include <functional>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace deepum {
inline namespace v0 {
namespace detail {

/// How a launch becomes known: its operands are named, what they mean is checked, and it is reported to the engine, in
/// the order of submission over all streams and facts.
///
/// Threads: every call, any thread.
class submission {
 public:
  /// @param owner    Outlives it.
  /// @param checked  The arena is in checked mode.
  submission(arena_back& of, allocation_front& owner, bool checked)
      : back_(of),
        front_(owner),
        given_up_(owner.table()),
        checked_(checked) {}

  /// The bytes that operands of one launch name. Those outside the arena are left out.
  /// @param launch  Its name, for messages.
  /// @param out     Emptied first.
  /// @errors        `status::foreign_pointer` where an operand names memory that is free, or that of another arena
  ///                which never faults, `status::invalid_argument` where it reaches past its allocation. A plain
  ///                pointer into free memory is logged once instead, and left out.
  void name_operands(std::string_view launch, std::span<const operand> operands, std::vector<named_operand>& out);
  /// Work in several launches is checked as a whole before the first of them.
  /// @errors  Those of `name_operands`; `status::invalid_argument` where it reads what was given up.
  void check_operand(std::string_view launch, const operand& o);
  /// The other arena that an address lies in, whose memory never faults; nullptr where it lies in none. No lock for
  /// memory of this arena and of the host.
  [[nodiscard]] lending_arena* other_arena(const void* p) const {
    return front_.contains(p) ? nullptr : lending_arenas::find(p);
  }
  /// @param what, number  Which of the launch's arguments or operands it is.
  /// @errors              `status::foreign_pointer` where an address lies in another arena whose memory never faults.
  void refuse_other_arena(std::string_view launch, const char* what, std::size_t number, const void* p) const;
  /// The blocks that the operands of one launch touch.
  /// @param out  Emptied first. An overwrite counts only for whole blocks that nothing else in the list touches.
  void declare(std::span<const named_operand> operands, std::vector<block_access>& out) const {
    blocks_of(operands, back_.grid(), out);
  }
  /// The same for operands that were not named before. @errors  Those of `name_operands`.
  void declare(std::span<const operand> operands, std::vector<block_access>& out);
  /// A graph's operands are as they were when it was recorded.
  /// @errors  `status::invalid_argument` where memory was given back since.
  void check_recorded(std::string_view graph, std::span<const named_operand> operands) const;

  /// Reports a launch to the engine. What it overwrites or updates is in use again, and what it reads must not have
  /// been given up. Waits for discards of its blocks that the device has, however long they take.
  /// @param record    With everything but its number.
  /// @param operands  What its accesses were made of.
  /// @returns         Its number. `arena_back::await_admission` comes next.
  /// @errors          Those of `engine::check`; `status::invalid_argument` where it reads what was given up. Then
  ///                  nothing has happened.
  launch_id submit(launch_record&& record, std::span<const named_operand> operands);
  /// The same for operands that were not named before: they are named and reported in one hold of the lock.
  /// @param record  With everything but its number and its accesses.
  /// @param out     What it declares; blocks only where memory never faults.
  /// @errors        Those of `name_operands`, too.
  launch_id submit(launch_record&& record, std::span<const operand> operands, declaration& out);

 private:
  /// See `name_operands`. Under the lock.
  /// @returns  Whether one of them is a plain pointer into free memory, and that is worth a line in the log.
  bool name(std::string_view launch, std::span<const operand> operands, std::vector<named_operand>& out);
  void log_stray(std::string_view launch) const;
  /// See `submit`. @param lock  Is given back.
  launch_id report(std::unique_lock<std::mutex> lock, launch_record&& record, std::span<const named_operand> operands,
                   bool stray);
  /// The same where it writes what was given up, or is worth a line in the log.
  launch_id report_reuse(std::unique_lock<std::mutex> lock, launch_record&& record,
                         std::span<const named_operand> operands, bool stray);

  arena_back& back_;
  allocation_front& front_;
  given_up_memory given_up_;
  const bool checked_;
  std::set<std::string, std::less<>> stray_launches_{};  // names that were logged
};

}  // namespace detail
}  // namespace v0
}  // namespace deepum

#ifndef DEEPUM_SEPARATE_COMPILATION
#include <deepum/arena/impl/submission.hpp>  // what it declares
#endif
