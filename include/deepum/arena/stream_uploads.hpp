#pragma once

#include <deepum/arena/stream_copies.hpp>
#include <deepum/arena/stream_launches.hpp>
#include <deepum/arena/upload_runner.hpp>
#include <deepum/arena/upload_source.hpp>
#include <deepum/units.hpp>

#include <cstddef>
#include <memory>

namespace deepum {
inline namespace v0 {
namespace detail {

/// The uploads of a stream: whole blocks are written in host memory while launches run, parts of blocks are copied by
/// launches.
///
/// `stream` documents the calls. Threads: as for its stream.
class stream_uploads {
 public:
  /// @param of, copying  Outlive it.
  stream_uploads(stream_launches& of, stream_copies& copying) : launches_(of), rooms_(of.rooms), copies_(copying) {}

  /// @param stages  The source has been read when this returns.
  /// @returns       How far the upload is; null: it is over.
  std::shared_ptr<upload_progress> upload(void* to, const upload_source& source, bytes size, bool stages);
  /// The same from memory that is guarded by page protection, if it can be; else it has been read when this returns.
  std::shared_ptr<upload_progress> upload_guarded(void* to, const void* from, bytes size);
  /// Whether a copy of so many bytes goes this way, as far as the destination says.
  [[nodiscard]] bool is_worth(const void* to, bytes size) const;
  /// Waits for all uploads of the stream. @errors  That of a device that has failed.
  void await();
  /// The stream ends. Never throws.
  void end() noexcept;

 private:
  /// Copies a part by a launch.
  void copy(std::byte* to, const upload_source& source, bytes skip, bytes size);
  [[nodiscard]] bool by_launches() const;

  stream_launches& launches_;
  arena_rooms& rooms_;
  stream_copies& copies_;
  bool used_ = false;
};

}  // namespace detail
}  // namespace v0
}  // namespace deepum

#ifndef DEEPUM_SEPARATE_COMPILATION
#include <deepum/arena/impl/stream_uploads.hpp>  // what it declares
#endif
