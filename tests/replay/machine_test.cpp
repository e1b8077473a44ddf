// Machines of several places in the replay: files, shared links, copies from and to neighbours, whole replays.

#include "replay/machine.hpp"

#include "replay/gpu.hpp"
#include "replay/replay.hpp"
#include "replay/schedule.hpp"
#include "replay/shared_links.hpp"
#include "schedule_checker.hpp"
#include <deepum/error.hpp>
#include <deepum/policy/make_policy.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace machine_test {

using namespace deepum;
using namespace deepum::replay;
using deepum_test::schedule_checker;

constexpr location host = location::host();
constexpr location here = location::device(0);
constexpr location neighbour = location::device(1);
constexpr nanoseconds ns(std::int64_t n) { return nanoseconds{n}; }
constexpr block_range blocks(std::uint32_t first, std::uint32_t count = 1) { return {block_id{first}, count}; }

const std::string two_devices = R"({"budgets_gib": {"0": 4, "1": 0.5}, "copy_latency_ns": 2000,
  "links": {"nv01": 400, "nv10": 400, "p0i": 50, "p0o": 40, "p1i": 50, "p1o": 50},
  "routes": [["host", 0, ["p0i"]], [0, "host", ["p0o"]], ["host", 0, ["p1i", "nv10"]], [0, "host", ["nv01", "p1o"]],
             ["host", 1, ["p1i"]], [1, "host", ["p1o"]], [1, 0, ["nv10"]], [0, 1, ["nv01"]]],
  "row_rates": {"64": 28.6}, "caps": [[["p0i", "p1i"], 80]]})";

std::string without(std::string text, const std::string& what, const std::string& instead = "") {
  const std::size_t at = text.find(what);
  REQUIRE(at != std::string::npos);
  return text.replace(at, what.size(), instead);
}
std::string refusal(const std::string& text) {
  try {
    (void)parse_machine("m.json", text);
  } catch (const error& e) {
    CHECK(e.code() == status::bad_format);
    return e.what();
  }
  return "";
}

TEST_CASE("a machine is read with its budgets, links, routes and caps") {
  const machine m = parse_machine("m.json", two_devices);
  CHECK(m.budget == 4_GiB);
  CHECK(m.places.places() == 3);
  CHECK(m.places.budget(neighbour) == 512_MiB);
  CHECK(m.copy_latency == ns(2000));
  CHECK(m.places.links().size() == 6);
  CHECK(m.places.between(host, here).size() == 2);
  CHECK(m.places.rate(m.places.cheapest(neighbour, here)) == 400);
  CHECK(m.places.rank(neighbour) == 1);
  CHECK(m.places.rank(host) == 2);
  CHECK(m.rate(host, here) == 80);  // by the cap
  CHECK(m.rate(here, host) == 90);
  CHECK(m.row_rate(63) == 0);
  CHECK(m.row_rate(64) == 28.6);
  CHECK(m.row_rate(4096) == 28.6);
  CHECK(m.shortest_row() == 64);
}

TEST_CASE("rows are fastest from the size on that has the highest rate, and are touched nowhere where none is told") {
  const machine fast = parse_machine("m.json", without(two_devices, R"({"64": 28.6})", R"({"128":50.8,"64":28.6})"));
  CHECK(fast.row_rate(127) == 28.6);
  CHECK(fast.row_rate(128) == 50.8);
  CHECK(fast.shortest_row() == 128);
  const machine none = parse_machine("m.json", without(two_devices, R"("row_rates": {"64": 28.6},)"));
  CHECK(none.shortest_row() == 0);
  CHECK(refusal(without(two_devices, R"({"64": 28.6})", R"({"64 B": 28.6})")).find("no number of bytes") !=
        std::string::npos);
  CHECK(refusal(without(two_devices, R"({"64": 28.6})", "28.6")).find("row_rates") != std::string::npos);
}

