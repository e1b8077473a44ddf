// cuDNN: a small convolutional network learns to tell ten kinds of images, in less device memory than it needs, under
// every policy and on both kinds of memory. With cuDNN's deterministic algorithms all of them train to the same
// weights, bit by bit, because results never depend on what moves when.
//
//     cmake --preset release && cmake --build build --target cudnn_cnn && build/bin/cudnn_cnn [IMAGES] [BUDGET in MiB]

#include <deepum/arena.hpp>
#include <deepum/cuda.hpp>
#include <deepum/interop/cudnn.hpp>
#include <deepum/stream.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <iterator>
#include <list>
#include <random>
#include <string>
#include <vector>

using namespace deepum::literals;
using deepum::bytes;
using deepum::overwrites;
using deepum::reads;
using deepum::updates;
using deepum::interop::check_cudnn;

constexpr int side = 64;     // of an image, in pixels
constexpr int kinds = 10;    // of images
constexpr float one = 1.0F;  // cuDNN's scalars: result = alpha * op(...) + beta * result
constexpr float zero = 0.0F;
constexpr float minus_one = -1.0F;

// A descriptor of cuDNN's.
template <class T, cudnnStatus_t (*Create)(T*), cudnnStatus_t (*Destroy)(T)>
class descriptor {
 public:
  descriptor() { check_cudnn(Create(&made_), "cudnnCreate*Descriptor"); }
  ~descriptor() { (void)Destroy(made_); }
  descriptor(const descriptor&) = delete;
  descriptor& operator=(const descriptor&) = delete;
  operator T() const { return made_; }  // NOLINT(google-explicit-constructor): cuDNN takes it as that

 private:
  T made_ = nullptr;
};

// Floats of an arena: images, each of so many channels, each a square. The arena's end gives the memory back.
struct tensor {
  template <class Arena>
  tensor(Arena& arena, int images, int channels, int length)
      : size(static_cast<std::size_t>(images * channels * length * length)),
        data(arena.template allocate<float>(size)) {
    check_cudnn(
        cudnnSetTensor4dDescriptor(shape, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, images, channels, length, length),
        "cudnnSetTensor4dDescriptor");
  }
  std::size_t size;
  float* data;
  descriptor<cudnnTensorDescriptor_t, cudnnCreateTensorDescriptor, cudnnDestroyTensorDescriptor> shape{};
};

// A convolution with a square window, and its result with the gradient.
struct convolution {
  template <class Arena>
  convolution(Arena& arena, int images, int inputs, int outputs, int window, int stride, int padding, int out_length)
      : weight_count(static_cast<std::size_t>(outputs * inputs * window * window)),
        weights(arena.template allocate<float>(weight_count)),
        y(arena, images, outputs, out_length),
        dy(arena, images, outputs, out_length) {
    check_cudnn(
        cudnnSetFilter4dDescriptor(w_shape, CUDNN_DATA_FLOAT, CUDNN_TENSOR_NCHW, outputs, inputs, window, window),
        "cudnnSetFilter4dDescriptor");
    check_cudnn(cudnnSetConvolution2dDescriptor(how, padding, padding, stride, stride, 1, 1, CUDNN_CROSS_CORRELATION,
                                                CUDNN_DATA_FLOAT),
                "cudnnSetConvolution2dDescriptor");
    check_cudnn(cudnnSetConvolutionMathType(how, CUDNN_FMA_MATH), "cudnnSetConvolutionMathType");  // no TF32
    const float widest = std::sqrt(6.0F / static_cast<float>(inputs * window * window));
    std::mt19937 random{7};
    for (float& w : arena.host_overwrite(weights, weight_count))
      w = widest * (static_cast<float>(random() >> 8U) / 8388608.0F - 1.0F);
  }
  std::size_t weight_count;
  float* weights;
  tensor y;
  tensor dy;
  descriptor<cudnnFilterDescriptor_t, cudnnCreateFilterDescriptor, cudnnDestroyFilterDescriptor> w_shape{};
  descriptor<cudnnConvolutionDescriptor_t, cudnnCreateConvolutionDescriptor, cudnnDestroyConvolutionDescriptor> how{};
};

