#include "cuda/fake/streams.hpp"

#include "cuda/fake/calls.hpp"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

namespace fake_runtime {

namespace {

/// The worker.
void work(fifo& f) {
  executing = &f;
  guard lock;
  for (;;) {
    lock.wait([&] { return f.queue.empty() ? f.closing : !f.held || rt().now.broken != cudaSuccess; });
    if (f.queue.empty()) return;
    operation next = std::move(f.queue.front());
    f.queue.pop_front();
    f.uses = std::move(next.uses);
    std::chrono::microseconds delay{};
    if (state& s = rt().now; s.longest_delay.count() > 0) {
      delay = std::chrono::microseconds(s.random() % static_cast<std::uint64_t>(s.longest_delay.count()));
    }
    for (const auto& [other, issued] : next.behind) {
      lock.wait([&, count = issued] { return other->finished >= count || rt().now.broken != cudaSuccess; });
      acquire_order(other.get());
    }
    if (rt().now.broken != cudaSuccess) next.work = nullptr;
    acquire_order(&f);
    lock.unlock();
    if (delay.count() > 0) std::this_thread::sleep_for(delay);
    try {
      if (next.work) next.work();
    } catch (const illegal_access&) {  // the device is broken
    }
    next.work = nullptr;
    lock.lock();
    release_order(&f);
    f.uses.clear();
    ++f.finished;
    rt().changed.notify_all();
  }
}

/// What an operation that is put into `f` now has to wait for: in the legacy stream for that of all blocking ones of
/// its device, in these for that of the legacy one.
std::vector<std::pair<std::shared_ptr<fifo>, std::uint64_t>> others_before(const fifo& f) {
  std::vector<std::pair<std::shared_ptr<fifo>, std::uint64_t>> behind;
  const auto legacy = rt().now.streams.find(legacy_key(f.device));
  if (!f.blocking || legacy == rt().now.streams.end()) return behind;
  const auto add = [&](const std::shared_ptr<fifo>& other) {
    if (other.get() != &f && other->blocking && other->device == f.device && other->finished != other->issued) {
      behind.emplace_back(other, other->issued);
    }
  };
  if (!f.legacy) {
    add(legacy->second);
    return behind;
  }
  for (const auto& [handle, other] : rt().now.streams) {
    add(other);
  }
  std::for_each(rt().now.destroyed.begin(), rt().now.destroyed.end(), add);
  return behind;
}

}  // namespace

std::shared_ptr<fifo> start_stream(const void* handle, bool blocking, bool legacy) {
  auto f = std::make_shared<fifo>();
  f->blocking = blocking;
  f->legacy = legacy;
  f->context = context_now();
  f->device = device_now();
  f->worker = std::thread([f] { work(*f); });
  rt().now.streams[handle] = f;
  return f;
}

std::shared_ptr<fifo> find_stream(cudaStream_t stream) {
  const void* key = is_legacy(stream) ? legacy_key(device_now()) : stream;
  const auto it = rt().now.streams.find(key);
  if (it != rt().now.streams.end()) return it->second;
  return is_legacy(stream) ? start_stream(key, true, true) : nullptr;
}

void end_stream(std::map<const void*, std::shared_ptr<fifo>>::iterator it) {
  it->second->closing = true;
  rt().now.destroyed.push_back(std::move(it->second));
  rt().now.streams.erase(it);
  rt().changed.notify_all();
}

void put(fifo& f, std::function<void()> work, std::vector<use> uses) {
  if (f.capturing) {
    ++rt().now.counted.captured;
    if (f.recording) f.recording->operations.push_back(std::move(work));
    return;
  }
  release_order(&f);
  f.queue.push_back({std::move(work), std::move(uses), others_before(f)});
  ++f.issued;
  rt().changed.notify_all();
}

bool done(const std::shared_ptr<recording>& r) {
  if (r == nullptr) return true;
  if (r->done) acquire_order(r.get());
  return r->done;
}

cudaError_t wait(guard& lock, const std::shared_ptr<recording>& r) {
  lock.wait([&r] { return rt().now.broken != cudaSuccess || done(r); });
  return rt().now.broken;
}

cudaError_t drain(guard& lock, const std::shared_ptr<fifo>& f) {
  lock.wait([&f, issued = f->issued] { return f->finished >= issued; });
  acquire_order(f.get());
  return rt().now.broken;
}

cudaError_t drain_all(guard& lock, int device) {
  std::vector<std::shared_ptr<fifo>> all = rt().now.destroyed;
  for (auto& [handle, f] : rt().now.streams) {
    all.push_back(f);
  }
  for (auto& f : all) {
    if (device == cudaInvalidDeviceId || f->device == device) {
      (void)drain(lock, f);
    }
  }
  return rt().now.broken;
}

cudaError_t spoiled_capture(fifo& f) {
  ++rt().now.counted.capture_violations;
  f.invalidated = true;
  return cudaErrorStreamCaptureUnsupported;
}

namespace {
/// Of the current device, and captured.
bool blocks_legacy(const fifo& f) { return f.capturing && f.blocking && f.device == device_now(); }
}  // namespace

bool legacy_is_blocked(cudaStream_t stream) {
  return is_legacy(stream) && std::any_of(rt().now.streams.begin(), rt().now.streams.end(),
                                          [](auto& entry) { return blocks_legacy(*entry.second); });
}

cudaError_t spoiled_by_legacy() {
  spoils_captures(blocks_legacy);
  return cudaErrorStreamCaptureImplicit;
}

}  // namespace fake_runtime
