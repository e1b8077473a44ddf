#include "simulated_gpu.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <vector>

namespace deepum_test::fault_service_test {

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
        taken = deepum_test::evict(gpu.memory, {block_id{0}, 1}, 1);
      }
    }
  });
  touch(gpu, 0, 2);
  gpu.memory.detach();
  CHECK(taken);
  CHECK(gpu.device.counters().faulted_blocks == 2);
}

TEST_CASE("an operation that reaches a block on its way waits for it without a fault") {
  simulated_gpu gpu(16, 16);
  gpu.populate_on_host(0, 16);
  deepum_test::prefetch(gpu.memory, {block_id{0}, 1}, 1);
  const nanoseconds time = touch(gpu, 0, 1);
  CHECK(gpu.device.counters().faulted_blocks == 0);
  CHECK(gpu.device.counters().late_blocks == 1);
  CHECK(gpu.device.counters().stalled > 50us);
  CHECK(time < 130us);
}

TEST_CASE("the service of faults goes before a prefetch that is under way, between two of its blocks") {
  simulated_gpu gpu(512, 512);
  gpu.populate_on_host(0, 512);
  deepum_test::prefetch(gpu.memory, {block_id{0}, 500}, 1);
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

}  // namespace deepum_test::fault_service_test
