// The CUDA kernels of examples/train_gpt, and all that is around them, on the host: in a program of its own, whose
// CUDA is that of emulated_cuda/. What cuBLAS and CUB do on a GPU, tests/gpu/train_gpt_test.cpp checks.

#include "../../examples/train_gpt/backend_sim.hpp"
#include "../../examples/train_gpt/kernels_cuda.cu"
#include "../../examples/train_gpt/model.hpp"
#include "../../examples/train_gpt/operations_cuda.hpp"
#include "operation_checks.hpp"
#include <deepum/dim.hpp>
#include <deepum/operand.hpp>
#include <deepum/stream.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <initializer_list>
#include <list>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

using namespace train_gpt;
using namespace train_gpt_test;
using namespace deepum::literals;

namespace {

/// Memory that holds nothing of value at first. It knows its parts, as an arena does.
class host_arena {
 public:
  using span = std::span<std::byte>;

  template <class T>
  T* allocate(std::size_t n) {
    return static_cast<T*>(allocate_bytes(bytes{n * sizeof(T)}));
  }
  void* allocate_bytes(bytes size) {
    if (size.count == 0) return nullptr;
    allocated += size;
    memory_.push_back(std::make_unique<std::max_align_t[]>(size.count / sizeof(std::max_align_t) + 1));
    parts_.push_back({reinterpret_cast<std::byte*>(memory_.back().get()), size.count});
    std::memset(memory_.back().get(), 0xFF, size.count);
    return memory_.back().get();
  }
  void split(const void* p, std::span<const bytes> sizes) {
    const auto whole =
        std::find_if(parts_.begin(), parts_.end(), [p](const span& s) { return static_cast<void*>(s.data()) == p; });
    REQUIRE(whole != parts_.end());
    span rest = *whole;
    parts_.erase(whole);
    for (const bytes size : sizes) {
      parts_.push_back(rest.first(size.count));
      rest = rest.subspan(size.count);
    }
    CHECK(rest.empty());
  }
  /// What an operand names; empty where that is outside.
  [[nodiscard]] span named_by(const deepum::operand& o) const {
    const auto* p = static_cast<const std::byte*>(o.address);
    for (const span& s : parts_) {
      if (p >= s.data() && p < s.data() + s.size()) {
        const span behind = s.subspan(static_cast<std::size_t>(p - s.data()));
        if (o.size == deepum::operand::whole) return s;
        REQUIRE(o.size.count <= behind.size());
        return behind.first(o.size.count);
      }
    }
    return {};
  }
  [[nodiscard]] const std::vector<span>& parts() const { return parts_; }

  bytes allocated{};

 private:
  std::list<std::unique_ptr<std::max_align_t[]>> memory_{};
  std::vector<span> parts_{};
};

/// Launches at once, and holds each launch to what it declares, byte by byte, as memory that never faults does block by
/// block. What it declares to overwrite is gone before it begins: it has to write every byte of it. What it does not
/// declare is not there: it finds nothing of value, and may not write. What it reads is the same behind it.
class host_stream {
 public:
  explicit host_stream(host_arena& arena) : arena_(&arena) {}

  template <class... Parameters, class... Args>
  void launch(const std::string& /*name*/, deepum::dim grid, deepum::dim block, unsigned /*shared*/,
              void (*kernel)(Parameters...), Args... arguments) {
    std::vector<deepum::operand> operands;
    (add(operands, arguments), ...);
    alone(operands, [&] { enqueue(nullptr, grid, block, kernel, deepum::detail::kernel_argument(arguments)...); });
  }
  /// A kernel of the simulated GPU.
  template <class Body, class Describe, class... Args>
  void launch(const std::string& /*name*/, deepum::dim /*grid*/, deepum::dim /*block*/, unsigned /*shared*/,
              const deepum::sim::kernel<Body, Describe>& kernel, Args... arguments) {
    std::vector<deepum::operand> operands;
    (add(operands, arguments), ...);
    alone(operands, [&] { kernel.body(deepum::detail::kernel_argument(arguments)...); });
  }
  template <class Enqueue>
  void call(const std::string& /*name*/, std::initializer_list<deepum::operand> operands, const Enqueue& enqueue_all) {
    alone(operands, [&] { enqueue_all(cudaStream_t{}); });
  }
  void memcpy(void* to, const void* from, bytes n) { std::memcpy(to, from, n.count); }
  void memset(void* to, int value, bytes n) { std::memset(to, value, n.count); }
  void synchronize() {}

 private:
  template <class Argument>
  static void add(std::vector<deepum::operand>& operands, const Argument& argument) {
    if constexpr (std::is_class_v<Argument>) {
      operands.push_back(argument);
    } else if constexpr (std::is_pointer_v<Argument>) {
      const bool constant = std::is_const_v<std::remove_pointer_t<Argument>>;
      operands.push_back({argument, deepum::operand::whole, constant ? deepum::access::read : deepum::access::update});
    }
  }

