#pragma once

#include <deepum/core/block_ledger.hpp>
#include <deepum/policy/policy.hpp>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace deepum_test {

using namespace deepum;
using deepum::access;  // not the one of POSIX

inline block_range blocks(std::uint32_t first, std::uint32_t count = 1) { return {block_id{first}, count}; }
inline block_access reads(std::uint32_t first, std::uint32_t count = 1) { return {blocks(first, count), access::read}; }
inline block_access updates(std::uint32_t first, std::uint32_t count = 1) {
  return {blocks(first, count), access::update};
}
inline block_access overwrites(std::uint32_t first, std::uint32_t count = 1) {
  return {blocks(first, count), access::overwrite};
}

/// A launch of a test program: what it says, and what it does.
struct kernel {
  std::string name{};
  std::vector<block_access> declared{};
  std::vector<block_access> touched{};  // really, in this order
  bool complete = true;
  std::uint64_t scalar = 0;  // an argument that is no memory
  std::shared_ptr<const layer_scope> layer{};
};

/// A kernel that declares what it touches.
inline kernel honest(std::string name, std::vector<block_access> accesses, std::uint64_t scalar = 0) {
  return {std::move(name), accesses, accesses, true, scalar, {}};
}
/// A kernel that declares nothing.
inline kernel silent(std::string name, std::vector<block_access> accesses) {
  return {std::move(name), {}, std::move(accesses), false, 0, {}};
}

/// Carries plans out at once, and runs launches one by one, so that a policy can be tested without an engine. Blocks
/// have contents (a number at the host and one on the device), so that a plan that loses something is found out.
class driver {
 public:
  driver(policy& p, std::uint32_t block_count, std::uint32_t budget, block_grid grid = um_grid)
      : map(block_count, location::device(), budget, grid),
        policy_(p),
        host_(block_count),
        device_(block_count),
        truth_(block_count, poison),
        capacity(budget) {
    policy_.on_stream(stream_id{0}, {});
  }

  block_ledger map;

  void make_live(block_range r) {
    for_each(r, [&](block_id b) { map.set_liveness(b, liveness::live); });
    policy_.on_live(r, map);
    pump();
  }
  void make_dead(block_range r, liveness how = liveness::unallocated) {
    for_each(r, [&](block_id b) {
      map.set_liveness(b, how);
      truth_[b.value] = poison;
    });
    policy_.on_dead(r, launch_id{launches_}, map);
    pump();
  }
  /// The host writes: the blocks are on the host afterwards, and nowhere else.
  void host_writes(block_range r) {
    for_each(r, [&](block_id b) {
      if (map.resident(b)) {
        leave(b);
      }
      truth_[b.value] = host_[b.value] = ++version_;
      map.write_on_host(b);
    });
    policy_.on_host_access(r, access::update, map);
    pump();
  }

  launch_id issue(const kernel& k, std::uint16_t stream = 0) {
    launch_record r;
    r.id = launch_id{++launches_};
    r.stream = stream_id{stream};
    r.signature.shape = std::hash<std::string>{}(k.name);
    r.signature.exact = r.signature.shape * 31 + k.scalar;
    r.accesses = k.declared;
    r.complete = k.complete;
    r.name = k.name;
    r.layer = k.layer;
    for (const block_access& a : k.declared) {
      for_each(a.range, [&](block_id b) { map.add_user(b, a.mode); });
    }
    if (stream >= queues_.size()) {
      queues_.resize(std::size_t{stream} + 1);
    }
    queues_[stream].push_back({r, k});
    policy_.on_launch(r, map);
    pump();
    return r.id;
  }
  /// The oldest launch of the stream runs and finishes.
  void execute(std::uint16_t stream = 0) {
    const flight f = queues_[stream].front();
    for (const block_access& a : f.what.touched) {
      for_each(a.range, [&](block_id b) { touch(b, a.mode, f.record.id); });
    }
    queues_[stream].pop_front();
    for (const block_access& a : f.what.declared) {
      for_each(a.range, [&](block_id b) { map.remove_user(b, a.mode); });
    }
    policy_.on_finish(f.record.id, stream_id{stream}, map);
    pump();
  }
  void run(const kernel& k, std::uint16_t stream = 0) {
    issue(k, stream);
    execute(stream);
  }
  void run(const std::vector<kernel>& program, int times = 1) {
    for (int i = 0; i < times; ++i) {
      for (const kernel& k : program) {
        run(k);
      }
    }
  }
  /// Whether a launch in flight on that stream touches a block that `k` touches too.
  [[nodiscard]] bool conflicts(const kernel& k, std::uint16_t stream) const {
    for (std::size_t i = 0; i < in_flight(stream); ++i) {
      for (const block_access& a : queues_[stream][i].what.touched) {
        for (const block_access& b : k.touched) {
          if (a.range.overlaps(b.range)) {
            return true;
          }
        }
      }
    }
    return false;
  }
  [[nodiscard]] std::size_t in_flight(std::uint16_t stream) const {
    return stream < queues_.size() ? queues_[stream].size() : 0;
  }

  /// A fault of a launch that stays in execution.
  void fault(std::uint32_t b, launch_id launch, access mode = access::read) {
    ++faults;
    policy_.on_fault({.block = block_id{b}, .mode = mode, .launch = launch}, map);
    if (!map.resident(block_id{b})) {
      if (map.occupied() >= capacity) {
        block_id oldest{};
        map.for_each_least_recently_migrated([&](block_id v) {
          oldest = v;
          return false;
        });
        ++forced_out;
        leave(oldest);
      }
      bring(block_id{b});
    }
  }

