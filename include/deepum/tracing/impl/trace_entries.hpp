#pragma once

#include <deepum/separate.hpp>
#include <deepum/tracing/trace_entries.hpp>

namespace deepum {
inline namespace v0 {
namespace detail {

DEEPUM_SEPARATE std::uint32_t numbered_texts::number_of(std::string_view text) {
  auto known = numbers_.find(text);
  if (known == numbers_.end()) {
    if (texts_.size() == most) {
      return 0;
    }
    known = numbers_.emplace(std::string{text}, static_cast<std::uint32_t>(texts_.size())).first;
    texts_.emplace_back(text);
  }
  return known->second;
}

DEEPUM_SEPARATE void trace_entries::keep(const trace_entry& e) {
  if (ring_.size() < most_) {
    ring_.push_back(e);
    return;
  }
  trace_entry& oldest = ring_[next_];
  (void)apply(oldest, resident_before_);
  ++forgotten_;
  oldest = e;
  next_ = (next_ + 1) % ring_.size();
}

DEEPUM_SEPARATE std::uint32_t trace_entries::apply(const trace_entry& e, std::vector<bool>& resident) {
  if (e.what != trace_track::arrived && e.what != trace_track::departed) {
    return 0;
  }
  if (resident.size() < e.range.end_value()) {
    resident.resize(e.range.end_value());
  }
  const bool there = e.what == trace_track::arrived;
  const auto first = resident.begin() + e.range.begin_value();
  const auto changed = static_cast<std::uint32_t>(std::count(first, first + e.range.count, !there));
  std::fill_n(first, e.range.count, there);
  return changed;
}

}  // namespace detail
}  // namespace v0
}  // namespace deepum
