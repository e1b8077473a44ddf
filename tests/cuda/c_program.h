#ifndef DEEPUM_TESTS_C_PROGRAM_H
#define DEEPUM_TESTS_C_PROGRAM_H

#include <deepum/deepum.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Six layers that do not fit, five steps; add_kernel(p, one, n) adds *one to p[0 .. n).
 * Returns 0, or 1 with a line in said. */
int run_c_program(deepum_memory memory, const void* add_kernel, char* said, size_t room);

/* The header in C++17: a launch of it, and what became of it. */
deepum_status launch_in_cxx17(deepum_stream* stream, void* p, uint64_t size);

#ifdef __cplusplus
}
#endif

#endif
