// The engine with a neighbour beside the host: nothing in it takes two places for granted.

#include "engine/fake_memory.hpp"
#include <deepum/core/topology.hpp>
#include <deepum/engine/engine.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace three_places_test {

using namespace deepum;
using deepum::access;  // not the one of POSIX
using deepum_test::scripted_policy;

constexpr location host = location::host();
constexpr location here = location::device(0);
constexpr location neighbour = location::device(1);

block_range blocks(std::uint32_t first, std::uint32_t count = 1) { return {block_id{first}, count}; }
block_access updates(std::uint32_t first, std::uint32_t count = 1) { return {blocks(first, count), access::update}; }
block_access reads(std::uint32_t first, std::uint32_t count = 1) { return {blocks(first, count), access::read}; }

/// Links in this order, the detours by way of the neighbour behind them: 6 in, 7 out.
topology places(std::uint32_t neighbour_budget, double direct) {
  return {here,
          {bytes{}, bytes{}, neighbour_budget * block_size},
          {{host, here, direct},
           {here, host, direct},
           {host, neighbour, 50},
           {neighbour, host, 50},
           {here, neighbour, 390},
           {neighbour, here, 390}},
          {{std::uint8_t{2}, std::uint8_t{5}}, {std::uint8_t{4}, std::uint8_t{3}}}};
}

/// Memory at three places that never faults: notes what is started, and reports what the test says.
class three_places_memory final : public deepum_test::fake_memory {
 public:
  static constexpr memory_capabilities traits{.faults = false, .keeps_home_copy = true};

  three_places_memory(std::uint32_t size, const topology& all) : fake_memory(size, traits, all) {}

  bool start(const transfer& t, std::uint64_t ticket) override {
    if (!fake_memory::start(t, ticket)) return false;
    started.push_back({ticket, t});
    return true;
  }
  bool advise(block_range, advice, location) override { return true; }

  struct job {
    std::uint64_t ticket = 0;
    transfer what{};
  };
  void carry_out_job(const job& j) {
    const transfer& t = j.what;
    if (t.takes_room()) report(device_event::kind::arrived, j);
    if (t.releases() && t.from.is_device()) report(device_event::kind::departed, j);
    report(device_event::kind::completed, j);
  }
  void fail_job(const job& j) { report(device_event::kind::failed, j); }

  std::vector<job> started;

 private:
  void report(device_event::kind what, const job& j) {
    device_event e;
    e.what = what;
    e.range = j.what.blocks;
    e.ticket = j.ticket;
    reports.push_back(e);
  }
};

struct bench {
  explicit bench(std::uint32_t budget = 8, std::uint32_t neighbour_budget = 8, double direct = 50)
      : memory(32, places(neighbour_budget, direct)) {
    engine_options o;
    o.budget = block_size * budget;
    o.log = {};
    o.observer = [this](const device_event& e, launch_id) {
      if (e.what == device_event::kind::arrived || e.what == device_event::kind::departed) {
        seen.push_back(to_string(e.did.from) + " to " + to_string(e.did.to));
      }
    };
    made = std::make_unique<engine>(memory, std::make_unique<scripted_policy>(script), std::move(o));
    stream = made->open_stream({});
    CHECK(made->live(blocks(0, 32)));
    made->pump();
    while (begun < memory.started.size())
      carry_out();
    started();
  }

  void plan(std::vector<transfer> transfers) {
    script.plans.push_back({.transfers = std::move(transfers)});
    made->set_budget(made->budget());  // something happens, so that the policy is asked
    made->pump();
  }
  void carry_out() {
    memory.carry_out_job(memory.started.at(begun++));
    made->pump();
  }
  void carry_out_all() {
    while (begun < memory.started.size())
      carry_out();
  }
  /// What was started since the last look: the word, the blocks, from where to where, by which route.
  std::string started() {
    std::string text;
    for (; looked < memory.started.size(); ++looked) {
      const transfer& t = memory.started[looked].what;
      text += (text.empty() ? "" : ", ") + std::string{to_string(t)} + " " + std::to_string(t.blocks.first.value) +
              "+" + std::to_string(t.blocks.count) + " " + name(t.from) + name(t.to) +
              (t.copies() ? std::to_string(t.via) : "");
    }
    return text;
  }
  static std::string name(location l) { return l == host ? "H" : l == here ? "D" : l == neighbour ? "N" : "?"; }

