// Checked mode on the simulated GPU: each kind of wrong declaration is found, with the launch and the operand, and
// right programs run as they do without.

#include "support/bulk.hpp"
#include "support/failure.hpp"
#include <deepum/deepum.hpp>

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace checked_test {

using namespace deepum;
using namespace deepum::literals;
namespace bulk = deepum_test::bulk;
using deepum_test::failure;
using deepum_test::mentions;
using word = std::uint32_t;

constexpr std::size_t words_of(bytes n) { return n.count / sizeof(word); }

const sim::kernel set{[](word* a, std::size_t n, word v) { bulk::fill(a, n, v); },
                      [](sim::work& w, word* a, std::size_t n, word) { w.overwrites(a, n * sizeof(word)).flops(1e6); }};
const sim::kernel add{[](word* a, const word* b, std::size_t n) { bulk::add(a, b, n); },
                      [](sim::work& w, word* a, const word* b, std::size_t n) {
                        w.reads(b, n * sizeof(word)).updates(a, n * sizeof(word));
                      }};
const sim::kernel copy{[](word* a, const word* b, std::size_t n) { std::copy_n(b, n, a); },
                       [](sim::work& w, word* a, const word* b, std::size_t n) {
                         w.reads(b, n * sizeof(word)).overwrites(a, n * sizeof(word));
                       }};

template <class Memory>
struct machine {
  explicit machine(bool checked = true)
      : gpu(sim::find_profile("h200_pcie5"), {.memory = 64_MiB}),
        memory(gpu, {.capacity = 128_MiB,
                     .device_budget = 32_MiB,
                     .checked = checked,
                     .log = [this](std::string_view line) { log += line; }}),
        s(std::make_unique<stream<Memory>>(memory)) {}
  /// Memory that holds `v`.
  word* filled(std::size_t n, word v) {
    word* const p = memory.template allocate<word>(n);
    s->launch("set", 1, 1, 0, set, overwrites(p, n), n, v);
    return p;
  }
  std::vector<word> contents(const word* p, std::size_t n) {
    const auto view = memory.host_read(p, n);
    return {view.begin(), view.end()};
  }

  std::string log;
  sim::device gpu;
  arena<Memory> memory;
  std::unique_ptr<stream<Memory>> s;
};
using managed = sim::managed_memory;
using paged = sim::paged_memory;

TEST_CASE_TEMPLATE("a write to what is declared as read is found", Memory, managed, paged) {
  machine<Memory> m;
  const std::size_t n = words_of(3_MiB);
  word* const a = m.filled(n, 1);
  word* const b = m.filled(n, 2);
  const std::string said = failure(status::wrong_declaration, [&] {
    m.s->call("scale", {updates(a, n), reads(b, n)},
              [&](sim::stream& q) { q.launch(1, 1, 0, set, b + words_of(1_MiB), std::size_t{1}, word{3}); });
  });
  CHECK(mentions(said, "'scale'"));
  CHECK(mentions(said, "operand 2, which it declares as reads of 3145728 bytes"));
  CHECK(mentions(said, "from 1048576 to 1114112"));
  // The same bytes may be named for writing, too.
  m.s->call("both", {reads(b, n), updates(b, n)}, [&](sim::stream& q) { q.launch(1, 1, 0, set, b, n, word{4}); });
  CHECK(m.contents(b, n) == std::vector<word>(n, 4));
}

TEST_CASE("a write beside the operands is found where it would be lost: in a block that is only read") {
  machine<paged> m;
  word* const a = m.filled(100, 1);
  word* const neighbour = m.filled(100, 2);
  const auto write = [&](sim::stream& q) { q.launch(1, 1, 0, set, neighbour, std::size_t{1}, word{3}); };
  const std::string said = failure(status::wrong_declaration, [&] { m.s->call("strays", {reads(a, 100)}, write); });
  CHECK(mentions(said, "'strays'"));
  CHECK(mentions(said, "beside its operands"));
  m.s->call("writes the block", {updates(a, 100)}, write);  // all of it leaves the device with what was written
}

TEST_CASE_TEMPLATE("an overwrite that leaves something out is found, be it the last element", Memory, managed, paged) {
  const std::size_t n = words_of(3_MiB);
  for (const bool fresh : {false, true}) {
    machine<Memory> m;
    word* const a = fresh ? m.memory.template allocate<word>(n) : m.filled(n, 1);
    const std::string half = failure(status::wrong_declaration,
                                     [&] { m.s->launch("half", 1, 1, 0, set, overwrites(a, n), n / 2, word{2}); });
    CHECK(mentions(half, "'half'"));
    CHECK(mentions(half, "operand 1, which it declares as overwrites of 3145728 bytes"));
    CHECK(mentions(half, "from 1572864 to 3145728"));
    const std::string last = failure(
        status::wrong_declaration, [&] { m.s->launch("all but one", 1, 1, 0, set, overwrites(a, n), n - 1, word{2}); });
    CHECK(mentions(last, "from 3145724 to 3145728"));
    m.s->launch("all", 1, 1, 0, set, overwrites(a, n), n, word{3});
    CHECK(m.contents(a, n) == std::vector<word>(n, 3));
  }
}

TEST_CASE_TEMPLATE("memory that a launch uses for itself need not be written as a whole", Memory, managed, paged) {
  machine<Memory> m;
  word* const workspace = m.memory.template allocate<word>(1000);
  m.s->call("library", {uses_as_scratch(workspace, bytes{4000})},
            [&](sim::stream& q) { q.launch(1, 1, 0, set, workspace, std::size_t{10}, word{1}); });
}

TEST_CASE_TEMPLATE("an update of what was given up is found", Memory, managed, paged) {
  machine<Memory> m;
  const std::size_t n = words_of(4_MiB);
  word* const a = m.filled(n, 1);
  m.memory.mark_inactive(a, 4_MiB);
  const std::string said = failure(status::wrong_declaration, [&] { m.s->launch("set", 1, 1, 0, set, a, n, word{2}); });
  CHECK(mentions(said, "'set'"));
  CHECK(mentions(said, "overwrites(p, n)"));
  failure(status::invalid_argument, [&] { (void)m.memory.host_read(a, n); });
  m.s->launch("set", 1, 1, 0, set, overwrites(a, n), n, word{3});
  CHECK(m.contents(a, n) == std::vector<word>(n, 3));

  machine<Memory> unchecked(false);
  word* const b = unchecked.filled(n, 1);
  unchecked.memory.mark_inactive(b, 4_MiB);
  unchecked.s->launch("set", 1, 1, 0, set, b, n, word{2});
  CHECK(mentions(unchecked.log, "given up"));
}

TEST_CASE("a launch finds nothing but what it declares where memory never faults, and is named") {
  machine<paged> m;
  const std::size_t n = words_of(2_MiB);
  word* const a = m.filled(n, 1);
  word* const b = m.filled(n, 2);
  m.s->call("knows nothing", {}, [&](sim::stream& q) { q.launch(1, 1, 0, add, a, b, n); });  // then all is there
  const std::string said = failure(status::device_failure, [&] {
    m.s->call("hides one", {updates(a, n)}, [&](sim::stream& q) { q.launch(1, 1, 0, add, a, b, n); });
  });
  CHECK(mentions(said, "'hides one' failed when it ran alone, with access to what it declares and nothing else"));
  CHECK(mentions(failure(status::device_failure, [&] { m.s->synchronize(); }), "'hides one'"));
  CHECK(mentions(failure(status::device_failure, [&] { (void)m.filled(n, 1); }), "'hides one'"));
}

TEST_CASE_TEMPLATE("what was freed or given up, and is new, reads as no number", Memory, managed, paged) {
  machine<Memory> m;
  const std::size_t n = words_of(3_MiB);
  const auto all_nan = [&](const word* p) {
    const auto floats = m.memory.host_read(reinterpret_cast<const float*>(p), n);
    const bool so = std::all_of(floats.begin(), floats.end(), [](float x) { return std::isnan(x); });
    const auto doubles = m.memory.host_read(reinterpret_cast<const double*>(p), n / 2);
    return so && std::all_of(doubles.begin(), doubles.end(), [](double x) { return std::isnan(x); });
  };
  word* const fresh = m.memory.template allocate<word>(n);
  CHECK(all_nan(fresh));
  word* const a = m.filled(n, 1);
  m.memory.mark_inactive(a, bytes{n * sizeof(word)});
  m.memory.mark_active(a, bytes{n * sizeof(word)});
  CHECK(all_nan(a));
  {
    const auto view = m.memory.host_overwrite(a, n);
    view[0] = 1;  // and no other
  }
  CHECK(m.contents(a, 1)[0] == 1);
  const auto rest = m.memory.host_read(reinterpret_cast<const float*>(a) + 1, n - 1);
  CHECK(std::all_of(rest.begin(), rest.end(), [](float x) { return std::isnan(x); }));
}

TEST_CASE("what was freed reads as no number at its old address, where memory faults") {
  machine<managed> m;
  const std::size_t n = words_of(3_MiB);
  word* const a = m.filled(n, 1);
  m.memory.deallocate(a);
  CHECK(std::isnan(*reinterpret_cast<const float*>(a + 7)));
}

/// What the host says when it ends in a child, and by which signal.
template <class Crime>
std::string last_words(Crime&& crime, int& signal) {
  std::array<int, 2> pipe{};
  REQUIRE(::pipe(pipe.data()) == 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::dup2(pipe[1], STDERR_FILENO);
    std::signal(SIGSEGV, SIG_DFL);  // not doctest's
    crime();
    ::_exit(0);
  }
  ::close(pipe[1]);
  std::string said;
  std::array<char, 4096> buffer{};
  for (ssize_t n = 0; (n = ::read(pipe[0], buffer.data(), buffer.size())) > 0;) {
    said.append(buffer.data(), static_cast<std::size_t>(n));
  }
  ::close(pipe[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  signal = WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status);
  return said;
}

#ifndef __SANITIZE_THREAD__  // whose children have one thread and many locks
TEST_CASE("a host that uses the device's addresses without a view is told so where memory never faults") {
  int signal = 0;
  const std::string said = last_words(
      [] {
        machine<paged> m;
        word* const a = m.filled(words_of(2_MiB), 5);
        if (m.contents(a, 1)[0] == 5) {
          *static_cast<volatile word*>(a) = 1;
        }
      },
      signal);
  CHECK(signal != 0);
  CHECK(mentions(said, "deepum: the host used the address 0x"));
  CHECK(mentions(said, "host_read"));
  const std::string other = last_words(
      [] {
        const machine<paged> m;
        *reinterpret_cast<volatile word*>(16) = 1;  // NOLINT
      },
      signal);
  CHECK(signal != 0);
  CHECK_FALSE(mentions(other, "deepum"));
}
#endif

TEST_CASE_TEMPLATE("right programs run as they do without", Memory, managed, paged) {
  const std::size_t n = words_of(5_MiB) + 3;
  std::vector<std::vector<word>> results;
  for (const bool checked : {false, true}) {
    machine<Memory> m(checked);
    word* const a = m.filled(n, 1);
    word* const b = m.filled(n, 2);
    word* const fresh = m.memory.template allocate<word>(n);
    stream<Memory> other(m.memory);
    for (int i = 0; i < 5; ++i) {
      m.s->launch("add", 1, 1, 0, add, a, static_cast<const word*>(b), n);
      m.s->memcpy(fresh, a, bytes{n / 2 * sizeof(word)});
      m.s->synchronize();
      other.launch("copy", 1, 1, 0, copy, overwrites(b, n), static_cast<const word*>(a), n);
      other.call("library", {updates(b, n)}, [&](sim::stream& q) {
        q.launch(1, 1, 0, add, b, static_cast<const word*>(b), n);
        other.launch("inner", 1, 1, 0, add, b, static_cast<const word*>(a), n);
      });
      other.synchronize();
      m.memory.host_write(b, n)[static_cast<std::size_t>(i)] = 7;
      word* const temporary = m.filled(n, static_cast<word>(i));
      m.s->launch("add", 1, 1, 0, add, a, static_cast<const word*>(temporary), n);
      m.memory.deallocate(temporary);
    }
    word* const unwritten = m.memory.template allocate<word>(n);
    m.s->launch("copies what nobody wrote", 1, 1, 0, copy, overwrites(fresh, n), static_cast<const word*>(unwritten),
                n);
    m.s->synchronize();
    results.push_back(m.contents(a, n));
    results.back().push_back(m.contents(b, n)[n - 1]);
  }
  CHECK(results[0] == results[1]);
}

TEST_CASE_TEMPLATE("a launch has run when its call returns, and one that fails has changed nothing", Memory, managed,
                   paged) {
  machine<Memory> m;
  const std::size_t n = words_of(3_MiB);
  word* const a = m.filled(n, 1);
  CHECK(m.memory.engine().last_launch().valid());
  CHECK(m.s->native().idle());
  CHECK_THROWS_AS(
      m.s->call("thrown", {overwrites(a, n)}, [](sim::stream&) { throw std::runtime_error("before anything ran"); }),
      std::runtime_error);
  CHECK(m.contents(a, n) == std::vector<word>(n, 1));
}

}  // namespace checked_test