  /// One plan, carried out only where asked.
  plan next_plan() {
    policy_.on_host_access({}, access::read, map);  // an event of no consequence: a policy plans after events only
    return ask();
  }
  plan ask() {
    plan p;
    policy_.plan_next(map, p);
    return p;
  }
  void pump() {
    if (!automatic) {
      return;
    }
    for (int round = 0; round < 1000; ++round) {
      const plan p = ask();
      if (p.empty() && !p.supersedes) {
        return;
      }
      hints.insert(hints.end(), p.hints.begin(), p.hints.end());
      for (const transfer& c : p.transfers) {
        carry_out(c);
      }
    }
    lost.push_back("plans never come to an end");
  }
  void carry_out(const transfer& t) {
    transfers.push_back(t);
    for_each(t.blocks, [&](block_id b) {
      const block_state& s = map[b];
      const std::string_view word = to_string(t);
      if (word == "prefetch") {
        if (!map.present(b) && map.room() != 0) {
          ++prefetched;
          bring(b);
        }
      } else if (word == "evict") {
        if (map.resident(b)) {
          leave(b);
        }
      } else if (word == "drop") {
        if (!s.copies.at(location::host()) || s.dirty || s.users != 0) {
          lost.push_back("a drop without a current copy on the host");
        }
        map.drop(b);
        policy_.on_migrated({b, 1}, location::host(), map);
      } else if (word == "discard") {
        if (s.life == liveness::live && !overwritten_next(b)) {
          lost.push_back("a discard of contents that no fact declares dead");
        }
        host_[b.value] = device_[b.value] = poison;
        map.discard(b);
        policy_.on_migrated({b, 1}, location::host(), map);
      } else {
        lost.push_back("nobody plans that yet");
      }
    });
  }

  std::uint64_t faults = 0;
  std::uint64_t blocks_in = 0;  // copied
  std::uint64_t blocks_out = 0;
  std::uint64_t prefetched = 0;
  std::uint64_t forced_out = 0;  // evicted by the driver on a fault
  bool automatic = true;         // carry plans out whenever something happened
  bool host_copy_stays = false;
  std::vector<transfer> transfers{};
  std::vector<driver_hint> hints{};
  std::vector<std::string> lost{};

 private:
  struct flight {
    launch_record record{};
    kernel what{};
  };
  static constexpr std::uint64_t poison = ~std::uint64_t{0};

  template <class Visit>
  static void for_each(block_range r, Visit&& visit) {
    for (std::uint32_t b = r.begin_value(); b != r.end_value(); ++b) {
      visit(block_id{b});
    }
  }
  // One stream alone has launches in flight that touch the block; the first of them overwrites it and has not begun.
  [[nodiscard]] bool overwritten_next(block_id b) const {
    int streams_that_overwrite = 0;
    for (const auto& q : queues_) {
      bool touched = false;
      for (std::size_t i = 0; i < q.size() && !touched; ++i) {
        for (const block_access& a : q[i].what.touched) {
          if (a.range.contains(b)) {
            if (a.mode != access::overwrite || i == 0) {
              return false;
            }
            touched = true;
          }
        }
      }
      streams_that_overwrite += touched ? 1 : 0;
    }
    return streams_that_overwrite == 1;
  }
  void bring(block_id b) {
    const bool had_copy = !map[b].copies.empty();
    device_[b.value] = had_copy ? host_[b.value] : poison;
    blocks_in += had_copy ? 1 : 0;
    map.arrive(b, host_copy_stays && had_copy);
    policy_.on_migrated({b, 1}, map.device(), map);
  }
  void leave(block_id b) {
    host_[b.value] = device_[b.value];
    ++blocks_out;
    map.depart(b);
    policy_.on_migrated({b, 1}, location::host(), map);
  }
  void touch(block_id b, access mode, launch_id launch) {
    if (!map.resident(b)) {
      fault(b.value, launch, mode == access::read ? access::read : access::update);
      pump();
      if (!map.resident(b)) {  // a plan may have taken it away again, under pressure
        bring(b);
      }
    }
    if (mode != access::overwrite && truth_[b.value] != poison && device_[b.value] != truth_[b.value]) {
      lost.push_back("block " + std::to_string(b.value) + " has lost its contents");
    }
    if (mode != access::read) {
      device_[b.value] = ++version_;
      truth_[b.value] = map[b].life == liveness::live ? version_ : poison;
      map.write(b);
    }
  }

  policy& policy_;
  std::vector<std::uint64_t> host_;
  std::vector<std::uint64_t> device_;
  std::vector<std::uint64_t> truth_;  // what a reader must see; poison: nothing in particular
  std::vector<std::deque<flight>> queues_{};
  std::uint64_t launches_ = 0;
  std::uint64_t version_ = 0;

 public:
  std::uint32_t capacity;  // blocks that the device can hold
};

/// The blocks of all transfers of one kind, by its word, in order.
inline std::vector<std::uint32_t> blocks_of(const std::vector<transfer>& transfers, std::string_view what) {
  std::vector<std::uint32_t> all;
  for (const transfer& c : transfers) {
    if (to_string(c) == what) {
      for (std::uint32_t b = c.blocks.begin_value(); b != c.blocks.end_value(); ++b) {
        all.push_back(b);
      }
    }
  }
  return all;
}

}  // namespace deepum_test
