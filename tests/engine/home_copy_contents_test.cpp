// Whatever a policy says, what matters is never lost: random plans on a model of memory with a home copy that has
// contents.

#include "engine/fake_memory.hpp"
#include "support/test_scale.hpp"
#include <deepum/engine/engine.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <random>
#include <utility>
#include <vector>

namespace home_copy_contents_test {

using namespace deepum;
using deepum::access;  // not the one of POSIX
using deepum_test::scripted_policy;

constexpr std::uint32_t arena_blocks = 8;
constexpr std::uint64_t poison = ~std::uint64_t{0};

block_range blocks(std::uint32_t first, std::uint32_t count = 1) { return {block_id{first}, count}; }

template <class Visit>
void for_each(block_range r, Visit&& visit) {
  for (std::uint32_t b = r.begin_value(); b != r.end_value(); ++b)
    visit(b);
}

/// Backed memory and the device that uses it. A block's contents are one number on each side.
///
/// Each direction carries its commands out in order; a copy begins and ends, and launches may run in between.
class modelled_memory final : public memory_space {
 public:
  modelled_memory() : memory_space({.keeps_home_copy = true}, block_size) {}

  struct block {
    std::uint64_t host = poison;
    std::uint64_t device = poison;
    bool there = false;     // has room on the device
    bool written = false;   // by the device, since its last copy
    unsigned dropping = 0;  // drops that are queued
    unsigned arrivals = 0;
    unsigned running = 0;  // launches that use it
    unsigned writing = 0;  // and may write it
    bool copied = false;   // to the host, just now
  };

  [[nodiscard]] std::byte* base() const override { return nullptr; }
  [[nodiscard]] bytes capacity() const override { return block_size * arena_blocks; }
  [[nodiscard]] bytes free_memory() const override { return capacity(); }
  [[nodiscard]] nanoseconds now() const override { return {}; }
  bool start(const transfer& t, std::uint64_t ticket) override {
    const block_range r = t.blocks;
    if (t.forgets()) return take(discards_, command_kind::discard, r, ticket);
    if (t.takes_room()) return take(in_, t.copies() ? command_kind::prefetch : command_kind::populate, r, ticket);
    if (t.copies()) return take(out_, t.cleans() ? command_kind::clean : command_kind::evict, r, ticket);
    if (refuse > 0 && --refuse == 0) return false;
    for_each(r, [&](std::uint32_t b) { ++all[b].dropping; });
    return take(out_, command_kind::drop, r, ticket);
  }
  bool advise(block_range, advice, location) override { return true; }
  void poll(std::vector<device_event>& events) override {
    events.insert(events.end(), events_.begin(), events_.end());
    events_.clear();
  }
  void notify() override {}
  [[nodiscard]] std::uint64_t happened() const override { return 0; }
  void wait(std::uint64_t, nanoseconds) override { FAIL("nothing waits here"); }

  /// Goes on with the oldest command of a direction. @returns  Whether there was one.
  bool work(unsigned direction, bool fail) {
    std::deque<one_command>& queue = direction == 0 ? in_ : direction == 1 ? out_ : discards_;
    if (queue.empty()) return false;
    one_command& c = queue.front();
    const bool copies_out = c.what == command_kind::evict || c.what == command_kind::clean;
    if (copies_out && !c.begun) {
      c.begun = true;
      for_each(c.range, [&](std::uint32_t b) {
        all[b].copied = all[b].there;
        c.before.push_back(all[b].device);
      });
      return true;
    }
    if (c.what == command_kind::drop) for_each(c.range, [&](std::uint32_t b) { --all[b].dropping; });
    if (!fail) {
      std::size_t i = 0;
      for_each(c.range, [&](std::uint32_t b) { carry_out(c, b, c.before.empty() ? poison : c.before[i++]); });
    }
    if (copies_out) for_each(c.range, [&](std::uint32_t b) { all[b].copied = false; });
    device_event e;
    e.what = fail ? device_event::kind::failed : device_event::kind::completed;
    e.ticket = c.ticket;
    events_.push_back(e);
    queue.pop_front();
    return true;
  }
  /// A fault, or a launch that may not wait any longer.
  void bring(std::uint32_t b) {
    if (all[b].there) return;
    all[b].there = true;
    ++all[b].arrivals;
    all[b].device = all[b].host;
    all[b].written = false;
    report(device_event::kind::arrived, b, 0, reason::fault);
  }
  /// The driver makes room, or the host wants the block.
  void take_back(std::uint32_t b, reason why) {
    if (!all[b].there || all[b].running != 0 || all[b].copied) return;
    if (all[b].written) all[b].host = all[b].device;
    leave(b, 0, why);
  }
  /// No command is under way.
  [[nodiscard]] bool idle() const { return in_.empty() && out_.empty() && discards_.empty(); }
  void finish(launch_id id) {
    device_event e;
    e.what = device_event::kind::launch_finished;
    e.launch = id;
    events_.push_back(e);
  }

