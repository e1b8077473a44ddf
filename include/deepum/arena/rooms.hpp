#pragma once

#include <deepum/arena/back.hpp>
#include <deepum/arena/front.hpp>
#include <deepum/arena/host_contents.hpp>
#include <deepum/arena/host_guard.hpp>
#include <deepum/arena/launch_order.hpp>
#include <deepum/arena/lending.hpp>
#include <deepum/arena/lending_arenas.hpp>
#include <deepum/arena/new_memory.hpp>
#include <deepum/arena/submission.hpp>
#include <deepum/arena/upload_options.hpp>
#include <deepum/arena/upload_runner.hpp>
#include <deepum/engine/engine_options.hpp>
#include <deepum/policy/policy.hpp>

#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>

namespace deepum {
inline namespace v0 {
namespace detail {

/// What stands behind an arena, whatever its memory kind: one allocation front, and one back for the device that runs
/// its launches.
struct arena_rooms {
  struct modes {
    bool checked = false;
    bool zero_new = false;
    upload_options uploads{};
  };

  /// @param space, queues  Outlive it.
  /// @param on             The device, as arenas compare it.
  arena_rooms(memory_space& space, device_queues& queues, std::unique_ptr<policy> chosen, engine_options with,
              modes chosen_modes, device_key on);
  ~arena_rooms();
  arena_rooms(const arena_rooms&) = delete;
  arena_rooms& operator=(const arena_rooms&) = delete;

  /// For memory that never faults: launches of other arenas may use it, and in checked mode the host may not use the
  /// device's addresses. Called once, before anything is allocated.
  void lend_and_guard();

  /// See `arena::begin_host_access`. @param size  Not 0.
  [[nodiscard]] std::byte* begin_host_access(const void* p, bytes size, access mode);
  /// What carries out uploads: made with the first one. Threads: any.
  [[nodiscard]] upload_runner& uploads();
  /// Ends it. All streams are over.
  void end_uploads() { uploads_.reset(); }
  /// This arena, as others know it; nullptr where memory faults.
  [[nodiscard]] const lending_arena* lends_as() const { return lends.get(); }

  arena_back back;
  const device_key device;
  std::unique_ptr<launch_order> order;  // in which launches run, in checked mode; else null
  std::optional<host_guard> guard{};    // likewise, on memory that never faults
  host_contents on_host;
  std::unique_ptr<new_memory> fills;  // where new memory is filled; else null
  allocation_front front;
  submission launches;
  std::unique_ptr<lending_arena> lends{};  // it offers all of the above to other arenas

 private:
  const upload_options upload_as_;
  std::once_flag uploads_made_{};
  std::unique_ptr<upload_runner> uploads_{};
};

}  // namespace detail
}  // namespace v0
}  // namespace deepum

#ifndef DEEPUM_SEPARATE_COMPILATION
#include <deepum/arena/impl/rooms.hpp>  // what it declares
#endif