  template <class Run>
  void alone(std::span<const deepum::operand> operands, const Run& run) {
    using deepum::access;
    const auto is_named = [&](const std::byte* p, access from) {
      return std::any_of(operands.begin(), operands.end(), [&](const deepum::operand& o) {
        const host_arena::span s = arena_->named_by(o);
        return o.mode >= from && p >= s.data() && p < s.data() + s.size();
      });
    };
    // Of every part, runs of bytes that are named in the same way; operands begin and end at few places.
    struct run_of_bytes {
      host_arena::span where;
      bool there;
      std::vector<std::byte> before;
    };
    std::vector<run_of_bytes> kept;
    for (const host_arena::span& part : arena_->parts()) {
      std::vector<std::size_t> cuts{0, part.size()};
      for (const deepum::operand& o : operands) {
        const host_arena::span s = arena_->named_by(o);
        if (s.data() >= part.data() && s.data() < part.data() + part.size()) {
          cuts.push_back(static_cast<std::size_t>(s.data() - part.data()));
          cuts.push_back(cuts.back() + s.size());
        }
      }
      std::sort(cuts.begin(), cuts.end());
      for (std::size_t i = 0; i + 1 < cuts.size(); ++i) {
        const host_arena::span s = part.subspan(cuts[i], cuts[i + 1] - cuts[i]);
        if (s.empty() || is_named(s.data(), access::update)) continue;
        kept.push_back({s, is_named(s.data(), access::read), {s.begin(), s.end()}});
        if (!kept.back().there) std::memset(s.data(), 0xFF, s.size());
      }
    }
    for (const deepum::operand& o : operands) {
      if (o.mode == access::overwrite && o.size != deepum::operand::whole) {
        const host_arena::span s = arena_->named_by(o);
        std::memset(s.data(), 0xFF, s.size());
      }
    }
    run();
    for (const run_of_bytes& r : kept) {
      const bool same = r.there ? std::equal(r.where.begin(), r.where.end(), r.before.begin())
                                : std::all_of(r.where.begin(), r.where.end(), [](std::byte b) { return b == gone; });
      CHECK(same);
      std::copy(r.before.begin(), r.before.end(), r.where.begin());
    }
  }

  static constexpr std::byte gone{0xFF};

  host_arena* arena_;
};

template <class T>
struct host_backend {
  using arena = host_arena;
  using stream = host_stream;
  using operations = cuda_operations<stream, T>;
};

/// The launches of the simulated GPU.
struct host_sim_backend {
  using arena = host_arena;
  using stream = host_stream;
  using operations = sim_operations<stream>;
};

template <class T>
void add_kernels() {
  const cuda_kernels<T>& k = kernels_for<T>();
  emulated::add(k.embed_forward);
  emulated::add(k.embed_backward);
  emulated::add(k.layernorm_forward);
  emulated::add(k.layernorm_backward_input);
  emulated::add(k.layernorm_backward_weight);
  emulated::add(k.bias_forward);
  emulated::add(k.bias_backward);
  emulated::add(k.residual_forward);
  emulated::add(k.gelu_forward);
  emulated::add(k.gelu_backward);
  emulated::add(k.softmax_forward);
  emulated::add(k.softmax_backward);
  emulated::add(k.cross_entropy);
  emulated::add(k.adamw);
}

// What a backend needs, in one place.
template <class T>
struct fixture {
  fixture() { add_kernels<T>(); }
  host_arena arena{};
  host_stream stream{arena};
};

template <class T>
void check_operations() {
  for (const model_shape& shape : shapes_to_check()) {
    CAPTURE(shape.width);
    CAPTURE(shape.context);
    fixture<T> f;
    operation_checks<host_backend<T>>{f.arena, f.stream, shape, std::random_device{}()}.all();
  }
}

constexpr model_shape small{.layers = 3, .width = 20, .heads = 2, .context = 13, .batch = 2};

outcome simulated(int steps) {
  sim_backend::device gpu{deepum::sim::find_profile("h200_pcie5"), {.memory = 64_MiB}};
  sim_backend::arena arena{gpu, {.capacity = 64_MiB, .device_budget = 64_MiB, .policy = "ideal"}};
  sim_backend::stream stream{arena};
  return train_shortly<sim_backend>(arena, stream, small, steps);
}

template <class T>
void check_training(tolerance t) {
  fixture<T> f;
  const outcome found = train_shortly<host_backend<T>>(f.arena, f.stream, small, 3);
  check_agreement(found, simulated(3), t);
  fixture<T> again;
  const outcome twice = train_shortly<host_backend<T>>(again.arena, again.stream, small, 3);
  CHECK(twice.losses == found.losses);
  CHECK(twice.gradients == found.gradients);
  CHECK(twice.weights == found.weights);
}

template <class T>
void check_footprint(purpose use) {
  fixture<T> f;
  gpt<host_backend<T>> model{f.arena, f.stream, small, 1, use};
  CHECK(f.arena.allocated == gpt<host_backend<T>>::footprint(small, use));
  std::vector<std::int32_t> text(static_cast<std::size_t>(small.rows()), 65);
  model.evaluate(text, text);
  fixture<T> other;
  gpt<host_backend<T>> for_training{other.arena, other.stream, small, 1};
  for_training.evaluate(text, text);
  CHECK(model.loss() == for_training.loss());
  CHECK(model.predict(std::span{text}.first(3)) == for_training.predict(std::span{text}.first(3)));
}

}  // namespace

TEST_CASE("the launches of the simulated GPU declare all that they touch, byte by byte") {
  fixture<float> f;
  const outcome found = train_shortly<host_sim_backend>(f.arena, f.stream, small, 3);
  CHECK(found.losses == simulated(3).losses);
}
TEST_CASE("every CUDA operation in fp32 is that of the host") { check_operations<float>(); }
TEST_CASE("every CUDA operation in bf16 is that of the host, rounded") { check_operations<bf16>(); }
TEST_CASE("the CUDA kernels train as the simulated GPU does, the same in every run") {
  check_training<float>(in_fp32);
  check_training<bf16>(in_bf16);
}
TEST_CASE("the footprint is what is allocated, and evaluation finds the loss that training finds") {
  for (const purpose use : {purpose::training, purpose::evaluation}) {
    check_footprint<float>(use);
    check_footprint<bf16>(use);
  }
}
