// Whatever the library asks the runtime, on whichever thread, spoils no capture of the program's.

#include "cuda/fake_cuda.hpp"
#include "cuda/fake_gpu.hpp"
#include "support/failure.hpp"
#include "support/test_scale.hpp"
#include <deepum/arena.hpp>
#include <deepum/cuda.hpp>
#include <deepum/stream.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace capture_test {

using namespace deepum_test;
using namespace deepum::literals;
using deepum::access;  // not the one of POSIX
using deepum::bytes;
using deepum::status;
using word = std::uint32_t;
using deepum::cuda::managed_memory;
using deepum::cuda::paged_memory;

constexpr std::uint64_t n = (4_MiB).count / sizeof(word);

void add(word* a, const word* b, std::uint64_t count) {
  device_touch(b, count * sizeof(word), access::read);
  device_touch(a, count * sizeof(word), access::update);
  for (std::uint64_t i = 0; i < count; i += 64) {
    a[i] += b[i];
  }
}

/// A capture of the program's, on a stream of its own.
class program_capture {
 public:
  explicit program_capture(cudaStreamCaptureMode mode) {
    CHECK(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking) == cudaSuccess);
    CHECK(cudaStreamBeginCapture(stream_, mode) == cudaSuccess);
  }
  ~program_capture() {
    cudaGraph_t made = nullptr;
    CHECK(cudaStreamEndCapture(stream_, &made) == cudaSuccess);
    CHECK(made != nullptr);
    CHECK(cudaGraphDestroy(made) == cudaSuccess);
    CHECK(cudaStreamDestroy(stream_) == cudaSuccess);
    CHECK(fake_cuda::stats().capture_violations == 0);
  }
  program_capture(const program_capture&) = delete;
  program_capture& operator=(const program_capture&) = delete;

 private:
  cudaStream_t stream_ = nullptr;
};

deepum::cuda::device_options options() {
  deepum::cuda::device_options o;
  o.chunk = 2_MiB;
  o.faults = deepum::cuda::fault_source::none;
  return o;
}

/// Everything that a program may do with an arena, from its beginning to its end.
template <class Memory>
void use_all(deepum::cuda::device& device, const char* policy, bool checked) {
  deepum::arena<Memory> arena(
      device, {.capacity = 64_MiB, .device_budget = 16_MiB, .policy = policy, .checked = checked, .log = {}});
  std::vector<word*> x;
  for (word i = 0; i < 6; ++i) {  // more than the budget
    x.push_back(arena.template allocate<word>(n));
    const auto view = arena.host_overwrite(x.back(), n);
    std::fill(view.begin(), view.end(), i);
  }
  arena.advise(x[0], 4_MiB, deepum::advice::set_read_mostly);
  {
    deepum::stream<Memory> s(arena);
    deepum::stream<Memory> other(arena);
    deepum::cuda::event done;
    deepum::cuda::event copied;
    for (int round = 0; round < 3; ++round) {
      for (std::size_t i = 0; i + 1 < x.size(); ++i) {
        s.launch("add", 1, 1, 0, add, x[i], static_cast<const word*>(x[i + 1]), n);
        s.record(done);
        other.wait(done);
        other.memcpy(x[i + 1], x[i], 4_MiB);
        other.record(copied);
        s.wait(copied);
        (void)arena.statistics();
      }
      s.record(done);
      other.wait(done);
      (void)done.done();
      done.synchronize();
      s.memset(x[1], 0, 4_MiB);
      (void)s.native().idle();
      { const auto kept = arena.hold({deepum::reads(x[2], n)}); }
      s.synchronize();
      other.synchronize();
      (void)arena.host_read(x[3], n)[0];
      arena.host_write(x[3], n)[0] = 1;
      arena.prefetch(x[4], 4_MiB, deepum::location::device());
      arena.prefetch(x[5], 4_MiB, deepum::location::host());
      arena.mark_inactive(x[4], 4_MiB);
      arena.mark_active(x[4], 4_MiB);
      arena.discard(x[4], 4_MiB);
    }
    {
      const auto g =
          s.record_graph("graph", [&] { s.launch("add", 1, 1, 0, add, x[0], static_cast<const word*>(x[1]), n); });
      s.launch(g);
      s.synchronize();
    }
    arena.set_budget(0_MiB);
    arena.set_budget(12_MiB);
    s.launch("add", 1, 1, 0, add, x[0], static_cast<const word*>(x[1]), n);
  }
  for (word* const p : x) {
    arena.deallocate(p);
  }
}

