// Layer scopes: a fact about launches that reaches the policy with each of them.

#include <deepum/deepum.hpp>
#include <deepum/policy/lru.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace layer_scopes_test {

using namespace deepum;
using namespace deepum::literals;

constexpr std::size_t per_block = 2 * 1024 * 1024;

const auto nothing = sim::kernel([](std::byte*) {}, [](sim::work&, std::byte*) {});

/// Keeps the layer of each launch.
class watching_policy final : public policy {
 public:
  explicit watching_policy(std::vector<std::optional<layer_scope>>& into) : seen_(into) {}
  [[nodiscard]] std::string_view name() const override { return "watching"; }
  void on_launch(const launch_record& record, const block_map&) override {
    seen_.push_back(record.layer ? std::optional(*record.layer) : std::nullopt);
  }
  void plan_next(const block_map&, plan&) override {}
  [[nodiscard]] policy_statistics statistics() const override { return {}; }

 private:
  std::vector<std::optional<layer_scope>>& seen_;
};

struct fixture {
  fixture() {
    arena_options o{.capacity = 64_MiB, .device_budget = 32_MiB, .log = {}};
    o.make_policy = [this](const policy_options&) { return std::make_unique<watching_policy>(seen); };
    memory.emplace(gpu, o);
    s.emplace(*memory);
  }
  void launch() { s->launch("nothing", 1, 1, 0, nothing, static_cast<std::byte*>(nullptr)); }
  const std::vector<std::optional<layer_scope>>& launches() {
    s->synchronize();
    (void)memory->statistics();
    return seen;
  }

  std::vector<std::optional<layer_scope>> seen{};
  sim::device gpu{sim::find_profile("h200_pcie5")};
  std::optional<arena<sim::managed_memory>> memory{};
  std::optional<stream<sim::managed_memory>> s{};
};

TEST_CASE_FIXTURE(fixture, "launches and copies within a scope belong to its layer, others to none") {
  auto* x = memory->allocate<std::byte>(4 * per_block);
  launch();
  {
    const auto at = s->layer({.layer = 7, .kind = layer_kind::conv, .input = {reads(x, 2 * per_block)}});
    launch();
    s->memset(x, 0, bytes{per_block});
    s->call("call", {updates(x)}, [](auto&) {});
  }
  launch();
  {
    const auto at = s->layer({.layer = 7, .pass = layer_pass::backward});
    launch();
  }
  REQUIRE(launches().size() == 6);
  CHECK_FALSE(seen[0]);
  for (const std::size_t i : {1U, 2U, 3U}) {
    REQUIRE(seen[i]);
    CHECK(seen[i]->layer == 7);
    CHECK(seen[i]->pass == layer_pass::forward);
    CHECK(seen[i]->kind == layer_kind::conv);
    REQUIRE(seen[i]->input.size() == 1);
    CHECK(seen[i]->input[0].count == 2);
    CHECK(seen[i]->shared == 0);
    CHECK(seen[i]->number == 1);
  }
  CHECK_FALSE(seen[4]);
  REQUIRE(seen[5]);
  CHECK(seen[5]->pass == layer_pass::backward);
  CHECK(seen[5]->number == 2);
}

TEST_CASE_FIXTURE(fixture, "blocks that an input shares with other memory are counted, and are not part of it") {
  auto* x = memory->allocate<std::byte>(4 * per_block);
  {
    const auto at = s->layer({.layer = 0, .input = {reads(x + 100, 2 * per_block), reads(x, 10)}});
    launch();
  }
  REQUIRE(launches().size() == 1);
  REQUIRE(seen[0]->input.size() == 2);
  CHECK(seen[0]->input[0].count == 1);
  CHECK(seen[0]->input[1].empty());
  CHECK(seen[0]->shared == 3);
}

TEST_CASE_FIXTURE(fixture, "an input outside the arena is none that could be moved") {
  std::vector<std::byte> outside(16);
  {
    const auto at = s->layer({.layer = 0, .input = {reads(outside.data(), outside.size())}});
    launch();
  }
  REQUIRE(launches().size() == 1);
  CHECK(seen[0]->input.empty());
}

TEST_CASE_FIXTURE(fixture, "layers of one stream do not nest; those of two streams are open at once") {
  stream other(*memory);
  const auto at = s->layer({.layer = 3});
  CHECK_THROWS_WITH_AS((void)s->layer({.layer = 4}),
                       doctest::Contains("layer 4 begins within layer 3 of its stream; layers do not nest"), error);
  const auto beside = other.layer({.layer = 5});
  launch();
  other.launch("nothing", 1, 1, 0, nothing, static_cast<std::byte*>(nullptr));
  other.synchronize();
  REQUIRE(launches().size() == 2);
  CHECK(seen[0]->layer == 3);
  CHECK(seen[1]->layer == 5);
}

TEST_CASE_FIXTURE(fixture, "a backward pass names no input, and an input is memory that there is") {
  auto* x = memory->allocate<std::byte>(per_block);
  CHECK_THROWS_WITH_AS((void)s->layer({.layer = 2, .pass = layer_pass::backward, .input = {reads(x)}}),
                       doctest::Contains("names an input in the backward pass"), error);
  CHECK_THROWS_WITH_AS((void)s->layer({.layer = 2, .input = {reads(x, 2 * per_block)}}), doctest::Contains("layer 2"),
                       error);
  launch();
  CHECK_FALSE(launches().back());  // nothing is left open
}

TEST_CASE_FIXTURE(fixture, "a scope may end after its stream") {
  std::unique_ptr<in_layer> at(new in_layer(s->layer({.layer = 1})));
  s.reset();
  at.reset();
  s.emplace(*memory);
  launch();
  CHECK_FALSE(launches().back());
}

TEST_CASE_FIXTURE(fixture, "an error within a scope ends it") {
  try {
    const auto at = s->layer({.layer = 1});
    throw 1;
  } catch (int) {
  }
  launch();
  CHECK_FALSE(launches().back());
}

}  // namespace layer_scopes_test
