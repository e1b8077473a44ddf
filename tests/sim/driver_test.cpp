#include "simulated_gpu.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <vector>

namespace deepum_test::driver_test {

sim::profile without_duplicates() {
  sim::profile p = sim::find_profile("h200_pcie5");
  p.fault_duplicates = 1;
  return p;
}

/// A kernel that reads one byte of each of the pages.
auto page_reader(std::vector<std::uint32_t> pages) {
  return sim::kernel([](const std::byte*) {},
                     [pages](sim::work& w, const std::byte* p) {
                       for (const std::uint32_t page : pages) {
                         w.reads(p + page * sim::page_size.count, 1);
                       }
                     });
}
void read_pages(simulated_gpu& gpu, std::uint32_t block, std::vector<std::uint32_t> pages) {
  gpu.stream.launch(1U, 1U, 0, page_reader(std::move(pages)), static_cast<const std::byte*>(gpu.at(block)));
  gpu.stream.synchronize();
}

// ---- faults ---------------------------------------------------------------------------------------------------------

TEST_CASE("the first touch of a block faults, the second does not") {
  simulated_gpu gpu(4, 4);
  gpu.fill_on_host(0, 1);
  touch(gpu, 0, 1);
  touch(gpu, 0, 1, access::update);
  const auto faults = gpu.events(kind::fault);
  REQUIRE(faults.size() == 1);
  CHECK(faults[0].range == block_range{block_id{0}, 1});
  CHECK(faults[0].mode == access::read);
  CHECK(gpu.device.counters().in_by_fault == block_size);
}

TEST_CASE("a fault says whether it was a write, and its block arrives for that reason") {
  simulated_gpu gpu(4, 4);
  gpu.fill_on_host(2, 1);
  touch(gpu, 2, 1, access::overwrite);
  const auto events = gpu.events();
  REQUIRE(events.size() == 2);
  CHECK(events[0].what == kind::fault);
  CHECK(events[0].mode == access::update);
  CHECK(events[1].what == kind::arrived);
  CHECK(events[1].why == reason::fault);
  CHECK(events[1].ticket == 0);
  CHECK_FALSE(events[1].host_copy_stays);
  CHECK(events[0].at < events[1].at);
}

TEST_CASE("blocks that come one after the other are one event, but not what was copied and what had no contents") {
  simulated_gpu gpu(8, 8);
  gpu.populate_on_host(0, 2);
  gpu.populate_on_host(4, 1);
  gpu.prefetch(0, 6);
  const auto arrived = gpu.events(kind::arrived);
  REQUIRE(arrived.size() == 4);
  const block_range ranges[] = {{block_id{0}, 2}, {block_id{2}, 2}, {block_id{4}, 1}, {block_id{5}, 1}};
  for (std::size_t i = 0; i < 4; ++i) {
    CAPTURE(i);
    CHECK(arrived[i].range == ranges[i]);
    CHECK((arrived[i].began == nanoseconds{}) == (i % 2 == 1));  // nothing was copied there
    CHECK(arrived[i].began < arrived[i].at);
  }
}

TEST_CASE("a batch holds 256 entries, duplicates among them, of the pages that are touched next") {
  simulated_gpu gpu(64, 32, without_duplicates());
  gpu.populate_on_host(0, 32);
  touch(gpu, 0, 32);  // 1024 pages, and the window of 16 MiB holds 256 of them
  CHECK(gpu.device.counters().fault_batches == 4);
  CHECK(gpu.device.counters().faulted_blocks == 32);

  sim::profile p = without_duplicates();
  p.fault_duplicates = 16;  // half a block each
  simulated_gpu halves(64, 32, p);
  halves.populate_on_host(0, 32);
  touch(halves, 0, 32);
  CHECK(halves.device.counters().fault_batches == 64);
}

TEST_CASE("a fault brings in the largest part of a block of which more than half is wanted or there") {
  simulated_gpu gpu(4, 4);
  gpu.fill_on_host(0, 4);
  read_pages(gpu, 0, {5});
  CHECK(gpu.record(0).on_device == (1U << 5));
  read_pages(gpu, 0, {4});  // both of a pair: already whole
  CHECK(gpu.record(0).on_device == (3U << 4));
  read_pages(gpu, 0, {7});  // three of four
  CHECK(gpu.record(0).on_device == (0xfU << 4));
  read_pages(gpu, 0, {0});  // five of eight
  CHECK(gpu.record(0).on_device == 0xffU);
  read_pages(gpu, 0, {20});  // nine of 32: alone
  CHECK(gpu.record(0).on_device == (0xffU | 1U << 20));
  CHECK(gpu.device.counters().faulted_blocks == 5);
}

TEST_CASE("blocks without contents cost no transfer, and read as zero") {
  simulated_gpu gpu(4, 4);
  touch(gpu, 0, 4);
  CHECK(gpu.device.counters().in_by_fault.count == 0);
  CHECK(gpu.device.counters().faulted_blocks == 4);
  CHECK(gpu.at(1)[12345] == std::byte{0});
}

// ---- device memory --------------------------------------------------------------------------------------------------

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

TEST_CASE("blocks of the batch that is being served are not evicted for one another") {
  simulated_gpu gpu(4, 16, without_duplicates());  // a batch could hold eight blocks
  gpu.fill_on_host(0, 16);
  touch(gpu, 0, 16);
  CHECK(gpu.device.counters().fault_batches == 4);
  CHECK(gpu.device.counters().faulted_blocks == 16);
}

TEST_CASE("a block of the batch is not evicted, even if it is the one that was migrated least recently") {
  simulated_gpu gpu(2, 4, without_duplicates());
  gpu.fill_on_host(0, 4);
  read_pages(gpu, 0, {0});  // a part of block 0, long ago
  gpu.prefetch(2, 1);
  (void)gpu.events();
  const auto both = sim::kernel([](const std::byte*) {},
                                [](sim::work& w, const std::byte* p) {
                                  w.reads(p + block_size.count, 1).reads(p + 5 * sim::page_size.count, 1);
                                });
  gpu.stream.launch(1U, 1U, 0, both, static_cast<const std::byte*>(gpu.at(0)));
  gpu.stream.synchronize();
  const auto gone = gpu.events(kind::departed);
  REQUIRE(gone.size() == 1);
  CHECK(gone[0].range.first == block_id{2});
  CHECK(gpu.record(0).on_device == (1U | 1U << 5));
}

TEST_CASE("an operation gets past the page it faulted on, even if the block is taken away before the batch ends") {
  simulated_gpu gpu(4, 4, without_duplicates());
  gpu.fill_on_host(0, 2);
  bool taken = false;
  gpu.memory.attach([&] {
    for (const device_event& e : gpu.events(kind::arrived)) {
      if (e.range.first == block_id{0} && !taken) {
        taken = gpu.memory.evict({block_id{0}, 1}, 1);
      }
    }
  });
  touch(gpu, 0, 2);
  gpu.memory.detach();
  CHECK(taken);
  CHECK(gpu.device.counters().faulted_blocks == 2);
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
  gpu.memory.prefetch({block_id{0}, 3}, 1);  // and somebody who interferes
  gpu.memory.prefetch({block_id{0}, 3}, 2);
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
    other.prefetch({block_id{0}, 3}, 1);
    gpu.device.host_work(10ms);
    CHECK(gpu.memory.free_memory() == block_size);
    gpu.prefetch(0, 2);
    CHECK(other.record_of(block_id{0}).on_device == 0);
    CHECK(other.record_of(block_id{1}).on_device == sim::all_pages);
  }
  CHECK(gpu.memory.free_memory() == 2 * block_size);
}

