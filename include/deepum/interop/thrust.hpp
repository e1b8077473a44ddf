#pragma once

#include <deepum/arena.hpp>
#include <deepum/core/launch.hpp>
#include <deepum/interop/scratch.hpp>
#include <deepum/interop/temporary_storage.hpp>
#include <deepum/operand.hpp>
#include <deepum/stream.hpp>
#include <deepum/units.hpp>

#include <cuda_runtime_api.h>
#include <thrust/device_ptr.h>
#include <thrust/device_reference.h>
#include <thrust/system/cuda/execution_policy.h>

#include <algorithm>
#include <cstddef>
#include <initializer_list>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace deepum {
inline namespace v0 {
namespace interop {

/// Gives a `thrust::device_vector` memory of an arena. The vector is to end before the arena.
///
/// For memory that faults alone: a vector launches kernels of its own (it constructs and copies elements) that declare
/// nothing, and memory that never faults breaks there. Take `arena::allocate` and `interop::thrust_calls` for that.
///
/// Those kernels run beside the streams of the arena, which does not see them. Thrust waits for them, and a program has
/// to wait for other launches of the kind before memory is given back.
///
/// Threads: any.
///
///     deepum::interop::thrust_allocator<float, decltype(arena)::memory_type> from{arena};
///     thrust::device_vector<float, decltype(from)> x(n, from);
template <class T, memory_kind Memory>
class thrust_allocator {
  static_assert(!faultless_memory_kind<Memory>,
                "thrust::device_vector touches its elements in kernels that declare nothing, which needs page faults");

 public:
  using value_type = T;
  using pointer = ::thrust::device_ptr<T>;
  using const_pointer = ::thrust::device_ptr<const T>;
  using reference = ::thrust::device_reference<T>;
  using const_reference = ::thrust::device_reference<const T>;
  using size_type = std::size_t;
  using difference_type = std::ptrdiff_t;
  /// The allocator for another type of element.
  template <class U>
  struct rebind {
    using other = thrust_allocator<U, Memory>;
  };

  /// The arena has to outlive the vectors.
  explicit thrust_allocator(arena<Memory>& owner) : owner_(&owner) {}
  /// For another type of element, of the same arena.
  template <class U>
  thrust_allocator(const thrust_allocator<U, Memory>& other)  // NOLINT(google-explicit-constructor)
      : owner_(&other.owner()) {}

  /// @errors  Those of `arena::allocate`.
  [[nodiscard]] pointer allocate(size_type n) { return pointer(owner_->template allocate<T>(n)); }
  /// @errors  Those of `arena::deallocate`.
  void deallocate(pointer p, size_type /*n*/) { owner_->deallocate(p.get()); }
  /// The arena that it takes memory from.
  [[nodiscard]] arena<Memory>& owner() const { return *owner_; }

  template <class U>
  friend bool operator==(const thrust_allocator& a, const thrust_allocator<U, Memory>& b) {
    return &a.owner() == &b.owner();
  }

 private:
  arena<Memory>* owner_;
};

/// Thrust's algorithms on one stream of an arena, each as a launch that declares what it touches.
///
/// Their temporary storage lies in the arena, is declared, and is kept. How much an algorithm needs is known when it
/// has run: where it is more than there is, CUDA's pool gives the rest this time, beside the arena's budget, and the
/// storage grows for the next launch. `storage` in the constructor spares even that.
///
/// Threads: those of the stream. Ends before the stream and the arena.
///
///     deepum::interop::thrust_calls thrust{arena, s};
///     thrust.call("sort", {updates(x, n)}, [&](auto& policy) { ::thrust::sort(policy, x, x + n); });
template <memory_kind Memory>
class thrust_calls {
 public:
  /// @param storage  To begin with; it grows.
  /// @errors  Those of `arena::allocate`.
  thrust_calls(arena<Memory>& owner, stream<Memory>& s, bytes storage = {}) : stream_(s), storage_(owner, storage) {}
  thrust_calls(const thrust_calls&) = delete;
  thrust_calls& operator=(const thrust_calls&) = delete;

  /// @param operands   All that the algorithms touch beside their storage. An empty list means that this is not known.
  /// @param algorithm  `algorithm(policy)` runs algorithms with this policy, on raw pointers. It does not wait for them
  ///                   (`thrust::cuda::par_nosync`), but for those that return a value, as `reduce` does.
  /// @errors  What `algorithm` throws (`thrust::system_error`), `status::out_of_device_memory`, those of
  ///          `arena::allocate` and `stream::call`. Cost beside Thrust's: that of a launch.
  template <class Algorithm>
  launch_id call(std::string_view name, std::initializer_list<operand> operands, Algorithm&& algorithm) {
    return call(name, std::span<const operand>(operands.begin(), operands.size()), std::forward<Algorithm>(algorithm));
  }
  /// The same with operands that are counted at run time.
  template <class Algorithm>
  launch_id call(std::string_view name, std::span<const operand> operands, Algorithm&& algorithm) {
    storage_.reserve(needed_);
    storage_.used_by(stream_);
    declared_.assign(operands.begin(), operands.end());
    if (!declared_.empty()) {  // of a launch that may touch anything nothing is said
      declared_.push_back(storage_.operand());
    }
    return stream_.call(name, declared_, [&](cudaStream_t q) {
      temporary_storage storage(storage_.data(), storage_.size(), q);
      auto policy = ::thrust::cuda::par_nosync(storage).on(q);
      std::forward<Algorithm>(algorithm)(policy);
      needed_ = std::max(needed_, storage.needed());
    });
  }

  /// What it has grown to. What the last launch was short of is added by the next one.
  [[nodiscard]] bytes storage_size() const { return storage_.size(); }

 private:
  stream<Memory>& stream_;
  scratch<Memory> storage_;
  bytes needed_{};
  std::vector<operand> declared_{};
};

}  // namespace interop
}  // namespace v0
}  // namespace deepum
