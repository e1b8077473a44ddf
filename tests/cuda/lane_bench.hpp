#pragma once

#include "cuda/fake_gpu.hpp"
#include <deepum/cuda/device.hpp>
#include <deepum/cuda/managed/block_marks.hpp>
#include <deepum/cuda/managed/migration_lane.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace lane_bench_of_tests {

using namespace deepum_test;
using deepum::access;  // not the one of POSIX
using deepum::advice;
using deepum::block_id;
using deepum::block_range;
using deepum::device_event;
using deepum::location;
using deepum::reason;
using deepum::transfer;
using deepum::cuda::mark;
using deepum::cuda::migration;
using deepum::cuda::migration_context;
using deepum::cuda::migration_lane;
using strings = std::vector<std::string>;

inline constexpr std::uint32_t blocks = 256;

inline void nothing() {}

/// Managed memory with a lane for each direction.
struct bench {
  explicit bench(migration_context migrations = migration_context::own)
      : device(0, {.migrations = migrations}),
        marks(blocks) {
    void* p = nullptr;
    REQUIRE(cudaMallocManaged(&p, blocks * deepum::block_size.count, cudaMemAttachGlobal) == cudaSuccess);
    base = static_cast<std::byte*>(p);
    open();
  }
  ~bench() {
    resume_inward();  // a test that has failed
    close();
    (void)cudaFree(base);
  }
  bench(const bench&) = delete;
  bench& operator=(const bench&) = delete;

  void open() {
    for (auto* lane : {&inward, &outward}) {
      *lane = std::make_unique<migration_lane>(device, base, marks, [this](const device_event& e) { events.add(e); });
    }
  }
  void close() {
    inward.reset();
    outward.reset();
  }

  static migration command(transfer what, std::uint32_t first, std::uint32_t count, std::uint64_t ticket) {
    what.blocks = {block_id{first}, count};
    return {.what = what, .ticket = ticket};
  }
  void prefetch(std::uint32_t first, std::uint32_t count, std::uint64_t ticket) const {
    inward->submit(command(transfer::prefetch(location::device(), reason::predicted), first, count, ticket));
  }
  void evict(std::uint32_t first, std::uint32_t count, std::uint64_t ticket) const {
    outward->submit(command(transfer::evict(location::host(), reason::requested), first, count, ticket));
  }
  void discard(std::uint32_t first, std::uint32_t count, std::uint64_t ticket) const {
    inward->submit(command(transfer::discard(reason::dead), first, count, ticket));
  }
  void advise(std::uint32_t first, std::uint32_t count, advice hint) const {
    inward->submit({.what = {.blocks = {block_id{first}, count}}, .is_hint = true, .hint = hint});
  }
  void settle() const {
    inward->wait();
    outward->wait();
  }
  /// Has the host write blocks, so that there is something to move.
  void populate(std::uint32_t first, std::uint32_t count) const {
    host_touch(base + first * deepum::block_size.count, count * deepum::block_size.count, access::update);
  }
  [[nodiscard]] fake_cuda::block at(std::uint32_t block) const {
    return fake_cuda::block_at(base + block * deepum::block_size.count);
  }
  /// The first blocks: d, h, b (both) or -; capitals for what is discarded.
  [[nodiscard]] std::string places(std::uint32_t count) const {
    std::string s;
    for (std::uint32_t i = 0; i < count; ++i) {
      const auto b = at(i);
      const char c = b.on_device ? (b.on_host ? 'b' : 'd') : (b.on_host ? 'h' : '-');
      s += b.discarded && c != '-' ? static_cast<char>(c - 32) : c;
    }
    return s;
  }
  /// No more of the inward lane's streams begins, which prefetches of the last blocks find out. Then as if nothing had
  /// happened.
  void hold_inward() {
    for (std::uint32_t i = 0; i != migration_lane::pieces_in_flight; ++i) {
      prefetch(blocks - 1 - 2 * i, 1, 0);
      inward->wait();
      held.push_back(stream_of_last_hint());
    }
    events.clear();
    hints_before = prefetches(base).size();
    for (const cudaStream_t s : held) {
      fake_cuda::hold(s);
    }
  }
  void resume_inward() {
    for (const cudaStream_t s : std::exchange(held, {})) {
      fake_cuda::resume(s);
    }
  }
  [[nodiscard]] strings hinted() const { return prefetches(base, hints_before); }

  fake_gpu gpu;
  deepum::cuda::device device;
  std::byte* base = nullptr;
  deepum::cuda::block_marks marks;
  event_list events;
  std::size_t hints_before = 0;
  std::vector<cudaStream_t> held{};
  std::unique_ptr<migration_lane> inward;
  std::unique_ptr<migration_lane> outward;
};

}  // namespace lane_bench_of_tests
