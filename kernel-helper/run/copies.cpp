// Copies and fills: launches that declare exactly what they read and overwrite.

#include "copy_sides.hpp"
#include "driver.hpp"
#include "session.hpp"
#include <deepum/interpose/copy_extent.hpp>

#include <cstddef>
#include <cstdint>

using namespace deepum_run;
using deepum::interpose::copy_extent;
using deepum::interpose::read_by;
using deepum::interpose::written_by;

namespace {

/// Bytes in a row. An address may be the driver's number or a pointer.
template <class Address>
copy_extent bytes_at(Address p, std::size_t size) {
  return {(std::uint64_t)p, size, 1, 1, 0, 0};  // NOLINT: whichever of the two it is
}
copy_extent rows_at(CUdeviceptr p, std::size_t pitch, std::size_t width, std::size_t height) {
  return {p, width, height, 1, pitch, 0};
}

}  // namespace

/// A copy in the default stream, which is waited for, or in a stream.
#define DEEPUM_COPY(id, symbol, base, since, parameters, arguments, to, from)              \
  DEEPUM_ENTRY_2(id, symbol, "_ptds", base, since, parameters, {                           \
    return copy_as_launch(nullptr, stream_kind, "memcpy", {written_by(to), read_by(from)}, \
                          [&] { return real arguments; });                                 \
  })
#define DEEPUM_COPY_ASYNC(id, symbol, base, since, parameters, arguments, to, from)       \
  DEEPUM_ENTRY_2(id, symbol, "_ptsz", base, since, parameters, {                          \
    return copy_as_launch(stream, stream_kind, "memcpy", {written_by(to), read_by(from)}, \
                          [&] { return real arguments; });                                \
  })
#define DEEPUM_FILL(id, symbol, base, since, parameters, arguments, to)                                      \
  DEEPUM_ENTRY_2(id, symbol, "_ptds", base, since, parameters, {                                             \
    return copy_as_launch(nullptr, stream_kind, "memset", {written_by(to)}, [&] { return real arguments; }); \
  })
#define DEEPUM_FILL_ASYNC(id, symbol, base, since, parameters, arguments, to)                               \
  DEEPUM_ENTRY_2(id, symbol, "_ptsz", base, since, parameters, {                                            \
    return copy_as_launch(stream, stream_kind, "memset", {written_by(to)}, [&] { return real arguments; }); \
  })

DEEPUM_COPY(copy, "cuMemcpy", "cuMemcpy", 4000, (CUdeviceptr to, CUdeviceptr from, std::size_t n), (to, from, n),
            bytes_at(to, n), bytes_at(from, n));
DEEPUM_COPY_ASYNC(copy_async, "cuMemcpyAsync", "cuMemcpyAsync", 4000,
                  (CUdeviceptr to, CUdeviceptr from, std::size_t n, CUstream stream), (to, from, n, stream),
                  bytes_at(to, n), bytes_at(from, n));
DEEPUM_COPY(copy_in, "cuMemcpyHtoD_v2", "cuMemcpyHtoD", 3020, (CUdeviceptr to, const void* from, std::size_t n),
            (to, from, n), bytes_at(to, n), bytes_at(from, n));
DEEPUM_COPY_ASYNC(copy_in_async, "cuMemcpyHtoDAsync_v2", "cuMemcpyHtoDAsync", 3020,
                  (CUdeviceptr to, const void* from, std::size_t n, CUstream stream), (to, from, n, stream),
                  bytes_at(to, n), bytes_at(from, n));
DEEPUM_COPY(copy_out, "cuMemcpyDtoH_v2", "cuMemcpyDtoH", 3020, (void* to, CUdeviceptr from, std::size_t n),
            (to, from, n), bytes_at(to, n), bytes_at(from, n));
DEEPUM_COPY_ASYNC(copy_out_async, "cuMemcpyDtoHAsync_v2", "cuMemcpyDtoHAsync", 3020,
                  (void* to, CUdeviceptr from, std::size_t n, CUstream stream), (to, from, n, stream), bytes_at(to, n),
                  bytes_at(from, n));
DEEPUM_COPY(copy_within, "cuMemcpyDtoD_v2", "cuMemcpyDtoD", 3020, (CUdeviceptr to, CUdeviceptr from, std::size_t n),
            (to, from, n), bytes_at(to, n), bytes_at(from, n));