  std::vector<block> all = std::vector<block>(arena_blocks);
  int refuse = 0;  // the call before it gets to 0 fails

 private:
  enum class command_kind { prefetch, populate, evict, clean, drop, discard };
  struct one_command {
    command_kind what{};
    block_range range{};
    std::uint64_t ticket = 0;
    bool begun = false;
    std::vector<std::uint64_t> before{};  // what copies out began with; arrivals until a populate was given
  };

  bool take(std::deque<one_command>& queue, command_kind what, block_range r, std::uint64_t ticket) {
    if (what != command_kind::drop && refuse > 0 && --refuse == 0) return false;
    one_command c{what, r, ticket};
    if (what == command_kind::populate) for_each(r, [&](std::uint32_t b) { c.before.push_back(all[b].arrivals); });
    queue.push_back(std::move(c));
    return true;
  }
  void carry_out(const one_command& c, std::uint32_t b, std::uint64_t before) {
    block& x = all[b];
    switch (c.what) {
      case command_kind::prefetch:
      case command_kind::populate:
        if (x.there || (c.what == command_kind::populate && before != x.arrivals)) return;
        x.there = true;
        ++x.arrivals;
        x.device = c.what == command_kind::prefetch ? x.host : poison;
        x.written = false;
        report(device_event::kind::arrived, b, c.ticket, reason::predicted);
        break;
      case command_kind::evict:
        if (!x.copied || x.running != 0) return;
        x.host = x.device;  // what was written since is copied again
        leave(b, c.ticket, reason::make_room);
        break;
      case command_kind::clean:
        if (!x.copied) return;
        x.host = before == x.device && x.writing == 0 ? before : poison;  // torn, where it was written meanwhile
        x.written = x.host == poison;
        break;
      case command_kind::drop:
        if (!x.there || x.running != 0) return;
        leave(b, c.ticket, reason::make_room);
        break;
      case command_kind::discard:
        x.host = poison;
        if (x.there) leave(b, c.ticket, reason::dead);
        break;
    }
  }
  void leave(std::uint32_t b, std::uint64_t ticket, reason why) {
    all[b].there = false;
    all[b].device = poison;
    all[b].written = false;
    report(device_event::kind::departed, b, ticket, why);
  }
  void report(device_event::kind what, std::uint32_t b, std::uint64_t ticket, reason why) {
    device_event e;
    e.what = what;
    e.why = why;
    e.range = blocks(b);
    e.ticket = ticket;
    events_.push_back(e);
  }

  std::deque<one_command> in_{};
  std::deque<one_command> out_{};
  std::deque<one_command> discards_{};
  std::vector<device_event> events_{};
};

/// A program on two streams, in which launches that touch the same block run in the order of their issue.
class random_run {
 public:
  explicit random_run(std::uint32_t seed) : random_(seed) {
    engine_options o;
    o.budget = block_size * 5;
    o.log = {};
    o.failures_until_pause = 1'000'000;
    o.commands_in_flight = 1 + below(3);
    engine_ = std::make_unique<engine>(memory_, std::make_unique<scripted_policy>(script_), std::move(o));
    for (stream_id& s : streams_)
      s = engine_->open_stream(std::nullopt);
    REQUIRE(engine_->live(blocks(0, arena_blocks)));
    engine_->host_access(blocks(0, 6), access::update);
    for_each(blocks(0, 6), [&](std::uint32_t b) { truth_[b] = memory_.all[b].host = ++version_; });
    engine_->pump();
  }

  void go(int steps) {
    for (int i = 0; i < steps; ++i) {
      step();
      engine_->pump();
      check_all();
    }
    while (!in_flight_.empty() || !memory_.idle()) {
      advance_launches(true);
      for (unsigned d = 0; d < 3; ++d)
        memory_.work(d, false);
      engine_->pump();
      check_all();
    }
    std::uint32_t present = 0;
    const block_map& map = *script_.map;
    for (std::uint32_t b = 0; b < arena_blocks; ++b) {
      CHECK(map[block_id{b}].users == 0);
      CHECK(map[block_id{b}].writers == 0);
      CHECK(map[block_id{b}].moving == motion::none);
      CHECK(map.resident(block_id{b}) == memory_.all[b].there);
      present += map.present(block_id{b}) ? 1U : 0U;
    }
    CHECK(map.occupied() == present);
  }
  [[nodiscard]] statistics seen() { return engine_->snapshot(); }

