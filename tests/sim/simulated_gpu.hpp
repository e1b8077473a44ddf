#pragma once

#include "support/transfers.hpp"
#include <deepum/sim/device.hpp>
#include <deepum/sim/kernel.hpp>
#include <deepum/sim/managed_memory.hpp>
#include <deepum/sim/stream.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace deepum_test {

using namespace deepum;
using deepum::access;  // not the one of <unistd.h>
using namespace std::chrono_literals;
using kind = device_event::kind;

/// A device, managed memory on it and a stream.
struct simulated_gpu {
  sim::device device;
  sim::managed_memory memory;
  sim::stream stream;

  /// @param rooms   Blocks of device memory.
  /// @param blocks  Blocks of the arena.
  simulated_gpu(std::uint32_t rooms, std::uint32_t blocks, const sim::profile& p = sim::find_profile("h200_pcie5"),
                sim::device_options options = {})
      : device(p, with(options, rooms)),
        memory(device, block_size * blocks),
        stream(memory) {}

  [[nodiscard]] std::byte* at(std::uint32_t block) const { return memory.base() + block * block_size.count; }
  [[nodiscard]] sim::block_record record(std::uint32_t block) { return memory.record_of(block_id{block}); }
  [[nodiscard]] bool resident(std::uint32_t block) { return record(block).on_device == sim::all_pages; }

  /// The host writes every block, so that all of them are on the host and hold `value`.
  void fill_on_host(std::uint32_t first, std::uint32_t count, unsigned char value = 1) {
    memory.host_access(block_size * first, block_size * count, access::overwrite);
    std::fill_n(reinterpret_cast<unsigned char*>(at(first)), (block_size * count).count, value);
  }
  /// The same without committing memory: for tests of times.
  void populate_on_host(std::uint32_t first, std::uint32_t count) {
    memory.host_access(block_size * first, block_size * count, access::update);
  }

  /// Runs until the command has been carried out. What was polled meanwhile is in `seen`.
  void finish(std::uint64_t command) {
    for (int i = 0; i < 1'000'000; ++i) {
      memory.poll(seen);
      for (const device_event& e : seen) {
        if (e.ticket == command && (e.what == kind::completed || e.what == kind::failed)) {
          return;
        }
      }
      device.host_work(20us);
    }
  }
  /// Runs until no command is left. Polls nothing.
  void settle() {
    sim::event_loop::host_call call(device.loop());
    call.wait([&] { return device.memory_driver().quiet(*memory.space().managed()); });
  }
  void prefetch(std::uint32_t first, std::uint32_t count) {
    deepum_test::prefetch(memory, {block_id{first}, count}, ++ticket);
    settle();
  }
  void evict(std::uint32_t first, std::uint32_t count) {
    deepum_test::evict(memory, {block_id{first}, count}, ++ticket);
    settle();
  }
  void discard(std::uint32_t first, std::uint32_t count) {
    deepum_test::discard(memory, {block_id{first}, count}, ++ticket);
    settle();
  }
  void advise(std::uint32_t first, std::uint32_t count, advice hint, location l = location::device()) {
    memory.advise({block_id{first}, count}, hint, l);
    settle();
  }

  /// The events since the last call.
  std::vector<device_event> events() {
    memory.poll(seen);
    return std::exchange(seen, {});
  }
  /// Those of one kind.
  std::vector<device_event> events(kind which) {
    std::vector<device_event> chosen;
    for (const device_event& e : events()) {
      if (e.what == which) {
        chosen.push_back(e);
      }
    }
    return chosen;
  }

  std::vector<device_event> seen;
  std::uint64_t ticket = 0;

 private:
  static sim::device_options with(sim::device_options options, std::uint32_t rooms) {
    options.memory = block_size * rooms;
    return options;
  }
};

/// A kernel that touches bytes with one access mode and does nothing, for tests of times.
inline auto toucher(access mode) {
  return sim::kernel(
      "touch", [](const std::byte*, std::size_t) {},
      [mode](sim::work& w, const std::byte* p, std::size_t n) {
        switch (mode) {
          case access::read:
            w.reads(p, n);
            break;
          case access::update:
            w.updates(p, n);
            break;
          case access::overwrite:
            w.overwrites(p, n);
            break;
        }
      });
}

/// Touches whole blocks and waits. @returns  The virtual time it took.
inline nanoseconds touch(simulated_gpu& gpu, std::uint32_t first, std::uint32_t count, access mode = access::read) {
  const nanoseconds start = gpu.device.now();
  gpu.stream.launch(1U, 1U, 0, toucher(mode), static_cast<const std::byte*>(gpu.at(first)),
                    static_cast<std::size_t>((block_size * count).count));
  gpu.stream.synchronize();
  return gpu.device.now() - start;
}

/// Adds `value` to floats.
inline auto adder() {
  return sim::kernel(
      "add",
      [](float* x, std::size_t n, float value) {
        for (std::size_t i = 0; i < n; ++i) {
          x[i] += value;
        }
      },
      [](sim::work& w, float* x, std::size_t n, float) { w.updates(x, n * sizeof(float)); });
}

inline double gigabytes_per_second(bytes n, nanoseconds t) {
  return static_cast<double>(n.count) / static_cast<double>(t.count());
}

}  // namespace deepum_test
