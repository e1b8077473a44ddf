#pragma once

#include <deepum/units.hpp>

#include <signal.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <string_view>

namespace deepum {
inline namespace v0 {
namespace detail {

/// Addresses that the host must not use, for as long as it lives: when it does, the program ends as it would anyway,
/// behind a line on the standard error that says why.
///
/// A handler for SIGSEGV is put before that of the program, which is called after it. Threads: any.
class host_guard {
 public:
  host_guard(const void* first_byte, bytes extent) {
    install();
    for (entry& e : guarded().entries) {
      std::uintptr_t none = 0;
      if (e.begin.compare_exchange_strong(none, reinterpret_cast<std::uintptr_t>(first_byte))) {
        e.size.store(extent.count);
        mine_ = &e;
        return;
      }
    }  // more arenas than entries: their line is missing, nothing else
  }
  ~host_guard() {
    if (mine_ != nullptr) {
      mine_->size.store(0);
      mine_->begin.store(0);
    }
  }
  host_guard(const host_guard&) = delete;
  host_guard& operator=(const host_guard&) = delete;

 private:
  struct entry {
    std::atomic<std::uintptr_t> begin{0};
    std::atomic<std::uint64_t> size{0};
  };
  struct table {
    std::array<entry, 64> entries{};
    std::mutex mutex;  // of installing
    struct sigaction before {};
  };

  static table& guarded() {
    static table one;
    return one;
  }
  static void install() {
    const std::lock_guard lock(guarded().mutex);
    struct sigaction now {};
    if (::sigaction(SIGSEGV, nullptr, &now) == 0 && now.sa_sigaction != &explain) {
      guarded().before = now;
      struct sigaction mine {};
      mine.sa_sigaction = &explain;
      mine.sa_flags = SA_SIGINFO | SA_ONSTACK;
      ::sigemptyset(&mine.sa_mask);
      (void)::sigaction(SIGSEGV, &mine, nullptr);
    }
  }
  /// A handler may call few functions only: no allocation, no lock, no stdio.
  static void explain(int /*signal*/, siginfo_t* info, void* /*context*/) {
    const auto at = reinterpret_cast<std::uintptr_t>(info->si_addr);
    for (const entry& e : guarded().entries) {
      const std::uintptr_t begin = e.begin.load();
      if (begin != 0 && at - begin < e.size.load()) {
        std::array<char, 256> line{};
        std::size_t n = 0;
        const auto put = [&](std::string_view text) {
          std::memcpy(line.data() + n, text.data(), text.size());
          n += text.size();
        };
        put("deepum: the host used the address 0x");
        for (int shift = 60; shift >= 0; shift -= 4) {
          line[n++] = "0123456789abcdef"[at >> shift & 15U];
        }
        put(", where it finds nothing: memory of an arena that never faults. Use it through arena.host_read, "
            "host_write "
            "or host_overwrite\n");
        [[maybe_unused]] const auto written = ::write(STDERR_FILENO, line.data(), n);
        break;
      }
    }
    ::sigaction(SIGSEGV, &guarded().before, nullptr);  // the same access again, for the handler that was there before
  }

  entry* mine_ = nullptr;
};

}  // namespace detail
}  // namespace v0
}  // namespace deepum
