#pragma once

#include <deepum/arena/enqueuing.hpp>
#include <deepum/arena/stream_uploads.hpp>
#include <deepum/error.hpp>
#include <deepum/separate.hpp>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace deepum {
inline namespace v0 {
namespace detail {

DEEPUM_SEPARATE std::shared_ptr<upload_progress> stream_uploads::upload(void* to, const upload_source& source,
                                                                        bytes size, bool stages) {
  if (launches_.recorded || launches_.queue.capturing()) {
    throw error(status::unsupported,
                "an upload while its stream is captured: a graph cannot record that the host writes; upload before or "
                "after the graph");
  }
  if (size.count == 0) {
    return nullptr;
  }
  if (!rooms_.front.contains(to)) {
    throw error(status::foreign_pointer,
                "an upload of " + std::to_string(size.count) + " bytes to an address that is not of this arena");
  }
  auto* const first = static_cast<std::byte*>(to);
  const byte_span span = rooms_.front.used_by_host(to, size, access::overwrite);
  const block_range whole = by_launches() ? block_range{} : rooms_.front.alone_in(span);
  if (whole.empty()) {
    copy(first, source, {}, size);
    return nullptr;
  }
  const block_grid grid = rooms_.back.grid();
  const bytes begin = std::max(span.offset, grid.offset_of(whole.first));
  const bytes end = std::min(span.offset + size, grid.block() * whole.end_value());
  used_ = true;
  std::shared_ptr<upload_progress> progress = rooms_.uploads().begin(
      launches_.id, {.blocks = whole, .span = {begin, end - begin}, .skip = begin - span.offset}, source, stages);
  copy(first, source, {}, begin - span.offset);
  copy(first + (end - span.offset).count, source, end - span.offset, span.offset + size - end);
  if (stages) {
    rooms_.uploads().await_read(*progress);
  }
  return progress;
}

DEEPUM_SEPARATE std::shared_ptr<upload_progress> stream_uploads::upload_guarded(void* to, const void* from,
                                                                                bytes size) {
  const bool worth_it = !by_launches() && rooms_.front.contains(to) && rooms_.uploads().has_threads();
  std::shared_ptr<source_guard> guard = worth_it ? source_guard::protect(from, size) : nullptr;
  const bool guarded = guard != nullptr;
  return upload(to, upload_source(from, std::move(guard)), size, !guarded);
}

DEEPUM_SEPARATE bool stream_uploads::is_worth(const void* to, bytes size) const {
  constexpr bytes least{std::uint64_t{8} << 20U};  // what is smaller, the runtime copies as fast
  return size >= least && size.count >= 2 * rooms_.back.block().count && !by_launches() && !launches_.recorded &&
         !launches_.queue.capturing() && rooms_.front.contains(to);
}

DEEPUM_SEPARATE void stream_uploads::await() {
  if (used_) {
    rooms_.uploads().await(launches_.id);
    used_ = false;
  }
}

DEEPUM_SEPARATE void stream_uploads::end() noexcept {
  try {
    await();
  } catch (...) {
    rooms_.uploads().abandon(launches_.id);
  }
}

DEEPUM_SEPARATE void stream_uploads::copy(std::byte* to, const upload_source& source, bytes skip, bytes size) {
  if (size.count == 0) {
    return;
  }
  if (source.is_memory()) {
    copies_.copy(to, source.memory() + skip.count, size);
    return;
  }
  constexpr bytes most{std::uint64_t{64} << 20U};
  std::vector<std::byte> part(std::min(size, most).count);
  for (bytes done{}; done < size;) {
    const bytes now = std::min(size - done, most);
    if (const std::string failure = source.read(part.data(), skip + done, now); !failure.empty()) {
      throw error(status::io_failure, "an upload: " + failure);
    }
    copies_.copy(to + done.count, part.data(), now);
    done += now;
  }
}

DEEPUM_SEPARATE bool stream_uploads::by_launches() const {
  // Checked mode runs launches one at a time and looks at what they write; what a body of `call` uploads might wait for
  // the launch that it belongs to.
  return rooms_.order != nullptr || rooms_.fills != nullptr || enqueuing::count(&rooms_.back) != 0;
}

}  // namespace detail
}  // namespace v0
}  // namespace deepum
