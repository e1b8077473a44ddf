#pragma once

#include <deepum/arena/source_guard.hpp>
#include <deepum/core/launch.hpp>
#include <deepum/units.hpp>

#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <system_error>
#include <utility>

namespace deepum {
inline namespace v0 {
namespace detail {

/// Where the bytes of an upload come from: memory of the program, or a file.
class upload_source {
 public:
  /// @param memory  Null: the program writes by itself.
  explicit upload_source(const void* memory) : memory_(static_cast<const std::byte*>(memory)) {}
  /// @param keeper  What keeps the memory as it is until it was read.
  upload_source(const void* memory, std::shared_ptr<source_guard> keeper)
      : memory_(static_cast<const std::byte*>(memory)),
        guard_(std::move(keeper)) {}
  /// @param descriptor  Of a file that can be read at any place.
  upload_source(int descriptor, std::uint64_t begin) : file_(descriptor), begin_(begin) {}

  [[nodiscard]] bool is_memory() const { return memory_ != nullptr; }
  [[nodiscard]] const std::byte* memory() const { return memory_; }

  /// Copies bytes. Threads: any number.
  /// @param skip  Bytes before them.
  /// @returns     Why that failed; empty: it did not.
  [[nodiscard]] std::string read(std::byte* to, bytes skip, bytes size) const {
    if (guard_) {
      return read_guarded(to, skip, size);
    }
    if (is_memory()) {
      std::memcpy(to, memory_ + skip.count, size.count);
      return {};
    }
    for (std::uint64_t done = 0; done != size.count;) {
      const std::uint64_t at = begin_ + skip.count + done;
      const ssize_t got =
          ::pread(file_, to + done, static_cast<std::size_t>(std::min<std::uint64_t>(size.count - done, most_at_once)),
                  static_cast<off_t>(at));
      if (got < 0 && errno == EINTR) {
        continue;
      }
      if (got < 0) {
        return "file " + std::to_string(file_) + " cannot be read at byte " + std::to_string(at) + ": " +
               std::generic_category().message(errno);
      }
      if (got == 0) {
        return "file " + std::to_string(file_) + " ends at byte " + std::to_string(at);
      }
      done += static_cast<std::uint64_t>(got);
    }
    return {};
  }

  /// All of it has been read.
  void end() const {
    if (guard_) {
      guard_->release();
    }
  }

 private:
  /// By the kernel, since the program may give the memory back, which it is not kept from.
  [[nodiscard]] std::string read_guarded(std::byte* to, bytes skip, bytes size) const {
    guard_->read_ends(to, skip, size);
    const auto [begin, pages] = guard_->in_pages(skip, size);
    std::byte* const target = to + (begin - std::min(begin, skip)).count;
    for (std::uint64_t done = 0; done != pages.count;) {
      const iovec into{target + done, static_cast<std::size_t>(pages.count - done)};
      const iovec from{const_cast<std::byte*>(memory_) + begin.count + done,
                       static_cast<std::size_t>(pages.count - done)};
      const ssize_t got = ::process_vm_readv(::getpid(), &into, 1, &from, 1, 0);
      if (got < 0 && (errno == ENOSYS || errno == EPERM)) {  // a sandbox forbids it
        std::memcpy(target + done, memory_ + begin.count + done, pages.count - done);
        return {};
      }
      if (got <= 0) {
        return std::string("its memory cannot be read any more: ") + std::generic_category().message(errno);
      }
      done += static_cast<std::uint64_t>(got);
    }
    return {};
  }

  static constexpr std::uint64_t most_at_once = std::uint64_t{1} << 30U;

  const std::byte* memory_ = nullptr;
  int file_ = -1;
  std::uint64_t begin_ = 0;
  std::shared_ptr<source_guard> guard_{};
};

/// How far an upload is. Threads: any.
struct upload_progress {
  launch_id id{};                    ///< its number among the launches
  std::atomic<bool> read{false};     ///< the source is not needed any more
  std::atomic<bool> written{false};  ///< all blocks have their contents, or will not get them
  std::atomic<bool> failed{false};   ///< some will not
};

}  // namespace detail
}  // namespace v0
}  // namespace deepum
