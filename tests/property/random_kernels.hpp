#pragma once

// The kernels of random programs on the simulated GPU.

#include "property/random_program.hpp"
#include <deepum/sim/kernel.hpp>

#include <algorithm>
#include <cstdint>

namespace deepum_test {

using word = std::uint32_t;

inline const deepum::sim::kernel fill_kernel{
    [](word* a, word n, word value) {
      for (word i = 0; i < n; ++i) {
        a[i] = filled(i, value);
      }
    },
    [](deepum::sim::work& w, word* a, word n, word) { w.overwrites(a, n * sizeof(word)); }};

inline const deepum::sim::kernel mix_kernel{[](word* a, word n, const word* b, word m, word value) {
                                              for (word i = 0; i < n; ++i) {
                                                a[i] = mixed(a[i], b[i % m], value);
                                              }
                                            },
                                            [](deepum::sim::work& w, word* a, word n, const word* b, word m, word) {
                                              w.reads(b, std::min(n, m) * sizeof(word));
                                              w.updates(a, n * sizeof(word));
                                            }};

inline const deepum::sim::kernel gather_kernel{
    [](word* a, word n, const word* b, word m, const word* index, word k, word value) {
      for (word i = 0; i < n; ++i) {
        a[i] = mixed(a[i], b[index[i % k] % m], value);
      }
    },
    [](deepum::sim::work& w, word* a, word n, const word* b, word m, const word* index, word k, word) {
      w.reads(index, std::min(n, k) * sizeof(word));
      for (word i = 0; i < std::min(n, k); i += 1 + k / 64) {  // the blocks that the contents lead to, roughly
        w.reads(b + index[i] % m, sizeof(word));
      }
      w.updates(a, n * sizeof(word));
    }};

/// Follows a pointer that lies in memory: what the launch touches cannot be seen from its arguments.
inline const deepum::sim::kernel chase_kernel{
    [](word* a, word n, word* const* where, word m, word value) {
      const word* b = *where;
      for (word i = 0; i < n; ++i) {
        a[i] = mixed(a[i], b[i % m], value);
      }
    },
    [](deepum::sim::work& w, word* a, word n, word* const* where, word m, word) {
      w.reads(where, sizeof(word*));
      w.reads(*where, std::min(n, m) * sizeof(word));
      w.updates(a, n * sizeof(word));
    }};

}  // namespace deepum_test
