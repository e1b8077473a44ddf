#pragma once

#include "replay/gpu.hpp"
#include "replay/program.hpp"
#include "replay/schedule.hpp"
#include <deepum/units.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

namespace deepum_test {

using namespace deepum;
using namespace deepum::replay;

/// Says what is wrong with a schedule of a program, by the rules for schedules that a referee goes by.
///
/// Every write of a block makes a new version of its contents, and a copy carries a version from one place to the
/// other, so that what is lost or stale is found where it is used, whatever became of it before.
class schedule_checker {
 public:
  schedule_checker(const program& what, std::uint32_t budget, const link_costs& costs)
      : what_(what),
        budget_(budget),
        costs_(costs),
        blocks_(what.end_block()) {
    for (const auto& w : what.workloads) {
      each(w->persistent, [&](std::uint32_t b) {
        blocks_[b].alive = true;
        blocks_[b].persists = true;
        blocks_[b].on_host = blocks_[b].newest;
      });
    }
  }

  /// Empty where every rule is kept and all launches of the program ran.
  [[nodiscard]] std::string check(const std::vector<schedule_entry>& entries) {
    std::vector<moment> moments;
    for (std::size_t i = 0; i != entries.size() && wrong_.empty(); ++i) {
      add(entries[i], i, moments);
    }
    std::sort(moments.begin(), moments.end(), [](const moment& a, const moment& b) {
      return std::tie(a.at, a.order, a.entry) < std::tie(b.at, b.order, b.entry);
    });
    for (const moment& m : moments) {
      if (wrong_.empty()) {
        happen(m, entries[m.entry]);
      }
    }
    if (wrong_.empty() && turn_ != what_.turns.size()) {
      wrong_ = "it ends in turn " + std::to_string(turn_) + ", before launch " + std::to_string(kernel_);
    }
    return wrong_;
  }

  /// Most blocks that took room at a time.
  [[nodiscard]] std::uint32_t peak() const { return peak_; }

 private:
  // In the order in which things of one moment happen.
  enum class happening : std::uint8_t { end, drop, begin, launch, instant_finish };
  struct moment {
    nanoseconds at{};
    happening order = happening::end;
    std::size_t entry = 0;
  };
  enum class place : std::uint8_t { away, arriving, there };
  struct block {
    std::uint64_t newest = 1;     // version of the contents
    std::uint64_t on_host = 0;    // that the host has; 0: none
    std::uint64_t on_device = 0;  // that the device has
    place where = place::away;
    bool going = false;  // is being copied to the host
    bool alive = false;
    bool persists = false;
    bool read = false;  // by the launch that is running
    bool written = false;
  };

  void fail(const schedule_entry& e, const std::string& why) {
    if (wrong_.empty()) {
      wrong_ = "at " + std::to_string(e.start.count()) + " ns, turn " + std::to_string(turn_) + ", launch " +
               std::to_string(kernel_) + ": " + why;
    }
  }
  template <class Visit>
  static void each(const block_set& set, Visit&& visit) {
    for (const block_range r : set) {
      for (std::uint32_t b = r.begin_value(); b != r.end_value(); ++b) {
        visit(b);
      }
    }
  }

  void add(const schedule_entry& e, std::size_t i, std::vector<moment>& moments) {
    switch (e.what) {
      case schedule_event::copy_in:
        time_copy(e, costs_.h2d_gbps, in_free_);
        break;
      case schedule_event::copy_out:
      case schedule_event::copy_clean:
        time_copy(e, costs_.d2h_gbps, out_free_);
        break;
      case schedule_event::drop:
        moments.push_back({e.start, happening::drop, i});
        return;
      case schedule_event::make_new:
        moments.push_back({e.start, happening::begin, i});
        return;
      case schedule_event::launch:
        moments.push_back({e.start, happening::launch, i});
        moments.push_back({e.end, e.end > e.start ? happening::end : happening::instant_finish, i});
        return;
    }
    moments.push_back({e.start, happening::begin, i});
    moments.push_back({e.end, happening::end, i});
  }
  void time_copy(const schedule_entry& e, double gbps, nanoseconds& free) {
    if (e.start < free) {
      fail(e, "two copies in one direction at a time");
    }
    free = e.end;
    const double least = static_cast<double>(costs_.copy_latency.count()) +
                         static_cast<double>(e.blocks.count) * static_cast<double>(block_size.count) / gbps;
    if (static_cast<double>((e.end - e.start).count()) < least - 1) {
      fail(e, "a copy is faster than the link");
    }
  }

  void happen(const moment& m, const schedule_entry& e) {
    if (e.what == schedule_event::launch) {
      m.order == happening::launch ? begin(e) : finish(e);
      return;
    }
    for (std::uint32_t b = e.blocks.begin_value(); b != e.blocks.end_value() && wrong_.empty(); ++b) {
      if (b >= blocks_.size()) {
        fail(e, "a block that nothing uses");
        return;
      }
      happen(m, e, blocks_[b], "block " + std::to_string(b) + ' ');
    }
  }
  void happen(const moment& m, const schedule_entry& e, block& b, const std::string& name) {
    const bool ends = m.order == happening::end;
    switch (e.what) {
      case schedule_event::copy_in:
        ends ? arrive(b) : fetch(e, b, name);
        break;
      case schedule_event::copy_out:
      case schedule_event::copy_clean:
        ends ? leave(e, b, name) : send(e, b, name);
        break;
      case schedule_event::drop:
        drop(e, b, name);
        break;
      case schedule_event::make_new:
        make(e, b, name);
        break;
      case schedule_event::launch:
        break;
    }
  }

