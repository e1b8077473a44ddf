#pragma once

#include "examples/train_gpt/model.hpp"
#include "examples/train_gpt/operations_cuda.hpp"
#include "examples/train_gpt/shape.hpp"
#include "gpu/library/bench_system.hpp"
#include "gpu/library/hand_memory.hpp"
#include "gpu/opponents/slot_operations.hpp"
#include <deepum/units.hpp>

#include <cstdint>
#include <string>

// The model of examples/train_gpt on memory as each system has it.
namespace deepum::gpu_bench {

template <class T>
struct library_backend {
  using arena = adapted_arena;
  using stream = library_stream;
  using operations = train_gpt::cuda_operations<library_stream, T>;
};
template <class T>
struct hand_backend {
  using arena = hand_arena;
  using stream = hand_stream;
  using operations = train_gpt::cuda_operations<hand_stream, T>;
};
template <class T>
struct slot_backend {
  using arena = hand_arena;
  using stream = hand_stream;
  using operations = slot_operations<T>;
};

/// What is trained or evaluated, and from which random numbers.
struct model_set_up {
  train_gpt::model_shape shape{};
  train_gpt::purpose use = train_gpt::purpose::training;
  std::uint64_t seed = 0;
  bytes capacity{};  ///< of its memory
};

/// A model with its memory, without the library.
/// @tparam Backend  With `hand_arena` and `hand_stream`.
template <class Backend>
struct model_by_hand {
  /// @param hook  Sees the launches that draw the weights; it stays the stream's.
  explicit model_by_hand(memory_pool::kind kind, const model_set_up& s, launch_hook* hook = nullptr)
      : pool(kind, s.capacity),
        arena(pool),
        stream(arena),
        model(arena, with_hook(stream, hook), s.shape, s.seed, s.use) {}

  memory_pool pool;
  hand_arena arena;
  hand_stream stream;
  train_gpt::gpt<Backend> model;

 private:
  static hand_stream& with_hook(hand_stream& stream, launch_hook* hook) {
    stream.set_hook(hook);
    return stream;
  }
};
/// Everything on the device.
template <class T>
struct resident_gpt : model_by_hand<hand_backend<T>> {
  explicit resident_gpt(const model_set_up& s) : model_by_hand<hand_backend<T>>(memory_pool::kind::device, s) {}
};

/// A model with the library, under one system.
template <class T>
struct library_gpt {
  library_gpt(const bench_settings& settings, const std::string& name, const model_set_up& s, bytes budget)
      : system(settings, name, s.capacity, budget),
        arena(system),
        model(arena, system.stream(), s.shape, s.seed, s.use) {}

  library_system system;
  adapted_arena arena;
  train_gpt::gpt<library_backend<T>> model;
};

}  // namespace deepum::gpu_bench
