#pragma once

#include "gpu/library/step_program.hpp"
#include <deepum/core/block.hpp>
#include <deepum/cuda/check.hpp>
#include <deepum/cuda/managed_limit.hpp>
#include <deepum/dim.hpp>
#include <deepum/error.hpp>
#include <deepum/operand.hpp>
#include <deepum/stream.hpp>
#include <deepum/units.hpp>

#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

// Memory as a program without the library has it: with the interface of `deepum::arena` and `deepum::stream` as far as
// the programs that are measured use it, so that they run on either.
namespace deepum::gpu_bench {

/// Memory of one kind, whole blocks.
class memory_pool {
 public:
  enum class kind : std::uint8_t { device, managed, pinned };

  /// @errors  `status::device_failure`, `status::out_of_device_memory`; above DEEPUM_MANAGED_LIMIT
  ///          `status::out_of_arena_space`.
  memory_pool(kind what, bytes size) : what_(what), size_(block_size * ((size + block_size - bytes{1}) / block_size)) {
    void* p = nullptr;
    switch (what) {
      case kind::device:
        cuda::check(cudaMalloc(&p, size_.count), "cudaMalloc");
        break;
      case kind::managed:
        share_.emplace(size_);
        cuda::check(cudaMallocManaged(&p, size_.count, cudaMemAttachGlobal), "cudaMallocManaged");
        break;
      case kind::pinned:
        cuda::check(cudaHostAlloc(&p, size_.count, cudaHostAllocDefault), "cudaHostAlloc");
        break;
    }
    base_ = static_cast<std::byte*>(p);
  }
  ~memory_pool() { (void)cuda::succeeded(what_ == kind::pinned ? cudaFreeHost(base_) : cudaFree(base_)); }
  memory_pool(const memory_pool&) = delete;
  memory_pool& operator=(const memory_pool&) = delete;

  [[nodiscard]] std::byte* base() const { return base_; }
  [[nodiscard]] bytes size() const { return size_; }

 private:
  kind what_;
  bytes size_;
  std::optional<cuda::managed_limit::share> share_{};
  std::byte* base_ = nullptr;
};

/// An arena without freeing. The same allocations have the same offsets, whatever the memory.
class hand_arena {
 public:
  /// @param base  Where the range begins.
  hand_arena(std::byte* base, bytes capacity) : base_(base), capacity_(capacity) {}
  explicit hand_arena(const memory_pool& pool) : hand_arena(pool.base(), pool.size()) {}

  template <class T>
  [[nodiscard]] T* allocate(std::size_t n) {
    return static_cast<T*>(allocate_bytes(bytes{n * sizeof(T)}));
  }
  /// As the library aligns: 256 bytes, and a block from 1 MiB on.
  [[nodiscard]] void* allocate_bytes(bytes size) {
    if (size.count == 0) {
      return nullptr;
    }
    const std::uint64_t alignment = size.count >= (std::uint64_t{1} << 20) ? block_size.count : 256;
    const std::uint64_t offset = (end_ + alignment - 1) / alignment * alignment;
    if (offset + size.count > capacity_.count) {
      throw error(status::out_of_arena_space, "no room for " + std::to_string(size.count) + " bytes");
    }
    end_ = offset + size.count;
    parts_.push_back({bytes{offset}, size});
    return base_ + offset;
  }
  void split(const void* p, std::span<const bytes> sizes) {
    const std::size_t found = index_of(p);
    const part whole = parts_[found];
    std::vector<part> made;
    bytes at = whole.offset;
    for (const bytes size : sizes) {
      made.push_back({at, size, whole.resident});
      at += size;
    }
    if (const bytes end = whole.offset + whole.size; at < end) {
      made.push_back({at, end - at, whole.resident});
    }
    parts_.erase(parts_.begin() + static_cast<std::ptrdiff_t>(found));
    parts_.insert(parts_.begin() + static_cast<std::ptrdiff_t>(found), made.begin(), made.end());
  }

  /// @param watch  From now on called with what a program says of the value of contents; empty: nobody is.
  void set_watch(std::function<void(const value_change&)> watch) { watch_ = std::move(watch); }
  /// What is said of the arena does nothing to its memory.
  void mark_inactive(const void* p, bytes size) const { tell(p, size, false); }
  void mark_active(const void* p, bytes size) const { tell(p, size, true); }