  launch_id launch(std::vector<block_access> accesses) {
    launch_record r;
    r.stream = stream;
    r.accesses = std::move(accesses);
    r.name = "k";
    const launch_id id = made->submit(std::move(r));
    made->pump();
    return id;
  }
  /// A launch begins and ends, whatever has to move for it.
  void run(std::vector<block_access> accesses) {
    const launch_id id = launch(std::move(accesses));
    for (int i = 0; i != 50 && !made->admitted(id, stream); ++i) {
      made->pump();
      carry_out_all();
    }
    CHECK(made->admitted(id, stream));
    memory.finish(id);
    made->pump();
  }
  /// The blocks are on the device, with contents that the host has not.
  void fill(block_range r) {
    run({{r, access::update}});
    carry_out_all();
    started();
  }
  [[nodiscard]] copy_state at(std::uint32_t b, location l) const { return script.map->state(block_id{b}, l); }
  [[nodiscard]] statistics seen_traffic() const { return made->snapshot(); }

  three_places_memory memory;
  scripted_policy::script script{};
  std::vector<std::string> seen;
  std::unique_ptr<engine> made;
  stream_id stream{};
  std::size_t begun = 0;
  std::size_t looked = 0;
};

/// A device that holds fewer blocks than are alive, so that nothing is brought unasked.
constexpr std::uint32_t small = 6;

TEST_CASE("a policy sees three places with their budgets and ranks") {
  bench b(small, 5);
  const block_map& map = *b.script.map;
  CHECK(map.places() == 3);
  CHECK(map.device() == here);
  CHECK(map.budget(neighbour) == 5);
  CHECK(map.budget() == small);
  CHECK(map.rank(here) == 0);
  CHECK(map.rank(neighbour) == 1);
  CHECK(map.rank(host) == 2);
  b.made->set_budget(neighbour, 3 * block_size);
  CHECK(map.budget(neighbour) == 3);
}

TEST_CASE("blocks move to the neighbour and back, and the host hears nothing of it") {
  bench b(small);
  b.fill(blocks(0, 2));
  b.seen.clear();
  const statistics before = b.seen_traffic();
  b.plan({transfer::evict(neighbour, reason::make_room, blocks(0, 2))});
  CHECK(b.started() == "move 0+2 DN4");
  CHECK(b.at(0, neighbour) == copy_state::arriving);
  CHECK(b.at(0, here) == copy_state::leaving);
  b.carry_out();
  CHECK(b.at(0, neighbour) == copy_state::current);
  CHECK(b.at(0, here) == copy_state::absent);
  CHECK(b.at(0, host) != copy_state::current);
  CHECK(b.script.map->occupied(neighbour) == 2);
  CHECK(b.script.map->occupied() == 0);

  b.plan({transfer::evict(here, reason::issued, blocks(0))});  // back, and the neighbour gives the room up
  CHECK(b.started() == "move 0+1 ND5");
  b.plan({transfer::prefetch(here, reason::issued, blocks(1))});  // back, and the neighbour keeps its copy
  CHECK(b.started() == "move 1+1 ND5");
  b.carry_out_all();
  CHECK(b.at(0, here) == copy_state::current);
  CHECK(b.at(0, neighbour) == copy_state::absent);
  CHECK(b.at(1, here) == copy_state::current);
  CHECK(b.at(1, neighbour) == copy_state::current);

  const statistics did = b.seen_traffic() - before;
  CHECK(did.between(here, neighbour).bytes_for(reason::make_room) == (2 * block_size).count);
  CHECK(did.between(neighbour, here).bytes_for(reason::issued) == (2 * block_size).count);
  CHECK(did.out().all_blocks() == 2);
  CHECK(did.in().all_blocks() == 2);
  CHECK(did.between(here, host).all_bytes() == 0);
  CHECK(b.seen.front() == "device 0 to device 1");
  CHECK(b.seen.back() == "device 1 to device 0");
}

