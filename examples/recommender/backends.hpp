#pragma once

#include "elements.hpp"
#include "kernels_sim.hpp"

#if RECOMMENDER_CUDA
#include "kernels_cuda.hpp"
#endif

namespace recommender {

/// The kernels as the model names them, on the simulated GPU.
struct on_sim {
  template <class Stream, class Kernel, class... Args>
  static void launch(Stream& s, const char* called, const Kernel& k, index threads, Args... args) {
    (void)threads;
    s.launch(called, 1, 1, 0, k, args...);
  }
  static const auto& embed() { return sim_kernels::embed; }
  static const auto& bottom() { return sim_kernels::bottom; }
  static const auto& hidden() { return sim_kernels::hidden; }
  static const auto& predict() { return sim_kernels::predict; }
  static const auto& hidden_back() { return sim_kernels::hidden_back; }
  static const auto& learn_w2() { return sim_kernels::learn_w2; }
  static const auto& input_back() { return sim_kernels::input_back; }
  static const auto& learn_w1() { return sim_kernels::learn_w1; }
  static const auto& learn_w0() { return sim_kernels::learn_w0; }
  static const auto& adagrad() { return sim_kernels::adagrad; }
};

#if RECOMMENDER_CUDA
/// The same on a CUDA device.
struct on_cuda {
  template <class Stream, class Kernel, class... Args>
  static void launch(Stream& s, const char* called, const Kernel& k, index threads, Args... args) {
    constexpr index of_block = 128;
    s.launch(called, static_cast<unsigned>((threads + of_block - 1) / of_block), of_block, 0, k, args...);
  }
  static const auto& embed() { return cuda_kernels::embed; }
  static const auto& bottom() { return cuda_kernels::bottom; }
  static const auto& hidden() { return cuda_kernels::hidden; }
  static const auto& predict() { return cuda_kernels::predict; }
  static const auto& hidden_back() { return cuda_kernels::hidden_back; }
  static const auto& learn_w2() { return cuda_kernels::learn_w2; }
  static const auto& input_back() { return cuda_kernels::input_back; }
  static const auto& learn_w1() { return cuda_kernels::learn_w1; }
  static const auto& learn_w0() { return cuda_kernels::learn_w0; }
  static const auto& adagrad() { return cuda_kernels::adagrad; }
};
#endif

}  // namespace recommender
