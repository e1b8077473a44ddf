#pragma once

#include <deepum/core/block.hpp>
#include <deepum/core/launch.hpp>
#include <deepum/engine/device_event.hpp>
#include <deepum/error.hpp>
#include <deepum/separate.hpp>
#include <deepum/sim/address_space.hpp>
#include <deepum/sim/driver.hpp>
#include <deepum/sim/event_loop.hpp>
#include <deepum/sim/executor.hpp>
#include <deepum/sim/fabric.hpp>
#include <deepum/sim/kernel.hpp>
#include <deepum/sim/link.hpp>
#include <deepum/sim/profile.hpp>
#include <deepum/units.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace deepum {
inline namespace v0 {
namespace sim {

DEEPUM_SEPARATE executor::executor(fabric& shared, int ordinal, driver& commands, const profile& rates)
    : fabric_(shared),
      loop_(shared.loop()),
      ordinal_(ordinal),
      driver_(commands),
      profile_(rates) {
  fabric_.add(*this);
}

DEEPUM_SEPARATE executor::~executor() { fabric_.remove(*this); }

DEEPUM_SEPARATE void executor::add(address_space& space) {
  spaces_.push_back(&space);
  space.set_home(this);
}

DEEPUM_SEPARATE void executor::remove(address_space& space) { erase(spaces_, &space); }

DEEPUM_SEPARATE void executor::add(stream_state& stream) {
  stream.number = fabric_.next_stream();
  stream.runs_on = this;
}

DEEPUM_SEPARATE void executor::remove(stream_state& stream) {
  expects(stream.queue.empty(), "a stream ends that has something to do");
}

DEEPUM_SEPARATE address_space* executor::space_of(const void* p) const {
  for (address_space* space : spaces_) {
    if (space->contains(p)) {
      return space;
    }
  }
  return nullptr;
}

DEEPUM_SEPARATE address_space* executor::space_of(const fabric& machine, const void* p) {
  for (const executor* e : machine.executors()) {
    if (address_space* const space = e->space_of(p)) {
      return space;
    }
  }
  return nullptr;
}

DEEPUM_SEPARATE void executor::enqueue(stream_state& stream, std::unique_ptr<operation> op) {
  op->order = ++issued_;
  stream.queue.push_back(std::move(op));
  if (stream.queue.size() == 1) {
    dispatch(stream);
  }
}

DEEPUM_SEPARATE void executor::dispatch(stream_state& stream) {
  // Round by round, in the order of their numbers; in the first one those before this stream have had their turn.
  bool passed = pass_instant(stream);
  for (std::uint64_t behind = stream.number; passed; behind = 0) {
    passed = behind != 0;
    for (auto next = fabric_.waiting().upper_bound(behind); next != fabric_.waiting().end();) {
      stream_state& waiting = *next->second;
      ++streams_visited_;
      passed = waiting.runs_on->pass_instant(waiting) || passed;
      next = fabric_.waiting().upper_bound(waiting.number);
    }
  }
  for (executor* e : fabric_.executors()) {
    e->start_ready();
  }
}

DEEPUM_SEPARATE void executor::start_ready() {
  for (unsigned e = 0; e < engine_count; ++e) {
    if (!busy_[e]) {
      start_oldest(static_cast<engine_kind>(e));
    }
  }
}

DEEPUM_SEPARATE void executor::fail(std::exception_ptr what) {
  if (!failure_) {
    failure_ = std::move(what);
  }
}

DEEPUM_SEPARATE void executor::fail(status code, const std::string& message) {
  fail(std::make_exception_ptr(error(code, message)));
}

DEEPUM_SEPARATE void executor::rethrow() const {
  if (failure_) {
    std::rethrow_exception(failure_);
  }
}

DEEPUM_SEPARATE bool executor::pass_instant(stream_state& stream) {
  bool released = false;
  while (!stream.queue.empty() && !stream.started) {
    operation& op = *stream.queue.front();
    if (op.what == operation::kind::run) {
      ready_[static_cast<unsigned>(op.engine)].emplace(op.order, &stream);
      break;
    }
    if (op.what == operation::kind::wait) {
      if (!op.when->passed) {
        fabric_.waiting().emplace(stream.number, &stream);
        return released;
      }
      fabric_.waiting().erase(stream.number);
    } else if (op.what == operation::kind::record) {
      op.when->passed = true;
      released = true;
    } else if (op.what == operation::kind::finish) {
      device_event e;
      e.what = device_event::kind::launch_finished;
      e.launch = op.launch;
      const stream_state::running ended = stream.take(op.launch, loop_.now());
      e.began = ended.began;
      e.stalled = ended.stalled;
      stream.space->emit(e);
    }
    stream.queue.pop_front();
  }
  return released;
}

DEEPUM_SEPARATE void executor::start_oldest(engine_kind engine) {
  auto& ready = ready_[static_cast<unsigned>(engine)];
  if (ready.empty()) {
    return;
  }
  stream_state* const oldest = ready.begin()->second;
  ready.erase(ready.begin());
  busy_[static_cast<unsigned>(engine)] = true;
  oldest->started = true;
  loop_.after(profile_.launch_latency, [this, oldest] { begin(*oldest); });
}

DEEPUM_SEPARATE void executor::begin(stream_state& stream) {
  operation& op = *stream.queue.front();
  (void)stream.of(op.launch, loop_.now() - profile_.launch_latency);
  if (failure_) {
    leave(stream);
    return;
  }
  work description;
  run_user_code([&] { op.describe(description); });
  split(op, description);
  for_each_driver(op, [&](driver& d) { d.begin(op.touched); });
  step(stream);
}

DEEPUM_SEPARATE void executor::split(operation& op, const work& description) {
  const double limit = profile_.peak_flops * profile_.flops_efficiency;
  const double by_flops = description.flops() * 1e9 / limit;
  const double by_memory = static_cast<double>(description.traffic().count) * 1e9 / profile_.memory_bandwidth;
  op.compute = nanoseconds{static_cast<std::int64_t>(std::llround(std::max(by_flops, by_memory)))};
  op.touched.launch = op.launch.value;
  for (const work::span& s : description.spans()) {
    address_space* const space = space_of(fabric_, s.address);
    op.total += s.size.count;
    if (space == nullptr) {
      op.touched.segments.push_back({nullptr, {}, 0, s.mode, s.size.count});
      continue;
    }
    if (space->home() != this && !op.copies) {
      fail(status::invalid_argument, "kernel '" + op.touched.name + "' on device " + std::to_string(ordinal_) +
                                         " touches an arena of device " + std::to_string(space->home()->ordinal()) +
                                         ": copy what it needs");
      return;
    }
    const auto begin = static_cast<std::uint64_t>(static_cast<const std::byte*>(s.address) - space->base());
    const std::uint64_t end = begin + s.size.count;
    if (end > space->capacity().count) {
      fail(status::invalid_argument, "kernel '" + op.touched.name + "' touches " + std::to_string(s.size.count) +
                                         " bytes at offset " + std::to_string(begin) + " of an arena of " +
                                         std::to_string(space->capacity().count));
      return;
    }
    for (std::uint64_t at = begin; at < end;) {
      const std::uint64_t in_block = at % block_size.count;
      const std::uint64_t n = std::min(block_size.count - in_block, end - at);
      op.touched.segments.push_back({space, block_id{static_cast<std::uint32_t>(at / block_size.count)},
                                     pages_of(in_block, in_block + n), s.mode, n});
      at += n;
    }
  }
  if (op.total == 0) {  // computes on nothing
    op.touched.segments.push_back({nullptr, {}, 0, access::read, 1});
    op.total = 1;
  }
}

DEEPUM_SEPARATE void executor::step(stream_state& stream) {
  operation& op = *stream.queue.front();
  for (;;) {
    if (failure_ || op.touched.position == op.touched.segments.size()) {
      end(stream);
      return;
    }
    const segment s = op.touched.segments[op.touched.position];
    const touch_result found = s.space == nullptr ? touch_result::ready : s.space->touch(s);
    driver& home = s.space == nullptr ? driver_ : s.space->home()->memory_driver();
    switch (found) {
      case touch_result::moving:
        wait(op);
        driver_.counters().late_blocks += op.late ? 0U : 1U;
        op.late = true;
        loop_.on_motion_end([this, &stream] { step(stream); });
        return;
      case touch_result::missing:
        wait(op);
        home.fault(op.touched, [this, &stream](bool served) {
          if (!served) {
            fail(status::out_of_device_memory, "no room for a single block: others hold all memory of the device");
          }
          step(stream);
        });
        return;
      case touch_result::refused:
        fail(status::invalid_argument, s.space->refusal(s) + " (kernel '" + op.touched.name + "', launch " +
                                           std::to_string(op.launch.value) + ")");
        continue;
      case touch_result::remote:
      case touch_result::ready:
        break;
    }
    stop_waiting(stream, op);
    if (found == touch_result::remote) {
      touch_rows(stream, op, home);
      return;
    }
    ++op.touched.position;
    const nanoseconds share = share_of(op, s.size);
    if (op.between != nullptr && s.mode != access::read) {
      continue;  // it came with what was read
    }
    if (op.link_rate > 0) {
      link& own = op.engine == engine_kind::copy_in ? home.in() : home.out();
      link& used = op.between != nullptr ? *op.between : own;
      driver_.counters().to_peers += bytes{op.between != nullptr ? s.size : 0};
      const nanoseconds time = time_at(bytes{s.size}, op.link_rate);
      used.submit(
          urgency::command, [time] { return time; }, [this, &stream] { step(stream); }, op.into);
      return;
    }
    const bool beside_copy = driver_.in().busy() || driver_.out().busy();
    const nanoseconds time = beside_copy ? slowed(share) : share;
    if (time.count() > 0 && !loop_.try_pass(time)) {
      loop_.after(time, [this, &stream] { step(stream); });
      return;
    }
  }
}

DEEPUM_SEPARATE void executor::touch_rows(stream_state& stream, operation& op, driver& home) {
  const segment first = op.touched.segments[op.touched.position];
  nanoseconds share{};
  nanoseconds in{};
  nanoseconds out{};
  for (std::uint32_t rows = 0; rows != rows_at_once && op.touched.position != op.touched.segments.size(); ++rows) {
    const segment s = op.touched.segments[op.touched.position];
    if (s.space != first.space || (rows != 0 && s.space->touch(s) != touch_result::remote)) {
      break;
    }
    ++op.touched.position;
    share += share_of(op, s.size);
    const nanoseconds time = time_at(bytes{s.size}, row_rate(profile_, bytes{s.size}, s.space->managed() == nullptr));
    if (s.mode != access::overwrite) {
      driver_.counters().in_remote += bytes{s.size};
      in += time;
    }
    if (s.mode != access::read) {
      driver_.counters().out_remote += bytes{s.size};
      out += time;
    }
  }
  // Both directions work at the same time; the launch goes on when the slower one is done.
  link& slower = out > in ? home.out() : home.in();
  link& other = out > in ? home.in() : home.out();
  if (const nanoseconds beside = std::min(in, out); beside.count() != 0) {
    other.submit(
        urgency::fault, [beside] { return beside; }, [] {});
  }
  const nanoseconds time = std::max({share, in, out});
  slower.submit(
      urgency::fault, [time] { return time; }, [this, &stream] { step(stream); });
}

template <class Visit>
void executor::for_each_driver(const operation& op, Visit&& visit) {
  visit(driver_);
  if (!op.copies) {
    return;
  }
  for (executor* e : fabric_.executors()) {
    const auto of_device = [e](const segment& part) { return part.space != nullptr && part.space->home() == e; };
    if (e != this && std::any_of(op.touched.segments.begin(), op.touched.segments.end(), of_device)) {
      visit(e->driver_);
    }
  }
}

DEEPUM_SEPARATE void executor::wait(operation& op) {
  if (!op.waiting_since) {
    op.waiting_since = loop_.now();
  }
}

DEEPUM_SEPARATE void executor::stop_waiting(stream_state& stream, operation& op) {
  if (op.waiting_since) {
    const nanoseconds time = loop_.now() - *op.waiting_since;
    stream.of(op.launch, loop_.now()).stalled += time;
    driver_.counters().stalled += time;
    op.waiting_since.reset();
  }
  op.late = false;
}

DEEPUM_SEPARATE nanoseconds executor::slowed(nanoseconds time) const {
  return nanoseconds{std::llround(static_cast<double>(time.count()) * profile_.slowdown_beside_copy)};
}

DEEPUM_SEPARATE nanoseconds executor::share_of(operation& op, std::uint64_t size) const {
  const auto until = [&](std::uint64_t n) {
    return static_cast<std::int64_t>(static_cast<double>(op.compute.count()) * static_cast<double>(n) /
                                     static_cast<double>(op.total));
  };
  const std::int64_t before = until(op.behind);
  op.behind += size;
  return nanoseconds{until(op.behind) - before};
}

DEEPUM_SEPARATE void executor::end(stream_state& stream) {
  operation& op = *stream.queue.front();
  if (!failure_) {
    for_each_touched(op, [](const segment& s) { s.space->before_body(s); });
    run_user_code(op.body);
    for_each_touched(op, [](const segment& s) { s.space->after_body(s); });
  }
  for_each_driver(op, [&](driver& d) { d.end(op.touched); });
  leave(stream);
}

DEEPUM_SEPARATE void executor::leave(stream_state& stream) {
  ++driver_.counters().launches;
  busy_[static_cast<unsigned>(stream.queue.front()->engine)] = false;
  stream.queue.pop_front();
  stream.started = false;
  dispatch(stream);
}

}  // namespace sim
}  // namespace v0
}  // namespace deepum
