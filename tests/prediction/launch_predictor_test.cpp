#include "policy/driver.hpp"
#include <deepum/prediction/launch_predictor.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <vector>

namespace launch_predictor_test {

using namespace deepum_test;

constexpr predictor_limits usual{.max_execution_ids = 1000, .horizon = 64, .max_upcoming_uses = 1000};

// Launches of some streams, which are issued and finish.
struct program {
  explicit program(predictor_limits limits = usual) : coming(limits) {}

  issued_launch issue(std::uint64_t kernel, block_range range, std::uint16_t stream = 0) {
    launch_record r;
    r.id = launch_id{++launches};
    r.stream = stream_id{stream};
    r.signature = {kernel, kernel};
    r.accesses = {{range, deepum::access::read}};
    const issued_launch issued = coming.issue(r, map);
    coming.predict_further(r.stream, map);
    return issued;
  }
  void finish(std::uint16_t stream = 0) {
    coming.finish(launch_id{launches}, stream_id{stream}, map, [](bool) {});
  }
  void run(std::uint64_t kernel, block_range range, std::uint16_t stream = 0) {
    issue(kernel, range, stream);
    finish(stream);
  }
  // Three kernels in turn, one block each.
  void run_step(std::uint16_t stream = 0) {
    for (std::uint32_t k = 0; k != 3; ++k) {
      run(k + 1, blocks(k), stream);
    }
  }
  [[nodiscard]] std::uint64_t next_use(std::uint32_t b) const { return coming.next_use(block_id{b}); }

