#pragma once

#include "replay/machine.hpp"
#include "replay/program.hpp"
#include "replay/schedule.hpp"
#include <deepum/core/location.hpp>
#include <deepum/core/topology.hpp>
#include <deepum/units.hpp>

#include <algorithm>
#include <array>
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
  schedule_checker(const program& what, const machine& on)
      : what_(what),
        machine_(on),
        loads_(on.places.links().size()),
        blocks_(what.end_block()) {
    for (unsigned l = 1; l != on.places.places(); ++l) {
      budgets_[l] = static_cast<std::uint32_t>(on.places.budget(location::at(l)) / block_size);
    }
    budgets_[here] = static_cast<std::uint32_t>(on.budget / block_size);
    for (const auto& w : what.workloads) {
      each(w->persistent, [&](std::uint32_t b) {
        blocks_[b].alive = true;
        blocks_[b].persists = true;
        blocks_[b].at[0] = {place::there, blocks_[b].newest, 0};
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

 private:
  // In the order in which things of one moment happen.
  enum class happening : std::uint8_t { end, drop, begin, launch, instant_finish };
  struct moment {
    nanoseconds at{};
    happening order = happening::end;
    std::size_t entry = 0;
  };
  enum class place : std::uint8_t { away, arriving, there };
  struct copy {
    place where = place::away;
    std::uint64_t version = 0;  // of the contents; 0: none
    unsigned readers = 0;       // copies of it under way
  };
  struct block {
    std::uint64_t newest = 1;  // version of the contents
    std::array<copy, location::limit> at{};
    unsigned copies = 0;  // under way
    bool alive = false;
    bool persists = false;
    bool read = false;  // by the launch that is running
    bool written = false;
  };
  static constexpr unsigned here = location::device().index();

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
      case schedule_event::copy_out:
      case schedule_event::copy_clean:
      case schedule_event::move:
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
  /// Bytes and latency are spread evenly over the time of a copy, and no link carries more than it can.
  void load(const schedule_entry& e, bool begins) {
    const double slowest = machine_.places.rate(e.via);
    const double work = static_cast<double>(e.blocks.count) * static_cast<double>(block_size.count) +
                        static_cast<double>(machine_.copy_latency.count()) * slowest;
    const double rate = work / (static_cast<double>((e.end - e.start).count()) + 1);
    if (rate > slowest) {
      fail(e, "a copy is faster than the link");
    }
    const route& way = machine_.places.routes()[e.via];
    if (way.from != e.from || way.to != e.to) {
      fail(e, "a copy by a route that leads elsewhere");
    }
    constexpr double about = 1.0001;
    way.for_each_link([&](std::uint8_t l) {
      loads_[l] += begins ? rate : -rate;
      if (loads_[l] > machine_.places.links()[l].rate * about) {
        fail(e, "link " + machine_.names[l] + " carries more than it can");
      }
    });
    for (const link_cap& cap : machine_.caps) {
      double all = 0;
      for (const std::uint8_t l : cap.links)
        all += loads_[l];
      if (all > cap.gbps * about) {
        fail(e, "links carry more together than they can");
      }
    }
  }

  void happen(const moment& m, const schedule_entry& e) {
    if (e.what == schedule_event::launch) {
      m.order == happening::launch ? begin(e) : finish(e);
      return;
    }
    if (e.what != schedule_event::drop && e.what != schedule_event::make_new) {
      load(e, m.order == happening::begin);
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
    switch (e.what) {
      case schedule_event::copy_in:
      case schedule_event::copy_out:
      case schedule_event::copy_clean:
      case schedule_event::move:
        m.order == happening::end ? end_copy(e, b, name) : begin_copy(e, b, name);
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

  void take_room(const schedule_entry& e, unsigned at) {
    if (++taken_[at] > budgets_[at]) {
      fail(e, "more blocks than the budget of place " + std::to_string(at));
    }
  }
  void begin_copy(const schedule_entry& e, block& b, const std::string& name) {
    copy& source = b.at[e.from.index()];
    copy& target = b.at[e.to.index()];
    if (source.where != place::there || (b.alive ? source.version != b.newest : source.version == 0)) {
      fail(e, name + "is copied from where its contents are not");
    } else if (b.written) {
      fail(e, name + "is copied while a launch writes it");
    } else if (!e.to.is_host() && target.where != place::away) {
      fail(e, name + "is copied to where it is");
    }
    ++b.copies;
    ++source.readers;
    if (!e.to.is_host()) {
      target = {place::arriving, source.version, 0};
      take_room(e, e.to.index());
    }
  }
  void end_copy(const schedule_entry& e, block& b, const std::string& name) {
    copy& source = b.at[e.from.index()];
    copy& target = b.at[e.to.index()];
    --b.copies;
    --source.readers;
    target.where = place::there;
    target.version = source.version;
    if (e.then == afterwards::release) {
      give_up(e, b, e.from.index(), name);
    }
  }
  void drop(const schedule_entry& e, block& b, const std::string& name) {
    const unsigned from = e.from.index();
    if (b.at[from].where != place::there) {
      fail(e, name + "is dropped and not there");
    }
    bool elsewhere = false;
    for (unsigned l = 0; l != b.at.size(); ++l) {
      elsewhere = elsewhere || (l != from && b.at[l].where == place::there && b.at[l].version == b.newest);
    }
    if (b.alive && !elsewhere && b.at[from].version == b.newest) {
      fail(e, name + "is dropped, and its only contents are there");
    }
    give_up(e, b, from, name);
  }
  void give_up(const schedule_entry& e, block& b, unsigned at, const std::string& name) {
    if ((b.read || b.written) && at == here) {
      fail(e, name + "leaves while a launch uses it");
    } else if (b.at[at].readers != 0) {
      fail(e, name + "leaves while it is copied");
    }
    b.at[at] = {};
    taken_[at] -= at != 0 ? 1 : 0;
  }
  void make(const schedule_entry& e, block& b, const std::string& name) {
    if (b.at[here].where != place::away) {
      fail(e, name + "is new and there");
    } else if (b.alive) {
      fail(e, name + "is new, and its contents matter");
    }
    b.at[here] = {place::there, ++b.newest, 0};  // whatever lies there
    take_room(e, here);
  }

  void begin(const schedule_entry& e) {
    if (running_ || turn_ == what_.turns.size() || e.step != turn_ || e.kernel != kernel_ || e.start < free_) {
      fail(e, "launch " + std::to_string(e.kernel) + " of turn " + std::to_string(e.step) + " is out of order");
      return;
    }
    running_ = true;
    free_ = e.end;
    const touched_blocks& touched = now().touches(what_.turns[turn_].variant);
    if (e.end - e.start < now().duration + look_up(e, touched, true)) {
      fail(e, "a launch ends early");
    }
    each(touched.reads, [&](std::uint32_t b) { use(e, b, blocks_[b].read); });
    each(touched.writes, [&](std::uint32_t b) { use(e, b, blocks_[b].written); });
    each(touched.writes, [&](std::uint32_t b) {
      block& written = blocks_[b];
      if (written.copies != 0) {
        fail(e, "block " + std::to_string(b) + " is written while it is copied");
      }
      written.alive = true;
      ++written.newest;
      const unsigned where = is_in_place(e, b) ? 0 : here;
      for (unsigned l = 0; l != written.at.size(); ++l) {
        if (l == where) {
          written.at[l].version = written.newest;
        } else if (written.at[l].where != place::away) {
          taken_[l] -= l != 0 ? 1 : 0;
          written.at[l] = {};
        }
      }
    });
  }
  static bool is_in_place(const schedule_entry& e, std::uint32_t number) {
    return std::any_of(e.in_place.begin(), e.in_place.end(),
                       [&](const schedule_in_place& p) { return p.blocks.contains(block_id{number}); });
  }
  /// What a launch touches in place is no less than what it looks up there, and loads the links while it runs.
  /// @returns  How much longer it takes for that.
  nanoseconds look_up(const schedule_entry& e, const touched_blocks& touched, bool begins) {
    double slowest = 0;
    double in = 0;
    double out = 0;
    for (const schedule_in_place& p : e.in_place) {
      double least_in = 0;
      double least_out = 0;
      for (const touched_tensor& t : touched.rows) {
        const auto share = static_cast<std::uint32_t>(
            std::count_if(p.blocks.begin(), p.blocks.end(), [&](block_id b) { return contains(t.blocks, b); }));
        if (share != 0) {
          const double rate = machine_.row_rate(t.row_bytes);
          slowest = slowest == 0 ? rate : std::min(slowest, rate);
          least_in += t.read ? t.bytes_of(share) : 0;
          least_out += t.written ? t.bytes_of(share) : 0;
        }
      }
      for (const block_id b : p.blocks) {
        if (!contains(touched.looked_up, b)) {
          fail(e, "block " + std::to_string(b.value) + " is touched in place, and is not only looked up");
        }
      }
      if (static_cast<double>(p.in) + 1 < least_in || static_cast<double>(p.out) + 1 < least_out) {
        fail(e, "less is touched in place than is looked up");
      }
      in += static_cast<double>(p.in);
      out += static_cast<double>(p.out);
    }
    if (e.in_place.empty()) {
      return {};
    }
    const double time = std::max<double>(1, static_cast<double>((e.end - e.start).count()));
    double longest = 0;
    for (const auto& [from, to, amount] : {std::tuple{location::host(), location::device(), in},
                                           std::tuple{location::device(), location::host(), out}}) {
      machine_.places.routes()[machine_.places.cheapest(from, to)].for_each_link([&, amount = amount](std::uint8_t l) {
        const double rate = machine_.places.links()[l].rate;
        longest = std::max(longest, amount / std::min(rate, slowest));
        loads_[l] += begins ? amount / time : -amount / time;
        if (loads_[l] > rate * 1.0001) {
          fail(e, "link " + machine_.names[l] + " carries more than it can beside what is touched in place");
        }
      });
    }
    return nanoseconds{static_cast<std::int64_t>(longest)};
  }
  void use(const schedule_entry& e, std::uint32_t number, bool& how) {
    const block& b = blocks_[number];
    if (is_in_place(e, number)) {
      if (b.at[0].where != place::there || b.at[0].version != b.newest || b.at[here].where != place::away) {
        fail(e, "block " + std::to_string(number) + " is touched in place, and the host alone has not its contents");
      }
    } else if (b.at[here].where != place::there) {
      fail(e, "block " + std::to_string(number) + " is used and not there");
    } else if (b.alive && b.at[here].version != b.newest) {
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
    (void)look_up(e, now().touches(what_.turns[turn_].variant), false);
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
  machine machine_;
  std::vector<double> loads_;  // by link
  std::vector<block> blocks_;
  nanoseconds free_{};                                    // the compute engine
  std::array<std::uint32_t, location::limit> budgets_{};  // by place, in blocks
  std::array<std::uint32_t, location::limit> taken_{};
  std::uint32_t turn_ = 0;  // that executes, or will next
  std::uint32_t kernel_ = 0;
  bool running_ = false;
  std::string wrong_{};
};

}  // namespace deepum_test
