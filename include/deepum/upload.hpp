#pragma once

#include <deepum/arena/produced_bytes.hpp>
#include <deepum/arena/upload_runner.hpp>
#include <deepum/arena/upload_source.hpp>
#include <deepum/core/element_bytes.hpp>
#include <deepum/units.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <type_traits>
#include <utility>

namespace deepum {
inline namespace v0 {

/// Memory that the program leaves as it is until an upload has read it (`upload::source_read`). Made by `borrowed`.
template <class T>
struct borrowed_source {
  const T* pointer = nullptr;
};
/// The source of an upload that returns at once.
template <class T>
[[nodiscard]] borrowed_source<T> borrowed(const T* p) {
  return {p};
}

/// Memory that is guarded by page protection until an upload has read it. Made by `guarded`.
template <class T>
struct guarded_source {
  const T* pointer = nullptr;
};
/// The source of an upload that returns at once, and that the program may change at once, as HUM has it: a store to it
/// waits until it has been read, in a handler for SIGSEGV. Where that cannot be (the simulated GPU, sanitizers, checked
/// mode, the stack of the thread), the upload returns when the source has been read.
///
/// Memory that can be read and written, of no stack. A system call that writes to it meanwhile (`read`) fails with
/// EFAULT. What is given back to the system before it was read (`munmap`, `free` of much) fails the launches that need
/// it. To protect pages takes as long as to copy them: 20 ms for a GiB of pages of 4 KiB, and again in the end.
template <class T>
[[nodiscard]] guarded_source<T> guarded(const T* p) {
  return {p};
}

/// A place in a file that can be read at any place, from which an upload reads. Stays open until the upload has read it
/// (`upload::source_read`); who closes it or gives it to `close` before, has read something else.
struct file {
  int descriptor = -1;
  std::uint64_t offset = 0;  ///< of the first byte
};

/// An upload that goes on beside the program. Copies are the same one. Outlives neither its arena nor its stream.
class upload {
 public:
  /// What can be waited for. Threads: any.
  class moment {
   public:
    moment(detail::upload_runner* by, std::shared_ptr<detail::upload_progress> which, bool whole)
        : runner_(by),
          progress_(std::move(which)),
          written_(whole) {}

    /// Whether it has come.
    [[nodiscard]] bool reached() const {
      return !progress_ || (written_ ? progress_->written : progress_->read).load(std::memory_order_acquire);
    }
    /// Waits until it has.
    /// @errors  That of a device that has failed.
    void wait() const {
      if (progress_) {
        written_ ? runner_->await_written(*progress_) : runner_->await_read(*progress_);
      }
    }

   private:
    detail::upload_runner* runner_;
    std::shared_ptr<detail::upload_progress> progress_;
    bool written_;
  };

  /// One that is over.
  upload() = default;
  upload(detail::upload_runner* by, std::shared_ptr<detail::upload_progress> which)
      : runner_(by),
        progress_(std::move(which)) {}

  /// The source has been read: it may be changed, freed or closed.
  [[nodiscard]] moment source_read() const { return {runner_, progress_, false}; }
  /// All of it is where launches may use it, in host memory or on the device.
  [[nodiscard]] moment written() const { return {runner_, progress_, true}; }
  /// Whether some of it could not be read. Launches that need that throw.
  [[nodiscard]] bool failed() const { return progress_ && progress_->failed.load(std::memory_order_acquire); }

 private:
  detail::upload_runner* runner_ = nullptr;
  std::shared_ptr<detail::upload_progress> progress_{};
};

/// Elements of an arena that the program writes in place, and gives away from the front: what it has committed may be
/// fetched by launches while it writes the rest. Made by `arena::stream_in`.
///
/// A launch that is issued later waits for the blocks that it declares. What is not committed when this ends has no
/// contents, and launches that need it throw (`status::io_failure`). Threads: one at a time.
template <class T>
class upload_view {
 public:
  /// See `arena::stream_in`.
  upload_view(detail::arena_rooms& of, T* first_element, std::size_t elements)
      : bytes_(of, first_element, detail::bytes_of_elements<T>(elements)),
        elements_(reinterpret_cast<T*>(bytes_.begin()), elements) {}

  /// The first so many elements have been written, and are not touched any more. What shares a block with elements that
  /// follow stays until those are committed.
  /// @param n  As many as before, or more.
  void commit(std::size_t n) { bytes_.commit(detail::bytes_of_elements<T>(n)); }
  /// Where the host finds the first element.
  [[nodiscard]] T* data() const { return elements_.data(); }
  /// Number of elements.
  [[nodiscard]] std::size_t size() const { return elements_.size(); }
  /// For loops over the elements.
  [[nodiscard]] T* begin() const { return data(); }
  /// For loops over the elements.
  [[nodiscard]] T* end() const { return data() + size(); }
  /// An element that is not committed. @param i  Less than `size()`; not checked.
  [[nodiscard]] T& operator[](std::size_t i) const { return elements_[i]; }

 private:
  detail::produced_bytes bytes_;
  std::span<T> elements_;
};

}  // namespace v0
}  // namespace deepum
