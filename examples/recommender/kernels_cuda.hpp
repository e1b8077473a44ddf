#pragma once

#include "elements.hpp"

/// The boundary between the kernels, which nvcc compiles, and the program, which it does not: pointers to `__global__`
/// functions, each with one thread for an element or a row.
namespace recommender::cuda_kernels {

extern void (*const embed)(float* x, const float* table, const index* rows, index t, sizes m);
extern void (*const bottom)(float* x, const float* dense, const float* w0, sizes m);
extern void (*const hidden)(float* h, const float* x, const float* w1, sizes m);
extern void (*const predict)(float* loss, float* g, const float* h, const float* w2, const float* labels, sizes m);
extern void (*const hidden_back)(float* dh, const float* g, const float* h, const float* w2, sizes m);
extern void (*const learn_w2)(float* w2, const float* g, const float* h, sizes m);
extern void (*const input_back)(float* dx, const float* dh, const float* w1, sizes m);
extern void (*const learn_w1)(float* w1, const float* x, const float* dh, sizes m);
extern void (*const learn_w0)(float* w0, const float* dx, const float* x, const float* dense, sizes m);
extern void (*const adagrad)(float* table, const float* dx, const index* unique, const index* first, const index* users,
                             index t, index count, sizes m);

}  // namespace recommender::cuda_kernels
