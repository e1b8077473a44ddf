#include "simulated_gpu.hpp"
#include <deepum/sim/contents.hpp>
#include <deepum/sim/mapped_memory.hpp>

#include <doctest/doctest.h>

#include <string>
#include <vector>

namespace deepum_test::mapped_memory_test {

constexpr block_range one(std::uint32_t b) { return {block_id{b}, 1}; }

/// A device with mapped memory, one int for each block.
struct mapped_gpu {
  sim::device device{sim::find_profile("h200_pcie5"), {.memory = 3 * block_size}};
  sim::mapped_memory memory{device, 4 * block_size};
  sim::stream stream{memory};

  [[nodiscard]] int* at(std::uint32_t b) const { return reinterpret_cast<int*>(memory.base() + b * block_size.count); }
  void copy(void (sim::mapped_memory::*how)(block_range, std::uint64_t), std::uint32_t b) {
    (memory.*how)(one(b), 1);
    device.host_work(1ms);
  }
  void in(std::uint32_t b) { copy(&sim::mapped_memory::copy_in, b); }
  void out(std::uint32_t b) { copy(&sim::mapped_memory::copy_out, b); }

  /// What a kernel reads.
  int read(std::uint32_t b) {
    int seen = 0;
    stream.launch(1U, 1U, 0,
                  sim::kernel([](const int* p, int* result) { *result = *p; },
                              [](sim::work& w, const int* p, int*) { w.reads(p, sizeof(int)); }),
                  static_cast<const int*>(at(b)), &seen);
    stream.synchronize();
    return seen;
  }
  void write(std::uint32_t b, int value) {
    stream.launch(1U, 1U, 0,
                  sim::kernel(
                      "store", [](int* p, int v) { *p = v; }, [](sim::work& w, int* p, int) { w.updates(p, 4); }),
                  at(b), value);
    stream.synchronize();
  }
};

constexpr int poison = static_cast<int>(0xDBDBDBDBU);

TEST_CASE("an operation that touches an unmapped block stops with its name and the block, and the device with it") {
  mapped_gpu gpu;
  gpu.memory.map(one(0));
  gpu.write(0, 1);
  CHECK_THROWS_WITH(gpu.write(2, 1), "block 2 is not mapped (kernel 'store', launch 0)");
  CHECK_THROWS_AS(gpu.read(0), error);
}

TEST_CASE("mapping blocks the caller, takes room, and unmapping gives it back") {
  mapped_gpu gpu;
  const nanoseconds start = gpu.device.now();
  gpu.memory.map({block_id{0}, 3});
  CHECK(gpu.device.now() - start == gpu.device.properties().map_call);
  try {
    gpu.memory.map(one(3));
    FAIL("mapped");
  } catch (const error& e) {
    CHECK(e.code() == status::out_of_device_memory);
  }
  gpu.memory.unmap(one(1));
  gpu.memory.map(one(3));
  CHECK(gpu.device.now() - start == 4 * gpu.device.properties().map_call);
}

TEST_CASE("a block that was mapped but not copied in reads as poison, and the host's contents survive that") {
  mapped_gpu gpu;
  *gpu.at(0) = 7;
  gpu.memory.map(one(0));
  CHECK(gpu.read(0) == poison);
  gpu.memory.unmap(one(0));
  CHECK(*gpu.at(0) == 7);
  gpu.memory.map(one(0));
  gpu.in(0);
  CHECK(gpu.read(0) == 7);
}

TEST_CASE("what the device wrote is lost without a copy out: the stale contents of the host come back") {
  mapped_gpu gpu;
  *gpu.at(0) = 7;
  gpu.memory.map(one(0));
  gpu.in(0);
  gpu.write(0, 8);
  CHECK(*gpu.at(0) == 8);
  gpu.memory.drop(one(0));
  CHECK(*gpu.at(0) == 7);
  CHECK(gpu.read(0) == poison);  // still mapped, but without contents
  gpu.memory.unmap(one(0));
  CHECK(*gpu.at(0) == 7);
}

TEST_CASE("after a copy out the block can be dropped, and a later write makes that wrong again") {
  mapped_gpu gpu;
  gpu.memory.map(one(0));
  gpu.in(0);
  gpu.write(0, 8);
  gpu.out(0);
  gpu.memory.unmap(one(0));
  CHECK(*gpu.at(0) == 8);
  gpu.memory.map(one(0));
  gpu.in(0);
  gpu.write(0, 9);
  gpu.out(0);
  gpu.write(0, 10);
  gpu.memory.unmap(one(0));
  CHECK(*gpu.at(0) == 9);
}

TEST_CASE("a copy out of a block that is written meanwhile makes nothing clean") {
  mapped_gpu gpu;
  gpu.memory.map({block_id{0}, 3});
  gpu.in(0);
  gpu.memory.copy_out({block_id{0}, 1}, 1);  // 40 us
  gpu.write(0, 8);
  CHECK(gpu.device.now() < 1100us);
  gpu.device.host_work(1ms);
  gpu.memory.unmap(one(0));
  CHECK(*gpu.at(0) == 0);
}

TEST_CASE("a copy in overwrites what the device has, a copy out of nothing writes poison") {
  mapped_gpu gpu;
  *gpu.at(0) = 7;
  gpu.memory.map({block_id{0}, 2});
  gpu.in(0);
  gpu.write(0, 8);
  gpu.in(0);
  CHECK(gpu.read(0) == 7);
  gpu.out(1);
  gpu.memory.unmap(one(1));
  CHECK(*gpu.at(1) == poison);
}

TEST_CASE("unmapping under a kernel that uses the block stops with a message") {
  mapped_gpu gpu;
  gpu.memory.map(one(1));
  gpu.stream.launch(1U, 1U, 0,
                    sim::kernel(
                        "long", [](int*) {}, [](sim::work& w, int* p) { w.updates(p, 4).flops(1e12); }),
                    gpu.at(1));
  gpu.device.host_work(1ms);
  gpu.memory.unmap(one(1));
  CHECK_THROWS_WITH(gpu.stream.synchronize(), "block 1 is not mapped any more, while kernel 'long' (launch 0) uses it");
}

TEST_CASE("unmapping waits for copies, and copies report to the engine") {
  mapped_gpu gpu;
  gpu.memory.map({block_id{0}, 2});
  gpu.memory.copy_in({block_id{0}, 2}, 11);
  gpu.memory.copy_out({block_id{0}, 2}, 12);
  gpu.memory.unmap({block_id{0}, 2});
  std::vector<device_event> events;
  gpu.memory.poll(events);
  REQUIRE(events.size() == 3);
  CHECK(events[0].what == kind::arrived);
  CHECK(events[0].range == block_range{block_id{0}, 2});
  CHECK(events[0].host_copy_stays);
  CHECK(events[1].what == kind::completed);
  CHECK(gpu.device.counters().out_by_command == 2 * block_size);
}

TEST_CASE("mapped memory takes room from managed memory, never the other way round") {
  simulated_gpu gpu(3, 4);
  gpu.fill_on_host(0, 4);
  gpu.prefetch(0, 3);
  sim::mapped_memory mapped(gpu.device, 2 * block_size);
  mapped.map({block_id{0}, 2});
  CHECK_FALSE(gpu.resident(0));
  CHECK_FALSE(gpu.resident(1));
  touch(gpu, 0, 4);
  CHECK(gpu.memory.free_memory().count == 0);
  CHECK(gpu.device.counters().driver_evictions == 6);
}

}  // namespace deepum_test::mapped_memory_test
