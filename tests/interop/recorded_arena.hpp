#pragma once

#include "cuda/fake_cuda.hpp"
#include "cuda/fake_gpu.hpp"
#include <deepum/arena.hpp>
#include <deepum/cuda.hpp>
#include <deepum/stream.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <mutex>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace deepum_test {

/// Launches as the engine is told of them.
class recorded_launches {
 public:
  void see(const deepum::device_event& e) {
    if (e.what == deepum::device_event::kind::launch_issued) {
      const std::lock_guard lock(mutex_);
      records_.push_back(*e.record);
    }
  }
  [[nodiscard]] std::optional<deepum::launch_record> find(deepum::launch_id id) const {
    const std::lock_guard lock(mutex_);
    for (const deepum::launch_record& r : records_) {
      if (r.id == id) {
        return r;
      }
    }
    return std::nullopt;
  }
  [[nodiscard]] std::size_t count() const {
    const std::lock_guard lock(mutex_);
    return records_.size();
  }

 private:
  mutable std::mutex mutex_;
  std::vector<deepum::launch_record> records_{};
};

inline deepum::cuda::device_options of_small_chunks() {
  deepum::cuda::device_options o;
  o.chunk = deepum::bytes{std::uint64_t{2} << 20};
  return o;
}

/// The fake GPU with an arena whose launches are recorded, and a stream. On memory that never faults it is in checked
/// mode.
template <class Memory>
struct recorded_arena {
  recorded_arena()
      : device(0, of_small_chunks()),
        memory(device, {.capacity = deepum::bytes{std::uint64_t{256} << 20},
                        .device_budget = deepum::bytes{std::uint64_t{128} << 20},
                        .checked = deepum::paged_memory_kind<Memory>,
                        .log = {},
                        .observer = [this](const deepum::device_event& e, deepum::launch_id) { launches.see(e); }}),
        stream(memory) {}

  /// What the launch has declared, as in `read 0+1, overwrite 4+2`; in front `unknown, ` where that may not be all.
  std::string declared(deepum::launch_id id) {
    std::optional<deepum::launch_record> r;
    if (!comes([&] { return (r = launches.find(id)).has_value(); })) {
      return "no such launch";
    }
    std::string s = r->complete ? "" : "unknown, ";
    for (const deepum::block_access& a : r->accesses) {
      s += text(a) + ", ";
    }
    return s;
  }
  /// The same for memory of the arena.
  std::string of(deepum::access mode, const void* p, std::size_t size) {
    return text({deepum::um_grid.blocks_of(*memory.offset_of(p), deepum::bytes{size}), mode}) + ", ";
  }
  /// Memory in blocks of its own.
  template <class T>
  T* blocks(std::size_t n) {
    return static_cast<T*>(memory.allocate_bytes(deepum::block_size * n, deepum::block_size));
  }

  fake_gpu gpu;
  recorded_launches launches;
  deepum::cuda::device device;
  deepum::arena<Memory> memory;
  deepum::stream<Memory> stream;

 private:
  static std::string text(const deepum::block_access& a) {
    const char* mode = a.mode == deepum::access::read     ? "read "
                       : a.mode == deepum::access::update ? "update "
                                                          : "overwrite ";
    return mode + std::to_string(a.range.first.value) + "+" + std::to_string(a.range.count);
  }
};

/// Enqueues a fake kernel as a library does.
template <class... P, class... A>
void enqueue(cudaStream_t stream, void (*kernel)(P...), A... args) {
  fake_cuda::register_kernel(kernel);
  std::tuple<P...> values{args...};
  std::apply(
      [&](auto&... v) {
        void* pointers[] = {&v..., nullptr};
        CHECK(cudaLaunchKernel(reinterpret_cast<const void*>(kernel), dim3(1), dim3(1), pointers, 0, stream) ==
              cudaSuccess);
      },
      values);
}

}  // namespace deepum_test