  [[nodiscard]] bytes capacity() const { return capacity_; }
  [[nodiscard]] std::byte* base() const { return base_; }
  /// By address.
  [[nodiscard]] std::vector<part>& parts() { return parts_; }
  [[nodiscard]] const std::vector<part>& parts() const { return parts_; }
  [[nodiscard]] std::optional<bytes> offset_of(const void* p) const {
    const bytes offset{reinterpret_cast<std::uintptr_t>(p) - reinterpret_cast<std::uintptr_t>(base_)};
    return offset < capacity_ ? std::optional<bytes>(offset) : std::nullopt;
  }
  /// The part that an address of the arena lies in.
  [[nodiscard]] std::size_t index_of(const void* p) const {
    const bytes offset = offset_of(p).value_or(capacity_);
    const auto after = std::upper_bound(parts_.begin(), parts_.end(), offset,
                                        [](bytes o, const part& each) { return o < each.offset; });
    expects(after != parts_.begin() && offset < (after - 1)->offset + (after - 1)->size,
            "an address that was not allocated");
    return static_cast<std::size_t>(after - parts_.begin() - 1);
  }
  /// What an operand names; nothing where it lies elsewhere.
  [[nodiscard]] std::optional<touch> touched_by(const operand& o) const {
    const std::optional<bytes> offset = offset_of(o.address);
    if (!offset || o.size.count == 0) {
      return std::nullopt;
    }
    if (o.size == operand::whole) {
      const part& p = parts_[index_of(o.address)];
      return touch{p.offset, p.size, o.mode};
    }
    return touch{*offset, std::min(o.size, capacity_ - *offset), o.mode};
  }

 private:
  void tell(const void* p, bytes size, bool of_value) const {
    if (const std::optional<bytes> offset = offset_of(p); watch_ && offset) {
      watch_({*offset, size, of_value});
    }
  }

  std::byte* base_;
  bytes capacity_;
  std::uint64_t end_ = 0;
  std::vector<part> parts_{};
  std::function<void(const value_change&)> watch_{};
};

/// What happens around the launches of a stream, and where their memory is. This one does nothing.
class launch_hook {
 public:
  launch_hook() = default;
  launch_hook(const launch_hook&) = delete;
  launch_hook& operator=(const launch_hook&) = delete;
  virtual ~launch_hook() = default;

  /// Something is about to be enqueued. May be called before its addresses are asked for, and then again.
  virtual void before(std::string_view /*name*/, std::span<const operand> /*operands*/) {}
  /// It has been enqueued.
  virtual void after() {}
  /// Where the device finds what lies at `p`. In between `before` and `after`.
  [[nodiscard]] virtual void* address(const void* p) { return const_cast<void*>(p); }
  virtual void copy(void* to, const void* from, std::size_t n, cudaStream_t q) {
    cuda::check(cudaMemcpyAsync(to, from, n, cudaMemcpyDefault, q), "cudaMemcpyAsync");
  }
  virtual void fill(void* to, int value, std::size_t n, cudaStream_t q) {
    cuda::check(cudaMemsetAsync(to, value, n, q), "cudaMemsetAsync");
  }
};

/// A stream that launches and does nothing else, but for its hook.
///
/// Threads: one.
class hand_stream {
 public:
  explicit hand_stream(hand_arena& arena) : arena_(arena) {
    cuda::check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
  }
  ~hand_stream() {
    (void)cuda::succeeded(cudaStreamSynchronize(stream_));
    (void)cuda::succeeded(cudaStreamDestroy(stream_));
  }
  hand_stream(const hand_stream&) = delete;
  hand_stream& operator=(const hand_stream&) = delete;

  /// @param hook  From now on; null: none. Outlives its use.
  void set_hook(launch_hook* hook) { hook_ = hook; }
  [[nodiscard]] cudaStream_t native() const { return stream_; }
  [[nodiscard]] hand_arena& arena() const { return arena_; }

  /// For programs that ask for addresses before they launch.
  void prepare() {
    if (hook_ != nullptr) {
      hook_->before({}, {});
    }
  }
  [[nodiscard]] void* address(const void* p) { return hook_ != nullptr ? hook_->address(p) : const_cast<void*>(p); }