  void take_room(const schedule_entry& e) {
    peak_ = std::max(peak_, ++taken_);
    if (taken_ > budget_) {
      fail(e, "more blocks than the budget");
    }
  }
  void fetch(const schedule_entry& e, block& b, const std::string& name) {
    if (b.where != place::away) {
      fail(e, name + "is fetched and there");
    } else if (b.alive ? b.on_host != b.newest : b.on_host == 0) {
      fail(e, name + "is fetched, and the host does not have its contents");
    }
    b.where = place::arriving;
    take_room(e);
  }
  static void arrive(block& b) {
    b.where = place::there;
    b.on_device = b.on_host;
  }
  void send(const schedule_entry& e, block& b, const std::string& name) {
    if (b.where != place::there || b.going) {
      fail(e, name + "is copied to the host and not there");
    } else if (b.written) {
      fail(e, name + "is copied to the host while a launch writes it");
    }
    b.going = true;
  }
  void leave(const schedule_entry& e, block& b, const std::string& name) {
    b.going = false;
    b.on_host = b.on_device;
    if (e.what == schedule_event::copy_out) {
      give_up(e, b, name);
    }
  }
  void drop(const schedule_entry& e, block& b, const std::string& name) {
    if (b.where != place::there || b.going) {
      fail(e, name + "is dropped and not there");
    } else if (b.alive && b.on_host != b.newest) {
      fail(e, name + "is dropped, and its only contents are there");
    }
    give_up(e, b, name);
  }
  void give_up(const schedule_entry& e, block& b, const std::string& name) {
    if (b.read || b.written) {
      fail(e, name + "leaves while a launch uses it");
    }
    b.where = place::away;
    b.on_device = 0;
    --taken_;
  }
  void make(const schedule_entry& e, block& b, const std::string& name) {
    if (b.where != place::away) {
      fail(e, name + "is new and there");
    } else if (b.alive) {
      fail(e, name + "is new, and its contents matter");
    }
    b.where = place::there;
    b.on_device = ++b.newest;  // whatever lies there
    take_room(e);
  }

  void begin(const schedule_entry& e) {
    if (running_ || turn_ == what_.turns.size() || e.step != turn_ || e.kernel != kernel_ || e.start < free_) {
      fail(e, "launch " + std::to_string(e.kernel) + " of turn " + std::to_string(e.step) + " is out of order");
      return;
    }
    running_ = true;
    free_ = e.end;
    if (e.end - e.start < now().duration) {
      fail(e, "a launch ends early");
    }
    const touched_blocks& touched = now().touches(what_.turns[turn_].variant);
    each(touched.reads, [&](std::uint32_t b) { use(e, b, blocks_[b].read); });
    each(touched.writes, [&](std::uint32_t b) { use(e, b, blocks_[b].written); });
    each(touched.writes, [&](std::uint32_t b) {
      if (blocks_[b].going) {
        fail(e, "block " + std::to_string(b) + " is written while it is copied to the host");
      }
      blocks_[b].alive = true;
      blocks_[b].on_device = ++blocks_[b].newest;
      blocks_[b].on_host = 0;
    });
  }
  void use(const schedule_entry& e, std::uint32_t number, bool& how) {
    const block& b = blocks_[number];
    if (b.where != place::there) {
      fail(e, "block " + std::to_string(number) + " is used and not there");
    } else if (b.alive && b.on_device != b.newest) {
      fail(e, "block " + std::to_string(number) + " is used, and its contents are not the newest ones");
    }
    how = true;
  }
  void finish(const schedule_entry& e) {
    if (!running_) {
      fail(e, "a launch ends that has not begun");
      return;
    }
    running_ = false;
    const auto ended = [&](std::uint32_t b) { blocks_[b].read = blocks_[b].written = false; };
    each(now().touches(what_.turns[turn_].variant).reads, ended);
    each(now().touches(what_.turns[turn_].variant).writes, ended);
    each(now().dead, [&](std::uint32_t b) { blocks_[b].alive = blocks_[b].persists; });
    if (++kernel_ == what_.workloads[what_.turns[turn_].workload]->launches.size()) {
      kernel_ = 0;
      ++turn_;
    }
  }
  [[nodiscard]] const workload_launch& now() const {
    return what_.workloads[what_.turns[turn_].workload]->launches[kernel_];
  }

  const program& what_;
  std::uint32_t budget_;
  link_costs costs_;
  std::vector<block> blocks_;
  nanoseconds in_free_{};
  nanoseconds out_free_{};
  nanoseconds free_{};  // the compute engine
  std::uint32_t taken_ = 0;
  std::uint32_t peak_ = 0;
  std::uint32_t turn_ = 0;  // that executes, or will next
  std::uint32_t kernel_ = 0;
  bool running_ = false;
  std::string wrong_{};
};

}  // namespace deepum_test
