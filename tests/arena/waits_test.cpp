// Every wait of the library has an end: what can go on does, what cannot ends with an error that says why, and a wait
// for the program itself says so in the log, less and less often. All public calls, against a broken device, a full
// host and a full arena: the bounds are of virtual time, and a watchdog ends what hangs.

#include "support/failure.hpp"
#include "support/watchdog.hpp"
#include <deepum/deepum.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

namespace waits_test {

using namespace deepum;
using namespace deepum::literals;
using namespace std::chrono_literals;
using deepum::access;  // not the one of POSIX
using deepum_test::failure;
using deepum_test::mentions;
using deepum_test::watchdog;
using word = std::uint32_t;

constexpr std::size_t in_block = (2_MiB).count / sizeof(word);

const sim::kernel set{[](word* a, std::size_t n, word v) { std::fill_n(a, n, v); },
                      [](sim::work& w, word* a, std::size_t n, word) { w.overwrites(a, n * sizeof(word)).flops(1e8); }};
/// Reads beyond the end of everything.
const sim::kernel broken{[](const word*) {}, [](sim::work& w, const word* p) { w.reads(p, std::size_t{1} << 40); }};

template <class Memory>
struct machine {
  explicit machine(bytes budget, std::string policy = "auto", bytes host_limit = {}, bytes capacity = 64_MiB)
      : gpu(sim::find_profile("h200_pcie5"), {.memory = 64_MiB, .host_limit = host_limit}),
        memory(gpu, {.capacity = capacity,
                     .device_budget = budget,
                     .policy = std::move(policy),
                     .log = [this](std::string_view line) {
                       ++lines;
                       log += std::string(line) + "\n";
                     }}) {}

