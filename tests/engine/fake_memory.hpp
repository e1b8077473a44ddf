#pragma once

#include <deepum/engine/memory_space.hpp>
#include <deepum/policy/policy.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace deepum_test {

/// A memory kind without memory: notes the commands it gets, and reports what the test says.
class fake_memory : public deepum::memory_space {
 public:
  struct call {
    std::string what;
    deepum::block_range range{};
    std::uint64_t ticket = 0;
  };

  explicit fake_memory(std::uint32_t blocks, const deepum::memory_capabilities& can = {}, deepum::topology all = {})
      : deepum::memory_space(can, deepum::block_size, std::move(all)),
        capacity_(deepum::block_size * blocks) {}

  [[nodiscard]] std::byte* base() const override { return nullptr; }
  [[nodiscard]] deepum::bytes capacity() const override { return capacity_; }
  [[nodiscard]] deepum::bytes free_memory() const override { return free; }
  [[nodiscard]] deepum::nanoseconds now() const override { return time; }
  bool start(const deepum::transfer& t, std::uint64_t ticket) override {
    const bool home = capabilities().keeps_home_copy;
    if (t.cleans() && !home) return false;
    return command(t.takes_room() && !t.copies() && home ? "populate"
                   : t.releases() && !home               ? "evict"
                                                         : std::string{to_string(t)},
                   t.blocks, ticket);
  }
  bool advise(deepum::block_range r, deepum::advice, deepum::location) override { return command("advise", r, 0); }
  void poll(std::vector<deepum::device_event>& events) override {
    events.insert(events.end(), reports.begin(), reports.end());
    reports.clear();
  }
  void notify() override { ++notifications; }
  [[nodiscard]] std::uint64_t happened() const override { return happenings; }
  void wait(std::uint64_t seen, deepum::nanoseconds at_most) override {
    ++waits;
    if (seen == happenings) time += at_most;
    if (while_waiting) while_waiting();
  }

  /// The command is carried out: its blocks arrive or depart, and it completes.
  void carry_out(const call& c) {
    const bool inward = c.what == "prefetch" || c.what == "populate";
    if (inward || c.what == "evict" || c.what == "drop") {
      deepum::device_event e;
      e.what = inward ? deepum::device_event::kind::arrived : deepum::device_event::kind::departed;
      e.range = c.range;
      e.ticket = c.ticket;
      reports.push_back(e);
    }
    end(c, deepum::device_event::kind::completed);
  }
  void fail(const call& c) { end(c, deepum::device_event::kind::failed); }
  /// The driver itself moves blocks, on a fault or to make room.
  void driver_brings(deepum::block_range r, bool host_copy_stays = false) {
    deepum::device_event e;
    e.what = deepum::device_event::kind::arrived;
    e.range = r;
    e.host_copy_stays = host_copy_stays;
    reports.push_back(e);
  }
  void driver_takes(deepum::block_range r, deepum::reason why = deepum::reason::make_room) {
    deepum::device_event e;
    e.what = deepum::device_event::kind::departed;
    e.range = r;
    e.why = why;
    reports.push_back(e);
  }
  void finish(deepum::launch_id id, std::int64_t at = 0, std::int64_t stalled = 0) {
    deepum::device_event e;
    e.what = deepum::device_event::kind::launch_finished;
    e.launch = id;
    e.at = deepum::nanoseconds{at};
    e.stalled = deepum::nanoseconds{stalled};
    reports.push_back(e);
  }
  void fault(deepum::block_id b, std::int64_t at = 0) {
    deepum::device_event e;
    e.what = deepum::device_event::kind::fault;
    e.range = {b, 1};
    e.at = deepum::nanoseconds{at};
    reports.push_back(e);
  }

  std::vector<call> calls;
  std::vector<deepum::device_event> reports;
  deepum::bytes free{std::uint64_t{1} << 40};
  std::optional<std::uint64_t> fail_call;  ///< this call fails, counted from 0
  bool fail_all = false;
  std::atomic<int> notifications{0};
  std::uint64_t happenings = 0;
  std::uint64_t waits = 0;
  std::function<void()> while_waiting;  ///< called in each of them
  deepum::nanoseconds time{};

 protected:
  bool command(const std::string& what, deepum::block_range r, std::uint64_t ticket) {
    if (fail_all || fail_call == count_++) return false;
    calls.push_back({what, r, ticket});
    return true;
  }

