#include "cuda/fake/memory.hpp"

#include "cuda/fake/calls.hpp"
#include "cuda/fake/streams.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <thread>

namespace fake_runtime {

allocation* find(const void* p, std::size_t size) {
  auto& all = rt().now.allocations;
  const auto* first = static_cast<const std::byte*>(p);
  auto it = all.upper_bound(first);
  if (it == all.begin()) return nullptr;
  allocation& a = std::prev(it)->second;
  const auto offset = static_cast<std::size_t>(first - a.base);
  return offset < a.size && size <= a.size - offset ? &a : nullptr;
}

allocation* find_managed(const void* p, std::size_t size) {
  allocation* a = size == 0 ? nullptr : find(p, size);
  return a != nullptr && a->type == cudaMemoryTypeManaged ? a : nullptr;
}

cudaError_t allocate(void** p, std::size_t size, cudaMemoryType type) {
  if (p == nullptr) return cudaErrorInvalidValue;
  if (size == 0) return give(p, static_cast<void*>(nullptr));  // but cudaMallocManaged refuses it
  state& s = rt().now;
  const int device = device_now();
  const std::size_t whole = (size + block_bytes - 1) / block_bytes * block_bytes;
  if (whole < size || (type == cudaMemoryTypeDevice && !make_room(device, size))) return cudaErrorMemoryAllocation;
  // One block more than needed, of which the ends are given back, for the alignment.
  void* mapped =
      ::mmap(nullptr, whole + block_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED) return cudaErrorMemoryAllocation;
  auto* const start = static_cast<std::byte*>(mapped);
  const std::size_t before = (block_bytes - reinterpret_cast<std::uintptr_t>(start) % block_bytes) % block_bytes;
  if (before > 0) ::munmap(start, before);
  ::munmap(start + before + whole, block_bytes - before);

  allocation& a = s.allocations[start + before];
  a = {type, start + before, size, {}, device};
  if (type == cudaMemoryTypeDevice) s.gpus[device].plain += size;
  if (type == cudaMemoryTypeManaged) {
    a.blocks.resize(whole / block_bytes);
    s.counted.managed += deepum::bytes{size};
    s.counted.managed_peak = std::max(s.counted.managed_peak, s.counted.managed);
  }
  *p = a.base;
  return cudaSuccess;
}

void unmap(const allocation& a) { ::munmap(a.base, (a.size + block_bytes - 1) / block_bytes * block_bytes); }

cudaError_t release(guard& lock, void* p, bool host) {
  if (p == nullptr) return cudaSuccess;
  drain_all(lock);
  state& s = rt().now;
  const auto it = s.allocations.find(static_cast<std::byte*>(p));
  if (it == s.allocations.end() || (it->second.type == cudaMemoryTypeHost) != host) return cudaErrorInvalidValue;
  const allocation& a = it->second;
  if (a.type == cudaMemoryTypeDevice) s.gpus[a.device].plain -= a.size;
  if (a.type == cudaMemoryTypeManaged) s.counted.managed -= deepum::bytes{a.size};
  for (block b : a.blocks) {
    leave_device(b);
  }
  unmap(a);
  s.allocations.erase(it);
  return cudaSuccess;
}

// --- Where managed blocks are. ---

namespace {

void copy_to_host(block& b) {
  if (b.on_device && !b.on_host && !b.discarded) ++rt().now.counted.to_host;
  b.on_host = true;
}

}  // namespace

void leave_device(block& b) {
  if (b.on_device) {
    --rt().now.counted.device_blocks;
    --rt().now.gpus[b.device].blocks;
  }
  b.on_device = false;
  b.device = cudaInvalidDeviceId;
}

bool make_room(int device, std::size_t size) {
  state& s = rt().now;
  gpu& g = s.gpus[device];
  while (g.used() + size > g.total) {
    block* victim = nullptr;
    for (auto& [base, a] : s.allocations) {
      for (block& b : a.blocks) {
        if (b.on_device && b.device == device && (victim == nullptr || b.migrated < victim->migrated)) victim = &b;
      }
    }
    if (victim == nullptr) return false;
    if (!victim->discarded) copy_to_host(*victim);
    leave_device(*victim);
    ++s.counted.driver_evictions;
  }
  g.most_used = std::max(g.most_used, g.used() + size);
  return true;
}

void to_device(block& b, int device, bool writes) {
  state& s = rt().now;
  if (!b.on_device || b.device != device) {
    if (!make_room(device, block_bytes)) {
      to_host(b);
      b.on_host = true;
      return;
    }
    if (!b.discarded) {
      s.counted.between_devices += b.on_device ? 1 : 0;
      s.counted.to_device += !b.on_device && b.on_host ? 1 : 0;
    }
    leave_device(b);
    b.on_device = true;
    b.device = device;
    ++s.counted.device_blocks;
    ++s.gpus[device].blocks;
  }
  if (!b.read_mostly || writes) b.on_host = false;
  b.mapped = false;
  b.migrated = ++s.migrations;
}

void to_host(block& b) {
  copy_to_host(b);
  if (!b.read_mostly) leave_device(b);
}

void advise(block& b, cudaMemoryAdvise advice, int place) {
  const unsigned one = place >= 0 ? 1U << static_cast<unsigned>(place) : 0U;
  switch (advice) {
    case cudaMemAdviseSetReadMostly:
      b.read_mostly = true;
      break;
    case cudaMemAdviseUnsetReadMostly:
      if (b.on_device && b.on_host) {
        if (b.preferred == b.device) {
          b.on_host = false;
        } else {
          leave_device(b);
        }
      }
      b.read_mostly = false;
      break;
    case cudaMemAdviseSetPreferredLocation:
      b.preferred = place;
      break;
    case cudaMemAdviseUnsetPreferredLocation:
      b.preferred = cudaInvalidDeviceId;
      break;
    case cudaMemAdviseSetAccessedBy:
      b.accessed_by |= one;
      break;
    case cudaMemAdviseUnsetAccessedBy:
      b.accessed_by &= ~one;
      break;
  }
  if (b.preferred != cudaCpuDeviceId) b.mapped = false;
}

bool reaches(int device, const allocation& a) {
  return a.type != cudaMemoryTypeDevice || a.device == device || rt().now.gpus[device].peers.contains(a.device);
}

void touch(const void* p, std::size_t size, access mode, int device) {
  const bool writes = mode != access::read;
  guard lock;
  // A block stays where it is while the mutex is free: memory is given back when no stream has work left.
  for_each_block(p, size, [&](block& b, const std::byte* first) {
    const auto here = [&] { return b.on_device && b.device == device; };
    const bool host_preferred = !b.read_mostly && b.preferred == cudaCpuDeviceId;
    const bool remote = !b.on_device && host_preferred && ((b.accessed_by >> device & 1U) != 0 || b.mapped);
    if (remote) {
      b.on_host = true;
    } else if (!here() || (b.on_host && writes)) {
      ++rt().now.counted.faults;
      const auto at = clock_now();
      const auto sink = rt().now.sink;
      const auto delay = rt().now.fault_delay;
      lock.unlock();
      if (sink) sink(first, mode, at);
      if (delay > nanoseconds{}) std::this_thread::sleep_for(delay);
      lock.lock();
      if (!b.on_device && host_preferred) {
        b.mapped = b.on_host = true;
      } else {
        to_device(b, device, writes);
      }
    }
    if (writes) b.discarded = false;
  });
}

}  // namespace fake_runtime

namespace deepum_test {

using namespace fake_runtime;

void host_touch(const void* p, std::size_t size, deepum::access mode) {
  const guard lock;
  for_each_block(p, size, [&](block& b, const std::byte*) {
    if (!b.on_host) ++rt().now.counted.host_faults;
    to_host(b);
    if (mode == deepum::access::read) return;
    leave_device(b);
    b.discarded = false;
  });
}

}  // namespace deepum_test
