// What streams of the library are ordered with, on the fake GPU: the default stream, streams of the program, the host.

#include "cuda/fake_cuda.hpp"
#include "cuda/fake_gpu.hpp"
#include "support/failure.hpp"
#include <deepum/arena.hpp>
#include <deepum/cuda.hpp>
#include <deepum/stream.hpp>

#include <doctest/doctest.h>

#include <chrono>
#include <cstdint>
#include <cstring>
#include <string>

namespace stream_order_test {

using namespace deepum_test;
using namespace deepum::literals;
using deepum::access;  // not the one of POSIX
using word = std::uint32_t;

void set(word* a, word value) {
  device_touch(a, sizeof *a, access::update);
  *a = value;
}
void twice(word* a) {
  device_touch(a, sizeof *a, access::update);
  *a *= 2;
}

template <class Memory>
struct machine {
  machine() : device(0, options()), memory(device, {.capacity = 64_MiB, .device_budget = 32_MiB, .log = {}}) {
    fake_cuda::register_kernel(set);
    fake_cuda::register_kernel(twice);
    x = memory.template allocate<word>(1);
  }
  static deepum::cuda::device_options options() {
    deepum::cuda::device_options o;
    o.chunk = 2_MiB;
    o.faults = deepum::cuda::fault_source::none;
    return o;
  }
  /// As the program launches itself what it has not ported. On memory that never faults it has to be declared.
  void launch_raw(deepum::stream<Memory>& s, cudaStream_t q, word value) {
    word* a = x;
    void* arguments[] = {&a, &value};
    s.call("raw", {deepum::updates(x, 1)}, [&](cudaStream_t) {
      REQUIRE(cudaLaunchKernel(reinterpret_cast<const void*>(set), dim3(1), dim3(1), arguments, 0, q) == cudaSuccess);
    });
  }
  word value() { return memory.host_read(x, 1)[0]; }

