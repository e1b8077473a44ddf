// What uses an arena and a stream of the simulated GPU.
#include <deepum/deepum.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

using namespace deepum::literals;
using deepum::overwrites;
using deepum::reads;
using deepum::updates;

extern const deepum::sim::kernel<void (*)(float*, const float*, std::size_t),
                                 void (*)(deepum::sim::work&, float*, const float*, std::size_t)>
    kernel;

void in_function(deepum::sim::device& gpu, deepum::arena<deepum::sim::managed_memory>& arena,
                 deepum::stream<deepum::sim::managed_memory>& s, deepum::dim grid, deepum::dim block, std::size_t n,
                 float* x, float* y) {
  // In a scope of its own, so that it may have its own names for what is there.
  {
    // the block
  }
}
