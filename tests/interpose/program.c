// A CUDA program as deepum-run meets it: it finds the driver as a static runtime does (dlopen, dlsym of
// cuGetProcAddress, everything else through that), and knows nothing of deepum. `program CASE` ends with 0 where all
// was as it should be.

#define _GNU_SOURCE
#include "driver_calls.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static CUfunction named(const char* symbol) {
  CUfunction f = NULL;
  OK(cu.function(&f, module, symbol));
  return f;
}
static void* of_fake(const char* name) {
  void* const found = dlsym(library, name);
  CHECK(found != NULL);
  return found;
}

enum { block = 2 << 20, floats = block / 4 };

static void scale(CUstream s, CUdeviceptr y, CUdeviceptr x, float a, int n) {
  void* parameters[] = {&y, &x, &a, &n};
  OK(cu.launch(named("_Z5scalePfPKffi"), 1, 1, 1, 1, 1, 1, 0, s, parameters, NULL));
}
static float first_of(CUdeviceptr p) {
  float value = -1;
  OK(cu.out(&value, p, sizeof value));
  return value;
}

/// A step of twelve blocks of memory, again and again, each time with other numbers, with room for half of them on the
/// device.
static void steps(void) {
  enum { count = 12 };
  CUstream s = NULL;
  OK(cu.stream(&s, CU_STREAM_NON_BLOCKING));
  CUdeviceptr x[count];
  static float ones[floats];
  for (int i = 0; i < floats; ++i)
    ones[i] = 1;
  for (int i = 0; i < count; ++i)
    OK(cu.alloc(&x[i], block));
  OK(cu.in(x[0], ones, block));
  for (int step = 0; step < 30; ++step) {
    for (int i = 1; i < count; ++i)
      scale(s, x[i], x[i - 1], 1 + 0.5f * (float)(step % 7), floats);
    OK(cu.wait(s));
  }
  float expected = 1;
  for (int i = 1; i < count; ++i) {
    expected *= 1 + 0.5f * (float)(29 % 7);
  }
  CHECK(first_of(x[count - 1]) == expected);
  for (int i = 0; i < count; ++i)
    OK(cu.free(x[i]));
  OK(cu.end_stream(s));
}

/// Steps with memory in stream order: what is allocated on the way there and freed on the way back, as a training has
/// it, and a result that is kept until there is the next one. The host waits now and then, at no regular times.
static void temporaries(void) {
  enum { layers = 6, count = 60 };
  CUstream s = NULL;
  OK(cu.stream(&s, CU_STREAM_NON_BLOCKING));
  CUdeviceptr w[layers];
  const float one = 1;
  for (int i = 0; i < layers; ++i) {
    OK(cu.alloc(&w[i], block));
    OK(cu.in(w[i], &one, sizeof one));
  }
  CUdeviceptr result = 0;
  unsigned random = 1;
  for (int step = 0; step < count; ++step) {
    CUdeviceptr t[layers];
    for (int i = 0; i < layers; ++i) {
      OK(cu.alloc_async(&t[i], (size_t)(1 + i % 2) * block, s));
      scale(s, t[i], i == 0 ? w[0] : t[i - 1], 1, 1);
      random = random * 1664525U + 1013904223U;
      if (random >> 29U == 0) OK(cu.wait(s));
    }
    CUdeviceptr now = 0;
    OK(cu.alloc_async(&now, 512, s));
    scale(s, now, t[layers - 1], 2, 1);
    if (result != 0) OK(cu.free_async(result, s));
    result = now;
    for (int i = layers - 1; i >= 0; --i) {
      scale(s, w[i], t[i], 1, 1);
      OK(cu.free_async(t[i], s));
    }
  }
  CHECK(first_of(result) == 2);
  for (int i = 0; i < layers; ++i)
    CHECK(first_of(w[i]) == 1);
  OK(cu.end_stream(s));
  OK(cu.free(result));
  // All of it can be had again, by whoever asks.
  for (int i = 0; i < layers; ++i)
    OK(cu.free(w[i]));
  CUdeviceptr all = 0;
  OK(cu.alloc(&all, 16 * block));
}

