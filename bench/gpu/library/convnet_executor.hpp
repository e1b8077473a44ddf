#pragma once

#include "examples/train_gpt/cublas_products.hpp"
#include "examples/train_gpt/gemm.hpp"
#include "gpu/library/cudnn_descriptors.hpp"
#include "gpu/library/hand_memory.hpp"
#include "gpu/library/kernels.hpp"
#include "gpu/library/layer_kernels.hpp"
#include "replay/convnet_nets.hpp"
#include "replay/convnet_step.hpp"
#include <deepum/arena/layer_scopes.hpp>
#include <deepum/core/layer.hpp>
#include <deepum/cuda/check.hpp>
#include <deepum/dim.hpp>
#include <deepum/error.hpp>
#include <deepum/interop/cudnn_algorithms.hpp>
#include <deepum/operand.hpp>
#include <deepum/planning/algorithm_choice.hpp>
#include <deepum/units.hpp>

#include <cuda_runtime_api.h>
#include <cudnn.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace deepum::gpu_bench {

/// How floats are multiplied.
enum class float_products : std::uint8_t {
  fma,  ///< in single precision
  tf32  ///< on tensor cores, with ten bits of mantissa
};
/// The word for flags and tables.
[[nodiscard]] constexpr const char* to_string(float_products p) { return p == float_products::fma ? "fma" : "tf32"; }

/// Where the tensors of a step are: by number.
struct convnet_memory {
  std::vector<std::byte*> at{};
  std::vector<bytes> sizes{};

  /// Allocates them in an arena.
  template <class Arena>
  convnet_memory(Arena& arena, const replay::workload_description& step) {
    for (const replay::described_tensor& t : step.tensors) {
      const auto id = static_cast<std::size_t>(t.id);
      at.resize(std::max(at.size(), id + 1));
      sizes.resize(at.size());
      at[id] = static_cast<std::byte*>(arena.allocate_bytes(t.size));
      sizes[id] = t.size;
    }
  }
};

/// Executes the launches of a training step of a net on a stream, by cuDNN and cuBLAS: forward, backward, and SGD. Each
/// launch declares all that it touches, as the step describes it. The same in every run, bit by bit, where the
/// algorithms are.
///
/// Its handles, cuBLAS's workspace, the answers and the probabilities lie beside all memory that is measured.
class convnet_executor {
 public:
  /// @errors  `status::device_failure`, `status::out_of_device_memory`.
  convnet_executor(const replay::convnet& net, std::uint32_t batch, float_products how, std::uint64_t seed)
      : net_(net),
        batch_(batch),
        seed_(seed),
        products_(how == float_products::fma ? CUBLAS_COMPUTE_32F_PEDANTIC : CUBLAS_COMPUTE_32F_FAST_TF32),
        batch_shape_(as_int(batch), 3, as_int(net.side)),
        kinds_(net.layers.back().channels),
        answers_(memory_pool::kind::device, bytes{sizeof(float) * batch * kinds_}),
        sum_(memory_pool::kind::device, bytes{sizeof(unsigned long long)}),
        probabilities_(memory_pool::kind::pinned, bytes{sizeof(float) * batch * kinds_}) {
    const cudnnMathType_t math = how == float_products::fma ? CUDNN_FMA_MATH : CUDNN_DEFAULT_MATH;
    shapes_.reserve(net.layers.size());
    for (std::size_t i = 0; i < net.layers.size(); ++i) {
      const replay::convnet_layer& l = net.layers[i];
      layer_shape& s = shapes_.emplace_back(
          layer_shape{.y = {as_int(batch), as_int(l.channels), as_int(l.side)}, .bias = {1, as_int(l.channels), 1}});
      if (l.kind == layer_kind::conv) {
        s.w = std::make_unique<filter_of_floats>(as_int(l.channels), as_int(l.inputs), as_int(l.filter));
        s.how = std::make_unique<convolution_of_floats>(as_int(l.padding), as_int(l.stride), math);
      }
      if (l.kind == layer_kind::pool) {
        s.pooling = std::make_unique<max_pooling>(as_int(l.filter), as_int(l.stride));
      }
    }
    std::vector<float> answers(std::size_t{batch} * kinds_);
    for (std::uint32_t image = 0; image < batch; ++image) {
      answers[std::size_t{image} * kinds_ + answer_of(image)] = 1;
    }
    cuda::check(cudaMemcpyAsync(answers_.base(), answers.data(), answers.size() * sizeof(float), cudaMemcpyHostToDevice,
                                nullptr),
                "cudaMemcpyAsync");
    cuda::check(cudaStreamSynchronize(nullptr), "cudaStreamSynchronize");
  }

