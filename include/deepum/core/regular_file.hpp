#pragma once

#include <deepum/error.hpp>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace deepum {
inline namespace v0 {
namespace detail {

/// What a path leads to, for messages: nullptr for a regular file.
[[nodiscard]] inline const char* why_not_regular(const struct stat& s) {
  switch (s.st_mode & S_IFMT) {
    case S_IFREG:
      return nullptr;
    case S_IFDIR:
      return "a folder";
    case S_IFLNK:
      return "a symbolic link";
    case S_IFIFO:
      return "a FIFO";
    case S_IFSOCK:
      return "a socket";
    case S_IFCHR:
    case S_IFBLK:
      return "a device";
    default:
      return "something else";
  }
}

/// A file descriptor that is closed in the end.
class open_file {
 public:
  explicit open_file(int descriptor) : descriptor_(descriptor) {}
  ~open_file() { (void)close(); }
  open_file(const open_file&) = delete;
  open_file& operator=(const open_file&) = delete;

  [[nodiscard]] explicit operator bool() const { return descriptor_ >= 0; }
  [[nodiscard]] int descriptor() const { return descriptor_; }
  /// @returns  Whether that worked; errno says why not.
  bool close() { return descriptor_ < 0 || ::close(std::exchange(descriptor_, -1)) == 0; }

 private:
  int descriptor_;
};

/// Writes all of it. @returns  Whether that worked; errno says why not.
[[nodiscard]] inline bool write_all(int descriptor, std::span<const std::byte> contents) {
  while (!contents.empty()) {
    const ::ssize_t done = ::write(descriptor, contents.data(), contents.size());
    if (done < 0 && errno != EINTR) {
      return false;
    }
    contents = contents.subspan(static_cast<std::size_t>(done < 0 ? 0 : done));
  }
  return true;
}

/// The folder of a path, with the slash; nothing where it names none.
[[nodiscard]] inline std::string folder_of(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  return slash == std::string::npos ? "" : path.substr(0, slash + 1);
}

/// Why `replace_regular_file` would fail, as far as that can be told without writing; nothing where it would not.
[[nodiscard]] inline std::optional<std::string> why_not_replaceable(const std::string& path) {
  struct stat there {};
  if (::lstat(path.c_str(), &there) == 0) {
    if (const char* const what = why_not_regular(there)) {
      return std::string("it is ") + what + ", not a regular file; name another one";
    }
  }
  const std::string folder = folder_of(path);
  if (::access(folder.empty() ? "." : folder.c_str(), W_OK | X_OK) != 0) {
    return std::strerror(errno);
  }
  return std::nullopt;
}

}  // namespace detail

/// Replaces a regular file as a whole, or makes it: who reads it finds the old contents or the new ones, never a part,
/// also after a crash.
///
/// The contents are written to a new file in the same folder first, whose name cannot be guessed. A symbolic link
/// is not followed, and nothing that is no regular file is replaced.
///
/// Threads: any, also with the same path: the last one counts.
/// @errors  `status::io_failure`; then the file is as it was.
inline void replace_regular_file(const std::string& path, std::span<const std::byte> contents) {
  const auto fail = [&](const std::string& why, const char* api, int code) {
    throw error(status::io_failure, path + ": cannot be written: " + why, api, code);
  };
  struct stat there {};
  const bool exists = ::lstat(path.c_str(), &there) == 0;
  if (exists) {
    if (const char* const what = detail::why_not_regular(there)) {
      fail(std::string("it is ") + what + ", not a regular file; name another one", "lstat", EINVAL);
    }
  }
  const std::string folder = detail::folder_of(path);
  std::random_device random;
  std::string part;
  int descriptor = -1;
  for (int attempt = 0; attempt < 100 && descriptor < 0; ++attempt) {
    char name[48];
    std::snprintf(name, sizeof name, ".deepum-%08x%08x.part", static_cast<unsigned>(random()),
                  static_cast<unsigned>(random()));
    part = folder + name;
    descriptor = ::open(part.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (descriptor < 0 && errno != EEXIST && errno != EINTR) {
      break;
    }
  }
  if (descriptor < 0) {
    const int code = errno;
    fail(std::strerror(code), "open", code);
  }
  detail::open_file file(descriptor);
  const auto fail_and_remove = [&](const char* api) {
    const int code = errno;
    (void)::unlink(part.c_str());
    fail(std::strerror(code), api, code);
  };
  if (!detail::write_all(file.descriptor(), contents)) {
    fail_and_remove("write");
  }
  if (exists) {
    (void)::fchmod(file.descriptor(), there.st_mode & 0777U);
  }
  if (::fsync(file.descriptor()) != 0 && errno != EINVAL && errno != ENOSYS) {  // some file systems have none
    fail_and_remove("fsync");
  }
  if (!file.close()) {
    fail_and_remove("close");
  }
  if (::rename(part.c_str(), path.c_str()) != 0) {
    fail_and_remove("rename");
  }
}

/// The contents of a regular file. Never waits for a writer, as a FIFO would make it, and opens no device.
/// @param longest  Bytes to read at most.
/// @returns        As many, or one more where the file is longer.
/// @errors         `status::io_failure`.
[[nodiscard]] inline std::vector<std::byte> read_regular_file(const std::string& path, std::size_t longest) {
  const auto fail = [&](const std::string& why, const char* api, int code) {
    throw error(status::io_failure, path + ": cannot be read: " + why, api, code);
  };
  const auto check = [&](int result, const struct stat& s, const char* api) {
    if (result != 0) {
      const int code = errno;
      fail(std::strerror(code), api, code);
    }
    if (const char* const what = detail::why_not_regular(s)) {
      fail(std::string("it is ") + what + ", not a regular file", api, EINVAL);
    }
  };
  struct stat there {};
  check(::stat(path.c_str(), &there), there, "stat");  // before it is opened, which does things to some devices
  const detail::open_file file(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  if (!file) {
    const int code = errno;
    fail(std::strerror(code), "open", code);
  }
  check(::fstat(file.descriptor(), &there), there, "fstat");  // it may be another one now
  constexpr std::size_t step = std::size_t{1} << 20U;
  std::vector<std::byte> contents;
  while (contents.size() <= longest) {
    const std::size_t had = contents.size();
    contents.resize(had + std::min(step, longest + 1 - had));
    const ::ssize_t got = ::read(file.descriptor(), contents.data() + had, contents.size() - had);
    if (got < 0 && errno != EINTR) {
      const int code = errno;
      fail(std::strerror(code), "read", code);
    }
    contents.resize(had + static_cast<std::size_t>(got < 0 ? 0 : got));
    if (got == 0) {
      break;
    }
  }
  return contents;
}

}  // namespace v0
}  // namespace deepum
