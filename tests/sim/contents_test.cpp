#include "simulated_gpu.hpp"
#include <deepum/sim/contents.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <string>

namespace deepum_test::contents_test {

constexpr std::byte poison{sim::contents::poison_byte};

bool whole_block_is(const std::byte* p, std::byte value) {
  return std::all_of(p, p + block_size.count, [&](std::byte b) { return b == value; });
}

TEST_CASE("an arena starts at a block boundary and reads as zero") {
  const sim::contents data(3 * block_size);
  CHECK(reinterpret_cast<std::uintptr_t>(data.base()) % block_size.count == 0);
  CHECK(data.base()[(3 * block_size).count - 1] == std::byte{0});
}

TEST_CASE("an arena of no or of broken blocks is refused with its size in the message") {
  for (const std::uint64_t n : {std::uint64_t{0}, (3_MiB).count}) {
    try {
      const sim::contents data{bytes{n}};
      FAIL("made");
    } catch (const error& e) {
      CHECK(e.code() == status::invalid_argument);
      CHECK(std::string(e.what()).find(std::to_string(n)) != std::string::npos);
    }
  }
}

TEST_CASE("an arena larger than the host's memory is no problem until it is touched") {
  simulated_gpu gpu(4, 1U << 19U);  // 1 TiB
  gpu.at((1U << 19U) - 1)[5] = std::byte{1};
  touch(gpu, (1U << 19U) - 1, 1);
  CHECK(gpu.at((1U << 19U) - 1)[5] == std::byte{1});
}

TEST_CASE("an older copy comes back, and is gone then") {
  sim::contents data(2 * block_size);
  data.base()[block_size.count] = std::byte{7};
  data.keep_older(block_id{1});
  data.base()[block_size.count] = std::byte{8};
  data.restore_older(block_id{1});
  CHECK(data.base()[block_size.count] == std::byte{7});
  data.restore_older(block_id{1});
  CHECK(data.base()[block_size.count] == std::byte{0});
}

TEST_CASE("contents survive migration by fault, eviction, prefetch and host access") {
  simulated_gpu gpu(2, 4);
  gpu.fill_on_host(0, 4, 0);
  auto* x = reinterpret_cast<float*>(gpu.at(0));
  const std::size_t n = (4 * block_size).count / sizeof(float);
  gpu.stream.launch(1U, 1U, 0, adder(), x, n, 1.0F);
  gpu.stream.synchronize();
  gpu.evict(0, 4);
  gpu.prefetch(1, 2);
  gpu.stream.launch(1U, 1U, 0, adder(), x, n, 2.0F);
  gpu.stream.synchronize();
  gpu.memory.host_access(bytes{}, 4 * block_size, access::read);
  CHECK(std::count(x, x + n, 3.0F) == static_cast<std::ptrdiff_t>(n));
}

TEST_CASE("discarded contents read as poison on the host and in kernels, and their room is free") {
  simulated_gpu gpu(4, 4);
  gpu.fill_on_host(0, 2);
  gpu.prefetch(0, 2);
  gpu.discard(0, 1);
  CHECK(whole_block_is(gpu.at(0), poison));
  CHECK(whole_block_is(gpu.at(1), std::byte{1}));
  CHECK(gpu.memory.free_memory() == 3 * block_size);
  gpu.prefetch(0, 1);  // room, not contents
  CHECK(gpu.device.counters().in_by_command == 2 * block_size);
  bool poisoned = false;
  gpu.stream.launch(1U, 1U, 0,
                    sim::kernel([](const std::byte* p, bool* out) { *out = whole_block_is(p, poison); },
                                [](sim::work& w, const std::byte* p, bool*) { w.reads(p, block_size.count); }),
                    static_cast<const std::byte*>(gpu.at(0)), &poisoned);
  gpu.stream.synchronize();
  CHECK(poisoned);
}

TEST_CASE("a discard under a running kernel loses what the kernel writes there, and only there") {
  simulated_gpu gpu(4, 4);
  gpu.fill_on_host(0, 2);
  gpu.prefetch(0, 2);
  const auto slow =
      sim::kernel([](std::byte* p) { std::fill_n(p, (2 * block_size).count, std::byte{9}); },
                  [](sim::work& w, std::byte* p) { w.overwrites(p, (2 * block_size).count).flops(1e11); });
  gpu.stream.launch(1U, 1U, 0, slow, gpu.at(0));
  gpu.device.host_work(500us);
  deepum_test::discard(gpu.memory, {block_id{0}, 1}, 1);
  gpu.stream.synchronize();
  CHECK(whole_block_is(gpu.at(0), poison));
  CHECK(whole_block_is(gpu.at(1), std::byte{9}));
  gpu.stream.launch(1U, 1U, 0, slow, gpu.at(0));  // and the next kernel is not concerned
  gpu.stream.synchronize();
  CHECK(whole_block_is(gpu.at(0), std::byte{9}));
}

TEST_CASE("direct access of the host is correct without host_access, it only takes no time") {
  simulated_gpu gpu(4, 4);
  auto* x = reinterpret_cast<float*>(gpu.at(0));
  x[3] = 40;
  gpu.stream.launch(1U, 1U, 0, adder(), x, std::size_t{1000}, 1.0F);
  gpu.stream.synchronize();
  const nanoseconds before = gpu.device.now();
  CHECK(x[3] == 41);
  x[3] = 50;
  CHECK(gpu.device.now() == before);
  gpu.stream.launch(1U, 1U, 0, adder(), x, std::size_t{1000}, 1.0F);
  gpu.stream.synchronize();
  CHECK(x[3] == 51);
}

}  // namespace deepum_test::contents_test
