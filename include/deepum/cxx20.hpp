#pragma once

// The first that a compiler sees of every header of the library.

#if __cplusplus < 202002L
#error "deepum needs C++20: compile with -std=c++20; in CMake link its target, and set no older CUDA_STANDARD"
#ifndef __NVCC__                      // it stops by itself
#include <deepum/stop_without_cxx20>  // no such file, and so no more errors
#endif
#endif

// nvcc compiles a file once for the host and once for every device. The latter makes no code of the host, so there the
// headers only declare, as with separate compilation.
#if defined(__CUDA_ARCH__) && !defined(DEEPUM_SEPARATE_COMPILATION)
#define DEEPUM_SEPARATE_COMPILATION
#endif