// Three convolutions, each with ReLU, that halve the side, and one over all that is left; then softmax.
template <class Memory>
struct network {
  network(deepum::arena<Memory>& arena, deepum::stream<Memory>& s, int count)
      : images(count),
        dnn(arena, s),
        x(arena, count, 1, side),
        probabilities(arena, count, kinds, 1),
        answers(arena, count, kinds, 1) {
    layers.emplace_back(arena, count, 1, 8, 3, 2, 1, side / 2);
    layers.emplace_back(arena, count, 8, 16, 3, 2, 1, side / 4);
    layers.emplace_back(arena, count, 16, 32, 3, 2, 1, side / 8);
    layers.emplace_back(arena, count, 32, kinds, side / 8, 1, 0, 1);
    check_cudnn(cudnnSetActivationDescriptor(relu, CUDNN_ACTIVATION_RELU, CUDNN_NOT_PROPAGATE_NAN, 0),
                "cudnnSetActivationDescriptor");
  }

  void forward() {
    const tensor* from = &x;
    for (convolution& c : layers) {
      const tensor& y = c.y;
      dnn.convolution_forward("convolve", {from->shape, from->data}, {c.w_shape, c.weights}, c.how,
                              CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM, {y.shape, y.data});
      if (&c != &layers.back()) {
        dnn.call("relu", {updates(y.data, y.size)}, bytes{}, [&](cudnnHandle_t h, void*) {
          return cudnnActivationForward(h, relu, &one, y.shape, y.data, &zero, y.shape, y.data);
        });
      }
      from = &y;
    }
    dnn.call("softmax", {reads(from->data, from->size), overwrites(probabilities.data, probabilities.size)}, bytes{},
             [&](cudnnHandle_t h, void*) {
               return cudnnSoftmaxForward(h, CUDNN_SOFTMAX_ACCURATE, CUDNN_SOFTMAX_MODE_CHANNEL, &one, from->shape,
                                          from->data, &zero, probabilities.shape, probabilities.data);
             });
  }

  void backward_and_update(double rate) {
    const tensor& last = layers.back().dy;  // = probabilities - answers
    dnn.call("gradient",
             {reads(probabilities.data, last.size), reads(answers.data, last.size), overwrites(last.data, last.size)},
             bytes{}, [&](cudnnHandle_t h, void*) {
               check_cudnn(
                   cudnnAddTensor(h, &one, probabilities.shape, probabilities.data, &zero, last.shape, last.data),
                   "cudnnAddTensor");
               return cudnnAddTensor(h, &minus_one, answers.shape, answers.data, &one, last.shape, last.data);
             });
    for (auto c = layers.rbegin(); c != layers.rend(); ++c) {
      const tensor& y = c->y;
      const tensor& dy = c->dy;
      if (c != layers.rbegin()) {
        dnn.call("relu back", {reads(y.data, y.size), updates(dy.data, dy.size)}, bytes{}, [&](cudnnHandle_t h, void*) {
          return cudnnActivationBackward(h, relu, &one, y.shape, y.data, dy.shape, dy.data, y.shape, y.data, &zero,
                                         dy.shape, dy.data);
        });
      }
      const auto before = std::next(c);
      const tensor& from = before == layers.rend() ? x : before->y;
      if (before != layers.rend()) {
        dnn.convolution_backward_data("go back", {c->w_shape, c->weights}, {dy.shape, dy.data}, c->how,
                                      CUDNN_CONVOLUTION_BWD_DATA_ALGO_1, {before->dy.shape, before->dy.data});
      }
      // Adds the gradient to the weights themselves. ALGO_1 sums in a fixed order; ALGO_0 and ALGO_3 do not.
      dnn.convolution_backward_filter("learn", {from.shape, from.data}, {dy.shape, dy.data}, c->how,
                                      CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1, {c->w_shape, c->weights},
                                      {-rate / images, 1.0});
    }
  }

