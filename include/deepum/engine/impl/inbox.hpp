#pragma once

#include <deepum/core/block.hpp>
#include <deepum/core/launch.hpp>
#include <deepum/core/plan.hpp>
#include <deepum/engine/inbox.hpp>
#include <deepum/engine/memory_space.hpp>
#include <deepum/separate.hpp>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

namespace deepum {
inline namespace v0 {
namespace detail {

template <class Made, class Note>
void inbox::push(Made&& m, Note&& note) {
  bool first = false;
  {
    const std::lock_guard lock(mutex_);
    first = messages_.empty();
    note(messages_.emplace_back(std::forward<Made>(m)));
    crowded_.store(++reported_ >= most_messages, std::memory_order_relaxed);
  }
  if (first) {
    memory_.notify();
  }
}

DEEPUM_SEPARATE void inbox::push(message&& m) {
  push(std::move(m), [this](const message& put) {
    discards_ = discards_ || asks_for_discard(put);
    streams_closing_ += put.what == message::kind::close_stream ? 1 : 0;
  });
}

DEEPUM_SEPARATE launch_id inbox::push_launch(launch_record&& record) {
  launch_id id{};
  push(std::move(record), [&](message& put) {
    id = launch_id{last_launch_.load(std::memory_order_relaxed) + 1};
    put.record.id = id;
    if (put.record.upload) {
      launches_ask_.fetch_add(one_upload, std::memory_order_relaxed);
    }
    last_launch_.store(id.value, std::memory_order_release);
  });
  return id;
}

DEEPUM_SEPARATE bool inbox::push_live(block_range range) {
  message m{message::kind::live};
  m.range = range;
  bool at_once = false;
  push(std::move(m), [&](const message& put) {
    at_once = memory_.capabilities().faults && !discards_ && put.range.count <= spare_;
    spare_ -= at_once ? put.range.count : 0;
  });
  return at_once;
}

DEEPUM_SEPARATE void inbox::take(std::vector<message>& out) {
  const std::lock_guard lock(mutex_);
  std::swap(messages_, out);
}

DEEPUM_SEPARATE void inbox::pumped() {
  const std::lock_guard lock(mutex_);
  reported_ = 0;
  crowded_.store(false, std::memory_order_relaxed);
}

DEEPUM_SEPARATE std::optional<stream_id> inbox::take_stream_number(std::uint32_t closing) {
  const std::lock_guard lock(mutex_);
  if (!free_streams_.empty()) {
    const stream_id number = free_streams_.back();
    free_streams_.pop_back();
    return number;
  }
  if (next_stream_ == most_streams || streams_closing_ >= closing) {
    return std::nullopt;
  }
  return stream_id{static_cast<std::uint16_t>(next_stream_++)};
}

DEEPUM_SEPARATE void inbox::give_back(stream_id number) {
  const std::lock_guard lock(mutex_);
  free_streams_.push_back(number);
  --streams_closing_;
}

DEEPUM_SEPARATE bool inbox::announce_discards() {
  const std::lock_guard lock(mutex_);
  return std::exchange(discards_, true);
}

DEEPUM_SEPARATE void inbox::no_discards() {
  const std::lock_guard lock(mutex_);
  discards_ = discards_ && std::any_of(messages_.begin(), messages_.end(), asks_for_discard);
}

DEEPUM_SEPARATE void inbox::set_spare(std::uint64_t live, std::uint64_t budget) {
  const std::lock_guard lock(mutex_);
  for (const message& m : messages_) {
    live += m.what == message::kind::live ? m.range.count : 0;
  }
  spare_ = budget - std::min(live, budget);
}

DEEPUM_SEPARATE bool inbox::asks_for_discard(const message& m) {
  return m.what == message::kind::request && std::get_if<transfer>(&m.request) != nullptr &&
         std::get<transfer>(m.request).forgets();
}

}  // namespace detail
}  // namespace v0
}  // namespace deepum
