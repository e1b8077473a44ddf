// Waits on CUDA devices end (see tests/arena/waits_test.cpp for the simulated one): on a device that broke and on a
// host that has no memory left, on the fake runtime. A watchdog ends what hangs.

#include "cuda/fake_cuda.hpp"
#include "cuda/fake_gpu.hpp"
#include "support/failure.hpp"
#include "support/watchdog.hpp"
#include <deepum/arena.hpp>
#include <deepum/cuda.hpp>
#include <deepum/stream.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace cuda_waits_test {

using namespace deepum_test;
using namespace deepum::literals;
using deepum::access;  // not the one of POSIX
using deepum::bytes;
using deepum::error;
using deepum::location;
using deepum::status;
using word = std::uint32_t;

constexpr std::size_t in_block = (2_MiB).count / sizeof(word);

void set(word* a, std::uint64_t n, word value) {
  device_touch(a, n * sizeof(word), access::overwrite);
  std::fill_n(a, n, value);
}

template <class Memory>
struct machine {
  explicit machine(const char* policy = "auto", bytes host_limit = {}) {
    fake_cuda::register_kernel(set);
    deepum::cuda::device_options o;
    o.chunk = 2_MiB;
    o.host_limit = host_limit;
    o.faults = deepum::cuda::fault_source::none;
    device.emplace(0, o);
    arena.emplace(*device, deepum::arena_options{.capacity = 64_MiB,
                                                 .device_budget = 16_MiB,
                                                 .policy = policy,
                                                 .log = [this](std::string_view) { ++lines; }});
  }

  fake_gpu gpu{64_MiB};
  std::atomic<int> lines{0};
  std::optional<deepum::cuda::device> device;
  std::optional<deepum::arena<Memory>> arena;
};

#define BOTH_KINDS deepum::cuda::managed_memory, deepum::cuda::paged_memory

/// Makes every public call once, on memory that exists. @returns  The status of those that failed.
template <class Memory>
std::map<std::string, status> call_everything(deepum::arena<Memory>& memory, deepum::stream<Memory>& s, word* x,
                                              word* y) {
  std::map<std::string, status> failed;
  const auto attempt = [&](const std::string& what, const std::function<void()>& call) {
    try {
      call();
    } catch (const error& e) {
      CHECK(std::string(e.what()) != "");
      failed[what] = e.code();
    }
  };
  constexpr std::size_t n = 2 * in_block;
  const bytes size{n * sizeof(word)};
  std::vector<word> host(n);
  const char* const tables = "cuda_waits_test_tables";
  attempt("launch", [&] { s.launch("set", 1, 1, 0, set, deepum::overwrites(x, n), std::uint64_t{n}, word{1}); });
  attempt("call", [&] {
    s.call("set", {deepum::updates(y, n)}, [&](cudaStream_t) { s.native().launch(1, 1, 0, set, y, n, word{2}); });
  });
  attempt("memcpy to the device", [&] { s.memcpy(x, host.data(), size); });
  attempt("memcpy on the device", [&] { s.memcpy(y, x, size); });
  attempt("memcpy to the host", [&] { s.memcpy(host.data(), y, size); });
  attempt("memset", [&] { s.memset(x, 1, size); });
  attempt("graph", [&] {
    auto graph = s.record_graph("graph", [&] { s.launch("set", 1, 1, 0, set, x, std::uint64_t{n}, word{1}); });
    s.launch(graph);
  });
  attempt("event", [&] {
    typename deepum::stream<Memory>::event_type event;
    s.record(event);
    s.wait(event);
    event.synchronize();
  });
  attempt("synchronize", [&] { s.synchronize(); });
  attempt("stream", [&] { (void)deepum::stream<Memory>(memory); });
  attempt("prefetch to the device", [&] { memory.prefetch(x, size, location::device()); });
  attempt("prefetch to the host", [&] { memory.prefetch(x, size, location::host()); });
  attempt("advise", [&] { memory.advise(x, size, deepum::advice::set_read_mostly); });
  attempt("hold", [&] {
    const auto kept = memory.hold({deepum::updates(x, n), deepum::reads(y, n)});
    s.launch("set", 1, 1, 0, set, x, std::uint64_t{n}, word{3});
  });
  attempt("host_read", [&] { CHECK(memory.host_read(x, n).size() == n); });
  attempt("host_write", [&] { CHECK(memory.host_write(y, n).size() == n); });
  attempt("host_overwrite", [&] { CHECK(memory.host_overwrite(y, n).size() == n); });
  attempt("split", [&] { memory.split(x, std::vector<bytes>{2_MiB, 2_MiB}); });
  attempt("allocate", [&] { memory.deallocate(memory.template allocate<word>(in_block)); });
  attempt("discard", [&] { memory.discard(x, size); });
  attempt("mark_inactive", [&] { memory.mark_inactive(x, size); });
  attempt("mark_active", [&] { memory.mark_active(x, size); });
  attempt("set_budget", [&] { memory.set_budget(memory.budget()); });
  attempt("statistics", [&] { CHECK(memory.statistics().launches > 0); });
  attempt("save_tables", [&] { memory.save_tables(tables); });
  std::remove(tables);
  attempt("deallocate", [&] { memory.deallocate(x); });
  attempt("deallocate another", [&] { memory.deallocate(y); });
  attempt("synchronize again", [&] { s.synchronize(); });
  return failed;
}

