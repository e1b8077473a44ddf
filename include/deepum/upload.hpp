#pragma once

#include <deepum/arena/upload_runner.hpp>
#include <deepum/arena/upload_source.hpp>
#include <deepum/units.hpp>

#include <cstdint>
#include <memory>
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

}  // namespace v0
}  // namespace deepum
