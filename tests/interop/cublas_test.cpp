// cuBLAS through an arena: what its launches declare is what the calls touch. The functions of cuBLAS are stand-ins
// that keep their arguments and compute on the fake GPU; memory that never faults breaks there where something is not
// declared.

#include "interop/recorded_arena.hpp"
#include <deepum/interop/cublas.hpp>

#include <doctest/doctest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace cublas_test {

using namespace deepum_test;
using namespace deepum::literals;
using deepum::access;

// --- The stand-ins. ---

struct product {
  cublasOperation_t op_a, op_b;
  std::int64_t m, n, k, lda, ldb, ldc;
  std::int64_t stride_a = 0, stride_b = 0, stride_c = 0, count = 1;
  cudaDataType type_a, type_b, type_c;
  cublasComputeType_t compute;
  std::array<unsigned char, 8> alpha{}, beta{};
};
struct handle_state {
  cudaStream_t stream = nullptr;
  void* workspace = nullptr;
  std::size_t workspace_size = 0;
  cublasPointerMode_t mode = CUBLAS_POINTER_MODE_DEVICE;
  bool destroyed = false;
  std::vector<product> products{};
  cublasStatus_t next = CUBLAS_STATUS_SUCCESS;
};
handle_state state;
cublasHandle_t const the_handle = reinterpret_cast<cublasHandle_t>(&state);

void forget() { state = {}; }

/// Of single precision. Touches its workspace from end to end.
void multiply(product p, const float* a, const float* b, float* c, char* workspace, std::size_t workspace_size) {
  float alpha = 0;
  float beta = 0;
  std::memcpy(&alpha, p.alpha.data(), sizeof alpha);
  std::memcpy(&beta, p.beta.data(), sizeof beta);
  const auto touch = [](const float* x, std::int64_t rows, std::int64_t columns, std::int64_t ld, access mode) {
    for (std::int64_t j = 0; j < columns; ++j) {
      device_touch(x + j * ld, static_cast<std::size_t>(rows) * sizeof(float), mode);
    }
  };
  if (workspace_size != 0) {
    device_touch(workspace, workspace_size, access::overwrite);
    std::memset(workspace, 7, workspace_size);
  }
  const bool a_as_is = p.op_a == CUBLAS_OP_N;
  const bool b_as_is = p.op_b == CUBLAS_OP_N;
  for (std::int64_t i = 0; i < p.count; ++i) {
    const float* const x = a + i * p.stride_a;
    const float* const y = b + i * p.stride_b;
    float* const z = c + i * p.stride_c;
    touch(x, a_as_is ? p.m : p.k, a_as_is ? p.k : p.m, p.lda, access::read);
    touch(y, b_as_is ? p.k : p.n, b_as_is ? p.n : p.k, p.ldb, access::read);
    touch(z, p.m, p.n, p.ldc, beta == 0 ? access::overwrite : access::update);
    for (std::int64_t col = 0; col < p.n; ++col) {
      for (std::int64_t row = 0; row < p.m; ++row) {
        float sum = 0;
        for (std::int64_t l = 0; l < p.k; ++l) {
          sum += x[a_as_is ? l * p.lda + row : row * p.lda + l] * y[b_as_is ? col * p.ldb + l : l * p.ldb + col];
        }
        float& out = z[col * p.ldc + row];
        out = alpha * sum + (beta == 0 ? 0 : beta * out);
      }
    }
  }
}

cublasStatus_t run(product p, const void* alpha, const void* a, const void* b, const void* beta, void* c) {
  if (state.next != CUBLAS_STATUS_SUCCESS) {
    return std::exchange(state.next, CUBLAS_STATUS_SUCCESS);
  }
  const std::size_t scalar = p.compute == CUBLAS_COMPUTE_64F ? 8 : p.compute == CUBLAS_COMPUTE_16F ? 2 : 4;
  std::memcpy(p.alpha.data(), alpha, scalar);
  std::memcpy(p.beta.data(), beta, scalar);
  state.products.push_back(p);
  if (p.type_c == CUDA_R_32F) {
    enqueue(state.stream, multiply, p, static_cast<const float*>(a), static_cast<const float*>(b),
            static_cast<float*>(c), static_cast<char*>(state.workspace), state.workspace_size);
  }
  return CUBLAS_STATUS_SUCCESS;
}

}  // namespace cublas_test

