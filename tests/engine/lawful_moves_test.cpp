// What the law allows, done in every order: a block at three places, with what its copies really hold beside the
// ledger.

#include <deepum/core/block_ledger.hpp>
#include <deepum/engine/law.hpp>

#include <doctest/doctest.h>

#include <array>
#include <cstdint>
#include <deque>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

namespace lawful_moves_test {

using namespace deepum;
using deepum::access;  // not the one of POSIX

constexpr block_id block{0};
constexpr location home = location::host();
constexpr location here = location::device(0);  // where launches run
constexpr location beside = location::device(1);
constexpr std::array places{home, here, beside};
constexpr std::array<std::uint32_t, 2> budgets{4, 4};
constexpr int nothing = 0;   // a place that has no contents
constexpr int garbage = -1;  // contents that were overwritten by others, or while they were being copied

/// A ledger, and beside it the contents themselves: a number for each write.
struct world {
  block_ledger ledger{1, here, budgets, um_grid};
  std::array<int, 3> held{nothing, nothing, nothing};
  std::array<int, 3> coming{nothing, nothing, nothing};  // what a copy that is under way has read so far
  int truth = 0;                                         // what a reader has to find, where that matters
  bool matters = false;
  bool submitted = false;  // a launch that writes, or overwrites
  bool overwrites = false;
  bool runs = false;
  bool set_aside = false;  // the contents were forgotten for it

  [[nodiscard]] block_view view() const { return ledger.of(block); }
  [[nodiscard]] law::circumstances around(bool stays) const { return {.home_stays = stays, .in_use = runs}; }
  int& at(location l) { return held[l.index()]; }

  void wrote(location l) {
    at(l) = ++truth;
    matters = ledger.life(block) == liveness::live;
    for (const location to : places) {
      if (view().at(to).is == block_copy::phase::arriving && view().at(to).from == l.index()) {
        coming[to.index()] = garbage;
      }
    }
  }

