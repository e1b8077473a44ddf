#pragma once

#include <deepum/arena.hpp>
#include <deepum/core/launch.hpp>
#include <deepum/cuda/check.hpp>
#include <deepum/interop/scratch.hpp>
#include <deepum/operand.hpp>
#include <deepum/stream.hpp>
#include <deepum/units.hpp>

#include <cuda_runtime_api.h>

#include <cstddef>
#include <initializer_list>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace deepum {
inline namespace v0 {
namespace interop {

/// CUB's device-wide algorithms on one stream of an arena: both calls of each, the one for the size of the temporary
/// storage and the one that does the work, as one launch. The storage lies in the arena, is declared, and is kept.
///
/// Threads: those of the stream. Ends before the stream and the arena.
///
///     deepum::interop::cub_calls cub{arena, s};
///     cub.call("sum", {reads(x, n), overwrites(sum, 1)}, [&](void* storage, std::size_t& size, cudaStream_t q) {
///       return ::cub::DeviceReduce::Sum(storage, size, x, sum, n, q);
///     });
template <memory_kind Memory>
class cub_calls {
 public:
  /// @param storage  To begin with; it grows.
  /// @errors  Those of `arena::allocate`.
  cub_calls(arena<Memory>& owner, stream<Memory>& s, bytes storage = {}) : stream_(s), storage_(owner, storage) {}
  cub_calls(const cub_calls&) = delete;
  cub_calls& operator=(const cub_calls&) = delete;

  /// @param operands  All that the algorithm touches beside its storage. An empty list means that this is not known.
  /// @param both      `both(void* storage, std::size_t& size, cudaStream_t) -> cudaError_t`. Called twice, with the
  ///                  same arguments for CUB.
  /// @errors  `status::device_failure`, those of `arena::allocate` and `stream::call`. Cost beside CUB's: that of a
  ///          launch.
  template <class Both>
  launch_id call(std::string_view name, std::initializer_list<operand> operands, Both&& both) {
    return call(name, std::span<const operand>(operands.begin(), operands.size()), std::forward<Both>(both));
  }
  /// The same with operands that are counted at run time.
  template <class Both>
  launch_id call(std::string_view name, std::span<const operand> operands, Both&& both) {
    std::size_t size = 0;
    cuda::check(both(nullptr, size, native()), "CUB, for the size of its storage");
    if (size == 0) {
      size = 1;  // no storage is how CUB knows the first call
    }
    storage_.reserve(bytes{size});
    storage_.used_by(stream_);
    declared_.assign(operands.begin(), operands.end());
    if (!declared_.empty()) {  // of a launch that may touch anything nothing is said
      declared_.push_back(uses_as_scratch(storage_.data(), bytes{size}));
    }
    return stream_.call(name, declared_, [&](cudaStream_t q) { cuda::check(both(storage_.data(), size, q), "CUB"); });
  }

  /// What it has grown to.
  [[nodiscard]] bytes storage_size() const { return storage_.size(); }

 private:
  [[nodiscard]] cudaStream_t native() const { return stream_.native().native(); }

  stream<Memory>& stream_;
  scratch<Memory> storage_;
  std::vector<operand> declared_{};
};

}  // namespace interop
}  // namespace v0
}  // namespace deepum
