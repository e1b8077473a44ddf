#include "../../examples/train_gpt/model.hpp"

#include "../../examples/train_gpt/backend_sim.hpp"
#include "support/test_scale.hpp"
#include <deepum/policy/make_policy.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <numeric>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace model_test {

using namespace train_gpt;
using namespace deepum::literals;

// A model with everything that it stands on.
template <class Backend>
struct basic_fixture {
  explicit basic_fixture(const model_shape& shape, std::uint64_t seed, const std::string& policy = "ideal",
                         bytes memory = 64_MiB, purpose use = purpose::training)
      : gpu{deepum::sim::find_profile("h200_pcie5"), {.memory = memory}},
        arena{gpu, {.capacity = 64_MiB, .device_budget = memory, .policy = policy, .log = [](std::string_view) {}}},
        stream{arena},
        model{arena, stream, shape, seed, use} {}

  typename Backend::device gpu;
  typename Backend::arena arena;
  typename Backend::stream stream;
  gpt<Backend> model;
};
using fixture = basic_fixture<sim_backend>;

std::vector<std::int32_t> random_bytes(std::mt19937_64& random, std::int64_t n) {
  std::vector<std::int32_t> values(static_cast<std::size_t>(n));
  for (std::int32_t& v : values)
    v = static_cast<std::int32_t>(random() % 256);
  return values;
}

template <class Backend>
std::vector<float> read(basic_fixture<Backend>& f, const float* p, std::int64_t n) {
  std::vector<float> values(static_cast<std::size_t>(n));
  f.stream.memcpy(values.data(), p, bytes{values.size() * sizeof(float)});
  f.stream.synchronize();
  return values;
}

void write(fixture& f, float* p, const std::vector<float>& values) {
  f.stream.memcpy(p, values.data(), bytes{values.size() * sizeof(float)});
  f.stream.synchronize();
}

void check_gradients(std::uint64_t seed) {
  CAPTURE(seed);
  std::mt19937_64 random{seed};
  const model_shape shape{.layers = 2, .width = 8, .heads = 2, .context = 5, .batch = 3};
  fixture f{shape, seed};
  const std::vector<std::int32_t> tokens = random_bytes(random, shape.rows());
  const std::vector<std::int32_t> targets = random_bytes(random, shape.rows());
  const auto loss = [&] {
    f.model.differentiate(tokens, targets);
    return static_cast<double>(f.model.loss());
  };
  // Scales, shifts and biases are all alike at first: move them, or an error in them may not show.
  for (std::size_t t = 0; t < f.model.sizes().size(); ++t) {
    std::vector<float> values = read(f, f.model.weights()[t], f.model.sizes()[t].count());
    for (float& v : values)
      v += static_cast<float>(random() >> 40) * 0x1p-24F * 0.4F - 0.2F;
    write(f, f.model.weights()[t], values);
  }
  (void)loss();
  std::vector<std::vector<float>> gradients;
  for (std::size_t t = 0; t < f.model.sizes().size(); ++t) {
    gradients.push_back(read(f, f.model.gradients()[t], f.model.sizes()[t].count()));
  }

  // The slope of the loss along a direction in one tensor.
  const auto slope = [&](std::size_t tensor, const std::vector<double>& direction, double step) {
    const std::vector<float> middle = read(f, f.model.weights()[tensor], f.model.sizes()[tensor].count());
    double seen[2] = {};
    for (const int side : {0, 1}) {
      std::vector<float> moved = middle;
      for (std::size_t i = 0; i < moved.size(); ++i) {
        moved[i] += static_cast<float>((side == 0 ? -step : step) * direction[i]);
      }
      write(f, f.model.weights()[tensor], moved);
      seen[side] = loss();
    }
    write(f, f.model.weights()[tensor], middle);
    return (seen[1] - seen[0]) / (2 * step);
  };
  // Two steps, so that how much the slope itself changes within one falls out (Richardson).
  const auto exact_slope = [&](std::size_t tensor, const std::vector<double>& direction, double step) {
    return (4 * slope(tensor, direction, step / 2) - slope(tensor, direction, step)) / 3;
  };

  for (std::size_t t = 0; t < gradients.size(); ++t) {
    CAPTURE(t);
    const std::vector<float>& g = gradients[t];
    const double length = std::sqrt(std::transform_reduce(g.begin(), g.end(), g.begin(), 0.0));
    REQUIRE(length > 1e-3);
    std::vector<double> direction(g.begin(), g.end());
    for (double& d : direction)
      d /= length;
    CHECK(exact_slope(t, direction, 0.01) == doctest::Approx(length).epsilon(0.02));

    std::vector<std::size_t> order(g.size());
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), random);
    std::partial_sort(order.begin(), order.begin() + 2, order.end(),
                      [&](std::size_t a, std::size_t b) { return std::abs(g[a]) > std::abs(g[b]); });
    order.resize(std::min(order.size(), 2 + deepum_test::scaled(5)));
    for (const std::size_t i : order) {
      std::vector<double> one(g.size());
      one[i] = 1;
      CHECK(exact_slope(t, one, 0.02) == doctest::Approx(static_cast<double>(g[i])).epsilon(0.02).scale(0.02));
    }
  }
}

