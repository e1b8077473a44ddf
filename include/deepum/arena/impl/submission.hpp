#pragma once

#include <deepum/arena/submission.hpp>
#include <deepum/error.hpp>
#include <deepum/separate.hpp>

#include <optional>
#include <utility>

namespace deepum {
inline namespace v0 {
namespace detail {

DEEPUM_SEPARATE void submission::name_operands(std::string_view launch, std::span<const operand> operands,
                                               std::vector<named_operand>& out) {
  bool stray = false;
  {
    const std::lock_guard lock(front_.mutex());
    stray = name(launch, operands, out);
  }
  if (stray) {
    log_stray(launch);
  }
}

DEEPUM_SEPARATE void submission::check_operand(std::string_view launch, const operand& o) {
  std::vector<named_operand> named;
  name_operands(launch, {&o, 1}, named);
  const std::lock_guard lock(front_.mutex());
  given_up_.check_reads(launch, named);
}

DEEPUM_SEPARATE void submission::refuse_other_arena(std::string_view launch, const char* what, std::size_t number,
                                                    const void* p) const {
  if (other_arena(p) != nullptr) {
    throw uses_other_arena(launch, std::string(what) + " " + std::to_string(number), p);
  }
}

DEEPUM_SEPARATE void submission::declare(std::span<const operand> operands, std::vector<block_access>& out) {
  std::vector<named_operand> named;
  name_operands("declare", operands, named);
  declare(named, out);
}

DEEPUM_SEPARATE void submission::check_recorded(std::string_view graph, std::span<const named_operand> operands) const {
  const std::lock_guard lock(front_.mutex());
  for (const named_operand& o : operands) {
    if (!front_.table().exists(o.where)) {
      throw error(status::invalid_argument, "graph '" + std::string(graph) + "' uses " + text_of(o) +
                                                " which were given back after it was recorded; record it again");
    }
  }
}

DEEPUM_SEPARATE launch_id submission::submit(launch_record&& record, std::span<const named_operand> operands) {
  back_.engine().check(record);
  back_.keep_pace();
  return report(std::unique_lock(front_.mutex()), std::move(record), operands, false);
}

DEEPUM_SEPARATE launch_id submission::submit(launch_record&& record, std::span<const operand> operands,
                                             declaration& out) {
  back_.keep_pace();
  std::unique_lock lock(front_.mutex());
  const bool stray = name(record.name, operands, out.operands);
  declare(out.operands, record.accesses);
  if (!back_.faults()) {
    out.blocks = record.accesses;  // they are waited for
  }
  if (!back_.engine().surely_fits(record)) {
    lock.unlock();  // what comes may wait for the engine
    back_.engine().check(record);
    lock.lock();
  }
  return report(std::move(lock), std::move(record), out.operands, stray);
}

DEEPUM_SEPARATE bool submission::name(std::string_view launch, std::span<const operand> operands,
                                      std::vector<named_operand>& out) {
  out.resize(operands.size());
  std::size_t count = 0;
  bool stray = false;
  for (const operand& o : operands) {
    if (o.size.count == 0) {
      continue;
    }
    const std::optional<bytes> offset = front_.offset_of(o.address);
    if (!offset) [[unlikely]] {
      refuse_other_arena(launch, "operand", static_cast<std::size_t>(&o - operands.data()) + 1, o.address);
      continue;
    }
    if (name_operand(o, *offset, front_.table(), launch, out[count])) {
      ++count;
    } else {
      stray = stray || !o.guessed;
    }
  }
  out.resize(count);
  return stray && note_name(stray_launches_, launch);
}

DEEPUM_SEPARATE void submission::log_stray(std::string_view launch) const {
  back_.log("launch '" + std::string(launch) +
            "' has a pointer argument into memory that was given back; it must not use it (logged once)");
}

DEEPUM_SEPARATE launch_id submission::report(std::unique_lock<std::mutex> lock, launch_record&& record,
                                             std::span<const named_operand> operands, bool stray) {
  if (!stray && !given_up_.is_used_by(operands)) [[likely]] {
    return back_.engine().report(std::move(record));
  }
  return report_reuse(std::move(lock), std::move(record), operands, stray);
}

DEEPUM_SEPARATE launch_id submission::report_reuse(std::unique_lock<std::mutex> lock, launch_record&& record,
                                                   std::span<const named_operand> operands, bool stray) {
  given_up_.check_reads(record.name, operands);
  if (checked_) {
    given_up_.check_updates(record.name, operands);
  }
  std::vector<liveness_change> changes;
  const std::string warning = given_up_.use_again(record.name, operands, changes);
  const std::vector<block_range> unsettled = back_.tell(changes);
  const bool reads_dead = given_up_.is_used_by(operands);
  const std::string launch = record.name;
  const launch_id made = back_.engine().report(std::move(record));
  lock.unlock();
  if (!back_.faults() && reads_dead) {
    back_.engine().catch_up();  // blocks of which nothing is in use have to be there, too
  }
  if (stray) {
    log_stray(launch);
  }
  if (!warning.empty()) {
    back_.log(warning);
  }
  back_.settle(unsettled);
  return made;
}

}  // namespace detail
}  // namespace v0
}  // namespace deepum
