// The header in C++17.

#include "cuda/c_program.h"
#include <deepum/deepum.h>

#if __cplusplus != 201703L
#error "this file is compiled as C++17"
#endif

deepum_status launch_in_cxx17(deepum_stream* stream, void* p, uint64_t size) {
  const deepum_operand all[] = {deepum_overwrites(p, size)};
  const auto body = [](cudaStream_t queue, void* of) { return static_cast<int>(cudaMemsetAsync(of, 1, 64, queue)); };
  return deepum_call(stream, "cxx17", all, 1, body, p);
}
