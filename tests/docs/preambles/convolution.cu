// cuda_arena.cu with the tensors of a convolution.
#include <deepum/arena.hpp>
#include <deepum/cuda.hpp>
#include <deepum/operand.hpp>
#include <deepum/stream.hpp>

#include <cstddef>

using deepum::overwrites;
using deepum::reads;
using memory = deepum::cuda::managed_memory;

void in_function(deepum::arena<memory>& arena, deepum::stream<memory>& s, std::size_t n,
                 cudnnTensorDescriptor_t x_shape, cudnnFilterDescriptor_t w_shape, cudnnTensorDescriptor_t y_shape,
                 cudnnTensorDescriptor_t b_shape, cudnnConvolutionDescriptor_t how, cudnnActivationDescriptor_t relu,
                 cudnnConvolutionBwdDataAlgo_t data_algorithm, const cudnnConvolutionBwdFilterAlgoPerf_t& found,
                 const float* x, const float* w, float* y, float* dx, const float* dy, float* dw, float* db) {
  const cudnnConvolutionBwdFilterAlgo_t filter_algorithm = found.algo;
  const float one = 1;
  const float zero = 0;
  // In a scope of its own, so that it may have its own names for what is there.
  {
    // the block
  }
}