DEEPUM_COPY_ASYNC(copy_within_async, "cuMemcpyDtoDAsync_v2", "cuMemcpyDtoDAsync", 3020,
                  (CUdeviceptr to, CUdeviceptr from, std::size_t n, CUstream stream), (to, from, n, stream),
                  bytes_at(to, n), bytes_at(from, n));
DEEPUM_COPY(copy_peer, "cuMemcpyPeer", "cuMemcpyPeer", 4000,
            (CUdeviceptr to, CUcontext there, CUdeviceptr from, CUcontext here, std::size_t n),
            (to, there, from, here, n), bytes_at(to, n), bytes_at(from, n));
DEEPUM_COPY_ASYNC(copy_peer_async, "cuMemcpyPeerAsync", "cuMemcpyPeerAsync", 4000,
                  (CUdeviceptr to, CUcontext there, CUdeviceptr from, CUcontext here, std::size_t n, CUstream stream),
                  (to, there, from, here, n, stream), bytes_at(to, n), bytes_at(from, n));
DEEPUM_COPY(copy_2d, "cuMemcpy2D_v2", "cuMemcpy2D", 3020, (const CUDA_MEMCPY2D* c), (c), target_of(*c), source_of(*c));
DEEPUM_COPY(copy_2d_unaligned, "cuMemcpy2DUnaligned_v2", "cuMemcpy2DUnaligned", 3020, (const CUDA_MEMCPY2D* c), (c),
            target_of(*c), source_of(*c));
DEEPUM_COPY_ASYNC(copy_2d_async, "cuMemcpy2DAsync_v2", "cuMemcpy2DAsync", 3020,
                  (const CUDA_MEMCPY2D* c, CUstream stream), (c, stream), target_of(*c), source_of(*c));
DEEPUM_COPY(copy_3d, "cuMemcpy3D_v2", "cuMemcpy3D", 3020, (const CUDA_MEMCPY3D* c), (c), target_of(*c), source_of(*c));
DEEPUM_COPY_ASYNC(copy_3d_async, "cuMemcpy3DAsync_v2", "cuMemcpy3DAsync", 3020,
                  (const CUDA_MEMCPY3D* c, CUstream stream), (c, stream), target_of(*c), source_of(*c));
DEEPUM_COPY(copy_3d_peer, "cuMemcpy3DPeer", "cuMemcpy3DPeer", 4000, (const CUDA_MEMCPY3D_PEER* c), (c), target_of(*c),
            source_of(*c));
DEEPUM_COPY_ASYNC(copy_3d_peer_async, "cuMemcpy3DPeerAsync", "cuMemcpy3DPeerAsync", 4000,
                  (const CUDA_MEMCPY3D_PEER* c, CUstream stream), (c, stream), target_of(*c), source_of(*c));
DEEPUM_COPY(copy_from_array, "cuMemcpyAtoD_v2", "cuMemcpyAtoD", 3020,
            (CUdeviceptr to, CUarray from, std::size_t offset, std::size_t n), (to, from, offset, n), bytes_at(to, n),
            copy_extent{});
DEEPUM_COPY(copy_to_array, "cuMemcpyDtoA_v2", "cuMemcpyDtoA", 3020,
            (CUarray to, std::size_t offset, CUdeviceptr from, std::size_t n), (to, offset, from, n), copy_extent{},
            bytes_at(from, n));

DEEPUM_FILL(fill_8, "cuMemsetD8_v2", "cuMemsetD8", 3020, (CUdeviceptr to, unsigned char value, std::size_t n),
            (to, value, n), bytes_at(to, n));
DEEPUM_FILL(fill_16, "cuMemsetD16_v2", "cuMemsetD16", 3020, (CUdeviceptr to, unsigned short value, std::size_t n),
            (to, value, n), bytes_at(to, n * 2));
DEEPUM_FILL(fill_32, "cuMemsetD32_v2", "cuMemsetD32", 3020, (CUdeviceptr to, unsigned value, std::size_t n),
            (to, value, n), bytes_at(to, n * 4));
DEEPUM_FILL_ASYNC(fill_8_async, "cuMemsetD8Async", "cuMemsetD8Async", 3020,
                  (CUdeviceptr to, unsigned char value, std::size_t n, CUstream stream), (to, value, n, stream),
                  bytes_at(to, n));
DEEPUM_FILL_ASYNC(fill_16_async, "cuMemsetD16Async", "cuMemsetD16Async", 3020,
                  (CUdeviceptr to, unsigned short value, std::size_t n, CUstream stream), (to, value, n, stream),
                  bytes_at(to, n * 2));
