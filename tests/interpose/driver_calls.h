#ifndef DEEPUM_TESTS_INTERPOSE_DRIVER_CALLS_H
#define DEEPUM_TESTS_INTERPOSE_DRIVER_CALLS_H

// The driver's functions as a static runtime finds them: dlopen, dlsym of cuGetProcAddress, and everything else through
// that. Of one program, which says _GNU_SOURCE first.

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include <cuda.h>

#undef cuGetProcAddress

#define CHECK(what)                                                   \
  do {                                                                \
    if (!(what)) {                                                    \
      fprintf(stderr, "program.c:%d: not so: %s\n", __LINE__, #what); \
      exit(99);                                                       \
    }                                                                 \
  } while (0)
#define OK(call) CHECK((call) == CUDA_SUCCESS)

typedef CUresult (*get_proc)(const char*, void**, int, cuuint64_t, CUdriverProcAddressQueryResult*);

static void* library;
static get_proc find;
static cuuint64_t kind = CU_GET_PROC_ADDRESS_LEGACY_STREAM;
static CUmodule module;

static void* of_driver(const char* name, int version) {
  void* found = NULL;
  CUdriverProcAddressQueryResult status;
  CHECK(find(name, &found, version, kind, &status) == CUDA_SUCCESS && found != NULL);
  return found;
}

static struct {
  CUresult (*alloc)(CUdeviceptr*, size_t);
  CUresult (*alloc_managed)(CUdeviceptr*, size_t, unsigned);
  CUresult (*alloc_async)(CUdeviceptr*, size_t, CUstream);
  CUresult (*alloc_pitch)(CUdeviceptr*, size_t*, size_t, size_t, unsigned);
  CUresult (*free)(CUdeviceptr);
  CUresult (*free_async)(CUdeviceptr, CUstream);
  CUresult (*info)(size_t*, size_t*);
  CUresult (*range)(CUdeviceptr*, size_t*, CUdeviceptr);
  CUresult (*attribute)(void*, CUpointer_attribute, CUdeviceptr);
  CUresult (*create)(CUmemGenericAllocationHandle*, size_t, const CUmemAllocationProp*, unsigned long long);
  CUresult (*in)(CUdeviceptr, const void*, size_t);
  CUresult (*out)(void*, CUdeviceptr, size_t);
  CUresult (*fill)(CUdeviceptr, unsigned char, size_t);
  CUresult (*function)(CUfunction*, CUmodule, const char*);
  CUresult (*kernel)(CUkernel*, CUlibrary, const char*);
  CUresult (*launch)(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream, void**,
                     void**);
  CUresult (*launch_ex)(const CUlaunchConfig*, CUfunction, void**, void**);
  CUresult (*stream)(CUstream*, unsigned);
  CUresult (*end_stream)(CUstream);
  CUresult (*wait)(CUstream);
  CUresult (*begin_capture)(CUstream, CUstreamCaptureMode);
  CUresult (*end_capture)(CUstream, CUgraph*);
  CUresult (*instantiate)(CUgraphExec*, CUgraph, unsigned long long);
  CUresult (*launch_graph)(CUgraphExec, CUstream);
  CUresult (*end_graph)(CUgraphExec);
} cu;

static void begin(void) {
  library = dlopen("libcuda.so.1", RTLD_NOW);
  CHECK(library != NULL);
  find = (get_proc)dlsym(library, "cuGetProcAddress_v2");
  CHECK(find != NULL);
  CUresult (*init)(unsigned) = of_driver("cuInit", 2000);
  const CUresult there = init(0);
  if (there != CUDA_SUCCESS) exit(there == CUDA_ERROR_NO_DEVICE ? 42 : 98);
  CUcontext context = NULL;
  OK(((CUresult(*)(CUcontext*, CUdevice))of_driver("cuDevicePrimaryCtxRetain", 7000))(&context, 0));
  OK(((CUresult(*)(CUcontext))of_driver("cuCtxSetCurrent", 4000))(context));
  cu.alloc = of_driver("cuMemAlloc", 3020);
  cu.alloc_managed = of_driver("cuMemAllocManaged", 6000);
  cu.alloc_async = of_driver("cuMemAllocAsync", 11020);
  cu.alloc_pitch = of_driver("cuMemAllocPitch", 3020);
  cu.free = of_driver("cuMemFree", 3020);
  cu.free_async = of_driver("cuMemFreeAsync", 11020);
  cu.info = of_driver("cuMemGetInfo", 3020);
  cu.range = of_driver("cuMemGetAddressRange", 3020);
  cu.attribute = of_driver("cuPointerGetAttribute", 4000);
  cu.create = of_driver("cuMemCreate", 10020);
  cu.in = of_driver("cuMemcpyHtoD", 3020);
  cu.out = of_driver("cuMemcpyDtoH", 3020);
  cu.fill = of_driver("cuMemsetD8", 3020);
  cu.function = of_driver("cuModuleGetFunction", 2000);
  cu.kernel = of_driver("cuLibraryGetKernel", 12000);
  cu.launch = of_driver("cuLaunchKernel", 4000);
  cu.launch_ex = of_driver("cuLaunchKernelEx", 11060);
  cu.stream = of_driver("cuStreamCreate", 2000);
  cu.end_stream = of_driver("cuStreamDestroy", 4000);
  cu.wait = of_driver("cuStreamSynchronize", 7000);
  cu.begin_capture = of_driver("cuStreamBeginCapture", 10010);
  cu.end_capture = of_driver("cuStreamEndCapture", 10000);
  cu.instantiate = of_driver("cuGraphInstantiate", 12000);
  cu.launch_graph = of_driver("cuGraphLaunch", 10000);
  cu.end_graph = of_driver("cuGraphExecDestroy", 10000);
}

#endif
