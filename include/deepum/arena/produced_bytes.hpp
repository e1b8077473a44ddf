#pragma once

#include <deepum/arena/rooms.hpp>
#include <deepum/arena/upload_runner.hpp>
#include <deepum/core/launch.hpp>
#include <deepum/units.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

namespace deepum {
inline namespace v0 {
namespace detail {

/// Bytes of an arena that the program writes in place and gives away from the front, block by block: what
/// `arena::stream_in` is, whatever the memory kind. Parts of blocks at both ends are views of the host until then.
///
/// Threads: one at a time.
class produced_bytes {
 public:
  /// Waits until all of it may be written.
  /// @errors  Those of `arena::begin_host_access` and of `upload_runner::await_writable`.
  produced_bytes(arena_rooms& of, void* to, bytes asked);
  /// What was not committed has no contents.
  ~produced_bytes();
  produced_bytes(const produced_bytes&) = delete;
  produced_bytes& operator=(const produced_bytes&) = delete;

  [[nodiscard]] std::byte* begin() const { return begin_; }
  /// The bytes up to there have been written, and are not touched any more.
  void commit(bytes up_to);

 private:
  struct part {
    std::byte* address = nullptr;  // in the arena
    bytes size{};
    access mode = access::update;
  };

  void view(std::optional<part>& of, std::byte* address, bytes size, access mode);
  void end(std::optional<part>& of);

  arena_rooms& rooms_;
  std::byte* begin_ = nullptr;
  bytes size_;
  bytes offset_{};  // in the arena, of the whole blocks
  bytes head_{};    // before them
  bytes whole_{};   // of them
  std::optional<part> first_{};
  std::optional<part> last_{};
  std::shared_ptr<upload_runner::produced> blocks_{};
  std::uint32_t count_ = 0;
};

}  // namespace detail
}  // namespace v0
}  // namespace deepum

#ifndef DEEPUM_SEPARATE_COMPILATION
#include <deepum/arena/impl/produced_bytes.hpp>  // what it declares
#endif
