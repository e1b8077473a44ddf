// cuDNN through an arena: what its launches declare is what the calls touch. The functions of cuDNN are stand-ins that
// keep their arguments and touch what a GPU would on the fake GPU; memory that never faults breaks there where
// something is not declared.

#include "interop/fake_shapes.hpp"
#include "interop/recorded_arena.hpp"
#include <deepum/interop/cudnn.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

namespace cudnn_test {

using namespace deepum_test;
using namespace deepum::literals;
using deepum::access;
using deepum::bytes;

struct handle_state {
  cudaStream_t stream = nullptr;
  bool destroyed = false;
  std::size_t needed = 0;  // workspace
  int queries = 0;
  std::string called{};
  int algorithm = -1;
  void* workspace = nullptr;
  std::size_t workspace_size = 0;
  double alpha = 0;
  double beta = 0;
};
handle_state state;
cudnnHandle_t const the_handle = reinterpret_cast<cudnnHandle_t>(&state);

void touch(const void* p, std::size_t p_size, const void* q, std::size_t q_size, void* result, std::size_t result_size,
           bool forgets, void* workspace, std::size_t workspace_size) {
  device_touch(p, p_size, access::read);
  if (q != nullptr) {
    device_touch(q, q_size, access::read);
  }
  if (workspace_size != 0) {
    device_touch(workspace, workspace_size, access::overwrite);
  }
  device_touch(result, result_size, forgets ? access::overwrite : access::update);
  if (forgets) {
    std::memset(const_cast<void*>(result), 1, result_size);
  }
}
cudnnStatus_t run(const char* name, int algorithm, const void* alpha, const void* p, const shape& p_shape,
                  const void* q, const shape* q_shape, void* workspace, std::size_t workspace_size, const void* beta,
                  void* result, const shape& result_shape) {
  const auto scalar = [&](const void* s) {
    return result_shape.type == CUDNN_DATA_DOUBLE ? *static_cast<const double*>(s)
                                                  : static_cast<double>(*static_cast<const float*>(s));
  };
  state.called = name;
  state.algorithm = algorithm;
  state.alpha = scalar(alpha);
  state.beta = scalar(beta);
  state.workspace = workspace;
  state.workspace_size = workspace_size;
  enqueue(state.stream, touch, p, p_shape.size, q, q_shape == nullptr ? std::size_t{0} : q_shape->size, result,
          result_shape.size, state.beta == 0, workspace, workspace_size);
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t tell_needed(std::size_t* size) {
  ++state.queries;
  *size = state.needed;
  return CUDNN_STATUS_SUCCESS;
}

}  // namespace cudnn_test

extern "C" {
cudnnStatus_t cudnnCreate(cudnnHandle_t* handle) {
  *handle = cudnn_test::the_handle;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnDestroy(cudnnHandle_t) {
  cudnn_test::state.destroyed = true;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetStream(cudnnHandle_t, cudaStream_t stream) {
  cudnn_test::state.stream = stream;
  return CUDNN_STATUS_SUCCESS;
}
const char* cudnnGetErrorString(cudnnStatus_t) { return "words of cuDNN"; }
cudnnStatus_t cudnnGetTensorSizeInBytes(cudnnTensorDescriptor_t d, std::size_t* size) {
  *size = cudnn_test::shape_of(d).size;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnGetFilterSizeInBytes(cudnnFilterDescriptor_t d, std::size_t* size) {
  *size = cudnn_test::shape_of(d).size;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnGetTensorNdDescriptor(cudnnTensorDescriptor_t d, int asked, cudnnDataType_t* type, int* n,
                                         int lengths[], int strides[]) {
  const cudnn_test::shape& s = cudnn_test::shape_of(d);
  CHECK(asked >= static_cast<int>(s.lengths.size()));
  *type = s.type;
  *n = static_cast<int>(s.lengths.size());
  std::copy(s.lengths.begin(), s.lengths.end(), lengths);
  std::fill_n(strides, s.lengths.size(), 1);
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnGetFilterNdDescriptor(cudnnFilterDescriptor_t d, int, cudnnDataType_t* type,
                                         cudnnTensorFormat_t* format, int* n, int lengths[]) {
  const cudnn_test::shape& s = cudnn_test::shape_of(d);
  *type = s.type;
  *format = CUDNN_TENSOR_NCHW;
  *n = static_cast<int>(s.lengths.size());
  std::copy(s.lengths.begin(), s.lengths.end(), lengths);
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnGetConvolutionForwardWorkspaceSize(cudnnHandle_t, cudnnTensorDescriptor_t, cudnnFilterDescriptor_t,
                                                      cudnnConvolutionDescriptor_t, cudnnTensorDescriptor_t,
                                                      cudnnConvolutionFwdAlgo_t, std::size_t* size) {
  return cudnn_test::tell_needed(size);
}
cudnnStatus_t cudnnGetConvolutionBackwardDataWorkspaceSize(cudnnHandle_t, cudnnFilterDescriptor_t,
                                                           cudnnTensorDescriptor_t, cudnnConvolutionDescriptor_t,
                                                           cudnnTensorDescriptor_t, cudnnConvolutionBwdDataAlgo_t,
                                                           std::size_t* size) {
  return cudnn_test::tell_needed(size);
}
cudnnStatus_t cudnnGetConvolutionBackwardFilterWorkspaceSize(cudnnHandle_t, cudnnTensorDescriptor_t,
                                                             cudnnTensorDescriptor_t, cudnnConvolutionDescriptor_t,
                                                             cudnnFilterDescriptor_t, cudnnConvolutionBwdFilterAlgo_t,
                                                             std::size_t* size) {
  return cudnn_test::tell_needed(size);
}
cudnnStatus_t cudnnConvolutionForward(cudnnHandle_t, const void* alpha, cudnnTensorDescriptor_t xd, const void* x,
                                      cudnnFilterDescriptor_t wd, const void* w, cudnnConvolutionDescriptor_t,
                                      cudnnConvolutionFwdAlgo_t algorithm, void* workspace, std::size_t size,
                                      const void* beta, cudnnTensorDescriptor_t yd, void* y) {
  using namespace cudnn_test;
  return run("forward", algorithm, alpha, x, shape_of(xd), w, &shape_of(wd), workspace, size, beta, y, shape_of(yd));
}
cudnnStatus_t cudnnConvolutionBackwardData(cudnnHandle_t, const void* alpha, cudnnFilterDescriptor_t wd, const void* w,
                                           cudnnTensorDescriptor_t dyd, const void* dy, cudnnConvolutionDescriptor_t,
                                           cudnnConvolutionBwdDataAlgo_t algorithm, void* workspace, std::size_t size,
                                           const void* beta, cudnnTensorDescriptor_t dxd, void* dx) {
  using namespace cudnn_test;
  return run("backward data", algorithm, alpha, w, shape_of(wd), dy, &shape_of(dyd), workspace, size, beta, dx,
             shape_of(dxd));
}
cudnnStatus_t cudnnConvolutionBackwardFilter(cudnnHandle_t, const void* alpha, cudnnTensorDescriptor_t xd,
                                             const void* x, cudnnTensorDescriptor_t dyd, const void* dy,
                                             cudnnConvolutionDescriptor_t, cudnnConvolutionBwdFilterAlgo_t algorithm,
                                             void* workspace, std::size_t size, const void* beta,
                                             cudnnFilterDescriptor_t dwd, void* dw) {
  using namespace cudnn_test;
  return run("backward filter", algorithm, alpha, x, shape_of(xd), dy, &shape_of(dyd), workspace, size, beta, dw,
             shape_of(dwd));
}
cudnnStatus_t cudnnConvolutionBackwardBias(cudnnHandle_t, const void* alpha, cudnnTensorDescriptor_t dyd,
                                           const void* dy, const void* beta, cudnnTensorDescriptor_t dbd, void* db) {
  using namespace cudnn_test;
  return run("backward bias", -1, alpha, dy, shape_of(dyd), nullptr, nullptr, nullptr, 0, beta, db, shape_of(dbd));
}
}

namespace cudnn_test {

template <class Memory>
struct machine : recorded_arena<Memory> {
  machine() {
    state = {};
    dnn.emplace(this->memory, this->stream);
  }
  // Memory that is overwritten as a whole shows as such from one block on.
  shape x_shape{(6_MiB).count, {2, 3, 512, 512}};
  shape w_shape{(2_MiB).count, {512, 1024}};
  shape y_shape{(4_MiB).count, {2, 2, 512, 512}};
  float* x = this->template blocks<float>(3);
  float* w = this->template blocks<float>(1);
  float* y = this->template blocks<float>(2);
  std::optional<deepum::interop::cudnn_calls<Memory>> dnn{};
  cudnnConvolutionDescriptor_t how = nullptr;

  std::string x_is(access mode) { return this->of(mode, x, x_shape.size); }
  std::string w_is(access mode) { return this->of(mode, w, w_shape.size); }
  std::string y_is(access mode) { return this->of(mode, y, y_shape.size); }
  std::string workspace() {
    return state.workspace_size == 0 ? "" : this->of(access::overwrite, state.workspace, state.workspace_size);
  }
};

TEST_CASE_TEMPLATE("convolutions declare operands, results and workspace", Memory, deepum::cuda::managed_memory,
                   deepum::cuda::paged_memory) {
  machine<Memory> m;
  state.needed = (2_MiB).count;
  for (const double beta : {0.0, 1.0}) {
    const access result = beta == 0 ? access::overwrite : access::update;
    const deepum::interop::blend mix{2.0, beta};

    auto id =
        m.dnn->convolution_forward("conv", {m.x_shape.tensor(), m.x}, {m.w_shape.filter(), m.w}, m.how,
                                   CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM, {m.y_shape.tensor(), m.y}, mix);
    CHECK(state.called == "forward");
    CHECK(state.algorithm == CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM);
    CHECK(state.alpha == 2.0);
    CHECK(state.beta == beta);
    CHECK(m.memory.contains(state.workspace));
    CHECK(state.workspace_size == (2_MiB).count);
    CHECK(m.declared(id) == m.x_is(access::read) + m.w_is(access::read) + m.y_is(result) + m.workspace());

    id = m.dnn->convolution_backward_data("dx", {m.w_shape.filter(), m.w}, {m.y_shape.tensor(), m.y}, m.how,
                                          CUDNN_CONVOLUTION_BWD_DATA_ALGO_1, {m.x_shape.tensor(), m.x}, mix);
    CHECK(state.called == "backward data");
    CHECK(state.algorithm == CUDNN_CONVOLUTION_BWD_DATA_ALGO_1);
    CHECK(m.declared(id) == m.w_is(access::read) + m.y_is(access::read) + m.x_is(result) + m.workspace());

    id = m.dnn->convolution_backward_filter("dw", {m.x_shape.tensor(), m.x}, {m.y_shape.tensor(), m.y}, m.how,
                                            CUDNN_CONVOLUTION_BWD_FILTER_ALGO_3, {m.w_shape.filter(), m.w}, mix);
    CHECK(state.called == "backward filter");
    CHECK(state.algorithm == CUDNN_CONVOLUTION_BWD_FILTER_ALGO_3);
    CHECK(m.declared(id) == m.x_is(access::read) + m.y_is(access::read) + m.w_is(result) + m.workspace());

    shape bias{(2_MiB).count, {1, 524288, 1, 1}};
    id = m.dnn->convolution_backward_bias("db", {m.y_shape.tensor(), m.y}, {bias.tensor(), m.w}, mix);
    CHECK(state.called == "backward bias");
    CHECK(m.declared(id) == m.y_is(access::read) + m.w_is(result));
  }
  m.stream.synchronize();
}

TEST_CASE("a result with gaps is updated, also when beta is 0") {
  machine<deepum::cuda::managed_memory> m;
  shape gaps{(4_MiB).count, {2, 2, 512, 511}};
  const auto id = m.dnn->convolution_forward("conv", {m.x_shape.tensor(), m.x}, {m.w_shape.filter(), m.w}, m.how,
                                             CUDNN_CONVOLUTION_FWD_ALGO_DIRECT, {gaps.tensor(), m.y});
  CHECK(m.declared(id) == m.x_is(access::read) + m.w_is(access::read) + m.y_is(access::update));
  CHECK(state.workspace == nullptr);
  m.stream.synchronize();
}

TEST_CASE("scalars are of type double for tensors of double") {
  machine<deepum::cuda::managed_memory> m;
  shape wide{(4_MiB).count, {2, 1, 512, 512}, CUDNN_DATA_DOUBLE};
  const auto id = m.dnn->convolution_forward("conv", {m.x_shape.tensor(), m.x}, {m.w_shape.filter(), m.w}, m.how,
                                             CUDNN_CONVOLUTION_FWD_ALGO_DIRECT, {wide.tensor(), m.y}, {0.1, 0.0});
  CHECK(state.alpha == 0.1);
  CHECK(m.declared(id) == m.x_is(access::read) + m.w_is(access::read) + m.y_is(access::overwrite));
  m.stream.synchronize();
}

TEST_CASE("the workspace grows to the largest one, and who names its size spares the query") {
  machine<deepum::cuda::managed_memory> m;
  const auto convolve = [&](std::optional<bytes> workspace) {
    m.dnn->convolution_forward("conv", {m.x_shape.tensor(), m.x}, {m.w_shape.filter(), m.w}, m.how,
                               CUDNN_CONVOLUTION_FWD_ALGO_DIRECT, {m.y_shape.tensor(), m.y}, {}, workspace);
    CHECK(m.memory.contains(state.workspace));
  };
  state.needed = (2_MiB).count;
  convolve({});
  CHECK(state.queries == 1);
  convolve(6_MiB);
  CHECK(state.queries == 1);
  CHECK(state.workspace_size == (6_MiB).count);
  void* const large = state.workspace;
  convolve(1_MiB);
  CHECK(state.workspace_size == (1_MiB).count);
  CHECK(state.workspace == large);
  CHECK(m.dnn->workspace_size() == 6_MiB);
  m.stream.synchronize();
}

TEST_CASE("a workspace that a graph uses is the graph's until that ends") {
  machine<deepum::cuda::managed_memory> m;
  const auto convolve = [&](bytes workspace) {
    m.dnn->convolution_forward("conv", {m.x_shape.tensor(), m.x}, {m.w_shape.filter(), m.w}, m.how,
                               CUDNN_CONVOLUTION_FWD_ALGO_DIRECT, {m.y_shape.tensor(), m.y}, {}, workspace);
  };
  const bytes before = m.memory.footprint().allocated;
  {
    const auto graph = m.stream.record_graph("two", [&] {
      convolve(2_MiB);
      m.dnn->call("other", {deepum::reads(m.x, 16)}, 4_MiB, [](cudnnHandle_t, void*) { return CUDNN_STATUS_SUCCESS; });
    });
    convolve(6_MiB);
    m.dnn.reset();
    CHECK(m.memory.footprint().allocated == before + 6_MiB);  // 2 and 4
    m.stream.launch(graph);
    m.stream.synchronize();
  }
  CHECK(m.memory.footprint().allocated == before);
}

TEST_CASE("other calls get workspace and handle, errors have cuDNN's number") {
  machine<deepum::cuda::managed_memory> m;
  void* given = nullptr;
  auto id = m.dnn->call("softmax", {deepum::reads(m.x, 16)}, 2_MiB, [&](cudnnHandle_t h, void* workspace) {
    CHECK(h == the_handle);
    given = workspace;
    return CUDNN_STATUS_SUCCESS;
  });
  CHECK(m.declared(id) == m.of(access::read, m.x, 64) + m.of(access::overwrite, given, (2_MiB).count));
  id = m.dnn->call("anything", {}, bytes{}, [](cudnnHandle_t, void* workspace) {
    CHECK(workspace == nullptr);
    return CUDNN_STATUS_SUCCESS;
  });
  CHECK(m.declared(id) == "unknown, ");
  try {
    m.dnn->call("fails", {deepum::reads(m.x, 1)}, bytes{},
                [](cudnnHandle_t, void*) { return CUDNN_STATUS_NOT_SUPPORTED; });
    FAIL_CHECK("nothing was thrown");
  } catch (const deepum::error& e) {
    CHECK(e.code() == deepum::status::device_failure);
    CHECK(e.native_code() == static_cast<int>(CUDNN_STATUS_NOT_SUPPORTED));
  }
}

TEST_CASE("a handle of the program's is given back") {
  machine<deepum::cuda::managed_memory> m;
  CHECK(state.stream == m.stream.native().native());
  m.dnn.reset();
  CHECK(state.destroyed);
  state = {};
  m.dnn.emplace(m.memory, m.stream, the_handle);
  CHECK(state.stream == m.stream.native().native());
  m.dnn.reset();
  CHECK(!state.destroyed);
  CHECK(state.stream == nullptr);
}

}  // namespace cudnn_test
