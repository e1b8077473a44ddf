// deepum.h on the fake GPU: a program in C11, one in C++17, and what becomes of errors.

#include "cuda/c_program.h"
#include "cuda/fake_cuda.hpp"
#include "cuda/fake_gpu.hpp"
#include <deepum/deepum.h>
#include <deepum/error.hpp>

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>

namespace c_face_test {

using namespace deepum_test;

void add(std::uint32_t* p, const std::uint32_t* one, std::uint32_t n) {
  device_touch(p, n * sizeof *p, deepum::access::update);
  device_touch(one, sizeof *one, deepum::access::read);
  for (std::uint32_t i = 0; i < n; ++i) {
    p[i] += *one;
  }
}

/// An arena and a stream of it, through the C face.
struct machine {
  explicit machine(deepum_memory memory = DEEPUM_MANAGED) {
    fake_cuda::register_kernel(add);
    deepum_arena_options options = DEEPUM_DEFAULT_OPTIONS;
    options.memory = memory;
    options.capacity = std::uint64_t{128} << 20;
    options.budget = std::uint64_t{64} << 20;
    options.log = [](const char* line, void* user) { static_cast<std::string*>(user)->append(line); };
    options.log_user = &log;
    REQUIRE(deepum_arena_create(&options, &arena) == DEEPUM_OK);
    REQUIRE(deepum_stream_create(arena, nullptr, &stream) == DEEPUM_OK);
  }
  ~machine() {
    CHECK(deepum_stream_destroy(stream) == DEEPUM_OK);
    CHECK(deepum_arena_destroy(arena) == DEEPUM_OK);
  }
  machine(const machine&) = delete;
  machine& operator=(const machine&) = delete;

  void* allocate(std::uint64_t size) const {
    void* p = nullptr;
    REQUIRE(deepum_malloc(arena, &p, size) == DEEPUM_OK);
    return p;
  }

