#pragma once

#include "cuda/fake_cuda.hpp"
#include "cuda/fake_driver_feed.hpp"
#include "property/lockstep_step.hpp"
#include "property/unit_kernels.hpp"
#include <deepum/arena.hpp>
#include <deepum/cuda.hpp>
#include <deepum/interop/cub.hpp>
#include <deepum/stream.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace deepum_test {

/// The kernels of programs in lockstep on the fake GPU: what they compute, and what a GPU would touch for it.
namespace fake_unit_kernels {

using word = std::uint32_t;
using deepum::access;

inline void fill(word* a, word n, word unit, word value) {
  device_touch(a, unit_kernels::size(n, unit), access::overwrite);
  unit_kernels::fill(a, n, unit, value);
}
inline void derive(word* a, word n, word ua, const word* b, word m, word ub, word value) {
  device_touch(b, unit_kernels::size(std::min(n, m), ub), access::read);
  device_touch(a, unit_kernels::size(n, ua), access::overwrite);
  unit_kernels::derive(a, n, ua, b, m, ub, value);
}
inline void mix(word* a, word n, word ua, const word* b, word m, word ub, word value) {
  device_touch(b, unit_kernels::size(std::min(n, m), ub), access::read);
  device_touch(a, unit_kernels::size(n, ua), access::update);
  unit_kernels::mix(a, n, ua, b, m, ub, value);
}
inline void gather(word* a, word n, word ua, const word* b, word m, word ub, const word* c, word k, word uc,
                   word value) {
  device_touch(c, unit_kernels::size(std::min(n, k), uc), access::read);
  device_touch(b, unit_kernels::size(m, ub), access::read);
  device_touch(a, unit_kernels::size(n, ua), access::update);
  unit_kernels::gather(a, n, ua, b, m, ub, c, k, uc, value);
}
inline void chase(word* a, word n, word ua, word* const* where, word m, word ub, word value) {
  device_touch(where, sizeof *where, access::read);
  mix(a, n, ua, *where, m, ub, value);
}
/// Copies b into scratch memory, and mixes a with that.
inline void through_scratch(word* scratch, word* a, word n, word ua, const word* b, word m, word ub, word value) {
  device_touch(b, unit_kernels::size(m, ub), access::read);
  device_touch(a, unit_kernels::size(n, ua), access::update);
  device_touch(scratch, std::size_t{m} * sizeof(word), access::overwrite);
  for (word i = 0; i < m; ++i) {
    scratch[i] = b[std::size_t{i} * ub];
  }
  unit_kernels::mix(a, n, ua, scratch, m, 1, value);
}

inline void register_all() {
  fake_cuda::register_kernel(&fill);
  fake_cuda::register_kernel(&derive);
  fake_cuda::register_kernel(&mix);
  fake_cuda::register_kernel(&gather);
  fake_cuda::register_kernel(&chase);
  fake_cuda::register_kernel(&through_scratch);
}

}  // namespace fake_unit_kernels

/// The device on the fake runtime, for programs in lockstep.
template <class Memory>
class lockstep_machine {
 public:
  using memory_type = Memory;
  using arena_type = deepum::arena<Memory>;
  using word = std::uint32_t;
  static constexpr bool has_scratch = true;

  lockstep_machine(deepum::bytes memory, const deepum::cuda::device_options& options, bool feed)
      : gpu_(memory),
        device(0, without_source(options), maker(feed)),
        memory_(memory) {}

  static auto fill() { return &fake_unit_kernels::fill; }
  static auto derive() { return &fake_unit_kernels::derive; }
  static auto mix() { return &fake_unit_kernels::mix; }
  static auto gather() { return &fake_unit_kernels::gather; }
  static auto chase() { return &fake_unit_kernels::chase; }

  template <class... Parameters, class... Args>
  static void enqueue(cudaStream_t native, void (*kernel)(Parameters...), Args... args) {
    std::tuple<Parameters...> values{args...};
    std::apply(
        [&](auto&... v) {
          std::array<void*, sizeof...(v)> pointers{static_cast<void*>(&v)...};
          deepum::cuda::check(
              cudaLaunchKernel(reinterpret_cast<const void*>(kernel), dim3{1}, dim3{1}, pointers.data(), 0, native),
              "cudaLaunchKernel");
        },
        values);
  }
  static void host_touched(const void* p, std::size_t size, deepum::access mode) {
    if constexpr (!arena_type::host_uses_other_addresses) {
      host_touch(p, size, mode);
    }
  }

  [[nodiscard]] static deepum::nanoseconds now() { return {}; }
  static void pause(deepum::nanoseconds) {}
  [[nodiscard]] static bool over() { return false; }

  /// What was made to fail for something else may fail here.
  template <class Call>
  static void insist(Call&& call) {
    try {
      call();
    } catch (const deepum::error&) {
      call();
    }
  }

