#pragma once

#include <deepum/arena/host_contents.hpp>
#include <deepum/arena/waiting.hpp>
#include <deepum/core/block.hpp>
#include <deepum/engine/upload_desk.hpp>
#include <deepum/error.hpp>
#include <deepum/separate.hpp>

#include <string>

namespace deepum {
inline namespace v0 {
namespace detail {

DEEPUM_SEPARATE std::byte* host_contents::bring(byte_span where, access mode) {
  const block_range range = back_.grid().blocks_of(where.offset, where.size);
  if (back_.faults()) {
    const block_range whole = overwritten(where, mode);
    if (!whole.empty() && back_.engine().uploads().forget(whole)) {
      back_.settle({&whole, 1});
    }
    back_.engine().host_access(range, mode);
    back_.memory().host_access(where.offset, where.size, mode);
    return back_.memory().base() + where.offset.count;
  }
  back_.engine().begin_host_access(range, mode);
  std::byte* found = nullptr;
  try {
    found = await(where, mode);
  } catch (...) {
    back_.engine().end_host_access(range, mode);
    throw;
  }
  if (guarded_) {
    back_.memory().let_host_in(range);
  }
  return found;
}

DEEPUM_SEPARATE block_range host_contents::overwritten(byte_span where, access mode) const {
  return mode == access::overwrite ? back_.grid().whole_blocks_of(where.offset, where.size) : block_range{};
}

DEEPUM_SEPARATE void host_contents::give_back(byte_span where, access mode) {
  if (back_.faults()) {
    return;
  }
  const block_range range = back_.grid().blocks_of(where.offset, where.size);
  if (guarded_) {
    back_.memory().keep_host_out(range);
  }
  back_.engine().end_host_access(range, mode);
}

DEEPUM_SEPARATE std::byte* host_contents::await(byte_span where, access mode) {
  const block_range range = back_.grid().blocks_of(where.offset, where.size);
  const auto what = [&] {
    return "the host waits for " + std::to_string(where.size.count) + " bytes at offset " +
           std::to_string(where.offset.count) +
           " of the arena, which launches in flight or an arena::hold use; synchronise with the launches, or end the "
           "hold, before the host touches them";
  };
  long_wait wait(back_.memory(), back_.log());
  const auto may_use = [&] {
    const bool may = back_.engine().host_may_use(range, mode, overwritten(where, mode));
    if (!may) {
      back_.check_device();
    }
    return may;
  };
  wait.until(may_use, what);
  const nanoseconds before = wait.lasted();
  std::byte* found = nullptr;
  const auto has_memory = [&] {
    const auto find = [&] { return (found = back_.memory().host_address(where.offset, where.size)) != nullptr; };
    if (find()) {
      return true;
    }
    if (!back_.engine().relieve_host() || wait.lasted() - before >= longest_shortage) {
      if (find()) {  // the engine has just learnt of memory that was given up
        return true;
      }
      throw error(status::out_of_host_memory, "the host has no memory for a view of " +
                                                  std::to_string(where.size.count) +
                                                  " bytes: " + back_.memory().last_failure());
    }
    back_.check_device();
    return false;
  };
  wait.until(has_memory, what);
  return found;
}

}  // namespace detail
}  // namespace v0
}  // namespace deepum
