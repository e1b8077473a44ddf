// The runtime's calls about memory: allocations, copies, and hints for managed memory.

#include "cuda/fake/calls.hpp"
#include "cuda/fake/mappings.hpp"
#include "cuda/fake/memory.hpp"
#include "cuda/fake/state.hpp"
#include "cuda/fake/streams.hpp"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

using namespace fake_runtime;

namespace {

/// A location as the older calls number it. Nothing where it is none that the fake has.
std::optional<int> number_of(cudaMemLocation l) {
  switch (l.type) {
    case cudaMemLocationTypeDevice:
      return is_device(l.id) ? std::optional(l.id) : std::nullopt;
    case cudaMemLocationTypeHost:
    case cudaMemLocationTypeHostNuma:
    case cudaMemLocationTypeHostNumaCurrent:
      return cudaCpuDeviceId;
    default:
      return std::nullopt;
  }
}

/// A range to prefetch, discard, or both.
struct range {
  void* first;
  std::size_t size;
  int to;  ///< not for a discard
};

/// One operation of a stream on ranges that have been checked.
void put_ranges(cudaStream_t stream, fifo& f, hint::kind what, std::vector<range> ranges) {
  for (const range& r : ranges) {
    rt().now.hints.push_back({what, r.first, r.size, r.to, 0, stream});
    if (what == hint::kind::discard) continue;
    for_each_block(r.first, r.size, [&](block& b, const std::byte*) { b.last_prefetch = r.to; });
  }
  put(f, [what, ranges = std::move(ranges)] {
    for (const range& r : ranges) {
      if (what != hint::kind::prefetch) std::memset(r.first, poison, r.size);
      const guard lock;
      const allocation* a = find_managed(r.first, r.size);
      const auto end = static_cast<std::size_t>(static_cast<std::byte*>(r.first) - a->base) + r.size;
      for_each_block(r.first, r.size, [&](block& b, const std::byte* first) {
        if (what != hint::kind::prefetch) {
          const auto begin = static_cast<std::size_t>(first - a->base);
          b.discarded |= begin % block_bytes == 0 && end >= std::min(begin + block_bytes, a->size);
        }
        if (what == hint::kind::discard) return;
        if (r.to == cudaCpuDeviceId) {
          to_host(b);
        } else {
          to_device(b, r.to, false);
        }
        b.discarded = false;
      });
    }
  });
}

/// The three batch calls. `locations` is not looked at for a discard.
cudaError_t put_batch(cudaStream_t stream, hint::kind what, void** firsts, const std::size_t* sizes, std::size_t count,
                      const cudaMemLocation* locations, const std::size_t* indices, std::size_t n,
                      unsigned long long flags) {
  const bool moves = what != hint::kind::discard;
  if (rt().now.attributes[cudaDevAttrConcurrentManagedAccess] == 0) return cudaErrorNotSupported;
  if (firsts == nullptr || sizes == nullptr || count == 0 || flags != 0 || stream == nullptr ||
      stream == cudaStreamLegacy ||
      (moves && (locations == nullptr || indices == nullptr || n == 0 || n > count || indices[0] != 0))) {
    return cudaErrorInvalidValue;
  }
  for (std::size_t k = 1; k < n; ++k) {
    if (indices[k] <= indices[k - 1] || indices[k] >= count) return cudaErrorInvalidValue;
  }
  std::vector<range> ranges;
  for (std::size_t i = 0, k = 0; i < count; ++i) {
    if (k + 1 < n && indices[k + 1] == i) ++k;
    const std::optional<int> to = moves ? number_of(locations[k]) : cudaInvalidDeviceId;
    if (!to || find_managed(firsts[i], sizes[i]) == nullptr) return cudaErrorInvalidValue;
    ranges.push_back({firsts[i], sizes[i], *to});
  }
  const auto f = find_stream(stream);
  if (f == nullptr) return cudaErrorInvalidResourceHandle;
  put_ranges(stream, *f, what, std::move(ranges));
  return cudaSuccess;
}

}  // namespace