  launch_predictor coming;
  block_ledger map{16, location::device(), 8, um_grid};
  std::uint64_t launches = 0;
};

TEST_CASE("what a stream will execute is what is issued and then what followed before") {
  program p;
  p.run_step();
  p.run_step();
  p.issue(1, blocks(0));
  const upcoming_launches& ahead = *p.coming.stream(0).ahead;
  CHECK(ahead.issued() == 1);
  CHECK(ahead.size() > 3);
  CHECK(p.next_use(0) == 0);
  CHECK(p.next_use(1) == 1);
  CHECK(p.next_use(2) == 2);
  CHECK(p.next_use(3) == launch_predictor::never);
  CHECK(p.coming.find(launch_id{p.launches}, stream_id{0}) == &ahead[0]);
  CHECK(p.coming.find(launch_id{99}, stream_id{0}) == nullptr);
  CHECK(p.coming.find(launch_id{1}, stream_id{7}) == nullptr);
  CHECK(p.coming.in_flight() == 1);
}

TEST_CASE("a launch of another stream makes idle ones less near") {
  program p;
  p.run_step(0);
  p.run_step(0);
  p.run(8, blocks(8), 1);
  p.run(9, blocks(9), 1);
  CHECK(p.next_use(0) == 2);
  p.issue(1, blocks(0), 0);
  CHECK(p.next_use(0) == 0);
}

TEST_CASE("needs that have changed are told, and the launches ahead follow when they are brought up to date") {
  program p;
  p.run_step();
  p.run_step();
  CHECK_FALSE(p.issue(1, blocks(0)).changed);
  const auto learned =
      p.coming.fault({.block = block_id{5}, .mode = deepum::access::read, .launch = launch_id{p.launches}});
  CHECK(learned.changed);
  CHECK(learned.culprit == (*p.coming.stream(0).ahead)[0].id);
  CHECK(p.next_use(5) == launch_predictor::never);
  p.coming.refresh(p.map);
  CHECK(p.next_use(5) == 0);
  p.finish();
  CHECK(p.issue(2, blocks(1, 2)).changed);
}

TEST_CASE("a fault without a launch is credited to all that are executing, and to none alone") {
  program p;
  p.issue(1, blocks(0), 0);
  p.issue(2, blocks(1), 1);
  const auto learned = p.coming.fault({.block = block_id{5}, .mode = deepum::access::read});
  CHECK(learned.changed);
  CHECK_FALSE(learned.culprit.valid());
  p.coming.refresh(p.map);
  for (const std::uint16_t s : {std::uint16_t{0}, std::uint16_t{1}}) {
    CHECK(std::ranges::any_of(*(*p.coming.stream(s).ahead)[0].needs,
                              [](block_range r) { return r.contains(block_id{5}); }));
  }
}

TEST_CASE("predictions are given up, and made again little by little") {
  program p;
  p.run_step();
  p.run_step();
  p.issue(1, blocks(0));
  p.coming.forget_predictions(p.map);
  CHECK(p.coming.stream(0).ahead->size() == 1);
  p.coming.predict_further(stream_id{0}, p.map);
  CHECK(p.coming.stream(0).ahead->size() == 64);
}

TEST_CASE("of a stream whose predictions are wrong nothing but what is issued is in reach") {
  program p;
  std::uint32_t random = 1;
  for (int i = 0; i != 200; ++i) {
    random = random * 1103515245U + 12345U;
    p.run(1 + (random >> 16U) % 16, blocks((random >> 16U) % 16));
  }
  p.issue(1, blocks(0));
  CHECK_FALSE(p.coming.stream(0).trust.trusted());
  CHECK(p.coming.stream(0).reach() == 1);
}

TEST_CASE("a degree of lookahead bounds the reach") {
  program p;
  p.coming.open(stream_id{0}, 2);
  p.run_step();
  p.run_step();
  p.issue(1, blocks(0));
  CHECK(p.coming.stream(0).reach() == 3);
}

TEST_CASE("of many idle streams few are active") {
  constexpr std::uint16_t streams = 1000;
  program p;
  std::size_t most = 0;
  for (int round = 0; round != 4; ++round) {
    for (std::uint16_t s = 0; s != streams; ++s) {
      p.run_step(s);
      most = std::max(most, p.coming.active().size());
    }
  }
  CHECK(most <= 64);
  for (int i = 0; i != 300; ++i) {
    p.run_step(7);
  }
  CHECK(p.coming.active().size() <= 64);
}

TEST_CASE("all streams with launches in flight are active, however many they are, until they are closed") {
  constexpr std::uint16_t streams = 200;
  program p;
  for (std::uint16_t s = 0; s != streams; ++s) {
    p.issue(s + std::uint64_t{1}, blocks(s % 16), s);
  }
  CHECK(p.coming.active().size() == streams);
  CHECK(p.coming.launches_up_to_heads() == streams);
  for (std::uint16_t s = 0; s != streams; ++s) {
    p.finish(s);
    p.coming.close(stream_id{s});
  }
  CHECK(p.coming.active().empty());
  CHECK(p.coming.in_flight() == 0);
}

TEST_CASE("all that is on the device has a known use, or not") {
  program p;
  const auto move = [&](std::uint32_t b) {
    p.map.resident(block_id{b}) ? p.map.drop(block_id{b}) : p.map.arrive(block_id{b}, true);
    p.coming.moved(blocks(b), p.map);
  };
  p.run_step();
  p.run_step();
  p.issue(1, blocks(0));
  CHECK_FALSE(p.coming.knows_all_used());  // at first nobody has looked
  p.coming.found_all_used();
  move(1);
  CHECK(p.coming.knows_all_used());
  move(9);
  CHECK_FALSE(p.coming.knows_all_used());
  move(9);
  p.coming.found_all_used();
  CHECK(p.coming.knows_all_used());
  p.coming.forget_predictions(p.map);  // of the launches that use block 1
  CHECK_FALSE(p.coming.knows_all_used());
  p.coming.predict_further(stream_id{0}, p.map);
  p.coming.found_all_used();
  p.coming.track_uses(false, p.map);
  CHECK_FALSE(p.coming.knows_all_used());
  CHECK(p.next_use(1) == launch_predictor::never);
  p.coming.track_uses(true, p.map);
  CHECK(p.next_use(1) == 1);
  CHECK_FALSE(p.coming.knows_all_used());
}

TEST_CASE("what is on the device has no known use when the stream that would have used it is closed") {
  program p;
  p.run_step();
  p.run_step();
  p.map.arrive(block_id{1}, true);
  p.coming.moved(blocks(1), p.map);
  p.coming.found_all_used();
  CHECK(p.coming.knows_all_used());
  p.coming.close(stream_id{0});
  CHECK_FALSE(p.coming.knows_all_used());
}

}  // namespace launch_predictor_test