TEST_CASE("a way whose place between is not named leads through a device that holds nothing") {
  const machine m = parse_machine("m.json", R"({"budgets_gib": {"0": 1}, "copy_latency_ns": 0,
    "links": {"a": 50, "b": 50, "c": 50, "d": 400, "e": 50, "f": 400},
    "routes": [["host", 0, ["a"]], [0, "host", ["b"]], ["host", 0, ["c", "d"]], [0, "host", ["f", "e"]]]})");
  CHECK(m.places.places() == 3);
  CHECK(m.places.budget(neighbour).count == 0);
  CHECK(m.places.between(host, here).size() == 2);
  CHECK(m.places.between(here, host).size() == 2);
  CHECK(m.rate(host, here) == 100);
}

TEST_CASE("what is no machine is refused with the reason") {
  CHECK(refusal("[]").find("a machine is a JSON object") != std::string::npos);
  CHECK(refusal(without(two_devices, "copy_latency_ns", "latency")).find("\"copy_latency_ns\" is missing") !=
        std::string::npos);
  CHECK(refusal(without(two_devices, "\"nv01\": 400, ")).find("there is no link \"nv01\"") != std::string::npos);
  CHECK(refusal(without(two_devices, "\"p0i\": 50", "\"p0i\": 0")).find("link \"p0i\" carries nothing") !=
        std::string::npos);
  CHECK(refusal(without(two_devices, "[[\"host\", 0, [\"p0i\"]], [0", "[[0")).find("no route uses link \"p0i\"") !=
        std::string::npos);
  CHECK(refusal(without(two_devices, "\"0\": 4, ")).find("device 0 has no budget") != std::string::npos);
  CHECK(refusal(without(two_devices, "\"1\": 0.5", "\"x\": 1")).find("\"x\", which is no device") != std::string::npos);
  CHECK(refusal(without(two_devices, "[1, 0, [\"nv10\"]]", "[1, \"host\", [\"nv10\"]]")).find("two places") !=
        std::string::npos);
  CHECK(refusal(without(two_devices, "[1, 0, [\"nv10\"]]", "[1, 0, [\"nv10\", \"p0i\", \"p1i\"]]"))
            .find("one link or two") != std::string::npos);
}

TEST_CASE("a copy gets what is left on its links, or waits where that is less than half") {
  const machine m = parse_machine("m.json", two_devices);
  const std::uint8_t direct = m.places.between(host, here)[0];
  const std::uint8_t detour = m.places.between(host, here)[1];
  const std::uint8_t near = m.places.cheapest(neighbour, here);
  shared_links links{m};
  CHECK(links.rate_on(direct) == 50);
  links.begin(direct, 50);
  CHECK(links.rate_on(direct) == 0);
  CHECK(links.rate_on(detour) == 30);  // the cap leaves no more
  links.begin(detour, 30);
  CHECK(links.rate_on(near) == 370);
  links.end(direct, 50);
  links.end(detour, 30);
  links.begin(near, 400);
  CHECK(links.rate_on(detour) == 0);
  CHECK(links.rate_on(direct) == 50);
  // The latency occupies the link as well.
  CHECK(links.copy_time(direct, 50, 1) == ns(2000 + 41944));
  CHECK(links.copy_time(direct, 25, 1) == ns(4000 + 83887));
  CHECK(links.most_at_once(near) < 100);
  CHECK(links.most_at_once(direct) > 100);
}