  /// Searches the algorithms of all convolutions: those that give the same bits each time.
  /// @param block  Of the arena, in which memory is taken.
  /// @errors       `status::device_failure`; `status::unsupported` where a convolution has none.
  [[nodiscard]] choice_net find_algorithms(bytes block) {
    interop::cudnn_algorithms search(dnn_, true);
    return replay::describe(net_, batch_, block, [&](std::size_t i, convolution_part part) {
      const layer_shape& s = shapes_[i];
      const cudnnTensorDescriptor_t x = input_shape(i);
      const std::vector<layer_algorithm>& found =
          part == convolution_part::forward         ? search.forward(x, *s.w, *s.how, s.y)
          : part == convolution_part::backward_data ? search.backward_data(*s.w, s.y, *s.how, x)
                                                    : search.backward_filter(x, s.y, *s.how, *s.w);
      if (found.empty()) {
        throw error(status::unsupported, "cuDNN has no algorithm for " + net_.layers[i].name + " of " + net_.name +
                                             " that gives the same bits each time");
      }
      return found;
    });
  }

  /// Draws the batch and the weights.
  template <class Stream>
  void draw(Stream& stream, const convnet_memory& memory) {
    std::uint64_t seed = seed_ * 1'000'003;
    const auto fill = [&](std::int64_t tensor, float scale) {
      const auto id = static_cast<std::size_t>(tensor);
      const std::uint64_t n = memory.sizes[id].count / sizeof(float);
      stream.launch("draw", grid(n), threads, 0, deepum_gpu_bench_kernels::layer_kernels_for<float>().draw_floats,
                    overwrites(reinterpret_cast<float*>(memory.at[id]), n), static_cast<std::int64_t>(n), ++seed,
                    scale);
    };
    fill(replay::convnet_batch, 1);
    // As He et al. (2015) have it, but for nets in which branches add up: theirs begin small.
    const bool adds = std::any_of(net_.layers.begin(), net_.layers.end(),
                                  [](const replay::convnet_layer& l) { return l.kind == layer_kind::other; });
    for (std::size_t i = 0; i < net_.layers.size(); ++i) {
      const replay::convnet_layer& l = net_.layers[i];
      if (l.weights != 0) {
        const auto inputs = static_cast<float>((l.weights - l.channels) / l.channels);
        fill(convnet_tensor_of(i, replay::convnet_tensor::weights), std::sqrt(6 / inputs) * (adds ? 0.5F : 1.0F));
      }
    }
  }

  /// Launches a step, and says after each launch which tensors are of no use any more.
  /// @param arena  In which the memory is.
  template <class Arena, class Stream>
  void run(Arena& arena, Stream& stream, const replay::convnet_step& step, const convnet_memory& memory) {
    std::vector<std::size_t> last(memory.at.size());
    for (std::size_t k = 0; k < step.launches.size(); ++k) {
      for (const auto* list : {&step.described.launches[k].in, &step.described.launches[k].out}) {
        for (const std::int64_t id : *list) {
          last[static_cast<std::size_t>(id)] = k;
        }
      }
    }
    std::vector<std::vector<std::size_t>> dies(step.launches.size());
    for (const replay::described_tensor& t : step.described.tensors) {
      if (!t.persistent) {
        dies[last[static_cast<std::size_t>(t.id)]].push_back(static_cast<std::size_t>(t.id));
      }
    }
    scope_of_stream<Stream> scope(stream);
    for (std::size_t k = 0; k < step.launches.size(); ++k) {
      const replay::described_launch& l = step.described.launches[k];
      scope.enter(l.layer, memory);
      declare(step, k, memory);
      stream.call(l.kernel, operands_, [&](cudaStream_t q) {
        use(q);
        compute(step, k, memory);
      });
      for (const std::size_t id : dies[k]) {
        arena.mark_inactive(memory.at[id], memory.sizes[id]);
      }
    }
  }

