#include "cuda/fake/mappings.hpp"

#include "cuda/fake/calls.hpp"
#include "cuda/fake/memory.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string_view>
#include <vector>

namespace fake_runtime {

bool in_reserved(const void* p, std::size_t size) {
  auto& all = rt().now.reserved;
  const auto* first = static_cast<const std::byte*>(p);
  auto it = all.upper_bound(first);
  if (it == all.begin()) return false;
  --it;
  const auto offset = static_cast<std::size_t>(first - it->first);
  return offset < it->second && size <= it->second - offset;
}

std::map<const std::byte*, view>::iterator find_view(const std::byte* p) {
  auto& views = rt().now.views;
  auto it = views.upper_bound(p);
  if (it == views.begin()) return views.end();
  --it;
  return p < it->first + it->second.size ? it : views.end();
}

bool device_may(const void* p, std::size_t size, access mode, int device) {
  const auto by_device = [&](const view& v) { return allows(v.device[static_cast<std::size_t>(device)], mode); };
  return !in_reserved(p) || all_views(p, size, by_device);
}

void check_access(const void* p, std::size_t size, access mode, int device) {
  if (device_may(p, size, mode, device)) return;
  noted(cudaErrorIllegalAddress);
  throw illegal_access{};
}

namespace {

std::byte* pointer(CUdeviceptr p) { return reinterpret_cast<std::byte*>(static_cast<std::uintptr_t>(p)); }

/// Whether [p, p + size) is made of whole mappings.
bool whole_views(const std::byte* p, std::size_t size) {
  if (size == 0 || !all_views(p, size, [](const view&) { return true; })) return false;
  const auto last = find_view(p + size - 1);
  return find_view(p)->first == p && last->first + last->second.size == p + size;
}

/// Whether nothing is mapped in [p, p + size).
bool no_views(const std::byte* p, std::size_t size) {
  const auto next = rt().now.views.lower_bound(p);
  return find_view(p) == rt().now.views.end() && (next == rt().now.views.end() || next->first >= p + size);
}

/// Whether an operation that is queued or executed on a device uses [p, p + size).
bool in_use(const std::byte* p, std::size_t size, bool by_writes_alone, int device = cudaInvalidDeviceId) {
  const auto overlaps = [&](const use& u) {
    return u.first < p + size && p < u.first + u.size && (u.writes || !by_writes_alone);
  };
  const auto uses_it = [&](const fifo& f) {
    return (device == cudaInvalidDeviceId || f.device == device) &&
           (std::any_of(f.uses.begin(), f.uses.end(), overlaps) ||
            std::any_of(f.queue.begin(), f.queue.end(),
                        [&](const operation& o) { return std::any_of(o.uses.begin(), o.uses.end(), overlaps); }));
  };
  state& s = rt().now;
  return std::any_of(s.streams.begin(), s.streams.end(), [&](auto& entry) { return uses_it(*entry.second); }) ||
         std::any_of(s.destroyed.begin(), s.destroyed.end(), [&](auto& f) { return uses_it(*f); });
}

/// The bytes that handles of this place hold are so many more, or fewer.
void count_held(const physical& m, bool more) {
  state& s = rt().now;
  deepum::bytes& held = m.on_device() ? s.counted.device_handles : s.counted.host_handles;
  deepum::bytes& peak = m.on_device() ? s.counted.device_handles_peak : s.counted.host_handles_peak;
  held = more ? held + deepum::bytes{m.size} : held - deepum::bytes{m.size};
  peak = std::max(peak, held);
  if (m.on_device()) {
    std::size_t& of_device = s.gpus[static_cast<std::size_t>(m.device)].handles;
    of_device = more ? of_device + m.size : of_device - m.size;
  }
}

/// Gives the memory of a handle back if nothing refers to it.
void drop_if_unused(std::map<CUmemGenericAllocationHandle, physical>::iterator it) {
  const physical& m = it->second;
  if (!m.released || m.mappings > 0) return;
  count_held(m, false);
  ::fallocate(rt().file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(m.offset),
              static_cast<off_t>(m.size));
  rt().now.handles.erase(it);
}

bool whole(std::size_t n) { return n != 0 && n % granularity == 0; }
/// Whether a call may name [p, p + size) as far as the granularity goes.
bool whole(CUdeviceptr p, std::size_t size) { return whole(p) && whole(size); }

/// Why the fake has no memory with these properties.
cudaError_t refusal(const CUmemAllocationProp* prop) {
  if (prop == nullptr || prop->type != CU_MEM_ALLOCATION_TYPE_PINNED) return cudaErrorInvalidValue;
  switch (prop->location.type) {
    case CU_MEM_LOCATION_TYPE_DEVICE:
    case CU_MEM_LOCATION_TYPE_HOST_NUMA:
      if (!is_device(prop->location.id)) return cudaErrorInvalidDevice;
      break;
    case CU_MEM_LOCATION_TYPE_HOST:
      break;
    default:
      return cudaErrorInvalidValue;
  }
  return prop->requestedHandleTypes == CU_MEM_HANDLE_TYPE_NONE ? cudaSuccess : cudaErrorNotSupported;
}

CUresult allocation_granularity(std::size_t* answer, const CUmemAllocationProp* prop,
                                CUmemAllocationGranularity_flags) {
  return driver_call("cuMemGetAllocationGranularity", [&](state&) {
    const cudaError_t e = refusal(prop);
    return e == cudaSuccess ? give(answer, granularity) : e;
  });
}

CUresult address_reserve(CUdeviceptr* p, std::size_t size, std::size_t alignment, CUdeviceptr hint,
                         unsigned long long flags) {
  const auto reserve = [&](state& s) {
    if (p == nullptr || !whole(size) || (alignment & (alignment - 1)) != 0 || hint % granularity != 0 || flags != 0) {
      return cudaErrorInvalidValue;
    }
    const std::size_t step = std::max(alignment, granularity);
    const bool fits = s.reserved_bytes <= s.address_space && size <= s.address_space - s.reserved_bytes;
    if (!fits || size > unlimited - step) return cudaErrorMemoryAllocation;
    // More than needed, of which the ends are given back, for the alignment.
    void* mapped = ::mmap(pointer(hint), size + step, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapped == MAP_FAILED) return cudaErrorMemoryAllocation;
    auto* const start = static_cast<std::byte*>(mapped);
    const std::size_t before = (step - reinterpret_cast<std::uintptr_t>(start) % step) % step;
    if (before > 0) ::munmap(start, before);
    ::munmap(start + before + size, step - before);
    s.reserved[start + before] = size;
    s.reserved_bytes += size;
    return give(p, static_cast<CUdeviceptr>(reinterpret_cast<std::uintptr_t>(start + before)));
  };
  return driver_call("cuMemAddressReserve", reserve, unsafe);
}

CUresult address_free(CUdeviceptr p, std::size_t size) {
  const auto free = [&](state& s) {
    const auto it = s.reserved.find(pointer(p));
    if (it == s.reserved.end() || it->second != size) return cudaErrorInvalidValue;
    const auto view = s.views.lower_bound(pointer(p));
    if (view != s.views.end() && view->first < pointer(p) + size) return cudaErrorInvalidValue;
    s.reserved.erase(it);
    s.reserved_bytes -= size;
    if (s.broken == cudaSuccess) {
      ::munmap(pointer(p), size);
    } else {
      s.abandoned.emplace_back(pointer(p), size);
    }
    return cudaSuccess;
  };
  return driver_call("cuMemAddressFree", free, releases | unsafe);
}

CUresult create_handle(CUmemGenericAllocationHandle* handle, std::size_t size, const CUmemAllocationProp* prop,
                       unsigned long long flags) {
  const auto create = [&](state& s) {
    if (handle == nullptr || flags != 0) return cudaErrorInvalidValue;
    if (const cudaError_t e = refusal(prop); e != cudaSuccess) return e;
    if (!whole(size)) return cudaErrorInvalidValue;
    const bool on_device = prop->location.type == CU_MEM_LOCATION_TYPE_DEVICE;
    const int device = on_device ? prop->location.id : cudaCpuDeviceId;
    const bool fits = on_device ? size <= s.gpus[static_cast<std::size_t>(device)].total && make_room(device, size)
                                : size <= s.host_total && s.counted.host_handles.count <= s.host_total - size;
    if (!fits) return cudaErrorMemoryAllocation;
    static const std::vector<char> dirt(granularity, static_cast<char>(poison));
    for (std::size_t done = 0; done < size;) {
      const auto n =
          ::pwrite(rt().file, dirt.data(), std::min(dirt.size(), size - done), static_cast<off_t>(s.file_size + done));
      if (n <= 0) return cudaErrorMemoryAllocation;
      done += static_cast<std::size_t>(n);
    }
    *handle = rt().next_handle += 0x10;
    const physical made{.offset = s.file_size, .size = size, .device = device};
    s.handles[*handle] = made;
    s.file_size += size;
    count_held(made, true);
    return cudaSuccess;
  };
  return driver_call("cuMemCreate", create, unsafe);
}

CUresult release_handle(CUmemGenericAllocationHandle handle) {
  const auto release = [&](state& s) {
    const auto it = s.handles.find(handle);
    if (it == s.handles.end() || it->second.released) return cudaErrorInvalidValue;
    it->second.released = true;
    drop_if_unused(it);
    return cudaSuccess;
  };
  return driver_call("cuMemRelease", release, releases | unsafe);
}

CUresult map_handle(CUdeviceptr p, std::size_t size, std::size_t offset, CUmemGenericAllocationHandle handle,
                    unsigned long long flags) {
  const auto map = [&](state& s) {
    const auto it = s.handles.find(handle);
    if (!whole(p, size) || offset != 0 || flags != 0 || it == s.handles.end() || it->second.released ||
        size > it->second.size || !in_reserved(pointer(p), size)) {
      return cudaErrorInvalidValue;
    }
    if (!no_views(pointer(p), size)) return cudaErrorInvalidValue;
    if (::mmap(pointer(p), size, PROT_NONE, MAP_SHARED | MAP_FIXED, rt().file, static_cast<off_t>(it->second.offset)) ==
        MAP_FAILED) {
      return cudaErrorMemoryAllocation;
    }
    s.views[pointer(p)] = {.size = size, .handle = handle};
    s.counted.most_mappings = std::max<std::uint64_t>(s.counted.most_mappings, ++it->second.mappings);
    ++s.counted.maps;
    return cudaSuccess;
  };
  return driver_call("cuMemMap", map, unsafe);
}

/// What a program gets that takes memory away from work in flight.
cudaError_t taken_while_in_use() {
  if (rt().now.broken == cudaSuccess) ++rt().now.counted.taken_in_use;
  return noted(cudaErrorIllegalAddress, of_driver);
}

CUresult unmap_range(CUdeviceptr p, std::size_t size) {
  const auto unmap = [&](state& s) {
    if (!whole(p, size)) return cudaErrorInvalidValue;
    if (in_reserved(pointer(p), size) && no_views(pointer(p), size)) return cudaSuccess;
    if (!whole_views(pointer(p), size)) return cudaErrorInvalidValue;
    const cudaError_t e = in_use(pointer(p), size, false) ? taken_while_in_use() : cudaSuccess;
    // On a broken device the pages stay: a kernel's body that is still on its way must not crash the program.
    if (s.broken == cudaSuccess) {
      ::mmap(pointer(p), size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    }
    for (auto it = find_view(pointer(p)); it != s.views.end() && it->first < pointer(p) + size;) {
      const auto handle = s.handles.find(it->second.handle);
      --handle->second.mappings;
      drop_if_unused(handle);
      it = s.views.erase(it);
    }
    ++s.counted.unmaps;
    return e;
  };
  return driver_call("cuMemUnmap", unmap, releases | unsafe);
}

/// What a call of cuMemSetAccess asks for.
struct wanted_access {
  std::map<int, CUmemAccess_flags> devices{};
  std::optional<CUmemAccess_flags> host{};
};

cudaError_t read_access(const CUmemAccessDesc* desc, std::size_t count, wanted_access& out) {
  for (std::size_t i = 0; i < count; ++i) {
    const auto [location, flags] = desc[i];
    if (flags != CU_MEM_ACCESS_FLAGS_PROT_NONE && flags != CU_MEM_ACCESS_FLAGS_PROT_READ &&
        flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE) {
      return cudaErrorInvalidValue;
    }
    if (location.type == CU_MEM_LOCATION_TYPE_DEVICE) {
      if (!is_device(location.id)) return cudaErrorInvalidDevice;
      out.devices[location.id] = flags;
    } else if (location.type == CU_MEM_LOCATION_TYPE_HOST || location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA) {
      out.host = flags;
    } else {
      return cudaErrorInvalidValue;
    }
  }
  return cudaSuccess;
}

CUresult set_access(CUdeviceptr p, std::size_t size, const CUmemAccessDesc* desc, std::size_t count) {
  const auto set = [&](state& s) {
    if (!whole(p, size) || !whole_views(pointer(p), size) || desc == nullptr || count == 0) {
      return cudaErrorInvalidValue;
    }
    wanted_access wanted;
    if (const cudaError_t bad = read_access(desc, count, wanted); bad != cudaSuccess) return bad;
    const auto on_host = [&](const view& v) { return !s.handles.at(v.handle).on_device(); };
    if (wanted.host && !all_views(pointer(p), size, on_host)) return cudaErrorNotSupported;
    cudaError_t e = cudaSuccess;
    for (const auto& [device, flags] : wanted.devices) {
      // Where devices cannot share memory, none gets that of another.
      const auto in_reach = [&, d = device](const view& v) {
        const physical& m = s.handles.at(v.handle);
        return s.peers || !m.on_device() || m.device == d;
      };
      if (flags != CU_MEM_ACCESS_FLAGS_PROT_NONE && !all_views(pointer(p), size, in_reach)) {
        return cudaErrorInvalidDevice;
      }
      if (flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE &&
          in_use(pointer(p), size, flags == CU_MEM_ACCESS_FLAGS_PROT_READ, device)) {
        e = taken_while_in_use();
      }
    }
    for (auto it = find_view(pointer(p)); it != s.views.end() && it->first < pointer(p) + size; ++it) {
      view& v = it->second;
      for (const auto& [device, flags] : wanted.devices) {
        v.device[static_cast<std::size_t>(device)] = flags;
      }
      v.host = wanted.host.value_or(v.host);
      const auto some = [&](access mode) {
        return allows(v.host, mode) || std::any_of(v.device.begin(), v.device.end(),
                                                   [mode](CUmemAccess_flags flags) { return allows(flags, mode); });
      };
      if (s.broken != cudaSuccess) continue;  // as in `unmap_range`
      ::mprotect(const_cast<std::byte*>(it->first), v.size,
                 (some(access::read) ? PROT_READ : 0) | (some(access::update) ? PROT_WRITE : 0));
    }
    ++s.counted.access_changes;
    if (!wanted.devices.empty() && !all_views(pointer(p), size, on_host)) {
      ++s.counted.device_mappings;
      s.counted.leaving_beside_access = s.counted.leaving_beside_access + deepum::bytes{s.leaving};
    }
    return e;
  };
  return driver_call("cuMemSetAccess", set, unsafe);
}

}  // namespace

void* mapping_function(const char* name) {
  static const std::map<std::string_view, void*> functions{
      {"cuMemGetAllocationGranularity", reinterpret_cast<void*>(&allocation_granularity)},
      {"cuMemAddressReserve", reinterpret_cast<void*>(&address_reserve)},
      {"cuMemAddressFree", reinterpret_cast<void*>(&address_free)},
      {"cuMemCreate", reinterpret_cast<void*>(&create_handle)},
      {"cuMemRelease", reinterpret_cast<void*>(&release_handle)},
      {"cuMemMap", reinterpret_cast<void*>(&map_handle)},
      {"cuMemUnmap", reinterpret_cast<void*>(&unmap_range)},
      {"cuMemSetAccess", reinterpret_cast<void*>(&set_access)}};
  const auto it = functions.find(name);
  return it == functions.end() ? nullptr : it->second;
}

}  // namespace fake_runtime