  /// The device's own call for this step fails.
  [[nodiscard]] static bool refuse(const step& s) {
    const char* name = s.what == step::kind::launch_graph ? "cudaGraphLaunch"
                       : s.what == step::kind::set_bytes  ? "cudaMemsetAsync"
                       : is_transfer(s.what)              ? "cudaMemcpyAsync"
                                                          : "cudaLaunchKernel";
    if (is_transfer(s.what) && arena_type::host_uses_other_addresses) {
      return false;  // the library copies with the same call
    }
    fake_cuda::fail_call(name, 1, cudaErrorInvalidValue);
    return true;
  }
  static void relent() { fake_cuda::forget_failures(); }

  /// Calls of the library's fail: hints; on memory that never faults what gives a block its memory or takes it away, on
  /// the device or on the host, so that launches and views may be refused from then on. Or others take device memory.
  void disturb(std::uint32_t dice) {
    constexpr std::array hints{"cudaMemPrefetchAsync", "cudaMemAdvise", "cudaMemDiscardBatchAsync", "cudaMemGetInfo",
                               "cudaEventElapsedTime"};
    constexpr std::array mappings{"cuMemCreate",    "cuMemMap",       "cuMemUnmap",
                                  "cuMemSetAccess", "cudaMemGetInfo", "cudaEventElapsedTime"};
    const std::span<const char* const> calls = arena_type::host_uses_other_addresses
                                                   ? std::span<const char* const>(mappings)
                                                   : std::span<const char* const>(hints);
    if (arena_type::host_uses_other_addresses && dice % 4 == 0) {
      mappings_fail = true;
      fake_cuda::refuse_calls("cuMemUnmap", 1 + dice / 64 % 8, 1 + dice / 4 % 8, cudaErrorUnknown);
      if (dice / 32 % 2 == 0) {  // what was mapped for nothing cannot be unmapped then
        fake_cuda::fail_call("cuMemSetAccess", 1 + dice / 1024 % 4, cudaErrorInvalidValue);
      }
    } else if (dice % 4 != 0) {
      mappings_fail = mappings_fail || arena_type::host_uses_other_addresses;
      fake_cuda::fail_call(calls[dice / 4 % calls.size()], 1 + dice / 64 % 4, cudaErrorInvalidValue);
    } else {
      fake_cuda::set_foreign_memory(dice / 4 % 2 == 0 ? deepum::bytes{} : deepum::bytes{memory_.count / 2});
    }
  }
  void calm() {
    fake_cuda::forget_failures();
    fake_cuda::set_foreign_memory({});
    fake_cuda::set_host_memory(deepum::bytes{std::uint64_t{1} << 40});
  }
  [[nodiscard]] bool short_of_memory() const { return host_limit != 0 || mappings_fail; }
  /// Whether the device has no room for so many blocks, or fails to give it.
  [[nodiscard]] bool lacks_device_memory(std::size_t) const { return mappings_fail; }
  /// Whether the host has no room for so many blocks, or fails to give it.
  [[nodiscard]] bool lacks_host_memory(std::size_t blocks) const {
    return mappings_fail || (host_limit != 0 && (host_keeps_all || host_limit < blocks));
  }
  [[nodiscard]] static std::uint64_t shortages() { return 0; }  // its programs have one thread

  std::unique_ptr<deepum::interop::cub_calls<Memory>> open_library(arena_type& a, deepum::stream<Memory>& s) {
    return std::make_unique<deepum::interop::cub_calls<Memory>>(a, s);
  }
  /// A library's call that needs `needed` words of scratch memory.
  static void call_library(deepum::interop::cub_calls<Memory>& library, std::span<const deepum::operand> operands,
                           word needed, word* a, word n, word ua, const word* b, word m, word ub, word value) {
    library.call("scratch", operands, [&](void* storage, std::size_t& size, cudaStream_t q) {
      if (storage == nullptr) {
        size = std::max<std::size_t>(needed, m) * sizeof(word);
        return cudaSuccess;
      }
      enqueue(q, &fake_unit_kernels::through_scratch, static_cast<word*>(storage), a, n, ua, b, m, ub, value);
      return cudaSuccess;
    });
  }

 private:
  /// The fake GPU from its beginning to its end.
  struct fake_gpu_of {
    explicit fake_gpu_of(deepum::bytes memory) {
      (void)fake_cuda::reset();
      fake_unit_kernels::register_all();
      fake_cuda::set_device_memory(memory);
    }
    ~fake_gpu_of() { (void)fake_cuda::reset(); }
    fake_gpu_of(const fake_gpu_of&) = delete;
    fake_gpu_of& operator=(const fake_gpu_of&) = delete;
  };
  static deepum::cuda::device_options without_source(deepum::cuda::device_options o) {
    o.faults = deepum::cuda::fault_source::none;
    return o;
  }
  deepum::cuda::fault_feed_maker maker(bool feed) const {
    return feed ? events_.maker() : deepum::cuda::fault_feed_maker{};
  }

  fake_gpu_of gpu_;
  fake_driver_feed events_;

 public:
  deepum::cuda::device device;
  std::size_t host_limit = 0;   ///< in blocks; 0: none
  bool host_keeps_all = false;  ///< what had a place on the host once has it for ever
  std::atomic<bool> mappings_fail{false};

 private:
  deepum::bytes memory_;
};

}  // namespace deepum_test