  fake_gpu gpu;
  std::string log;
  deepum_arena* arena = nullptr;
  deepum_stream* stream = nullptr;
};

bool says(std::string_view what) { return std::string_view(deepum_last_error()).find(what) != std::string_view::npos; }

TEST_CASE("a program in C trains past its budget on either kind of memory") {
  for (const deepum_memory memory : {DEEPUM_MANAGED, DEEPUM_PAGED}) {
    CAPTURE(memory);
    fake_gpu gpu;
    fake_cuda::register_kernel(add);
    std::array<char, 400> said{};
    const int result = run_c_program(memory, reinterpret_cast<const void*>(&add), said.data(), said.size());
    INFO(std::string(said.data()));
    CHECK(result == 0);
  }
}

TEST_CASE("a program in C++17 launches through the same header") {
  const machine m;
  auto* p = static_cast<unsigned char*>(m.allocate(64));
  REQUIRE(launch_in_cxx17(m.stream, p, 64) == DEEPUM_OK);
  unsigned char last = 0;
  REQUIRE(deepum_memcpy_and_wait(m.stream, &last, p + 63, 1) == DEEPUM_OK);
  CHECK(last == 1);
}

TEST_CASE("each status of the library has the number that the C header gives it") {
  const auto same = [](deepum_status c, deepum::status cxx) { return static_cast<int>(c) == static_cast<int>(cxx); };
  CHECK(same(DEEPUM_INVALID_ARGUMENT, deepum::status::invalid_argument));
  CHECK(same(DEEPUM_OUT_OF_ARENA_SPACE, deepum::status::out_of_arena_space));
  CHECK(same(DEEPUM_OUT_OF_DEVICE_MEMORY, deepum::status::out_of_device_memory));
  CHECK(same(DEEPUM_OUT_OF_HOST_MEMORY, deepum::status::out_of_host_memory));
  CHECK(same(DEEPUM_FOREIGN_POINTER, deepum::status::foreign_pointer));
  CHECK(same(DEEPUM_DOUBLE_FREE, deepum::status::double_free));
  CHECK(same(DEEPUM_DEVICE_FAILURE, deepum::status::device_failure));
  CHECK(same(DEEPUM_UNSUPPORTED, deepum::status::unsupported));
  CHECK(same(DEEPUM_IO_FAILURE, deepum::status::io_failure));
  CHECK(same(DEEPUM_BAD_FORMAT, deepum::status::bad_format));
  CHECK(same(DEEPUM_WRONG_DECLARATION, deepum::status::wrong_declaration));
}

TEST_CASE("a call that fails says why, and changes nothing") {
  const machine m;
  void* p = m.allocate(4096);
  int local = 0;

  CHECK(deepum_free(m.arena, &local) == DEEPUM_FOREIGN_POINTER);
  CHECK(says("not memory of this arena"));
  CHECK(deepum_free(m.arena, static_cast<char*>(p) + 256) == DEEPUM_INVALID_ARGUMENT);
  CHECK(deepum_malloc(m.arena, &p, std::uint64_t{1} << 40) == DEEPUM_OUT_OF_ARENA_SPACE);
  CHECK(p == nullptr);
  CHECK(says("capacity"));

  void* q = m.allocate(4096);
  const deepum_operand beyond = deepum_reads(q, 1 << 20);
  bool ran = false;
  const auto note = [](cudaStream_t, void* user) {
    *static_cast<bool*>(user) = true;
    return 0;
  };
  CHECK(deepum_call(m.stream, "beyond", &beyond, 1, note, &ran) == DEEPUM_INVALID_ARGUMENT);
  CHECK_FALSE(ran);
  const deepum_operand unsized = deepum_overwrites(q, DEEPUM_WHOLE);
  CHECK(deepum_call(m.stream, "unsized", &unsized, 1, note, &ran) == DEEPUM_INVALID_ARGUMENT);
  CHECK(says("operand 0 is overwritten without a size"));
  CHECK(deepum_call(m.stream, "no operands", nullptr, 2, note, &ran) == DEEPUM_INVALID_ARGUMENT);
  CHECK(deepum_host_begin(m.arena, q, 8, static_cast<deepum_access>(3), &p) == DEEPUM_INVALID_ARGUMENT);
  CHECK_FALSE(ran);

  CHECK(deepum_free(m.arena, q) == DEEPUM_OK);
  CHECK(deepum_free(m.arena, q) == DEEPUM_DOUBLE_FREE);
}

TEST_CASE("a function that fails within deepum_call gives its number") {
  const machine m;
  void* p = m.allocate(64);
  const deepum_operand all = deepum_updates(p, 64);
  CHECK(deepum_call(
            m.stream, "gemm", &all, 1, [](cudaStream_t, void*) { return 14; }, nullptr) == DEEPUM_DEVICE_FAILURE);
  CHECK(deepum_last_native_error() == 14);
  CHECK(says("gemm"));
  int unknown = 0;
  dim3 one{};
  CHECK(deepum_launch(m.stream, "unknown", &all, 1, &unknown, one, one, nullptr, 0) == DEEPUM_DEVICE_FAILURE);
  CHECK(deepum_last_native_error() == cudaErrorInvalidDeviceFunction);
  CHECK(cudaGetLastError() == cudaSuccess);
}

TEST_CASE("missing arguments are refused by name") {
  CHECK(deepum_arena_create(nullptr, nullptr) == DEEPUM_INVALID_ARGUMENT);
  CHECK(says("made is NULL"));
  CHECK(deepum_malloc(nullptr, nullptr, 1) == DEEPUM_INVALID_ARGUMENT);
  CHECK(deepum_synchronize(nullptr) == DEEPUM_INVALID_ARGUMENT);
  CHECK(says("deepum_synchronize: stream is NULL"));
  CHECK(deepum_stream_destroy(nullptr) == DEEPUM_OK);
  CHECK(deepum_arena_destroy(nullptr) == DEEPUM_OK);
  CHECK(deepum_native(nullptr) == nullptr);
  deepum_arena_options older = DEEPUM_DEFAULT_OPTIONS;
  older.size = 8;
  deepum_arena* arena = nullptr;
  CHECK(deepum_arena_create(&older, &arena) == DEEPUM_INVALID_ARGUMENT);
  CHECK(arena == nullptr);
  CHECK(says("DEEPUM_DEFAULT_OPTIONS"));
}

TEST_CASE("an arena with streams is not destroyed") {
  const machine m;
  CHECK(deepum_arena_destroy(m.arena) == DEEPUM_INVALID_ARGUMENT);
  CHECK(says("deepum_stream_destroy"));
  CHECK(deepum_malloc(m.arena, std::array<void*, 1>{}.data(), 64) == DEEPUM_OK);  // it is as it was
}

/// What becomes of a process of its own that does `work` and does not return from it.
int status_of_process(void (*work)()) {
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    ::alarm(60);
    work();
    ::_exit(99);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  return status;
}

TEST_CASE("a program may end with its arena, its streams and launches in flight, and its report is written") {
  const std::string report = "/tmp/deepum-c-face-" + std::to_string(::getpid()) + ".json";
  REQUIRE(::setenv("DEEPUM_STATISTICS", report.c_str(), 1) == 0);
  const int status = status_of_process([] {
    const auto* const m = new machine(DEEPUM_PAGED);  // left behind
    void* const p = m->allocate(64);
    for (int i = 0; i < 100; ++i) {
      (void)deepum_memset(m->stream, p, i, 64);
    }
    std::exit(7);
  });
  REQUIRE(::unsetenv("DEEPUM_STATISTICS") == 0);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 7);
  std::ifstream file(report);
  std::string text((std::istreambuf_iterator<char>(file)), {});
  CHECK(text.find("launches") != std::string::npos);
  (void)::unlink(report.c_str());
}

TEST_CASE("a stream of the program keeps the order of what both enqueue") {
  const machine m;
  cudaStream_t own = nullptr;
  REQUIRE(cudaStreamCreateWithFlags(&own, cudaStreamNonBlocking) == cudaSuccess);
  auto* p = static_cast<unsigned char*>(m.allocate(64));
  deepum_stream* on_it = nullptr;
  REQUIRE(deepum_stream_create(m.arena, own, &on_it) == DEEPUM_OK);
  CHECK(deepum_native(on_it) == own);
  REQUIRE(deepum_memset(on_it, p, 3, 64) == DEEPUM_OK);
  unsigned char first = 0;
  REQUIRE(cudaMemcpyAsync(&first, p, 1, cudaMemcpyDefault, own) == cudaSuccess);
  REQUIRE(deepum_stream_destroy(on_it) == DEEPUM_OK);
  CHECK(first == 3);
  REQUIRE(cudaStreamDestroy(own) == cudaSuccess);
}

}  // namespace c_face_test
