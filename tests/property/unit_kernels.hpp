#pragma once

#include "property/random_program.hpp"

#include <cstddef>
#include <cstdint>

namespace deepum_test {

/// The kernels of programs in lockstep: they compute with the first word of each unit.
namespace unit_kernels {

using word = std::uint32_t;

inline void fill(word* a, word n, word unit, word value) {
  for (word i = 0; i < n; ++i) {
    a[std::size_t{i} * unit] = filled(i, value);
  }
}
inline void derive(word* a, word n, word ua, const word* b, word m, word ub, word value) {
  for (word i = 0; i < n; ++i) {
    a[std::size_t{i} * ua] = mixed(filled(i, value), b[std::size_t{i % m} * ub], value);
  }
}
inline void mix(word* a, word n, word ua, const word* b, word m, word ub, word value) {
  for (word i = 0; i < n; ++i) {
    word& w = a[std::size_t{i} * ua];
    w = mixed(w, b[std::size_t{i % m} * ub], value);
  }
}
inline void gather(word* a, word n, word ua, const word* b, word m, word ub, const word* c, word k, word uc,
                   word value) {
  for (word i = 0; i < n; ++i) {
    word& w = a[std::size_t{i} * ua];
    w = mixed(w, b[std::size_t{c[std::size_t{i % k} * uc] % m} * ub], value);
  }
}
[[nodiscard]] inline std::size_t size(word n, word unit) { return std::size_t{n} * unit * sizeof(word); }

}  // namespace unit_kernels

}  // namespace deepum_test
