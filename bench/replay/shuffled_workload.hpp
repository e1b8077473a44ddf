#pragma once

#include "derived_workload.hpp"

#include <cstddef>
#include <random>
#include <string>

namespace deepum::replay {

using random_bits = std::mt19937_64;

/// The distributions of the standard library differ from one to the other; this one does not.
[[nodiscard]] inline std::size_t below(random_bits& random, std::size_t n) {
  return static_cast<std::size_t>(random() % n);
}

/// The workload with tensors that do not persist at other addresses.
[[nodiscard]] workload_pointer rearranged(const workload& base, bool mirrored, random_bits& random);
[[nodiscard]] workload_pointer in_random_order(const workload& base, const std::string& name, random_bits& random);
[[nodiscard]] workload_pointer with_random_lookups(const workload& base, std::size_t variants, random_bits& random);

}  // namespace deepum::replay
