#include "simulated_gpu.hpp"
#include <deepum/sim/contents.hpp>
#include <deepum/sim/paged_memory.hpp>

#include <doctest/doctest.h>

#include <string>
#include <vector>

namespace deepum_test::paged_memory_test {

constexpr block_range one(std::uint32_t b) { return {block_id{b}, 1}; }

/// A device with paged memory, one int for each block.
struct paged_gpu {
  sim::device device{sim::find_profile("h200_pcie5"), {.memory = 3 * block_size}};
  sim::paged_memory memory{device, 4 * block_size};
  sim::stream stream{memory};

  [[nodiscard]] int* at(std::uint32_t b) const { return reinterpret_cast<int*>(memory.base() + b * block_size.count); }
  void make_room(std::uint32_t b) { deepum_test::populate(memory, one(b), 1); }
  void in(std::uint32_t b) {
    deepum_test::prefetch(memory, one(b), 1);
    device.host_work(1ms);
  }
  void out(std::uint32_t b) {
    deepum_test::clean(memory, one(b), 1);
    device.host_work(1ms);
  }
  void drop(std::uint32_t b) { deepum_test::drop(memory, one(b), 1); }
  /// What has become of a command.
  kind outcome(std::uint64_t ticket) {
    std::vector<device_event> events;
    memory.poll(events);
    for (const device_event& e : events) {
      if (e.ticket == ticket && (e.what == kind::completed || e.what == kind::failed)) {
        return e.what;
      }
    }
    return kind::arrived;
  }

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
  paged_gpu gpu;
  gpu.make_room(0);
  gpu.write(0, 1);
  CHECK_THROWS_WITH(gpu.write(2, 1), "block 2 is not mapped (kernel 'store', launch 0)");
  CHECK_THROWS_AS(gpu.read(0), error);
}

TEST_CASE("a command that finds no room fails as a whole, and what is given up leaves its room") {
  paged_gpu gpu;
  deepum_test::populate(gpu.memory, {block_id{0}, 3}, 1);
  CHECK(gpu.outcome(1) == kind::completed);
  deepum_test::prefetch(gpu.memory, one(3), 2);
  CHECK(gpu.outcome(2) == kind::failed);
  CHECK(gpu.memory.last_failure() == "no device memory to map 1 blocks; 0 are free");
  gpu.drop(1);
  CHECK(gpu.memory.free_memory() == block_size);
  deepum_test::populate(gpu.memory, one(3), 3);
  CHECK(gpu.outcome(3) == kind::completed);
}

TEST_CASE("room without contents reads as poison, and the host's contents survive that") {
  paged_gpu gpu;
  *gpu.at(0) = 7;
  gpu.make_room(0);
  CHECK(gpu.read(0) == poison);
  gpu.drop(0);
  CHECK(*gpu.at(0) == 7);
  gpu.in(0);
  CHECK(gpu.read(0) == 7);
}

TEST_CASE("what the device wrote is lost without a copy out: the stale contents of the host come back") {
  for (const bool discarded : {false, true}) {
    paged_gpu gpu;
    *gpu.at(0) = 7;
    gpu.in(0);
    gpu.write(0, 8);
    CHECK(*gpu.at(0) == 8);
    discarded ? deepum_test::discard(gpu.memory, one(0), 1) : deepum_test::drop(gpu.memory, one(0), 1);
    CHECK(*gpu.at(0) == 7);
    gpu.make_room(0);
    CHECK(gpu.read(0) == poison);
  }
}

TEST_CASE("after a copy out the block can be dropped, and a later write makes that wrong again") {
  paged_gpu gpu;
  gpu.in(0);
  gpu.write(0, 8);
  gpu.out(0);
  gpu.drop(0);
  CHECK(*gpu.at(0) == 8);
  gpu.in(0);
  gpu.write(0, 9);
  gpu.out(0);
  gpu.write(0, 10);
  gpu.drop(0);
  CHECK(*gpu.at(0) == 9);
}

TEST_CASE("a copy out of a block that is written meanwhile makes nothing clean") {
  paged_gpu gpu;
  gpu.in(0);
  deepum_test::clean(gpu.memory, one(0), 1);  // 40 us
  gpu.write(0, 8);
  CHECK(gpu.device.now() < 1100us);
  gpu.device.host_work(1ms);
  gpu.drop(0);
  CHECK(*gpu.at(0) == 0);
}

TEST_CASE("a copy out of room without contents writes poison") {
  paged_gpu gpu;
  gpu.make_room(1);
  gpu.out(1);
  gpu.drop(1);
  CHECK(*gpu.at(1) == poison);
}

TEST_CASE("a block that is given up under a kernel that uses it stops that with a message") {
  paged_gpu gpu;
  gpu.make_room(1);
  gpu.stream.launch(1U, 1U, 0,
                    sim::kernel(
                        "long", [](int*) {}, [](sim::work& w, int* p) { w.updates(p, 4).flops(1e12); }),
                    gpu.at(1));
  gpu.device.host_work(1ms);
  gpu.drop(1);
  CHECK_THROWS_WITH(gpu.stream.synchronize(), "block 1 is not mapped any more, while kernel 'long' (launch 0) uses it");
}

TEST_CASE("copies report to the engine") {
  paged_gpu gpu;
  gpu.device.host_work(1ms);
  deepum_test::prefetch(gpu.memory, {block_id{0}, 2}, 11);
  gpu.device.host_work(1ms);
  deepum_test::evict(gpu.memory, {block_id{0}, 2}, 12);
  gpu.device.host_work(1ms);
  std::vector<device_event> events;
  gpu.memory.poll(events);
  REQUIRE(events.size() == 4);
  CHECK(events[0].what == kind::arrived);
  CHECK(events[0].range == block_range{block_id{0}, 2});
  CHECK(events[0].host_copy_stays);
  CHECK(events[1].what == kind::completed);
  CHECK(events[2].what == kind::departed);
  CHECK(events[2].range == block_range{block_id{0}, 2});
  CHECK(events[3].what == kind::completed);
  CHECK(gpu.device.counters().out_by_command == 2 * block_size);
}

TEST_CASE("paged and managed memory of a device never take room from each other") {
  simulated_gpu gpu(3, 4);
  gpu.fill_on_host(0, 4);
  gpu.prefetch(0, 3);
  sim::paged_memory paged(gpu.device, 2 * block_size);
  deepum_test::populate(paged, {block_id{0}, 2}, 1);
  CHECK(paged.free_memory().count == 0);
  CHECK(paged.last_failure() == "no device memory to map 2 blocks; 0 are free");
  CHECK(gpu.resident(0));
  gpu.evict(0, 2);
  deepum_test::populate(paged, {block_id{0}, 2}, 2);
  touch(gpu, 0, 4);  // in turns, in the room that is left
  CHECK(gpu.memory.free_memory().count == 0);
  std::vector<device_event> events;
  paged.poll(events);
  CHECK(events.back().what == kind::completed);
}

}  // namespace deepum_test::paged_memory_test
