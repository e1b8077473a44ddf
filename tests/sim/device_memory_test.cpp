#include "simulated_gpu.hpp"
#include <deepum/sim/device_memory.hpp>
#include <deepum/sim/event_loop.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <vector>

namespace deepum_test::device_memory_test {

TEST_CASE("when device memory is full the block that was migrated least recently is evicted") {
  simulated_gpu gpu(3, 5);
  gpu.fill_on_host(0, 5);
  touch(gpu, 2, 1);
  touch(gpu, 0, 1);
  touch(gpu, 1, 1);
  touch(gpu, 2, 1);  // use does not count, migration does
  touch(gpu, 3, 1);
  CHECK_FALSE(gpu.resident(2));
  touch(gpu, 4, 1);
  CHECK_FALSE(gpu.resident(0));
  CHECK(gpu.resident(1));
  const auto gone = gpu.events(kind::departed);
  REQUIRE(gone.size() == 2);
  CHECK(gone[0].range.first == block_id{2});
  CHECK(gone[0].why == reason::make_room);
  CHECK(gone[0].ticket == 0);
  CHECK(gpu.device.counters().out_by_driver == 2 * block_size);
  CHECK(gpu.device.counters().driver_evictions == 2);
}

TEST_CASE("prefetching a resident block moves nothing but makes it the most recently migrated one") {
  simulated_gpu gpu(3, 4);
  gpu.fill_on_host(0, 4);
  gpu.prefetch(0, 3);
  gpu.prefetch(0, 1);
  const auto arrivals = gpu.events(kind::arrived);
  REQUIRE(arrivals.size() == 2);
  CHECK(arrivals[1].range == block_range{block_id{0}, 1});
  CHECK(gpu.device.counters().in_by_command == 3 * block_size);
  touch(gpu, 3, 1);
  CHECK(gpu.resident(0));
  CHECK_FALSE(gpu.resident(1));
}

TEST_CASE("a kernel larger than device memory gets on, also with room for a single block, and computes right") {
  for (const std::uint32_t rooms : {1U, 2U, 5U}) {
    simulated_gpu gpu(rooms, 12);
    gpu.fill_on_host(0, 12, 0);
    auto* x = reinterpret_cast<float*>(gpu.at(0));
    const std::size_t n = (12 * block_size).count / sizeof(float);
    for (int round = 0; round < 2; ++round) {
      gpu.stream.launch(1U, 1U, 0, adder(), x, n, 1.5F);
    }
    gpu.stream.synchronize();
    CAPTURE(rooms);
    CHECK(std::count(x, x + n, 3.0F) == static_cast<std::ptrdiff_t>(n));
    CHECK(gpu.device.counters().faulted_blocks == 24);
    CHECK(gpu.memory.free_memory().count == 0);
  }
}

TEST_CASE("operands that evict one another in each step make a kernel slow, not stuck") {
  simulated_gpu gpu(1, 3);
  gpu.fill_on_host(0, 3);
  const auto alternate =
      sim::kernel([](const std::byte*) {},
                  [](sim::work& w, const std::byte* p) {
                    for (std::uint32_t i = 0; i < 96; ++i) {
                      w.reads(p + i % 3 * block_size.count + i / 3 * sim::page_size.count, sim::page_size.count);
                    }
                  });
  gpu.stream.launch(1U, 1U, 0, alternate, static_cast<const std::byte*>(gpu.at(0)));
  deepum_test::prefetch(gpu.memory, {block_id{0}, 3}, 1);  // and somebody who interferes
  deepum_test::prefetch(gpu.memory, {block_id{0}, 3}, 2);
  gpu.stream.synchronize();
  CHECK(gpu.device.counters().fault_batches >= 90);
}

TEST_CASE("a prefetch larger than device memory evicts its own first blocks") {
  simulated_gpu gpu(3, 5);
  gpu.fill_on_host(0, 5);
  gpu.prefetch(0, 5);
  CHECK_FALSE(gpu.resident(1));
  CHECK(gpu.resident(2));
  CHECK(gpu.resident(4));
}

TEST_CASE("memory that others hold is not free, and what was resident in its place is evicted when room is needed") {
  simulated_gpu gpu(6, 8);
  gpu.fill_on_host(0, 8);
  gpu.prefetch(0, 6);
  gpu.device.set_foreign_memory(block_size * 3);
  CHECK(gpu.memory.free_memory().count == 0);
  touch(gpu, 6, 1);
  CHECK(gpu.device.counters().driver_evictions == 4);
  gpu.device.set_foreign_memory(bytes{});
  CHECK(gpu.memory.free_memory() == 3 * block_size);
}

TEST_CASE("without any room a prefetch fails and a kernel stops with a message") {
  simulated_gpu gpu(2, 4);
  gpu.device.set_foreign_memory(block_size * 2);
  gpu.prefetch(0, 1);
  CHECK(gpu.events(kind::failed).size() == 1);
  CHECK_THROWS_AS(touch(gpu, 0, 1), error);
  CHECK_THROWS_WITH(gpu.stream.synchronize(), "no room for a single block: others hold all memory of the device");
}

TEST_CASE("arenas on one device share its memory, and a destroyed one gives its part back") {
  simulated_gpu gpu(4, 4);
  {
    sim::managed_memory other(gpu.device, 4 * block_size);
    deepum_test::prefetch(other, {block_id{0}, 3}, 1);
    gpu.device.host_work(10ms);
    CHECK(gpu.memory.free_memory() == block_size);
    gpu.prefetch(0, 2);
    CHECK(other.record_of(block_id{0}).on_device == 0);
    CHECK(other.record_of(block_id{1}).on_device == sim::all_pages);
  }
  CHECK(gpu.memory.free_memory() == 2 * block_size);
}

TEST_CASE("a block that is kept is not evicted, and whoever needs its room is asked to come again") {
  sim::event_loop loop;
  sim::profile p = sim::find_profile("h200_pcie5");
  p.memory = 2 * block_size;
  sim::device_memory memory(loop, p);
  sim::managed_space space(loop, 3 * block_size, sim::worker_mode::virtual_time, 0ns, 0);
  const auto block = [&](std::uint32_t b) { return sim::managed_block{&space, block_id{b}}; };
  int asked = 0;
  sim::event_loop::host_call call(loop);
  for (std::uint32_t b = 0; b < 2; ++b) {
    CHECK(memory.take_room_for(block(b), sim::urgency::command, {}) == sim::device_memory::room::taken);
    memory.settle(block(b), sim::all_pages, access::read, reason::predicted, 0);
  }
  CHECK(memory.free_rooms() == 0);
  CHECK(memory.rooms_to_have() == 2);

  memory.keep({block(0)});
  CHECK(memory.take_room(sim::urgency::fault, [&] { ++asked; }) == sim::device_memory::room::later);
  call.wait([&] { return asked == 1; });
  CHECK(block(0).record().on_device == sim::all_pages);  // the older one
  CHECK(block(1).record().on_device == 0);
  CHECK(memory.free_rooms() == 1);

  CHECK(memory.take_room(sim::urgency::fault, {}) == sim::device_memory::room::taken);
  CHECK(memory.take_room(sim::urgency::fault, {}) == sim::device_memory::room::refused);  // nothing moves
  CHECK(memory.take_room(sim::urgency::command, [&] { ++asked; }) == sim::device_memory::room::later);
  memory.keep({});
  memory.give_room();
  CHECK(asked == 2);
  CHECK(memory.counters().driver_evictions == 1);
}

}  // namespace deepum_test::device_memory_test
