#pragma once

#include <deepum/cxx20.hpp>

#include <pthread.h>

#include <csignal>
#include <thread>
#include <utility>

namespace deepum {
inline namespace v0 {
namespace detail {

/// Starts a thread of the library's. It blocks all signals from its very beginning, so that those of the program go to
/// threads of the program.
template <class Function>
[[nodiscard]] std::thread start_thread(Function&& run) {
  class all_blocked {
   public:
    all_blocked() {
      sigset_t all;
      sigfillset(&all);
      blocked_ = pthread_sigmask(SIG_SETMASK, &all, &before_) == 0;
    }
    ~all_blocked() {
      if (blocked_) {
        pthread_sigmask(SIG_SETMASK, &before_, nullptr);
      }
    }
    all_blocked(const all_blocked&) = delete;
    all_blocked& operator=(const all_blocked&) = delete;

   private:
    sigset_t before_{};
    bool blocked_ = false;
  };
  const all_blocked here;  // a thread begins with the mask of the one that starts it
  return std::thread(std::forward<Function>(run));
}

}  // namespace detail
}  // namespace v0
}  // namespace deepum
