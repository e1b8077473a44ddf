#pragma once

#include "cuda/fake_cuda.hpp"
#include "kernel_helper/fake_uvm_tools.hpp"
#include <deepum/cuda/device.hpp>
#include <deepum/cuda/faults/driver_fault_feed.hpp>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace deepum_test {

/// The driver's event device beside the fake GPU: what faults there is in its queue before the kernel goes on.
///
/// Made after `fake_cuda::reset`, which takes its sink away; outlives the feeds.
class fake_driver_feed {
 public:
  fake_driver_feed() {
    fake_cuda::set_fault_sink([this](const void* address, deepum::access mode, deepum::nanoseconds at) {
      tools.push_fault(reinterpret_cast<std::uintptr_t>(address),
                       mode == deepum::access::read ? DEEPUM_UVM_READ : DEEPUM_UVM_WRITE,
                       static_cast<std::uint64_t>(at.count()), ++batch_);  // each is served by itself
    });
  }
  ~fake_driver_feed() { fake_cuda::set_fault_sink({}); }
  fake_driver_feed(const fake_driver_feed&) = delete;
  fake_driver_feed& operator=(const fake_driver_feed&) = delete;

  /// The library's own reader, on this device.
  [[nodiscard]] std::unique_ptr<deepum::cuda::fault_feed> open(std::byte* base, deepum::bytes size) const {
    return std::make_unique<deepum::cuda::driver_fault_feed>(base, size, tools.system());
  }
  /// For `deepum::cuda::device`.
  [[nodiscard]] deepum::cuda::fault_feed_maker maker() const {
    return [this](std::byte* base, deepum::bytes size) { return open(base, size); };
  }

  fake_uvm_tools tools;

 private:
  std::atomic<std::uint32_t> batch_{0};
};

/// Tells what another feed tells, some calls later.
class late_feed final : public deepum::cuda::fault_feed {
 public:
  /// @param calls  Of `take` before a fault is told. `take_all` tells everything, as feeds have to.
  late_feed(std::unique_ptr<deepum::cuda::fault_feed> feed, std::size_t calls) : feed_(std::move(feed)), told_(calls) {}

  [[nodiscard]] std::string name() const override { return "late"; }
  void take(std::vector<deepum::cuda::fault_sample>& out) override {
    std::vector<deepum::cuda::fault_sample> now;
    feed_->take(now);
    told_.push_back(std::move(now));
    out.insert(out.end(), told_.front().begin(), told_.front().end());
    told_.erase(told_.begin());
  }
  void take_all(std::vector<deepum::cuda::fault_sample>& out) override {
    for (std::size_t n = told_.size() + 1; n > 0; --n) {
      take(out);
    }
  }
  [[nodiscard]] bool alive() const override { return feed_->alive(); }
  [[nodiscard]] std::uint64_t lost() const override { return feed_->lost(); }

 private:
  std::unique_ptr<deepum::cuda::fault_feed> feed_;
  std::vector<std::vector<deepum::cuda::fault_sample>> told_;
};

/// Tells what another feed tells, when the thread that asks it has been held up for a while.
class slow_feed final : public deepum::cuda::fault_feed {
 public:
  slow_feed(std::unique_ptr<deepum::cuda::fault_feed> feed, std::chrono::microseconds held_up)
      : feed_(std::move(feed)),
        held_up_(held_up) {}

  [[nodiscard]] std::string name() const override { return "slow"; }
  void take(std::vector<deepum::cuda::fault_sample>& out) override {
    std::this_thread::sleep_for(held_up_);
    feed_->take(out);
  }
  [[nodiscard]] bool alive() const override { return feed_->alive(); }
  [[nodiscard]] std::uint64_t lost() const override { return feed_->lost(); }

 private:
  std::unique_ptr<deepum::cuda::fault_feed> feed_;
  std::chrono::microseconds held_up_;
};

}  // namespace deepum_test