// ---- commands -------------------------------------------------------------------------------------------------------

TEST_CASE("blocks of a prefetch arrive one by one, and blocks that follow one another in one event") {
  simulated_gpu gpu(16, 16);
  gpu.populate_on_host(0, 16);
  gpu.memory.prefetch({block_id{0}, 8}, 7);
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
  gpu.memory.evict({block_id{8}, 4}, 101);
  gpu.memory.discard({block_id{12}, 1}, 102);
  gpu.memory.evict({block_id{13}, 1}, 103);
  gpu.memory.prefetch({block_id{0}, 1}, 201);
  gpu.memory.prefetch({block_id{1}, 1}, 202);
  gpu.settle();
  std::vector<std::uint64_t> order;
  for (const device_event& e : gpu.events(kind::completed)) {
    order.push_back(e.ticket);
  }
  CHECK(order == std::vector<std::uint64_t>{201, 202, 101, 102, 103});
}

TEST_CASE("an operation that reaches a block on its way waits for it without a fault") {
  simulated_gpu gpu(16, 16);
  gpu.populate_on_host(0, 16);
  gpu.memory.prefetch({block_id{0}, 1}, 1);
  const nanoseconds time = touch(gpu, 0, 1);
  CHECK(gpu.device.counters().faulted_blocks == 0);
  CHECK(gpu.device.counters().late_blocks == 1);
  CHECK(gpu.device.counters().stalled > 50us);
  CHECK(time < 130us);
}