/// Every way in which a kernel can be told its arguments.
static void layouts(void) {
  CUdeviceptr x = 0;
  CUdeviceptr y = 0;
  OK(cu.alloc(&x, block));
  OK(cu.alloc(&y, block));
  float three = 3;
  OK(cu.in(x, &three, sizeof three));
  // One pointer for each argument; a CUkernel in the place of a CUfunction; another launch function.
  scale(NULL, y, x, 2, 1);
  CHECK(first_of(y) == 6);
  CUkernel k = NULL;
  OK(cu.kernel(&k, NULL, "_Z5scalePfPKffi"));
  float a = 3;
  int n = 1;
  void* parameters[] = {&y, &x, &a, &n};
  OK(cu.launch((CUfunction)k, 1, 1, 1, 1, 1, 1, 0, NULL, parameters, NULL));
  CHECK(first_of(y) == 9);
  CUlaunchConfig how = {.gridDimX = 1, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 1, .blockDimY = 1, .blockDimZ = 1};
  a = 4;
  OK(cu.launch_ex(&how, named("_Z5scalePfPKffi"), parameters, NULL));
  CHECK(first_of(y) == 12);
  // All of them packed into a buffer.
  struct {
    CUdeviceptr y, x;
    float a;
    int n;
  } packed = {y, x, 5, 1};
  size_t size = sizeof packed;
  void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &packed, CU_LAUNCH_PARAM_BUFFER_SIZE, &size, CU_LAUNCH_PARAM_END};
  OK(cu.launch(named("_Z5scalePfPKffi"), 1, 1, 1, 1, 1, 1, 0, NULL, NULL, extra));
  CHECK(first_of(y) == 15);
  // Pointers within a class.
  struct {
    CUdeviceptr to, from;
    int n;
  } sides = {y, x, 1};
  void* one[] = {&sides};
  OK(cu.launch(named("_Z10copy_sides5sides"), 1, 1, 1, 1, 1, 1, 0, NULL, one, NULL));
  CHECK(first_of(y) == 3);
  // Pointers in memory, which nobody can see: right all the same.
  CUdeviceptr table = 0;
  const CUdeviceptr pointers[2] = {y, x};
  float seven = 7;
  OK(cu.in(x, &seven, sizeof seven));
  OK(cu.alloc(&table, sizeof pointers));
  OK(cu.in(table, pointers, sizeof pointers));
  void* two[] = {&table, &n};
  OK(cu.launch(named("through_table"), 1, 1, 1, 1, 1, 1, 0, NULL, two, NULL));
  CHECK(first_of(y) == 7);
  // Into the middle of a large allocation.
  CUdeviceptr large = 0;
  OK(cu.alloc(&large, 4 * block));
  OK(cu.fill(large, 0, 4 * block));
  scale(NULL, large + 2 * block, x, 2, 1);
  CHECK(first_of(large + 2 * block) == 14);
  CHECK(first_of(large) == 0);
}

/// What the program is told of its memory.
static void numbers(void) {
  size_t free_before = 0;
  size_t total = 0;
  OK(cu.info(&free_before, &total));
  CHECK(total == 16 * block && free_before == total);
  CUdeviceptr p = 0;
  OK(cu.alloc(&p, 1000));
  CHECK(p % 512 == 0);
  size_t free_now = 0;
  OK(cu.info(&free_now, &total));
  CHECK(total == 16 * block && free_before - free_now == 1024);
  CUdeviceptr base = 0;
  size_t size = 0;
  OK(cu.range(&base, &size, p + 999));
  CHECK(base == p && size == 1000);
  unsigned managed = 1;
  OK(cu.attribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, p));
  CHECK(managed == 0);
  CUdeviceptr q = 0;
  OK(cu.alloc_managed(&q, 1000, CU_MEM_ATTACH_GLOBAL));
  OK(cu.attribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, q));
  CHECK(managed == 1);
  *(volatile char*)q = 1;  // the host may use it
  size_t pitch = 0;
  CUdeviceptr rows = 0;
  OK(cu.alloc_pitch(&rows, &pitch, 100, 3, 4));
  CHECK(pitch == 512);
  OK(cu.free(p));
  OK(cu.free(q));
  OK(cu.free(rows));
  OK(cu.info(&free_now, &total));
  CHECK(free_now == free_before);
  CHECK(cu.free(p) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cu.free(p + 8) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cu.alloc(&p, 0) == CUDA_ERROR_INVALID_VALUE);
  CUmemAllocationProp device = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
  CUmemGenericAllocationHandle handle = 0;
  CHECK(cu.create(&handle, block, &device, 0) == CUDA_ERROR_NOT_SUPPORTED);
  int mapped = 1;
  OK(((CUresult(*)(int*, CUdevice_attribute, CUdevice))of_driver("cuDeviceGetAttribute", 2000))(
      &mapped, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 0));
  CHECK(mapped == 0);
}

