// Uploads on the fake GPU, with real threads, on both kinds of memory.

#include "cuda/upload_program.hpp"

#include <doctest/doctest.h>

namespace uploads_on_cuda_test {

using namespace uploads_on_fake_cuda;

TEST_CASE_TEMPLATE("on CUDA an upload is never seen in part or stale, and its source may go at once", Memory,
                   deepum::cuda::paged_memory, deepum::cuda::managed_memory) {
  constexpr std::uint64_t n = words_of(8_MiB);
  for (const char* policy : few<const char*>({"auto", "um"}, 1)) {
    for (const bytes budget : {12_MiB, 64_MiB}) {
      CAPTURE(policy);
      CAPTURE(budget.count);
      program<Memory> p(budget, policy);
      fake_cuda::set_delays(11, 200us);
      word* const x = p.arena->template allocate<word>(n);
      for (word round = 0; round < 6; ++round) {
        auto* const source = static_cast<word*>(std::malloc(n * sizeof(word)));
        std::iota(source, source + n, round);
        p.s->upload(x, source, n);
        std::fill_n(source, n, word{0xdead});
        std::free(source);
        p.expect(x, n, round);
      }
      p.s->synchronize();
      CHECK(p.wrong() == 0);
      CHECK(p.arena->statistics().uploads == 6);
    }
  }
}

TEST_CASE_TEMPLATE("on CUDA a borrowed source is read while launches run, and in the order of uploads", Memory,
                   deepum::cuda::paged_memory, deepum::cuda::managed_memory) {
  constexpr std::uint64_t n = words_of(6_MiB);
  program<Memory> p(64_MiB);
  fake_cuda::set_delays(5, 200us);
  word* const x = p.arena->template allocate<word>(n);
  const std::vector<word> one = numbers(n, 1);
  const std::vector<word> two = numbers(n, 2);
  for (int i = 0; i < 3; ++i) {
    const deepum::upload first = p.s->upload(x, deepum::borrowed(one.data()), n);
    const deepum::upload second = p.s->upload(x, deepum::borrowed(two.data()), n);
    p.expect(x, n, 2);
    second.source_read().wait();
    CHECK(first.written().reached());
  }
  p.s->synchronize();
  CHECK(p.wrong() == 0);
}

TEST_CASE_TEMPLATE("on CUDA parts of blocks and files are uploaded", Memory, deepum::cuda::paged_memory,
                   deepum::cuda::managed_memory) {
  const std::uint64_t n = words_of(10_MiB) + 33;
  program<Memory> p(64_MiB, "auto", 4_MiB);
  word* const x = p.arena->template allocate<word>(n);
  std::FILE* const stream = std::tmpfile();
  REQUIRE(stream != nullptr);
  const std::vector<word> contents = numbers(n, 0);
  REQUIRE(std::fwrite(contents.data(), sizeof(word), n, stream) == n);
  std::fflush(stream);
  (void)p.s->upload(x, deepum::file{fileno(stream), 0}, n);
  p.expect(x, n, 0);
  const std::vector<word> part = numbers(words_of(5_MiB), 77);
  p.s->upload(x + 1234, part.data(), part.size());
  p.expect(x, 1234, 0);
  p.expect(x + 1234, part.size(), 77);
  p.expect(x + 1234 + part.size(), n - 1234 - part.size(), static_cast<word>(1234 + part.size()));
  CHECK(mentions(failure(status::io_failure,
                         [&] {
                           (void)p.s->upload(x, deepum::file{fileno(stream), 4 * sizeof(word)}, n);
                           p.expect(x, n, 4);
                         }),
                 "ends at byte"));
  p.s->upload(x, contents.data(), n);
  p.expect(x, n, 0);
  p.s->synchronize();
  std::fclose(stream);
  CHECK(p.wrong() == 0);
}

TEST_CASE("an upload is refused while its stream is captured") {
  program<deepum::cuda::paged_memory> p(64_MiB);
  constexpr std::uint64_t n = words_of(4_MiB);
  word* const x = p.arena->allocate<word>(n);
  const std::vector<word> source = numbers(n, 1);
  CHECK(mentions(failure(status::unsupported,
                         [&] { (void)p.s->record_graph("graph", [&] { p.s->upload(x, source.data(), n); }); }),
                 "an upload while its stream is captured"));
  p.s->upload(x, source.data(), n);
  p.expect(x, n, 1);
  p.s->synchronize();
  CHECK(p.wrong() == 0);
}

TEST_CASE_TEMPLATE("on CUDA a copy from pageable memory goes by an upload, one from pinned memory does not", Memory,
                   deepum::cuda::paged_memory, deepum::cuda::managed_memory) {
  constexpr std::uint64_t n = words_of(8_MiB);
  program<Memory> p(64_MiB);
  word* const x = p.arena->template allocate<word>(n);
  std::vector<word> source = numbers(n, 3);
  p.s->memcpy(x, source.data(), bytes{n * sizeof(word)});
  std::fill(source.begin(), source.end(), word{0});
  p.expect(x, n, 3);
  CHECK(p.arena->statistics().uploads == 1);
  void* pinned = nullptr;
  REQUIRE(cudaMallocHost(&pinned, n * sizeof(word)) == cudaSuccess);
  auto* const words = static_cast<word*>(pinned);
  std::iota(words, words + n, word{8});
  p.s->memcpy(x, words, bytes{n * sizeof(word)});
  p.expect(x, n, 8);
  p.s->synchronize();
  CHECK(p.arena->statistics().uploads == 1);
  CHECK(cudaFreeHost(pinned) == cudaSuccess);
  CHECK(p.wrong() == 0);
}

}  // namespace uploads_on_cuda_test
