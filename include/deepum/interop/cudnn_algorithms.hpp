#pragma once

#if __has_include(<cudnn.h>)  // it does not come with the toolkit; without it this header has nothing

#include <deepum/interop/cudnn_shapes.hpp>
#include <deepum/planning/algorithm_choice.hpp>
#include <deepum/units.hpp>

#include <cudnn.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

namespace deepum {
inline namespace v0 {
namespace interop {

/// The fastest of some algorithms whose workspace is within a limit; nothing where there is none.
/// @param found  By time, as `cudnn_algorithms` gives them.
[[nodiscard]] inline std::optional<layer_algorithm> fastest_within(const std::vector<layer_algorithm>& found,
                                                                   bytes limit) {
  const auto it =
      std::find_if(found.begin(), found.end(), [limit](const layer_algorithm& a) { return a.workspace <= limit; });
  return it == found.end() ? std::nullopt : std::optional(*it);
}

/// Algorithms of convolutions with their times and workspaces, as cuDNN's own search measures them on the device: for
/// "the fastest whose workspace fits what is left of the budget", and for `choose_layers`.
///
/// Each shape is searched once. Cost then: a look-up in a map and a few queries; the first time tens of milliseconds,
/// in which cuDNN takes and gives back device memory of its own, beside what the arena holds: leave it headroom.
///
/// Each search: @returns Those that work, the fastest first. `layer_algorithm::number` is cuDNN's, to be cast to its
/// enumeration. It stays where it is as long as this lives.
/// @errors  `status::device_failure`. Threads: one at a time.
///
///     deepum::interop::cudnn_algorithms search{dnn.handle()};
///     const auto best = fastest_within(search.forward(x_shape, w_shape, how, y_shape), 256_MiB);
class cudnn_algorithms {
 public:
  /// @param deterministic  Only those that give the same bits each time.
  explicit cudnn_algorithms(cudnnHandle_t handle, bool deterministic = false)
      : handle_(handle),
        deterministic_(deterministic) {}

  const std::vector<layer_algorithm>& forward(cudnnTensorDescriptor_t x, cudnnFilterDescriptor_t w,
                                              cudnnConvolutionDescriptor_t how, cudnnTensorDescriptor_t y) {
    return search<cudnnConvolutionFwdAlgoPerf_t>(
        convolution_part::forward, x, w, how, y, "cudnnFindConvolutionForwardAlgorithm",
        [&](int most, int* count, cudnnConvolutionFwdAlgoPerf_t* found) {
          return cudnnFindConvolutionForwardAlgorithm(handle_, x, w, how, y, most, count, found);
        });
  }
  const std::vector<layer_algorithm>& backward_data(cudnnFilterDescriptor_t w, cudnnTensorDescriptor_t dy,
                                                    cudnnConvolutionDescriptor_t how, cudnnTensorDescriptor_t dx) {
    return search<cudnnConvolutionBwdDataAlgoPerf_t>(
        convolution_part::backward_data, dx, w, how, dy, "cudnnFindConvolutionBackwardDataAlgorithm",
        [&](int most, int* count, cudnnConvolutionBwdDataAlgoPerf_t* found) {
          return cudnnFindConvolutionBackwardDataAlgorithm(handle_, w, dy, how, dx, most, count, found);
        });
  }
  const std::vector<layer_algorithm>& backward_filter(cudnnTensorDescriptor_t x, cudnnTensorDescriptor_t dy,
                                                      cudnnConvolutionDescriptor_t how, cudnnFilterDescriptor_t dw) {
    return search<cudnnConvolutionBwdFilterAlgoPerf_t>(
        convolution_part::backward_filter, x, dw, how, dy, "cudnnFindConvolutionBackwardFilterAlgorithm",
        [&](int most, int* count, cudnnConvolutionBwdFilterAlgoPerf_t* found) {
          return cudnnFindConvolutionBackwardFilterAlgorithm(handle_, x, dy, how, dw, most, count, found);
        });
  }

  /// Shapes that were searched.
  [[nodiscard]] std::size_t searches() const { return found_.size(); }

 private:
  using key = std::vector<std::int64_t>;

  static void append(key& to, cudnnTensorDescriptor_t of) {
    const tensor_shape s = shape_of(of);
    to.insert(to.end(), {static_cast<std::int64_t>(s.type), s.dimensions});
    to.insert(to.end(), s.lengths.begin(), s.lengths.begin() + s.dimensions);
    to.insert(to.end(), s.strides.begin(), s.strides.begin() + s.dimensions);
  }
  static void append(key& to, cudnnFilterDescriptor_t of) {
    const filter_shape s = shape_of(of);
    to.insert(to.end(), {static_cast<std::int64_t>(s.type), static_cast<std::int64_t>(s.format), s.dimensions});
    to.insert(to.end(), s.lengths.begin(), s.lengths.begin() + s.dimensions);
  }
  static cudnnMathType_t math_of(cudnnConvolutionDescriptor_t how) {
    cudnnMathType_t math = CUDNN_DEFAULT_MATH;
    check_cudnn(cudnnGetConvolutionMathType(how, &math), "cudnnGetConvolutionMathType");
    return math;
  }
  static void append(key& to, cudnnConvolutionDescriptor_t how) {
    int dimensions = 0;
    std::array<int, CUDNN_DIM_MAX> padding{};
    std::array<int, CUDNN_DIM_MAX> stride{};
    std::array<int, CUDNN_DIM_MAX> dilation{};
    cudnnConvolutionMode_t mode = CUDNN_CONVOLUTION;
    cudnnDataType_t type = CUDNN_DATA_FLOAT;
    check_cudnn(cudnnGetConvolutionNdDescriptor(how, CUDNN_DIM_MAX - 2, &dimensions, padding.data(), stride.data(),
                                                dilation.data(), &mode, &type),
                "cudnnGetConvolutionNdDescriptor");
    int groups = 1;
    check_cudnn(cudnnGetConvolutionGroupCount(how, &groups), "cudnnGetConvolutionGroupCount");
    to.insert(to.end(), {static_cast<std::int64_t>(mode), static_cast<std::int64_t>(type), groups,
                         static_cast<std::int64_t>(math_of(how)), dimensions});
    for (const auto& each : {padding, stride, dilation}) {
      to.insert(to.end(), each.begin(), each.begin() + dimensions);
    }
  }

  template <class Result, class Find>
  const std::vector<layer_algorithm>& search(convolution_part part, cudnnTensorDescriptor_t x,
                                             cudnnFilterDescriptor_t w, cudnnConvolutionDescriptor_t how,
                                             cudnnTensorDescriptor_t y, const char* api, Find&& find) {
    key of{static_cast<std::int64_t>(part)};
    append(of, x);
    append(of, w);
    append(of, how);
    append(of, y);
    const auto [it, is_new] = found_.try_emplace(std::move(of));
    if (!is_new) {
      return it->second;
    }
    std::array<Result, most_algorithms> results{};
    int count = 0;
    const cudnnStatus_t result = find(static_cast<int>(results.size()), &count, results.data());
    if (result != CUDNN_STATUS_SUCCESS) {
      found_.erase(it);
      check_cudnn(result, api);
    }
    // cuDNN also tries the algorithms with another kind of math than the convolution's. That is no choice here: the
    // convolution is computed as its descriptor says, and what has no such kernel is found with the other one alone.
    const cudnnMathType_t math = math_of(how);
    const auto works = [&](const Result& tried) {
      return tried.status == CUDNN_STATUS_SUCCESS && (!deterministic_ || tried.determinism == CUDNN_DETERMINISTIC);
    };
    const std::span<const Result> all(results.data(), static_cast<std::size_t>(count));
    for (const Result& r : all) {
      const bool has_own = std::any_of(all.begin(), all.end(), [&](const Result& other) {
        return works(other) && other.algo == r.algo && other.mathType == math;
      });
      if (works(r) && (r.mathType == math || !has_own)) {
        it->second.push_back({.number = static_cast<int>(r.algo),
                              .time = nanoseconds{std::llround(static_cast<double>(r.time) * 1e6)},
                              .workspace = bytes{r.memory}});
      }
    }
    std::stable_sort(
        it->second.begin(), it->second.end(),
        [](const layer_algorithm& this_one, const layer_algorithm& other) { return this_one.time < other.time; });
    return it->second;
  }

  static constexpr std::size_t most_algorithms = 16;  // cuDNN has fewer, also with and without tensor cores

  cudnnHandle_t handle_;
  bool deterministic_;
  std::map<key, std::vector<layer_algorithm>> found_{};
};

}  // namespace interop
}  // namespace v0
}  // namespace deepum

#endif
