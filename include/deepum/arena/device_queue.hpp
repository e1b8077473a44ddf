#pragma once

#include <deepum/core/launch.hpp>
#include <deepum/engine/memory_kind.hpp>

#include <cstddef>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

namespace deepum {
inline namespace v0 {
namespace detail {

/// A stream of the device, as the rooms of an arena use it: whatever the memory kind is.
///
/// Threads: one at a time. Cost: one indirect call for each call.
class device_queue {
 public:
  device_queue(const device_queue&) = delete;
  device_queue& operator=(const device_queue&) = delete;
  virtual ~device_queue() = default;

  /// What is enqueued until `end` belongs to this launch. They nest, and the inner ones end first.
  virtual void begin(launch_id launch) = 0;
  virtual void end(launch_id launch) = 0;
  /// What is enqueued from now on finds the contents of these blocks, which count as arrived when their copy is on its
  /// way. Comes before `begin`.
  /// @param complete  Nothing else is touched.
  virtual void order_after_arrival(const std::vector<block_access>& blocks, bool complete) = 0;
  virtual void copy(void* to, const void* from, std::size_t size) = 0;
  virtual void fill(void* to, int with, std::size_t size) = 0;
  /// Waits for all that was enqueued. @errors  Those of the device.
  virtual void synchronize() = 0;
  /// @errors  That of a device that has failed.
  virtual void check_device() = 0;
  /// Whether the program captures what is enqueued, which then runs later.
  [[nodiscard]] virtual bool capturing() const = 0;

 protected:
  device_queue() = default;
};

/// The stream of a memory kind.
/// @tparam Native  `stream_type` of the kind, or a reference to it.
template <class Native>
class device_queue_of final : public device_queue {
 public:
  template <class... Args>
  explicit device_queue_of(Args&&... args) : native_(std::forward<Args>(args)...) {}

  void begin(launch_id launch) override { native_.begin(launch); }
  void end(launch_id launch) override { native_.end(launch); }
  void order_after_arrival(const std::vector<block_access>& blocks, bool complete) override {
    if constexpr (requires { native_.order_after_arrival(blocks, complete); }) {
      native_.order_after_arrival(blocks, complete);
    }
  }
  void copy(void* to, const void* from, std::size_t size) override { native_.copy(to, from, size); }
  void fill(void* to, int with, std::size_t size) override { native_.fill(to, with, size); }
  void synchronize() override { native_.synchronize(); }
  void check_device() override { native_.check_device(); }
  [[nodiscard]] bool capturing() const override {
    if constexpr (requires { native_.capturing(); }) {
      return native_.capturing();
    } else {
      return false;
    }
  }

 private:
  Native native_;
};

/// Makes streams for what the library itself launches. Threads: any.
class device_queues {
 public:
  device_queues(const device_queues&) = delete;
  device_queues& operator=(const device_queues&) = delete;
  virtual ~device_queues() = default;

  /// @errors  Those of the device.
  [[nodiscard]] virtual std::unique_ptr<device_queue> make() = 0;
  /// While what it returns lives, what the calling thread does is part of no capture of the program's.
  [[nodiscard]] virtual std::shared_ptr<const void> outside_captures() const = 0;

 protected:
  device_queues() = default;
};

template <memory_kind Memory>
class device_queues_of final : public device_queues {
 public:
  /// @param space  Outlives it.
  explicit device_queues_of(Memory& space) : memory_(space) {}

  [[nodiscard]] std::unique_ptr<device_queue> make() override {
    return std::make_unique<device_queue_of<typename Memory::stream_type>>(memory_);
  }
  [[nodiscard]] std::shared_ptr<const void> outside_captures() const override {
    if constexpr (requires { typename Memory::capture_guard; }) {
      return std::make_shared<const typename Memory::capture_guard>();
    } else {
      return nullptr;
    }
  }

 private:
  Memory& memory_;
};

}  // namespace detail
}  // namespace v0
}  // namespace deepum
