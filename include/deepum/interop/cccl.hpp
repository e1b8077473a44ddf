#pragma once

// Before CCCL 3.1 `cuda::mr` is hidden behind this; whoever includes <cuda/memory_resource> earlier defines it himself.
#ifndef LIBCUDACXX_ENABLE_EXPERIMENTAL_MEMORY_RESOURCE
#define LIBCUDACXX_ENABLE_EXPERIMENTAL_MEMORY_RESOURCE  // NOLINT(readability-identifier-naming): CCCL's name
#endif

#include <deepum/arena.hpp>
#include <deepum/cuda/check.hpp>
#include <deepum/engine/memory_kind.hpp>
#include <deepum/error.hpp>
#include <deepum/units.hpp>

#include <cuda/memory_resource>
#include <cuda/std/version>
#include <cuda/stream_ref>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace deepum {
inline namespace v0 {
namespace interop {

namespace detail {

/// Memory that was given back in the order of streams that the arena knows nothing of.
template <memory_kind Memory>
class deferred_frees {
 public:
  explicit deferred_frees(arena<Memory>& owner) : owner_(&owner) {}
  /// Waits for all of it.
  ~deferred_frees() { reclaim(true); }
  deferred_frees(const deferred_frees&) = delete;
  deferred_frees& operator=(const deferred_frees&) = delete;

  [[nodiscard]] void* allocate(std::size_t size, std::size_t alignment) {
    reclaim(false);
    try {
      return owner_->allocate_bytes(bytes{size}, bytes{alignment});
    } catch (const error& e) {
      if (e.code() != status::out_of_arena_space || !reclaim(true)) {
        throw;
      }
    }
    return owner_->allocate_bytes(bytes{size}, bytes{alignment});
  }
  void free(void* p) noexcept { owner_->deallocate(p); }
  void free_after(cudaStream_t stream, void* p) noexcept {
    if (p == nullptr) {
      return;
    }
    cudaEvent_t reached = nullptr;
    if (!cuda::worked(cudaEventCreateWithFlags(&reached, cudaEventDisableTiming)) ||
        !cuda::worked(cudaEventRecord(reached, stream))) {
      if (reached != nullptr) {
        (void)cuda::worked(cudaEventDestroy(reached));
      }
      cuda::settle(stream);
      free(p);
      return;
    }
    {
      const std::lock_guard lock(mutex_);
      waiting_.push_back({p, reached});
    }
    reclaim(false);
  }

  [[nodiscard]] arena<Memory>& owner() const { return *owner_; }

 private:
  struct waiting {
    void* p;
    cudaEvent_t reached;
  };

  /// @returns  Whether anything was given back.
  bool reclaim(bool wait) noexcept {
    const std::lock_guard lock(mutex_);
    const auto done = std::partition(waiting_.begin(), waiting_.end(), [&](const waiting& w) {
      if (wait) {
        (void)cuda::worked(cudaEventSynchronize(w.reached));
        return false;
      }
      return !cuda::reached(cudaEventQuery, w.reached);
    });
    const bool any = done != waiting_.end();
    for (auto w = done; w != waiting_.end(); ++w) {
      (void)cuda::worked(cudaEventDestroy(w->reached));
      free(w->p);
    }
    waiting_.erase(done, waiting_.end());
    return any;
  }

  arena<Memory>* owner_;
  std::mutex mutex_;
  std::vector<waiting> waiting_{};
};

}  // namespace detail

/// Memory of an arena as a resource of `cuda::mr`, for RMM, `cuda::mr::any_resource` and containers of CCCL.
///
/// It has the names of CCCL 2 and 3.0 (`allocate`, `allocate_async`) and those of CCCL 3.1 and later
/// (`allocate_sync`, `allocate(stream, ...)`).
///
/// Whoever takes memory by it launches on streams of his own. So what is given back in the order of a stream is kept
/// until the stream has come there; what is given back without a stream nobody may use any more. Copies share that.
///
/// On memory that faults those launches need declare nothing. Memory that never faults takes them inside of
/// `stream::call` alone, with their operands; it has no `cuda::mr::host_accessible`, since the host finds its contents
/// elsewhere.
///
/// Threads: any. Its last copy waits for what was given back, and ends before the arena.
///
///     deepum::interop::arena_resource resource{arena};
///     rmm::mr::set_current_device_resource(resource);
template <memory_kind Memory>
class arena_resource {
 public:
  static constexpr std::size_t default_alignment = 256;

  explicit arena_resource(arena<Memory>& owner) : state_(std::make_shared<detail::deferred_frees<Memory>>(owner)) {}

  /// @name Without a stream
  /// @errors  Those of `arena::allocate_bytes`. Giving back a pointer that is not of the arena ends the program.
  /// @{
  [[nodiscard]] void* allocate(std::size_t size, std::size_t alignment = default_alignment) {
    return state_->allocate(size, alignment);
  }
  void deallocate(void* p, std::size_t /*size*/, std::size_t /*alignment*/ = default_alignment) noexcept {
    state_->free(p);
  }
  [[nodiscard]] void* allocate_sync(std::size_t size, std::size_t alignment = default_alignment) {
    return allocate(size, alignment);
  }
  void deallocate_sync(void* p, std::size_t size, std::size_t alignment = default_alignment) noexcept {
    deallocate(p, size, alignment);
  }
  /// @}

  /// @name In the order of a stream
  /// What is allocated can be used at once, on any stream. Cost of giving back: an event.
  /// @{
  [[nodiscard]] void* allocate(::cuda::stream_ref /*stream*/, std::size_t size,
                               std::size_t alignment = default_alignment) {
    return allocate(size, alignment);
  }
  void deallocate(::cuda::stream_ref stream, void* p, std::size_t /*size*/,
                  std::size_t /*alignment*/ = default_alignment) noexcept {
    state_->free_after(stream.get(), p);
  }
  [[nodiscard]] void* allocate_async(std::size_t size, std::size_t alignment, ::cuda::stream_ref /*stream*/) {
    return allocate(size, alignment);
  }
  [[nodiscard]] void* allocate_async(std::size_t size, ::cuda::stream_ref /*stream*/) { return allocate(size); }
  void deallocate_async(void* p, std::size_t /*size*/, std::size_t /*alignment*/, ::cuda::stream_ref stream) noexcept {
    state_->free_after(stream.get(), p);
  }
  void deallocate_async(void* p, std::size_t /*size*/, ::cuda::stream_ref stream) noexcept {
    state_->free_after(stream.get(), p);
  }
  /// @}

  [[nodiscard]] arena<Memory>& owner() const { return state_->owner(); }

  /// Memory of one can be given back to the other.
  friend bool operator==(const arena_resource& a, const arena_resource& b) { return &a.owner() == &b.owner(); }
  friend bool operator!=(const arena_resource& a, const arena_resource& b) { return !(a == b); }

  friend constexpr void get_property(const arena_resource& /*r*/, ::cuda::mr::device_accessible /*p*/) noexcept {}
  friend constexpr void get_property(const arena_resource& /*r*/, ::cuda::mr::host_accessible /*p*/) noexcept
    requires(!faultless_memory_kind<Memory>)
  {}

 private:
  std::shared_ptr<detail::deferred_frees<Memory>> state_;
};

}  // namespace interop
}  // namespace v0
}  // namespace deepum
