#pragma once

// An engine with a neighbour beside the host, and what it starts.

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

inline block_range blocks(std::uint32_t first, std::uint32_t count = 1) { return {block_id{first}, count}; }
inline block_access updates(std::uint32_t first, std::uint32_t count = 1) {
  return {blocks(first, count), access::update};
}
inline block_access reads(std::uint32_t first, std::uint32_t count = 1) { return {blocks(first, count), access::read}; }

/// Links in this order, the detours by way of the neighbour behind them: 6 in, 7 out.
inline topology places(std::uint32_t neighbour_budget, double direct) {
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

}  // namespace three_places_test