/// The GPU of a machine, and what it did, in words.
struct bench {
  explicit bench(const std::string& text = two_devices)
      : what(parse_machine("m.json", text)),
        device(64, what, true, [this](const schedule_entry& e) { entries.push_back(e); }) {
    for (std::uint32_t b = 0; b != 32; ++b) {
      device.put_on_host(block_id{b});
    }
  }
  void start(transfer t, location from, std::size_t way = 0) {
    t.from = from;
    t.via = t.copies() ? what.places.between(from, t.to)[way] : std::uint8_t{0};
    device.start(t, ++tickets);
  }
  void launch(block_set reads, block_set writes) {
    touched.push_back({.reads = std::move(reads), .writes = std::move(writes), .fresh = {}});
    device.launch({.id = launch_id{++launches},
                   .touched = &touched.back(),
                   .all = touched.back().all(),
                   .duration = ns(500),
                   .kernel = static_cast<std::uint32_t>(launches - 1)});
  }
  void settle() {
    while (!device.quiet()) {
      device.run_next();
    }
  }
  /// As "0+2 H>1 release, launch, drop 3 at 1" in the order in which they began.
  std::string story() {
    std::string text;
    for (const schedule_entry& e : std::exchange(entries, {})) {
      const auto range = std::to_string(e.blocks.begin_value()) + "+" + std::to_string(e.blocks.count);
      const auto name = [](location l) { return l.is_host() ? std::string{"H"} : std::to_string(l.index() - 1); };
      text += text.empty() ? "" : ", ";
      text += e.what == schedule_event::launch ? "launch"
              : e.what == schedule_event::drop ? "drop " + range + " at " + name(e.from)
              : e.what == schedule_event::make_new
                  ? "new " + range
                  : range + " " + name(e.from) + ">" + name(e.to) + (e.then == afterwards::release ? " release" : "");
    }
    return text;
  }

  machine what;
  std::vector<schedule_entry> entries{};
  std::deque<touched_blocks> touched{};
  std::uint64_t tickets = 0;
  std::uint64_t launches = 0;
  gpu device;
};

TEST_CASE("blocks come by two routes at a time, and the one through the neighbour takes no room there") {
  bench b;
  b.start(transfer::prefetch(here, reason::issued, blocks(0, 4)), host, 0);
  b.start(transfer::prefetch(here, reason::issued, blocks(8, 4)), host, 1);
  b.settle();
  REQUIRE(b.entries.size() == 2);
  CHECK(b.entries[0].start == ns(0));
  CHECK(b.entries[1].start == ns(0));
  CHECK(b.entries[1].end > b.entries[0].end);  // the cap leaves 30 of 50
  CHECK(b.story() == "0+4 H>0, 8+4 H>0");
  b.launch({blocks(0, 4), blocks(8, 4)}, {});
  b.settle();
  CHECK(b.story() == "launch");
}

TEST_CASE("a block goes to the neighbour, comes back, and its older copy there is no use to anybody") {
  bench b;
  b.start(transfer::prefetch(here, reason::issued, blocks(0, 2)), host);
  b.settle();
  b.launch({}, {blocks(0, 2)});
  b.settle();
  b.start(transfer::evict(neighbour, reason::make_room, blocks(0, 2)), here);
  b.settle();
  b.start(transfer::prefetch(here, reason::issued, blocks(0, 2)), neighbour);
  b.settle();
  b.launch({}, {blocks(0)});
  b.settle();
  b.story();
  b.start(transfer::drop(reason::make_room, blocks(0, 2)), neighbour);  // of 1 it is a copy, of 0 older contents
  b.settle();
  CHECK(b.story() == "drop 1+1 at 1");
  b.launch({blocks(0, 2)}, {});
  b.settle();
  CHECK(b.story() == "launch");
}

TEST_CASE("a launch does not write what is being copied from the neighbour to the host") {
  bench b;
  b.start(transfer::prefetch(neighbour, reason::predicted, blocks(0)), host);
  b.start(transfer::prefetch(here, reason::issued, blocks(0)), host);
  b.settle();
  b.launch({}, {blocks(0)});
  b.settle();
  b.start(transfer::drop(reason::make_room, blocks(0)), neighbour);
  b.start(transfer::prefetch(neighbour, reason::write_back, blocks(0)), here);
  b.settle();
  b.entries.clear();
  b.start(transfer::clean(reason::write_back, blocks(0)), neighbour);
  b.launch({}, {blocks(0)});
  b.settle();
  REQUIRE(b.entries.size() == 2);
  CHECK(b.entries[0].from == neighbour);
  CHECK(b.entries[1].what == schedule_event::launch);
  CHECK(b.entries[1].start >= b.entries[0].end);
}

