#pragma once

#include "policy/driver.hpp"
#include <deepum/policy/make_policy.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace deepum_test {

using enum deepum::layer_kind;
using deepum::layer_pass;

/// A net on a device: launches are issued, and finish when the test says so; transfers are carried out when it says so.
class layered_bench {
 public:
  layered_bench(const std::string& name, deepum::offload which, std::uint32_t budget = 64, bool keeps_home_copy = true,
                policy_options options = {})
      : map(64, location::device(), budget, um_grid) {
    options.offload = which;
    chooser = make_policy(name, options);
    map.set_keeps_home_copy(keeps_home_copy);
    chooser->on_stream(stream_id{0}, {});
    make_live(blocks(0, 64));
  }

  void make_live(block_range r) {
    for (const block_id b : r) {
      map.set_liveness(b, liveness::live);
    }
    chooser->on_live(r, map);
  }
  void make_dead(block_range r) {
    for (const block_id b : r) {
      map.set_liveness(b, liveness::inactive);
    }
    chooser->on_dead(r, launch_id{last}, map);
  }

  // A launch within the scope that was named last.
  launch_id issue(std::vector<block_access> accesses, std::uint16_t stream = 0) {
    launch_record r{.id = launch_id{++last}, .stream = stream_id{stream}, .accesses = std::move(accesses), .layer = at};
    for (const block_access& a : r.accesses) {
      for (const block_id b : a.range) {
        map.add_user(b, a.mode);
        if (a.mode == access::overwrite && !map.present(b)) {
          map.discard(b);  // as the engine does it: what is about to be overwritten is nowhere
        }
      }
    }
    chooser->on_launch(r, map);
    launches.push_back(r);
    return r.id;
  }
  void layer(std::uint32_t number, layer_pass pass, layer_kind kind = other, std::vector<block_range> input = {}) {
    at = std::make_shared<const layer_scope>(
        layer_scope{.layer = number, .pass = pass, .kind = kind, .number = ++scopes, .input = std::move(input)});
  }
  void no_layer() { at = nullptr; }
  [[nodiscard]] bool ready(launch_id id) const { return chooser->ready(id, stream_id{0}, map); }
  // The oldest launch has run.
  void finish() {
    const launch_record r = launches.front();
    launches.pop_front();
    for (const block_access& a : r.accesses) {
      for (const block_id b : a.range) {
        CHECK(map.resident(b));
        map.remove_user(b, a.mode);
        if (a.mode != access::read) {
          map.write(b);
        }
      }
    }
    chooser->on_finish(r.id, r.stream, map);
  }

  // What the policy plans now, which is then under way.
  std::string plan() {
    deepum::plan p;
    chooser->plan_next(map, p);
    if (p.supersedes) {
      ordered = p.transfers;
    }
    std::string text;
    for (const transfer& t : p.transfers) {
      text += (text.empty() ? "" : ", ") + std::string(to_string(t)) + " " + std::to_string(t.blocks.first.value) +
              (t.blocks.count == 1 ? "" : "+" + std::to_string(t.blocks.count));
    }
    return text;
  }
  // All that was planned last is carried out.
  void carry_out() {
    for (const transfer& t : std::exchange(ordered, {})) {
      for (const block_id b : t.blocks) {
        if (t.forgets()) {
          map.discard(b);
        } else if (t.takes_room()) {
          const bool had_copy = !map.nowhere(b);
          in += had_copy ? 1 : 0;
          map.keeps_home_copy() && !had_copy ? map.arrive_empty(b) : map.arrive(b, map.keeps_home_copy());
        } else if (t.cleans()) {
          map.start_cleaning(b);
          (void)map.clean(b);
          ++out;
        } else if (map.keeps_home_copy() && !map.dirty(b)) {
          map.drop(b);
        } else {
          ++out;
          map.depart(b);
        }
        chooser->on_migrated({b, 1}, t.takes_room() ? map.device() : location::host(), map);
      }
    }
  }
  // A block got room for what is to be written there; all else that was planned is still under way.
  void has_room(std::uint32_t b) {
    map.arrive_empty(block_id{b});
    chooser->on_migrated(blocks(b), map.device(), map);
  }
  // Plans and carries out until nothing is planned. @returns  All of it.
  std::string settle() {
    std::string all;
    carry_out();
    for (std::string text = plan(); !text.empty(); text = plan()) {
      all += (all.empty() ? "" : "; ") + text;
      carry_out();
    }
    return all;
  }
  // One layer as a whole: a launch that is issued, begins and runs.
  void run(std::vector<block_access> accesses) {
    const launch_id id = issue(std::move(accesses));
    (void)settle();
    REQUIRE(ready(id));
    finish();
  }

  block_ledger map;
  std::unique_ptr<deepum::policy> chooser;
  std::shared_ptr<const layer_scope> at{};
  std::deque<launch_record> launches{};
  std::vector<transfer> ordered{};
  std::uint64_t last = 0;
  std::uint64_t scopes = 0;
  std::uint64_t in = 0;  // blocks copied
  std::uint64_t out = 0;
};

}  // namespace deepum_test