 private:
  struct flight {
    launch_id id{};
    std::size_t stream = 0;
    std::vector<block_access> accesses{};  // really
    bool complete = true;
    bool running = false;
    bool begun = false;
  };

  std::uint32_t below(std::uint32_t n) { return static_cast<std::uint32_t>(random_() % n); }
  block_range some(std::uint32_t most) {
    const std::uint32_t count = 1 + below(most);
    return blocks(below(arena_blocks - count + 1), count);
  }

  void step() {
    switch (below(14)) {
      case 0:
      case 1:
        if (in_flight_.size() < 4) submit();
        break;
      case 2:
      case 3:
        advance_launches(below(4) == 0);
        break;
      case 4:
      case 5:
        plan_something();
        break;
      case 6:
        if (below(2) == 0) host_writes(some(2));
        break;
      case 7:
        if (below(2) == 0) change_liveness(some(3));
        break;
      case 8:
        if (below(6) == 0) memory_.take_back(below(arena_blocks), reason::make_room);
        if (below(6) == 0) memory_.refuse = 1;
        break;
      default:
        memory_.work(below(3), below(8) == 0);
        break;
    }
  }

  void submit() {
    flight f;
    f.stream = below(2);
    f.complete = below(6) != 0;
    launch_record r;
    r.stream = streams_[f.stream];
    r.complete = f.complete;
    r.name = "k";
    const std::uint32_t count = 1 + below(2);
    for (std::uint32_t i = 0; i < count; ++i) {
      const block_access a{some(3), static_cast<deepum::access>(below(3))};
      if (touches(f, a.range) || dead(a.range)) continue;
      f.accesses.push_back(a);
      if (f.complete || a.mode == access::overwrite || below(2) == 0) r.accesses.push_back(a);
    }
    f.id = engine_->submit(std::move(r));
    in_flight_.push_back(std::move(f));
  }
  static bool touches(const flight& f, block_range r) {
    return std::any_of(f.accesses.begin(), f.accesses.end(),
                       [r](const block_access& a) { return a.range.overlaps(r); });
  }
  [[nodiscard]] bool dead(block_range r) const {
    return std::any_of(dead_.begin() + r.begin_value(), dead_.begin() + r.end_value(), [](bool d) { return d; });
  }
  [[nodiscard]] bool used(block_range r) const {
    return std::any_of(in_flight_.begin(), in_flight_.end(), [r](const flight& f) { return touches(f, r); });
  }

  // Those before it on its stream are over, and those on the other one that touch the same blocks.
  [[nodiscard]] bool may_begin(std::size_t at) const {
    for (std::size_t i = 0; i < at; ++i) {
      const flight& before = in_flight_[i];
      if (before.stream == in_flight_[at].stream) return false;
      for (const block_access& a : in_flight_[at].accesses) {
        if (touches(before, a.range)) return false;
      }
    }
    for (const block_access& a : in_flight_[at].accesses) {
      for (std::uint32_t b = a.range.begin_value(); b != a.range.end_value(); ++b) {
        if (memory_.all[b].dropping != 0) return false;
      }
    }
    return true;
  }
  /// Lets one launch end or begin. @param impatient  What it misses faults.
  void advance_launches(bool impatient) {
    for (std::size_t i = 0; i < in_flight_.size(); ++i) {
      flight& f = in_flight_[i];
      if (f.running) {
        end(f);
        in_flight_.erase(in_flight_.begin() + static_cast<std::ptrdiff_t>(i));
        return;
      }
      if (may_begin(i)) {
        bool there = true;
        for (const block_access& a : f.accesses) {
          for_each(a.range, [&](std::uint32_t b) {
            if (impatient || !f.complete) memory_.bring(b);
            there = there && memory_.all[b].there;
          });
        }
        if (there) {
          begin(f);
          return;
        }
      }
    }
  }
  void begin(flight& f) {
    f.running = true;
    for (const block_access& a : f.accesses) {
      for_each(a.range, [&](std::uint32_t b) {
        auto& x = memory_.all[b];
        ++x.running;
        x.writing += a.mode != access::read ? 1U : 0U;
        if (a.mode != access::overwrite && truth_[b] != poison) CHECK(x.device == truth_[b]);
      });
    }
  }
  void end(const flight& f) {
    for (const block_access& a : f.accesses) {
      for_each(a.range, [&](std::uint32_t b) {
        auto& x = memory_.all[b];
        --x.running;
        if (a.mode != access::read) {
          --x.writing;
          x.device = ++version_;
          x.written = true;
          truth_[b] = version_;
        }
      });
    }
    memory_.finish(f.id);
  }

