#pragma once

#include <deepum/core/block.hpp>
#include <deepum/core/block_map.hpp>
#include <deepum/core/launch.hpp>
#include <deepum/core/location.hpp>
#include <deepum/engine/memory_kind.hpp>
#include <deepum/engine/migration_state.hpp>
#include <deepum/error.hpp>
#include <deepum/policy/plan.hpp>
#include <deepum/policy/policy.hpp>
#include <deepum/units.hpp>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <utility>
#include <vector>

namespace deepum {
inline namespace v0 {
namespace detail {

/// What a driver does on page faults, for memory that has none (docs/adr/0007): it decides when launches may begin,
/// says what has to move for the oldest one that may not, and which blocks must stay where they are.
///
/// A block stays because of one of three claims on it:
///
/// * a **pin** of each launch that may execute and declares it: it does not leave. An `arena::hold` pins for as long as
///   the program likes;
/// * the launch that is **served** declares it: it does not leave, so that what that launch needs comes together. It is
///   the oldest one that is held back, but for those that only the program can help: by the end of a hold that keeps
///   their room, or of a view that writes what they need. Younger launches do not begin while there is no room for it,
///   so that launches which wait for each other's blocks do not wait for ever;
/// * a **view of the host** that writes it: it does not arrive. No launch begins with it, and before it has what it
///   asked for, launches that are held back give way to it.
///
/// It executes nothing. What has to move it puts into the `demanded` and `requested` queues of the shared state, from
/// which the engine issues them under the same rules as every command: behind what executes, where there is room.
/// Beside those queues it changes the launches that are held, marks blocks as used or written, counts faults, and tells
/// the policy of them.
///
/// Its user, the engine, has it take part in this order:
///
/// 1. `check` before a launch is submitted, and a `pin` once it is known;
/// 2. `may_begin`, again and again until it is so, `hopeless` before that;
/// 3. `serve` and then, when commands have been issued, `settle`, whenever something happened: what launches wait for
///    is asked for there, and what can never begin is found out;
/// 4. `moved` and `ended` for what became of commands, `may_try_again` where one failed;
/// 5. an `unpin` when the launch has finished.
///
/// Threads: under the engine's state lock, except where a member says otherwise.
template <faultless_memory_kind Memory>
class demand_paging {
 public:
  /// @param memory, state, chooser  Outlive it.
  demand_paging(Memory& memory, migration_state& state, policy& chooser)
      : memory_(memory),
        state_(state),
        policy_(chooser),
        block_(block_of(memory)),
        claims_(state.map.size()) {}
  demand_paging(const demand_paging&) = delete;
  demand_paging& operator=(const demand_paging&) = delete;

  /// @name Launches
  /// @{

  /// It need not be checked. Any thread, without a lock.
  [[nodiscard]] bool surely_fits(const launch_record& record) const {
    std::uint64_t declared = 0;
    for (const block_access& a : record.accesses) {
      declared += a.range.count;
    }
    return record.complete && declared <= budget_now_.load(std::memory_order_relaxed) &&
           host_writes_.load(std::memory_order_relaxed) == 0;
  }
  /// What a launch declares has to fit, and the host has to be done with it. One that may touch anything declares all
  /// that is alive from now on.
  /// @errors  `status::out_of_device_memory`, `status::invalid_argument` where the host is writing what it touches.
  void check(launch_record& record) {
    const bool complete = std::exchange(record.complete, true);
    if (!complete) {
      for_each_run(
          {block_id{0}, map().size()}, [&](block_id b) { return map()[b].life == liveness::live; },
          [&](block_range run) {
            record.accesses.push_back({run, access::update});
          });
    }
    if (const std::uint64_t needed = distinct_blocks(record); needed > map().budget()) {
      throw error(status::out_of_device_memory,
                  complete
                      ? too_large(record.name, needed)
                      : "launch '" + record.name + "' may touch more than it declares, and all that is allocated, " +
                            in_bytes(needed) + " bytes, does not fit the budget of " + in_bytes(map().budget()) +
                            "; declare its operands: reads(p, n), updates(p, n), overwrites(p, n)");
    }
    for (const block_access& a : record.accesses) {
      for_each_block(a.range, [&](block_id b) {
        if (claims_[b.value].host_writes != 0) {
          throw error(status::invalid_argument,
                      "launch '" + record.name +
                          "' touches memory that a host view is writing, or that lies in one block of " + in_bytes(1) +
                          " bytes with it; end the view first, or write by stream::memcpy");
        }
      });
    }
  }
  /// A launch may execute, as far as is known. Until `unpin` what it declares does not leave.
  void pin(const launch_record& record) {
    for_each_declared(record, [&](block_id b) {
      claims& c = claims_[b.value];
      ++c.pins;
      if (record.hold && c.holds++ == 0) {
        ++blocks_of_holds_;
      }
    });
  }
  void unpin(const launch_record& record) {
    for_each_declared(record, [&](block_id b) {
      claims& c = claims_[b.value];
      --c.pins;
      if (record.hold && --c.holds == 0) {
        --blocks_of_holds_;
      }
    });
  }

  /// Whether a launch that was submitted may be given to the device; then it is not held any more. Else its pins are
  /// taken back, and it is.
  /// @param outer     Launches that it is made within.
  /// @param released  Called with the launch in `state.held`, before it is taken out of there.
  template <class Release>
  bool may_begin(launch_id id, stream_id stream, std::size_t outer, Release&& release) {
    const launch_record* record = state_.launches.find(id, stream);
    expects(record != nullptr, "a launch asks to begin that was not submitted");
    const auto it = state_.find_held(id);
    const bool held = it != state_.held.end();
    // Who came later does not take the room that the one which is served is waiting for.
    if ((!starving_ || served_ >= id.value) && all_of_it_there(*record)) {
      if (held) {
        pin(*record);
      }
      for (const block_access& a : record->accesses) {
        for_each_block(a.range, [&](block_id b) {
          state_.notes[b.value].spoiled = state_.notes[b.value].spoiled || a.mode != access::read;
          map().touch_migrated(b);
        });
      }
      if (held) {
        release(it);
      }
      return true;
    }
    if (!held) {
      unpin(*record);
      state_.hold_back(*record, memory_.now(), outer);
    }
    return false;
  }
  /// Whether a launch will never begin.
  [[nodiscard]] bool hopeless(launch_id id) {
    const auto it = state_.find_held(id);
    return it != state_.held.end() && it->hopeless;
  }
  /// Why it will not.
  [[nodiscard]] error refusal(const launch_record& record) const {
    const std::uint64_t needed = distinct_blocks(record);
    if (needed > map().budget()) {
      return error(status::out_of_device_memory, too_large(record.name, needed));
    }
    const std::string why = memory_.last_failure();
    return error(memory_.host_is_full() ? status::out_of_host_memory : status::out_of_device_memory,
                 "launch '" + record.name + "' cannot get its memory onto the device: " +
                     (why.empty() ? std::string("nothing that is there may leave") : why));
  }
  /// @}

  /// @name The host
  /// A read needs contents that are current on the host, a write blocks that are not on the device and stay away from
  /// it.
  /// @{

  /// From now on the host uses the blocks, as soon as it may.
  void begin_host_access(block_range range, access mode) {
    for_each_block(range, [&](block_id b) {
      ++claims_[b.value].host_views;
      claims_[b.value].host_writes += mode != access::read ? 1 : 0;
    });
    host_writes_.fetch_add(mode != access::read ? 1 : 0, std::memory_order_relaxed);
    host_wait_.succeeded();  // who asks now gets a try of his own
    all_there_ = false;
    policy_.on_host_access(range, mode, map());
    state_.stirred = true;
  }
  /// Whether it may; else what that takes is asked for.
  /// @errors  `status::out_of_host_memory`, `status::device_failure` where that failed again and again.
  [[nodiscard]] bool host_may_use(block_range range, access mode) {
    bool there = true;
    std::deque<command> wanted;
    for_each_block(range, [&](block_id b) {
      const bool done = host_may_use(b, mode);
      there = there && done;
      if (!done && map().resident(b) && state_.still(b) && (mode == access::read || !held_down(b))) {
        wanted.push_back({.what = mode == access::read ? action::clean : action::evict,
                          .why = reason::host,
                          .to = location::host(),
                          .range = {b, 1}});
      }
    });
    if (there) {
      if (mode != access::read) {
        for_each_block(range, [&](block_id b) { map().write_on_host(b); });
      }
      return true;
    }
    if (host_wait_.hopeless()) {
      throw host_refusal(range);
    }
    if (host_wait_.failing() && memory_.host_is_full()) {
      (void)relieve_host();
    }
    if (state_.outward.requested.empty()) {
      state_.outward.requested = std::move(wanted);
    }
    state_.stirred = true;
    return false;
  }
  /// The host has no memory for more blocks: copies of it that the device has too are given up, and blocks that only
  /// the host has go to the device where there is room.
  /// @returns  Whether it is worth to ask for memory again.
  [[nodiscard]] bool relieve_host() {
    if (give_up_host_copies()) {
      return true;
    }
    if (state_.inward.idle()) {
      std::uint32_t left = room();
      for_each_block({block_id{0}, map().size()}, [&](block_id b) {
        if (left != 0 && map()[b].life == liveness::live && !map().present(b) && state_.still(b) &&
            map()[b].copies.at(location::host()) && claims_[b.value].host_views == 0) {
          state_.inward.requested.push_back(
              {.what = action::prefetch, .why = reason::requested, .to = map().device(), .range = {b, 1}});
          --left;
        }
      });
    }
    if (state_.inward.idle()) {
      return false;
    }
    state_.stirred = true;
    return true;
  }
  /// The host does not use them any more.
  void end_host_access(block_range range, access mode) {
    for_each_block(range, [&](block_id b) {
      --claims_[b.value].host_views;
      claims_[b.value].host_writes -= mode != access::read ? 1 : 0;
      note_host_copy(b);
    });
    host_writes_.fetch_sub(mode != access::read ? 1 : 0, std::memory_order_relaxed);
    state_.stirred = true;
  }
  /// The host's memory for a block may be reclaimed: the device has newer contents or nobody wants any, no view of the
  /// host uses it, nothing is copied to or from it on the way of a command, and no launch in flight counts on what it
  /// held. A copy to the host makes it current again (`faultless_memory_kind::outdated`).
  [[nodiscard]] bool host_copy_is_worthless(block_id b) const {
    const block_state& s = map()[b];
    return (s.dirty || (s.copies.empty() && s.users == 0)) && claims_[b.value].host_views == 0 && state_.still(b);
  }
  /// Something of that may have become so. The only place that tells the memory.
  void note_host_copy(block_id b) {
    if (host_copy_is_worthless(b)) {
      memory_.outdated({b, 1});
    }
  }
  /// @}

  /// @name What happens
  /// @{

  /// Fills the `demanded` queues anew: the launch that is served gets what it misses, unless the policy is bringing it,
  /// and what is more than the budget leaves.
  void serve() {
    state_.inward.demanded.clear();
    state_.outward.demanded.clear();
    starving_ = false;
    std::uint64_t missing = 0;
    held_launch* const next = next_served();
    if (const std::uint64_t before = std::exchange(served_, next != nullptr ? next->id.value : 0); before != served_) {
      launch_wait_.succeeded();  // the failures were of another one
    }
    if (next != nullptr) {
      const launch_record& record = *state_.launches.find(next->id, next->stream);
      for_each_declared(record, [&](block_id b) { claims_[b.value].wanted_by = served_; });
      if (next->let_go || !policy_.holds_launches() || state_.paused() ||
          policy_.ready(next->id, next->stream, map())) {
        missing = demand(record, std::exchange(next->faulted, true));
      }
    }
    if (missing == 0 && !state_.oversubscribed() && state_.inward.requested.empty() && state_.inward.planned.empty()) {
      bring_all();
    }
    make_room_for(missing);
  }
  /// Everything has been issued that could be. Where nothing executes and nothing moves, and all have said what they
  /// have to, the launch that is served is not going to get more: first the policy is not waited for any more, and then
  /// it is hopeless.
  void settle() {
    look_for_all();
    if (state_.held.empty() || state_.stirred || !state_.nothing_executes() || !state_.nothing_moves()) {
      return;
    }
    const auto it = state_.find_held(launch_id{served_});
    if (it == state_.held.end()) {
      return;  // all wait for the program
    }
    if (std::exchange(short_until_, 0) > state_.statistics.finished) {
      state_.stirred = true;  // others may have given memory back
    } else if (it->let_go && it->faulted) {
      it->hopeless = it->hopeless || !all_of_it_there(*state_.launches.find(it->id, it->stream));
    } else {
      it->let_go = true;
      state_.stirred = true;
    }
  }

  /// A block arrived or left, or a launch was taken back: what failed may work now.
  void moved() {
    launch_wait_.something_moved();
    host_wait_.something_moved();
  }
  /// A command has ended. What a launch or the host waits for failed again and again: it will not get it.
  /// @param again  It failed for a reason that is gone.
  void ended(const command& c, bool done, bool again) {
    const bool for_launch = c.why == reason::fault || c.why == reason::make_room;
    failing_wait& wait = for_launch ? launch_wait_ : host_wait_;
    if (done || again) {
      moved();
    }
    if (again || (!for_launch && c.why != reason::host)) {
      return;
    }
    if (done) {
      wait.succeeded();
      return;
    }
    if (c.why == reason::fault && !memory_.host_is_full()) {
      fitted_ = map().occupied() - map().arriving();
      short_until_ = state_.statistics.finished + launches_of_shortage;
    }
    wait.failed(memory_.now(),
                state_.nothing_executes() && state_.inward.issued.empty() && state_.outward.issued.empty());
    if (for_launch && wait.hopeless()) {
      for (held_launch& h : state_.held) {
        h.hopeless = h.hopeless || h.id.value == served_;
      }
    }
  }
  /// A command failed. @returns  Whether the same one may do better next time.
  [[nodiscard]] bool may_try_again() {
    if (memory_.host_is_full() && give_up_host_copies()) {
      state_.stirred = true;
      return true;
    }
    return false;
  }

  void became_alive(block_id b) { all_there_ = all_there_ && map().ready(b); }
  /// Blocks are about to leave, or to be given up.
  void something_leaves() { all_there_ = false; }
  /// That of the map has changed.
  void budget_changed() {
    memory_.set_limit(map().budget());
    short_until_ = 0;
    budget_now_.store(map().budget(), std::memory_order_relaxed);
    all_there_ = all_there_ && map().occupied() <= map().budget();
  }
  /// @}

  /// @name Questions
  /// @{

  /// All that is alive can be used and nothing is going to move: launches may begin without asking.
  [[nodiscard]] bool all_there() const { return all_there_; }
  /// A launch that may execute, or that waits for its turn, needs the block where it is. One that waits gives way to
  /// the host, for which it would have to wait in turn.
  [[nodiscard]] bool held_down(block_id b) const {
    const claims& c = claims_[b.value];
    return c.pins != 0 || (c.wanted_by != 0 && c.wanted_by == served_ && c.host_writes == 0 && !map().hollow(b));
  }
  /// Blocks that could arrive without any leaving.
  [[nodiscard]] std::uint32_t room() const {
    const std::uint32_t most = most_on_device();
    return most - std::min(most, map().occupied());
  }
  /// A launch that declares the block may execute: one that is more than a hold.
  [[nodiscard]] bool executed_on(block_id b) const { return claims_[b.value].pins != claims_[b.value].holds; }
  /// A hold keeps the block on the device for as long as the program likes.
  [[nodiscard]] bool held_by_program(block_id b) const { return claims_[b.value].holds != 0; }
  /// The host is writing the block, or about to.
  [[nodiscard]] bool with_host(block_id b) const { return claims_[b.value].host_writes != 0; }
  /// @}

 private:
  /// Who wants a block to stay where it is.
  struct claims {
    std::uint64_t wanted_by = 0;    // the launch that was served last and declares it
    std::uint32_t pins = 0;         // launches that may execute and declare it
    std::uint32_t holds = 0;        // those of them that are an `arena::hold`
    std::uint32_t host_views = 0;   // through which the host reads or writes it
    std::uint32_t host_writes = 0;  // those through which it writes
  };
  static constexpr std::uint64_t launches_of_shortage = 1024;        // that finish before more memory is tried for
  static constexpr bytes copies_given_up{std::uint64_t{128} << 20};  // of the host, at a time

  [[nodiscard]] block_map& map() { return state_.map; }
  [[nodiscard]] const block_map& map() const { return state_.map; }
  [[nodiscard]] std::string in_bytes(std::uint64_t blocks) const { return std::to_string((block_ * blocks).count); }
  [[nodiscard]] bool host_may_use(block_id b, access mode) const {
    const block_state& s = map()[b];
    const bool current = !s.dirty || s.life != liveness::live;  // what is of no value may be anything
    return mode == access::read ? !(map().resident(b) && (!current || s.moving == motion::leaving))
                                : !map().present(b) && !state_.notes[b.value].discarding;
  }
  [[nodiscard]] error host_refusal(block_range range) const {
    const bool full = memory_.host_is_full();
    const std::string why = memory_.last_failure();
    return error(full ? status::out_of_host_memory : status::device_failure,
                 "the host cannot get " + in_bytes(range.count) +
                     " bytes of the arena, counted in whole blocks, from the device: " +
                     (why.empty() ? std::string("the device gives no reason") : why));
  }
  [[nodiscard]] std::string too_large(const std::string& name, std::uint64_t blocks) const {
    return "launch '" + name + "' touches " + in_bytes(blocks) + " bytes, counted in whole blocks of " +
           std::to_string(block_.count) + "; the budget is " + in_bytes(map().budget()) +
           ": raise it, or launch less at a time";
  }

  template <class Visit>
  static void for_each_declared(const launch_record& record, Visit&& visit) {
    for (const block_access& a : record.accesses) {
      for_each_block(a.range, visit);
    }
  }

  /// The oldest launch that is held back and that something else than the program can help.
  [[nodiscard]] held_launch* next_served() {
    held_launch* found = nullptr;
    for (held_launch& h : state_.held) {
      if (found != nullptr && found->id < h.id) {
        continue;
      }
      const launch_record& record = *state_.launches.find(h.id, h.stream);
      if (distinct_blocks(record) > map().budget()) {
        h.hopeless = true;
      } else if (!awaits_program(record)) {
        found = &h;
      }
    }
    return found;
  }
  /// Only the end of a hold makes room for a launch, or only the end of a view gives it what it needs.
  [[nodiscard]] bool awaits_program(const launch_record& record) const {
    bool awaits = false;
    if (host_writes_.load(std::memory_order_relaxed) != 0) {
      for_each_declared(record, [&](block_id b) { awaits = awaits || with_host(b); });
    }
    if (!awaits && blocks_of_holds_ != 0) {
      std::uint64_t beside = 0;
      for_each_distinct_run(record, [&](block_range run) {
        for_each_block(run, [&](block_id b) { beside += claims_[b.value].holds == 0 ? 1 : 0; });
      });
      awaits = beside + blocks_of_holds_ > map().budget();
    }
    return awaits;
  }

  [[nodiscard]] bool all_of_it_there(const launch_record& record) const {
    for (const block_access& a : record.accesses) {
      for (std::uint32_t b = a.range.begin_value(); b < a.range.end_value(); ++b) {
        if (!map().ready(block_id{b}) || claims_[b].host_writes != 0) {
          return false;
        }
      }
    }
    return true;
  }

  /// @param told  The policy knows.
  /// @returns     Blocks that need room.
  std::uint64_t demand(const launch_record& record, bool told) {
    std::uint64_t missing = 0;
    for (const block_access& a : record.accesses) {
      for_each_block(a.range, [&](block_id b) {
        if (map().present(b) && map()[b].moving != motion::leaving && !map().hollow(b)) {
          return;
        }
        ++missing;
        if (!told) {
          ++state_.statistics.faults;
          policy_.on_fault({b, a.mode == access::read ? access::read : access::update, record.id, memory_.now()},
                           map());
        }
        demand(b, reason::fault);
      });
    }
    return missing;
  }
  /// One command for blocks that follow each other. All that is demanded at a time has the same reason.
  void demand(block_id b, reason why) {
    std::deque<command>& queue = state_.inward.demanded;
    if (!queue.empty() && queue.back().range.end_value() == b.value) {
      ++queue.back().range.count;
    } else {
      queue.push_back({.what = action::prefetch, .why = why, .to = map().device(), .range = {b, 1}});
    }
  }
  /// All that is alive fits, and did for a while: then all of it is brought, so that no launch has to ask.
  void bring_all() {
    for_each_block({block_id{0}, map().size()}, [&](block_id b) {
      if (map()[b].life != liveness::live || map().present(b) || !state_.still(b) || claims_[b.value].host_views != 0) {
        return;
      }
      demand(b, reason::predicted);
    });
  }
  /// Blocks that the device takes: the budget, or what fitted when it had no memory for more because others hold it.
  /// That is forgotten after a while, and when nothing else helps: they may have given it back.
  [[nodiscard]] std::uint32_t most_on_device() const {
    return state_.statistics.finished < short_until_ ? std::min(fitted_, map().budget()) : map().budget();
  }
  /// Least recently used blocks leave until there is room for so many, dead ones first.
  void make_room_for(std::uint64_t missing) {
    const std::uint64_t staying = map().occupied() - map().leaving() + missing;
    std::uint64_t surplus = staying - std::min<std::uint64_t>(staying, most_on_device());
    for (const bool dead : {true, false}) {
      if (surplus == 0) {
        return;
      }
      map().for_each_least_recently_migrated([&](block_id b) {
        if ((map()[b].life != liveness::live && map()[b].users == 0) != dead || !state_.still(b) || held_down(b)) {
          return true;
        }
        const command c{.what = dead ? action::discard : action::evict,
                        .why = missing != 0 ? reason::make_room : reason::over_budget,
                        .to = location::host(),
                        .range = {b, 1}};
        (dead ? state_.discards : state_.outward).demanded.push_back(c);
        return --surplus != 0;
      });
    }
    starving_ = surplus != 0 && missing != 0;
  }

  /// Of blocks that the device has as well; from now on they count as written there.
  /// @returns  Whether there were any.
  bool give_up_host_copies() {
    std::vector<block_id> found;
    map().for_each_least_recently_migrated([&](block_id b) {
      if (map()[b].copies.at(map().device()) && map()[b].copies.at(location::host()) && state_.still(b) &&
          claims_[b.value].host_views == 0) {
        found.push_back(b);
      }
      return true;
    });
    const std::size_t first =
        found.size() - std::min<std::size_t>(found.size(), map().blocks_in(copies_given_up));  // they stay longest
    for (std::size_t i = first; i < found.size(); ++i) {
      map().write(found[i]);
      note_host_copy(found[i]);
    }
    return !found.empty();
  }

  /// When all that is alive can be used and nothing is going to move, launches need not ask.
  void look_for_all() {
    if (all_there_ || state_.oversubscribed() || !state_.held.empty() || !state_.inward.idle() ||
        !state_.outward.idle() || !state_.discards.idle() || map().occupied() > map().budget()) {
      return;
    }
    for (std::uint32_t b = 0; b < map().size(); ++b) {
      if (claims_[b].host_writes != 0 || (map()[block_id{b}].life == liveness::live && !map().ready(block_id{b}))) {
        return;
      }
    }
    all_there_ = true;
  }

  Memory& memory_;
  migration_state& state_;
  policy& policy_;
  const bytes block_;
  std::vector<claims> claims_;
  std::atomic<std::uint32_t> host_writes_{0};  // host views that write; changed under the lock
  std::atomic<std::uint64_t> budget_now_{0};   // that of the map, for launches; changed under the lock
  std::uint64_t served_ = 0;                   // launch that is held back and gets what it misses
  bool starving_ = false;                      // and there is no room for it yet
  std::uint64_t blocks_of_holds_ = 0;          // that stay until the program ends a hold
  bool all_there_ = false;                     // every block that is alive can be used, and stays
  std::uint32_t fitted_ = 0;                   // blocks, when the device had no memory for more
  std::uint64_t short_until_ = 0;              // finished launches
  failing_wait launch_wait_{};                 // of the launch that is served
  failing_wait host_wait_{};                   // of whoever waits for host access
};

/// In its place where memory faults.
struct no_demand_paging {
  template <class... Parts>
  explicit no_demand_paging(Parts&...) {}
};

template <class Memory>
struct demand_paging_of {
  using type = no_demand_paging;
};
template <faultless_memory_kind Memory>
struct demand_paging_of<Memory> {
  using type = demand_paging<Memory>;
};

}  // namespace detail
}  // namespace v0
}  // namespace deepum