DEEPUM_FILL_ASYNC(fill_32_async, "cuMemsetD32Async", "cuMemsetD32Async", 3020,
                  (CUdeviceptr to, unsigned value, std::size_t n, CUstream stream), (to, value, n, stream),
                  bytes_at(to, n * 4));
DEEPUM_FILL(fill_2d_8, "cuMemsetD2D8_v2", "cuMemsetD2D8", 3020,
            (CUdeviceptr to, std::size_t pitch, unsigned char value, std::size_t width, std::size_t height),
            (to, pitch, value, width, height), rows_at(to, pitch, width, height));
DEEPUM_FILL(fill_2d_16, "cuMemsetD2D16_v2", "cuMemsetD2D16", 3020,
            (CUdeviceptr to, std::size_t pitch, unsigned short value, std::size_t width, std::size_t height),
            (to, pitch, value, width, height), rows_at(to, pitch, width * 2, height));
DEEPUM_FILL(fill_2d_32, "cuMemsetD2D32_v2", "cuMemsetD2D32", 3020,
            (CUdeviceptr to, std::size_t pitch, unsigned value, std::size_t width, std::size_t height),
            (to, pitch, value, width, height), rows_at(to, pitch, width * 4, height));
DEEPUM_FILL_ASYNC(fill_2d_8_async, "cuMemsetD2D8Async", "cuMemsetD2D8Async", 3020,
                  (CUdeviceptr to, std::size_t pitch, unsigned char value, std::size_t width, std::size_t height,
                   CUstream stream),
                  (to, pitch, value, width, height, stream), rows_at(to, pitch, width, height));
DEEPUM_FILL_ASYNC(fill_2d_16_async, "cuMemsetD2D16Async", "cuMemsetD2D16Async", 3020,
                  (CUdeviceptr to, std::size_t pitch, unsigned short value, std::size_t width, std::size_t height,
                   CUstream stream),
                  (to, pitch, value, width, height, stream), rows_at(to, pitch, width * 2, height));
DEEPUM_FILL_ASYNC(fill_2d_32_async, "cuMemsetD2D32Async", "cuMemsetD2D32Async", 3020,
                  (CUdeviceptr to, std::size_t pitch, unsigned value, std::size_t width, std::size_t height,
                   CUstream stream),
                  (to, pitch, value, width, height, stream), rows_at(to, pitch, width * 4, height));

// Batches are passed on as they are: what is given back afterwards waits for the device.
DEEPUM_ENTRY_2(copy_batch, "cuMemcpyBatchAsync_v2", "_ptsz", "cuMemcpyBatchAsync", 13000,
               (CUdeviceptr * to, CUdeviceptr* from, std::size_t* sizes, std::size_t count, CUmemcpyAttributes* how,
                std::size_t* indices, std::size_t ways, CUstream stream),
               {
                 note_unseen_work("the program copies in batches");
                 return real(to, from, sizes, count, how, indices, ways, stream);
               });
DEEPUM_ENTRY_2(copy_batch_v1, "cuMemcpyBatchAsync", "_ptsz", "cuMemcpyBatchAsync", 12080,
               (CUdeviceptr * to, CUdeviceptr* from, std::size_t* sizes, std::size_t count, CUmemcpyAttributes* how,
                std::size_t* indices, std::size_t ways, std::size_t* failed, CUstream stream),
               {
                 note_unseen_work("the program copies in batches");
                 return real(to, from, sizes, count, how, indices, ways, failed, stream);
               });
DEEPUM_ENTRY_2(copy_3d_batch_v1, "cuMemcpy3DBatchAsync", "_ptsz", "cuMemcpy3DBatchAsync", 12080,
               (std::size_t count, CUDA_MEMCPY3D_BATCH_OP* copies, std::size_t* failed, unsigned long long flags,
                CUstream stream),
               {
                 note_unseen_work("the program copies in batches");
                 return real(count, copies, failed, flags, stream);
               });
DEEPUM_ENTRY_2(copy_3d_batch, "cuMemcpy3DBatchAsync_v2", "_ptsz", "cuMemcpy3DBatchAsync", 13000,
               (std::size_t count, CUDA_MEMCPY3D_BATCH_OP* copies, unsigned long long flags, CUstream stream), {
                 note_unseen_work("the program copies in batches");
                 return real(count, copies, flags, stream);
               });
