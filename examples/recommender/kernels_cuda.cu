#include "kernels_cuda.hpp"

namespace recommender::cuda_kernels {
namespace {

__device__ index thread() { return static_cast<index>(blockIdx.x * blockDim.x + threadIdx.x); }

__global__ void embed_all(float* x, const float* table, const index* rows, index t, sizes m) {
  if (thread() < m.batch * m.weights()) embed_element(thread(), x, table, rows, t, m);
}
__global__ void bottom_all(float* x, const float* dense, const float* w0, sizes m) {
  if (thread() < m.batch * m.weights()) bottom_element(thread(), x, dense, w0, m);
}
__global__ void hidden_all(float* h, const float* x, const float* w1, sizes m) {
  if (thread() < m.batch * m.hidden) hidden_element(thread(), h, x, w1, m);
}
__global__ void predict_all(float* loss, float* g, const float* h, const float* w2, const float* labels, sizes m) {
  if (thread() < m.batch) predict_element(thread(), loss, g, h, w2, labels, m);
}
__global__ void hidden_back_all(float* dh, const float* g, const float* h, const float* w2, sizes m) {
  if (thread() < m.batch * m.hidden) hidden_back_element(thread(), dh, g, h, w2, m);
}
__global__ void learn_w2_all(float* w2, const float* g, const float* h, sizes m) {
  if (thread() < m.hidden) w2_element(thread(), w2, g, h, m);
}
__global__ void input_back_all(float* dx, const float* dh, const float* w1, sizes m) {
  if (thread() < m.batch * m.inputs()) input_back_element(thread(), dx, dh, w1, m);
}
__global__ void learn_w1_all(float* w1, const float* x, const float* dh, sizes m) {
  if (thread() < m.inputs() * m.hidden) w1_element(thread(), w1, x, dh, m);
}
__global__ void learn_w0_all(float* w0, const float* dx, const float* x, const float* dense, sizes m) {
  if (thread() < m.features * m.weights()) w0_element(thread(), w0, dx, x, dense, m);
}
__global__ void adagrad_all(float* table, const float* dx, const index* unique, const index* first, const index* users,
                            index t, index count, sizes m) {
  if (thread() < count) adagrad_row(thread(), table, dx, unique, first, users, t, m);
}

}  // namespace

void (*const embed)(float*, const float*, const index*, index, sizes) = embed_all;
void (*const bottom)(float*, const float*, const float*, sizes) = bottom_all;
void (*const hidden)(float*, const float*, const float*, sizes) = hidden_all;
void (*const predict)(float*, float*, const float*, const float*, const float*, sizes) = predict_all;
void (*const hidden_back)(float*, const float*, const float*, const float*, sizes) = hidden_back_all;
void (*const learn_w2)(float*, const float*, const float*, sizes) = learn_w2_all;
void (*const input_back)(float*, const float*, const float*, sizes) = input_back_all;
void (*const learn_w1)(float*, const float*, const float*, sizes) = learn_w1_all;
void (*const learn_w0)(float*, const float*, const float*, const float*, sizes) = learn_w0_all;
void (*const adagrad)(float*, const float*, const index*, const index*, const index*, index, index,
                      sizes) = adagrad_all;

}  // namespace recommender::cuda_kernels
