#include "simulated_gpu.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <vector>

namespace deepum_test::command_queue_test {

TEST_CASE("blocks of a prefetch arrive one by one, and blocks that follow one another in one event") {
  simulated_gpu gpu(16, 16);
  gpu.populate_on_host(0, 16);
  deepum_test::prefetch(gpu.memory, {block_id{0}, 8}, 7);
  gpu.device.host_work(prefetch_time(gpu.device.properties(), 3 * block_size));
  auto events = gpu.events();
  REQUIRE(events.size() == 1);
  CHECK(events[0].what == kind::arrived);
  CHECK(events[0].ticket == 7);
  CHECK(events[0].range == block_range{block_id{0}, 3});
  CHECK(gpu.resident(2));
  CHECK_FALSE(gpu.resident(3));
  gpu.settle();
  events = gpu.events();
  REQUIRE(events.size() == 2);
  CHECK(events[0].range == block_range{block_id{3}, 5});
  CHECK(events[1].what == kind::completed);
  CHECK(events[1].range == block_range{block_id{0}, 8});
}

TEST_CASE("each direction is in order, and the two do not wait for each other") {
  simulated_gpu gpu(16, 16);
  gpu.populate_on_host(0, 16);
  gpu.prefetch(8, 8);
  (void)gpu.events();
  deepum_test::evict(gpu.memory, {block_id{8}, 4}, 101);
  deepum_test::discard(gpu.memory, {block_id{12}, 1}, 102);
  deepum_test::evict(gpu.memory, {block_id{13}, 1}, 103);
  deepum_test::prefetch(gpu.memory, {block_id{0}, 1}, 201);
  deepum_test::prefetch(gpu.memory, {block_id{1}, 1}, 202);
  gpu.settle();
  std::vector<std::uint64_t> order;
  for (const device_event& e : gpu.events(kind::completed)) {
    order.push_back(e.ticket);
  }
  CHECK(order == std::vector<std::uint64_t>{201, 202, 101, 102, 103});
}

TEST_CASE("an eviction reports the blocks that left, and nothing of those that were not there") {
  simulated_gpu gpu(8, 8);
  gpu.fill_on_host(0, 8);
  gpu.prefetch(2, 2);
  (void)gpu.events();
  gpu.evict(0, 8);
  const auto events = gpu.events();
  REQUIRE(events.size() == 2);
  CHECK(events[0].what == kind::departed);
  CHECK(events[0].range == block_range{block_id{2}, 2});
  CHECK(events[0].ticket == gpu.ticket);
  CHECK(gpu.record(2).on_host == sim::all_pages);
  CHECK(gpu.memory.free_memory() == 8 * block_size);
}

TEST_CASE("the chosen command fails, at the call or half way, and the others do not") {
  simulated_gpu gpu(8, 8);
  gpu.fill_on_host(0, 8);
  gpu.memory.fail_call(2);
  CHECK(deepum_test::prefetch(gpu.memory, {block_id{0}, 1}, 1));
  CHECK_FALSE(deepum_test::prefetch(gpu.memory, {block_id{1}, 1}, 2));
  CHECK(deepum_test::prefetch(gpu.memory, {block_id{2}, 1}, 3));
  gpu.settle();
  CHECK(gpu.events(kind::completed).size() == 2);
  CHECK_FALSE(gpu.resident(1));
  gpu.memory.fail_call(1, sim::failure::half_way);
  CHECK(deepum_test::prefetch(gpu.memory, {block_id{4}, 4}, 4));
  gpu.settle();
  const auto events = gpu.events();
  REQUIRE(events.size() == 2);
  CHECK(events[0].range == block_range{block_id{4}, 2});
  CHECK(events[1].what == kind::failed);
  CHECK_FALSE(gpu.resident(6));
}

// ---- advice ---------------------------------------------------------------------------------------------------------

TEST_CASE("a read-mostly block is at both places, and the driver gives such a copy up without moving it") {
  simulated_gpu gpu(2, 4);
  gpu.fill_on_host(0, 4);
  gpu.advise(0, 1, advice::set_read_mostly);
  touch(gpu, 0, 1);
  auto arrivals = gpu.events(kind::arrived);
  REQUIRE(arrivals.size() == 1);
  CHECK(arrivals[0].host_copy_stays);
  CHECK(gpu.record(0).on_host == sim::all_pages);
  touch(gpu, 1, 2);
  CHECK_FALSE(gpu.resident(0));
  CHECK(gpu.device.counters().out_by_driver.count == 0);
}

TEST_CASE("an eviction gives up the device's copy of a read-mostly block without a copy, unless it was written") {
  simulated_gpu gpu(2, 4);
  gpu.fill_on_host(0, 2);
  gpu.advise(0, 2, advice::set_read_mostly);
  gpu.prefetch(0, 2);
  touch(gpu, 1, 1, access::update);
  (void)gpu.events();
  gpu.evict(0, 2);
  CHECK_FALSE(gpu.events(kind::departed).empty());
  CHECK(gpu.record(0).on_host == sim::all_pages);
  CHECK(gpu.record(0).on_device == 0);
  CHECK(gpu.record(1).on_host == sim::all_pages);
  CHECK(gpu.device.counters().out_by_command == block_size);
  gpu.prefetch(0, 1);  // it is duplicated again
  CHECK(gpu.record(0).on_host == sim::all_pages);
  CHECK(gpu.record(0).on_device == sim::all_pages);
}

TEST_CASE("the host reads a read-mostly block without moving it, and takes it away by writing") {
  simulated_gpu gpu(2, 2);
  gpu.fill_on_host(0, 1);
  gpu.advise(0, 1, advice::set_read_mostly);
  gpu.prefetch(0, 1);
  gpu.memory.host_access(bytes{}, block_size, access::read);
  CHECK(gpu.resident(0));
  gpu.memory.host_access(bytes{}, bytes{1}, access::update);
  CHECK(gpu.record(0).on_device == 0);
  CHECK(gpu.device.counters().out_by_host.count == 0);
  CHECK(gpu.events(kind::departed).at(0).why == reason::host);
}

TEST_CASE("a kernel that writes a read-mostly block faults once, and the device's copy is the only one then") {
  simulated_gpu gpu(2, 2);
  gpu.fill_on_host(0, 1);
  gpu.advise(0, 1, advice::set_read_mostly);
  gpu.prefetch(0, 1);
  (void)gpu.events();
  touch(gpu, 0, 1, access::update);
  const auto events = gpu.events();
  REQUIRE(events.size() == 2);
  CHECK(events[0].what == kind::fault);
  CHECK_FALSE(events[1].host_copy_stays);
  CHECK(gpu.record(0).on_host == 0);
  CHECK(gpu.device.counters().in_by_fault.count == 0);
  touch(gpu, 0, 1, access::update);
  CHECK(gpu.events().empty());
}

TEST_CASE("when read-mostly is taken back the preferred copy stays, else the host's") {
  simulated_gpu gpu(4, 4);
  gpu.fill_on_host(0, 2);
  gpu.advise(0, 2, advice::set_read_mostly);
  gpu.advise(1, 1, advice::set_preferred_location, location::device());
  gpu.prefetch(0, 2);
  gpu.advise(0, 2, advice::unset_read_mostly);
  CHECK(gpu.record(0).on_device == 0);
  CHECK(gpu.record(0).on_host == sim::all_pages);
  CHECK(gpu.record(1).on_device == sim::all_pages);
  CHECK(gpu.record(1).on_host == 0);
  CHECK(gpu.events(kind::departed).size() == 1);
}

TEST_CASE("a block that prefers the host is mapped by its first fault and not moved") {
  simulated_gpu gpu(2, 2);
  gpu.fill_on_host(0, 1);
  gpu.advise(0, 1, advice::set_preferred_location, location::host());
  touch(gpu, 0, 1, access::update);
  touch(gpu, 0, 1, access::update);
  CHECK(gpu.record(0).on_device == 0);
  CHECK(gpu.device.counters().faulted_blocks == 1);
  CHECK(gpu.device.counters().in_by_fault.count == 0);
  CHECK(gpu.device.counters().in_remote == 2 * block_size);
  gpu.prefetch(0, 1);  // an explicit call moves it all the same
  CHECK(gpu.resident(0));
}

}  // namespace deepum_test::command_queue_test