TEST_CASE("the gradient of every tensor is what a small change of its weights does to the loss") {
  for (std::uint64_t seed = 1; seed <= deepum_test::scaled(3); ++seed) {
    check_gradients(seed);
  }
}

TEST_CASE("a prediction does not depend on what comes later, nor on what was there before") {
  std::mt19937_64 random{7};
  const model_shape shape{.layers = 2, .width = 16, .heads = 4, .context = 9, .batch = 2};
  fixture f{shape, 7};
  const std::vector<std::int32_t> tokens = random_bytes(random, shape.context);
  const std::vector<float> once = f.model.predict(std::span{tokens}.first(4));
  (void)f.model.predict(tokens);
  CHECK(f.model.predict(std::span{tokens}.first(4)) == once);
  CHECK(f.model.predict(std::span{tokens}.first(5)) != once);
}

TEST_CASE("the model learns a short text by heart") {
  const std::string text = "the train is late. ";
  const model_shape shape{.layers = 1, .width = 32, .heads = 2, .context = 18, .batch = 1};
  fixture f{shape, 5};
  std::vector<std::int32_t> tokens(text.begin(), text.end() - 1);
  std::vector<std::int32_t> targets(text.begin() + 1, text.end());
  float loss = 0;
  for (int step = 0; step < 60; ++step) {
    f.model.differentiate(tokens, targets);
    f.model.update(1e-2F);
    loss = f.model.loss();
    if (step == 0) CHECK(loss == doctest::Approx(std::log(256.0)).epsilon(0.1));
  }
  CHECK(loss < 0.1F);
}

// The losses of some steps, and the weights after them.
template <class Backend>
std::vector<float> trained(const model_shape& shape, const std::string& policy, bytes memory) {
  basic_fixture<Backend> f{shape, 3, policy, memory};
  std::mt19937_64 random{3};
  std::vector<float> outcome;
  for (int step = 0; step < 4; ++step) {
    f.model.differentiate(random_bytes(random, shape.rows()), random_bytes(random, shape.rows()));
    f.model.update(1e-3F);
    outcome.push_back(f.model.loss());
  }
  const auto all = static_cast<std::int64_t>(size_of(f.model.sizes()).count / sizeof(float));
  const std::vector<float> weights = read(f, f.model.weights().front(), all);
  outcome.insert(outcome.end(), weights.begin(), weights.end());
  return outcome;
}

TEST_CASE("every policy computes the same losses and weights, bit by bit, in a third of the memory") {
  const model_shape shape{.layers = 3, .width = 128, .heads = 4, .context = 32, .batch = 4};
  const bytes needed = footprint(shape);
  const bytes third = deepum::block_size * (needed / deepum::block_size / 3);
  const std::vector<float> expected = trained<sim_backend>(shape, "ideal", 64_MiB);
  for (const std::string_view policy : deepum::policy_names()) {
    CAPTURE(policy);
    CHECK(trained<sim_backend>(shape, std::string{policy}, policy == "ideal" ? 64_MiB : third) == expected);
  }
}

TEST_CASE("on memory that never faults every policy computes the same, with room for little more than a launch") {
  const model_shape shape{.layers = 4, .width = 160, .heads = 4, .context = 32, .batch = 4};
  const std::vector<float> expected = trained<sim_backend>(shape, "ideal", 64_MiB);
  for (const std::string_view policy : deepum::policy_names()) {
    CAPTURE(policy);
    CHECK(trained<paged_sim_backend>(shape, std::string{policy}, policy == "ideal" ? 64_MiB : 18_MiB) == expected);
  }
}

