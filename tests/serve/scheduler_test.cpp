#include "../../examples/serve/scheduler.hpp"

#include "../../examples/serve/generation.hpp"
#include "../../examples/serve/server_metrics.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace scheduler_test {

using namespace serve;
using namespace std::chrono_literals;

/// Models whose logits are a hash of all that they may depend on.
class hashing_models {
 public:
  std::function<void(std::size_t)> before{};  // each prediction; may throw
  std::vector<std::size_t> order{};           // of the models that predicted
  std::size_t longest = 0;
  std::vector<const void*> places{};  // of the tokens

  [[nodiscard]] std::size_t count() const { return 2; }
  [[nodiscard]] std::size_t context() const { return 6; }
  [[nodiscard]] std::vector<float> predict(std::size_t model, std::span<const std::int32_t> tokens) {
    if (before) before(order.size());
    order.push_back(model);
    places.push_back(tokens.data());
    longest = std::max(longest, tokens.size());
    std::uint64_t hash = model + 1;
    for (const std::int32_t t : tokens)
      hash = (hash ^ static_cast<std::uint64_t>(t)) * 0x9E3779B97F4A7C15U + (hash >> 29);
    std::vector<float> logits(256, -100.0F);
    std::mt19937_64 random{hash};
    for (std::size_t i = 'a'; i <= 'z'; ++i)
      logits[i] = static_cast<float>(random() % 1000) / 200.0F;
    return logits;
  }
};

generation_ptr text(std::size_t model, const std::string& prompt, std::int64_t tokens, std::uint64_t seed,
                    wall_clock::duration time = 1h) {
  return std::make_shared<generation>(
      generate_request{.model = model, .prompt = prompt, .tokens = tokens, .seed = seed, .temperature = 1.0},
      wall_clock::now() + time);
}

struct server {
  hashing_models models{};
  server_metrics metrics{2};
  generation_queue queue{100};

  // Writes all of these texts, so many at once.
  void write(const std::vector<generation_ptr>& texts, std::size_t active) {
    for (const generation_ptr& t : texts)
      REQUIRE(queue.try_push(t) == offered::taken);
    queue.close();
    scheduler<hashing_models>(models, queue, active, metrics).run();
  }
};

std::string all_of(generation& g) {
  std::string all;
  for (;;) {
    const generation::piece piece = g.wait();
    all += piece.text;
    if (piece.end) {
      CHECK(*piece.end == outcome::finished);
      return all;
    }
  }
}

TEST_CASE("a text is the same alone and beside any others, in any order") {
  std::vector<std::string> alone;
  const auto ask = [](std::size_t i) {
    return text(i % 2, std::string(i % 9 + 1, static_cast<char>('A' + i % 3)), static_cast<std::int64_t>(i % 7 + 1), i);
  };
  for (std::size_t i = 0; i < 24; ++i) {
    server one;
    const generation_ptr t = ask(i);
    one.write({t}, 1);
    alone.push_back(all_of(*t));
    CHECK(alone.back().size() == i % 7 + 1);
  }
  std::mt19937_64 random{1};
  for (const std::size_t active : {1, 2, 5, 24}) {
    server many;
    std::vector<std::size_t> order(24);
    for (std::size_t i = 0; i < order.size(); ++i)
      order[i] = i;
    std::shuffle(order.begin(), order.end(), random);
    std::vector<generation_ptr> texts;
    for (const std::size_t i : order)
      texts.push_back(ask(i));
    many.write(texts, active);
    for (std::size_t i = 0; i < order.size(); ++i)
      CHECK(all_of(*texts[i]) == alone[order[i]]);
  }
}

TEST_CASE("a text follows its model, its seed and its temperature") {
  server s;
  const auto ask = [](std::size_t model, std::uint64_t seed, double temperature) {
    return std::make_shared<generation>(
        generate_request{.model = model, .prompt = "x", .tokens = 30, .seed = seed, .temperature = temperature},
        wall_clock::now() + 1h);
  };
  const std::vector<generation_ptr> texts{ask(0, 1, 1.0), ask(0, 1, 1.0), ask(1, 1, 1.0),
                                          ask(0, 2, 1.0), ask(0, 1, 0.0), ask(0, 2, 0.0)};
  s.write(texts, 6);
  std::vector<std::string> said;
  for (const generation_ptr& t : texts)
    said.push_back(all_of(*t));
  CHECK(said[0] == said[1]);
  CHECK(said[0] != said[2]);
  CHECK(said[0] != said[3]);
  CHECK(said[0] != said[4]);
  CHECK(said[4] == said[5]);
}

