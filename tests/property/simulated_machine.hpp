#pragma once

#include "property/lockstep_step.hpp"
#include "property/unit_kernels.hpp"
#include <deepum/arena.hpp>
#include <deepum/sim/device.hpp>
#include <deepum/sim/kernel.hpp>
#include <deepum/sim/stream.hpp>
#include <deepum/stream.hpp>
#include <deepum/units.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>

namespace deepum_test {

/// The simulated GPU for programs in lockstep.
template <class Memory>
class simulated_machine {
 public:
  using memory_type = Memory;
  using arena_type = deepum::arena<Memory>;
  using word = std::uint32_t;
  static constexpr bool has_scratch = false;

  explicit simulated_machine(deepum::sim::device_options options)
      : device(deepum::sim::find_profile("h200_pcie5"), options),
        memory_(options.memory),
        host_limit_(options.host_limit) {}

  static const auto& fill() {
    static const deepum::sim::kernel k{
        "fill", unit_kernels::fill,
        [](deepum::sim::work& w, word* a, word n, word unit, word) { w.overwrites(a, unit_kernels::size(n, unit)); }};
    return k;
  }
  static const auto& derive() {
    static const deepum::sim::kernel k{
        "derive", unit_kernels::derive,
        [](deepum::sim::work& w, word* a, word n, word ua, const word* b, word m, word ub, word) {
          w.reads(b, unit_kernels::size(std::min(n, m), ub));
          w.overwrites(a, unit_kernels::size(n, ua));
        }};
    return k;
  }
  static const auto& mix() {
    static const deepum::sim::kernel k{
        "mix", unit_kernels::mix,
        [](deepum::sim::work& w, word* a, word n, word ua, const word* b, word m, word ub, word) {
          w.reads(b, unit_kernels::size(std::min(n, m), ub));
          w.updates(a, unit_kernels::size(n, ua));
        }};
    return k;
  }
  static const auto& gather() {
    static const deepum::sim::kernel k{"gather", unit_kernels::gather,
                                       [](deepum::sim::work& w, word* a, word n, word ua, const word* b, word m,
                                          word ub, const word* c, word i, word uc, word) {
                                         w.reads(c, unit_kernels::size(std::min(n, i), uc));
                                         w.reads(b, unit_kernels::size(m, ub));
                                         w.updates(a, unit_kernels::size(n, ua));
                                       }};
    return k;
  }
  static const auto& chase() {
    static const deepum::sim::kernel k{
        "chase",
        [](word* a, word n, word ua, word* const* where, word m, word ub, word value) {
          unit_kernels::mix(a, n, ua, *where, m, ub, value);
        },
        [](deepum::sim::work& w, word* a, word n, word ua, word* const* where, word m, word ub, word) {
          w.reads(where, sizeof *where);
          w.reads(*where, unit_kernels::size(std::min(n, m), ub));
          w.updates(a, unit_kernels::size(n, ua));
        }};
    return k;
  }
  template <class Kernel, class... Args>
  static void enqueue(deepum::sim::stream& native, const Kernel& k, Args... args) {
    native.launch(1, 1, 0, k, args...);
  }
  static void host_touched(const void*, std::size_t, deepum::access) {}

  [[nodiscard]] deepum::nanoseconds now() const { return device.now(); }
  void pause(deepum::nanoseconds time) { device.host_work(time); }
  [[nodiscard]] static bool over() { return false; }

  template <class Call>
  static void insist(Call&& call) {
    call();
  }
  /// Launches of the simulator do not fail.
  static bool refuse(const step&) { return false; }
  static void relent() {}

  /// Commands that fail; on memory that never faults, others who hold device memory.
  std::function<void(std::uint32_t dice)> fail_command{};
  void disturb(std::uint32_t dice) {
    if constexpr (arena_type::host_uses_other_addresses) {
      const std::lock_guard lock(mutex_);
      if (memory_.count != 0) {
        set_foreign_memory(!short_of_memory_ && dice % 3 == 0 ? deepum::bytes{memory_.count / 8 * (5 + dice % 3)}
                                                              : deepum::bytes{});
      }
    } else if (fail_command) {
      fail_command(dice);
    }
  }
  void calm() {
    const std::lock_guard lock(mutex_);
    if (short_of_memory_) {
      set_foreign_memory({});
    }
  }
  [[nodiscard]] bool short_of_memory() const { return short_of_memory_ || host_limit_.count != 0; }
  /// Whether the device has no room for so many blocks.
  [[nodiscard]] bool lacks_device_memory(std::size_t blocks) const {
    return short_of_memory_ && memory_.count - foreign_.load() < blocks * deepum::block_size.count;
  }
  /// Whether the host has no room for so many blocks.
  [[nodiscard]] bool lacks_host_memory(std::size_t blocks) const {
    return host_limit_.count != 0 && host_limit_.count < blocks * deepum::block_size.count;
  }
  /// How often that has changed: another thread's program may end a shortage before this one learns what it met.
  [[nodiscard]] std::uint64_t shortages() const { return shortages_; }

  struct no_library {};
  static std::unique_ptr<no_library> open_library(arena_type&, deepum::stream<Memory>&) { return {}; }

  deepum::sim::device device;

 private:
  void set_foreign_memory(deepum::bytes size) {
    ++shortages_;
    foreign_ = size.count;
    short_of_memory_ = size.count != 0;
    device.set_foreign_memory(size);
  }

  deepum::bytes memory_;
  deepum::bytes host_limit_;
  std::mutex mutex_;  // of what follows, where it changes
  std::atomic<bool> short_of_memory_{false};
  std::atomic<std::uint64_t> foreign_{0};  // bytes that others hold
  std::atomic<std::uint64_t> shortages_{0};
};

}  // namespace deepum_test