TEST_CASE_TEMPLATE("on a broken device every call ends", Memory, BOTH_KINDS) {
  for (const char* policy : {"auto", "um"}) {
    CAPTURE(policy);
    const watchdog ends("all calls on a broken device");
    machine<Memory> m(policy);
    deepum::stream s(*m.arena);
    word* const x = m.arena->template allocate<word>(2 * in_block);
    word* const y = m.arena->template allocate<word>(2 * in_block);
    word* const others = m.arena->template allocate<word>(7 * in_block);
    for (word* const p : {x, y, others}) {
      s.launch("set", 1, 1, 0, set, p, std::uint64_t{(p == others ? 7 : 2) * in_block}, word{1});
    }
    s.synchronize();
    fake_cuda::break_device(cudaErrorIllegalAddress);
    const std::map<std::string, status> failed = call_everything(*m.arena, s, x, y);
    CHECK(failed.contains("synchronize"));
    CHECK(failed.at("synchronize") == status::device_failure);
    if constexpr (deepum::paged_memory_kind<Memory>) {
      CHECK(failed.at("launch") == status::device_failure);
      CHECK(failed.at("hold") == status::device_failure);
    }
    CHECK(m.lines < 30);
  }
}

TEST_CASE("host access that has to wait on a broken device ends with what broke it") {
  const watchdog ends("host access on a broken device");
  machine<deepum::cuda::paged_memory> m;
  deepum::stream s(*m.arena);
  word* const x = m.arena->allocate<word>(in_block);
  s.launch("set", 1, 1, 0, set, x, std::uint64_t{in_block}, word{1});
  s.synchronize();
  fake_cuda::break_device(cudaErrorIllegalAddress);
  for (const access mode : {access::read, access::update, access::overwrite}) {
    const std::string said =
        failure(status::device_failure, [&] { deepum::host_view<word>(*m.arena, x, in_block, mode); });
    CHECK(mentions(said, "cudaStreamQuery"));
  }
  CHECK(m.lines < 10);
}

TEST_CASE("with no host memory left every call ends, and nothing is lost") {
  for (const char* policy : {"auto", "um"}) {
    CAPTURE(policy);
    const watchdog ends("all calls with a full host");
    machine<deepum::cuda::paged_memory> m(policy, 4_MiB);
    auto& memory = *m.arena;
    deepum::stream s(memory);
    std::vector<word*> all;
    for (int i = 0; i < 6; ++i) {
      all.push_back(memory.allocate<word>(2 * in_block));
    }
    for (int i = 0; i < 4; ++i) {
      s.launch("set", 1, 1, 0, set, all[static_cast<std::size_t>(i)], std::uint64_t{2 * in_block}, word{7});
    }
    s.synchronize();
    const auto view = memory.host_read(all[0], 2 * in_block);  // all that the host has
    s.launch("set", 1, 1, 0, set, all[4], std::uint64_t{2 * in_block}, word{7});
    const std::string refused = failure(status::out_of_host_memory, [&] {
      s.launch("set", 1, 1, 0, set, all[5], std::uint64_t{2 * in_block}, word{7});
    });
    CHECK(mentions(refused, "host_limit"));
    const std::string unread =
        failure(status::out_of_host_memory, [&] { (void)memory.host_read(all[1], 2 * in_block); });
    CHECK(mentions(unread, "host_limit"));
    (void)call_everything(memory, s, all[1], all[2]);
    CHECK(m.lines < 20);
    CHECK(std::count(view.begin(), view.end(), word{7}) == 2 * in_block);
  }
}

