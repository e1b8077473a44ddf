// In place of CUB's, which nvcc alone compiles: tests/short_examples/algorithms.hpp has what the examples call of it.
#pragma once
