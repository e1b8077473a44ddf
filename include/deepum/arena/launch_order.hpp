#pragma once

#include <deepum/error.hpp>

#include <mutex>
#include <string>
#include <utility>

namespace deepum {
inline namespace v0 {
namespace detail {

/// The order in which launches of an arena run in checked mode: one at a time, each between two looks at its operands
/// (`launch_check`). One that is made within another, in the body of `stream::call`, interrupts that.
///
/// Threads: every call, any thread.
class launch_order {
 public:
  /// A launch whose turn it is.
  class turn {
   public:
    /// Waits for it.
    explicit turn(launch_order& of) : order_(of) {
      order_.mutex_.lock();
      outer_ = std::exchange(order_.current_, this);
    }
    virtual ~turn() {
      order_.current_ = outer_;
      order_.mutex_.unlock();
    }
    turn(const turn&) = delete;
    turn& operator=(const turn&) = delete;

   protected:
    [[nodiscard]] turn* outer() const { return outer_; }

   private:
    friend class launch_order;
    friend class interruption;
    /// Waits for what was enqueued; from then on it may touch nothing.
    virtual void pause() {}
    virtual void go_on() {}

    launch_order& order_;
    turn* outer_ = nullptr;
  };
  /// The launch around another one, for as long as that lives.
  class interruption {
   public:
    explicit interruption(turn* outer) : outer_(outer) {
      if (outer_ != nullptr) {
        outer_->pause();
      }
    }
    ~interruption() { end(); }
    interruption(const interruption&) = delete;
    interruption& operator=(const interruption&) = delete;

    void end() {
      if (turn* const outer = std::exchange(outer_, nullptr)) {
        outer->go_on();
      }
    }

   private:
    turn* outer_;
  };

  /// Whether the calling thread is within a launch.
  [[nodiscard]] bool within() {
    const std::unique_lock lock(mutex_, std::try_to_lock);
    return lock.owns_lock() && current_ != nullptr;
  }

  /// A launch has broken the device. The first one counts.
  void accuse(const std::string& what) {
    const std::lock_guard lock(accusation_mutex_);
    if (accusation_.empty()) {
      accusation_ = what;
    }
  }
  /// What broke the device, for people; empty: nothing did.
  [[nodiscard]] std::string accusation() const {
    const std::lock_guard lock(accusation_mutex_);
    return accusation_;
  }
  /// Nothing can be launched any more behind a launch that broke the device.
  /// @errors  `status::device_failure`, which names it.
  void refuse_after_failure() const {
    if (const std::string accused = accusation(); !accused.empty()) {
      throw error(status::device_failure, accused);
    }
  }

 private:
  std::recursive_mutex mutex_;
  turn* current_ = nullptr;  // of its holder
  mutable std::mutex accusation_mutex_;
  std::string accusation_{};
};

}  // namespace detail
}  // namespace v0
}  // namespace deepum