extern "C" {
cublasStatus_t cublasCreate_v2(cublasHandle_t* handle) {
  *handle = cublas_test::the_handle;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasDestroy_v2(cublasHandle_t /*handle*/) {
  cublas_test::state.destroyed = true;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetStream_v2(cublasHandle_t /*handle*/, cudaStream_t stream) {
  cublas_test::state.stream = stream;
  cublas_test::state.workspace = nullptr;  // as documented
  cublas_test::state.workspace_size = 0;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetWorkspace_v2(cublasHandle_t /*handle*/, void* workspace, std::size_t size) {
  cublas_test::state.workspace = workspace;
  cublas_test::state.workspace_size = size;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetPointerMode_v2(cublasHandle_t /*handle*/, cublasPointerMode_t mode) {
  cublas_test::state.mode = mode;
  return CUBLAS_STATUS_SUCCESS;
}
const char* cublasGetStatusString(cublasStatus_t /*status*/) { return "words of cuBLAS"; }
cublasStatus_t cublasGemmEx_64(cublasHandle_t, cublasOperation_t op_a, cublasOperation_t op_b, std::int64_t m,
                               std::int64_t n, std::int64_t k, const void* alpha, const void* a, cudaDataType type_a,
                               std::int64_t lda, const void* b, cudaDataType type_b, std::int64_t ldb, const void* beta,
                               void* c, cudaDataType type_c, std::int64_t ldc, cublasComputeType_t compute,
                               cublasGemmAlgo_t) {
  return cublas_test::run({.op_a = op_a,
                           .op_b = op_b,
                           .m = m,
                           .n = n,
                           .k = k,
                           .lda = lda,
                           .ldb = ldb,
                           .ldc = ldc,
                           .type_a = type_a,
                           .type_b = type_b,
                           .type_c = type_c,
                           .compute = compute},
                          alpha, a, b, beta, c);
}
cublasStatus_t cublasGemmStridedBatchedEx_64(cublasHandle_t, cublasOperation_t op_a, cublasOperation_t op_b,
                                             std::int64_t m, std::int64_t n, std::int64_t k, const void* alpha,
                                             const void* a, cudaDataType type_a, std::int64_t lda, long long stride_a,
                                             const void* b, cudaDataType type_b, std::int64_t ldb, long long stride_b,
                                             const void* beta, void* c, cudaDataType type_c, std::int64_t ldc,
                                             long long stride_c, std::int64_t count, cublasComputeType_t compute,
                                             cublasGemmAlgo_t) {
  return cublas_test::run({.op_a = op_a,
                           .op_b = op_b,
                           .m = m,
                           .n = n,
                           .k = k,
                           .lda = lda,
                           .ldb = ldb,
                           .ldc = ldc,
                           .stride_a = stride_a,
                           .stride_b = stride_b,
                           .stride_c = stride_c,
                           .count = count,
                           .type_a = type_a,
                           .type_b = type_b,
                           .type_c = type_c,
                           .compute = compute},
                          alpha, a, b, beta, c);
}
}

namespace cublas_test {

template <class Memory>
struct machine : recorded_arena<Memory> {
  machine() { forget(); }

  float* a = this->template blocks<float>(8);
  float* b = this->template blocks<float>(8);
  float* c = this->template blocks<float>(8);

  deepum::interop::cublas_calls<Memory> make() { return {this->memory, this->stream, 4_MiB}; }
  void fill() {
    constexpr std::size_t n = (16_MiB).count / sizeof(float);
    for (float* p : {a, b, c}) {
      const auto view = this->memory.host_overwrite(p, n);
      for (std::size_t i = 0; i < n; ++i) {
        view[i] = static_cast<float>(i % 7 + (p == a ? 1 : p == b ? 2 : 3));
      }
    }
  }
  std::string workspace() { return this->of(access::overwrite, state.workspace, state.workspace_size); }
};

TEST_CASE_TEMPLATE("a product reads A and B, and overwrites a C that is whole when beta is 0", Memory,
                   deepum::cuda::managed_memory, deepum::cuda::paged_memory) {
  machine<Memory> m;
  m.fill();
  auto blas = m.make();
  // C is one block of 1024 x 512.
  const auto id = blas.gemm("gemm", {.m = 1024, .n = 512, .k = 2}, 2.0F, m.a, 1024, m.b, 2, 0.0F, m.c, 1024);
  CHECK(m.declared(id) == m.of(access::read, m.a, 8192) + m.of(access::read, m.b, 4096) +
                              m.of(access::overwrite, m.c, (2_MiB).count) + m.workspace());
  m.stream.synchronize();
  REQUIRE(state.products.size() == 1);
  const auto a = m.memory.host_read(m.a, 2048);
  const auto b = m.memory.host_read(m.b, 1024);
  const auto c = m.memory.host_read(m.c, 1024 * 512);
  CHECK(c[3 * 1024 + 5] == 2 * (a[5] * b[6] + a[1024 + 5] * b[7]));
  CHECK(m.launches.find(id)->name == "gemm");
}

TEST_CASE_TEMPLATE("any other beta, and columns that lie apart, leave a C that is updated", Memory,
                   deepum::cuda::managed_memory, deepum::cuda::paged_memory) {
  machine<Memory> m;
  m.fill();
  auto blas = m.make();
  const auto operands = [&](access mode, std::size_t elements) {
    return m.of(access::read, m.a, 1) + m.of(access::read, m.b, 1) + m.of(mode, m.c, elements * 4) + m.workspace();
  };
  auto id = blas.gemm("sum", {.m = 1024, .n = 512, .k = 2}, 1.0F, m.a, 1024, m.b, 2, 1.0F, m.c, 1024);
  CHECK(m.declared(id) == operands(access::update, 1024 * 512));
  // From the first element of the first column to the last one of the last: 511 columns of 2048, and 1024.
  id = blas.gemm("apart", {.m = 1024, .n = 512, .k = 2}, 1.0F, m.a, 1024, m.b, 2, 0.0F, m.c, 2048);
  CHECK(m.declared(id) == operands(access::update, 511 * 2048 + 1024));
  // A single column lies apart from nothing.
  id = blas.gemm("column", {.m = 512 * 1024, .n = 1, .k = 1}, 1.0F, m.b, 512 * 1024, m.a, 1, 0.0F, m.c, 1024 * 1024);
  CHECK(m.declared(id) == m.of(access::read, m.b, (2_MiB).count) + m.of(access::read, m.a, 4) +
                              m.of(access::overwrite, m.c, (2_MiB).count) + m.workspace());
  m.stream.synchronize();
}

TEST_CASE_TEMPLATE("transposed matrices are declared as they are stored", Memory, deepum::cuda::managed_memory,
                   deepum::cuda::paged_memory) {
  machine<Memory> m;
  m.fill();
  auto blas = m.make();
  // op(A) is 8 x 512 and op(B) 512 x 4, in columns of 2048.
  const auto as_stored = [&](std::size_t rows, std::size_t columns) { return ((columns - 1) * 2048 + rows) * 4; };
  for (const bool transposed_a : {false, true}) {
    for (const bool transposed_b : {false, true}) {
      const auto id = blas.gemm("gemm",
                                {.m = 8,
                                 .n = 4,
                                 .k = 512,
                                 .op_a = transposed_a ? CUBLAS_OP_T : CUBLAS_OP_N,
                                 .op_b = transposed_b ? CUBLAS_OP_C : CUBLAS_OP_N},
                                1.0F, m.a, 2048, m.b, 2048, 1.0F, m.c, 8);
      const std::size_t a = transposed_a ? as_stored(512, 8) : as_stored(8, 512);
      const std::size_t b = transposed_b ? as_stored(4, 512) : as_stored(512, 4);
      CHECK(m.declared(id) ==
            m.of(access::read, m.a, a) + m.of(access::read, m.b, b) + m.of(access::update, m.c, 128) + m.workspace());
      m.stream.synchronize();
      CHECK(state.products.back().op_a == (transposed_a ? CUBLAS_OP_T : CUBLAS_OP_N));
      CHECK(state.products.back().op_b == (transposed_b ? CUBLAS_OP_C : CUBLAS_OP_N));
    }
  }
}

TEST_CASE_TEMPLATE("a batch declares all its matrices", Memory, deepum::cuda::managed_memory,
                   deepum::cuda::paged_memory) {
  machine<Memory> m;
  m.fill();
  auto blas = m.make();
  constexpr std::int64_t block = 512 * 1024;  // elements
  const auto call = [&](std::int64_t stride_c, float beta) {
    return blas.gemm_strided_batched("batch", {.m = 1024, .n = 512, .k = 1}, 2, 1.0F, m.a, 1024, 3 * block, m.b, 1, 0,
                                     beta, m.c, 1024, stride_c);
  };
  const std::string read = m.of(access::read, m.a, 3 * block * 4 + 4096) + m.of(access::read, m.b, 2048);
  CHECK(m.declared(call(block, 0.0F)) == read + m.of(access::overwrite, m.c, 2 * block * 4) + m.workspace());
  CHECK(m.declared(call(block, 0.5F)) == read + m.of(access::update, m.c, 2 * block * 4) + m.workspace());
  CHECK(m.declared(call(2 * block, 0.0F)) == read + m.of(access::update, m.c, 3 * block * 4) + m.workspace());
  m.stream.synchronize();
  CHECK(state.products.back().count == 2);
  CHECK(state.products.back().stride_a == 3 * block);
  CHECK(state.products.back().stride_b == 0);
  CHECK(state.products.back().stride_c == 2 * block);
}

TEST_CASE("the workspace lies in the arena, and is the handle's for as long as the arena's calls last") {
  machine<deepum::cuda::managed_memory> m;
  {
    auto blas = m.make();
    CHECK(m.memory.contains(state.workspace));
    CHECK(state.workspace_size == (4_MiB).count);
    CHECK(state.stream == m.stream.native().native());
    CHECK(state.mode == CUBLAS_POINTER_MODE_HOST);
    CHECK(blas.handle() == the_handle);
  }
  CHECK(state.destroyed);

  forget();
  const deepum::bytes before = m.memory.footprint().allocated;
  {
    const deepum::interop::cublas_calls blas{m.memory, m.stream, the_handle, 8_MiB};
    CHECK(state.workspace_size == (8_MiB).count);
    CHECK(m.memory.footprint().allocated == before + 8_MiB);
  }
  CHECK(!state.destroyed);  // it is the program's
  CHECK(state.workspace == nullptr);
  CHECK(state.stream == nullptr);
  CHECK(m.memory.footprint().allocated == before);
}

TEST_CASE("a graph keeps the workspace when the calls have ended") {
  machine<deepum::cuda::managed_memory> m;
  const deepum::bytes before = m.memory.footprint().allocated;
  {
    std::optional<deepum::recorded_graph<deepum::cuda::graph>> graph;
    {
      auto blas = m.make();
      graph = m.stream.record_graph(
          "product", [&] { blas.gemm("gemm", {.m = 1, .n = 1, .k = 1}, 1.0F, m.a, 1, m.b, 1, 0.0F, m.c, 1); });
    }
    CHECK(m.memory.footprint().allocated == before + 4_MiB);
    m.stream.launch(*graph);
    m.stream.synchronize();
  }
  CHECK(m.memory.footprint().allocated == before);
}

TEST_CASE("scalars come in the type that cuBLAS computes with") {
  machine<deepum::cuda::managed_memory> m;
  auto blas = m.make();
  auto* const half = reinterpret_cast<__half*>(m.a);
  blas.gemm("half", {.m = 1, .n = 1, .k = 1}, 2.0F, half, 1, half + 8, 1, 0.5F, half + 16, 1);
  CHECK(state.products.back().compute == CUBLAS_COMPUTE_32F);
  CHECK(state.products.back().type_a == CUDA_R_16F);
  const float two = 2.0F;
  CHECK(std::memcmp(state.products.back().alpha.data(), &two, sizeof two) == 0);

  blas.gemm("all half", {.m = 1, .n = 1, .k = 1}, 2.0F, half, 1, half + 8, 1, 0.5F, half + 16, 1,
            {.compute = CUBLAS_COMPUTE_16F});
  const std::array<unsigned char, 8> half_of_2{0x00, 0x40};
  const std::array<unsigned char, 8> half_of_0_5{0x00, 0x38};
  CHECK(state.products.back().alpha == half_of_2);
  CHECK(state.products.back().beta == half_of_0_5);

  auto* const wide = reinterpret_cast<double*>(m.b);
  blas.gemm("double", {.m = 1, .n = 1, .k = 1}, 2.0, wide, 1, wide + 8, 1, 0.0, wide + 16, 1);
  CHECK(state.products.back().compute == CUBLAS_COMPUTE_64F);
  CHECK(state.products.back().type_c == CUDA_R_64F);
  m.stream.synchronize();
}

TEST_CASE("other calls declare the workspace too, but where nothing is known") {
  machine<deepum::cuda::managed_memory> m;
  auto blas = m.make();
  cublasHandle_t given = nullptr;
  const auto enqueue_nothing = [&](cublasHandle_t h) {
    given = h;
    return CUBLAS_STATUS_SUCCESS;
  };
  auto id = blas.call("dot", {deepum::reads(m.a, 16)}, enqueue_nothing);
  CHECK(given == the_handle);
  CHECK(m.declared(id) == m.of(access::read, m.a, 64) + m.workspace());
  id = blas.call("anything", {}, enqueue_nothing);
  CHECK(m.declared(id) == "unknown, ");
}

TEST_CASE("sizes that do not fit are refused before anything is launched, and cuBLAS's errors have its number") {
  machine<deepum::cuda::managed_memory> m;
  auto blas = m.make();
  const auto code = [&](auto&& call) {
    try {
      call();
    } catch (const deepum::error& e) {
      return std::pair(e.code(), e.native_code());
    }
    return std::pair(deepum::status{}, 0);
  };
  const std::pair invalid(deepum::status::invalid_argument, 0);
  CHECK(code([&] { blas.gemm("", {.m = 8, .n = 1, .k = 1}, 1.0F, m.a, 7, m.b, 1, 0.0F, m.c, 8); }) == invalid);
  CHECK(code([&] { blas.gemm("", {.m = 8, .n = 1, .k = 9}, 1.0F, m.a, 8, m.b, 8, 0.0F, m.c, 8); }) == invalid);
  CHECK(code([&] { blas.gemm("", {.m = 8, .n = 1, .k = 1}, 1.0F, m.a, 8, m.b, 1, 0.0F, m.c, 7); }) == invalid);
  CHECK(code([&] { blas.gemm("", {.m = 8, .n = 1, .k = -1}, 1.0F, m.a, 8, m.b, 1, 0.0F, m.c, 8); }) == invalid);
  constexpr std::int64_t large = std::int64_t{1} << 62;
  CHECK(code([&] { blas.gemm("", {.m = 8, .n = 4, .k = 4}, 1.0F, m.a, large, m.b, 4, 0.0F, m.c, 8); }) == invalid);
  CHECK(code([&] { blas.gemm("", {.m = 8, .n = 1, .k = 2}, 1.0F, m.a, large, m.b, 2, 0.0F, m.c, 8); }) == invalid);
  CHECK(code([&] {
          blas.gemm_strided_batched("", {.m = 1, .n = 1, .k = 1}, large, 1.0F, m.a, 1, 4, m.b, 1, 1, 0.0F, m.c, 1, 1);
        }) == invalid);
  CHECK(state.products.empty());
  (void)m.memory.statistics();
  CHECK(m.launches.count() == 0);

  state.next = CUBLAS_STATUS_NOT_SUPPORTED;
  CHECK(code([&] { blas.gemm("", {.m = 8, .n = 1, .k = 1}, 1.0F, m.a, 8, m.b, 1, 0.0F, m.c, 8); }) ==
        std::pair(deepum::status::device_failure, static_cast<int>(CUBLAS_STATUS_NOT_SUPPORTED)));
  blas.gemm("after it", {.m = 8, .n = 1, .k = 1}, 1.0F, m.a, 8, m.b, 1, 0.0F, m.c, 8);
  m.stream.synchronize();
  CHECK(state.products.size() == 1);
}

TEST_CASE("an empty product touches nothing") {
  machine<deepum::cuda::managed_memory> m;
  auto blas = m.make();
  auto id = blas.gemm("no rows", {.m = 0, .n = 4, .k = 4}, 1.0F, m.a, 1, m.b, 4, 0.0F, m.c, 1);
  CHECK(m.declared(id) == m.of(access::read, m.b, 64) + m.workspace());
  id = blas.gemm("no sum", {.m = 4, .n = 4, .k = 0}, 1.0F, m.a, 4, m.b, 1, 1.0F, m.c, 4);
  CHECK(m.declared(id) == m.of(access::update, m.c, 64) + m.workspace());
  m.stream.synchronize();
}

}  // namespace cublas_test