TEST_CASE("the service of faults goes before a prefetch that is under way, between two of its blocks") {
  simulated_gpu gpu(512, 512);
  gpu.populate_on_host(0, 512);
  gpu.memory.prefetch({block_id{0}, 500}, 1);
  gpu.device.host_work(1ms);
  const nanoseconds alone = gpu.device.properties().fault_batch + gpu.device.properties().fault_block +
                            32 * gpu.device.properties().fault_page + sim::time_at(block_size, 51e9);
  const nanoseconds time = touch(gpu, 511, 1);
  CHECK(time > alone);
  CHECK(time < alone + 60us);  // at most the block that was on the link, and the launch
  CHECK(gpu.record(499).on_device == 0);
}

TEST_CASE("the driver's own eviction is on the path of the fault") {
  simulated_gpu gpu(1, 2);
  gpu.fill_on_host(0, 2);
  const nanoseconds first = touch(gpu, 0, 1);
  const nanoseconds second = touch(gpu, 1, 1);
  CHECK(second - first == sim::time_at(block_size, gpu.device.properties().prefetch_out));
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
  CHECK(gpu.memory.prefetch({block_id{0}, 1}, 1));
  CHECK_FALSE(gpu.memory.prefetch({block_id{1}, 1}, 2));
  CHECK(gpu.memory.prefetch({block_id{2}, 1}, 3));
  gpu.settle();
  CHECK(gpu.events(kind::completed).size() == 2);
  CHECK_FALSE(gpu.resident(1));
  gpu.memory.fail_call(1, sim::failure::half_way);
  CHECK(gpu.memory.prefetch({block_id{4}, 4}, 4));
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

// ---- the host -------------------------------------------------------------------------------------------------------

TEST_CASE("a host access moves what is on the device to the host, fault by fault") {
  simulated_gpu gpu(4, 4);
  gpu.fill_on_host(0, 4);
  gpu.prefetch(0, 4);
  const nanoseconds start = gpu.device.now();
  gpu.memory.host_access(block_size - bytes{1}, bytes{2}, access::read);  // two blocks
  const nanoseconds each = gpu.device.properties().host_fault + sim::time_at(block_size, 20e9);
  CHECK(gpu.device.now() - start == 2 * each);
  const auto gone = gpu.events(kind::departed);
  REQUIRE(gone.size() == 1);
  CHECK(gone[0].range == block_range{block_id{0}, 2});
  CHECK(gone[0].why == reason::host);
  CHECK(gpu.resident(2));
  gpu.memory.host_access(bytes{}, 2 * block_size, access::update);
  CHECK(gpu.device.now() - start == 2 * each);  // already there
}

TEST_CASE("a host access waits for the motion of its block") {
  simulated_gpu gpu(4, 4);
  gpu.fill_on_host(0, 1);
  gpu.memory.prefetch({block_id{0}, 1}, 1);
  gpu.memory.host_access(bytes{}, bytes{1}, access::read);
  CHECK(gpu.record(0).on_host == sim::all_pages);
  const auto events = gpu.events();
  REQUIRE(events.size() == 3);
  CHECK(events[0].what == kind::arrived);
  CHECK(events[2].what == kind::departed);
}

}  // namespace deepum_test::driver_test
