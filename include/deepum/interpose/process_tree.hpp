#pragma once

#include <deepum/units.hpp>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <string>

namespace deepum {
inline namespace v0 {
namespace interpose {

/// The processes that share one budget, in a small file that all of them map: a place for each that uses a device, with
/// the memory that it may take.
///
/// A process that ends without a word loses its place when another one looks. Threads and processes: any.
class process_tree {
 public:
  static constexpr std::size_t most_members = 256;

  /// Maps a file that `make` has made. Where that fails, or there is none, no other process is known.
  explicit process_tree(const std::string& path) {
    const int file = path.empty() ? -1 : ::open(path.c_str(), O_RDWR | O_CLOEXEC);
    if (file < 0) {
      return;
    }
    struct stat about {};
    void* const mapped = ::fstat(file, &about) == 0 && about.st_size == static_cast<off_t>(sizeof(page))
                             ? ::mmap(nullptr, sizeof(page), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0)
                             : MAP_FAILED;
    ::close(file);
    shared_ = mapped == MAP_FAILED ? nullptr : static_cast<page*>(mapped);
  }
  ~process_tree() {
    if (shared_ != nullptr) {
      ::munmap(shared_, sizeof(page));
    }
  }
  process_tree(const process_tree&) = delete;
  process_tree& operator=(const process_tree&) = delete;

  /// Makes the file, for this user alone. @returns  Whether that could be done.
  [[nodiscard]] static bool make(const std::string& path) {
    const int file = ::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    const bool made = file >= 0 && ::ftruncate(file, sizeof(page)) == 0;
    if (file >= 0) {
      ::close(file);
    }
    return made;
  }

  /// A process begins to use a device. @param device  The same number for the same device in all processes.
  /// @returns  Its place; `most_members` where there is none left, or no file.
  [[nodiscard]] std::size_t join(pid_t process, std::uint64_t device, bytes memory) {
    for (std::size_t i = 0; shared_ != nullptr && i < most_members; ++i) {
      std::int64_t none = 0;
      if (shared_->members[i].process.compare_exchange_strong(none, process)) {
        shared_->members[i].memory.store(memory.count);
        shared_->members[i].device.store(device);
        shared_->joined.fetch_add(1);
        return i;
      }
    }
    return most_members;
  }
  /// Gives a place back.
  void leave(std::size_t place) {
    if (shared_ != nullptr && place < most_members) {
      shared_->members[place].process.store(0);
    }
  }

  /// Who uses a device now.
  struct users {
    std::uint32_t count = 0;  ///< processes, those included that ask
    bytes memory{};           ///< of all of them
  };
  [[nodiscard]] users users_of(std::uint64_t device) {
    users found;
    for_each_living([&](member& m) {
      if (m.device.load() == device) {
        ++found.count;
        found.memory += bytes{m.memory.load()};
      }
    });
    return found;
  }
  /// Memory that all processes may take, of all devices.
  [[nodiscard]] bytes memory() {
    bytes all{};
    for_each_living([&](const member& m) { all += bytes{m.memory.load()}; });
    return all;
  }
  /// How often a process has begun to use a device since the file was made.
  [[nodiscard]] std::uint64_t joined() const { return shared_ == nullptr ? 0 : shared_->joined.load(); }

 private:
  struct member {
    std::atomic<std::int64_t> process;  // 0: none
    std::atomic<std::uint64_t> device;
    std::atomic<std::uint64_t> memory;
  };
  struct page {  // all zeroes: none
    std::atomic<std::uint64_t> joined;
    member members[most_members];
  };
  static_assert(std::atomic<std::uint64_t>::is_always_lock_free, "it is shared between processes");

  template <class F>
  void for_each_living(F&& f) {
    for (std::size_t i = 0; shared_ != nullptr && i < most_members; ++i) {
      member& m = shared_->members[i];
      std::int64_t process = m.process.load();
      if (process == 0) {
        continue;
      }
      if (::kill(static_cast<pid_t>(process), 0) != 0 && errno == ESRCH) {
        m.process.compare_exchange_strong(process, 0);
      } else {
        f(m);
      }
    }
  }

  page* shared_ = nullptr;
};

}  // namespace interpose
}  // namespace v0
}  // namespace deepum
