// Memory that the program takes from the driver and gives back: it comes from the arena.

#include "driver.hpp"
#include "memory.hpp"
#include "session.hpp"
#include <deepum/core/block.hpp>
#include <deepum/core/location.hpp>
#include <deepum/error.hpp>

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <set>
#include <string>

namespace deepum_run {

using deepum::bytes;
using deepum::error;

namespace {

/// As the driver gives memory.
constexpr bytes alignment{512};
constexpr std::uint64_t row_alignment = 512;

CUresult as_driver_says(const error& e) {
  switch (e.code()) {
    case deepum::status::out_of_arena_space:
      return CUDA_ERROR_OUT_OF_MEMORY;
    case deepum::status::device_failure:
      return e.native_code() != 0 ? static_cast<CUresult>(e.native_code()) : CUDA_ERROR_UNKNOWN;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

void hint_prefetch(CUdeviceptr p, std::size_t size, bool to_host) {
  if (session* const s = session_of(p)) {
    try {
      s->arena().prefetch(reinterpret_cast<const void*>(p), bytes{size},
                          to_host ? deepum::location::host() : s->arena().memory().place());
    } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): a hint may fail
    }
  }
}

}  // namespace

CUresult take_memory(CUdeviceptr* out, std::size_t size, bool managed, const ordered_in* on) {
  if (out == nullptr || size == 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  CUresult failure = CUDA_SUCCESS;
  session* const s = open_session(failure);
  if (s == nullptr) {
    return failure;
  }
  on == nullptr ? s->share_budget() : s->share_budget_sometimes();
  // More than there is cannot be had; so large a number is not rounded either.
  if (bytes{size} > s->memory().sizes().total) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  try {
    const bytes rounded{(size + alignment.count - 1) / alignment.count * alignment.count};
    // What the library does not see is in no order that it knows.
    void* const p = on == nullptr || unseen_work()
                        ? s->arena().allocate_bytes(rounded, alignment)
                        : s->adopted(on->stream, on->kind).stream.allocate_bytes(rounded, alignment);
    *out = reinterpret_cast<CUdeviceptr>(p);
    const bool is_new = s->memory().add({*out, bytes{size}, managed});
    // While all that there is fits, pages are made on the device now instead of by faults of the first launch.
    const deepum::interpose::memory_sizes left = s->memory().sizes();
    if (is_new && !managed && rounded >= deepum::block_size && left.total - left.free <= s->arena().budget()) {
      hint_prefetch(*out, size, false);
    }
    return CUDA_SUCCESS;
  } catch (const error& e) {
    return as_driver_says(e);
  } catch (const std::exception&) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
}

CUresult give_back(session& s, CUdeviceptr p, const ordered_in* on) {
  if (process_is_over()) {
    return CUDA_SUCCESS;
  }
  // The driver's cuMemFree waits for the device. Here launches that the library knows of are waited for when the memory
  // is used again, so that only others are a reason to wait now. Nobody may wait for the device while a stream is
  // captured.
  if (unseen_work() && !captures_seen()) {
    (void)driver().cuCtxSynchronize();
  }
  const auto known = s.memory().find(p);
  if (!s.memory().remove(p)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (known && known->size > deepum::block_size) {  // what is smaller has no parts
    forget_cuts();
  }
  try {
    const auto* const first = reinterpret_cast<const void*>(p);
    on == nullptr || unseen_work() ? s.arena().deallocate(first)
                                   : s.adopted(on->stream, on->kind).stream.deallocate(first);
    return CUDA_SUCCESS;
  } catch (const error& e) {
    return as_driver_says(e);
  } catch (const std::exception&) {
    return CUDA_ERROR_UNKNOWN;
  }
}

namespace {

/// Pools that other processes share have memory of their own.
struct shared_pools {
  std::mutex mutex;
  std::set<CUmemoryPool> all;
};
shared_pools& pools() {
  static auto* const one = new shared_pools;
  return *one;
}
bool is_shared(CUmemoryPool pool) {
  const std::lock_guard lock(pools().mutex);
  return pools().all.contains(pool);
}

/// What the program would be told of ordinary device memory at an address of the arena.
/// @returns  Whether the driver's own answer was replaced.
bool answer(CUpointer_attribute attribute, void* data, CUdeviceptr p) {
  const session* const s = session_of(p);
  if (s == nullptr || data == nullptr) {
    return false;
  }
  const auto a = const_cast<session*>(s)->memory().find(p);
  if (!a) {
    return false;
  }
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
      *static_cast<CUdeviceptr*>(data) = a->address;
      return true;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
      *static_cast<std::size_t*>(data) = a->size.count;
      return true;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
      *static_cast<unsigned char*>(data) = a->managed ? 1 : 0;  // whether the program has a byte or an int there
      return true;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      if (a->managed) {
        return false;
      }
      *static_cast<CUmemorytype*>(data) = CU_MEMORYTYPE_DEVICE;
      return true;
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
      if (a->managed) {
        return false;
      }
      *static_cast<void**>(data) = nullptr;
      return true;
    default:
      return false;
  }
}

void hint_prefetches(const CUdeviceptr* p, const std::size_t* sizes, std::size_t count, const CUmemLocation* to,
                     const std::size_t* indices, std::size_t places) {
  for (std::size_t i = 0, place = 0; i < count && places != 0; ++i) {
    place += place + 1 < places && indices[place + 1] == i ? 1 : 0;
    hint_prefetch(p[i], sizes[i], to[place].type != CU_MEM_LOCATION_TYPE_DEVICE);
  }
}

}  // namespace

}  // namespace deepum_run

using namespace deepum_run;

DEEPUM_ENTRY_1(init, "cuInit", "cuInit", 2000, (unsigned flags), {
  const CUresult result = real(flags);
  if (result == CUDA_ERROR_NO_DEVICE) {
    say_once("there is no GPU: cuInit has returned CUDA_ERROR_NO_DEVICE");
  } else if (result != CUDA_SUCCESS) {
    say_once(("cuInit has returned error " + std::to_string(result)).c_str());
  }
  return result;
});

// --- Taken and given back ---

DEEPUM_ENTRY_1(alloc, "cuMemAlloc_v2", "cuMemAlloc", 3020, (CUdeviceptr * out, std::size_t size),
               { return take_memory(out, size, false); });
DEEPUM_ENTRY_1(alloc_pitch, "cuMemAllocPitch_v2", "cuMemAllocPitch", 3020,
               (CUdeviceptr * out, std::size_t* pitch, std::size_t width, std::size_t height, unsigned element), {
                 if (pitch == nullptr || width == 0 || height == 0 || (element != 4 && element != 8 && element != 16) ||
                     width > ~std::size_t{0} - row_alignment) {
                   return CUDA_ERROR_INVALID_VALUE;
                 }
                 const std::size_t row = (width + row_alignment - 1) / row_alignment * row_alignment;
                 if (height > ~std::size_t{0} / row) {
                   return CUDA_ERROR_OUT_OF_MEMORY;
                 }
                 *pitch = row;
                 return take_memory(out, row * height, false);
               });
DEEPUM_ENTRY_1(alloc_managed, "cuMemAllocManaged", "cuMemAllocManaged", 6000,
               (CUdeviceptr * out, std::size_t size, unsigned /*flags*/), { return take_memory(out, size, true); });
DEEPUM_ENTRY_2(alloc_async, "cuMemAllocAsync", "_ptsz", "cuMemAllocAsync", 11020,
               (CUdeviceptr * out, std::size_t size, CUstream stream), {
                 if (capturing(stream, stream_kind)) {
                   return real(out, size, stream);  // memory of a graph
                 }
                 const ordered_in on{stream, stream_kind};
                 return take_memory(out, size, false, &on);
               });
DEEPUM_ENTRY_2(alloc_from_pool, "cuMemAllocFromPoolAsync", "_ptsz", "cuMemAllocFromPoolAsync", 11020,
               (CUdeviceptr * out, std::size_t size, CUmemoryPool pool, CUstream stream), {
                 if (capturing(stream, stream_kind) || is_shared(pool)) {
                   return real(out, size, pool, stream);
                 }
                 const ordered_in on{stream, stream_kind};
                 return take_memory(out, size, false, &on);
               });
DEEPUM_ENTRY_1(pool_create, "cuMemPoolCreate", "cuMemPoolCreate", 11020,
               (CUmemoryPool * pool, const CUmemPoolProps* properties), {
                 const CUresult result = real(pool, properties);
                 if (result == CUDA_SUCCESS && (properties->handleTypes != CU_MEM_HANDLE_TYPE_NONE ||
                                                properties->location.type != CU_MEM_LOCATION_TYPE_DEVICE)) {
                   const std::lock_guard lock(pools().mutex);
                   pools().all.insert(*pool);
                 }
                 return result;
               });
DEEPUM_ENTRY_1(pool_destroy, "cuMemPoolDestroy", "cuMemPoolDestroy", 11020, (CUmemoryPool pool), {
  {
    const std::lock_guard lock(pools().mutex);
    pools().all.erase(pool);
  }
  return real(pool);
});
DEEPUM_ENTRY_1(free, "cuMemFree_v2", "cuMemFree", 3020, (CUdeviceptr p), {
  session* const s = session_of(p);
  return s == nullptr ? real(p) : give_back(*s, p);
});
DEEPUM_ENTRY_2(free_async, "cuMemFreeAsync", "_ptsz", "cuMemFreeAsync", 11020, (CUdeviceptr p, CUstream stream), {
  session* const s = session_of(p);
  if (s == nullptr) {
    return real(p, stream);
  }
  const ordered_in on{stream, stream_kind};
  return give_back(*s, p, capturing(stream, stream_kind) ? nullptr : &on);
});

// --- How much there is ---

DEEPUM_ENTRY_1(get_info, "cuMemGetInfo_v2", "cuMemGetInfo", 3020, (std::size_t * free, std::size_t* total), {
  CUresult failure = CUDA_SUCCESS;
  session* const s = open_session(failure);
  if (s == nullptr) {
    return failure;
  }
  const deepum::interpose::memory_sizes found = s->memory().sizes();
  if (free != nullptr) {
    *free = found.free.count;
  }
  if (total != nullptr) {
    *total = found.total.count;
  }
  return CUDA_SUCCESS;
});

// --- What the program asks of its memory: as if it were the device's ---

DEEPUM_ENTRY_1(address_range, "cuMemGetAddressRange_v2", "cuMemGetAddressRange", 3020,
               (CUdeviceptr * base, std::size_t* size, CUdeviceptr p), {
                 session* const s = session_of(p);
                 if (s == nullptr) {
                   return real(base, size, p);
                 }
                 const auto a = s->memory().find(p);
                 if (!a) {
                   return CUDA_ERROR_NOT_FOUND;
                 }
                 if (base != nullptr) {
                   *base = a->address;
                 }
                 if (size != nullptr) {
                   *size = a->size.count;
                 }
                 return CUDA_SUCCESS;
               });
DEEPUM_ENTRY_1(pointer_attribute, "cuPointerGetAttribute", "cuPointerGetAttribute", 4000,
               (void* data, CUpointer_attribute attribute, CUdeviceptr p), {
                 const CUresult result = real(data, attribute, p);
                 return answer(attribute, data, p) ? CUDA_SUCCESS : result;
               });
DEEPUM_ENTRY_1(pointer_attributes, "cuPointerGetAttributes", "cuPointerGetAttributes", 7000,
               (unsigned count, CUpointer_attribute* attributes, void** data, CUdeviceptr p), {
                 const CUresult result = real(count, attributes, data, p);
                 for (unsigned i = 0; result == CUDA_SUCCESS && i < count; ++i) {
                   (void)answer(attributes[i], data[i], p);
                 }
                 return result;
               });
DEEPUM_ENTRY_1(device_attribute, "cuDeviceGetAttribute", "cuDeviceGetAttribute", 2000,
               (int* out, CUdevice_attribute attribute, CUdevice device), {
                 const CUresult result = real(out, attribute, device);
                 // Who asks whether memory can be mapped by itself takes another way where it cannot.
                 if (result == CUDA_SUCCESS && attribute == CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED) {
                   *out = 0;
                 }
                 return result;
               });

// --- Hints of the program's for managed memory are hints to the library ---

DEEPUM_ENTRY_2(prefetch, "cuMemPrefetchAsync", "_ptsz", "cuMemPrefetchAsync", 8000,
               (CUdeviceptr p, std::size_t size, CUdevice to, CUstream stream), {
                 if (session_of(p) == nullptr) {
                   return real(p, size, to, stream);
                 }
                 hint_prefetch(p, size, to == CU_DEVICE_CPU);
                 return CUDA_SUCCESS;
               });
DEEPUM_ENTRY_2(prefetch_v2, "cuMemPrefetchAsync_v2", "_ptsz", "cuMemPrefetchAsync", 12020,
               (CUdeviceptr p, std::size_t size, CUmemLocation to, unsigned flags, CUstream stream), {
                 if (session_of(p) == nullptr) {
                   return real(p, size, to, flags, stream);
                 }
                 hint_prefetch(p, size, to.type != CU_MEM_LOCATION_TYPE_DEVICE);
                 return CUDA_SUCCESS;
               });
// A discard is one that need not be done: what the contents are afterwards is not defined.
DEEPUM_ENTRY_2(prefetch_batch, "cuMemPrefetchBatchAsync", "_ptsz", "cuMemPrefetchBatchAsync", 13000,
               (CUdeviceptr * p, std::size_t* sizes, std::size_t count, CUmemLocation* to, std::size_t* indices,
                std::size_t places, unsigned long long flags, CUstream stream),
               {
                 if (count == 0 || p == nullptr || session_of(p[0]) == nullptr) {
                   return real(p, sizes, count, to, indices, places, flags, stream);
                 }
                 hint_prefetches(p, sizes, count, to, indices, places);
                 return CUDA_SUCCESS;
               });
DEEPUM_ENTRY_2(discard_batch, "cuMemDiscardBatchAsync", "_ptsz", "cuMemDiscardBatchAsync", 13000,
               (CUdeviceptr * p, std::size_t* sizes, std::size_t count, unsigned long long flags, CUstream stream), {
                 return count == 0 || p == nullptr || session_of(p[0]) == nullptr ? real(p, sizes, count, flags, stream)
                                                                                  : CUDA_SUCCESS;
               });
DEEPUM_ENTRY_2(discard_and_prefetch_batch, "cuMemDiscardAndPrefetchBatchAsync", "_ptsz",
               "cuMemDiscardAndPrefetchBatchAsync", 13000,
               (CUdeviceptr * p, std::size_t* sizes, std::size_t count, CUmemLocation* to, std::size_t* indices,
                std::size_t places, unsigned long long flags, CUstream stream),
               {
                 if (count == 0 || p == nullptr || session_of(p[0]) == nullptr) {
                   return real(p, sizes, count, to, indices, places, flags, stream);
                 }
                 hint_prefetches(p, sizes, count, to, indices, places);
                 return CUDA_SUCCESS;
               });
DEEPUM_ENTRY_1(advise, "cuMemAdvise", "cuMemAdvise", 8000,
               (CUdeviceptr p, std::size_t size, CUmem_advise what, CUdevice device),
               { return session_of(p) == nullptr ? real(p, size, what, device) : CUDA_SUCCESS; });
DEEPUM_ENTRY_1(advise_v2, "cuMemAdvise_v2", "cuMemAdvise", 12020,
               (CUdeviceptr p, std::size_t size, CUmem_advise what, CUmemLocation location),
               { return session_of(p) == nullptr ? real(p, size, what, location) : CUDA_SUCCESS; });
DEEPUM_ENTRY_2(attach, "cuStreamAttachMemAsync", "_ptsz", "cuStreamAttachMemAsync", 6000,
               (CUstream stream, CUdeviceptr p, std::size_t size, unsigned flags),
               { return session_of(p) == nullptr ? real(stream, p, size, flags) : CUDA_SUCCESS; });

// --- What is not offered ---

DEEPUM_ENTRY_1(create, "cuMemCreate", "cuMemCreate", 10020,
               (CUmemGenericAllocationHandle * out, std::size_t size, const CUmemAllocationProp* what,
                unsigned long long flags),
               {
                 if (what != nullptr && what->location.type != CU_MEM_LOCATION_TYPE_DEVICE) {
                   return real(out, size, what, flags);
                 }
                 say_once(
                     "the program asks for device memory that it maps itself (cuMemCreate), which has no place in a "
                     "budget: refused; for PyTorch leave expandable_segments out of PYTORCH_CUDA_ALLOC_CONF");
                 return CUDA_ERROR_NOT_SUPPORTED;
               });
DEEPUM_ENTRY_1(ipc_handle, "cuIpcGetMemHandle", "cuIpcGetMemHandle", 4010, (CUipcMemHandle * out, CUdeviceptr p), {
  if (session_of(p) == nullptr) {
    return real(out, p);
  }
  say_once("memory under deepum-run cannot be given to another process (cuIpcGetMemHandle): refused");
  return CUDA_ERROR_NOT_SUPPORTED;
});

// --- Ends ---

DEEPUM_ENTRY_1(stream_destroy, "cuStreamDestroy_v2", "cuStreamDestroy", 4000, (CUstream stream), {
  if (session* const s = current_session()) {
    s->forget(stream);
  }
  return real(stream);
});
DEEPUM_ENTRY_1(reset, "cuDevicePrimaryCtxReset_v2", "cuDevicePrimaryCtxReset", 11000, (CUdevice device), {
  close_session(device);
  return real(device);
});
DEEPUM_ENTRY_1(reset_v1, "cuDevicePrimaryCtxReset", "cuDevicePrimaryCtxReset", 7000, (CUdevice device), {
  close_session(device);
  return real(device);
});