  int images;
  deepum::interop::cudnn_calls<Memory> dnn;
  tensor x;
  tensor probabilities;
  tensor answers;  // 1 for the kind that an image is of, 0 for the others
  std::list<convolution> layers{};
  descriptor<cudnnActivationDescriptor_t, cudnnCreateActivationDescriptor, cudnnDestroyActivationDescriptor> relu{};
};

struct outcome {
  std::vector<double> losses{};
  std::uint64_t checksum = 0xCBF29CE484222325;  // FNV-1a, of all weights
  bool operator==(const outcome&) const = default;
};

template <class Memory>
outcome train(const char* memory, const std::string& policy, int images, bytes budget) {
  deepum::cuda::device gpu{0, {.chunk = 2_MiB}};
  deepum::arena<Memory> arena{gpu, {.capacity = 160_MiB, .device_budget = budget, .policy = policy}};
  deepum::stream<Memory> s{arena};
  network<Memory> net{arena, s, images};
  const auto kind_of = [](std::size_t image) { return image % kinds; };
  {
    // An image has a bright band, at a height that says its kind, and noise.
    std::mt19937 random{1};
    const auto pixels = arena.host_overwrite(net.x.data, net.x.size);
    for (std::size_t i = 0; i < pixels.size(); ++i) {
      const bool bright = i / side % side / 6 == kind_of(i / (side * side));
      pixels[i] = static_cast<float>(random() % 1000) / 1000.0F + (bright ? 0.5F : -0.5F);
    }
    const auto answers = arena.host_overwrite(net.answers.data, net.answers.size);
    for (std::size_t i = 0; i < answers.size(); ++i)
      answers[i] = i % kinds == kind_of(i / kinds) ? 1.0F : 0.0F;
  }

  outcome result;
  for (int step = 0; step < 6; ++step) {
    net.forward();
    s.synchronize();
    {
      const auto p = arena.host_read(net.probabilities.data, net.probabilities.size);
      double loss = 0;
      for (std::size_t image = 0; image < static_cast<std::size_t>(images); ++image)
        loss -= std::log(std::max(p[image * kinds + kind_of(image)], 1e-30F));
      result.losses.push_back(loss / images);
    }
    net.backward_and_update(0.05);
  }
  s.synchronize();
  for (const convolution& c : net.layers) {
    const auto weights = arena.host_read(c.weights, c.weight_count);
    const auto* const begin = reinterpret_cast<const unsigned char*>(weights.data());
    for (std::size_t i = 0; i < c.weight_count * sizeof(float); ++i)
      result.checksum = (result.checksum ^ begin[i]) * 0x100000001B3;
  }
  const deepum::statistics moved = arena.statistics();
  std::printf("%-7s %-6s loss %a -> %a, weights %016llx, %4.0f MiB in, %4.0f MiB out\n", memory, policy.c_str(),
              result.losses.front(), result.losses.back(), static_cast<unsigned long long>(result.checksum),
              static_cast<double>(moved.in().all_bytes()) / 1048576,
              static_cast<double>(moved.out().all_bytes()) / 1048576);
  return result;
}

int main(int argc, char** argv) try {
  const int images = argc > 1 ? std::atoi(argv[1]) : 512;  // 64 MiB in all, and what cuDNN wants as workspace
  const bytes budget = 1_MiB * (argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 52);
  const outcome expected = train<deepum::cuda::managed_memory>("managed", "ideal", images, 160_MiB);  // all of it fits
  bool right = expected.losses.back() < 0.8 * expected.losses.front();
  for (const char* policy : {"um", "lru", "deepum", "auto"}) {
    right = train<deepum::cuda::managed_memory>("managed", policy, images, budget) == expected && right;
    right = train<deepum::cuda::paged_memory>("paged", policy, images, budget) == expected && right;
  }
  std::printf("%s: from a loss of %.3f to one of %.3f, bit by bit the same everywhere\n", right ? "right" : "WRONG",
              expected.losses.front(), expected.losses.back());
  return right ? 0 : 1;
} catch (const std::exception& e) {
  std::fprintf(stderr, "cudnn_cnn: %s\n", e.what());
  return 1;
}
