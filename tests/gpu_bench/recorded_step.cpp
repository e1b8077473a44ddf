// A recorded step as lp_bound.py reads it.

#include "gpu/library/recorded_step.hpp"

#include "gpu/library/step_program.hpp"
#include "nlohmann/json.hpp"
#include "replay/step_json.hpp"
#include <deepum/core/launch.hpp>
#include <deepum/planning/step_segments.hpp>
#include <deepum/units.hpp>

#include <doctest/doctest.h>

#include <vector>

namespace recorded_steps {

using namespace deepum::gpu_bench;
using namespace deepum::literals;
using deepum::access;
using deepum::nanoseconds;
using deepum::step_segments;

using times = std::vector<nanoseconds>;

// Blocks: 0 is weights, 1 activations, 2 is read and written in part, 3 is read alone.
step_program small_step() {
  step_program p{.capacity = 10_MiB, .parts = {{0_MiB, 8_MiB}}};
  p.launches.push_back(
      {"forward", {{0_MiB, 2_MiB, access::read}, {2_MiB, 2_MiB, access::overwrite}, {6_MiB, 2_MiB, access::read}}});
  p.launches.push_back({"backward", {{2_MiB, 2_MiB, access::read}, {4_MiB, 1_MiB, access::overwrite}}});
  p.launches.push_back({"update", {{0_MiB, 2_MiB, access::update}, {4_MiB, 2_MiB, access::read}}});
  return p;
}

TEST_CASE("what a step reads is copied when it leaves if the step writes it, and what it overwrites is dead before") {
  const deepum::step_description step = described(small_step(), times{nanoseconds{5}, nanoseconds{7}, nanoseconds{9}});
  const nlohmann::json j = deepum::replay::json_of("small", 1, step);
  CHECK(j["deepum_step"] == 1);
  CHECK(j["name"] == "small");
  CHECK(j["steps"] == 1);
  CHECK(j["block_bytes"] == 2U << 20);
  CHECK(j["launches"] == nlohmann::json{{5, 3}, {7, 2}, {9, 2}});
  // segment, blocks, launch, next, held, writes, returns
  CHECK(j["gaps"] == nlohmann::json{{0, 1, 0, 2, 1, 1, 1},
                                    {0, 1, 2, 0, 0, 1, 1},
                                    {1, 1, 0, 1, 0, 1, 1},
                                    {1, 1, 1, 0, 0, 1, 0},  // dead: it takes no room in the launch behind
                                    {2, 1, 1, 2, 0, 1, 1},
                                    {2, 1, 2, 1, 1, 1, 1},
                                    {3, 1, 0, 0, 2, 0, 1}});
}

TEST_CASE("what a program says is of no value is dead where blocks are so as a whole") {
  step_program p = small_step();
  // Two ranges that cover a block between them, and half of another one.
  p.launches[1].changes = {{4_MiB, 1_MiB, true}};
  p.launches[2].changes = {{4_MiB, 1_MiB, false}, {5_MiB, 2_MiB, false}};
  const step_segments cut(described(p, times(3)));
  REQUIRE(cut.gaps().size() == 7);
  CHECK(!cut.gaps()[5].returns);
  CHECK(cut.gaps()[5].held == 0);
  CHECK(cut.gaps()[6].returns);
  CHECK(cut.gaps()[4].returns);  // half of it was said to be of value again
}

TEST_CASE("times of launches are shortened alike when their sum is more than the step takes") {
  const times of{nanoseconds{100}, nanoseconds{0}, nanoseconds{301}};
  CHECK(at_most(of, nanoseconds{401}) == of);
  CHECK(at_most(of, nanoseconds{1000}) == of);
  CHECK(at_most(of, nanoseconds{200}) == times{nanoseconds{49}, nanoseconds{0}, nanoseconds{150}});
  CHECK(at_most(times(2), nanoseconds{0}) == times(2));
}

}  // namespace recorded_steps
