#pragma once

#include "property/lockstep_step.hpp"
#include "property/lockstep_world.hpp"
#include "property/shadow.hpp"
#include "property/step_dice.hpp"
#include <deepum/core/launch.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <set>
#include <utility>

namespace deepum_test {

/// What comes about by chance too seldom: several steps that only together show something. Each may turn out not to be
/// possible any more when its turn comes.
class step_plans {
 public:
  using kind = step::kind;

  /// @param world, dice  Outlive it.
  step_plans(const lockstep_world& world, step_dice& dice) : world_(world), dice_(dice) {}

  [[nodiscard]] std::deque<step> make() {
    planned_.clear();
    switch (dice_.below(world_.has_graphs ? 6 : 4)) {
      case 0:
        overwritten_by_nobody();
        break;
      case 1:
        dies_in_flight();
        break;
      case 2:
      case 3:
        view_ends_beside_leaving();
        break;
      case 4:
        graph_of_a_part();
        break;
      default:
        graph_with_scratch();
        break;
    }
    return std::exchange(planned_, {});
  }

 private:
  /// What is on the host alone is to be overwritten, and is not.
  void overwritten_by_nobody() {
    const piece a = some_buffer();
    if (dice_.below(2) == 0) {
      fill(a);
    }
    send_to_host(a);
    add(kind::synchronize);
    pause(2000);
    fill(a).ends = step::ending::throws_before;
    read(a);
  }
  /// Memory dies while launches are in flight, and no allocation follows.
  void dies_in_flight() {
    const piece a = some_buffer();
    fill(a);
    add(kind::release, {a.buffer, 0, 0});
    add(kind::synchronize);
    pause(world_.options.time_is_virtual ? 20000 : 200);
    press(12);
  }
  /// A view ends while what launches wrote beside it leaves the device, and host memory becomes scarce.
  void view_ends_beside_leaving() {
    piece x = some_buffer();
    piece y = beside(x);
    if (x.buffer == y.buffer) {
      return;
    }
    if (world_.memory.of(y).bytes() < world_.memory.of(x).bytes()) {
      std::swap(x, y);
    }
    x.n = std::min(x.n, 1 + dice_.below(40));
    fill(y);
    read(x);
    const auto view = static_cast<std::uint32_t>(world_.views.size());
    fill(y);
    if (dice_.below(2) == 0) {
      add(kind::synchronize);
    }
    if (dice_.below(4) == 0) {
      press(1 + dice_.below(4));
    } else {
      send_to_host(y);
    }
    pause(90);
    add(kind::close_view).value = view;
    for (std::uint32_t others = 2 + dice_.below(4); others > 0; --others) {
      const piece other = some_buffer();
      if (other.buffer != x.buffer && other.buffer != y.buffer) {
        take_host_memory(other);
      }
    }
    press(dice_.below(4));
    read(y);
  }
  /// A graph writes a part, and before it is launched its buffer is split in another way.
  void graph_of_a_part() {
    const piece a = some_buffer();
    if (a.n < 4) {
      return;
    }
    const std::uint32_t k = 1 + dice_.below(a.n / 2);
    const piece part{a.buffer, 0, k};
    const piece rest{a.buffer, k, a.n - k};
    const std::uint32_t graph = room_for_graph();
    add(kind::split, a).sizes = {k};
    record(fill_of(part));
    fill(a);
    add(kind::split, a).sizes = {k + 1 + dice_.below(a.n - k - 1)};
    if (dice_.below(2) == 0) {
      send_to_host(a);
      add(kind::synchronize);
      pause(2000);
      add(kind::launch_graph).value = graph;
      read(rest);
    } else {
      add(kind::give_up, rest);
      add(kind::launch_graph).value = graph;
      read(rest);  // is refused
    }
  }
  /// The scratch memory of a graph is not enough for a later call, and others take what became free.
  void graph_with_scratch() {
    step s = dice_.plain(kind::scratch);
    s.by = step::route::call;
    s.a = some_buffer();
    s.b = some_buffer();
    s.unit = 1 + dice_.below(world_.block / 8);
    const std::uint32_t graph = room_for_graph();
    record(s);
    s.unit = s.unit * 2 + dice_.below(world_.block / 8);
    planned_.push_back(s);
    step taken = dice_.allocation();
    planned_.push_back(taken);
    add(kind::launch_graph).value = graph;
    press(2);
    read(s.a);
  }

  // --- steps -------------------------------------------------------------------------------------------------------

  step& add(kind what, const piece& on = {}) {
    step s = dice_.plain(what);
    s.a = on;
    return planned_.emplace_back(std::move(s));
  }
  [[nodiscard]] step fill_of(const piece& on) {
    step s = dice_.plain(kind::fill);
    s.a = on;
    s.by = step::route::call;
    s.unsized = 1;
    return s;
  }
  step& fill(const piece& on) {
    step s = fill_of(on);
    s.unsized = 0;
    return planned_.emplace_back(std::move(s));
  }
  void read(const piece& what) { add(kind::open_view, what).mode = deepum::access::read; }
  void pause(std::uint32_t most) { add(kind::pause).value = dice_.below(most); }
  void send_to_host(const piece& on) {
    step& s = add(kind::hint, on);
    s.value = s.value / 4 * 4 + 1;
  }
  void take_host_memory(const piece& on) {
    fill(on);
    if (dice_.below(2) == 0) {
      send_to_host(on);
      pause(200);
    } else {
      add(kind::synchronize);
      const auto view = static_cast<std::uint32_t>(world_.views.size());
      read(on);
      add(kind::close_view).value = view;
    }
  }
  void press(std::uint32_t launches) {
    for (std::uint32_t i = 0; i < launches; ++i) {
      step s = dice_.launch();
      s.ends = step::ending::well;
      planned_.push_back(std::move(s));
    }
  }
  void record(const step& one) {
    step s = dice_.plain(kind::record_graph);
    s.stream = one.stream;
    s.inner = {one};
    planned_.push_back(std::move(s));
  }
  /// @returns  The number of the graph that is recorded next.
  std::uint32_t room_for_graph() {
    const auto all = static_cast<std::uint32_t>(world_.graphs.size());
    if (all < lockstep_world::most_graphs) {
      return all;
    }
    add(kind::drop_graph).value = 0;
    return all - 1;
  }

  [[nodiscard]] piece some_buffer() {
    const std::uint32_t n = dice_.buffer();
    return {n, 0, world_.memory.buffers[n].size()};
  }
  /// A buffer that shares a block with the piece, where there is one; else its own.
  [[nodiscard]] piece beside(const piece& p) {
    const std::set<std::size_t> near = world_.memory.blocks({p}, world_.block);
    const auto all = static_cast<std::uint32_t>(world_.memory.buffers.size());
    const std::uint32_t first = dice_.below(all);
    for (std::uint32_t i = 0; i < all; ++i) {
      const std::uint32_t n = (first + i) % all;
      const shadow::buffer& b = world_.memory.buffers[n];
      if (b.alive && n != p.buffer) {
        const std::set<std::size_t> own = world_.memory.blocks({{n, 0, b.size()}}, world_.block);
        if (std::any_of(own.begin(), own.end(), [&](std::size_t block) { return near.contains(block); })) {
          return {n, 0, b.size()};
        }
      }
    }
    return {p.buffer, 0, world_.memory.of(p).size()};
  }

  const lockstep_world& world_;
  step_dice& dice_;
  std::deque<step> planned_{};
};

}  // namespace deepum_test
