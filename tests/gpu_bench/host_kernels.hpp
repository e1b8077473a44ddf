#pragma once

#include <cstdint>

namespace deepum_test {

/// The shape of the model that the kernels of the test compute: they are not told how large their grid is.
inline constexpr std::int64_t model_rows = 128;
inline constexpr std::int64_t model_heads = 4;

/// Makes the kernels of the benchmark and of the model known to the fake CUDA runtime.
void register_host_kernels();

}  // namespace deepum_test