  void plan_something() {
    plan p;
    p.supersedes = below(3) == 0;
    const std::uint32_t count = 1 + below(4);
    for (std::uint32_t i = 0; i < count; ++i) {
      const block_range r = some(4);
      switch (below(5)) {
        case 0:
          p.transfers.push_back(
              transfer::prefetch(location::device(), below(6) == 0 ? reason::keep : reason::predicted, r));
          break;
        case 1:
          p.transfers.push_back(transfer::evict(location::host(), reason::make_room, r));
          break;
        case 2:
          p.transfers.push_back(transfer::clean(reason::write_back, r));
          break;
        case 3:
          p.transfers.push_back(transfer::drop(reason::make_room, r));
          break;
        default:
          p.transfers.push_back(transfer::discard(reason::dead, r));
          break;
      }
    }
    script_.plans.push_back(std::move(p));
    engine_->set_budget(engine_->budget());  // something happens, so that the policy is asked
  }

  /// The host waits for what uses the blocks, as any program has to.
  void host_writes(block_range r) {
    if (used(r) || dead(r)) return;
    engine_->host_access(r, access::update);
    if (below(2) == 0) engine_->pump();  // the migration thread may or may not hear of it first
    for (unsigned d = 0; d < 3; ++d) {
      while (memory_.work(d, false)) {
      }
    }
    for_each(r, [&](std::uint32_t b) {
      memory_.take_back(b, reason::host);
      truth_[b] = memory_.all[b].host = ++version_;
    });
  }
  void change_liveness(block_range r) {
    if (below(4) == 0) {
      if (used(r)) return;  // nobody uses what is dead
      for_each(r, [&](std::uint32_t b) {
        dead_[b] = true;
        truth_[b] = poison;
      });
      engine_->dead(r, liveness::inactive, engine_->last_launch());
    } else {
      for (bool settled = engine_->live(r); !settled; settled = engine_->settled(r))
        memory_.work(2, false);
      for_each(r, [&](std::uint32_t b) { dead_[b] = false; });
    }
  }

  /// What matters is on one side or the other, unless a launch in flight overwrites it.
  void check_all() {
    for (std::uint32_t b = 0; b < arena_blocks; ++b) {
      const bool overwritten = std::any_of(in_flight_.begin(), in_flight_.end(), [b](const flight& f) {
        return std::any_of(f.accesses.begin(), f.accesses.end(), [b](const block_access& a) {
          return a.mode == access::overwrite && a.range.contains(block_id{b});
        });
      });
      if (truth_[b] == poison || overwritten) continue;
      const auto& x = memory_.all[b];
      CAPTURE(b);
      CHECK((x.there ? x.device : x.host) == truth_[b]);
    }
  }

  std::mt19937 random_;
  modelled_memory memory_{};
  scripted_policy::script script_{};
  std::unique_ptr<engine> engine_;
  std::vector<stream_id> streams_ = std::vector<stream_id>(2);
  std::deque<flight> in_flight_{};
  std::vector<std::uint64_t> truth_ = std::vector<std::uint64_t>(arena_blocks, poison);
  std::vector<bool> dead_ = std::vector<bool>(arena_blocks, false);
  std::uint64_t version_ = 0;
};

TEST_CASE("home copy: whatever a policy plans, what launches read is what was written last") {
  statistics all;
  std::uint64_t cleaned = 0;
  std::uint64_t populated = 0;
  std::uint64_t dropped = 0;
  for (std::uint32_t seed = 1; seed <= deepum_test::scaled(1000); ++seed) {
    CAPTURE(seed);
    random_run run(seed);
    run.go(300);
    const statistics s = run.seen();
    all.discarded += s.discarded;
    all.refused += s.refused;
    all.failed_calls += s.failed_calls;
    cleaned += s.out().bytes_for(reason::write_back) / block_size.count;
    populated += s.in().blocks_for(reason::predicted) - s.in().bytes_for(reason::predicted) / block_size.count;
    dropped += s.out().blocks_for(reason::make_room) - s.out().bytes_for(reason::make_room) / block_size.count;
  }
  CHECK(cleaned > 0);
  CHECK(populated > 0);
  CHECK(dropped > 0);
  CHECK(all.discarded > 0);
  CHECK(all.refused > 0);
  CHECK(all.failed_calls > 0);
}

}  // namespace home_copy_contents_test
