#include "engine/fake_memory.hpp"
#include <deepum/engine/engine.hpp>
#include <deepum/policy/auto.hpp>
#include <deepum/policy/deepum.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <set>
#include <utility>
#include <vector>

namespace stream_numbers_test {

using namespace deepum;
using deepum_test::fake_memory;

/// Notes which streams are open as far as it was told, and whom faults are credited to.
class watching_policy final : public policy {
 public:
  struct notes {
    std::set<std::uint16_t> open{};
    std::vector<launch_id> culprits{};
    std::uint64_t closed = 0;
    bool contradicted = false;  // opened when open, closed when not, or launched on when not
  };
  explicit watching_policy(notes& n) : notes_(n) {}
  [[nodiscard]] std::string_view name() const override { return "watching"; }
  void on_stream(stream_id s, std::optional<std::uint32_t>) override {
    notes_.contradicted = !notes_.open.insert(s.value).second || notes_.contradicted;
  }
  void on_stream_closed(stream_id s) override {
    ++notes_.closed;
    notes_.contradicted = notes_.open.erase(s.value) != 1 || notes_.contradicted;
  }
  void on_launch(const launch_record& r, const block_map&) override {
    notes_.contradicted = !notes_.open.contains(r.stream.value) || notes_.contradicted;
  }
  void on_finish(launch_id, stream_id s, const block_map&) override {
    notes_.contradicted = !notes_.open.contains(s.value) || notes_.contradicted;
  }
  void on_fault(const fault_record& f, const block_map&) override { notes_.culprits.push_back(f.launch); }
  void plan_next(const block_map&, plan&) override {}
  [[nodiscard]] policy_statistics statistics() const override { return {}; }

 private:
  notes& notes_;
};

struct bench {
  explicit bench(std::unique_ptr<policy> chosen)
      : made(memory, std::move(chosen), {.budget = block_size * 8, .log = {}}) {
    CHECK(made.live({block_id{0}, 8}));
  }
  launch_id launch_on(stream_id s, std::uint64_t kernel = 1) {
    launch_record r;
    r.stream = s;
    r.signature = {.exact = kernel, .shape = kernel};
    r.accesses = {{{block_id{0}, 1}, access::update}};
    r.name = "k";
    return made.submit(std::move(r));
  }
  void finish(launch_id id, std::int64_t began, std::int64_t at) {
    device_event e;
    e.what = device_event::kind::launch_finished;
    e.launch = id;
    e.began = nanoseconds{began};
    e.at = nanoseconds{at};
    memory.reports.push_back(e);
    made.pump();
  }

  fake_memory memory{8};
  engine made;
};

TEST_CASE("streams are opened and closed without end, and few numbers serve them") {
  watching_policy::notes notes;
  bench b(std::make_unique<watching_policy>(notes));
  std::uint16_t highest = 0;
  for (int i = 0; i < 200'000; ++i) {
    const stream_id s = b.made.open_stream({});
    highest = std::max(highest, s.value);
    b.made.close_stream(s);
    if (i % 1000 == 0) {  // nobody pumps in between
      b.made.pump();
    }
  }
  b.made.pump();
  CHECK(highest < 256);
  CHECK(notes.closed == 200'000);
  CHECK(notes.open.empty());
  CHECK_FALSE(notes.contradicted);
}

TEST_CASE("65536 streams can be open at a time, one more is refused, and one that is closed makes room for another") {
  watching_policy::notes notes;
  bench b(std::make_unique<watching_policy>(notes));
  std::set<std::uint16_t> open;
  for (int i = 0; i < 65536; ++i) {
    open.insert(b.made.open_stream({}).value);
  }
  CHECK(open.size() == 65536);
  CHECK_THROWS_WITH_AS((void)b.made.open_stream({}), doctest::Contains("65536 streams of this arena are open"), error);
  b.made.close_stream(stream_id{4711});
  CHECK(b.made.open_stream({}) == stream_id{4711});
  CHECK_THROWS_AS((void)b.made.open_stream({}), error);
}

TEST_CASE("the number of a closed stream is not given out before its last launch has finished") {
  watching_policy::notes notes;
  bench b(std::make_unique<watching_policy>(notes));
  const stream_id old = b.made.open_stream({});
  const launch_id last = b.launch_on(old);
  b.made.close_stream(old);
  b.made.pump();
  CHECK(notes.closed == 0);
  const stream_id other = b.made.open_stream({});
  CHECK(other != old);
  b.finish(last, 10, 20);
  CHECK(notes.closed == 1);
  CHECK(b.made.open_stream({}) == old);
  b.made.pump();
  CHECK_FALSE(notes.contradicted);
}

TEST_CASE("a stream with a used number is not credited with the old stream's late faults") {
  watching_policy::notes notes;
  bench b(std::make_unique<watching_policy>(notes));
  const stream_id old = b.made.open_stream({});
  const launch_id before = b.launch_on(old);
  b.finish(before, 10, 20);
  b.made.close_stream(old);
  b.made.pump();
  const stream_id reused = b.made.open_stream({});
  REQUIRE(reused == old);
  const launch_id after = b.launch_on(reused);
  b.made.pump();
  b.memory.fault(block_id{3}, 15);
  b.memory.fault(block_id{3}, 25);
  b.made.pump();
  REQUIRE(notes.culprits.size() == 2);
  CHECK(notes.culprits[0] == before);
  CHECK(notes.culprits[1] == after);
}

TEST_CASE("a stream with a used number begins without the history of the old one") {
  for (const bool published : {false, true}) {
    CAPTURE(published);
    const auto policy_made = [&]() -> std::unique_ptr<policy> {
      return published ? std::unique_ptr<policy>(std::make_unique<deepum_policy>()) : std::make_unique<auto_policy>();
    };
    bench b(policy_made());
    std::int64_t now = 0;
    stream_id s = b.made.open_stream({});
    const auto run = [&](std::uint64_t kernel) {
      const launch_id id = b.launch_on(s, kernel);
      now += 10;
      b.finish(id, now - 9, now);
    };
    for (int round = 0; round < 4; ++round) {
      for (std::uint64_t k = 1; k <= 5; ++k) {
        run(k);
      }
    }
    const policy_statistics old = b.made.snapshot().policy;
    CHECK(old.predicted != 0);
    b.made.close_stream(s);
    b.made.pump();
    const stream_id before = s;
    s = b.made.open_stream({});
    REQUIRE(s == before);
    run(4);  // after 5 comes 1: with the old stream's history this was mispredicted
    const policy_statistics now_seen = b.made.snapshot().policy;
    CHECK(now_seen.mispredicted == old.mispredicted);
    CHECK(now_seen.unpredicted == old.unpredicted + 1);
  }
}

}  // namespace stream_numbers_test
