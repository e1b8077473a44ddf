#include "kernel_helper/fake_uvm_tools.hpp"

#include <doctest/doctest.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <thread>
#include <vector>

namespace fake_uvm_tools_test {

using deepum_test::fake_uvm_tools;

/// Speaks the protocol by hand, as a reader of one queue does.
struct by_hand {
  explicit by_hand(fake_uvm_tools& device, std::uint32_t slots_ = 8)
      : system(*device.system()),
        slots(slots_),
        number(system.open(system.context, "/dev/nvidia-uvm-tools")) {
    queue = static_cast<std::uint8_t*>(system.map(system.context, std::size_t{64} * slots));
    control = static_cast<std::uint32_t*>(system.map(system.context, 528));
  }
  ~by_hand() {
    system.close(system.context, number);
    system.unmap(system.context, queue, std::size_t{64} * slots);
    system.unmap(system.context, control, 528);
  }
  by_hand(const by_hand&) = delete;
  by_hand& operator=(const by_hand&) = delete;

  /// The parameters after the request. `at48` and `at52` are the words whose meaning differs.
  std::vector<std::uint32_t> attach(std::uint32_t descriptor = 9, std::uint32_t at48 = 0, std::uint32_t at52 = 0) {
    std::vector<std::uint32_t> words(16);
    const std::uint64_t head[3] = {reinterpret_cast<std::uintptr_t>(queue), slots,
                                   reinterpret_cast<std::uintptr_t>(control)};
    std::memcpy(words.data(), head, sizeof head);
    words[10] = 1;
    words[11] = descriptor;
    words[12] = at48;
    words[13] = at52;
    CHECK(system.ioctl(system.context, number, 56, words.data()) == 0);
    return words;
  }
  /// The status word.
  std::uint32_t threshold(std::uint32_t records) {
    std::uint32_t words[16] = {records};
    CHECK(system.ioctl(system.context, number, 57, words) == 0);
    return words[1];
  }
  std::uint32_t types(unsigned long request, std::uint64_t types) {
    std::uint64_t words[8] = {types};
    CHECK(system.ioctl(system.context, number, request, words) == 0);
    return static_cast<std::uint32_t>(words[1]);
  }
  int poll(int timeout_ms = 0) { return system.poll(system.context, number, timeout_ms); }
  void set_get(std::uint32_t get) {
    std::atomic_ref<std::uint32_t>(control[0]).store(get);
    std::atomic_ref<std::uint32_t>(control[1]).store(get);
  }
  [[nodiscard]] std::uint32_t put() const { return std::atomic_ref<std::uint32_t>(control[3]).load(); }
  [[nodiscard]] std::uint64_t dropped(int type) const {
    std::uint64_t value;
    std::memcpy(&value, control + 4 + 2 * type, sizeof value);
    return value;
  }