TEST_CASE("the footprint is what the model allocates") {
  const model_shape shape{.layers = 2, .width = 48, .heads = 3, .context = 7, .batch = 3};
  fixture f{shape, 1};
  CHECK(f.arena.footprint().allocated == footprint(shape));
}

TEST_CASE("a model for evaluation finds the loss of one for training, with one layer's activations and no gradients") {
  for (const std::int64_t layers : {1, 2, 5}) {
    CAPTURE(layers);
    const model_shape shape{.layers = layers, .width = 48, .heads = 3, .context = 7, .batch = 3};
    std::mt19937_64 random{4};
    const std::vector<std::int32_t> tokens = random_bytes(random, shape.rows());
    const std::vector<std::int32_t> targets = random_bytes(random, shape.rows());
    fixture training{shape, 8};
    training.model.differentiate(tokens, targets);
    fixture evaluation{shape, 8, "ideal", 64_MiB, purpose::evaluation};
    evaluation.model.evaluate(tokens, targets);
    CHECK(evaluation.model.loss() == training.model.loss());
    CHECK(evaluation.model.predict(std::span{tokens}.first(4)) == training.model.predict(std::span{tokens}.first(4)));

    CHECK(evaluation.model.gradients().empty());
    CHECK(evaluation.arena.footprint().allocated == footprint(shape, precision::fp32, purpose::evaluation));
    CHECK(evaluation.arena.footprint().allocated < training.arena.footprint().allocated);
    for (std::size_t t = 0; t < evaluation.model.sizes().size(); ++t) {
      const std::int64_t n = evaluation.model.sizes()[t].count();
      CHECK(read(evaluation, evaluation.model.weights()[t], n) == read(training, training.model.weights()[t], n));
    }
  }
}

TEST_CASE("every policy evaluates to the same losses in a third of the memory") {
  const model_shape shape{.layers = 4, .width = 128, .heads = 4, .context = 32, .batch = 4};
  const bytes needed = footprint(shape, precision::fp32, purpose::evaluation);
  const bytes third = deepum::block_size * (needed / deepum::block_size / 3);
  std::vector<float> expected;
  for (const std::string_view policy : deepum::policy_names()) {
    CAPTURE(policy);
    fixture f{shape, 3, std::string{policy}, policy == "ideal" ? 64_MiB : third, purpose::evaluation};
    std::mt19937_64 random{3};
    std::vector<float> losses;
    for (int step = 0; step < 4; ++step) {
      f.model.evaluate(random_bytes(random, shape.rows()), random_bytes(random, shape.rows()));
      losses.push_back(f.model.loss());
    }
    if (expected.empty()) expected = losses;
    CHECK(losses == expected);
  }
}

TEST_CASE("in bf16 a weight takes 18 bytes for training and 2 for evaluation, and activations shrink by half") {
  const model_shape wide{.layers = 2, .width = 1024, .heads = 8, .context = 64, .batch = 1};
  std::int64_t weights = 0;
  for (const tensor_size& t : parameter_sizes(wide))
    weights += t.count();
  const auto of_weights = [&](precision p, purpose use) {
    const bytes batch{static_cast<std::uint64_t>(wide.rows()) * 12};
    return static_cast<double>((footprint(wide, p, use) - size_of(activation_sizes(wide, p, use)) - batch).count) /
           static_cast<double>(weights);
  };
  CHECK(of_weights(precision::fp32, purpose::training) == doctest::Approx(16).epsilon(1e-4));
  CHECK(of_weights(precision::bf16, purpose::training) == doctest::Approx(18).epsilon(1e-4));
  CHECK(of_weights(precision::fp32, purpose::evaluation) == doctest::Approx(4).epsilon(1e-4));
  CHECK(of_weights(precision::bf16, purpose::evaluation) == doctest::Approx(2).epsilon(1e-4));

  const auto activations = [&](precision p, purpose use) {
    return static_cast<double>(size_of(activation_sizes(wide, p, use)).count);
  };
  CHECK(activations(precision::bf16, purpose::training) / activations(precision::fp32, purpose::training) ==
        doctest::Approx(0.5).epsilon(0.01));
  model_shape deeper = wide;
  deeper.layers = 40;
  CHECK(size_of(activation_sizes(deeper, precision::fp32, purpose::evaluation)) ==
        size_of(activation_sizes(wide, precision::fp32, purpose::evaluation)));
  CHECK(footprint(wide, precision::fp32, purpose::training, 3_MiB) - footprint(wide) == 3_MiB);
}

}  // namespace model_test