 private:
  void end(const call& c, deepum::device_event::kind how) {
    deepum::device_event e;
    e.what = how;
    e.ticket = c.ticket;
    reports.push_back(e);
  }

  deepum::bytes capacity_;
  std::uint64_t count_ = 0;
};

/// The same with host copies that stay.
class home_copy_fake_memory : public fake_memory {
 public:
  static constexpr deepum::memory_capabilities traits{.keeps_home_copy = true};

  explicit home_copy_fake_memory(std::uint32_t blocks, const deepum::memory_capabilities& can = traits)
      : fake_memory(blocks, can) {}
};

/// Memory that never faults: nobody but the engine moves its blocks.
class paged_fake_memory : public home_copy_fake_memory {
 public:
  static constexpr deepum::memory_capabilities traits{.faults = false, .keeps_home_copy = true};

  explicit paged_fake_memory(std::uint32_t blocks) : home_copy_fake_memory(blocks, traits) {}
  [[nodiscard]] deepum::bytes free_memory() const override {
    if (when_asked) when_asked();
    return free;
  }
  void mark_stale(deepum::block_range r) override { stale.push_back(r); }
  [[nodiscard]] std::string last_failure() const override { return why; }
  [[nodiscard]] bool host_is_full() const override { return full; }

  std::vector<deepum::block_range> stale;  ///< of the host, in the order in which the engine said so
  std::string why;
  bool full = false;
  std::function<void()> when_asked;  ///< called when the engine asks for the free memory
};

/// A policy that hands out the plans that the test gave it, and notes what it is told.
class scripted_policy final : public deepum::policy {
 public:
  struct script {
    std::deque<deepum::plan> plans{};
    std::vector<std::string> told{};
    std::vector<deepum::fault_record> faults{};
    bool holds_launches = false;
    bool places_blocks = true;               ///< its plans say what neighbours hold
    std::set<deepum::launch_id> unready{};   ///< launches that are not ready
    const deepum::block_map* map = nullptr;  ///< as it was seen last
    std::function<void()> when_asked{};      ///< called once, when the next plan is asked for
  };

  explicit scripted_policy(script& s) : script_(s) {}

  [[nodiscard]] std::string_view name() const override { return "scripted"; }
  void on_stream(deepum::stream_id s, std::optional<std::uint32_t> lookahead) override {
    told("stream " + std::to_string(s.value) + " " + (lookahead ? std::to_string(*lookahead) : "own"));
  }
  void on_launch(const deepum::launch_record& r, const deepum::block_map& m) override {
    script_.map = &m;
    told("launch " + std::to_string(r.id.value));
  }
  void on_finish(deepum::launch_id id, deepum::stream_id, const deepum::block_map&) override {
    told("finish " + std::to_string(id.value));
  }
  void on_fault(const deepum::fault_record& f, const deepum::block_map&) override {
    script_.faults.push_back(f);
    told("fault " + std::to_string(f.block.value));
  }
  void on_migrated(deepum::block_range r, deepum::location to, const deepum::block_map&) override {
    told((to.is_host() ? "left " : "came ") + text(r));
  }
  void on_live(deepum::block_range r, const deepum::block_map&) override { told("live " + text(r)); }
  void on_dead(deepum::block_range r, deepum::launch_id last, const deepum::block_map&) override {
    told("dead " + text(r) + " after " + std::to_string(last.value));
  }
  void on_host_access(deepum::block_range r, deepum::access, const deepum::block_map&) override {
    told("host " + text(r));
  }
  void plan_next(const deepum::block_map& m, deepum::plan& out) override {
    script_.map = &m;
    told("asked");
    if (const auto hook = std::exchange(script_.when_asked, {})) hook();
    if (!script_.plans.empty()) {
      out = std::move(script_.plans.front());
      script_.plans.pop_front();
    }
  }
  [[nodiscard]] bool holds_launches() const override { return script_.holds_launches; }
  [[nodiscard]] bool places_blocks() const override { return script_.places_blocks; }
  [[nodiscard]] bool ready(deepum::launch_id id, deepum::stream_id, const deepum::block_map&) const override {
    return !script_.unready.contains(id);
  }
  [[nodiscard]] deepum::policy_statistics statistics() const override {
    deepum::policy_statistics s;
    s.table_bytes = 4711;
    return s;
  }

 private:
  static std::string text(deepum::block_range r) {
    return std::to_string(r.first.value) + "+" + std::to_string(r.count);
  }
  void told(std::string line) { script_.told.push_back(std::move(line)); }
  script& script_;
};

}  // namespace deepum_test