TEST_CASE("a write makes the neighbour's copy stale: it is not used, and its room can be given up") {
  bench b(small);
  b.fill(blocks(0));
  b.plan({transfer::prefetch(neighbour, reason::write_back, blocks(0))});
  CHECK(b.started() == "move 0+1 DN4");
  b.carry_out_all();
  CHECK(b.at(0, neighbour) == copy_state::current);
  b.run({updates(0)});
  CHECK(b.at(0, neighbour) == copy_state::stale);
  b.plan({transfer::evict(host, reason::make_room, blocks(0))});
  CHECK(b.started() == "evict 0+1 DH1");  // a copy: nobody else has the contents
  b.carry_out_all();
  b.plan({transfer::prefetch(here, reason::issued, blocks(0))});
  CHECK(b.started() == "prefetch 0+1 HD0");
  b.carry_out_all();
  transfer release = transfer::drop(reason::make_room, blocks(0));
  release.from = neighbour;
  b.plan({release});
  CHECK(b.started() == "drop 0+1 NH");
  b.carry_out_all();
  CHECK(b.at(0, neighbour) == copy_state::absent);
  CHECK(b.at(0, here) == copy_state::current);
}

TEST_CASE("a copy that is written while it is made is of no use at the neighbour") {
  bench b(small);
  b.fill(blocks(0));
  b.plan({transfer::prefetch(neighbour, reason::write_back, blocks(0))});
  const launch_id l = b.launch({updates(0)});
  CHECK(b.made->admitted(l, b.stream));
  b.carry_out_all();
  CHECK(b.at(0, neighbour) != copy_state::current);
  b.memory.finish(l);
  b.made->pump();
  CHECK(b.at(0, neighbour) != copy_state::current);
  CHECK(b.at(0, here) == copy_state::current);
}

TEST_CASE("what is to be written by a launch that comes while it moves to the neighbour is there afterwards") {
  bench b(small);
  b.fill(blocks(0));
  b.plan({transfer::evict(neighbour, reason::make_room, blocks(0))});
  const launch_id l = b.launch({updates(0)});  // waits for the block to come back
  CHECK_FALSE(b.made->admitted(l, b.stream));
  b.carry_out_all();
  CHECK(b.script.map->of(block_id{0}).nowhere() == false);
  for (int i = 0; i != 10 && !b.made->admitted(l, b.stream); ++i) {
    b.made->pump();
    b.carry_out_all();
  }
  CHECK(b.made->admitted(l, b.stream));
  CHECK(b.started() == "move 0+1 DN4, move 0+1 ND5");
}

TEST_CASE("what the device drops because the neighbour has it is not taken to be on the host") {
  bench b(small);
  b.fill(blocks(0));
  b.plan({transfer::prefetch(neighbour, reason::write_back, blocks(0))});
  b.carry_out_all();
  b.started();
  b.plan({transfer::evict(host, reason::make_room, blocks(0))});
  CHECK(b.started() == "drop 0+1 DH");
  b.carry_out_all();
  CHECK(b.at(0, neighbour) == copy_state::current);
  CHECK(b.at(0, host) != copy_state::current);
}

TEST_CASE("a neighbour gets no room for what is nowhere") {
  bench b(small);
  b.plan({transfer::prefetch(neighbour, reason::predicted, blocks(20))});
  CHECK(b.started().empty());
  CHECK(b.script.map->occupied(neighbour) == 0);
}

