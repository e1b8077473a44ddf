#pragma once

#include <deepum/arena.hpp>
#include <deepum/core/block.hpp>
#include <deepum/core/block_grid.hpp>
#include <deepum/core/launch.hpp>
#include <deepum/engine/declared_blocks.hpp>
#include <deepum/engine/memory_kind.hpp>
#include <deepum/error.hpp>
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
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace deepum {
inline namespace v0 {
namespace interop {

/// Gives a `thrust::device_vector` memory of an arena. For managed memory alone: a vector launches kernels of its own
/// that declare nothing. On paged memory use `arena::allocate` and `interop::thrust_calls`.
///
/// Those kernels run beside the streams of the arena, which does not see them. Thrust waits for them; a program waits
/// for other launches of the kind before memory is given back.
///
/// Threads: any. The vector ends before the arena.
///
///     deepum::interop::thrust_allocator<float, decltype(arena)::memory_type> from{arena};
///     thrust::device_vector<float, decltype(from)> x(n, from);
template <class T, memory_kind Memory>
class thrust_allocator {
  static_assert(!paged_memory_kind<Memory>,
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

/// Thrust's algorithms on one stream of an arena, each as a launch that declares what it touches. Their temporary
/// storage lies in the arena, is declared, and is kept.
///
/// The need of an algorithm is known when it has run: what it lacked came from CUDA's pool, beside the budget, and the
/// storage grows for the next launch (or is given to the constructor). What never fits comes from the pool every time.
/// An algorithm for which the pool has nothing throws.
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
  thrust_calls(arena<Memory>& owner, stream<Memory>& s, bytes storage = {})
      : owner_(owner),
        stream_(s),
        storage_(owner, storage) {}
  thrust_calls(const thrust_calls&) = delete;
  thrust_calls& operator=(const thrust_calls&) = delete;

  /// @param operands   All that the algorithms touch beside their storage. An empty list means that this is not known.
  /// @param algorithm  `algorithm(policy)` runs algorithms with this policy, on raw pointers. It does not wait for them
  ///                   (`thrust::cuda::par_nosync`), but for those that return a value, as `reduce` does.
  /// @errors  What `algorithm` throws (`thrust::system_error`), `status::out_of_device_memory`, those of
  ///          `stream::call`. Cost beside Thrust's: that of a launch.
  template <class Algorithm>
  launch_id call(std::string_view name, std::initializer_list<operand> operands, Algorithm&& algorithm) {
    return call(name, std::span<const operand>(operands.begin(), operands.size()), std::forward<Algorithm>(algorithm));
  }
  /// The same with operands that are counted at run time.
  template <class Algorithm>
  launch_id call(std::string_view name, std::span<const operand> operands, Algorithm&& algorithm) {
    grow();
    storage_.used_by(stream_);
    const bytes part = usable(name, operands);
    declared_.assign(operands.begin(), operands.end());
    if (!declared_.empty()) {  // of a launch that may touch anything nothing is said
      declared_.push_back(uses_as_scratch(storage_.data(), part));
    }
    bytes needed{};
    const auto run = [&](cudaStream_t q) {
      temporary_storage storage(storage_.data(), part, q);
      auto policy = ::thrust::cuda::par_nosync(storage).on(q);
      try {
        std::forward<Algorithm>(algorithm)(policy);
      } catch (...) {
        needed = storage.needed();
        throw;
      }
      needed = storage.needed();
    };
    try {
      const launch_id id = stream_.call(name, declared_, run);
      note(name, operands, needed);
      return id;
    } catch (...) {
      note(name, operands, needed);
      throw;
    }
  }

  /// What it has grown to. The next launch adds what the last one was short of.
  [[nodiscard]] bytes storage_size() const { return storage_.size(); }

 private:
  /// Where the arena has no room, CUDA's pool goes on giving what the storage does not have.
  void grow() {
    const bytes had = storage_.size();
    if (needed_ > had && !reserves(needed_)) {
      too_much_ = needed_;
      needed_ = had;
      (void)reserves(had);
    }
  }
  bool reserves(bytes size) {
    try {
      storage_.reserve(size);
      return true;
    } catch (const error& e) {
      if (e.code() != status::out_of_arena_space) {
        throw;
      }
      return false;
    }
  }

  /// An algorithm has needed as much. @param operands  Of its launch.
  void note(std::string_view name, std::span<const operand> operands, bytes needed) {
    if (needed > needed_ && needed > storage_.size() && needed < too_much_ &&
        in_blocks(needed) <= room(name, operands)) {
      needed_ = needed;
    }
  }
  /// What a launch may use of the storage: on memory that never faults all that it declares has to fit into the budget.
  [[nodiscard]] bytes usable(std::string_view name, std::span<const operand> operands) {
    const bytes size = storage_.size();
    if constexpr (paged_memory_kind<Memory>) {
      if (size.count != 0 && !operands.empty()) {
        const std::uint64_t blocks = room(name, operands);
        const bytes offset = *owner_.offset_of(storage_.data());
        if (block_grid{owner_.block()}.blocks_of(offset, size).count > blocks) {
          const bool whole_blocks = offset / owner_.block() * owner_.block() == offset;
          return whole_blocks ? std::min(size, blocks * owner_.block()) : bytes{};
        }
      }
    }
    return size;
  }
  /// Blocks of the budget that the operands leave over. Of a launch that may touch anything, what is allocated does.
  [[nodiscard]] std::uint64_t room(std::string_view name, std::span<const operand> operands) {
    launch_record record;
    owner_.rooms().launches.name_operands(name, operands, named_);
    owner_.rooms().launches.declare(std::span<const named_operand>(named_), record.accesses);
    const std::uint64_t all = owner_.budget() / owner_.block();
    const std::uint64_t used = operands.empty() && paged_memory_kind<Memory>
                                   ? in_blocks(owner_.footprint().allocated - storage_.size())
                                   : deepum::detail::distinct_blocks(record);
    return all - std::min(all, used);
  }
  [[nodiscard]] std::uint64_t in_blocks(bytes size) const {
    return (size + owner_.block() - bytes{1}) / owner_.block();
  }

  arena<Memory>& owner_;
  stream<Memory>& stream_;
  scratch<Memory> storage_;
  bytes needed_{};
  bytes too_much_{std::numeric_limits<std::uint64_t>::max()};  // the arena had no room for it
  std::vector<operand> declared_{};
  std::vector<named_operand> named_{};
};

}  // namespace interop
}  // namespace v0
}  // namespace deepum
