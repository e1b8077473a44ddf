#pragma once

#include <deepum/arena/produced_bytes.hpp>
#include <deepum/separate.hpp>

#include <algorithm>
#include <optional>
#include <string>

namespace deepum {
inline namespace v0 {
namespace detail {

DEEPUM_SEPARATE produced_bytes::produced_bytes(arena_rooms& of, void* to, bytes asked) : rooms_(of), size_(asked) {
  if (size_.count == 0) {
    return;
  }
  auto* const at = static_cast<std::byte*>(to);
  const byte_span span = rooms_.front.used_by_host(to, size_, access::overwrite);
  const block_range whole =
      rooms_.order != nullptr || rooms_.fills != nullptr ? block_range{} : rooms_.front.alone_in(span);
  if (whole.empty()) {
    view(first_, at, size_, access::overwrite);
    return;
  }
  const block_grid grid = rooms_.back.grid();
  const bytes begin = std::max(span.offset, grid.offset_of(whole.first));
  const bytes up_to = std::min(span.offset + size_, grid.block() * whole.end_value());
  offset_ = begin;
  head_ = begin - span.offset;
  whole_ = up_to - begin;
  count_ = whole.count;
  try {
    view(first_, at, head_, access::update);
    view(last_, at + (head_ + whole_).count, size_ - head_ - whole_, access::update);
    blocks_ = rooms_.uploads().begin_produced({.blocks = whole, .span = {begin, whole_}});
    std::byte* const found = rooms_.uploads().await_writable(*blocks_);
    begin_ = found - head_.count;
  } catch (...) {
    if (blocks_) {
      rooms_.uploads().written(*blocks_, count_, "arena::stream_in could not begin");
    }
    end(first_);
    end(last_);
    throw;
  }
}

DEEPUM_SEPARATE produced_bytes::~produced_bytes() {
  if (blocks_) {
    rooms_.uploads().written(*blocks_, count_, "arena::stream_in ended before it was committed");
  }
  end(first_);
  end(last_);
}

DEEPUM_SEPARATE void produced_bytes::commit(bytes up_to) {
  if (up_to >= head_ && blocks_) {
    end(first_);
    const bytes ready = std::min(up_to - head_, whole_);
    const bytes block = rooms_.back.block();
    rooms_.uploads().written(
        *blocks_, ready == whole_ ? count_ : static_cast<std::uint32_t>((offset_ + ready) / block - offset_ / block),
        {});
  }
  if (up_to >= size_) {
    end(first_);
    end(last_);
  }
}

DEEPUM_SEPARATE void produced_bytes::view(std::optional<part>& of, std::byte* address, bytes size, access mode) {
  if (size.count != 0) {
    std::byte* const found = rooms_.begin_host_access(address, size, mode);
    of = part{address, size, mode};
    begin_ = begin_ == nullptr ? found : begin_;
  }
}

DEEPUM_SEPARATE void produced_bytes::end(std::optional<part>& of) {
  if (of && !rooms_.back.faults()) {
    rooms_.on_host.give_back(rooms_.front.span_at(of->address, of->size), of->mode);
  }
  of.reset();
}

}  // namespace detail
}  // namespace v0
}  // namespace deepum
