#pragma once

#include <deepum/arena/upload_source.hpp>
#include <deepum/core/element_bytes.hpp>
#include <deepum/upload.hpp>

#include <cstddef>
#include <memory>
#include <type_traits>
#include <utility>

namespace deepum {
inline namespace v0 {
namespace detail {

/// The uploads of a `stream`: the calls that it has of them.
template <class Stream>
class upload_calls {
 public:
  /// @name Uploads
  /// Bytes that come from the host, beside what the program and the device do (HUM). Blocks are written one by one in
  /// host memory, by threads of the library, and may be fetched at once. A launch that is issued later, on any stream,
  /// begins when the blocks that it declares have been written; one that does not declare all waits for all uploads.
  /// What launches that were issued before still use stays as it is until they have finished.
  ///
  /// Blocks that the bytes cover only in part, beside other allocations, are copied by launches, as `memcpy` does, and
  /// so is all of it in checked mode, with `arena_options::zero_new`, and within `call`.
  /// @errors  Those of `memcpy`; `status::foreign_pointer` where `to` is not of this arena; `status::unsupported` while
  ///          a graph is recorded; `status::invalid_argument` where a view of the host writes one of the blocks.
  /// @{

  /// Returns when `from` has been read: it may be changed or freed then.
  /// @param n  Elements.
  template <class T>
  void upload(T* to, const std::type_identity_t<T>* from, std::size_t n) {
    (void)self().uploads_.upload(to, detail::upload_source(from), detail::bytes_of_elements<T>(n), true);
  }
  /// Returns at once. The source stays as it is until `upload::source_read`.
  template <class T>
  deepum::upload upload(T* to, borrowed_source<std::remove_cv_t<T>> from, std::size_t n) {
    return token(
        self().uploads_.upload(to, detail::upload_source(from.pointer), detail::bytes_of_elements<T>(n), false));
  }
  /// Returns at once. Stores to the source wait until it has been read: see `guarded`.
  template <class T>
  deepum::upload upload(T* to, guarded_source<std::remove_cv_t<T>> from, std::size_t n) {
    return token(self().uploads_.upload_guarded(to, from.pointer, detail::bytes_of_elements<T>(n)));
  }
  /// From a file, which is read where the bytes are to be. Returns at once. What cannot be read, because the file is
  /// too short, makes the launches fail that need it (`status::io_failure`), and nothing else.
  template <class T>
  deepum::upload upload(T* to, file from, std::size_t n) {
    return token(self().uploads_.upload(to, detail::upload_source(from.descriptor, from.offset),
                                        detail::bytes_of_elements<T>(n), false));
  }
  /// @}

 protected:
  upload_calls() = default;
  ~upload_calls() = default;

  /// Whether an upload does what a copy would. What the program enqueues in the stream by itself is ordered behind
  /// launches alone.
  [[nodiscard]] bool may_be_uploaded(const void* from) {
    Stream& s = self();
    const bool all_go_through_it = s.alone_ || std::decay_t<decltype(s.arena_)>::host_uses_other_addresses;
    return all_go_through_it && !s.arena_.contains(from) && s.native_.is_pageable(from);
  }

 private:
  [[nodiscard]] Stream& self() { return static_cast<Stream&>(*this); }
  [[nodiscard]] deepum::upload token(std::shared_ptr<upload_progress> of) {
    return of ? deepum::upload(&self().arena_.rooms().uploads(), std::move(of)) : deepum::upload();
  }
};

}  // namespace detail
}  // namespace v0
}  // namespace deepum