TEST_CASE_TEMPLATE("a capture of the program's in any mode stays valid whatever the library does", Memory,
                   managed_memory, paged_memory) {
  for (const bool checked : {false, true}) {
    for (const char* policy : few<const char*>({"auto", "um"}, 1)) {
      for (const cudaStreamCaptureMode mode :
           few<cudaStreamCaptureMode>({cudaStreamCaptureModeGlobal, cudaStreamCaptureModeThreadLocal}, 1)) {
        CAPTURE(checked);
        CAPTURE(std::string(policy));
        CAPTURE(static_cast<int>(mode));
        const fake_gpu gpu(256_MiB);
        fake_cuda::register_kernel(add);
        {
          deepum::cuda::device device(0, options());
          const program_capture capture(mode);
          use_all<Memory>(device, policy, checked);
        }
        {
          const program_capture capture(mode);
          deepum::cuda::device device(0, options());
          std::thread([&] { use_all<Memory>(device, policy, checked); }).join();
        }
      }
    }
  }
}

TEST_CASE_TEMPLATE("asking for statistics while a stream of the arena is captured spoils nothing", Memory,
                   managed_memory, paged_memory) {
  const fake_gpu gpu(256_MiB);
  fake_cuda::register_kernel(add);
  deepum::cuda::device device(0, options());
  deepum::arena<Memory> arena(device, {.capacity = 64_MiB, .device_budget = 16_MiB, .log = {}});
  deepum::stream<Memory> s(arena);
  word* const a = arena.template allocate<word>(n);
  s.memset(a, 0, 4_MiB);
  for (const cudaStreamCaptureMode mode :
       {cudaStreamCaptureModeGlobal, cudaStreamCaptureModeThreadLocal, cudaStreamCaptureModeRelaxed}) {
    REQUIRE(cudaStreamBeginCapture(s.native().native(), mode) == cudaSuccess);
    for (int i = 0; i < 10; ++i) {
      (void)arena.statistics();
      CHECK_FALSE(s.native().idle());
    }
    CHECK(mentions(failure(status::unsupported, [&] { s.synchronize(); }), "captured"));
    cudaGraph_t made = nullptr;
    CHECK(cudaStreamEndCapture(s.native().native(), &made) == cudaSuccess);
    CHECK(cudaGraphDestroy(made) == cudaSuccess);
  }
  CHECK(fake_cuda::stats().capture_violations == 0);
  s.synchronize();
  CHECK(comes([&] { return arena.statistics().finished == arena.statistics().launches; }));
}

TEST_CASE_TEMPLATE(
    "a library's stream on the default stream is not asked while a stream that is ordered with it is captured", Memory,
    managed_memory, paged_memory) {
  const fake_gpu gpu(256_MiB);
  deepum::cuda::device device(0, options());
  deepum::arena<Memory> arena(device, {.capacity = 64_MiB, .device_budget = 16_MiB, .log = {}});
  {
    deepum::stream<Memory> s(arena, cudaStream_t{nullptr});
    word* const a = arena.template allocate<word>(n);
    s.memset(a, 0, 4_MiB);
    s.synchronize();
    cudaStream_t ordered = nullptr;
    REQUIRE(cudaStreamCreateWithFlags(&ordered, cudaStreamDefault) == cudaSuccess);
    REQUIRE(cudaStreamBeginCapture(ordered, cudaStreamCaptureModeGlobal) == cudaSuccess);
    for (int i = 0; i < 10; ++i) {
      (void)arena.statistics();
      (void)s.native().idle();
    }
    (void)failure(status::unsupported, [&] { s.synchronize(); });
    cudaGraph_t made = nullptr;
    CHECK(cudaStreamEndCapture(ordered, &made) == cudaSuccess);
    CHECK(fake_cuda::stats().capture_violations == 0);
    CHECK(cudaGraphDestroy(made) == cudaSuccess);
    CHECK(cudaStreamDestroy(ordered) == cudaSuccess);
  }
  CHECK(comes([&] { return arena.statistics().finished == arena.statistics().launches; }));
}

