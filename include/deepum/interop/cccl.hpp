#pragma once

// Before CCCL 3.1 `cuda::mr` is hidden behind this; a program that includes <cuda/memory_resource> earlier defines it.
#ifndef LIBCUDACXX_ENABLE_EXPERIMENTAL_MEMORY_RESOURCE
#define LIBCUDACXX_ENABLE_EXPERIMENTAL_MEMORY_RESOURCE  // NOLINT(readability-identifier-naming): CCCL's name
#endif

#include <deepum/arena.hpp>
#include <deepum/cuda/api.hpp>
#include <deepum/cuda/check.hpp>
#include <deepum/cuda/relaxed_capture.hpp>
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
  /// Waits for all of it. What graphs that are still there may use, and what cannot be known, is the arena's.
  ~deferred_frees() {
    (void)reclaim(true);
    for (const waiting& w : waiting_) {
      (void)cuda::succeeded(cudaEventDestroy(w.reached));
    }
  }
  deferred_frees(const deferred_frees&) = delete;
  deferred_frees& operator=(const deferred_frees&) = delete;

  [[nodiscard]] void* allocate(std::size_t size, std::size_t alignment) {
    (void)reclaim(false);
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
    if (may_be_captured(stream)) {
      give_to_graph(stream, p);
      return;
    }
    cudaEvent_t reached = nullptr;
    if (!cuda::succeeded(cudaEventCreateWithFlags(&reached, cudaEventDisableTiming)) ||
        !cuda::succeeded(cudaEventRecord(reached, stream))) {
      if (reached != nullptr) {
        (void)cuda::succeeded(cudaEventDestroy(reached));
      }
      // Where even this tells nothing, the arena has it back when it ends.
      const cuda::relaxed_capture beside_captures;
      if (cuda::succeeded(cudaStreamSynchronize(stream)) || cuda::reached(cudaStreamQuery, stream)) {
        free(p);
      }
      return;
    }
    {
      const std::lock_guard lock(mutex_);
      waiting_.push_back({p, reached});
    }
    (void)reclaim(false);
  }

  [[nodiscard]] arena<Memory>& owner() const { return *owner_; }

 private:
  struct waiting {
    void* p;
    cudaEvent_t reached;
  };
  /// Memory of graphs that have ended. Outlives this where graphs do.
  struct released {
    std::mutex mutex{};
    std::vector<void*> all{};
  };
  /// What a graph has of its memory.
  struct in_graph {
    std::shared_ptr<released> to;
    void* p;
  };

  static bool may_be_captured(cudaStream_t stream) noexcept {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    const cudaError_t result = cudaStreamIsCapturing(stream, &status);
    return cuda::succeeded(result) ? status != cudaStreamCaptureStatusNone : !cuda::ends_all_work(result);
  }

  /// The memory is given back when the graph and all that was made of it are gone and executed no more. Where the
  /// runtime cannot promise that, the arena has it back when it ends.
  void give_to_graph(cudaStream_t stream, void* p) noexcept {
    const cudaGraph_t graph = cuda::api::graph_of_capture(stream);
    if (graph == nullptr) {
      return;
    }
    auto owned = std::make_unique<in_graph>(in_graph{released_, p});
    cudaUserObject_t object = nullptr;
    if (!cuda::succeeded(
            cudaUserObjectCreate(&object, owned.get(), &graph_has_ended, 1, cudaUserObjectNoDestructorSync))) {
      return;
    }
    in_graph* const in = owned.release();
    if (!cuda::succeeded(cudaGraphRetainUserObject(graph, object, 1, cudaGraphUserObjectMove))) {
      in->p = nullptr;
      (void)cuda::succeeded(cudaUserObjectRelease(object, 1));
    }
  }
  /// Called by a thread of the runtime's, which must not call the runtime. It does not wait.
  static void CUDART_CB graph_has_ended(void* user) {
    const std::unique_ptr<in_graph> in(static_cast<in_graph*>(user));
    if (in->p != nullptr) {
      const std::lock_guard lock(in->to->mutex);
      in->to->all.push_back(in->p);
    }
  }

  /// @returns  Whether anything was given back.
  bool reclaim(bool wait) noexcept {
    std::vector<void*> over;
    {
      const std::lock_guard lock(released_->mutex);
      over.swap(released_->all);
    }
    {
      const std::lock_guard lock(mutex_);
      const cuda::relaxed_capture beside_captures;
      const auto done = std::partition(waiting_.begin(), waiting_.end(), [&](const waiting& w) {
        return !(wait && cuda::succeeded(cudaEventSynchronize(w.reached))) && !cuda::reached(cudaEventQuery, w.reached);
      });
      for (auto w = done; w != waiting_.end(); ++w) {
        (void)cuda::succeeded(cudaEventDestroy(w->reached));
        over.push_back(w->p);
      }
      waiting_.erase(done, waiting_.end());
    }
    for (void* const p : over) {
      free(p);
    }
    return !over.empty();
  }

  arena<Memory>* owner_;
  std::mutex mutex_;
  std::vector<waiting> waiting_{};
  std::shared_ptr<released> released_ = std::make_shared<released>();
};

}  // namespace detail

/// Memory of an arena as a resource of `cuda::mr`, for RMM, `cuda::mr::any_resource` and containers of CCCL. It has the
/// names of CCCL 2 and 3.0 (`allocate`, `allocate_async`) and of CCCL 3.1 and later (`allocate_sync`).
///
/// Memory given back in the order of a stream returns when the stream has come there; copies share that. Inside a
/// capture it belongs to the graph, and returns after the graph and all that was made of it. Paged memory takes
/// launches inside of `stream::call` alone, with their operands, and has no `cuda::mr::host_accessible`.
///
/// Threads: any. The last copy waits for what was given back, and ends before the arena.
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
  /// New memory can be used at once, on any stream. Cost of giving back: an event.
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
    requires(!paged_memory_kind<Memory>)
  {}

 private:
  std::shared_ptr<detail::deferred_frees<Memory>> state_;
};

}  // namespace interop
}  // namespace v0
}  // namespace deepum