TEST_CASE("where arenas share a device, one that cannot have more makes room among its own blocks") {
  const watchdog ends("arenas that share a device");
  using arena_type = deepum::arena<deepum::cuda::paged_memory>;
  const fake_gpu gpu(40_MiB);
  fake_cuda::register_kernel(set);
  deepum::cuda::device_options o;
  o.chunk = 2_MiB;
  deepum::cuda::device device(0, o);
  arena_type mine(device, {.capacity = 128_MiB, .device_budget = 40_MiB, .policy = "um", .log = {}});
  arena_type other(device, {.capacity = 128_MiB, .device_budget = 40_MiB, .policy = "um", .log = {}});
  deepum::stream s(mine);
  deepum::stream t(other);
  // At once, so that all that is alive never fits the budget: else the arena would bring all of it while it has time.
  std::vector<word*> words{mine.allocate<word>(24 * in_block)};
  mine.split(words[0], std::vector<bytes>(24, 2_MiB));
  while (words.size() < 24) {
    words.push_back(words.back() + in_block);
  }
  for (std::size_t i = 0; i < 12; ++i) {
    s.launch("set", 1, 1, 0, set, words[i], std::uint64_t{in_block}, static_cast<word>(i));
  }
  s.synchronize();
  word* const theirs = other.allocate<word>(8 * in_block);
  t.launch("set", 1, 1, 0, set, theirs, std::uint64_t{8 * in_block}, word{1});  // nothing is free now
  t.synchronize();
  for (std::size_t i = 0; i < words.size(); ++i) {
    s.launch("set", 1, 1, 0, set, words[i], std::uint64_t{in_block / 2}, static_cast<word>(i));
  }
  s.synchronize();
  for (std::size_t i = 0; i < words.size(); ++i) {
    CHECK(mine.host_read(words[i], in_block)[1] == i);
  }
  CHECK(mine.host_read(words[3], in_block)[in_block - 1] == 3);
  CHECK(other.host_read(theirs, 1)[0] == 1);
}

TEST_CASE_TEMPLATE("a thread that waits for memory looks when the pump has run, and does not poll", Memory,
                   BOTH_KINDS) {
  const watchdog ends("an allocation behind a launch");
  machine<Memory> m;
  auto& memory = *m.arena;
  std::atomic<std::uint64_t> runs{0};
  memory.memory().detach();
  memory.memory().attach([&] {
    ++runs;
    memory.engine().pump();
  });
  deepum::stream s(memory);
  word* const x = memory.template allocate<word>(20 * in_block);
  s.launch("set", 1, 1, 0, set, deepum::overwrites(x, in_block), std::uint64_t{in_block}, word{1});
  s.synchronize();
  (void)memory.statistics();
  const cudaStream_t q = s.native().native();
  fake_cuda::hold(q);
  s.launch("set", 1, 1, 0, set, deepum::updates(x, in_block), std::uint64_t{in_block}, word{2});
  memory.deallocate(x);
  const auto looks = [] { return fake_cuda::calls("cudaEventQuery") + fake_cuda::calls("cudaStreamQuery"); };
  const std::uint64_t looked = looks();
  const std::uint64_t ran = runs;
  std::atomic<bool> got{false};
  std::thread waits([&] {
    memory.deallocate(memory.template allocate<word>(20 * in_block));  // in the place of the first
    got = true;
  });
  CHECK(comes([&] { return runs > ran + 50; }));
  // Each look at the device asks for the launch in flight once or twice. A thread that polls asks hundreds of times
  // between two runs of the pump.
  CHECK_FALSE(got);
  const std::uint64_t by_then = looks() - looked;
  CHECK(by_then <= 2 * (runs - ran) + 20);
  fake_cuda::resume(q);
  waits.join();
  CHECK(got);
  s.synchronize();
}

TEST_CASE("threads that wait when the device breaks go on") {
  const watchdog ends("waits for launches that never end");
  machine<deepum::cuda::paged_memory> m;
  auto& memory = *m.arena;
  deepum::stream s(memory);
  word* const x = memory.allocate<word>(in_block);
  word* const y = memory.allocate<word>(20 * in_block);
  s.launch("set", 1, 1, 0, set, deepum::overwrites(x, in_block), std::uint64_t{in_block}, word{1});
  s.synchronize();
  fake_cuda::hold(s.native().native());
  s.launch("set", 1, 1, 0, set, deepum::updates(x, in_block), std::uint64_t{in_block}, word{2});
  memory.deallocate(y);
  std::atomic<int> begun{0};
  std::string said;
  std::thread host([&] {
    ++begun;
    said = failure(status::device_failure, [&] { (void)memory.host_write(x, in_block); });
  });
  std::thread allocates([&] {
    ++begun;
    memory.deallocate(memory.allocate<word>(20 * in_block));
  });
  CHECK(comes([&] { return begun == 2; }));
  fake_cuda::break_device(cudaErrorIllegalAddress);
  host.join();
  allocates.join();
  CHECK(mentions(said, "cudaStreamQuery"));
}

}  // namespace cuda_waits_test
