// The search for algorithms of convolutions, over stand-ins for cuDNN's.

#include "interop/fake_shapes.hpp"
#include <deepum/interop/cudnn_algorithms.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

namespace cudnn_algorithms_test {

using namespace deepum::literals;
using deepum::bytes;
using deepum_test::shape;

struct convolution {
  int padding = 1;
  int groups = 1;
  cudnnMathType_t math = CUDNN_DEFAULT_MATH;
  cudnnConvolutionDescriptor_t how() { return reinterpret_cast<cudnnConvolutionDescriptor_t>(this); }
};

int searches = 0;
cudnnStatus_t outcome = CUDNN_STATUS_SUCCESS;

template <class Result, class Algorithm>
cudnnStatus_t tell_found(int most, int* count, Result* found, Algorithm first, Algorithm second, Algorithm third) {
  ++searches;
  CHECK(most >= 4);
  *count = 4;
  const auto tell = [&](std::size_t i, Algorithm algorithm, float ms, std::size_t memory, cudnnStatus_t status) {
    found[i] = {};
    found[i].algo = algorithm;
    found[i].status = status;
    found[i].time = ms;
    found[i].memory = memory;
    found[i].determinism = i == 1 ? CUDNN_NON_DETERMINISTIC : CUDNN_DETERMINISTIC;
  };
  tell(0, first, 2.5F, 0, CUDNN_STATUS_SUCCESS);
  tell(1, second, 1.0F, (64_MiB).count, CUDNN_STATUS_SUCCESS);
  tell(2, third, -1.0F, 0, CUDNN_STATUS_NOT_SUPPORTED);
  tell(3, first, 0.5F, 0, CUDNN_STATUS_SUCCESS);  // once more, with another kind of math than was asked for
  found[3].mathType = CUDNN_TENSOR_OP_MATH_ALLOW_CONVERSION;
  found[1].mathType = CUDNN_FMA_MATH;  // there is no other kernel
  return outcome;
}

}  // namespace cudnn_algorithms_test

