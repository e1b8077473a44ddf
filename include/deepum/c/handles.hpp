#pragma once

#include <deepum/arena.hpp>
#include <deepum/c/failures.hpp>
#include <deepum/cuda.hpp>
#include <deepum/deepum.h>
#include <deepum/operand.hpp>
#include <deepum/stream.hpp>

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

/// What a `deepum_stream*` points to: a stream of either memory kind.
///
/// Threads and errors: those of `deepum::stream`.
struct deepum_stream {
  deepum_stream() = default;
  deepum_stream(const deepum_stream&) = delete;
  deepum_stream& operator=(const deepum_stream&) = delete;
  virtual ~deepum_stream() = default;

  /// @param enqueue  Called once, with the native stream; what it returns other than 0 becomes `device_failure`.
  virtual void call(std::string_view name, std::span<const deepum::operand> operands, deepum_enqueue enqueue,
                    void* user) = 0;
  virtual void memcpy(void* to, const void* from, deepum::bytes size, bool wait) = 0;
  virtual void memset(void* to, int value, deepum::bytes size) = 0;
  virtual void synchronize() = 0;
  [[nodiscard]] virtual cudaStream_t native() const = 0;
};

/// What a `deepum_arena*` points to: an arena of either memory kind, with its device.
///
/// Threads and errors: those of `deepum::arena`.
struct deepum_arena {
  deepum_arena() = default;
  deepum_arena(const deepum_arena&) = delete;
  deepum_arena& operator=(const deepum_arena&) = delete;
  virtual ~deepum_arena() = default;

  [[nodiscard]] virtual bool has_streams() = 0;
  virtual void finish() = 0;
  [[nodiscard]] virtual void* allocate(deepum::bytes size) = 0;
  virtual void deallocate(void* p) = 0;
  virtual void name_part(const void* p, deepum::bytes size) = 0;
  virtual void prefetch(const void* p, deepum::bytes size, deepum::location to) = 0;
  virtual void mark_inactive(const void* p, deepum::bytes size) = 0;
  virtual void mark_active(const void* p, deepum::bytes size) = 0;
  [[nodiscard]] virtual void* begin_host_access(void* p, deepum::bytes size, deepum::access mode) = 0;
  virtual void end_host_access(void* p, deepum::bytes size, deepum::access mode) = 0;
  [[nodiscard]] virtual deepum::bytes budget() const = 0;
  virtual void set_budget(deepum::bytes budget) = 0;
  [[nodiscard]] virtual deepum::statistics statistics() = 0;
  virtual void save_tables(const std::string& path) = 0;
  [[nodiscard]] virtual std::unique_ptr<deepum_stream> open_stream(cudaStream_t existing) = 0;
};

namespace deepum {
inline namespace v0 {
namespace detail {

template <class Memory>
struct c_stream final : deepum_stream {
  explicit c_stream(arena<Memory>& of) : s(of) {}
  c_stream(arena<Memory>& of, cudaStream_t existing) : s(of, existing) {}

  void call(std::string_view name, std::span<const operand> operands, deepum_enqueue enqueue, void* user) override {
    s.call(name, operands, [&](cudaStream_t queue) {
      if (const int failed = enqueue(queue, user); failed != 0) {
        throw error(status::device_failure,
                    "launch " + std::string(name) + ": its function returned " + std::to_string(failed), "deepum_call",
                    failed);
      }
    });
  }
  void memcpy(void* to, const void* from, bytes size, bool wait) override {
    if (wait) {
      s.memcpy_and_wait(to, from, size);
    } else {
      s.memcpy(to, from, size);
    }
  }
  void memset(void* to, int value, bytes size) override { s.memset(to, value, size); }
  void synchronize() override { s.synchronize(); }
  cudaStream_t native() const override { return s.native().native(); }

  mutable stream<Memory> s;
};

template <class Memory>
struct c_arena final : deepum_arena {
  c_arena(int device, arena_options options) : gpu(device), a(gpu, std::move(options)) {}

  bool has_streams() override { return a.rooms().back.has_streams(); }
  void finish() override { a.finish(); }
  void* allocate(bytes size) override { return a.allocate_bytes(size); }
  void deallocate(void* p) override { a.deallocate(p); }
  void name_part(const void* p, bytes size) override { a.name_part(p, size); }
  void prefetch(const void* p, bytes size, location to) override { a.prefetch(p, size, to); }
  void mark_inactive(const void* p, bytes size) override { a.mark_inactive(p, size); }
  void mark_active(const void* p, bytes size) override { a.mark_active(p, size); }
  void* begin_host_access(void* p, bytes size, access mode) override { return a.begin_host_access(p, size, mode); }
  void end_host_access(void* p, bytes size, access mode) override { a.end_host_access(p, size, mode); }
  bytes budget() const override { return a.budget(); }
  void set_budget(bytes budget) override { a.set_budget(budget); }
  deepum::statistics statistics() override { return a.statistics(); }
  void save_tables(const std::string& path) override { a.save_tables(path); }
  std::unique_ptr<deepum_stream> open_stream(cudaStream_t existing) override {
    return existing == nullptr ? std::make_unique<c_stream<Memory>>(a)
                               : std::make_unique<c_stream<Memory>>(a, existing);
  }

  cuda::device gpu;
  arena<Memory> a;
};

}  // namespace detail
}  // namespace v0
}  // namespace deepum