TEST_CASE("the models take turns, and in a turn every text of a model gets a byte") {
  server s;
  s.write({text(0, "x", 3, 1), text(1, "x", 3, 2), text(0, "x", 3, 3), text(1, "x", 2, 4)}, 4);
  CHECK(s.models.order == std::vector<std::size_t>{0, 0, 1, 1, 0, 0, 1, 1, 0, 0, 1});
  CHECK(s.metrics.text({}).find("serve_model_changes_total 6\n") != std::string::npos);
}

TEST_CASE("a model sees no more than its context, always at the same place") {
  server s;
  const std::string prompt = "0123456789";
  const generation_ptr first = text(0, prompt, 20, 1);
  const generation_ptr same_end = text(0, "another beginning 456789", 20, 1);
  s.write({first, same_end}, 2);
  CHECK(s.models.longest == 6);
  CHECK(all_of(*first) == all_of(*same_end));
  CHECK(std::all_of(s.models.places.begin(), s.models.places.end(), [&](auto p) { return p == s.models.places[0]; }));
}

TEST_CASE("what cannot be printed is a space to the reader") {
  struct odd_models : hashing_models {
    [[nodiscard]] std::vector<float> predict(std::size_t /*model*/, std::span<const std::int32_t> tokens) {
      seen.assign(tokens.begin(), tokens.end());
      std::vector<float> logits(256);
      logits[std::size_t{next++} % 256] = 1e6F;
      return logits;
    }
    unsigned next = 0;
    std::vector<std::int32_t> seen{};
  } models;
  server_metrics metrics{2};
  generation_queue queue{1};
  const generation_ptr t = text(0, "x", 256, 1);
  REQUIRE(queue.try_push(t) == offered::taken);
  queue.close();
  scheduler<odd_models>(models, queue, 1, metrics).run();
  std::string expected;
  for (int c = 0; c < 256; ++c)
    expected.push_back(c == '\n' || (c >= 32 && c < 127) ? static_cast<char>(c) : ' ');
  CHECK(all_of(*t) == expected);
  CHECK(models.seen.back() == 254);  // and itself to the model
}

TEST_CASE("a text that nobody reads is not gone on with") {
  server s;
  const generation_ptr left = text(0, "x", 1000, 1);
  const generation_ptr waiting = text(0, "x", 1000, 2);
  const generation_ptr read = text(1, "x", 5, 3);
  waiting->end(outcome::cancelled);
  s.models.before = [&](std::size_t predictions) {
    if (predictions == 4) left->end(outcome::cancelled);
  };
  s.write({left, waiting, read}, 3);
  CHECK(all_of(*read).size() == 5);
  CHECK(s.models.order.size() == 8);  // three of the first and all five of the last
  CHECK(left->wait().end == outcome::cancelled);
}

TEST_CASE("a text without time left ends, in the queue and behind some bytes") {
  server s;
  const generation_ptr late = text(0, "x", 5, 1, -1ms);
  const generation_ptr slow = text(1, "x", 1'000'000'000, 2, 20ms);
  s.write({late, slow}, 2);
  const generation::piece nothing = late->wait();
  CHECK(nothing.text.empty());
  CHECK(nothing.end == outcome::timed_out);
  const generation::piece some = slow->wait();
  CHECK(some.end == outcome::timed_out);
  CHECK(std::count(s.models.order.begin(), s.models.order.end(), 0U) == 0);
}

TEST_CASE("who waits for a text is told of the deadline by nobody else") {
  const generation_ptr t = text(0, "x", 5, 1, 5ms);
  CHECK(t->wait().end == outcome::timed_out);
  CHECK(t->ended());
  t->append('x');
  t->end(outcome::finished);
  const generation::piece still = t->wait();
  CHECK(still.text.empty());
  CHECK(still.end == outcome::timed_out);
}

TEST_CASE("a device that fails ends the text that it failed for, with the reason, and no other") {
  server s;
  const generation_ptr bad = text(0, "x", 5, 1);
  const generation_ptr good = text(1, "x", 5, 2);
  s.models.before = [&](std::size_t predictions) {
    if (predictions == 2) {
      s.models.before = nullptr;
      throw std::runtime_error("broken");
    }
  };
  s.write({bad, good}, 2);
  const generation::piece some = bad->wait();
  CHECK(some.text.size() == 1);
  CHECK(some.end == outcome::failed);
  CHECK(bad->why() == "broken");
  CHECK(all_of(*good).size() == 5);
}

TEST_CASE("texts that wait longer than they may leave the queue to others while the worker is busy") {
  server s;
  const generation_ptr busy = text(0, "x", 3, 1);
  const generation_ptr late = text(0, "x", 3, 2);
  std::size_t waiting_at_last = 99;
  s.models.before = [&](std::size_t predictions) {
    if (predictions == 0) late->end(outcome::timed_out);
    if (predictions == 2) waiting_at_last = s.queue.size();
  };
  s.write({busy, late}, 1);
  CHECK(waiting_at_last == 0);
}

}  // namespace scheduler_test
