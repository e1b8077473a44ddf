#include "deepum_uvm_events.h"
#include "kernel_helper/fake_uvm_tools.hpp"
#include "support/test_scale.hpp"

#include <doctest/doctest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

namespace uvm_events_test {

using deepum_test::fake_uvm_tools;

constexpr std::uint64_t block = 1u << 21;
constexpr std::uint64_t base = 0x7f1200000000;
constexpr unsigned all_kinds = (1u << DEEPUM_UVM_KINDS) - 1;

/// Options of a reader of the fake that no test has to wait for.
deepum_uvm_options options_of(const fake_uvm_tools& device) {
  deepum_uvm_options o{};
  o.poll_ms = 1;
  o.system = device.system();
  return o;
}

struct closer {
  void operator()(deepum_uvm_events* events) const { deepum_uvm_events_close(events); }
};
using reader = std::unique_ptr<deepum_uvm_events, closer>;

reader open(const deepum_uvm_options& options) {
  deepum_uvm_events* events = nullptr;
  char message[512] = "nothing written";
  const int error = deepum_uvm_events_open(&events, &options, message, sizeof message);
  INFO(message);
  REQUIRE(error == 0);
  REQUIRE(events != nullptr);
  CHECK(std::string(message).empty());
  return reader(events);
}

/// The error of an open that must fail, and its message.
std::pair<int, std::string> refusal(const deepum_uvm_options& options) {
  auto* events = reinterpret_cast<deepum_uvm_events*>(8);
  char message[512] = "";
  const int error = deepum_uvm_events_open(&events, &options, message, sizeof message);
  CHECK(events == nullptr);
  CHECK(error > 0);
  return {error, message};
}

bool names(const std::string& message, const char* part) {
  INFO(message);
  return message.find(part) != std::string::npos;
}

std::vector<deepum_uvm_record> take(const reader& r, std::size_t capacity = 1000) {
  std::vector<deepum_uvm_record> out(capacity);
  out.resize(deepum_uvm_events_take(r.get(), out.data(), capacity));
  return out;
}

deepum_uvm_counts counts(const reader& r) {
  deepum_uvm_counts c;
  deepum_uvm_events_counts(r.get(), &c);
  return c;
}

std::vector<std::uint64_t> addresses(const std::vector<deepum_uvm_record>& records) {
  std::vector<std::uint64_t> out;
  for (const deepum_uvm_record& r : records)
    out.push_back(r.address);
  return out;
}

template <class Condition>
void wait_until(Condition condition) {
  while (!condition())
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

/// Kills the thread, so that a test alone decides when the queue is read.
void end_thread(fake_uvm_tools& device, const reader& r) {
  device.fail_polls(EIO);
  wait_until([&] { return counts(r).thread_alive == 0; });
}

TEST_CASE("uvm_events: every record of the driver arrives with all its fields") {
  fake_uvm_tools device;
  deepum_uvm_options o = options_of(device);
  o.kinds = all_kinds;
  const reader r = open(o);
  CHECK(device.enabled_types() == (1u << 1 | 1u << 2 | 1u << 3 | 1u << 5));

  device.push_fault(base + 4096, DEEPUM_UVM_ATOMIC, 500, 77, 2);
  device.push_cpu_fault(base + 8192, DEEPUM_UVM_WRITE, 900);
  device.push_migration(base, block, 0, 3, 600, DEEPUM_UVM_CAUSE_PREFETCH);
  device.push_eviction(base + block, 65536, 3, 0, 1234);
  device.push_bytes({5});
  const auto got = take(r);
  REQUIRE(got.size() == 5);

  const deepum_uvm_record& fault = got[0];
  CHECK(fault.kind == DEEPUM_UVM_FAULT);
  CHECK(fault.order == 1);
  CHECK(fault.address == base + 4096);
  CHECK(fault.access == DEEPUM_UVM_ATOMIC);
  CHECK(fault.gpu_time == 500);
  CHECK(fault.cpu_time == 500 + fake_uvm_tools::cpu_lag);
  CHECK(fault.batch == 77);
  CHECK(fault.gpu == 2);
  CHECK(fault.repeats == 1);
  CHECK(fault.bytes == 0);

  const deepum_uvm_record& cpu = got[1];
  CHECK(cpu.kind == DEEPUM_UVM_CPU_FAULT);
  CHECK(cpu.order == 2);
  CHECK(cpu.address == base + 8192);
  CHECK(cpu.access == DEEPUM_UVM_WRITE);
  CHECK(cpu.cpu_time == 900);
  CHECK(cpu.gpu == 0);

  const deepum_uvm_record& migration = got[2];
  CHECK(migration.kind == DEEPUM_UVM_MIGRATION);
  CHECK(migration.address == base);
  CHECK(migration.bytes == block);
  CHECK(migration.gpu == 0);
  CHECK(migration.to == 3);
  CHECK(migration.gpu_time == 600);
  CHECK(migration.cpu_time == 600 + fake_uvm_tools::cpu_lag);
  CHECK(migration.cause == DEEPUM_UVM_CAUSE_PREFETCH);

  const deepum_uvm_record& eviction = got[3];
  CHECK(eviction.kind == DEEPUM_UVM_EVICTION);
  CHECK(eviction.address == base + block);
  CHECK(eviction.bytes == 65536);
  CHECK(eviction.gpu == 3);
  CHECK(eviction.to == 0);
  CHECK(eviction.gpu_time == 1234);
  CHECK(eviction.cause == DEEPUM_UVM_CAUSE_EVICTION);

  CHECK(got[4].kind == DEEPUM_UVM_OVERFLOW);
  CHECK(got[4].order == 5);

  const deepum_uvm_counts c = counts(r);
  CHECK(c.read == 5);
  CHECK(c.handed_over == 5);
  CHECK(c.waiting == 0);
  CHECK(c.driver_branch == 580);
}

TEST_CASE("uvm_events: evictions are kept apart from other migrations as asked") {
  fake_uvm_tools device;
  deepum_uvm_options o = options_of(device);
  o.kinds = 1u << DEEPUM_UVM_EVICTION;
  const reader evictions = open(o);
  CHECK(device.enabled_types() == 1u << 2);
  o.kinds = 1u << DEEPUM_UVM_MIGRATION;
  const reader migrations = open(o);
  device.push_migration(base, block);
  device.push_eviction(base + block, block);

  const auto out = take(evictions);
  REQUIRE(out.size() == 1);
  CHECK(out[0].kind == DEEPUM_UVM_EVICTION);
  CHECK(out[0].address == base + block);
  CHECK(counts(evictions).filtered == 1);

  const auto all = take(migrations);
  REQUIRE(all.size() == 2);
  CHECK(all[1].kind == DEEPUM_UVM_MIGRATION);
  CHECK(all[1].cause == DEEPUM_UVM_CAUSE_EVICTION);
}

TEST_CASE("uvm_events: a flush has the driver write what it kept, and says why it could not") {
  fake_uvm_tools device;
  deepum_uvm_options o = options_of(device);
  o.kinds = 1u << DEEPUM_UVM_MIGRATION;
  const reader r = open(o);
  device.keep_until_flush();
  device.push_migration(base, block);
  CHECK(take(r).empty());
  device.fail_request(67, EINVAL);
  CHECK(deepum_uvm_events_flush(r.get()) == EINVAL);
  device.fail_request(67, 0);
  device.refuse(67, fake_uvm_tools::illegal_action);
  CHECK(deepum_uvm_events_flush(r.get()) == EIO);
  CHECK(take(r).empty());
  device.refuse(67, 0);
  CHECK(deepum_uvm_events_flush(r.get()) == 0);
  CHECK(take(r).size() == 1);
}

TEST_CASE("uvm_events: each access of the driver has its name, and what has none is counted") {
  fake_uvm_tools device;
  const reader r = open(options_of(device));
  for (std::uint8_t access = 0; access < 6; ++access) {
    fake_uvm_tools::record raw{};
    raw[0] = 3;
    raw[2] = access;
    device.push_bytes(raw);
  }
  const auto got = take(r);
  REQUIRE(got.size() == 4);
  CHECK(got[0].access == DEEPUM_UVM_READ);
  CHECK(got[1].access == DEEPUM_UVM_WRITE);
  CHECK(got[2].access == DEEPUM_UVM_ATOMIC);
  CHECK(got[3].access == DEEPUM_UVM_PREFETCH_ACCESS);
  CHECK(counts(r).unknown == 2);
  CHECK(counts(r).read == 6);
}

TEST_CASE("uvm_events: without options it reads GPU faults alone") {
  fake_uvm_tools device;
  const reader r = open(options_of(device));
  CHECK(device.enabled_types() == 1u << 3);
  device.push_migration(base, block);
  device.push_fault(base);
  CHECK(addresses(take(r)) == std::vector<std::uint64_t>{base});
}

TEST_CASE("uvm_events: among several descriptors it finds the one with the VA space") {
  fake_uvm_tools device;
  device.set_descriptors({{3, "/dev/nvidia-uvm-tools"},
                          {4, "/dev/nvidia0"},
                          {5, "nvidia-uvm"},
                          {6, "/tmp/not-nvidia-uvm"},
                          {20, "/dev/nvidia-uvm"},
                          {21, "/dev/nvidia-uvm"},
                          {22, "/dev/nvidia-uvm", true},
                          {23, "/dev/nvidia-uvm", true}});
  const reader r = open(options_of(device));
  CHECK(device.attach_attempts() == std::vector<int>{20, 21, 22});
  CHECK(counts(r).uvm_descriptor == 22);

  deepum_uvm_options o = options_of(device);
  o.uvm_descriptor = 23;
  CHECK(counts(open(o)).uvm_descriptor == 23);
  o.uvm_descriptor = 21;
  CHECK(refusal(o).first == EPERM);
}

TEST_CASE("uvm_events: every known branch is spoken to in its own layout") {
  for (const char* version : {"515.43.04", "535.54.03", "550.40.07", "555.42.02", "560.28.03", "565.57.01", "570.86.15",
                              "575.51.02", "580.65.06", "615.71.09"}) {
    CAPTURE(version);
    fake_uvm_tools device;
    device.set_version(version);
    const reader r = open(options_of(device));
    CHECK(counts(r).driver_branch == static_cast<unsigned>(std::stoi(version)));
    device.push_fault(base);
    CHECK(take(r).size() == 1);

    // A refusal is seen wherever the branch has its status.
    device.refuse_attach(0x51);
    const auto [error, message] = refusal(options_of(device));
    CHECK(error == EPERM);
    CHECK(names(message, "0x51"));
  }
}

TEST_CASE("uvm_events: an unknown branch is refused by name, unless the caller vouches for it") {
  fake_uvm_tools device;
  device.set_version("470.256.02");
  auto [error, message] = refusal(options_of(device));
  CHECK(error == ENOTSUP);
  CHECK(names(message, "470.256.02"));
  CHECK(names(message, "515 to 615"));
  CHECK(names(message, "driver_branch to 515"));
  CHECK(device.attach_attempts().empty());

  device.set_version("700.10");
  std::tie(error, message) = refusal(options_of(device));
  CHECK(error == ENOTSUP);
  CHECK(names(message, "700.10"));
  CHECK(names(message, "driver_branch to 615"));

  deepum_uvm_options o = options_of(device);
  o.driver_branch = 615;
  const reader r = open(o);
  CHECK(counts(r).driver_branch == 615);
}

TEST_CASE("uvm_events: the version is found in either file and in the lines of both kinds of driver") {
  const std::string proc = "/proc/driver/nvidia/version", sys = "/sys/module/nvidia/version";
  fake_uvm_tools device;
  device.set_file(proc, "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.14  Thu Feb 22 01:44:30 UTC 2024\n");
  CHECK(counts(open(options_of(device))).driver_branch == 550);
  device.set_file(proc, "NVRM version: 12 x86_64 5. 7a.1 .5 570.9\n");
  CHECK(counts(open(options_of(device))).driver_branch == 570);
  device.remove_file(proc);
  device.set_file(sys, "575.64\n");
  CHECK(counts(open(options_of(device))).driver_branch == 575);
  device.set_file(proc, "no version here\n");
  CHECK(counts(open(options_of(device))).driver_branch == 575);
  device.set_file(sys, std::string(5000, '9'));
  CHECK(refusal(options_of(device)).first == ENOENT);
  device.set_file(sys, std::string(5000, ' ') + "580.1");
  CHECK(refusal(options_of(device)).first == ENOENT);
  device.set_file(sys, "");
  CHECK(refusal(options_of(device)).first == ENOENT);
}

TEST_CASE("uvm_events: what is missing is named, with what to do, and nothing is left behind") {
  fake_uvm_tools device;
  deepum_uvm_options o = options_of(device);
  int expected = 0;
  const char* part = "";
  SUBCASE("no driver") {
    device.set_version("");
    expected = ENOENT;
    part = "load the driver";
  }
  SUBCASE("no device node") {
    device.set_version("");
    o.driver_branch = 580;
    expected = ENOENT;
    part = "nvidia-modprobe";
  }
  SUBCASE("no right to the device") {
    device.fail_open(EACCES);
    expected = EACCES;
    part = "0666";
  }
  SUBCASE("no descriptors left") {
    device.fail_open(EMFILE);
    expected = EMFILE;
    part = "/dev/nvidia-uvm-tools";
  }
  SUBCASE("CUDA is not initialised") {
    device.set_descriptors({{0, "/dev/null"}});
    expected = ENODEV;
    part = "initialise CUDA";
  }
  SUBCASE("descriptors cannot be listed") {
    device.fail_descriptors(EACCES);
    expected = EACCES;
    part = "/proc/self/fd";
  }
  SUBCASE("no VA space among the descriptors") {
    device.set_descriptors({{7, "/dev/nvidia-uvm"}, {8, "/dev/nvidia-uvm"}});
    expected = EPERM;
    part = "all 2 open";
  }
  SUBCASE("the driver refuses") {
    device.refuse_attach(0x56);
    expected = EPERM;
    part = "0x56";
  }
  SUBCASE("the driver does not know the request") {
    device.fail_request(56, ENOTTY);
    expected = ENOTTY;
    part = "does not understand";
  }
  SUBCASE("no threshold") {
    device.refuse(57, 0x1f);
    expected = EIO;
    part = "threshold";
  }
  SUBCASE("threshold fails") {
    device.fail_request(57, EINTR);
    expected = EINTR;
    part = "threshold";
  }
  SUBCASE("no events") {
    device.refuse(58, 0x1f);
    expected = EIO;
    part = "0x1f";
  }
  SUBCASE("no memory for the queue") {
    device.fail_map(0);
    expected = ENOMEM;
    part = "queue of 65536";
  }
  SUBCASE("no memory for the control page") {
    device.fail_map(1);
    expected = ENOMEM;
    part = "queue of 65536";
  }
  const auto [error, message] = refusal(o);
  CHECK(error == expected);
  CHECK(names(message, part));
  CHECK(device.open_count() == 0);
  CHECK(device.mapping_count() == 0);
  CHECK_FALSE(device.unmapped_too_early());
}

TEST_CASE("uvm_events: options that make no sense are refused before anything is opened") {
  fake_uvm_tools device;
  deepum_uvm_options o = options_of(device);
  deepum_uvm_system lame = *device.system();
  const char* part = "";
  SUBCASE("queue of one") {
    o.queue_records = 1;
    part = "queue_records is 1";
  }
  SUBCASE("queue no power of two") {
    o.queue_records = 48;
    part = "queue_records is 48";
  }
  SUBCASE("queue too long") {
    o.queue_records = 1u << 23;
    part = "queue_records";
  }
  SUBCASE("ring too long") {
    o.ring_records = (1u << 24) + 1;
    part = "ring_records";
  }
  SUBCASE("unknown kind") {
    o.kinds = 1u << DEEPUM_UVM_KINDS;
    part = "kinds is 0x20";
  }
  SUBCASE("range beyond the end") {
    o.first = std::numeric_limits<std::uintptr_t>::max() - 10;
    o.size = 12;
    part = "range";
  }
  SUBCASE("time-out below zero") {
    o.poll_ms = -1;
    part = "poll_ms is -1";
  }
  SUBCASE("time-out too long") {
    o.poll_ms = 1001;
    part = "poll_ms";
  }
  SUBCASE("descriptor below zero") {
    o.uvm_descriptor = -1;
    part = "uvm_descriptor";
  }
  SUBCASE("system with a hole") {
    lame.poll = nullptr;
    o.system = &lame;
    part = "system";
  }
  const auto [error, message] = refusal(o);
  CHECK(error == EINVAL);
  CHECK(names(message, part));
  CHECK(device.attach_attempts().empty());
}

TEST_CASE("uvm_events: the message fits whatever room there is, and none is fine") {
  fake_uvm_tools device;
  device.set_version("700.10");
  const deepum_uvm_options o = options_of(device);
  deepum_uvm_events* events = nullptr;
  char message[8] = {'x', 'x', 'x', 'x', 'x', 'x', 'x', 'x'};
  CHECK(deepum_uvm_events_open(&events, &o, message, 4) == ENOTSUP);
  CHECK(std::string(message) == "dri");
  CHECK(message[4] == 'x');
  CHECK(deepum_uvm_events_open(&events, &o, message, 0) == ENOTSUP);
  CHECK(deepum_uvm_events_open(&events, &o, nullptr, 100) == ENOTSUP);
  CHECK(deepum_uvm_events_open(nullptr, &o, nullptr, 0) == EINVAL);
  deepum_uvm_events_close(nullptr);
}

TEST_CASE("uvm_events: on a machine without the device the real system says so") {
  if (access("/dev/nvidia-uvm-tools", F_OK) == 0) return;
  const deepum_uvm_options o{};
  const auto [error, message] = refusal(o);
  CHECK(error == ENOENT);
  CHECK(names(message, "driver"));

  deepum_uvm_options vouched{};
  vouched.driver_branch = 580;
  CHECK(names(refusal(vouched).second, "no /dev/nvidia-uvm-tools"));
  deepum_uvm_events* events = nullptr;
  CHECK(deepum_uvm_events_open(&events, nullptr, nullptr, 0) == ENOENT);
}

TEST_CASE("uvm_events: take reads what the driver has just written, however small its queue wraps") {
  fake_uvm_tools device;
  deepum_uvm_options o = options_of(device);
  o.queue_records = 4;
  const reader r = open(o);
  end_thread(device, r);
  std::uint64_t next = 0, expected = 0;
  for (int round = 0; round < 50; ++round) {
    const int burst = round % 4;
    for (int i = 0; i < burst; ++i)
      device.push_fault(base + block * next++);
    const auto got = take(r);
    REQUIRE(static_cast<int>(got.size()) == burst);
    for (const deepum_uvm_record& record : got) {
      CHECK(record.address == base + block * expected++);
      CHECK(record.order == expected);
    }
  }
  CHECK(counts(r).dropped_by_driver == 0);
  CHECK(counts(r).resyncs == 0);
  CHECK(device.queued() == 0);
}

TEST_CASE("uvm_events: what the driver drops because its queue is full is counted") {
  fake_uvm_tools device;
  deepum_uvm_options o = options_of(device);
  o.queue_records = 8;
  o.kinds = all_kinds;
  const reader r = open(o);
  end_thread(device, r);
  for (std::uint64_t i = 0; i < 10; ++i)
    device.push_fault(base + block * i);
  device.push_migration(base, block);
  CHECK(counts(r).dropped_by_driver == 4);
  CHECK(counts(r).dropped_faults == 3);
  CHECK(take(r).size() == 7);
  device.push_fault(base + block * 100);
  CHECK(take(r).size() == 1);
  CHECK(counts(r).dropped_by_driver == 4);
  CHECK(counts(r).read == 8);
}

TEST_CASE("uvm_events: a thread empties the queue while nobody takes, and the ring keeps the newest") {
  fake_uvm_tools device;
  deepum_uvm_options o = options_of(device);
  o.queue_records = 64;
  o.ring_records = 10;
  const reader r = open(o);
  for (std::uint64_t i = 0; i < 35; ++i)
    device.push_fault(base + block * i);
  wait_until([&] { return counts(r).read == 35; });
  CHECK(device.queued() == 0);
  CHECK(counts(r).waiting == 10);
  CHECK(counts(r).dropped_by_ring == 25);
  const auto got = take(r);
  REQUIRE(got.size() == 10);
  CHECK(got.front().order == 26);
  CHECK(got.front().address == base + block * 25);
  CHECK(got.back().address == base + block * 34);
  CHECK(counts(r).dropped_by_driver == 0);
}

TEST_CASE("uvm_events: a call to take loses nothing to a ring smaller than the queue") {
  fake_uvm_tools device;
  deepum_uvm_options o = options_of(device);
  o.queue_records = 64;
  o.ring_records = 1;
  const reader r = open(o);
  end_thread(device, r);
  for (std::uint64_t i = 0; i < 20; ++i)
    device.push_fault(base + block * i);
  // Five are handed over, one waits in the ring, and the rest stays with the driver.
  CHECK(take(r, 5).size() == 5);
  CHECK(counts(r).waiting == 1);
  CHECK(device.queued() == 14);
  CHECK(deepum_uvm_events_take(r.get(), nullptr, 100) == 0);
  CHECK(take(r, 0).empty());
  CHECK(device.queued() == 14);
  const auto got = take(r);
  REQUIRE(got.size() == 15);
  CHECK(got.front().address == base + block * 5);
  CHECK(got.back().order == 20);
  CHECK(counts(r).dropped_by_ring == 0);
}

TEST_CASE("uvm_events: lost wake-ups only delay, since the thread looks after every time-out") {
  fake_uvm_tools device;
  deepum_uvm_options o = options_of(device);
  o.queue_records = 8;
  const reader r = open(o);
  device.lose_wake_ups();
  for (std::uint64_t i = 0; i < 100; ++i) {
    device.push_fault(base + block * i);
    if (i % 7 == 6) wait_until([&] { return device.queued() == 0; });
  }
  wait_until([&] { return counts(r).read == 100; });
  CHECK(take(r).size() == 100);
  CHECK(counts(r).dropped_by_driver == 0);
  CHECK(counts(r).timeouts > 0);
  CHECK(counts(r).thread_alive == 1);
}

TEST_CASE("uvm_events: the thread is woken before the queue is full, without a time-out") {
  fake_uvm_tools device;
  deepum_uvm_options o = options_of(device);
  o.queue_records = 16;
  o.poll_ms = 1000;
  const reader r = open(o);
  CHECK(device.threshold() == 4);
  std::uint64_t pushed = 0;
  for (int round = 0; round < 20; ++round) {
    for (int i = 0; i < 4; ++i)
      device.push_fault(base + block * pushed++);
    wait_until([&] { return device.queued() < 4; });
  }
  wait_until([&] { return counts(r).wake_ups > 0; });
  CHECK(counts(r).dropped_by_driver == 0);
  CHECK(take(r).size() == 80);
}

TEST_CASE("uvm_events: an emptied queue wakes nobody") {
  fake_uvm_tools device;
  deepum_uvm_options o = options_of(device);
  o.queue_records = 16;
  const reader r = open(o);
  for (std::uint64_t i = 0; i < 6; ++i)
    device.push_fault(base + block * i);
  wait_until([&] { return counts(r).read == 6; });
  const std::uint64_t timeouts = counts(r).timeouts;
  wait_until([&] { return counts(r).timeouts > timeouts + 1 || counts(r).wake_ups > 30; });
  CHECK(counts(r).wake_ups <= 6);
}

TEST_CASE("uvm_events: a dead thread is reported, and take goes on alone") {
  fake_uvm_tools device;
  const reader r = open(options_of(device));
  CHECK(counts(r).thread_alive == 1);
  end_thread(device, r);
  CHECK(counts(r).poll_errors == 8);
  const int polls = device.poll_count();
  device.push_fault(base);
  device.push_fault(base + block);
  CHECK(counts(r).read == 0);
  CHECK(addresses(take(r)) == std::vector<std::uint64_t>{base, base + block});
  CHECK(device.poll_count() == polls);
}

TEST_CASE("uvm_events: a poll that fails now and then, or is interrupted, does not end the thread") {
  fake_uvm_tools device;
  const reader r = open(options_of(device));
  device.fail_polls(EINTR);
  const int polls = device.poll_count();
  wait_until([&] { return device.poll_count() > polls + 30; });
  CHECK(counts(r).thread_alive == 1);
  CHECK(counts(r).poll_errors == 0);
  for (std::uint64_t round = 1; round <= 4; ++round) {
    device.fail_polls(EIO, 5);
    wait_until([&] { return counts(r).poll_errors == 5 * round; });
    const std::uint64_t timeouts = counts(r).timeouts;
    wait_until([&] { return counts(r).timeouts > timeouts; });
  }
  CHECK(counts(r).thread_alive == 1);
  device.fail_polls(0);
  device.push_fault(base);
  wait_until([&] { return counts(r).read == 1; });
  CHECK(counts(r).thread_alive == 1);
}

TEST_CASE("uvm_events: only addresses in the range are handed over, and ranges that overlap it") {
  fake_uvm_tools device;
  deepum_uvm_options o = options_of(device);
  o.kinds = all_kinds;
  o.first = base;
  o.size = 2 * block;
  const reader r = open(o);
  device.push_fault(base - 4096);
  device.push_fault(base);
  device.push_fault(base + 2 * block - 4096);
  device.push_fault(base + 2 * block);
  device.push_cpu_fault(base - 1);
  device.push_cpu_fault(base + 1);
  device.push_migration(base - block, block);        // ends where the range begins
  device.push_migration(base - block, block + 1);    // reaches into it
  device.push_migration(base - block, 10 * block);   // covers it
  device.push_eviction(base + 2 * block - 1, 4096);  // begins inside
  device.push_eviction(base + 2 * block, 4096);      // begins behind
  device.push_bytes({5});                            // about no address
  const auto got = take(r);
  CHECK(addresses(got) == std::vector<std::uint64_t>{base, base + 2 * block - 4096, base + 1, base - block,
                                                     base - block, base + 2 * block - 1, 0});
  CHECK(got.back().order == 7);
  CHECK(counts(r).filtered == 5);
}

TEST_CASE("uvm_events: a range may reach up to the last address") {
  fake_uvm_tools device;
  deepum_uvm_options o = options_of(device);
  o.first = base;
  o.size = std::numeric_limits<std::uintptr_t>::max() - base + 1;
  const reader r = open(o);
  device.push_fault(base - 1);
  device.push_fault(std::numeric_limits<std::uint64_t>::max());
  CHECK(take(r).size() == 1);
}

TEST_CASE("uvm_events: faults alike in block, access, GPU and batch are one record that counts them") {
  fake_uvm_tools device;
  const reader r = open(options_of(device));
  end_thread(device, r);
  for (std::uint64_t page = 0; page < 350; ++page) {
    device.push_fault(base + page * 4096, DEEPUM_UVM_READ, 100 + page, 5);
    // Others in between change nothing.
    if (page == 100) device.push_fault(base + block, DEEPUM_UVM_READ, 0, 5);
  }
  device.push_fault(base, DEEPUM_UVM_WRITE, 0, 5);             // another access
  device.push_fault(base, DEEPUM_UVM_READ, 0, 6);              // another batch
  device.push_fault(base, DEEPUM_UVM_READ, 0, 6, 2);           // another GPU
  device.push_fault(base + 2 * block, DEEPUM_UVM_READ, 0, 6);  // another block
  device.push_fault(base, DEEPUM_UVM_READ, 0, 6, 2, 2);        // another unit, whose batches are numbered apart
  const auto got = take(r);
  REQUIRE(got.size() == 7);
  CHECK(got[0].address == base);
  CHECK(got[0].gpu_time == 100);
  CHECK(got[0].repeats == 350);
  CHECK(got[1].address == base + block);
  CHECK(got[2].access == DEEPUM_UVM_WRITE);
  CHECK(got[3].batch == 6);
  CHECK(got[4].gpu == 2);
  CHECK(got[5].address == base + 2 * block);
  CHECK(got[6].gpu == 2);
  for (std::size_t i = 1; i < got.size(); ++i)
    CHECK(got[i].repeats == 1);
  CHECK(counts(r).collapsed == 349);
  CHECK(counts(r).read == 356);
}

TEST_CASE("uvm_events: the first of many like faults is there at once, and its repeats are not handed over again") {
  fake_uvm_tools device;
  const reader r = open(options_of(device));
  end_thread(device, r);
  device.push_fault(base, DEEPUM_UVM_READ, 1, 5);
  CHECK(take(r).size() == 1);
  device.push_fault(base + 4096, DEEPUM_UVM_READ, 2, 5);
  CHECK(take(r).empty());
  device.push_fault(base + 8192, DEEPUM_UVM_READ, 3, 5);
  device.push_fault(base + block, DEEPUM_UVM_READ, 4, 5);
  const auto got = take(r);
  REQUIRE(got.size() == 1);
  CHECK(got[0].address == base + block);
  CHECK(got[0].repeats == 1);
  CHECK(got[0].order == 2);
  CHECK(counts(r).collapsed == 2);
}

TEST_CASE("uvm_events: a repeat of what was handed over is not counted for another that waits") {
  fake_uvm_tools device;
  deepum_uvm_options o = options_of(device);
  o.ring_records = 3;
  const reader r = open(o);
  end_thread(device, r);
  device.push_fault(base);
  device.push_fault(base + block);
  CHECK(take(r).size() == 2);
  device.push_fault(base + 2 * block);
  device.push_fault(base + 3 * block);
  device.push_fault(base);
  device.push_fault(base + 3 * block);
  take(r, 0);
  const auto got = take(r);
  REQUIRE(got.size() == 2);
  CHECK(got[0].repeats == 1);
  CHECK(got[1].repeats == 2);
}

TEST_CASE("uvm_events: a fault that the ring dropped is recorded again when it repeats") {
  fake_uvm_tools device;
  deepum_uvm_options o = options_of(device);
  o.ring_records = 2;
  o.queue_records = 64;
  const reader r = open(o);
  device.push_fault(base, DEEPUM_UVM_READ, 1, 5);
  for (std::uint64_t i = 1; i < 4; ++i)
    device.push_fault(base + block * i, DEEPUM_UVM_READ, 1, 5);
  wait_until([&] { return counts(r).read == 4; });
  device.push_fault(base + 4096, DEEPUM_UVM_READ, 2, 5);
  device.push_fault(base + block * 3, DEEPUM_UVM_READ, 2, 5);
  wait_until([&] { return counts(r).read == 6; });
  const auto got = take(r);
  REQUIRE(got.size() == 2);
  CHECK(got[0].address == base + block * 3);
  CHECK(got[0].repeats == 2);
  CHECK(got[1].address == base + 4096);
  CHECK(counts(r).dropped_by_ring == 3);
}

TEST_CASE("uvm_events: keep_repeats hands every fault over") {
  fake_uvm_tools device;
  deepum_uvm_options o = options_of(device);
  o.keep_repeats = 1;
  const reader r = open(o);
  for (std::uint64_t page = 0; page < 100; ++page)
    device.push_fault(base + page * 4096, DEEPUM_UVM_READ, 0, 5);
  CHECK(take(r).size() == 100);
  CHECK(counts(r).collapsed == 0);
}

TEST_CASE("uvm_events: collapsing loses no block of any batch, whatever the order") {
  // Against a set: each (block, access, GPU, batch) that was pushed comes out, and the repeats add up.
  std::mt19937_64 random(1);
  fake_uvm_tools device;
  const reader r = open(options_of(device));
  std::set<std::tuple<std::uint64_t, unsigned, unsigned, unsigned>> pushed, got;
  std::uint64_t total = 0, repeats = 0;
  std::vector<deepum_uvm_record> out(64);
  for (std::size_t i = 0; i < deepum_test::scaled(20000); ++i) {
    const std::uint64_t b = random() % 5000;
    const auto access = static_cast<deepum_uvm_access>(random() % 3);
    const auto batch = static_cast<std::uint32_t>(i / 500);
    const auto gpu = static_cast<std::uint8_t>(1 + random() % 2);
    for (std::uint64_t n = random() % 4 + 1; n > 0; --n, ++total) {
      device.push_fault(base + b * block + random() % 512 * 4096, access, i, batch, gpu);
    }
    pushed.emplace(b, access, gpu, batch);
    if (i % 37 == 0 || i + 1 == deepum_test::scaled(20000)) {
      for (std::size_t n = out.size(); n == out.size();) {
        n = deepum_uvm_events_take(r.get(), out.data(), out.size());
        for (std::size_t k = 0; k < n; ++k) {
          got.emplace((out[k].address - base) / block, out[k].access, out[k].gpu, out[k].batch);
          repeats += out[k].repeats;
        }
      }
    }
  }
  CHECK(got == pushed);
  CHECK(counts(r).read == total);
  CHECK(counts(r).handed_over + counts(r).collapsed == total);
  CHECK(repeats <= total);
}

TEST_CASE("uvm_events: indices that somebody wrote over cost records, never a read out of bounds") {
  fake_uvm_tools device;
  deepum_uvm_options o = options_of(device);
  o.queue_records = 8;
  const reader r = open(o);
  end_thread(device, r);
  device.push_fault(base);
  device.push_fault(base + block);

  SUBCASE("put beyond the queue") {
    device.overwrite_indices({}, 0xdeadbee5);  // 5 in the queue
    CHECK(take(r).empty());
    CHECK(counts(r).resyncs == 1);
    CHECK(counts(r).dropped_by_resync == 5);
    CHECK(take(r).empty());
    CHECK(counts(r).resyncs == 1);
  }
  SUBCASE("get beyond the queue") {
    device.overwrite_indices(0xffffffff, {});
    CHECK(take(r).empty());
    CHECK(counts(r).resyncs == 1);
    CHECK(counts(r).dropped_by_resync == 2);
  }
  SUBCASE("get elsewhere in the queue") {
    device.overwrite_indices(6, {});
    CHECK(take(r).empty());
    CHECK(counts(r).resyncs == 1);
  }
  SUBCASE("both") {
    device.overwrite_indices(0x80000001, 0x7fffffff);
    CHECK(take(r).empty());
    CHECK(counts(r).resyncs == 1);
  }
  SUBCASE("put elsewhere in the queue: slots that hold no record are no records") {
    device.overwrite_indices({}, 7);
    CHECK(addresses(take(r)) == std::vector<std::uint64_t>{base, base + block});
    CHECK(counts(r).unknown == 5);
  }
  SUBCASE("put behind what was read: no record comes twice") {
    CHECK(take(r).size() == 2);
    device.overwrite_indices({}, 1);
    CHECK(take(r).empty());
    CHECK(counts(r).unknown == 7);
  }

  // Whatever it was, the next records arrive.
  for (std::uint64_t i = 0; i < 30; ++i) {
    device.push_fault(base + block * (10 + i));
    CHECK(addresses(take(r)) == std::vector<std::uint64_t>{base + block * (10 + i)});
  }
  CHECK(counts(r).dropped_by_driver == 0);
}

TEST_CASE("uvm_events: a thread survives indices that are written over all the time") {
  fake_uvm_tools device;
  deepum_uvm_options o = options_of(device);
  o.queue_records = 16;
  const reader r = open(o);
  std::mt19937 random(2);
  for (std::size_t i = 0; i < deepum_test::scaled(3000); ++i) {
    device.overwrite_indices(random() % 2 ? std::optional<std::uint32_t>(random()) : std::nullopt,
                             random() % 2 ? std::optional<std::uint32_t>(random()) : std::nullopt);
    device.push_fault(base + block * (random() % 100));
    if (i % 3 == 0) take(r);
  }
  // Once it stops, the reader finds its way again.
  std::uint32_t batch = 0;
  wait_until([&] {
    device.push_fault(base + block * 2000, DEEPUM_UVM_READ, 0, ++batch);
    const auto got = take(r);
    return !got.empty() && got.back().address == base + block * 2000;
  });
  CHECK(counts(r).thread_alive == 1);
  CHECK(counts(r).resyncs > 0);
}

TEST_CASE("uvm_events: threads that take at once share the records, each exactly once and in order") {
  fake_uvm_tools device;
  deepum_uvm_options o = options_of(device);
  o.queue_records = 1024;
  o.keep_repeats = 1;
  const reader r = open(o);
  const std::uint64_t total = deepum_test::scaled(50000);
  std::atomic<std::uint64_t> received{0};
  std::vector<std::vector<std::uint64_t>> orders(3);
  std::vector<std::thread> takers;
  for (auto& mine : orders) {
    takers.emplace_back([&] {
      std::vector<deepum_uvm_record> out(100);
      while (received.load() < total) {
        const std::size_t n = deepum_uvm_events_take(r.get(), out.data(), out.size());
        for (std::size_t i = 0; i < n; ++i)
          mine.push_back(out[i].order);
        received += n;
        if (n == 0) std::this_thread::yield();
      }
    });
  }
  for (std::uint64_t i = 0; i < total; ++i) {
    while (device.queued() > 1000)
      std::this_thread::yield();
    device.push_fault(base + block * i);
  }
  for (std::thread& t : takers)
    t.join();
  std::vector<std::uint64_t> all;
  for (const auto& mine : orders) {
    CHECK(std::is_sorted(mine.begin(), mine.end()));
    all.insert(all.end(), mine.begin(), mine.end());
  }
  std::sort(all.begin(), all.end());
  REQUIRE(all.size() == total);
  for (std::uint64_t i = 0; i < total; ++i)
    REQUIRE(all[i] == i + 1);
  CHECK(counts(r).dropped_by_driver == 0);
}

TEST_CASE("uvm_events: closing while records arrive stops the driver before the memory goes") {
  fake_uvm_tools device;
  std::atomic<bool> stop{false};
  std::thread writer([&] {
    for (std::uint64_t i = 0; !stop; ++i)
      device.push_fault(base + block * (i % 1000), DEEPUM_UVM_READ, i);
  });
  for (std::size_t i = 0; i < deepum_test::scaled(30); ++i) {
    deepum_uvm_options o = options_of(device);
    o.queue_records = 256;
    const reader r = open(o);
    if (i % 2) take(r);
  }
  stop = true;
  writer.join();
  CHECK(device.open_count() == 0);
  CHECK(device.mapping_count() == 0);
  CHECK(device.disable_count() == static_cast<int>(deepum_test::scaled(30)));
  CHECK_FALSE(device.unmapped_too_early());
}

TEST_CASE("uvm_events: two readers at once both get everything, and close apart") {
  fake_uvm_tools device;
  reader first = open(options_of(device));
  const reader second = open(options_of(device));
  device.push_fault(base);
  CHECK(take(first).size() == 1);
  CHECK(take(second).size() == 1);
  first.reset();
  CHECK(device.open_count() == 1);
  device.push_fault(base + block);
  CHECK(addresses(take(second)) == std::vector<std::uint64_t>{base + block});
}

TEST_CASE("uvm_events: the smallest queue there is holds one record at a time") {
  fake_uvm_tools device;
  deepum_uvm_options o = options_of(device);
  o.queue_records = 2;
  o.ring_records = 1;
  const reader r = open(o);
  end_thread(device, r);
  for (std::uint64_t i = 0; i < 10; ++i) {
    device.push_fault(base + block * i);
    device.push_fault(base);
    CHECK(addresses(take(r, 1)) == std::vector<std::uint64_t>{base + block * i});
  }
  CHECK(counts(r).dropped_by_driver == 10);
}

}  // namespace uvm_events_test
