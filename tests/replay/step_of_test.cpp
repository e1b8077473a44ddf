#include "replay/step_of.hpp"

#include "replay/workload.hpp"
#include "support/test_scale.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <random>
#include <string>
#include <vector>

namespace step_of_test {

using namespace deepum;
using namespace deepum::replay;

// What a step says of each block of a launch. Of blocks that it names twice, both ways joined, as segments do.
std::map<std::uint32_t, deepum::access> uses_of(const step_description& step, std::uint32_t launch) {
  std::map<std::uint32_t, deepum::access> all;
  for (const block_access& use : step[launch].uses) {
    for (std::uint32_t b = use.range.begin_value(); b != use.range.end_value(); ++b) {
      const auto [place, first] = all.emplace(b, use.mode);
      place->second = first ? use.mode : join(place->second, use.mode);
    }
  }
  return all;
}

std::vector<std::uint32_t> deaths_of(const step_description& step, std::uint32_t launch) {
  std::vector<std::uint32_t> all;
  for (const block_range r : step[launch].last_uses) {
    for (std::uint32_t b = r.begin_value(); b != r.end_value(); ++b) {
      all.push_back(b);
    }
  }
  return all;
}

bool has(const block_set& set, std::uint32_t b) {
  return std::any_of(set.begin(), set.end(), [b](const block_range& r) { return r.contains(block_id{b}); });
}

// Block by block, what a launch must say.
void check_launch(const step_description& step, std::uint32_t at, const workload_launch& launch, std::size_t variant) {
  const touched_blocks& touched = launch.touches(variant);
  CHECK(step[at].duration == launch.duration);
  std::map<std::uint32_t, deepum::access> expected;
  for (const block_range r : touched.all()) {
    for (std::uint32_t b = r.begin_value(); b != r.end_value(); ++b) {
      expected[b] = has(touched.fresh, b)    ? deepum::access::overwrite
                    : has(touched.writes, b) ? deepum::access::update
                                             : deepum::access::read;
    }
  }
  CHECK(uses_of(step, at) == expected);
  std::vector<std::uint32_t> dead;
  for (const block_range r : launch.dead) {
    for (std::uint32_t b = r.begin_value(); b != r.end_value(); ++b) {
      dead.push_back(b);
    }
  }
  CHECK(deaths_of(step, at) == dead);
}

void check_step(const workload& w) {
  const step_description step = step_of(w);
  REQUIRE(step.size() == w.variants * w.launches.size());
  for (std::uint32_t k = 0; k != step.size(); ++k) {
    check_launch(step, k, w.launches[k % w.launches.size()], k / w.launches.size());
  }
}

// Any sets will do; what a workload file cannot say does not matter here.
block_set random_set(std::minstd_rand& random, std::uint32_t end) {
  block_set set;
  for (std::uint32_t b = 0; b < end;) {
    const std::uint32_t count = 1 + static_cast<std::uint32_t>(random() % 4);
    if (random() % 2 == 0) {
      set.push_back({block_id{b}, count});
    }
    b += count + 1;
  }
  return set;
}

block_set only(const block_set& of, const block_set& in, const block_set& not_in) {
  block_set set;
  for (const block_range r : of) {
    for (std::uint32_t b = r.begin_value(); b != r.end_value(); ++b) {
      if (!has(in, b) || has(not_in, b)) {
        continue;
      }
      if (!set.empty() && set.back().end_value() == b) {
        ++set.back().count;
      } else {
        set.push_back({block_id{b}, 1});
      }
    }
  }
  return set;
}

TEST_CASE("a step says what its launches read, update and overwrite, what dies after them and how long they run") {
  const workload w = parse_workload("w.jsonl", R"({"deepum_workload":1,"name":"small"}
{"tensor":0,"bytes":6291456,"addr":0,"persistent":true}
{"tensor":1,"bytes":4194304,"addr":8388608}
{"kernel":"a","ns":10,"in":[0],"out":[1]}
{"kernel":"b","ns":20,"in":[1],"out":[0]}
)");
  const step_description step = step_of(w);
  using uses = std::map<std::uint32_t, deepum::access>;
  REQUIRE(step.size() == 2);
  CHECK(step[0].duration == nanoseconds{10});
  CHECK(step[1].duration == nanoseconds{20});
  CHECK(uses_of(step, 0) == uses{{0, deepum::access::read},
                                 {1, deepum::access::read},
                                 {2, deepum::access::read},
                                 {4, deepum::access::overwrite},
                                 {5, deepum::access::overwrite}});
  // Persistent contents are never taken for dead, though the launch says that it writes all of them.
  CHECK(uses_of(step, 1) == uses{{0, deepum::access::update},
                                 {1, deepum::access::update},
                                 {2, deepum::access::update},
                                 {4, deepum::access::read},
                                 {5, deepum::access::read}});
  CHECK(deaths_of(step, 0).empty());
  CHECK(deaths_of(step, 1) == std::vector<std::uint32_t>{4, 5});
}

TEST_CASE("look-ups that differ from step to step make a step of as many steps as there are lists") {
  const workload w = parse_workload("w.jsonl", R"({"deepum_workload":1,"name":"look-ups"}
{"tensor":0,"bytes":16777216,"addr":0,"persistent":true}
{"tensor":1,"bytes":2097152,"addr":16777216,"persistent":true}
{"kernel":"look up","ns":10,"in":[0],"out":[],"blocks":{"0":[[1,5],[2],[3]]}}
{"kernel":"rest","ns":20,"in":[1],"out":[]}
)");
  const step_description step = step_of(w);
  REQUIRE(step.size() == 6);
  CHECK(uses_of(step, 0).size() == 2);
  CHECK(uses_of(step, 2) == std::map<std::uint32_t, deepum::access>{{2, deepum::access::read}});
  CHECK(uses_of(step, 4) == std::map<std::uint32_t, deepum::access>{{3, deepum::access::read}});
  CHECK(uses_of(step, 3) == uses_of(step, 1));
  check_step(w);
}

TEST_CASE("whatever the ranges are, each block is used in the way that its launch says") {
  std::minstd_rand random{7};
  const std::size_t rounds = deepum_test::scaled(200);
  for (std::size_t round = 0; round != rounds; ++round) {
    CAPTURE(round);
    workload w;
    w.variants = 1 + random() % 3;
    w.launches.resize(1 + random() % 4);
    for (workload_launch& l : w.launches) {
      l.duration = nanoseconds{random() % 100};
      l.dead = random_set(random, 30);
      l.touched.resize(random() % 2 == 0 ? 1 : w.variants);
      for (touched_blocks& t : l.touched) {
        t.reads = random_set(random, 30);
        t.writes = random_set(random, 30);
        t.fresh = only(t.writes, random_set(random, 30), t.reads);
      }
    }
    check_step(w);
  }
}

TEST_CASE("the steps of the recorded workloads have all of their launches and blocks" *
          doctest::skip(!std::getenv("DEEPUM_WORKLOADS"))) {
  for (const auto& file : std::filesystem::directory_iterator(std::getenv("DEEPUM_WORKLOADS"))) {
    if (file.path().string().ends_with(".jsonl.gz")) {
      CAPTURE(file.path().string());
      const workload w = read_workload(file.path().string());
      const step_segments cut(step_of(w));
      CHECK(cut.launches() == w.variants * w.launches.size());
      std::uint32_t blocks = 0;
      for (const step_segment& s : cut.segments()) {
        blocks += s.blocks.count;
      }
      CHECK(blocks == w.blocks);
      for (std::uint32_t k = 0; k != cut.launches(); ++k) {
        CHECK(cut.need(k) == block_count(w.launches[k % w.launches.size()].touches(k / w.launches.size()).all()));
      }
    }
  }
}

}  // namespace step_of_test