/// Memory runs out when all of it is taken, and not before.
static void runs_out(void) {
  CUdeviceptr p[16];
  for (int i = 0; i < 16; ++i)
    OK(cu.alloc(&p[i], block));
  CUdeviceptr one = 0;
  CHECK(cu.alloc(&one, 1) == CUDA_ERROR_OUT_OF_MEMORY);
  CHECK(cu.alloc(&one, ~(size_t)0) == CUDA_ERROR_OUT_OF_MEMORY);
  CHECK(cu.alloc_managed(&one, 1, CU_MEM_ATTACH_GLOBAL) == CUDA_ERROR_OUT_OF_MEMORY);
  CHECK(((uint64_t(*)(void))of_fake("fake_driver_managed"))() == 16ULL * block);
  OK(cu.free(p[3]));
  OK(cu.alloc(&one, block));
  CHECK(((uint64_t(*)(const char*))of_fake("fake_driver_calls"))("cudaMalloc") == 0);
}

/// Launches that the driver refuses, and one that fails later, are the program's to hear of.
static void failures(void) {
  CUdeviceptr x = 0;
  OK(cu.alloc(&x, block));
  float a = 1;
  int n = 1;
  void* parameters[] = {&x, &x, &a, &n};
  ((void (*)(const char*, int))of_fake("fake_driver_fail"))("cudaLaunchKernel", CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
  CHECK(cu.launch(named("_Z5scalePfPKffi"), 1, 1, 1, 1, 1, 1, 0, NULL, parameters, NULL) ==
        CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
  scale(NULL, x, x, 1, 1);
  OK(cu.wait(NULL));
}

/// Nothing is put into a capture, and a graph's kernels find what they need.
static void capture(void) {
  CUstream s = NULL;
  OK(cu.stream(&s, CU_STREAM_NON_BLOCKING));
  CUdeviceptr x[4];
  float one = 1;
  for (int i = 0; i < 4; ++i)
    OK(cu.alloc(&x[i], block));
  OK(cu.in(x[0], &one, sizeof one));
  scale(s, x[1], x[0], 1, 1);  // the stream is known before it is captured
  CUgraph graph = NULL;
  CUgraphExec ready = NULL;
  OK(cu.begin_capture(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
  for (int i = 1; i < 4; ++i)
    scale(s, x[i], x[i - 1], 3, 1);
  OK(cu.end_capture(s, &graph));
  OK(cu.instantiate(&ready, graph, 0));
  CHECK(first_of(x[3]) == 0);
  for (int i = 0; i < 5; ++i)
    OK(cu.launch_graph(ready, s));
  OK(cu.wait(s));
  CHECK(first_of(x[3]) == 27);
  OK(cu.end_graph(ready));
  OK(cu.end_stream(s));
}

static void* thread(void* to) {
  CUcontext context = NULL;
  OK(((CUresult(*)(CUcontext*, CUdevice))of_driver("cuDevicePrimaryCtxRetain", 7000))(&context, 0));
  OK(((CUresult(*)(CUcontext))of_driver("cuCtxSetCurrent", 4000))(context));
  CUdeviceptr x = 0;
  CUdeviceptr y = 0;
  OK(cu.alloc(&x, block));
  OK(cu.alloc(&y, block));
  float one = 1;
  OK(cu.in(x, &one, sizeof one));
  for (int i = 0; i < 200; ++i)
    scale((CUstream)to, y, x, (float)i, 1);
  OK(cu.wait((CUstream)to));
  CHECK(first_of(y) == 199);
  OK(cu.free(x));
  OK(cu.free_async(y, (CUstream)to));
  return NULL;
}
/// Several threads, some of them in one stream.
static void threads(void) {
  CUstream s = NULL;
  OK(cu.stream(&s, CU_STREAM_NON_BLOCKING));
  pthread_t all[4];
  CUdeviceptr first = 0;
  OK(cu.alloc_async(&first, block, s));
  for (int i = 0; i < 4; ++i)
    CHECK(pthread_create(&all[i], NULL, thread, i % 2 == 0 ? s : NULL) == 0);
  for (int i = 0; i < 4; ++i)
    CHECK(pthread_join(all[i], NULL) == 0);
  OK(cu.free(first));
}

/// A child by fork, one that uses CUDA of its own before the parent has, and programs that are started.
static void forks(void) {
  CUdeviceptr x = 0;
  OK(cu.alloc(&x, block));
  scale(NULL, x, x, 1, 1);
  const pid_t child = fork();
  if (child == 0) exit(7);  // runs what was registered to run at exit
  int status = 0;
  CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 7);
  CHECK(system("exec /proc/self/exe nothing 2>/dev/null; exit 5") != -1);
  scale(NULL, x, x, 1, 1);
  OK(cu.wait(NULL));
}

/// Ends while work is in flight that never ends by itself.
static void in_flight(void) {
  CUstream s = NULL;
  OK(cu.stream(&s, CU_STREAM_NON_BLOCKING));
  CUdeviceptr x = 0;
  OK(cu.alloc(&x, block));
  ((void (*)(CUstream))of_fake("fake_driver_hold"))(s);
  scale(s, x, x, 1, 1);
  exit(3);
}

/// Symbols looked up without cuGetProcAddress, and those of others, are what they should be.
static void symbols(void) {
  CHECK(dlsym(library, "cuMemAlloc_v2") == (void*)cu.alloc);
  CHECK(dlsym(RTLD_DEFAULT, "cuMemAlloc_v2") == (void*)cu.alloc);
  CHECK(dlsym(library, "cuThereIsNoSuchThing") == NULL);
  CHECK(dlsym(RTLD_DEFAULT, "strlen") != NULL);
  // The next one behind this program, which is that of the library that was loaded before all others.
  CHECK(dlsym(RTLD_NEXT, "cuMemAlloc_v2") == (void*)cu.alloc);
  // A tool that watches the driver gets the driver's own.
  void* const tool = dlopen("libcupti_stand_in.so", RTLD_NOW);
  CHECK(tool != NULL);
  void* (*look_up)(void*, const char*) = dlsym(tool, "profiler_look_up");
  CHECK(look_up != NULL);
  void* const own = look_up(library, "cuMemAlloc_v2");
  CHECK(own != NULL && own != (void*)cu.alloc);
  CUdeviceptr p = 0;
  OK(((CUresult(*)(CUdeviceptr*, size_t))own)(&p, block));
  CHECK(((uint64_t(*)(const char*))of_fake("fake_driver_calls"))("cudaMalloc") == 1);
  OK(cu.free(p));  // memory that is none of the arena goes back to the driver
}

int main(int argc, char** argv) {
  const char* const wanted = argc > 1 ? argv[1] : "";
  if (strcmp(wanted, "nothing") == 0) return 0;
  if (argc > 2 && strcmp(argv[2], "per_thread") == 0) kind = CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
  begin();
  const struct {
    const char* name;
    void (*run)(void);
  } cases[] = {{"steps", steps},         {"layouts", layouts}, {"numbers", numbers},        {"runs_out", runs_out},
               {"failures", failures},   {"capture", capture}, {"threads", threads},        {"forks", forks},
               {"in_flight", in_flight}, {"symbols", symbols}, {"temporaries", temporaries}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; ++i) {
    if (strcmp(cases[i].name, wanted) == 0) {
      cases[i].run();
      return 0;
    }
  }
  return 97;
}