  template <class... Parameters, class... Args>
  launch_id launch(std::string_view name, dim grid, dim block, unsigned shared, void (*kernel)(Parameters...),
                   Args&&... args) {
    static_assert(sizeof...(Parameters) == sizeof...(Args));
    if (hook_ != nullptr) {
      deepum::detail::argument_reader<sizeof...(Args)> reader(name);
      const auto offset_of = [this](const void* p) { return arena_.offset_of(p); };
      (reader.template read<Parameters>(static_cast<const std::decay_t<Args>&>(args), offset_of), ...);
      hook_->before(name, reader.operands());
    }
    std::tuple<std::remove_cvref_t<Parameters>...> values{static_cast<std::remove_cvref_t<Parameters>>(
        deepum::detail::kernel_argument<Parameters>(std::forward<Args>(args)))...};
    std::apply(
        [&](auto&... value) {
          std::array<void*, sizeof...(Parameters) + 1> pointers{const_cast<void*>(static_cast<const void*>(&value))...,
                                                                nullptr};
          cuda::check(cudaLaunchKernel(reinterpret_cast<const void*>(kernel), dim3{grid.x, grid.y, grid.z},
                                       dim3{block.x, block.y, block.z}, pointers.data(), shared, stream_),
                      "cudaLaunchKernel");
        },
        values);
    return done();
  }
  template <class Enqueue>
  launch_id call(std::string_view name, std::initializer_list<operand> operands, Enqueue&& enqueue) {
    return call(name, std::span<const operand>(operands.begin(), operands.size()), std::forward<Enqueue>(enqueue));
  }
  template <class Enqueue>
  launch_id call(std::string_view name, std::span<const operand> operands, Enqueue&& enqueue) {
    if (hook_ != nullptr) {
      hook_->before(name, operands);
    }
    std::forward<Enqueue>(enqueue)(stream_);
    return done();
  }
  launch_id memcpy(void* to, const void* from, bytes n) {
    if (n.count == 0) {
      return {};
    }
    if (hook_ == nullptr) {
      cuda::check(cudaMemcpyAsync(to, from, n.count, cudaMemcpyDefault, stream_), "cudaMemcpyAsync");
      return done();
    }
    const std::array<operand, 2> operands{operand{to, n, access::overwrite}, operand{from, n, access::read}};
    hook_->before("memcpy", operands);
    hook_->copy(to, from, n.count, stream_);
    return done();
  }
  launch_id memset(void* to, int value, bytes n) {
    if (n.count == 0) {
      return {};
    }
    if (hook_ == nullptr) {
      cuda::check(cudaMemsetAsync(to, value, n.count, stream_), "cudaMemsetAsync");
      return done();
    }
    const std::array<operand, 1> operands{operand{to, n, access::overwrite}};
    hook_->before("memset", operands);
    hook_->fill(to, value, n.count, stream_);
    return done();
  }
  void synchronize() { cuda::check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize"); }

 private:
  launch_id done() {
    if (hook_ != nullptr) {
      hook_->after();
    }
    return launch_id{++launches_};
  }

  hand_arena& arena_;
  cudaStream_t stream_ = nullptr;
  launch_hook* hook_ = nullptr;
  std::uint64_t launches_ = 0;
};

/// Writes down what is launched, and what is said of the value of contents.
class step_recorder final : public launch_hook {
 public:
  explicit step_recorder(hand_arena& arena) : arena_(arena) {
    arena_.set_watch(
        [this](const value_change& c) { (launches_.empty() ? first_ : launches_.back().changes).push_back(c); });
  }
  ~step_recorder() override { arena_.set_watch({}); }
  step_recorder(const step_recorder&) = delete;
  step_recorder& operator=(const step_recorder&) = delete;

  void before(std::string_view name, std::span<const operand> operands) override {
    step_program::launch& l = launches_.emplace_back();
    l.name = name;
    for (const operand& o : operands) {
      if (const std::optional<touch> t = arena_.touched_by(o)) {
        l.touches.push_back(*t);
      }
    }
  }
  /// Ends the recording.
  [[nodiscard]] step_program take() {
    arena_.set_watch({});
    if (!launches_.empty()) {
      std::vector<value_change>& last = launches_.back().changes;
      last.insert(last.end(), first_.begin(), first_.end());
    }
    return {arena_.capacity(), arena_.parts(), std::move(launches_)};
  }

 private:
  hand_arena& arena_;
  std::vector<step_program::launch> launches_{};
  std::vector<value_change> first_{};  // said before the first launch
};

/// What a memory system written by hand has moved.
struct hand_traffic {
  std::uint64_t in = 0;
  std::uint64_t out = 0;
  std::uint64_t discarded = 0;  ///< bytes that left without a copy, because they were of no value or unchanged

  friend hand_traffic operator-(hand_traffic a, const hand_traffic& b) {
    return {a.in - b.in, a.out - b.out, a.discarded - b.discarded};
  }
};

/// A memory system that was written for one step.
class hand_system : public launch_hook {
 public:
  [[nodiscard]] virtual hand_traffic traffic() const = 0;
  /// Host time that launches have waited for memory.
  [[nodiscard]] virtual nanoseconds stalled() const = 0;
};

}  // namespace deepum::gpu_bench
