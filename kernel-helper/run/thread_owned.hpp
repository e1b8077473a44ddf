#pragma once

#include <utility>

namespace deepum_run {

/// An object of the calling thread, for functions that programs call until their very end: what is called behind the
/// ends of a thread's objects, as handlers of `exit` are, gets a new one, which stays behind.
template <class T, class Tag = T>
[[nodiscard]] T& of_this_thread() {
  struct ending {
    T** of;
    ~ending() { delete std::exchange(*of, nullptr); }
  };
  thread_local T* mine = nullptr;
  thread_local const ending ends{&mine};
  if (mine == nullptr) {
    (void)ends;
    mine = new T;
  }
  return *mine;
}

}  // namespace deepum_run
