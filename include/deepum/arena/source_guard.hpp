#pragma once

#include <deepum/units.hpp>

#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <climits>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace deepum {
inline namespace v0 {
namespace detail {

/// Keeps the source of an upload as it is by page protection, as HUM does: a store to a page of it waits until the
/// upload has read all of the source. The parts of pages at both ends, which other memory shares, are copied at once.
///
/// A handler for SIGSEGV waits in the thread that stores; every other fault goes to the handler that was there before.
/// It takes no lock and allocates nothing. Linux. System calls that are to write to guarded memory, as `read`, fail
/// with EFAULT instead. Threads: any.
class source_guard {
 public:
  /// @returns  Null where memory cannot be guarded: it has no whole page, is the stack of this thread, the kernel
  ///           refuses, a sanitizer looks at it, or too many are guarded already. Cost: 20 ms for a GiB of pages of 4
  ///           KiB, and the same again at the end.
  [[nodiscard]] static std::shared_ptr<source_guard> protect(const void* memory, bytes extent) {
    const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
    const auto from = reinterpret_cast<std::uintptr_t>(memory);
    const std::uintptr_t begin = (from + page - 1) / page * page;
    const std::uintptr_t end = (from + extent.count) / page * page;
    if (sanitized || begin >= end || lies_on_stack(begin, end)) {
      return nullptr;
    }
    install();
    table& all = the();
    const std::lock_guard lock(all.mutex);
    for (entry& e : all.entries) {
      if (e.state.load() == phase::guarded) {
        continue;
      }
      if (::mprotect(reinterpret_cast<void*>(begin), end - begin, PROT_READ) != 0) {
        give_back(all, begin, end);  // a part of it may be protected
        return nullptr;
      }
      e.begin.store(begin);
      e.end.store(end);
      e.looks.store(0);
      e.state.store(phase::guarded);
      auto made = std::shared_ptr<source_guard>(new source_guard(e));
      const auto* const first = static_cast<const std::byte*>(memory);
      made->extent_ = extent;
      made->head_.assign(first, first + (begin - from));
      made->tail_.assign(first + (end - from), first + extent.count);
      return made;
    }
    return nullptr;
  }
  ~source_guard() { release(); }
  source_guard(const source_guard&) = delete;
  source_guard& operator=(const source_guard&) = delete;

  /// All has been read: stores go on. The second time it does nothing.
  void release() {
    entry* const mine = mine_.exchange(nullptr);
    if (mine == nullptr) {
      return;
    }
    table& all = the();
    const std::lock_guard lock(all.mutex);
    give_back(all, mine->begin.load(), mine->end.load(), mine);
    mine->state.store(phase::over);  // behind the pages: who is woken finds them as they were
    (void)::syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&mine->state), FUTEX_WAKE_PRIVATE, INT_MAX, nullptr,
                    nullptr, 0);
  }

  /// Bytes of the source, as they were when it was guarded, if they lie at its ends. Others are left out.
  /// @param skip  Bytes of the source before the first.
  void read_ends(std::byte* to, bytes skip, bytes size) const {
    const auto copy = [&](const std::vector<std::byte>& from, std::uint64_t at) {
      const std::uint64_t begin = std::max(at, skip.count);
      const std::uint64_t end = std::min(at + from.size(), (skip + size).count);
      if (begin < end) {
        std::memcpy(to + (begin - skip.count), from.data() + (begin - at), end - begin);
      }
    };
    copy(head_, 0);
    copy(tail_, extent_.count - tail_.size());
  }
  /// Bytes that no end of it holds: those of [skip, skip + size) that lie in whole pages.
  [[nodiscard]] std::pair<bytes, bytes> in_pages(bytes skip, bytes size) const {
    const bytes begin = std::max(skip, bytes{head_.size()});
    const bytes end = std::min(skip + size, extent_ - bytes{tail_.size()});
    return {begin, begin < end ? end - begin : bytes{}};
  }

 private:
  enum class phase : std::uint32_t { unused, guarded, over };
  struct entry {
    std::atomic<phase> state{phase::unused};  // a futex
    std::atomic<std::uintptr_t> begin{0};
    std::atomic<std::uintptr_t> end{0};
    std::atomic<std::uint32_t> looks{0};  // faults since it is over
  };
  static_assert(sizeof(std::atomic<phase>) == sizeof(std::uint32_t), "a futex has 32 bits");
  struct table {
    std::array<entry, 256> entries{};
    std::mutex mutex;  // of all but the handler
    bool at_fork = false;
    struct sigaction before {};
  };
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  static constexpr bool sanitized = true;
#else
  static constexpr bool sanitized = false;
#endif
  static constexpr std::uint32_t most_looks = 1000;  // at pages that were guarded, before they are someone else's

  explicit source_guard(entry& of) : mine_(&of) {}

  static table& the() {
    static table one;
    return one;
  }
  [[nodiscard]] static bool lies_on_stack(std::uintptr_t begin, std::uintptr_t end) {
    pthread_attr_t about;
    if (::pthread_getattr_np(::pthread_self(), &about) != 0) {
      return true;
    }
    void* lowest = nullptr;
    std::size_t extent = 0;
    const bool known = ::pthread_attr_getstack(&about, &lowest, &extent) == 0;
    (void)::pthread_attr_destroy(&about);
    const auto stack = reinterpret_cast<std::uintptr_t>(lowest);
    return !known || (begin < stack + extent && stack < end);
  }
  /// Pages may be written again, but for those that others guard. Under the lock.
  static void give_back(table& all, std::uintptr_t begin, std::uintptr_t end, const entry* but = nullptr) {
    while (begin < end) {
      std::uintptr_t until = end;
      std::uintptr_t covered = begin;
      for (const entry& e : all.entries) {
        if (&e == but || e.state.load() != phase::guarded) continue;
        if (e.begin.load() <= begin && e.end.load() > begin) covered = std::max(covered, std::min(e.end.load(), end));
        if (e.begin.load() > begin) until = std::min(until, e.begin.load());
      }
      if (covered != begin) {
        begin = covered;
        continue;
      }
      (void)::mprotect(reinterpret_cast<void*>(begin), until - begin, PROT_READ | PROT_WRITE);
      begin = until;
    }
  }

  static void install() {
    table& all = the();
    const std::lock_guard lock(all.mutex);
    struct sigaction now {};
    if (::sigaction(SIGSEGV, nullptr, &now) == 0 && now.sa_sigaction != &wait_for_upload) {
      all.before = now;
      struct sigaction mine {};
      mine.sa_sigaction = &wait_for_upload;
      mine.sa_flags = SA_SIGINFO | SA_ONSTACK;
      ::sigemptyset(&mine.sa_mask);
      (void)::sigaction(SIGSEGV, &mine, nullptr);
    }
    if (!std::exchange(all.at_fork, true)) {
      // A child has no threads that read: its memory is its own.
      (void)::pthread_atfork([] { the().mutex.lock(); }, [] { the().mutex.unlock(); },
                             [] {
                               table& mine = the();
                               for (entry& e : mine.entries) {
                                 if (e.state.exchange(phase::over) == phase::guarded) {
                                   give_back(mine, e.begin.load(), e.end.load());
                                 }
                               }
                               mine.mutex.unlock();
                             });
    }
  }
  /// A handler may call few functions only: no allocation, no lock, no stdio.
  static void wait_for_upload(int signal, siginfo_t* info, void* context) {
    const int saved = errno;
    const auto at = reinterpret_cast<std::uintptr_t>(info->si_addr);
    table& all = the();
    bool mine = false;
    for (entry& e : all.entries) {
      const phase now = e.state.load();
      if (now == phase::unused || at < e.begin.load() || at >= e.end.load()) continue;
      if (now == phase::over) {  // the pages were given back after the fault
        mine = mine || e.looks.fetch_add(1) < most_looks;
        continue;
      }
      while (e.state.load() == phase::guarded) {
        (void)::syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&e.state), FUTEX_WAIT_PRIVATE,
                        static_cast<std::uint32_t>(phase::guarded), nullptr, nullptr, 0);
      }
      mine = true;
    }
    errno = saved;
    if (mine) {
      return;  // the store is tried again
    }
    const struct sigaction& next = all.before;
    if ((next.sa_flags & SA_SIGINFO) != 0 && next.sa_sigaction != nullptr) {
      next.sa_sigaction(signal, info, context);
    } else if (next.sa_handler != SIG_DFL && next.sa_handler != SIG_IGN) {
      next.sa_handler(signal);
    } else {
      (void)::sigaction(SIGSEGV, &next, nullptr);  // the same fault again, for what the system does with it
    }
  }

  std::atomic<entry*> mine_;
  bytes extent_{};
  std::vector<std::byte> head_{};
  std::vector<std::byte> tail_{};
};

}  // namespace detail
}  // namespace v0
}  // namespace deepum
