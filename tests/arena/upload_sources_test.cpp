// Uploads on the simulated GPU, in virtual time, on both kinds of memory: one test for each way in which the bytes that
// uploads bring can go wrong (docs/adr/0021).

#include "arena/upload_program.hpp"

#include <doctest/doctest.h>

namespace upload_sources_test {

using namespace upload_program_of_tests;

TEST_CASE_TEMPLATE("bytes beside an upload keep what they hold", Memory, sim::paged_memory, sim::managed_memory) {
  program<Memory> p;
  word* const before = p.memory.template allocate<word>(1000);
  auto* const small = p.memory.template allocate<std::uint8_t>(3);
  word* const after = p.memory.template allocate<word>(1000);
  word* const large = p.memory.template allocate<word>(5 * block_words);
  p.s.launch("fill", 1, 1, 0, fill, overwrites(before, 1000), std::size_t{1000}, word{10});
  p.s.launch("fill", 1, 1, 0, fill, overwrites(after, 1000), std::size_t{1000}, word{20});
  p.s.launch("fill", 1, 1, 0, fill, overwrites(large, 5 * block_words), 5 * block_words, word{30});
  const std::uint8_t three[] = {1, 2, 3};
  p.s.upload(small, three, 3);
  const std::vector<word> source = numbers(3 * block_words, 500);
  const std::size_t skip = block_words / 2 + 3;  // neither its beginning nor its end lies between blocks
  p.s.upload(large + skip, source.data(), source.size());
  p.expect(before, 1000, 10);
  p.expect(after, 1000, 20);
  p.expect(large, skip, 30);
  p.expect(large + skip, source.size(), 500);
  const std::size_t end = skip + source.size();
  p.expect(large + end, 5 * block_words - end, static_cast<word>(30 + end));
  p.s.synchronize();
  CHECK(p.wrong_elements() == 0);
  const auto found = p.memory.host_read(small, 3);
  CHECK(std::equal(found.begin(), found.end(), three));
  CHECK(p.memory.statistics().uploaded == 2);
}

TEST_CASE_TEMPLATE("the last block of an allocation that has it alone is written as a whole", Memory, sim::paged_memory,
                   sim::managed_memory) {
  program<Memory> p;
  constexpr std::size_t n = block_words + block_words / 2 + 7;
  word* const x = p.memory.template allocate<word>(n);
  const std::vector<word> source = numbers(n, 3);
  p.s.upload(x, source.data(), n);
  p.expect(x, n, 3);
  p.s.synchronize();
  CHECK(p.wrong_elements() == 0);
  CHECK(p.memory.statistics().uploaded == 2);
}

TEST_CASE_TEMPLATE("an upload from a file reads it where the bytes are to be", Memory, sim::paged_memory,
                   sim::managed_memory) {
  program<Memory> p;
  constexpr std::size_t n = 6 * block_words;
  const temporary_file source(numbers(n + 100, 0));
  word* const x = p.memory.template allocate<word>(n);
  (void)p.s.upload(x, source.at(100 * sizeof(word)), n);
  p.expect(x, n, 100);
  (void)p.s.upload(x + 5, source.at(0), n - 9);  // ends within blocks
  p.expect(x + 5, n - 9, 0);
  p.s.synchronize();
  CHECK(p.wrong_elements() == 0);
}

TEST_CASE_TEMPLATE("what a file does not hold fails the launches that need it, and nothing else", Memory,
                   sim::paged_memory, sim::managed_memory) {
  program<Memory> p;
  constexpr std::size_t n = 6 * block_words;
  const temporary_file source(numbers(4 * block_words + 1, 0));
  word* const x = p.memory.template allocate<word>(n);
  const upload coming = p.s.upload(x, source.at(0), n);
  p.expect(x, 4 * block_words, 0);
  const std::string said = failure(status::io_failure, [&] { p.expect(x, n, 0); });
  CHECK(mentions(said, "launch 'check' needs what an upload could not bring"));
  CHECK(mentions(said, "ends at byte"));
  CHECK(coming.failed());
  CHECK(coming.written().reached());
  CHECK(mentions(failure(status::io_failure, [&] { (void)p.memory.host_read(x, n); }), "the host needs"));
  p.expect(x, 4 * block_words, 0);
  p.s.launch("fill", 1, 1, 0, fill, overwrites(x, n), n, word{9});
  p.expect(x, n, 9);
  p.s.synchronize();
  CHECK(p.wrong_elements() == 0);
  // Another upload brings it as well, and so does new memory in its place.
  (void)p.s.upload(x, source.at(0), n);
  const std::vector<word> whole = numbers(n, 4);
  p.s.upload(x, whole.data(), n);
  p.expect(x, n, 4);
  p.s.synchronize();
  (void)p.s.upload(x, source.at(0), n);
  p.s.synchronize();
  p.memory.deallocate(x);
  word* const y = p.memory.template allocate<word>(n);
  p.s.launch("fill", 1, 1, 0, fill, y, n, word{9});  // an update
  p.expect(y, n, 9);
  p.s.synchronize();
  CHECK(p.wrong_elements() == 0);
}

TEST_CASE_TEMPLATE("the host sees what was uploaded, and does not upload where it is writing", Memory,
                   sim::paged_memory, sim::managed_memory) {
  program<Memory> p;
  constexpr std::size_t n = 8 * block_words;
  word* const x = p.memory.template allocate<word>(n);
  const std::vector<word> source = numbers(n, 1);
  (void)p.s.upload(x, borrowed(source.data()), n);
  CHECK(wrong(p.memory.host_read(x, n).data(), n, 1) == 0);
  (void)p.s.upload(x, borrowed(source.data()), n);
  p.memory.host_write(x, n)[3] = 77;
  CHECK(p.memory.host_read(x, n)[3] == 77);
  CHECK(p.memory.host_read(x, n)[4] == 5);
  if constexpr (arena<Memory>::host_uses_other_addresses) {
    const auto view = p.memory.host_write(x, 1);
    CHECK(mentions(failure(status::invalid_argument, [&] { p.s.upload(x, source.data(), n); }), "end the view first"));
  }
  p.s.upload(x, source.data(), n);
  p.expect(x, n, 1);
  p.s.synchronize();
  CHECK(p.wrong_elements() == 0);
}

TEST_CASE_TEMPLATE("nothing of what an upload or the host overwrites is copied out first", Memory, sim::paged_memory,
                   sim::managed_memory) {
  program<Memory> p;
  constexpr std::size_t n = 8 * block_words;
  word* const x = p.memory.template allocate<word>(n);
  p.s.launch("fill", 1, 1, 0, fill, overwrites(x, n), n, word{1});
  p.s.synchronize();
  std::uint64_t before = p.memory.statistics().out().all_bytes();
  p.s.upload(x, numbers(n, 5).data(), n);
  p.expect(x, n, 5);
  p.s.synchronize();
  CHECK(p.wrong_elements() == 0);
  CHECK(p.memory.statistics().out().all_bytes() <= before + (2_MiB).count);  // that of the number of wrong elements
  before = p.memory.statistics().out().all_bytes();
  {
    const auto view = p.memory.host_overwrite(x, n);
    std::iota(view.begin(), view.end(), word{6});
  }
  CHECK(p.memory.statistics().out().all_bytes() == before);
  p.expect(x, n, 6);
  p.expect(x + 1, n - 1, 7);
  p.s.synchronize();  // views wait for no launch
  {
    const auto view = p.memory.host_overwrite(x + 100, n - 200);  // whose ends are parts of blocks
    std::iota(view.begin(), view.end(), word{9});
  }
  p.expect(x, 100, 6);
  p.expect(x + 100, n - 200, 9);
  p.expect(x + n - 100, 100, static_cast<word>(6 + n - 100));
  p.s.synchronize();
  CHECK(p.wrong_elements() == 0);
}

TEST_CASE_TEMPLATE("what the program writes in place is given away from the front", Memory, sim::paged_memory,
                   sim::managed_memory) {
  program<Memory> p;
  constexpr std::size_t n = 6 * block_words + 1000;
  word* const x = p.memory.template allocate<word>(n + block_words);
  p.s.launch("fill", 1, 1, 0, fill, overwrites(x, n + block_words), n + block_words, word{3});
  for (const std::size_t skip : {std::size_t{0}, std::size_t{500}}) {
    CAPTURE(skip);
    word* const to = x + skip;
    {
      auto y = p.memory.stream_in(to, n);
      REQUIRE(y.size() == n);
      std::iota(y.begin(), y.begin() + 3 * block_words, word{40});
      y.commit(block_words);
      y.commit(3 * block_words);
      const std::size_t first = skip == 0 ? 0 : block_words - skip;  // of a block that is committed
      p.expect(to + first, block_words, static_cast<word>(40 + first));
      CHECK(p.memory.statistics().uploaded >= 1);
      std::iota(y.begin() + 3 * block_words, y.end(), static_cast<word>(40 + 3 * block_words));
      y.commit(n);
    }
    p.expect(to, n, 40);
    p.expect(to + n, 100, static_cast<word>(3 + skip + n));
    p.s.synchronize();
  }
  CHECK(p.wrong_elements() == 0);
  {
    auto y = p.memory.stream_in(x, 2 * block_words);
    std::iota(y.begin(), y.end(), word{1});
    y.commit(block_words);
  }
  p.expect(x, block_words, 1);
  CHECK(mentions(failure(status::io_failure, [&] { p.expect(x, 2 * block_words, 1); }), "before it was committed"));
  p.s.launch("fill", 1, 1, 0, fill, overwrites(x, 2 * block_words), 2 * block_words, word{8});
  p.expect(x, 2 * block_words, 8);
  p.s.synchronize();
  CHECK(p.wrong_elements() == 0);
}

TEST_CASE_TEMPLATE("a copy from pageable memory goes the same way, and keeps its meaning", Memory, sim::paged_memory,
                   sim::managed_memory) {
  program<Memory> p;
  constexpr std::size_t n = words_of(8_MiB);
  word* const x = p.memory.template allocate<word>(n);
  for (word round = 0; round < 3; ++round) {
    std::vector<word> source = numbers(n, round);
    p.s.memcpy(x, source.data(), bytes{n * sizeof(word)});
    std::fill(source.begin(), source.end(), word{0});
    p.expect(x, n, round);
  }
  p.s.synchronize();
  CHECK(p.wrong_elements() == 0);
  CHECK(p.memory.statistics().uploads == 3);
  const std::vector<word> source = numbers(n, 9);
  (void)p.s.memcpy_and_wait(x, source.data(), bytes{n * sizeof(word)});
  CHECK(wrong(p.memory.host_read(x, n).data(), n, 9) == 0);
}

TEST_CASE("where the host has little memory, uploads get it when others give theirs up") {
  program<sim::paged_memory> p(24_MiB, "auto", 0, {}, 10_MiB);
  constexpr std::size_t n = words_of(4_MiB);
  std::vector<word*> all;
  for (word i = 0; i < 6; ++i) {
    all.push_back(p.memory.allocate<word>(n));
    p.s.upload(all.back(), numbers(n, i).data(), n);
  }
  for (word i = 0; i < 5; ++i) {
    p.expect(all[i], n, i);
  }
  p.s.synchronize();
  CHECK(p.wrong_elements() == 0);
}

}  // namespace upload_sources_test
