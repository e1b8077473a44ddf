// Uploads whose source is guarded by page protection, on the fake GPU with real threads.

#include "cuda/upload_program.hpp"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <string>

namespace guarded_uploads_test {

using namespace uploads_on_fake_cuda;
using memory_kind = deepum::cuda::paged_memory;

constexpr std::uint64_t n = words_of(4_MiB);

/// Pages of their own.
struct mapping {
  explicit mapping(std::uint64_t words)
      : size(words * sizeof(word)),
        first(static_cast<word*>(::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0))) {
    REQUIRE(first != MAP_FAILED);
    std::iota(first, first + words, word{1});
  }
  ~mapping() { (void)::munmap(first, size); }
  mapping(const mapping&) = delete;
  mapping& operator=(const mapping&) = delete;
  std::size_t size;
  word* first;
};

/// A launch that reads `x` for long, so that an upload to it has to wait, and reads no source meanwhile: nothing is
/// staged.
struct slow_program : program<memory_kind> {
  slow_program() : program(64_MiB, "auto", 2_MiB, bytes{1}), x(arena->allocate<word>(n)) {
    s->launch("set", 1, 1, 0, set, deepum::overwrites(x, n), n, word{0});
    s->synchronize();
  }
  word* x;
};

TEST_CASE("a store to a guarded source waits until it has been read") {
  slow_program p;
  const mapping source(n + 1000);
  fake_cuda::set_delays(3, 2000us);
  for (int round = 0; round < 4; ++round) {
    std::iota(source.first, source.first + n, word{1});
    word* const from = source.first + 100;  // not the beginning of a page
    const deepum::upload coming = p.s->upload(p.x, deepum::guarded(from), n - 200);
    source.first[99] = 0;                      // beside it, in the same page
    std::fill_n(from, n - 200, word{0xdead});  // waits where it has to
    CHECK((deepum_test::sanitized || coming.source_read().reached()));
    p.expect(p.x, n - 200, 101);
  }
  p.s->synchronize();
  CHECK(p.wrong() == 0);
}

TEST_CASE("two uploads guard the same source, and the last one gives it back") {
  slow_program p;
  const mapping source(n);
  word* const y = p.arena->allocate<word>(n);
  (void)p.s->upload(p.x, deepum::guarded(source.first), n);
  (void)p.s->upload(y, deepum::guarded(source.first + n / 2), n / 2);
  (void)p.s->upload(p.x, deepum::guarded(source.first), n / 2);
  for (std::uint64_t i = 0; i < n; i += 512) {
    source.first[i] = 0;
  }
  p.expect(p.x, n, 1);
  p.expect(y, n / 2, static_cast<word>(1 + n / 2));
  p.s->synchronize();
  CHECK(p.wrong() == 0);
  std::fill_n(source.first, n, word{7});  // all of it may be written
}

TEST_CASE("a guarded source that is unmapped before it was read fails the launches that need it, and nothing else") {
  if (deepum_test::sanitized) {
    return;
  }
  slow_program p;
  p.expect_slowly(p.x, n);
  {
    const mapping source(n);
    (void)p.s->upload(p.x, deepum::guarded(source.first), n);
  }
  std::string said;
  try {
    p.expect(p.x, n, 1);  // it may have been read in time
  } catch (const deepum::error& e) {
    CHECK(e.code() == status::io_failure);
    said = e.what();
    CHECK(mentions(said, "cannot be read any more"));
  }
  p.s->launch("set", 1, 1, 0, set, deepum::overwrites(p.x, n), n, word{3});
  p.s->synchronize();
  CHECK(p.arena->host_read(p.x, n)[5] == 3);
}

TEST_CASE("a child of fork writes what its parent has guarded") {
  slow_program p;
  const mapping source(n);
  (void)p.s->upload(p.x, deepum::guarded(source.first), n);
  const pid_t child = ::fork();
  if (child == 0) {
    source.first[0] = 1;
    source.first[n - 1] = 1;
    ::_exit(0);
  }
  int how = 0;
  REQUIRE(::waitpid(child, &how, 0) == child);
  CHECK(WIFEXITED(how));
  p.expect(p.x, n, 1);
  p.s->synchronize();
  CHECK(p.wrong() == 0);
}

TEST_CASE("what is on the stack, or has no whole page, has been read when the call returns") {
  slow_program p;
  word on_stack[2048];
  std::iota(std::begin(on_stack), std::end(on_stack), word{4});
  word* const small = p.arena->allocate<word>(2048);
  const deepum::upload coming = p.s->upload(small, deepum::guarded(&on_stack[0]), 2048);
  CHECK(coming.source_read().reached());
  std::fill(std::begin(on_stack), std::end(on_stack), word{0});
  p.expect(small, 2048, 4);
  p.s->synchronize();
  CHECK(p.wrong() == 0);
}

std::atomic<int> faults_of_the_program{0};
void* page_of_the_program = nullptr;

TEST_CASE("faults that are none of a guard's go to the handler that was there before") {
  if (deepum_test::sanitized) {
    return;
  }
  const auto size = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  page_of_the_program = ::mmap(nullptr, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  REQUIRE(page_of_the_program != MAP_FAILED);
  struct sigaction before {};
  struct sigaction mine {};
  mine.sa_sigaction = [](int, siginfo_t*, void*) {
    ++faults_of_the_program;
    (void)::mprotect(page_of_the_program, 4096, PROT_READ | PROT_WRITE);
  };
  mine.sa_flags = SA_SIGINFO;
  REQUIRE(::sigaction(SIGSEGV, &mine, &before) == 0);
  {
    slow_program p;
    const mapping source(n);
    (void)p.s->upload(p.x, deepum::guarded(source.first), n);
    *static_cast<volatile int*>(page_of_the_program) = 1;
    CHECK(faults_of_the_program == 1);
    p.expect(p.x, n, 1);
    p.s->synchronize();
    CHECK(p.wrong() == 0);
  }
  REQUIRE(::sigaction(SIGSEGV, &before, nullptr) == 0);
  (void)::munmap(page_of_the_program, size);
}

TEST_CASE("a system call that writes to a guarded source fails, and does not wait") {
  if (deepum_test::sanitized) {
    return;
  }
  slow_program p;
  p.expect_slowly(p.x, n);
  const mapping source(n);
  const int zeroes = ::open("/dev/zero", O_RDONLY | O_CLOEXEC);
  REQUIRE(zeroes >= 0);
  const deepum::upload coming = p.s->upload(p.x, deepum::guarded(source.first), n);
  const ssize_t got = ::read(zeroes, source.first, 4096);
  CHECK((got == 4096 || errno == EFAULT));  // 4096: it had been read already
  coming.source_read().wait();
  CHECK(::read(zeroes, source.first, 4096) == 4096);
  (void)::close(zeroes);
  p.s->synchronize();
}

}  // namespace guarded_uploads_test