  /// Of the last step, when all of it has finished: the mean loss of its images.
  [[nodiscard]] double loss() const {
    double sum = 0;
    for (std::uint32_t image = 0; image < batch_; ++image) {
      sum -= std::log(std::max(probabilities()[std::size_t{image} * kinds_ + answer_of(image)], 1e-30F));
    }
    return sum / batch_;
  }
  /// The same: all probabilities, as a number that other bits would change.
  [[nodiscard]] std::uint64_t bits() const {
    std::uint64_t sum = 0;
    for (std::size_t i = 0; i < std::size_t{batch_} * kinds_; ++i) {
      std::uint32_t word = 0;
      std::memcpy(&word, probabilities() + i, sizeof(word));
      sum += word * (i + 1);
    }
    return sum;
  }
  /// The same of all weights. Waits for the stream.
  template <class Stream>
  [[nodiscard]] std::uint64_t weights_sum(Stream& stream, const convnet_memory& memory) {
    auto* const total = reinterpret_cast<unsigned long long*>(sum_.base());
    stream.memset(total, 0, bytes{sizeof(unsigned long long)});
    for (std::size_t i = 0; i < net_.layers.size(); ++i) {
      if (net_.layers[i].weights != 0) {
        using word = deepum_gpu_bench_kernels::word;
        const auto id = static_cast<std::size_t>(convnet_tensor_of(i, replay::convnet_tensor::weights));
        const std::uint64_t n = memory.sizes[id].count / sizeof(word);
        stream.launch("sum", grid(n), threads, 0, deepum_gpu_bench_kernels::all().checksum,
                      reads(reinterpret_cast<const word*>(memory.at[id]), n), n, total);
      }
    }
    unsigned long long sum = 0;
    stream.memcpy(&sum, total, bytes{sizeof(sum)});
    stream.synchronize();
    return sum;
  }

 private:
  static constexpr unsigned threads = 256;
  static constexpr float one = 1;
  static constexpr float zero = 0;
  static constexpr float rate = 1e-3F;

  struct layer_shape {
    tensor_of_floats y;
    tensor_of_floats bias;
    std::unique_ptr<filter_of_floats> w{};
    std::unique_ptr<convolution_of_floats> how{};
    std::unique_ptr<max_pooling> pooling{};
  };

  /// The layer that a stream's launches belong to; of a stream that knows no layers, nothing.
  template <class Stream>
  class scope_of_stream {
   public:
    explicit scope_of_stream(Stream& stream) : stream_(stream) {}
    void enter(const std::optional<replay::described_layer>& layer, const convnet_memory& memory) {
      if constexpr (requires { stream_.layer(named_layer{}); }) {
        const std::int64_t next = !layer ? -1 : 2 * std::int64_t{layer->number} + (layer->pass == layer_pass::forward);
        if (std::exchange(now_, next) == next) {
          return;
        }
        open_.reset();
        if (layer) {
          named_layer named{.layer = layer->number, .pass = layer->pass, .kind = layer->kind, .input = {}};
          for (const std::int64_t id : layer->input) {
            const auto i = static_cast<std::size_t>(id);
            named.input.push_back({memory.at[i], memory.sizes[i], access::read});
          }
          open_.reset(new in_layer(stream_.layer(named)));
        }
      }
    }

   private:
    Stream& stream_;
    std::int64_t now_ = -1;
    std::unique_ptr<in_layer> open_{};
  };

  static int as_int(std::uint64_t n) { return static_cast<int>(n); }
  static deepum::dim grid(std::uint64_t n) {
    return static_cast<unsigned>(std::clamp<std::uint64_t>((n + threads - 1) / threads, 1, 132 * 16));
  }
  [[nodiscard]] std::uint32_t answer_of(std::uint32_t image) const {
    return static_cast<std::uint32_t>((image * std::uint64_t{2654435761} + seed_) % kinds_);
  }
  [[nodiscard]] const float* probabilities() const { return reinterpret_cast<const float*>(probabilities_.base()); }
  [[nodiscard]] cudnnTensorDescriptor_t input_shape(std::size_t i) const {
    const std::vector<std::size_t>& from = net_.layers[i].reads;
    return from.empty() ? batch_shape_ : shapes_[from.front()].y;
  }

  void declare(const replay::convnet_step& step, std::size_t k, const convnet_memory& memory) {
    using replay::convnet_tensor;
    const replay::described_launch& l = step.described.launches[k];
    const std::size_t layer = step.launches[k].layer;
    const auto is_in = [](const std::vector<std::int64_t>& list, std::int64_t id) {
      return std::find(list.begin(), list.end(), id) != list.end();
    };
    operands_.clear();
    for (const std::int64_t id : l.in) {
      const auto i = static_cast<std::size_t>(id);
      if (!is_in(l.out, id)) {
        operands_.push_back({memory.at[i], memory.sizes[i], access::read});
      }
    }
    for (const std::int64_t id : l.out) {
      const auto i = static_cast<std::size_t>(id);
      const bool scratch = id == convnet_tensor_of(layer, convnet_tensor::forward_workspace) ||
                           id == convnet_tensor_of(layer, convnet_tensor::backward_workspace);
      operands_.push_back(
          scratch ? uses_as_scratch(memory.at[i], memory.sizes[i])
                  : operand{memory.at[i], memory.sizes[i], is_in(l.in, id) ? access::update : access::overwrite});
    }
  }
  void use(cudaStream_t q) {
    if (!used_ || q != stream_) {
      interop::check_cudnn(cudnnSetStream(dnn_, q), "cudnnSetStream");
      stream_ = q;
      used_ = true;
    }
  }