  deepum_uvm_system system;
  std::uint32_t slots;
  int number;
  std::uint8_t* queue;
  std::uint32_t* control;
};

constexpr std::uint64_t faults = 1u << 3;

TEST_CASE("fake_uvm_tools: a fault lies in the queue as the driver writes it") {
  fake_uvm_tools device;
  by_hand reader(device);
  CHECK(reader.attach()[12] == 0);
  CHECK(reader.types(58, faults) == 0);
  device.push_fault(0x7f0000201000, DEEPUM_UVM_WRITE, 500, 77, 2, 1);
  REQUIRE(reader.put() == 1);
  CHECK(reader.queue[0] == 3);
  CHECK(reader.queue[2] == 2);
  CHECK(reader.queue[3] == 2);
  std::uint64_t address, gpu_time;
  std::uint32_t batch;
  std::memcpy(&address, reader.queue + 8, 8);
  std::memcpy(&gpu_time, reader.queue + 24, 8);
  std::memcpy(&batch, reader.queue + 32, 4);
  CHECK(address == 0x7f0000201000);
  CHECK(gpu_time == 500);
  CHECK(batch == 77);
}

TEST_CASE("fake_uvm_tools: one slot stays free, and the counter of the type counts what does not fit") {
  fake_uvm_tools device;
  by_hand reader(device, 4);
  reader.attach();
  reader.types(58, faults | 1u << 2);
  for (int i = 0; i < 5; ++i)
    device.push_fault(0x1000);
  device.push_migration(0x1000, 4096);
  CHECK(reader.put() == 3);
  CHECK(device.queued() == 3);
  CHECK(reader.dropped(3) == 2);
  CHECK(reader.dropped(2) == 1);
  // Space again, and the queue wraps.
  reader.set_get(2);
  device.push_fault(0x2000);
  device.push_fault(0x3000);
  CHECK(reader.put() == 1);
  CHECK(device.queued() == 3);
  CHECK(reader.dropped(3) == 2);
}

TEST_CASE("fake_uvm_tools: only enabled types are written") {
  fake_uvm_tools device;
  by_hand reader(device);
  reader.attach();
  device.push_fault(0x1000);
  CHECK(reader.put() == 0);
  CHECK(reader.types(58, faults) == 0);
  device.push_migration(0x1000, 4096);
  CHECK(reader.put() == 0);
  device.push_fault(0x1000);
  CHECK(reader.put() == 1);
  CHECK(reader.types(59, faults) == 0);
  device.push_fault(0x1000);
  CHECK(reader.put() == 1);
  CHECK(reader.types(58, 1) == fake_uvm_tools::invalid_argument);
  CHECK(reader.types(58, 1u << 15) == fake_uvm_tools::invalid_argument);
}

TEST_CASE("fake_uvm_tools: polling is answered from the threshold on, or after the time-out") {
  fake_uvm_tools device;
  by_hand reader(device, 16);
  reader.attach();
  CHECK(reader.threshold(3) == 0);
  reader.types(58, faults);
  device.push_fault(0x1000);
  device.push_fault(0x1000);
  CHECK(reader.poll() == 0);
  device.push_fault(0x1000);
  CHECK(reader.poll() == 1);
  reader.set_get(1);
  CHECK(reader.poll() == 0);

  std::thread writer([&] { device.push_fault(0x1000); });
  CHECK(reader.poll(60000) == 1);
  writer.join();

  device.lose_wake_ups();
  CHECK(reader.poll(1) == 0);
  device.lose_wake_ups(false);
  CHECK(reader.poll() == 1);
  device.fail_polls(EIO);
  CHECK(reader.poll() == -EIO);
  CHECK(reader.poll() == -EIO);
  device.fail_polls(EIO, 1);
  CHECK(reader.poll() == -EIO);
  CHECK(reader.poll() == 1);
}

TEST_CASE("fake_uvm_tools: it attaches the descriptor with the VA space and no other") {
  fake_uvm_tools device;
  by_hand reader(device);
  CHECK(reader.attach(0)[12] == fake_uvm_tools::insufficient_permissions);
  CHECK(reader.attach(55)[12] == fake_uvm_tools::insufficient_permissions);
  CHECK(reader.attach(7)[12] == fake_uvm_tools::illegal_action);
  CHECK(reader.threshold(1) == fake_uvm_tools::invalid_argument);
  CHECK(reader.attach(9)[12] == 0);
  CHECK(reader.attach(9)[12] == fake_uvm_tools::invalid_argument);
  CHECK(device.attach_attempts() == std::vector<int>{0, 55, 7, 9, 9});
}

TEST_CASE("fake_uvm_tools: the branches of 555 and 560 want a version, each in its own word") {
  SUBCASE("555") {
    fake_uvm_tools device;
    device.set_version("555.42.02");
    by_hand reader(device);
    CHECK(reader.attach(9, 1, 0)[12] == fake_uvm_tools::invalid_argument);
    const auto words = reader.attach(9, 0, 1);
    CHECK(words[12] == 0);
    CHECK(words[14] == 1);
  }
  SUBCASE("560") {
    fake_uvm_tools device;
    device.set_version("560.28.03");
    by_hand reader(device);
    CHECK(reader.attach(9, 0, 1)[13] == fake_uvm_tools::invalid_argument);
    const auto words = reader.attach(9, 1, 1);
    CHECK(words[12] == 1);
    CHECK(words[13] == 0);
  }
}

TEST_CASE("fake_uvm_tools: an eviction is a migration of that cause, as the driver has it") {
  fake_uvm_tools device;
  by_hand reader(device);
  reader.attach();
  reader.types(58, 1u << 2 | 1u << 14);
  device.push_eviction(0x200000, 65536, 2, 0);
  REQUIRE(reader.put() == 1);
  CHECK(reader.queue[0] == 2);
  CHECK(reader.queue[1] == 4);
  CHECK(reader.queue[2] == 2);
  CHECK(reader.queue[3] == 0);
}

TEST_CASE("fake_uvm_tools: unmapping before closing is noticed") {
  fake_uvm_tools device;
  const deepum_uvm_system& system = *device.system();
  {
    by_hand reader(device);
    reader.attach();
    CHECK_FALSE(device.unmapped_too_early());
  }
  CHECK_FALSE(device.unmapped_too_early());
  CHECK(device.mapping_count() == 0);
  CHECK(device.open_count() == 0);

  by_hand reader(device);
  reader.attach();
  system.unmap(system.context, reader.queue, std::size_t{64} * reader.slots);
  CHECK(device.unmapped_too_early());
  reader.queue = static_cast<std::uint8_t*>(system.map(system.context, std::size_t{64} * reader.slots));
}

TEST_CASE("fake_uvm_tools: without a driver there is neither version nor device") {
  fake_uvm_tools device;
  device.set_version("");
  const deepum_uvm_system& system = *device.system();
  char text[64];
  CHECK(system.read_text(system.context, "/proc/driver/nvidia/version", text, sizeof text) == -ENOENT);
  CHECK(system.open(system.context, "/dev/nvidia-uvm-tools") == -ENOENT);
}

}  // namespace fake_uvm_tools_test