TEST_CASE("the only copy of a neighbour is not dropped, and one that the host has too is") {
  bench b(small);
  b.fill(blocks(0));
  b.plan({transfer::evict(neighbour, reason::make_room, blocks(0))});
  b.carry_out_all();
  b.started();
  transfer release = transfer::drop(reason::make_room, blocks(0));
  release.from = neighbour;
  b.plan({release});
  CHECK(b.started().empty());
  CHECK(b.made->snapshot().refused == 1);
  b.plan({transfer::clean(reason::write_back, blocks(0))});
  CHECK(b.started() == "clean 0+1 NH3");
  b.carry_out_all();
  CHECK(b.at(0, host) == copy_state::current);
  CHECK(b.at(0, neighbour) == copy_state::current);
  CHECK(b.made->snapshot().between(neighbour, host).bytes_for(reason::write_back) == block_size.count);
  b.plan({release});
  CHECK(b.started() == "drop 0+1 NH");
  b.carry_out_all();
  CHECK(b.at(0, neighbour) == copy_state::absent);
}

TEST_CASE("a launch demands a block that only the neighbour holds, and it comes from there") {
  bench b(small);
  b.fill(blocks(0));
  b.plan({transfer::evict(neighbour, reason::make_room, blocks(0))});
  b.carry_out_all();
  b.started();
  const launch_id l = b.launch({reads(0)});
  CHECK_FALSE(b.made->admitted(l, b.stream));
  b.made->pump();
  CHECK(b.started() == "move 0+1 ND5");
  b.carry_out_all();
  CHECK(b.made->admitted(l, b.stream));
  CHECK(b.at(0, neighbour) == copy_state::current);  // what was only read stays there, too
  CHECK(b.made->snapshot().between(neighbour, here).bytes_for(reason::fault) == block_size.count);
}

TEST_CASE("the host reads and writes a block that only the neighbour holds") {
  for (const access mode : {access::read, access::update}) {
    bench b(small);
    b.fill(blocks(0));
    b.plan({transfer::evict(neighbour, reason::make_room, blocks(0))});
    b.carry_out_all();
    b.started();
    b.made->begin_host_access(blocks(0), mode);
    CHECK_FALSE(b.made->host_may_use(blocks(0), mode));
    b.made->pump();
    CHECK(b.started() == (mode == access::read ? "clean 0+1 NH3" : "evict 0+1 NH3"));
    b.carry_out_all();
    CHECK(b.made->host_may_use(blocks(0), mode));
    b.made->end_host_access(blocks(0), mode);
    b.made->pump();
    CHECK(b.at(0, host) == copy_state::current);
    CHECK(b.at(0, neighbour) == (mode == access::read ? copy_state::current : copy_state::absent));
  }
}

TEST_CASE("what leaves for a full neighbour waits for its room, and what leaves for the host does not wait for it") {
  bench b(small, 2);
  b.fill(blocks(0, 4));
  b.plan({transfer::evict(neighbour, reason::make_room, blocks(0, 3)),
          transfer::evict(host, reason::make_room, blocks(3))});
  CHECK(b.started() == "evict 3+1 DH1, move 0+2 DN4");
  b.carry_out_all();
  CHECK(b.started().empty());
  CHECK(b.at(2, here) == copy_state::current);
  b.made->set_budget(neighbour, 3 * block_size);
  b.made->pump();
  CHECK(b.started() == "move 2+1 DN4");
  b.carry_out_all();
  CHECK(b.script.map->occupied(neighbour) == 3);
  CHECK(b.script.map->room(neighbour) == 0);
}

TEST_CASE("a request of the program for a neighbour that stays full is dropped when nothing leaves that") {
  bench b(small, 1);
  b.fill(blocks(0, 2));
  b.made->prefetch(blocks(0, 2), neighbour);
  b.made->pump();
  CHECK(b.started() == "move 0+1 DN4");
  CHECK(b.made->snapshot().dropped == 1);
  b.carry_out_all();
  CHECK(b.started().empty());
  CHECK(b.at(1, here) == copy_state::current);
}

