#pragma once

#include <cstdint>

/// The boundary between the kernels, which nvcc compiles, and the program, which it does not.
namespace deepum_driver_facts_kernels {

using word = std::uint32_t;

/// Pointers to `__global__` functions, which the host compiler can launch. Grids and blocks are one-dimensional, and
/// any number of threads does the work.
struct kernels {
  void (*nothing)();
  /// Word i becomes (i * 2654435761) ^ seed.
  void (*fill)(word* x, std::uint64_t n, word seed);
  /// Reads every word. `sink` is there so that the compiler cannot leave that out; one word, of no value.
  void (*read)(const word* x, std::uint64_t n, word* sink);
  /// wrong[0] += the number of words that are not as `fill` wrote them.
  void (*count_wrong)(const word* x, std::uint64_t n, word seed, unsigned long long* wrong);
  /// @name Rows picked at random, the same ones each time
  /// @param pieces  Of 16 bytes, in a row.
  /// @{

  /// Reads `picks` rows. `sink` as for `read`.
  void (*gather)(const word* x, std::uint64_t n, std::uint32_t pieces, std::uint64_t picks, word* sink);
  /// Writes them as `fill` does.
  void (*scatter)(word* x, std::uint64_t n, word seed, std::uint32_t pieces, std::uint64_t picks);
  /// Adds `value` to each of their words, atomically.
  void (*add_to_rows)(word* x, std::uint64_t n, std::uint32_t words, std::uint64_t picks, word value);
  /// @}

  /// began[0] = the GPU's timer, ns; then runs for `ns` nanoseconds. For a single thread.
  void (*wait)(unsigned long long ns, unsigned long long* began);
};

[[nodiscard]] const kernels& all();

}  // namespace deepum_driver_facts_kernels
