#include "simulated_gpu.hpp"
#include <deepum/sim/active_walks.hpp>
#include <deepum/sim/event_loop.hpp>
#include <deepum/sim/managed_space.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <vector>

namespace deepum_test::driver_test {

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
  deepum_test::prefetch(gpu.memory, {block_id{0}, 1}, 1);
  gpu.memory.host_access(bytes{}, bytes{1}, access::read);
  CHECK(gpu.record(0).on_host == sim::all_pages);
  const auto events = gpu.events();
  REQUIRE(events.size() == 3);
  CHECK(events[0].what == kind::arrived);
  CHECK(events[2].what == kind::departed);
}

TEST_CASE("the walk that is found is one that touches the block, and what is discarded under it stays lost") {
  sim::event_loop loop;
  sim::managed_space space(loop, 2 * block_size, sim::worker_mode::virtual_time, 0ns, 0);
  sim::active_walks walks;
  sim::walk w;
  w.segments.push_back({&space, block_id{1}, 1, access::update, 4});
  walks.begin(w);
  CHECK(walks.with(space, block_id{0}) == nullptr);
  CHECK(walks.with(space, block_id{1}) == &w);
  std::byte* const written = space.base() + block_size.count;
  walks.poison({&space, block_id{1}});
  const std::byte poison = *written;
  *written = std::byte{7};
  walks.end(w);
  CHECK(*written == poison);
  CHECK(poison != std::byte{0});
  CHECK(walks.with(space, block_id{1}) == nullptr);
  *written = std::byte{7};
  walks.begin(w);
  walks.end(w);  // nothing was discarded under it
  CHECK(*written == std::byte{7});
}

}  // namespace deepum_test::driver_test
