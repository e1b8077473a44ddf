#pragma once

#include <deepum/arena/back.hpp>
#include <deepum/arena/enqueuing.hpp>
#include <deepum/error.hpp>
#include <deepum/separate.hpp>

#include <algorithm>
#include <cstddef>
#include <utility>

namespace deepum {
inline namespace v0 {
namespace detail {

DEEPUM_SEPARATE arena_back::arena_back(memory_space& space, device_queues& queues, std::unique_ptr<policy> chosen,
                                       engine_options with)
    : memory_(space),
      queues_(queues),
      faults_(space.capabilities().faults),
      log_(with.log),
      engine_(space, std::move(chosen), std::move(with)),
      probe_(queues.make()) {}

DEEPUM_SEPARATE bytes arena_back::most_at_once() const {
  return std::max(block(), block() * (engine_.budget() / (8 * block())));
}

DEEPUM_SEPARATE void arena_back::log(const std::string& line) const {
  if (log_) {
    log_(line);
  }
}

DEEPUM_SEPARATE stream_id arena_back::open_stream(std::optional<std::uint32_t> lookahead) {
  const stream_id opened = engine_.open_stream(lookahead);
  ++streams_;
  keep_pace();
  return opened;
}

DEEPUM_SEPARATE void arena_back::close_stream(stream_id stream) {
  engine_.close_stream(stream);
  --streams_;
}

DEEPUM_SEPARATE void arena_back::await_next_turn() {
  wait_until(memory_, [&] { return !engine_.crowded(); });
}

DEEPUM_SEPARATE std::vector<block_range> arena_back::tell(std::span<const liveness_change> changes) {
  std::vector<block_range> unsettled;
  for (const liveness_change& c : changes) {
    if (c.now != liveness::live) {
      engine_.dead(c.range, c.now, c.last);
    } else if (!engine_.tell_live(c.range)) {
      unsettled.push_back(c.range);
    }
  }
  return unsettled;
}

DEEPUM_SEPARATE void arena_back::settle(std::span<const block_range> ranges) {
  for (const block_range& r : ranges) {
    wait_until(memory_, [&] { return engine_.settled(r); });
  }
}

DEEPUM_SEPARATE void arena_back::await_finish(launch_id last, bytes asked) {
  engine_.catch_up();
  long_wait(memory_, log_)
      .until([&] { return engine_.finished(last); },
             [&] {
               return "an allocation of " + std::to_string(asked.count) +
                      " bytes waits for launches that may still use memory that was given back";
             });
}

DEEPUM_SEPARATE void arena_back::await_turn(launch_id launch, stream_id stream, std::string_view name,
                                            const device_queue* on) {
  const std::size_t outer = enqueuing::count(this);
  if (engine_.admitted(launch, stream, outer)) {
    return;
  }
  if (faults_ && on != nullptr && on->capturing()) {
    wait_until(memory_, [&] { return engine_.let_pass(launch); });
    return;
  }
  try {
    long_wait wait(memory_, log_);
    bool forced = false;
    const auto may_go = [&] {
      if (engine_.admitted(launch, stream, outer)) {
        return true;
      }
      if (!forced && wait.lasted() >= longest_hold) {
        forced = true;
        if (engine_.admit(launch)) {
          return true;
        }
      }
      if (!faults_) {
        check_device();
        if (!engine_.fits_beside(launch, stream, enqueuing::all(this))) {
          throw error(status::out_of_device_memory,
                      "launch '" + std::string(name) +
                          "' inside a stream::call does not fit the budget beside what the call itself keeps on the "
                          "device: launch it outside, or raise the budget");
        }
      }
      return false;
    };
    wait.until(may_go, [&] {
      return "launch '" + std::string(name) +
             "' waits for memory that launches in flight hold; if those wait for it in turn, launch all of them "
             "under one arena::hold";
    });
  } catch (...) {
    engine_.withdraw(launch, stream);
    throw;
  }
}

DEEPUM_SEPARATE void arena_back::await_giving_back(location at) {
  long_wait wait(memory_, log_);
  wait.until(
      [&] {
        if (engine_.within_budget(at)) {
          return true;
        }
        check_device();
        if (memory_.host_is_full() && wait.lasted() > longest_stuck) {
          throw error(status::out_of_host_memory,
                      "the memory of " + to_string(at) + " cannot be given back: " + memory_.last_failure());
        }
        return false;
      },
      [&] { return "blocks at " + to_string(at) + " are on their way to the host, to give its memory back"; });
}

}  // namespace detail
}  // namespace v0
}  // namespace deepum
