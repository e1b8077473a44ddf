#pragma once

#if __has_include(<cudnn.h>)  // it does not come with the toolkit; without it this header has nothing

#include <deepum/arena.hpp>
#include <deepum/core/launch.hpp>
#include <deepum/error.hpp>
#include <deepum/interop/cudnn_shapes.hpp>
#include <deepum/interop/scratch.hpp>
#include <deepum/operand.hpp>
#include <deepum/stream.hpp>
#include <deepum/units.hpp>

#include <cudnn.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace deepum {
inline namespace v0 {
namespace interop {

/// A tensor of a convolution that is read.
struct const_tensor {
  cudnnTensorDescriptor_t shape = nullptr;
  const void* data = nullptr;
};
/// A tensor that is written.
struct tensor {
  cudnnTensorDescriptor_t shape = nullptr;
  void* data = nullptr;
};
/// The weights of a convolution, read.
struct const_filter {
  cudnnFilterDescriptor_t shape = nullptr;
  const void* data = nullptr;
};
/// Weights that are written: their gradient.
struct filter {
  cudnnFilterDescriptor_t shape = nullptr;
  void* data = nullptr;
};

/// result = alpha * op(...) + beta * result. With beta = 0 what was there before is not read.
struct blend {
  double alpha = 1;
  double beta = 0;
};

/// cuDNN on one stream of an arena: every call is a launch that declares what it touches, the workspace too. Results
/// are declared as overwritten where beta is 0 and the tensor is packed; otherwise as updated.
///
/// The workspace lies in the arena and grows to the largest that was needed; each stream needs an object of its own.
/// Each function: @param workspace  Bytes that the algorithm needs; nothing: cuDNN is asked each time.
/// @errors  `status::device_failure`; those of `arena::allocate` and of `stream::call`. Cost: a launch, some queries.
///
/// Threads: those of the stream. Ends before the stream and the arena.
///
///     deepum::interop::cudnn_calls dnn{arena, s};
///     dnn.convolution_forward("conv1", {x_shape, x}, {w_shape, w}, how, algorithm, {y_shape, y});
template <memory_kind Memory>
class cudnn_calls {
 public:
  /// Creates a handle. Cost: some milliseconds.
  /// @errors  `status::device_failure`.
  cudnn_calls(arena<Memory>& owner, stream<Memory>& s) : cudnn_calls(owner, s, create()) {}
  /// Uses a handle of the program's, which is bound to this stream until this ends, and to the default stream then.
  /// @errors  `status::device_failure`.
  cudnn_calls(arena<Memory>& owner, stream<Memory>& s, cudnnHandle_t handle)
      : cudnn_calls(owner, s, owned_handle(handle, release{false})) {}
  cudnn_calls(const cudnn_calls&) = delete;
  cudnn_calls& operator=(const cudnn_calls&) = delete;

  /// y = alpha * conv(x, w) + beta * y.
  launch_id convolution_forward(std::string_view name, const_tensor x, const_filter w, cudnnConvolutionDescriptor_t how,
                                cudnnConvolutionFwdAlgo_t algorithm, tensor y, blend mix = {},
                                std::optional<bytes> workspace = {}) {
    const bytes needed = needs(workspace, "cudnnGetConvolutionForwardWorkspaceSize", [&](std::size_t* size) {
      return cudnnGetConvolutionForwardWorkspaceSize(handle(), x.shape, w.shape, how, y.shape, algorithm, size);
    });
    const scalars scale(mix, extent_of(y.shape).type);
    return launch(name, needed, read(x), read(w), written(y, mix), "cudnnConvolutionForward", [&] {
      return cudnnConvolutionForward(handle(), scale.alpha(), x.shape, x.data, w.shape, w.data, how, algorithm,
                                     memory_for(needed), needed.count, scale.beta(), y.shape, y.data);
    });
  }

  /// dx = alpha * (the gradient of the input) + beta * dx.
  launch_id convolution_backward_data(std::string_view name, const_filter w, const_tensor dy,
                                      cudnnConvolutionDescriptor_t how, cudnnConvolutionBwdDataAlgo_t algorithm,
                                      tensor dx, blend mix = {}, std::optional<bytes> workspace = {}) {
    const bytes needed = needs(workspace, "cudnnGetConvolutionBackwardDataWorkspaceSize", [&](std::size_t* size) {
      return cudnnGetConvolutionBackwardDataWorkspaceSize(handle(), w.shape, dy.shape, how, dx.shape, algorithm, size);
    });
    const scalars scale(mix, extent_of(dx.shape).type);
    return launch(name, needed, read(w), read(dy), written(dx, mix), "cudnnConvolutionBackwardData", [&] {
      return cudnnConvolutionBackwardData(handle(), scale.alpha(), w.shape, w.data, dy.shape, dy.data, how, algorithm,
                                          memory_for(needed), needed.count, scale.beta(), dx.shape, dx.data);
    });
  }

  /// dw = alpha * (the gradient of the weights) + beta * dw.
  launch_id convolution_backward_filter(std::string_view name, const_tensor x, const_tensor dy,
                                        cudnnConvolutionDescriptor_t how, cudnnConvolutionBwdFilterAlgo_t algorithm,
                                        filter dw, blend mix = {}, std::optional<bytes> workspace = {}) {
    const bytes needed = needs(workspace, "cudnnGetConvolutionBackwardFilterWorkspaceSize", [&](std::size_t* size) {
      return cudnnGetConvolutionBackwardFilterWorkspaceSize(handle(), x.shape, dy.shape, how, dw.shape, algorithm,
                                                            size);
    });
    const scalars scale(mix, extent_of(dw.shape).type);
    return launch(name, needed, read(x), read(dy), written(dw, mix), "cudnnConvolutionBackwardFilter", [&] {
      return cudnnConvolutionBackwardFilter(handle(), scale.alpha(), x.shape, x.data, dy.shape, dy.data, how, algorithm,
                                            memory_for(needed), needed.count, scale.beta(), dw.shape, dw.data);
    });
  }

  /// db = alpha * (the sum of dy for each channel) + beta * db. Needs no workspace.
  launch_id convolution_backward_bias(std::string_view name, const_tensor dy, tensor db, blend mix = {}) {
    const scalars scale(mix, extent_of(db.shape).type);
    return launch(name, bytes{}, read(dy), {}, written(db, mix), "cudnnConvolutionBackwardBias", [&] {
      return cudnnConvolutionBackwardBias(handle(), scale.alpha(), dy.shape, dy.data, scale.beta(), db.shape, db.data);
    });
  }

  /// Any other calls of cuDNN, as one launch.
  /// @param operands   All that they touch beside the workspace. An empty list means that this is not known.
  /// @param workspace  What they need; 0: none.
  /// @param enqueue    `enqueue(cudnnHandle_t, void* workspace) -> cudnnStatus_t`. The handle is set to the stream;
  ///                   leave it so.
  template <class Enqueue>
  launch_id call(std::string_view name, std::initializer_list<operand> operands, bytes workspace, Enqueue&& enqueue) {
    return call(name, std::span<const operand>(operands.begin(), operands.size()), workspace,
                std::forward<Enqueue>(enqueue));
  }
  template <class Enqueue>
  launch_id call(std::string_view name, std::span<const operand> operands, bytes workspace, Enqueue&& enqueue) {
    use_workspace(workspace);
    declared_.assign(operands.begin(), operands.end());
    if (!declared_.empty() && workspace.count != 0) {  // of a launch that may touch anything nothing is said
      declared_.push_back(workspace_operand(workspace));
    }
    return stream_.call(name, declared_,
                        [&](cudaStream_t) { check_cudnn(enqueue(handle(), memory_for(workspace)), "cuDNN"); });
  }

  /// For settings and queries. Its stream stays as it is.
  [[nodiscard]] cudnnHandle_t handle() const { return handle_.get(); }
  /// What it has grown to.
  [[nodiscard]] bytes workspace_size() const { return workspace_.size(); }

 private:
  struct release {
    bool owns = true;
    void operator()(cudnnHandle_t h) const { (void)(owns ? cudnnDestroy(h) : cudnnSetStream(h, nullptr)); }
  };
  using owned_handle = std::unique_ptr<std::remove_pointer_t<cudnnHandle_t>, release>;

  /// What a descriptor says about memory.
  struct extent {
    bytes size{};         // from the first to the last element
    bool packed = false;  // all of it are elements
    cudnnDataType_t type = CUDNN_DATA_FLOAT;
  };

  /// Alpha and beta as cuDNN takes them: of type double for tensors of double, else float.
  class scalars {
   public:
    scalars(blend mix, cudnnDataType_t type)
        : in_double_(type == CUDNN_DATA_DOUBLE),
          wide_{mix.alpha, mix.beta},
          narrow_{static_cast<float>(mix.alpha), static_cast<float>(mix.beta)} {}
    [[nodiscard]] const void* alpha() const { return at(0); }
    [[nodiscard]] const void* beta() const { return at(1); }

   private:
    [[nodiscard]] const void* at(std::size_t i) const {
      return in_double_ ? static_cast<const void*>(&wide_[i]) : &narrow_[i];
    }

    bool in_double_;
    std::array<double, 2> wide_;
    std::array<float, 2> narrow_;
  };

  cudnn_calls(arena<Memory>& owner, stream<Memory>& s, owned_handle handle)
      : stream_(s),
        workspace_(owner),
        handle_(std::move(handle)) {
    check_cudnn(cudnnSetStream(handle_.get(), s.native().native()), "cudnnSetStream");
  }
  static owned_handle create() {
    cudnnHandle_t made = nullptr;
    check_cudnn(cudnnCreate(&made), "cudnnCreate");
    return owned_handle(made);
  }

  static std::uint64_t size_of(cudnnDataType_t type) {
    switch (type) {
      case CUDNN_DATA_DOUBLE:
      case CUDNN_DATA_INT64:
        return 8;
      case CUDNN_DATA_FLOAT:
      case CUDNN_DATA_INT32:
        return 4;
      case CUDNN_DATA_HALF:
      case CUDNN_DATA_BFLOAT16:
        return 2;
      case CUDNN_DATA_INT8:
      case CUDNN_DATA_UINT8:
        return 1;
      default:
        return 0;  // of others it is not known here whether they are packed
    }
  }
  static extent extent_of(cudnnTensorDescriptor_t shape) {
    std::size_t size = 0;
    check_cudnn(cudnnGetTensorSizeInBytes(shape, &size), "cudnnGetTensorSizeInBytes");
    const tensor_shape s = shape_of(shape);
    std::uint64_t elements = size_of(s.type);
    for (int i = 0; i < s.dimensions; ++i) {
      elements *= static_cast<std::uint64_t>(s.lengths[static_cast<std::size_t>(i)]);
    }
    return {bytes{size}, elements == size, s.type};
  }
  static extent extent_of(cudnnFilterDescriptor_t shape) {
    std::size_t size = 0;
    check_cudnn(cudnnGetFilterSizeInBytes(shape, &size), "cudnnGetFilterSizeInBytes");
    const cudnnDataType_t type = shape_of(shape).type;
    return {bytes{size}, size_of(type) != 0, type};  // filters have no strides
  }

  template <class Operand>
  static operand read(const Operand& o) {
    return reads(o.data, extent_of(o.shape).size.count);
  }
  template <class Operand>
  static operand written(const Operand& o, blend mix) {
    const extent e = extent_of(o.shape);
    // Narrowed to float, a beta may become 0; then less is declared than could be.
    return mix.beta == 0 && e.packed ? operand(overwrites(o.data, e.size.count))
                                     : operand(updates(o.data, e.size.count));
  }

  template <class Query>
  static bytes needs(std::optional<bytes> workspace, const char* api, Query&& query) {
    if (workspace) {
      return *workspace;
    }
    std::size_t size = 0;
    check_cudnn(query(&size), api);
    return bytes{size};
  }
  void use_workspace(bytes size) {
    if (size.count != 0) {
      workspace_.reserve(size);
      workspace_.used_by(stream_);
    }
  }
  [[nodiscard]] void* memory_for(bytes workspace) const { return workspace.count == 0 ? nullptr : workspace_.data(); }
  [[nodiscard]] operand workspace_operand(bytes size) const { return uses_as_scratch(workspace_.data(), size); }

  template <class Enqueue>
  launch_id launch(std::string_view name, bytes workspace, operand first, operand second, operand result,
                   const char* api, Enqueue&& enqueue) {
    use_workspace(workspace);
    const std::array<operand, 4> all{
        first, second, result,
        workspace.count == 0 ? operand{nullptr, bytes{}, access::read} : workspace_operand(workspace)};
    return stream_.call(name, all, [&](cudaStream_t) { check_cudnn(enqueue(), api); });
  }

  stream<Memory>& stream_;
  scratch<Memory> workspace_;
  owned_handle handle_;
  std::vector<operand> declared_{};
};

}  // namespace interop
}  // namespace v0
}  // namespace deepum

#endif