  void compute(const replay::convnet_step& step, std::size_t k, const convnet_memory& memory) {
    using interop::check_cudnn;
    using replay::convnet_tensor;
    using replay::convnet_work;
    using train_gpt::matrix;
    const auto [what, i] = step.launches[k];
    const replay::convnet_layer& l = net_.layers[i];
    const layer_shape& s = shapes_[i];
    const auto at = [&](std::int64_t id) { return reinterpret_cast<float*>(memory.at[static_cast<std::size_t>(id)]); };
    const auto own = [&, layer = i](convnet_tensor which) { return at(convnet_tensor_of(layer, which)); };
    float* const y = own(convnet_tensor::output);
    float* const dy = own(convnet_tensor::output_gradient);
    const float* const x =
        at(l.reads.empty() ? replay::convnet_batch : convnet_tensor_of(l.reads.front(), convnet_tensor::output));
    const std::uint64_t biases = l.weights == 0 ? 0 : l.weights - l.channels;  // where they begin
    const auto rows = static_cast<std::int64_t>(batch_);
    const auto inputs = static_cast<std::int64_t>(l.inputs);
    const auto outputs = static_cast<std::int64_t>(l.channels);
    const std::vector<std::int64_t>& in = step.described.launches[k].in;
    // A gradient that another layer has begun is added to.
    const auto old_of = [&](std::int64_t id) { return std::find(in.begin(), in.end(), id) != in.end() ? &one : &zero; };
    const auto gradient_of = [&](std::size_t layer) {
      return convnet_tensor_of(layer, convnet_tensor::output_gradient);
    };
    const std::optional<layer_algorithm>& algorithm = step.algorithms[k];
    const std::size_t size = algorithm ? algorithm->workspace.count : 0;
    const auto workspace = [&](convnet_tensor which) { return size == 0 ? nullptr : own(which); };
    const auto add = [&](float factor, cudnnTensorDescriptor_t a_shape, const float* a, float old,
                         cudnnTensorDescriptor_t to_shape, float* to) {
      check_cudnn(cudnnAddTensor(dnn_, &factor, a_shape, a, &old, to_shape, to), "cudnnAddTensor");
    };
    switch (what) {
      case convnet_work::forward:
        if (l.kind == layer_kind::conv) {
          const float* const w = own(convnet_tensor::weights);
          check_cudnn(cudnnConvolutionForward(dnn_, &one, input_shape(i), x, *s.w, w, *s.how,
                                              static_cast<cudnnConvolutionFwdAlgo_t>(algorithm->number),
                                              workspace(convnet_tensor::forward_workspace), size, &zero, s.y, y),
                      "cudnnConvolutionForward");
          add(1, s.bias, w + biases, 1, s.y, y);
        } else if (l.kind == layer_kind::fc) {
          const float* const w = own(convnet_tensor::weights);
          products_.multiply<float, float>(stream_, train_gpt::result::overwrite, {y, rows, outputs}, {x, rows, inputs},
                                           {w, inputs, outputs});
          add(1, s.bias, w + biases, 1, s.y, y);
        } else if (l.kind == layer_kind::pool) {
          check_cudnn(cudnnPoolingForward(dnn_, *s.pooling, &one, input_shape(i), x, &zero, s.y, y),
                      "cudnnPoolingForward");
        } else if (l.kind == layer_kind::softmax) {
          check_cudnn(cudnnSoftmaxForward(dnn_, CUDNN_SOFTMAX_ACCURATE, CUDNN_SOFTMAX_MODE_CHANNEL, &one,
                                          input_shape(i), x, &zero, s.y, y),
                      "cudnnSoftmaxForward");
          cuda::check(cudaMemcpyAsync(probabilities_.base(), y, sizeof(float) * batch_ * kinds_, cudaMemcpyDeviceToHost,
                                      stream_),
                      "cudaMemcpyAsync");
        } else {
          const float* const other = at(convnet_tensor_of(l.reads[1], convnet_tensor::output));
          check_cudnn(cudnnOpTensor(dnn_, sum_of_two_, &one, s.y, x, &one, s.y, other, &zero, s.y, y), "cudnnOpTensor");
        }
        break;
      case convnet_work::activation:
        check_cudnn(cudnnActivationForward(dnn_, relu_, &one, s.y, y, &zero, s.y, y), "cudnnActivationForward");
        break;
      case convnet_work::loss_gradient:
        add(1, s.y, y, 0, s.y, dy);
        add(-1, s.y, reinterpret_cast<const float*>(answers_.base()), 1, s.y, dy);
        break;
      case convnet_work::activation_gradient:
        check_cudnn(cudnnActivationBackward(dnn_, relu_, &one, s.y, y, s.y, dy, s.y, y, &zero, s.y, dy),
                    "cudnnActivationBackward");
        break;
      case convnet_work::filter_gradient: {
        float* const dw = own(convnet_tensor::weights_gradient);
        if (l.kind == layer_kind::conv) {
          check_cudnn(
              cudnnConvolutionBackwardFilter(dnn_, &one, input_shape(i), x, s.y, dy, *s.how,
                                             static_cast<cudnnConvolutionBwdFilterAlgo_t>(algorithm->number),
                                             workspace(convnet_tensor::backward_workspace), size, &zero, *s.w, dw),
              "cudnnConvolutionBackwardFilter");
        } else {
          products_.multiply<float, float>(stream_, train_gpt::result::overwrite, {dw, inputs, outputs},
                                           matrix<const float>{x, rows, inputs}.transposed(), {dy, rows, outputs});
        }
        check_cudnn(cudnnConvolutionBackwardBias(dnn_, &one, s.y, dy, &zero, s.bias, dw + biases),
                    "cudnnConvolutionBackwardBias");
        break;
      }
      case convnet_work::data_gradient: {
        const std::int64_t id = gradient_of(l.reads.front());
        float* const dx = at(id);
        const float* const w = own(convnet_tensor::weights);
        if (l.kind == layer_kind::softmax) {
          add(1 / static_cast<float>(batch_), s.y, dy, *old_of(id), s.y, dx);
        } else if (l.kind == layer_kind::conv) {
          check_cudnn(cudnnConvolutionBackwardData(dnn_, &one, *s.w, w, s.y, dy, *s.how,
                                                   static_cast<cudnnConvolutionBwdDataAlgo_t>(algorithm->number),
                                                   workspace(convnet_tensor::backward_workspace), size, old_of(id),
                                                   input_shape(i), dx),
                      "cudnnConvolutionBackwardData");
        } else {
          const auto how = old_of(id) == &one ? train_gpt::result::add : train_gpt::result::overwrite;
          products_.multiply<float, float>(stream_, how, {dx, rows, inputs}, {dy, rows, outputs},
                                           matrix<const float>{w, inputs, outputs}.transposed());
        }
        break;
      }
      case convnet_work::gradient:
        if (l.kind == layer_kind::pool) {
          const std::int64_t id = gradient_of(l.reads.front());
          check_cudnn(cudnnPoolingBackward(dnn_, *s.pooling, &one, s.y, y, s.y, dy, input_shape(i), x, old_of(id),
                                           input_shape(i), at(id)),
                      "cudnnPoolingBackward");
        } else {
          for (const std::size_t from : l.reads) {
            add(1, s.y, dy, *old_of(gradient_of(from)), s.y, at(gradient_of(from)));
          }
        }
        break;
      case convnet_work::update:
        products_.add_scaled(stream_, static_cast<std::int64_t>(l.weights), -rate,
                             own(convnet_tensor::weights_gradient), own(convnet_tensor::weights));
        break;
    }
  }

  const replay::convnet& net_;
  std::uint32_t batch_;
  std::uint64_t seed_;
  cudnn_handle dnn_{};
  train_gpt::cublas_products products_;
  tensor_of_floats batch_shape_;
  std::uint32_t kinds_;  // of images
  rectification relu_{};
  addition sum_of_two_{};
  std::vector<layer_shape> shapes_{};  // by layer
  memory_pool answers_;                // 1 for the kind that an image is of, 0 for the others
  memory_pool sum_;
  memory_pool probabilities_;
  std::vector<operand> operands_{};
  cudaStream_t stream_ = nullptr;
  bool used_ = false;
};

}  // namespace deepum::gpu_bench