extern "C" {
cudnnStatus_t cudnnGetConvolutionNdDescriptor(const cudnnConvolutionDescriptor_t how, int asked, int* n, int padding[],
                                              int stride[], int dilation[], cudnnConvolutionMode_t* mode,
                                              cudnnDataType_t* type) {
  CHECK(asked >= 2);
  *n = 2;
  const auto& c = *reinterpret_cast<const cudnn_algorithms_test::convolution*>(how);
  std::fill_n(padding, 2, c.padding);
  std::fill_n(stride, 2, 1);
  std::fill_n(dilation, 2, 1);
  *mode = CUDNN_CROSS_CORRELATION;
  *type = CUDNN_DATA_FLOAT;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnGetConvolutionGroupCount(cudnnConvolutionDescriptor_t how, int* groups) {
  *groups = reinterpret_cast<const cudnn_algorithms_test::convolution*>(how)->groups;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnGetConvolutionMathType(cudnnConvolutionDescriptor_t how, cudnnMathType_t* math) {
  *math = reinterpret_cast<const cudnn_algorithms_test::convolution*>(how)->math;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnFindConvolutionForwardAlgorithm(cudnnHandle_t, const cudnnTensorDescriptor_t,
                                                   const cudnnFilterDescriptor_t, const cudnnConvolutionDescriptor_t,
                                                   const cudnnTensorDescriptor_t, const int most, int* count,
                                                   cudnnConvolutionFwdAlgoPerf_t* found) {
  return cudnn_algorithms_test::tell_found(most, count, found, CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM,
                                           CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD, CUDNN_CONVOLUTION_FWD_ALGO_FFT);
}
cudnnStatus_t cudnnFindConvolutionBackwardDataAlgorithm(cudnnHandle_t, const cudnnFilterDescriptor_t,
                                                        const cudnnTensorDescriptor_t,
                                                        const cudnnConvolutionDescriptor_t,
                                                        const cudnnTensorDescriptor_t, const int most, int* count,
                                                        cudnnConvolutionBwdDataAlgoPerf_t* found) {
  return cudnn_algorithms_test::tell_found(most, count, found, CUDNN_CONVOLUTION_BWD_DATA_ALGO_0,
                                           CUDNN_CONVOLUTION_BWD_DATA_ALGO_1, CUDNN_CONVOLUTION_BWD_DATA_ALGO_FFT);
}
cudnnStatus_t cudnnFindConvolutionBackwardFilterAlgorithm(cudnnHandle_t, const cudnnTensorDescriptor_t,
                                                          const cudnnTensorDescriptor_t,
                                                          const cudnnConvolutionDescriptor_t,
                                                          const cudnnFilterDescriptor_t, const int most, int* count,
                                                          cudnnConvolutionBwdFilterAlgoPerf_t* found) {
  return cudnn_algorithms_test::tell_found(most, count, found, CUDNN_CONVOLUTION_BWD_FILTER_ALGO_0,
                                           CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1, CUDNN_CONVOLUTION_BWD_FILTER_ALGO_FFT);
}
}

namespace cudnn_algorithms_test {

struct search {
  shape x{(6_MiB).count, {2, 3, 512, 512}};
  shape w{(2_MiB).count, {512, 1024, 3, 3}};
  shape y{(4_MiB).count, {2, 2, 512, 512}};
  convolution c{};
  deepum::interop::cudnn_algorithms by{nullptr};
  int before = searches;
};

TEST_CASE("algorithms that work are found, the fastest first, with time and workspace") {
  search s;
  const auto& found = s.by.forward(s.x.tensor(), s.w.filter(), s.c.how(), s.y.tensor());
  REQUIRE(found.size() == 2);
  CHECK(found[0].number == CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD);
  CHECK(found[0].time == deepum::nanoseconds{1'000'000});
  CHECK(found[0].workspace == 64_MiB);
  CHECK(found[1].number == CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM);
  CHECK(s.by.backward_data(s.w.filter(), s.y.tensor(), s.c.how(), s.x.tensor())[0].number ==
        CUDNN_CONVOLUTION_BWD_DATA_ALGO_1);
  CHECK(s.by.backward_filter(s.x.tensor(), s.y.tensor(), s.c.how(), s.w.filter())[0].number ==
        CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1);
  CHECK(searches - s.before == 3);
}

TEST_CASE("an algorithm is found with the convolution's own kind of math, and with another one where it has no other") {
  search s;
  const auto& found = s.by.forward(s.x.tensor(), s.w.filter(), s.c.how(), s.y.tensor());
  CHECK(std::count_if(found.begin(), found.end(), [](const deepum::layer_algorithm& a) {
          return a.number == CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM;
        }) == 1);
  CHECK(found[1].time == deepum::nanoseconds{2'500'000});  // not the half millisecond that another kind takes
  s.c.math = CUDNN_TENSOR_OP_MATH_ALLOW_CONVERSION;
  CHECK(s.by.forward(s.x.tensor(), s.w.filter(), s.c.how(), s.y.tensor())[0].time == deepum::nanoseconds{500'000});
}

TEST_CASE("a limit of workspace takes the fastest within; with none at all that is implicit GEMM") {
  search s;
  const auto& found = s.by.forward(s.x.tensor(), s.w.filter(), s.c.how(), s.y.tensor());
  CHECK(deepum::interop::fastest_within(found, 64_MiB)->number == CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD);
  CHECK(deepum::interop::fastest_within(found, 63_MiB)->number == CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM);
  CHECK(deepum::interop::fastest_within(found, bytes{})->number == CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM);
  CHECK_FALSE(deepum::interop::fastest_within({}, 1_GiB));
}

TEST_CASE("each shape is searched once, whatever descriptor says it, and every part of it counts") {
  search s;
  const auto forward = [&] { (void)s.by.forward(s.x.tensor(), s.w.filter(), s.c.how(), s.y.tensor()); };
  forward();
  shape same = s.x;
  (void)s.by.forward(same.tensor(), s.w.filter(), s.c.how(), s.y.tensor());
  CHECK(searches - s.before == 1);
  int expected = 1;
  const auto changes = [&](auto&& change) {
    change();
    forward();
    forward();
    CHECK(searches - s.before == ++expected);
  };
  changes([&] { s.x.lengths[0] = 4; });
  changes([&] { s.w.lengths[2] = 5; });
  changes([&] { s.y.type = CUDNN_DATA_HALF; });
  changes([&] { s.c.padding = 0; });
  changes([&] { s.c.groups = 2; });
  changes([&] { s.c.math = CUDNN_FMA_MATH; });
  CHECK(s.by.searches() == static_cast<std::size_t>(expected));
}

TEST_CASE("who wants the same bits each time gets no others") {
  search s;
  deepum::interop::cudnn_algorithms exact{nullptr, true};
  const auto& found = exact.forward(s.x.tensor(), s.w.filter(), s.c.how(), s.y.tensor());
  REQUIRE(found.size() == 1);
  CHECK(found[0].number == CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM);
}

TEST_CASE("a search that fails is reported, and made again") {
  search s;
  outcome = CUDNN_STATUS_NOT_SUPPORTED;
  CHECK_THROWS_AS((void)s.by.forward(s.x.tensor(), s.w.filter(), s.c.how(), s.y.tensor()), deepum::error);
  outcome = CUDNN_STATUS_SUCCESS;
  CHECK(s.by.searches() == 0);
  CHECK(s.by.forward(s.x.tensor(), s.w.filter(), s.c.how(), s.y.tensor()).size() == 2);
}

}  // namespace cudnn_algorithms_test