  /// What tells this world from others, as far as the ledger and its contents go.
  [[nodiscard]] std::string key() const {
    std::string k;
    const auto add = [&k](auto... flags) { ((k += static_cast<char>('0' + static_cast<int>(flags))), ...); };
    const auto kind = [this](int v) { return v == nothing ? 0 : v == truth ? 1 : v == garbage ? 2 : 3; };
    const auto age = [this](std::uint32_t g) { return g == 0 ? 0 : g == view()->generation ? 1 : 2; };
    for (const location l : places) {
      const block_copy& c = view().at(l);
      add(c.is, c.from, age(c.generation), kind(held[l.index()]), kind(coming[l.index()]));
    }
    const block_record& r = *view().operator->();
    add(r.life, r.users, r.writers, r.host_writes, r.forgetting, r.overwriter != 0);
    add(matters, submitted, overwrites, runs, set_aside, truth != 0);
    return k;
  }
};

/// Calls `go_on(world)` for everything that may happen next. @param stays  Home copies stay, as on paged memory.
template <class GoOn>
void for_each_next(const world& w, bool stays, GoOn&& go_on) {
  const auto next = [&](auto&& happens) {
    world n = w;
    happens(n);
    go_on(n);
  };
  const block_view v = w.view();
  using phase = block_copy::phase;
  // Facts.
  next([](world& n) {
    const bool live = n.ledger.life(block) == liveness::live;
    n.ledger.set_liveness(block, live ? liveness::inactive : liveness::live);
    n.matters = false;
  });
  next([](world& n) {
    if (n.view()->host_writes == 0) {
      n.ledger.begin_host_view(block, access::update);
    } else {
      n.ledger.end_host_view(block, access::update);
    }
  });
  if (v->host_writes != 0 && !v.in_motion() && !v.at(here).takes_room() && !w.submitted) {
    next([](world& n) {
      n.ledger.write_on_host(block);
      n.wrote(home);
    });
  }
  // A launch.
  for (const bool overwrites : {false, true}) {
    if (!w.submitted) {
      next([&](world& n) {
        n.submitted = true;
        n.overwrites = overwrites;
        n.ledger.add_user(block, overwrites ? access::overwrite : access::update);
        n.ledger.may_be_written(block);
        if (overwrites && law::may_forget(n.view(), law::because::overwritten, n.around(stays))) {
          n.set_aside = n.matters;
          n.matters = false;
          n.ledger.forget(block, launch_id{5});
        }
      });
    }
  }
  const auto end = [](world& n) {
    n.ledger.remove_user(block, n.overwrites ? access::overwrite : access::update);
    n.submitted = n.runs = n.set_aside = false;
  };
  if (w.submitted && !w.runs) {
    if (w.ledger.ready(block)) {
      next([](world& n) {
        n.runs = true;
        n.ledger.may_be_written(block);
      });
    }
    next([&](world& n) {  // it is taken back
      const bool remembered = n.ledger.remember(block, launch_id{5});
      CHECK((remembered || !n.set_aside));
      n.matters = n.matters || (n.set_aside && n.ledger.life(block) == liveness::live);
      end(n);
    });
  }
  if (w.runs) {
    next([&](world& n) {
      (void)n.ledger.take_overwriter(block, launch_id{5});
      n.ledger.write(block, here);
      n.wrote(here);
      end(n);
    });
  }
  // Transfers begin.
  for (const location to : places) {
    for (const location from : places) {
      if (from == to || !v.current(from) || v.at(from).is != phase::there) {
        continue;
      }
      if (to == home ? from == here && law::may_copy(v, from, to, w.around(stays)) : law::may_arrive(v, to)) {
        next([&](world& n) {
          n.ledger.start_arriving(block, to, from);
          n.coming[to.index()] = n.at(from);
        });
      }
    }
    if (to != home && v.nowhere() && law::may_arrive(v, to)) {
      next([&](world& n) { n.ledger.start_arriving(block, to, to); });
    }
    if (to != home && law::may_leave(v, to, w.around(stays)) &&
        (to == here || law::may_release(v, to, w.around(stays)))) {
      next([&](world& n) { n.ledger.start_leaving(block, to); });
    }
  }
  // And end, well or not.
  for (const location at : places) {
    if (v.at(at).is == phase::arriving) {
      next([&](world& n) {
        const int contents = std::exchange(n.coming[at.index()], nothing);
        n.at(at) = contents;
        if (at == home) {
          (void)n.ledger.clean(block);
        } else if (v.at(at).from == at.index()) {
          n.ledger.arrive_empty(block, at);
        } else {
          n.ledger.arrive_at(block, at);
        }
      });
      next([&](world& n) {
        n.coming[at.index()] = nothing;
        n.at(at) = garbage;  // half of it
        n.ledger.stop_moving(block, at);
      });
    }
    if (v.at(at).is == phase::leaving && !v->forgetting) {
      next([&](world& n) {
        if (at == here && !law::may_release(v, here, n.around(stays))) {
          n.at(home) = n.at(here);
          n.ledger.depart(block);
        } else {
          n.ledger.release(block, at);
        }
        n.at(at) = nothing;
      });
      next([&](world& n) { n.ledger.stop_moving(block, at); });
    }
  }
  // Contents are given up.
  if (law::may_forget(v, law::because::died, w.around(stays))) {
    next([](world& n) { n.ledger.start_forgetting(block); });
  }
  if (v->forgetting) {
    next([](world& n) {
      n.ledger.discard(block);
      n.held = {nothing, nothing, nothing};
    });
  }
  if (law::may_release_home(v)) {
    next([](world& n) {
      n.ledger.release(block, home);
      n.at(home) = garbage;
    });
  }
  if (law::may_reclaim_home(v)) {
    next([](world& n) { n.at(home) = garbage; });
  }
}

/// Contents that matter are somewhere, and where the ledger says that they are.
bool holds(const world& w) {
  bool well = !w.matters || !w.view().nowhere();
  for (const location l : places) {
    well = well && !(w.matters && w.view().current(l) && w.held[l.index()] != w.truth);
  }
  return well;
}

TEST_CASE("whatever happens in whatever order, contents that matter stay where the ledger says that they are") {
  for (const bool stays : {false, true}) {
    CAPTURE(stays);
    std::unordered_set<std::string> seen;
    std::deque<world> open(1);
    seen.insert(open.front().key());
    std::uint64_t wrong = 0;
    while (!open.empty() && wrong == 0) {
      const world w = std::move(open.front());
      open.pop_front();
      for_each_next(w, stays, [&](const world& n) {
        if (seen.insert(n.key()).second) {
          wrong += holds(n) ? 0 : 1;
          open.push_back(n);
        }
      });
    }
    CHECK(wrong == 0);
    MESSAGE(seen.size());
    CHECK(seen.size() > 1000);
  }
}

}  // namespace lawful_moves_test
