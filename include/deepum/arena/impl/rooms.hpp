#pragma once

#include <deepum/arena/rooms.hpp>
#include <deepum/engine/upload_desk.hpp>
#include <deepum/separate.hpp>

#include <utility>

namespace deepum {
inline namespace v0 {
namespace detail {

DEEPUM_SEPARATE arena_rooms::arena_rooms(memory_space& space, device_queues& queues, std::unique_ptr<policy> chosen,
                                         engine_options with, modes chosen_modes, device_key on)
    : back(space, queues, std::move(chosen), std::move(with)),
      device(on),
      order(chosen_modes.checked ? std::make_unique<launch_order>() : nullptr),
      on_host(back, chosen_modes.checked),
      fills(chosen_modes.checked || chosen_modes.zero_new
                ? std::make_unique<new_memory>(back, on_host, chosen_modes.zero_new, order.get())
                : nullptr),
      front(back, fills.get()),
      launches(back, front, chosen_modes.checked),
      upload_as_(chosen_modes.uploads) {}

DEEPUM_SEPARATE arena_rooms::~arena_rooms() = default;

DEEPUM_SEPARATE void arena_rooms::lend_and_guard() {
  if (order) {
    back.memory().guard();
    guard.emplace(back.memory().base(), back.memory().capacity());
  }
  lends = std::make_unique<lender>(back, front, launches, fills.get(), order != nullptr, device);
}

DEEPUM_SEPARATE upload_runner& arena_rooms::uploads() {
  std::call_once(uploads_made_, [this] { uploads_ = std::make_unique<upload_runner>(back, upload_as_); });
  return *uploads_;
}

DEEPUM_SEPARATE std::byte* arena_rooms::begin_host_access(const void* p, bytes size, access mode) {
  const byte_span where = front.used_by_host(p, size, mode);
  if (uploads_) {
    const block_range range = back.grid().blocks_of(where.offset, where.size);
    uploads_->await(range);
    if (mode != access::overwrite) {
      back.engine().uploads().refuse_failed(range, "the host");
    }
  }
  if (fills && mode != access::overwrite) {
    fills->before_host(where);
  }
  std::byte* const found = on_host.bring(where, mode);
  if (fills && mode == access::overwrite) {
    fills->host_overwrites(where, found);
  }
  return found;
}

}  // namespace detail
}  // namespace v0
}  // namespace deepum
