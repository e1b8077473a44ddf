// What a compiler says of mistakes. first_lines.py looks for the words above each of them in the first error that the
// compiler reports for it. Without MISTAKES it compiles.

#include <deepum/deepum.hpp>

#include <cstddef>
#include <span>
#include <string>
#include <vector>

using deepum::overwrites;
using deepum::reads;
using deepum::updates;
namespace sim = deepum::sim;

const auto scale = sim::kernel([](float* y, const float* x, int n) { y[n] = 2 * x[n]; },
                               [](sim::work& w, float* y, const float* x, int) { w.reads(x, 4).updates(y, 4); });
const auto generic = sim::kernel([](auto* y, auto* x) { *y = *x; }, [](sim::work&, auto*, auto*) {});
const auto named = sim::kernel([](float*, std::string) {}, [](sim::work&, float*, const std::string&) {});

void program(sim::device& gpu, deepum::arena<sim::managed_memory>& arena, deepum::stream<sim::managed_memory>& s,
             float* y, float* x, const float* weights, int* indices, int n) {
  using namespace deepum::literals;
  const std::span<float> part(x, 4);
  const std::span<const float> kept(weights, 4);
#ifndef MISTAKES
  s.launch("scale", 1, 1, 0, scale, overwrites(y, 4), reads(part), n);
  s.launch("scale", 1, 1, 0, scale, deepum::reads_as_mutable(y), weights, indices[0]);
  s.launch("scale", 1, 1, 0, scale, y, NULL, 1);
  s.launch("generic", 1, 1, 0, generic, y, reads(kept));
  deepum::arena other{gpu, {.capacity = 1_GiB}};
  (void)arena.allocate<std::byte>(deepum::bytes{n}.count);
#else
  // error: overwrites(p) does not say how much is overwritten: write overwrites(p, n)
  s.launch("scale", 1, 1, 0, scale, overwrites(y), x, n);
  // error: a launch cannot write through a pointer to const
  s.call("library", {overwrites(kept)}, [](auto&) {});
  // error: a launch cannot write through a pointer to const
  s.call("library", {updates(weights)}, [](auto&) {});
  // error: wrong_number_of_arguments_in_launch() [with {size} given = 2; {size} kernel_takes = 3]
  s.launch("scale", 1, 1, 0, scale, y, x);
  // error: wrong_number_of_arguments_in_launch() [with {size} given = 4; {size} kernel_takes = 3]
  s.launch("scale", 1, 1, 0, scale, y, x, n, n);
  // error: argument_of_launch_does_not_convert() [with {size} position = 2; given = int*; kernel_takes = const float*]
  s.launch("scale", 1, 1, 0, scale, y, indices, n);
  // error: argument_of_launch_does_not_convert() [with {size} position = 1; given = const float*;
  s.launch("scale", 1, 1, 0, scale, weights, x, n);
  // error: argument_of_launch_does_not_convert() [with {size} position = 3; given = float*; kernel_takes = int]
  s.launch("scale", 1, 1, 0, scale, y, weights, x);
  // error: argument_of_launch_does_not_convert() [with {size} position = 2; given = int; kernel_takes = const float*]
  s.launch("scale", 1, 1, 0, scale, y, n, n);
  // error: argument_is_declared_as_read_but_kernel_may_write() [with {size} position = 1; given = const float*;
  s.launch("scale", 1, 1, 0, scale, reads(y, 4), x, n);
  // error: assignment of read-only location
  s.launch("generic", 1, 1, 0, generic, reads(y, 4), x);
  // error: arguments of a kernel are copied byte by byte
  s.launch("named", 1, 1, 0, named, y, std::string("x"));
  // error: a number is not a size: write deepum::bytes{n}, or 1_GiB
  deepum::arena other{gpu, {.capacity = 1 << 30}};
  // error: a number is not a size: write deepum::bytes{n}, or 1_GiB
  arena.set_budget(1ULL << 30U);
  // error: a number is not a size: write deepum::bytes{n}, or 1_GiB
  s.memcpy(y, x, sizeof(float));
  // error: allocate<T>(n) is for plain data
  (void)arena.allocate<std::vector<float>>(4);
  // error: elements of an array are plain data
  (void)arena.make_array<std::string>(4);
#endif
}