TEST_CASE("a transfer that fails leaves the blocks where they were, and both places as they were") {
  bench b(small);
  b.fill(blocks(0));
  b.plan({transfer::evict(neighbour, reason::make_room, blocks(0))});
  b.memory.fail_job(b.memory.started.at(b.begun++));
  b.made->pump();
  CHECK(b.at(0, here) == copy_state::current);
  CHECK(b.at(0, neighbour) == copy_state::absent);
  CHECK(b.script.map->occupied(neighbour) == 0);
  CHECK(b.made->snapshot().failed_calls == 1);
  b.started();
  b.plan({transfer::evict(neighbour, reason::make_room, blocks(0))});
  CHECK(b.started() == "move 0+1 DN4");
  b.carry_out_all();
  b.plan({transfer::evict(here, reason::issued, blocks(0))});
  b.memory.fail_job(b.memory.started.at(b.begun++));  // on the way back
  b.made->pump();
  CHECK(b.at(0, here) == copy_state::absent);
  CHECK(b.at(0, neighbour) == copy_state::current);
  CHECK(b.script.map->occupied() == 0);
}

TEST_CASE("what comes from the host takes both routes: the one that would be over first, as far as links have room") {
  bench b(8);
  b.fill(blocks(0, 8));
  b.plan({transfer::evict(host, reason::make_room, blocks(0, 8))});
  b.carry_out_all();
  b.started();
  std::vector<transfer> wanted;
  for (std::uint32_t i = 0; i != 8; ++i) {
    wanted.push_back(transfer::prefetch(here, i % 2 == 0 ? reason::issued : reason::predicted, blocks(i)));
  }
  const statistics before = b.seen_traffic();
  b.plan(wanted);  // two on each link at a time
  CHECK(b.started() == "prefetch 0+1 HD0, prefetch 1+1 HD6, prefetch 2+1 HD0, prefetch 3+1 HD6");
  b.carry_out_all();
  const statistics did = b.seen_traffic() - before;
  CHECK(did.between(host, here).all_blocks() + did.between(host, neighbour).all_blocks() == 8);
  CHECK(did.between(host, neighbour).all_bytes() != 0);
  CHECK(did.between(host, neighbour).all_bytes() == did.between(neighbour, here).all_bytes());
  CHECK(did.in().all_bytes() == (8 * block_size).count);
}

TEST_CASE("where the way by the neighbour is the faster one, it is taken first, in both directions") {
  bench b(small, 8, 10);
  b.fill(blocks(0));
  b.plan({transfer::evict(host, reason::make_room, blocks(0))});
  CHECK(b.started() == "evict 0+1 DH7");
  b.carry_out_all();
  CHECK(b.script.map->occupied(neighbour) == 0);  // it only passed
  b.plan({transfer::prefetch(here, reason::issued, blocks(0))});
  CHECK(b.started() == "prefetch 0+1 HD6");
  b.carry_out_all();
  CHECK(b.at(0, here) == copy_state::current);
}

TEST_CASE("blocks of one transfer that lie at several places come from each of them") {
  bench b(small);
  b.fill(blocks(0, 3));
  b.plan({transfer::evict(host, reason::make_room, blocks(0, 3))});
  b.carry_out_all();
  b.plan({transfer::prefetch(neighbour, reason::predicted, blocks(1))});  // staged, and the host keeps it
  CHECK(b.at(1, neighbour) == copy_state::arriving);
  b.carry_out_all();
  b.started();
  b.plan({transfer::prefetch(here, reason::issued, blocks(0, 3))});
  b.carry_out_all();
  CHECK(b.started().find("move 1+1 ND5") != std::string::npos);
  for (std::uint32_t i = 0; i != 3; ++i) {
    CHECK(b.at(i, here) == copy_state::current);
  }
}

TEST_CASE("contents that are given up are given up at every place") {
  bench b(small);
  b.fill(blocks(0));
  b.plan({transfer::evict(neighbour, reason::make_room, blocks(0))});
  b.carry_out_all();
  b.started();
  b.made->dead(blocks(0), liveness::inactive, {});
  b.plan({transfer::discard(reason::dead, blocks(0))});
  CHECK(b.started() == "discard 0+1 DH");
  b.carry_out_all();
  CHECK(b.at(0, neighbour) == copy_state::absent);
  CHECK(b.script.map->nowhere(block_id{0}));
  CHECK(b.script.map->occupied(neighbour) == 0);
}

}  // namespace three_places_test
