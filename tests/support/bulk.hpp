#pragma once

#include "support/test_scale.hpp"

#include <algorithm>
#include <cstddef>

/// What kernels of tests do to many elements.
///
/// ThreadSanitizer would spend its time on them, since it looks at each by itself. It is shown one element of each
/// page: the library moves whole blocks, so that a race for any element is a race for those.
namespace deepum_test::bulk {

#ifdef __SANITIZE_THREAD__
#define DEEPUM_TEST_UNSEEN __attribute__((no_sanitize("thread"), noinline))
#else
#define DEEPUM_TEST_UNSEEN inline
#endif

namespace detail {

template <class T>
DEEPUM_TEST_UNSEEN void fill(T* p, std::size_t n, T v) {
  for (std::size_t i = 0; i < n; ++i) {
    p[i] = v;
  }
}

template <class T>
DEEPUM_TEST_UNSEEN void add(T* a, const T* b, std::size_t n, std::size_t stride) {
  for (std::size_t i = 0; i < n; i += stride) {
    a[i] += b[i];
  }
}

/// Reads an element of each page of `p`, and writes it where `p` may be written.
template <class T>
void show_pages(T* p, std::size_t n) {
  if constexpr (thread_sanitized) {
    for (std::size_t i = 0; i < n; i += std::max<std::size_t>(1, 4096 / sizeof(T))) {
      volatile T& shown = p[i];
      if constexpr (requires { shown = T{}; }) {
        shown = shown;
      } else {
        (void)shown;
      }
    }
  }
}

}  // namespace detail

template <class T>
void fill(T* p, std::size_t n, T v) {
  detail::fill(p, n, v);
  detail::show_pages(p, n);
}

/// `a[i] += b[i]` for every `stride`th element.
template <class T>
void add(T* a, const T* b, std::size_t n, std::size_t stride = 1) {
  detail::add(a, b, n, stride);
  detail::show_pages(b, n);
  detail::show_pages(a, n);
}

}  // namespace deepum_test::bulk