TEST_CASE("the only copy at the neighbour is fetched on a fault") {
  bench b;
  b.start(transfer::prefetch(here, reason::issued, blocks(0)), host);
  b.settle();
  b.launch({}, {blocks(0)});
  b.settle();
  b.start(transfer::evict(neighbour, reason::make_room, blocks(0)), here);
  b.settle();
  b.story();
  b.launch({blocks(0)}, {});
  b.settle();
  CHECK(b.story() == "0+1 1>0, launch");
}

TEST_CASE("contents that die give their room up everywhere") {
  bench b;
  b.start(transfer::prefetch(neighbour, reason::predicted, blocks(0)), host);
  b.start(transfer::prefetch(here, reason::issued, blocks(0)), host);
  b.settle();
  b.story();
  b.start(transfer::discard(reason::dead, blocks(0)), here);
  b.settle();
  CHECK(b.story() == "drop 0+1 at 0, drop 0+1 at 1");
}

TEST_CASE("a line of version 2 names places and links") {
  const machine m = parse_machine("m.json", two_devices);
  const schedule_entry copy{.what = schedule_event::copy_in,
                            .blocks = blocks(7, 2),
                            .start = ns(5),
                            .end = ns(90),
                            .from = host,
                            .to = here,
                            .via = m.places.between(host, here)[1],
                            .then = afterwards::keep};
  CHECK(schedule_line(copy, m) ==
        "{\"copy\":\"move\",\"block\":7,\"count\":2,\"from\":\"host\",\"to\":0,\"route\":[\"p1i\",\"nv10\"],"
        "\"then\":\"keep\",\"start\":5,\"end\":90}\n");
  CHECK(schedule_line(
            {.what = schedule_event::drop, .blocks = blocks(3), .start = ns(8), .end = ns(8), .from = neighbour}, m) ==
        "{\"drop\":3,\"count\":1,\"at\":8,\"place\":1}\n");
  CHECK(schedule_line({.what = schedule_event::make_new, .blocks = blocks(3), .start = ns(8), .end = ns(8)}, m) ==
        "{\"new\":3,\"count\":1,\"at\":8}\n");
}

// ---- whole replays --------------------------------------------------------------------------------------------------

/// Does what another policy wants, and moves blocks about between all places besides, as dice say.
class restless_policy final : public policy {
 public:
  restless_policy(std::unique_ptr<policy> inner, std::uint64_t seed) : inner_(std::move(inner)), dice_(seed) {}