extern "C" {

cudaError_t cudaMallocManaged(void** p, std::size_t size, unsigned flags) {
  return call("cudaMallocManaged", unsafe, [&](guard&) {
    if (size == 0 || (flags != cudaMemAttachGlobal && flags != cudaMemAttachHost)) return cudaErrorInvalidValue;
    if (rt().now.attributes[cudaDevAttrManagedMemory] == 0) return cudaErrorNotSupported;
    return allocate(p, size, cudaMemoryTypeManaged);
  });
}
cudaError_t cudaMalloc(void** p, std::size_t size) {
  return call("cudaMalloc", unsafe, [&](guard&) { return allocate(p, size, cudaMemoryTypeDevice); });
}
cudaError_t cudaMallocHost(void** p, std::size_t size) {
  return call("cudaMallocHost", unsafe, [&](guard&) { return allocate(p, size, cudaMemoryTypeHost); });
}
cudaError_t cudaHostAlloc(void** p, std::size_t size, unsigned) {
  return call("cudaHostAlloc", unsafe, [&](guard&) { return allocate(p, size, cudaMemoryTypeHost); });
}
cudaError_t cudaFree(void* p) {
  return call("cudaFree", releases | unsafe, [&](guard& lock) { return release(lock, p, false); });
}
cudaError_t cudaFreeHost(void* p) {
  return call("cudaFreeHost", releases | unsafe, [&](guard& lock) { return release(lock, p, true); });
}

cudaError_t cudaMemcpyAsync(void* dst, const void* src, std::size_t count, cudaMemcpyKind kind, cudaStream_t stream) {
  return call("cudaMemcpyAsync", 0, [&](guard& lock) {
    if (kind > cudaMemcpyDefault) return cudaErrorInvalidMemcpyDirection;
    // A range that begins in an allocation has to end there.
    for (const void* p : {static_cast<const void*>(dst), src}) {
      if (p == nullptr || (find(p) != nullptr && count > 0 && find(p, count) == nullptr)) return cudaErrorInvalidValue;
    }
    const auto f = find_stream(stream);
    if (f == nullptr) return cudaErrorInvalidResourceHandle;
    if (!device_may(src, count, access::read, f->device) || !device_may(dst, count, access::overwrite, f->device)) {
      return cudaErrorInvalidValue;
    }
    if (count == 0) return cudaSuccess;
    const auto pageable = [](const void* p) { return find(p) == nullptr && !in_reserved(p); };
    const bool waits = pageable(dst) || pageable(src);
    const auto& handles = rt().now.handles;
    const bool leaves = all_views(src, count, [&](const view& v) { return handles.at(v.handle).on_device(); }) &&
                        all_views(dst, count, [&](const view& v) { return !handles.at(v.handle).on_device(); });
    if (leaves) {
      rt().now.in_a_row = count + (rt().now.leaving != 0 ? rt().now.in_a_row : 0);
      rt().now.leaving += count;
      rt().now.counted.leaving_in_a_row = std::max(rt().now.counted.leaving_in_a_row, deepum::bytes{rt().now.in_a_row});
    }
    const nanoseconds leaving_time = leaves ? rt().now.leaving_time : nanoseconds{};
    const auto copy = [=, device = f->device] {
      {
        const guard held;
        check_access(src, count, access::read, device);
        check_access(dst, count, access::overwrite, device);
      }
      touch(src, count, access::read, device);
      touch(dst, count, access::overwrite, device);
      std::memcpy(dst, src, count);
      std::this_thread::sleep_for(leaving_time);
      const guard held;
      rt().now.leaving -= leaves ? count : 0;
    };
    put(*f, copy,
        {{static_cast<const std::byte*>(src), count, false}, {static_cast<const std::byte*>(dst), count, true}});
    return waits ? drain(lock, f) : cudaSuccess;
  });
}
cudaError_t cudaMemcpyPeerAsync(void* dst, int to, const void* src, int from, std::size_t count, cudaStream_t stream) {
  return call("cudaMemcpyPeerAsync", 0, [&](guard&) {
    if (!is_device(to) || !is_device(from)) return cudaErrorInvalidDevice;
    const auto f = find_stream(stream);
    if (f == nullptr) return cudaErrorInvalidResourceHandle;
    const auto there = [&](const void* p, deepum::access mode, int device) {
      return in_reserved(p) ? device_may(p, count, mode, device) : find(p, count) != nullptr;
    };
    if (count == 0) return cudaSuccess;
    if (!there(src, access::read, from) || !there(dst, access::overwrite, to)) return cudaErrorInvalidValue;
    rt().now.counted.peer_copies += deepum::bytes{count};
    const auto copy = [=] {
      {
        const guard held;
        check_access(src, count, access::read, from);
        check_access(dst, count, access::overwrite, to);
      }
      touch(src, count, access::read, from);
      touch(dst, count, access::overwrite, to);
      std::memcpy(dst, src, count);
    };
    put(*f, copy,
        {{static_cast<const std::byte*>(src), count, false}, {static_cast<const std::byte*>(dst), count, true}});
    return cudaSuccess;
  });
}
cudaError_t cudaMemcpyPeer(void* dst, int to, const void* src, int from, std::size_t count) {
  const cudaError_t e = cudaMemcpyPeerAsync(dst, to, src, from, count, nullptr);
  return e == cudaSuccess ? cudaStreamSynchronize(nullptr) : e;
}
cudaError_t cudaMemcpy(void* dst, const void* src, std::size_t count, cudaMemcpyKind kind) {
  const cudaError_t copied = cudaMemcpyAsync(dst, src, count, kind, cudaStreamLegacy);
  return copied != cudaSuccess ? copied : cudaStreamSynchronize(cudaStreamLegacy);
}
/// What is registered is copied as before: in time alone there is a difference.
cudaError_t cudaHostRegister(void* p, std::size_t size, unsigned) {
  return call("cudaHostRegister", unsafe, [&](guard&) {
    return p != nullptr && size != 0 && find(p) == nullptr ? cudaSuccess : cudaErrorInvalidValue;
  });
}
cudaError_t cudaHostUnregister(void* p) {
  return call("cudaHostUnregister", unsafe, [&](guard&) { return p != nullptr ? cudaSuccess : cudaErrorInvalidValue; });
}
cudaError_t cudaMemsetAsync(void* p, int value, std::size_t count, cudaStream_t stream) {
  return call("cudaMemsetAsync", 0, [&](guard&) {
    const auto f = find_stream(stream);
    if (f == nullptr) return cudaErrorInvalidResourceHandle;
    if (count == 0) return cudaSuccess;
    if (in_reserved(p) ? !device_may(p, count, access::overwrite, f->device) : find(p, count) == nullptr) {
      return cudaErrorInvalidValue;
    }
    const auto set = [=, device = f->device] {
      {
        const guard held;
        check_access(p, count, access::overwrite, device);
      }
      touch(p, count, access::overwrite, device);
      std::memset(p, value, count);
    };
    put(*f, set, {{static_cast<const std::byte*>(p), count, true}});
    return cudaSuccess;
  });
}

cudaError_t cudaMemPrefetchAsync(const void* p, std::size_t count, cudaMemLocation location, unsigned flags,
                                 cudaStream_t stream) {
  return call("cudaMemPrefetchAsync", 0, [&](guard&) {
    const auto to = number_of(location);
    if (rt().now.attributes[cudaDevAttrConcurrentManagedAccess] == 0 || !to) return cudaErrorInvalidDevice;
    if (flags != 0 || find_managed(p, count) == nullptr) return cudaErrorInvalidValue;
    const auto f = find_stream(stream);
    if (f == nullptr) return cudaErrorInvalidResourceHandle;
    put_ranges(stream, *f, hint::kind::prefetch, {{const_cast<void*>(p), count, *to}});
    return cudaSuccess;
  });
}
cudaError_t cudaMemPrefetchBatchAsync(void** dptrs, std::size_t* sizes, std::size_t count, cudaMemLocation* locations,
                                      std::size_t* indices, std::size_t n, unsigned long long flags,
                                      cudaStream_t stream) {
  return call("cudaMemPrefetchBatchAsync", 0, [&](guard&) {
    return put_batch(stream, hint::kind::prefetch, dptrs, sizes, count, locations, indices, n, flags);
  });
}
cudaError_t cudaMemDiscardBatchAsync(void** dptrs, std::size_t* sizes, std::size_t count, unsigned long long flags,
                                     cudaStream_t stream) {
  return call("cudaMemDiscardBatchAsync", 0, [&](guard&) {
    return put_batch(stream, hint::kind::discard, dptrs, sizes, count, nullptr, nullptr, 0, flags);
  });
}
cudaError_t cudaMemDiscardAndPrefetchBatchAsync(void** dptrs, std::size_t* sizes, std::size_t count,
                                                cudaMemLocation* locations, std::size_t* indices, std::size_t n,
                                                unsigned long long flags, cudaStream_t stream) {
  return call("cudaMemDiscardAndPrefetchBatchAsync", 0, [&](guard&) {
    return put_batch(stream, hint::kind::discard_and_prefetch, dptrs, sizes, count, locations, indices, n, flags);
  });
}
cudaError_t cudaMemAdvise(const void* p, std::size_t count, cudaMemoryAdvise advice, cudaMemLocation location) {
  return call("cudaMemAdvise", 0, [&](guard&) {
    // These three are about the range alone.
    const bool anywhere = advice == cudaMemAdviseSetReadMostly || advice == cudaMemAdviseUnsetReadMostly ||
                          advice == cudaMemAdviseUnsetPreferredLocation;
    const auto place = anywhere ? cudaInvalidDeviceId : number_of(location);
    if (!place || (*place >= 0 && rt().now.attributes[cudaDevAttrConcurrentManagedAccess] == 0)) {
      return cudaErrorInvalidDevice;
    }
    if (find_managed(p, count) == nullptr || advice < cudaMemAdviseSetReadMostly ||
        advice > cudaMemAdviseUnsetAccessedBy) {
      return cudaErrorInvalidValue;
    }
    rt().now.hints.push_back({hint::kind::advise, p, count, *place, advice, nullptr});
    for_each_block(p, count, [&](block& b, const std::byte*) { advise(b, advice, *place); });
    return cudaSuccess;
  });
}
cudaError_t cudaMemRangeGetAttribute(void* data, std::size_t size, cudaMemRangeAttribute attribute, const void* p,
                                     std::size_t count) {
  return call("cudaMemRangeGetAttribute", 0, [&](guard&) {
    const bool list = attribute == cudaMemRangeAttributeAccessedBy;
    if (find_managed(p, count) == nullptr || (list ? size == 0 || size % 4 != 0 : size != 4)) {
      return cudaErrorInvalidValue;
    }
    // `found` is what all blocks agree on.
    bool all_read_mostly = true;
    unsigned all_accessed_by = ~0U;
    std::optional<int> found;
    for_each_block(p, count, [&](block& b, const std::byte*) {
      all_read_mostly &= b.read_mostly;
      all_accessed_by &= b.accessed_by;
      const bool preferred = attribute == cudaMemRangeAttributePreferredLocation ||
                             attribute == cudaMemRangeAttributePreferredLocationType ||
                             attribute == cudaMemRangeAttributePreferredLocationId;
      const int at = preferred ? b.preferred : b.last_prefetch;
      found = !found || *found == at ? at : cudaInvalidDeviceId;
    });
    std::vector<int> result(size / 4, cudaInvalidDeviceId);
    switch (attribute) {
      case cudaMemRangeAttributeReadMostly:
        result[0] = all_read_mostly ? 1 : 0;
        break;
      case cudaMemRangeAttributeAccessedBy:
        for (int d = 0, n = 0; d < most_devices && n < static_cast<int>(result.size()); ++d) {
          if ((all_accessed_by >> d & 1U) != 0) result[static_cast<std::size_t>(n++)] = d;
        }
        break;
      case cudaMemRangeAttributePreferredLocationType:
      case cudaMemRangeAttributeLastPrefetchLocationType:
        result[0] = *found == cudaInvalidDeviceId ? cudaMemLocationTypeInvalid
                    : *found == cudaCpuDeviceId   ? cudaMemLocationTypeHost
                                                  : cudaMemLocationTypeDevice;
        break;
      default:
        result[0] = *found;
    }
    std::memcpy(data, result.data(), size);
    return cudaSuccess;
  });
}
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* p) {
  return call("cudaPointerGetAttributes", 0, [&](guard&) {
    const allocation* a = find(p);
    const auto v = find_view(static_cast<const std::byte*>(p));
    const bool mapped = v != rt().now.views.end();
    *attributes = {};
    attributes->type = a != nullptr                                        ? a->type
                       : !mapped                                           ? cudaMemoryTypeUnregistered
                       : rt().now.handles.at(v->second.handle).on_device() ? cudaMemoryTypeDevice
                                                                           : cudaMemoryTypeHost;
    const int of_handle = mapped ? std::max(0, rt().now.handles.at(v->second.handle).device) : cudaInvalidDeviceId;
    attributes->device = a != nullptr ? a->device : of_handle;
    attributes->devicePointer = a == nullptr && !mapped ? nullptr : const_cast<void*>(p);
    attributes->hostPointer = attributes->type == cudaMemoryTypeDevice ? nullptr : const_cast<void*>(p);
    return cudaSuccess;
  });
}
}  // extern "C"