  fake_gpu gpu;
  deepum::cuda::device device;
  deepum::arena<Memory> memory;
  word* x = nullptr;
};

TEST_CASE_TEMPLATE("launches on a stream of the program keep their order with what it enqueues there", Memory,
                   deepum::cuda::managed_memory, deepum::cuda::paged_memory) {
  for (const bool is_default : {false, true}) {
    CAPTURE(is_default);
    machine<Memory> m;
    cudaStream_t q = nullptr;
    cudaStream_t named = cudaStreamLegacy;
    if (!is_default) {
      REQUIRE(cudaStreamCreateWithFlags(&q, cudaStreamNonBlocking) == cudaSuccess);
      named = q;
    }
    fake_cuda::set_delays(7, std::chrono::microseconds(300));
    {
      deepum::stream s{m.memory, q, {.lookahead = 4}};
      s.call("native", {}, [&](cudaStream_t given) { CHECK(given == named); });
      word wanted = 0;
      for (word i = 1; i <= 20; ++i) {
        m.launch_raw(s, q, i);
        s.launch("twice", 1, 1, 0, twice, deepum::updates(m.x, 1));
        CHECK(fake_cuda::launches().back().stream == named);
        wanted = 2 * i;
      }
      s.synchronize();
      CHECK(m.value() == wanted);
      m.launch_raw(s, q, 50);
    }
    // Not owned: it goes on.
    CHECK(m.value() == 50);
    REQUIRE(cudaStreamSynchronize(q) == cudaSuccess);
    if (!is_default) CHECK(cudaStreamDestroy(q) == cudaSuccess);
  }
}

TEST_CASE_TEMPLATE("a blocking stream is ordered with the default stream, and no other one is", Memory,
                   deepum::cuda::managed_memory, deepum::cuda::paged_memory) {
  machine<Memory> m;
  deepum::stream blocking{m.memory, {.blocking = true}};
  deepum::stream free{m.memory};
  word* const other = m.memory.template allocate<word>((2_MiB).count / sizeof(word));

  // The default stream first, then this one.
  REQUIRE(cudaStreamSynchronize(nullptr) == cudaSuccess);
  fake_cuda::hold(nullptr);
  m.launch_raw(blocking, nullptr, 5);
  blocking.launch("twice", 1, 1, 0, twice, deepum::updates(m.x, 1));
  free.launch("twice", 1, 1, 0, twice, deepum::updates(other, 1));
  free.synchronize();  // beside what is held
  fake_cuda::resume(nullptr);
  blocking.synchronize();
  CHECK(m.value() == 10);

  // This one first, then the default stream.
  fake_cuda::hold(blocking.native().native());
  blocking.launch("twice", 1, 1, 0, twice, deepum::updates(m.x, 1));
  m.launch_raw(blocking, nullptr, 7);
  free.launch("twice", 1, 1, 0, twice, deepum::updates(other, 1));
  free.synchronize();
  fake_cuda::resume(blocking.native().native());
  REQUIRE(cudaStreamSynchronize(nullptr) == cudaSuccess);
  blocking.synchronize();
  CHECK(m.value() == 7);
}

TEST_CASE_TEMPLATE("memcpy_and_wait returns when the bytes are there, in pinned memory too", Memory,
                   deepum::cuda::managed_memory, deepum::cuda::paged_memory) {
  machine<Memory> m;
  deepum::stream s{m.memory};
  constexpr std::size_t n = 9 << 20;
  auto* const a = m.memory.template allocate<char>(n);
  void* pinned = nullptr;
  REQUIRE(cudaHostAlloc(&pinned, n, cudaHostAllocDefault) == cudaSuccess);
  fake_cuda::set_delays(3, std::chrono::microseconds(500));
  for (char round = 1; round <= 5; ++round) {
    std::memset(pinned, round, n);
    s.memcpy_and_wait(a, pinned, deepum::bytes{n});
    std::memset(pinned, 0, n);  // read already
    s.memcpy_and_wait(pinned, a, deepum::bytes{n});
    CHECK(static_cast<char*>(pinned)[0] == round);
    CHECK(static_cast<char*>(pinned)[n - 1] == round);
  }
  CHECK(cudaFreeHost(pinned) == cudaSuccess);
}

TEST_CASE("a graph cannot record memcpy_and_wait, and the capture ends well") {
  machine<deepum::cuda::managed_memory> m;
  deepum::stream s{m.memory};
  word to = 0;
  const std::string text = failure(deepum::status::unsupported, [&] {
    (void)s.record_graph("copies", [&] { s.memcpy_and_wait(&to, m.x, deepum::bytes{sizeof to}); });
  });
  CHECK(mentions(text, "record memcpy"));
  s.launch("twice", 1, 1, 0, twice, deepum::updates(m.x, 1));
  s.synchronize();
  CHECK(fake_cuda::stats().capture_violations == 0);
}

TEST_CASE("the default stream of a thread is refused, and a null stream is the one that all threads share") {
  machine<deepum::cuda::managed_memory> m;
  const std::string text =
      failure(deepum::status::invalid_argument, [&] { const deepum::stream s(m.memory, cudaStreamPerThread); });
  CHECK(mentions(text, "cudaStreamLegacy"));
  deepum::stream s{m.memory, nullptr};
  CHECK(s.native().native() == cudaStreamLegacy);
}

TEST_CASE("a launch has finished although the program keeps its stream busy behind it") {
  machine<deepum::cuda::managed_memory> m;
  cudaStream_t q = nullptr;
  REQUIRE(cudaStreamCreateWithFlags(&q, cudaStreamNonBlocking) == cudaSuccess);
  {
    deepum::stream s{m.memory, q};
    for (int i = 0; i < 1000; ++i)  // more than are marked in any case
      s.launch("twice", 1, 1, 0, twice, deepum::updates(m.x, 1));
    s.synchronize();
    for (int i = 0; i < 40; ++i) {
      s.launch("twice", 1, 1, 0, twice, deepum::updates(m.x, 1));
      REQUIRE(cudaStreamSynchronize(q) == cudaSuccess);
      fake_cuda::hold(q);
      REQUIRE(cudaMemsetAsync(m.memory.memory().base(), 0, 1, q) == cudaSuccess);
      CHECK(comes([&] { return m.memory.statistics().finished == m.memory.statistics().launches; }));
      fake_cuda::resume(q);
    }
  }
  CHECK(cudaStreamDestroy(q) == cudaSuccess);
}

TEST_CASE("a stream of the program is left as it is when that of the arena ends") {
  machine<deepum::cuda::managed_memory> m;
  cudaStream_t q = nullptr;
  REQUIRE(cudaStreamCreateWithFlags(&q, cudaStreamDefault) == cudaSuccess);
  { const deepum::stream s(m.memory, q); }
  CHECK(cudaStreamQuery(q) == cudaSuccess);
  CHECK(cudaStreamDestroy(q) == cudaSuccess);
}

TEST_CASE("in a stream of the program that nobody else uses, ends of launches are marked as in one of the library") {
  machine<deepum::cuda::managed_memory> m;
  cudaStream_t q = nullptr;
  REQUIRE(cudaStreamCreateWithFlags(&q, cudaStreamNonBlocking) == cudaSuccess);
  const auto records = [&](deepum::stream<deepum::cuda::managed_memory>& s) {
    const std::uint64_t before = fake_cuda::calls_of_this_thread("cudaEventRecord");
    for (word i = 0; i < 2000; ++i)
      s.launch("set", 1, 1, 0, set, m.x, i);
    s.synchronize();
    return fake_cuda::calls_of_this_thread("cudaEventRecord") - before;
  };
  {
    deepum::stream shared(m.memory, q);
    CHECK(records(shared) >= 2000);
  }
  {
    deepum::stream sole(m.memory, q, {.lookahead = {}, .blocking = false, .sole = true});
    CHECK(records(sole) < 1500);
    CHECK(m.value() == 1999);
  }
  {
    deepum::stream mine(m.memory, cudaStreamPerThread, {.lookahead = {}, .blocking = false, .sole = true});
    mine.launch("set", 1, 1, 0, set, m.x, word{7});
    mine.synchronize();
    CHECK(m.value() == 7);
  }
  REQUIRE(cudaStreamDestroy(q) == cudaSuccess);
}

TEST_CASE("a call with a signature of its own is recognised by that") {
  machine<deepum::cuda::managed_memory> m;
  deepum::stream s(m.memory);
  const deepum::operand used[] = {deepum::updates(m.x, 1)};
  bool called = false;
  s.call("mine", {1, 2}, used, false, [&](cudaStream_t q) { called = q == s.native().native(); });
  CHECK(called);
  CHECK_THROWS_AS(s.call("mine", {1, 2}, used, false, [](cudaStream_t) { throw 1; }), int);
  s.synchronize();
  CHECK(m.memory.statistics().launches == 2);
}

TEST_CASE("an arena that is finished has ended its threads, and may be left behind with its streams") {
  machine<deepum::cuda::managed_memory> m;
  deepum::stream s(m.memory);
  s.launch("set", 1, 1, 0, set, m.x, word{3});
  s.synchronize();
  m.memory.finish();
  m.memory.finish();
}

}  // namespace stream_order_test