  [[nodiscard]] std::string_view name() const override { return "restless"; }
  [[nodiscard]] policy_statistics statistics() const override { return inner_->statistics(); }
  void on_launch(const launch_record& l, const block_map& map) override { inner_->on_launch(l, map); }
  void on_finish(launch_id l, stream_id s, const block_map& map) override {
    left_ = 3;
    inner_->on_finish(l, s, map);
  }
  void on_fault(const fault_record& f, const block_map& map) override { inner_->on_fault(f, map); }
  void on_migrated(block_range r, location to, const block_map& map) override { inner_->on_migrated(r, to, map); }
  void on_live(block_range r, const block_map& map) override { inner_->on_live(r, map); }
  void on_dead(block_range r, launch_id last, const block_map& map) override { inner_->on_dead(r, last, map); }
  void plan_next(const block_map& map, plan& out) override {
    if (++asked_ > 200'000) throw std::runtime_error("the replay does not end");
    inner_->plan_next(map, out);
    for (; left_ != 0; --left_) {
      const block_range some = blocks(static_cast<std::uint32_t>(dice_() % map.size()));
      const location to = location::at(static_cast<unsigned>(dice_() % map.places()));
      transfer t = dice_() % 2 == 0 ? transfer::evict(to, reason::make_room, some)
                                    : transfer{.blocks = some, .to = to, .why = reason::write_back};
      if (to == map.device()) {
        t = transfer::prefetch(to, reason::predicted, some);
      } else if (dice_() % 3 == 0) {
        t = transfer::drop(reason::make_room, some);
      }
      if (dice_() % 2 == 0 && t.to != map.device()) {
        t.from = location::at(1 + static_cast<unsigned>(dice_() % (map.places() - 1)));
        if (t.from == t.to) continue;
      }
      out.transfers.push_back(t);
    }
  }
  [[nodiscard]] bool holds_launches() const override { return inner_->holds_launches(); }
  [[nodiscard]] bool ready(launch_id l, stream_id s, const block_map& map) const override {
    if (++asked_ > 200'000) throw std::runtime_error("the replay does not end");
    return inner_->ready(l, s, map);
  }

 private:
  std::unique_ptr<policy> inner_;
  mutable std::uint64_t asked_ = 0;
  std::mt19937_64 dice_;
  unsigned left_ = 0;
};

std::shared_ptr<const workload> layers(std::uint64_t seed) {
  std::mt19937_64 dice(seed);
  workload_description d;
  d.name = "layers";
  const std::int64_t count = 3 + static_cast<std::int64_t>(dice() % 8);
  for (std::int64_t i = 0; i != count; ++i) {
    d.tensors.push_back(
        {.id = i, .size = (1 + dice() % 6) * block_size, .address = {}, .persistent = true, .freed_after = {}});
    d.tensors.push_back(
        {.id = 100 + i, .size = (1 + dice() % 4) * block_size, .address = {}, .persistent = false, .freed_after = {}});
  }
  for (std::int64_t k = 0; k != 2 * count; ++k) {
    const std::int64_t i = k < count ? k : 2 * count - 1 - k;
    std::vector<std::int64_t> in{i};
    if (k >= count) in.push_back(100 + i);
    d.launches.push_back({.kernel = "k",
                          .duration = nanoseconds{static_cast<std::int64_t>(1000 + dice() % 200'000)},
                          .in = std::move(in),
                          .out = k < count ? std::vector<std::int64_t>{100 + i} : std::vector<std::int64_t>{i},
                          .blocks = {}});
  }
  return std::make_shared<const workload>(build_workload("layers", d));
}

program repeated(std::shared_ptr<const workload> w, std::size_t steps) {
  program what{.name = w->name, .workloads = {w}, .turns = {}};
  for (std::size_t step = 0; step != steps; ++step)
    what.turns.push_back({.workload = 0, .stream = {}, .variant = w->variant_of(step), .regime = 0});
  return what;
}

machine random_machine(std::uint64_t seed, std::uint32_t least) {
  std::mt19937_64 dice(seed);
  const auto rate = [&] { return 5.0 + static_cast<double>(dice() % 50); };
  const unsigned neighbours = 1 + static_cast<unsigned>(dice() % 3);
  std::vector<bytes> budgets(2);
  std::vector<place_link> links{{host, here, rate()}, {here, host, rate()}};
  std::vector<std::pair<std::uint8_t, std::uint8_t>> detours;
  for (unsigned i = 1; i <= neighbours; ++i) {
    budgets.push_back((dice() % 12) * block_size);
    const auto first = static_cast<std::uint8_t>(links.size());
    const location other = location::device(i);
    for (const place_link& l :
         {place_link{host, other, rate()}, {other, host, rate()}, {other, here, 8 * rate()}, {here, other, 8 * rate()}})
      links.push_back(l);
    if (dice() % 3 != 0) {
      detours.emplace_back(first, static_cast<std::uint8_t>(first + 2));
      detours.emplace_back(static_cast<std::uint8_t>(first + 3), static_cast<std::uint8_t>(first + 1));
    }
  }
  machine m{.places = {here, budgets, links, detours},
            .budget = (least + dice() % 12) * block_size,
            .copy_latency = nanoseconds{static_cast<std::int64_t>(dice() % 2 * 2000)},
            .fault_latency = nanoseconds{static_cast<std::int64_t>(dice() % 2 * 45'000)}};
  for (std::size_t l = 0; l != links.size(); ++l)
    m.names.push_back("link" + std::to_string(l));
  if (dice() % 2 == 0) m.caps.push_back({{0, 1, 2, 3}, 60});
  return m;
}

TEST_CASE("random steps on random machines keep all rules, whatever moves between the places") {
  for (std::uint64_t seed = 0; seed != 120; ++seed) {
    CAPTURE(seed);
    const auto w = layers(seed);
    const program what = repeated(w, 6);
    const auto on = std::make_shared<const machine>(random_machine(seed, w->largest_launch));
    for (const char* const name : {"um", "lru", "auto"}) {
      CAPTURE(std::string(name));
      for (const replay_memory memory : {replay_memory::home_copy, replay_memory::managed}) {
        CAPTURE(memory == replay_memory::home_copy);
        std::vector<schedule_entry> entries;
        replay_options how{.memory = memory, .on = on};
        how.schedule = [&](const schedule_entry& e) { entries.push_back(e); };
        const replay_result r =
            deepum::replay::replay(what, std::make_unique<restless_policy>(make_policy(name), seed), how);
        CHECK(schedule_checker(what, *on).check(entries) == "");
        CHECK(r.turns.size() == what.turns.size());
      }
    }
  }
}

TEST_CASE("two links to the host are worth nearly twice as much as one where the link binds") {
  const auto w = layers(7);
  const program what = repeated(w, 8);
  const auto step = [&](const std::string& text) {
    auto on = std::make_shared<machine>(parse_machine("m.json", text));
    on->budget = (w->largest_launch + 2) * block_size;
    const replay_result r = deepum::replay::replay(what, make_policy("auto"), {.on = on});
    return r.turns[6].time;
  };
  const std::string one = R"({"budgets_gib": {"0": 1}, "copy_latency_ns": 0, "links": {"a": 5, "b": 5},
    "routes": [["host", 0, ["a"]], [0, "host", ["b"]]]})";
  const std::string two = R"({"budgets_gib": {"0": 1}, "copy_latency_ns": 0,
    "links": {"a": 5, "b": 5, "c": 5, "d": 40, "e": 5, "f": 40},
    "routes": [["host", 0, ["a"]], [0, "host", ["b"]], ["host", 0, ["c", "d"]], [0, "host", ["f", "e"]]]})";
  CHECK(step(one) > step(two) * 17 / 10);
}

TEST_CASE("where a neighbour has room, a step takes less the more room that is, and the host carries less") {
  const auto w = layers(7);
  const program what = repeated(w, 8);
  const machine like = parse_machine("m.json", R"({"budgets_gib": {"0": 1, "1": 1}, "copy_latency_ns": 0,
    "links": {"a": 5, "b": 5, "c": 5, "d": 40, "e": 5, "f": 40},
    "routes": [["host", 0, ["a"]], [0, "host", ["b"]], ["host", 1, ["c"]], [1, "host", ["e"]], [1, 0, ["d"]],
               [0, 1, ["f"]]]})");
  nanoseconds before{};
  for (const std::uint32_t room : {0U, 8U, 16U, 64U}) {
    CAPTURE(room);
    auto on = std::make_shared<machine>(like);
    on->places = topology(here, {bytes{}, bytes{}, room * block_size}, like.places.links());
    on->budget = (w->largest_launch + 2) * block_size;
    std::vector<schedule_entry> entries;
    replay_options how{.on = on};
    how.schedule = [&](const schedule_entry& e) { entries.push_back(e); };
    const nanoseconds time = deepum::replay::replay(what, make_policy("auto"), how).turns[6].time;
    CHECK(schedule_checker(what, *on).check(entries) == "");
    CHECK((before.count() == 0 || time < before));
    before = time;
  }
}

}  // namespace machine_test