  sim::device gpu;
  std::size_t lines = 0;
  std::string log;
  arena<Memory> memory;
};

#define BOTH_KINDS sim::managed_memory, sim::paged_memory

struct outcome {
  std::string what;
  nanoseconds took{};
  std::optional<status> failed{};
  std::string said{};
};

/// Makes every public call once, on memory that exists. @returns  What became of each.
template <class Memory>
std::vector<outcome> call_everything(machine<Memory>& m, stream<Memory>& s, word* x, word* y) {
  auto& memory = m.memory;
  std::vector<outcome> all;
  const auto attempt = [&](std::string what, const std::function<void()>& call) {
    const nanoseconds before = m.gpu.now();
    outcome o{std::move(what)};
    try {
      call();
    } catch (const error& e) {
      o.failed = e.code();
      o.said = e.what();
    }
    o.took = m.gpu.now() - before;
    all.push_back(std::move(o));
  };
  constexpr std::size_t n = 2 * in_block;
  const bytes size{n * sizeof(word)};
  std::vector<word> host(n);
  typename stream<Memory>::event_type event;
  const char* const tables = "waits_test_tables";

  attempt("launch", [&] { s.launch("set", 1, 1, 0, set, overwrites(x, n), n, word{1}); });
  attempt("call", [&] { s.call("set", {updates(y, n)}, [&](auto& q) { q.launch(1, 1, 0, set, y, n, word{2}); }); });
  attempt("call with anything", [&] { s.call("any", {}, [&](auto& q) { q.launch(1, 1, 0, set, y, n, word{2}); }); });
  attempt("memcpy to the device", [&] { s.memcpy(x, host.data(), size); });
  attempt("memcpy on the device", [&] { s.memcpy(y, x, size); });
  attempt("memcpy to the host", [&] { s.memcpy(host.data(), y, size); });
  attempt("memset", [&] { s.memset(x, 1, size); });
  attempt("record", [&] { s.record(event); });
  attempt("wait", [&] { s.wait(event); });
  attempt("event", [&] { event.synchronize(); });
  attempt("synchronize", [&] { s.synchronize(); });
  attempt("stream", [&] { (void)stream(memory); });
  attempt("prefetch to the device", [&] { memory.prefetch(x, size, location::device()); });
  attempt("prefetch to the host", [&] { memory.prefetch(x, size, location::host()); });
  attempt("advise", [&] { memory.advise(x, size, advice::set_read_mostly); });
  attempt("hold", [&] {
    const auto kept = memory.hold({updates(x, n), reads(y, n)});
    s.launch("set", 1, 1, 0, set, x, n, word{3});
  });
  attempt("host_read", [&] { CHECK(memory.host_read(x, n).size() == n); });
  attempt("host_write", [&] { memory.host_write(y, n)[0] = 4; });
  attempt("host_overwrite", [&] { memory.host_overwrite(y, n)[0] = 4; });
  if constexpr (!paged_memory_kind<Memory>) {
    attempt("host_access", [&] { memory.host_access(x, size, access::update); });
  }
  attempt("split", [&] { memory.split(x, std::vector<bytes>{2_MiB, 2_MiB}); });
  attempt("allocate", [&] { memory.deallocate(memory.template allocate<word>(in_block)); });
  attempt("make_array", [&] { (void)memory.template make_array<word>(in_block); });
  attempt("discard", [&] { memory.discard(x, size); });
  attempt("mark_inactive", [&] { memory.mark_inactive(x, size); });
  attempt("mark_active", [&] { memory.mark_active(x, size); });
  attempt("set_budget", [&] { memory.set_budget(memory.budget()); });
  attempt("statistics", [&] { CHECK(memory.statistics().launches > 0); });
  attempt("footprint", [&] { CHECK(memory.footprint().allocated.count > 0); });
  attempt("save_tables", [&] { memory.save_tables(tables); });
  std::remove(tables);
  attempt("deallocate", [&] { memory.deallocate(x); });
  attempt("deallocate another", [&] { memory.deallocate(y); });
  attempt("synchronize again", [&] { s.synchronize(); });
  return all;
}
const outcome& of(const std::vector<outcome>& all, const std::string& what) {
  return *std::ranges::find(all, what, &outcome::what);
}
void check_bounds(const std::vector<outcome>& all) {
  for (const outcome& o : all) {
    CAPTURE(o.what);
    CAPTURE(o.said);
    CHECK(o.took < 15s);
    CHECK((!o.failed || !o.said.empty()));
  }
}

TEST_CASE_TEMPLATE("on a broken device every call ends", Memory, BOTH_KINDS) {
  for (const char* policy : {"auto", "um", "lru", "deepum"}) {
    CAPTURE(policy);
    const watchdog ends("all calls on a broken device");
    machine<Memory> m(16_MiB, policy);
    stream s(m.memory);
    word* const x = m.memory.template allocate<word>(2 * in_block);
    word* const y = m.memory.template allocate<word>(2 * in_block);
    word* const others = m.memory.template allocate<word>(7 * in_block);
    s.launch("set", 1, 1, 0, set, x, 2 * in_block, word{1});
    s.launch("set", 1, 1, 0, set, y, 2 * in_block, word{1});
    s.launch("set", 1, 1, 0, set, others, 7 * in_block, word{1});  // x and y have left, but for a block
    s.synchronize();
    s.call("broken", {reads(others, 1)}, [&](auto& q) { q.launch(1, 1, 0, broken, static_cast<const word*>(others)); });
    const std::vector<outcome> all = call_everything(m, s, x, y);
    check_bounds(all);
    CHECK(of(all, "synchronize").failed);
    CHECK(mentions(of(all, "synchronize").said, "'kernel'"));
    CHECK(m.lines < 20);
    (void)m.memory.statistics();
  }
}

TEST_CASE("host access that has to wait on a broken device ends with what broke it") {
  const watchdog ends("host access on a broken device");
  machine<sim::paged_memory> m(16_MiB);
  stream s(m.memory);
  word* const x = m.memory.allocate<word>(in_block);
  s.launch("set", 1, 1, 0, set, x, in_block, word{1});
  s.call("broken", {reads(x, 1)}, [&](auto& q) { q.launch(1, 1, 0, broken, static_cast<const word*>(x)); });
  CHECK_THROWS_AS(s.synchronize(), error);
  for (const access mode : {access::read, access::update, access::overwrite}) {
    const std::string said = failure(status::invalid_argument, [&] { host_view<word>(m.memory, x, in_block, mode); });
    CHECK(mentions(said, "'kernel'"));
  }
  CHECK(m.lines < 5);
}

TEST_CASE("with no host memory left every call ends, and nothing is lost") {
  for (const char* policy : {"auto", "um", "lru", "deepum"}) {
    CAPTURE(policy);
    const watchdog ends("all calls with a full host");
    machine<sim::paged_memory> m(16_MiB, policy, 4_MiB);
    stream s(m.memory);
    word* const kept = m.memory.allocate<word>(2 * in_block);
    word* const x = m.memory.allocate<word>(2 * in_block);
    word* const y = m.memory.allocate<word>(2 * in_block);
    word* const others = m.memory.allocate<word>(2 * in_block);
    word* const more = m.memory.allocate<word>(2 * in_block);
    word* const too_much = m.memory.allocate<word>(2 * in_block);
    for (word* const p : {kept, x, y, others}) {
      s.launch("set", 1, 1, 0, set, p, 2 * in_block, word{7});
    }
    s.synchronize();
    const auto view = m.memory.host_read(kept, 2 * in_block);  // all that the host has
    CHECK(view[0] == 7);
    s.launch("set", 1, 1, 0, set, more, 2 * in_block, word{7});  // the device needs `kept` no more
    const std::string refused =
        failure(status::out_of_host_memory, [&] { s.launch("set", 1, 1, 0, set, too_much, 2 * in_block, word{7}); });
    CHECK(mentions(refused, "host_limit"));
    const std::string unread = failure(status::out_of_host_memory, [&] { (void)m.memory.host_read(x, 2 * in_block); });
    CHECK(mentions(unread, "host_limit"));
    const std::string unwritten = failure(status::out_of_host_memory, [&] { (void)m.memory.host_write(x, 1); });
    CHECK(mentions(unwritten, "host_limit"));
    check_bounds(call_everything(m, s, x, y));
    CHECK(m.lines < 20);
    CHECK(std::ranges::count(view, word{7}) == 2 * in_block);
  }
}

TEST_CASE("a host access that gets no memory leaves all as it was") {
  const watchdog ends("host access with a full host");
  machine<sim::paged_memory> m(16_MiB, "um", 2_MiB);
  stream s(m.memory);
  word* const x = m.memory.allocate<word>(2 * in_block);
  s.launch("set", 1, 1, 0, set, x, 2 * in_block, word{7});
  s.synchronize();
  for (const access mode : {access::read, access::update}) {
    failure(status::out_of_host_memory, [&] { host_view<word>(m.memory, x, 2 * in_block, mode); });
  }
  s.launch("set", 1, 1, 0, set, x, std::size_t{1}, word{8});
  s.synchronize();
  CHECK(m.memory.host_read(x, 1)[0] == 8);
  CHECK(m.memory.host_read(x + in_block, in_block)[in_block - 1] == 7);
}

TEST_CASE_TEMPLATE("in a full arena every call ends", Memory, BOTH_KINDS) {
  const watchdog ends("all calls in a full arena");
  machine<Memory> m(16_MiB, "auto", {}, 16_MiB);
  stream s(m.memory);
  word* const x = m.memory.template allocate<word>(2 * in_block);
  word* const y = m.memory.template allocate<word>(2 * in_block);
  word* const rest = m.memory.template allocate<word>(4 * in_block);
  s.launch("set", 1, 1, 0, set, rest, 4 * in_block, word{1});
  const std::vector<outcome> all = call_everything(m, s, x, y);
  check_bounds(all);
  CHECK(of(all, "allocate").failed == status::out_of_arena_space);
  CHECK(of(all, "make_array").failed == status::out_of_arena_space);
  CHECK_FALSE(of(all, "launch").failed);
  CHECK_FALSE(of(all, "host_read").failed);
}

TEST_CASE("a wait for the program itself is logged at growing intervals, and ends when the program lets it") {
  const watchdog ends("a wait for a hold");
  machine<sim::paged_memory> m(16_MiB);
  stream s(m.memory);
  word* const x = m.memory.allocate<word>(6 * in_block);
  word* const y = m.memory.allocate<word>(6 * in_block);
  std::optional<residency<sim::paged_memory>> kept;
  const std::vector<operand> operands{updates(x, 6 * in_block)};
  kept.emplace(m.memory, std::span<const operand>(operands));
  std::atomic<bool> done{false};
  std::thread other([&] {
    stream t(m.memory);
    t.launch("set", 1, 1, 0, set, y, 6 * in_block, word{1});
    done = true;
  });
  // The other thread waits, in virtual time; this one launches on what it holds meanwhile.
  const nanoseconds begin = m.gpu.now();
  while (m.gpu.now() - begin < 20s) {
    m.gpu.host_work(100ms);
    s.launch("set", 1, 1, 0, set, x, in_block, word{2});
  }
  s.synchronize();
  CHECK_FALSE(done);
  kept.reset();
  other.join();
  CHECK(done);
  CHECK(mentions(m.log, "arena::hold"));
  CHECK(m.lines >= 2);
  CHECK(m.lines <= 8);
}

TEST_CASE("what is held may be read by the host, which does not wait for the hold") {
  const watchdog ends("a view of what is held");
  machine<sim::paged_memory> m(16_MiB);
  stream s(m.memory);
  word* const x = m.memory.allocate<word>(2 * in_block);
  word* const y = m.memory.allocate<word>(2 * in_block);
  const auto kept = m.memory.hold({updates(x), updates(y)});
  for (word i = 1; i < 4; ++i) {
    s.launch("set", 1, 1, 0, set, x, 2 * in_block, i);
    s.synchronize();
    CHECK(m.memory.host_read(x, 2 * in_block)[5] == i);
    m.memory.prefetch(y, 4_MiB, location::host());  // a hint, which has no effect and stops nothing
  }
}

TEST_CASE("a launch inside a call that leaves it no room is refused") {
  const watchdog ends("a launch inside a call");
  machine<sim::paged_memory> m(16_MiB);
  stream s(m.memory);
  stream t(m.memory);
  word* const x = m.memory.allocate<word>(6 * in_block);
  word* const y = m.memory.allocate<word>(6 * in_block);
  s.call("outer", {updates(x)}, [&](auto& q) {
    q.launch(1, 1, 0, set, x, in_block, word{1});
    const std::string said =
        failure(status::out_of_device_memory, [&] { t.launch("inner", 1, 1, 0, set, y, 6 * in_block, word{1}); });
    CHECK(mentions(said, "'inner'"));
    CHECK(mentions(said, "stream::call"));
  });
  t.launch("inner", 1, 1, 0, set, y, 6 * in_block, word{1});
  t.synchronize();
  CHECK(m.memory.host_read(y, 1)[0] == 1);
}

TEST_CASE("failures that go on are logged less and less often") {
  machine<sim::paged_memory> m(16_MiB, "um");
  stream s(m.memory);
  word* const x = m.memory.allocate<word>(2 * in_block);
  m.gpu.set_foreign_memory(64_MiB);
  for (int i = 0; i < 200; ++i) {
    CHECK_THROWS_AS(s.launch("set", 1, 1, 0, set, x, 2 * in_block, word{1}), error);
  }
  CHECK(mentions(m.log, "commands failed in a row"));
  CHECK(m.lines < 20);
}

}  // namespace waits_test