TEST_CASE("launches on managed memory that the program captures come into its graph, and wait for nothing") {
  for (const char* policy : {"auto", "deepum", "lru", "um"}) {
    CAPTURE(std::string(policy));
    const fake_gpu gpu(256_MiB);
    fake_cuda::register_kernel(add);
    deepum::cuda::device device(0, options());
    deepum::arena<managed_memory> arena(device,
                                        {.capacity = 64_MiB, .device_budget = 12_MiB, .policy = policy, .log = {}});
    deepum::stream<managed_memory> s(arena);
    std::vector<word*> x;
    for (word i = 0; i < 5; ++i) {
      x.push_back(arena.allocate<word>(n));
      const auto view = arena.host_overwrite(x.back(), n);
      std::fill(view.begin(), view.end(), i + 1);
    }
    const auto step = [&] {
      for (std::size_t i = 0; i + 1 < x.size(); ++i) {
        s.launch("add", 1, 1, 0, add, x[i], static_cast<const word*>(x[i + 1]), n);
      }
    };
    for (int i = 0; i < 4; ++i) {
      step();
    }
    s.synchronize();
    const std::uint64_t queries = fake_cuda::calls("cudaStreamQuery");
    REQUIRE(cudaStreamBeginCapture(s.native().native(), cudaStreamCaptureModeGlobal) == cudaSuccess);
    step();
    (void)arena.statistics();
    cudaGraph_t made = nullptr;
    REQUIRE(cudaStreamEndCapture(s.native().native(), &made) == cudaSuccess);
    CHECK(fake_cuda::stats().capture_violations == 0);
    CHECK(fake_cuda::calls("cudaStreamQuery") - queries < 2000);  // 2000 a launch where each waits for a second
    {
      const deepum::cuda::graph g(made);
      s.call("graph", {}, [&](cudaStream_t q) { CHECK(cudaGraphLaunch(g.native(), q) == cudaSuccess); });
      s.synchronize();
    }
    CHECK(arena.host_read(x[3], n)[0] == 4 + 5 * 5);  // five times a step
    CHECK(comes([&] { return arena.statistics().finished == arena.statistics().launches; }));
  }
}

TEST_CASE_TEMPLATE("a thread's current device stays what it was, and only the arena's device is opened", Memory,
                   managed_memory, paged_memory) {
  const fake_gpu gpu(256_MiB);
  fake_cuda::set_device_count(3);
  fake_cuda::register_kernel(add);
  std::optional<deepum::cuda::device> device;
  std::thread([&] { device.emplace(1, options()); }).join();
  const auto current = [] {
    int now = -1;
    CHECK(cudaGetDevice(&now) == cudaSuccess);
    return now;
  };
  // On a thread that has not chosen any.
  std::thread([&] {
    use_all<Memory>(*device, "auto", false);
    CHECK(current() == 0);
  }).join();
  CHECK(fake_cuda::opened_devices() == std::vector<int>{1});
  std::thread([&] {
    CHECK(cudaSetDevice(2) == cudaSuccess);
    deepum::arena<Memory> arena(*device, {.capacity = 64_MiB, .device_budget = 16_MiB, .log = {}});
    CHECK(current() == 2);
    deepum::stream<Memory> s(arena);
    CHECK(current() == 2);
    word* const a = arena.template allocate<word>(n);
    s.memset(a, 0, 4_MiB);
    CHECK(current() == 2);
    s.call("call", {deepum::updates(a, n)}, [&](cudaStream_t) {
      CHECK(current() == 1);  // as the body needs it
      s.launch("add", 1, 1, 0, add, a, static_cast<const word*>(a), n);
      CHECK(current() == 1);
    });
    CHECK(current() == 2);
    (void)arena.statistics();
    CHECK(current() == 2);
    (void)arena.memory().free_memory();
    CHECK(current() == 2);
    std::vector<deepum::device_event> events;
    arena.memory().poll(events);
    CHECK(current() == 2);
    (void)failure(status::invalid_argument, [&] {
      (void)s.record_graph("graph", [&]() {
        CHECK(current() == 1);
        throw deepum::error(status::invalid_argument, "no");
      });
    });
    CHECK(current() == 2);
    s.synchronize();
    CHECK(current() == 2);
  }).join();
  device.reset();
}

}  // namespace capture_test
