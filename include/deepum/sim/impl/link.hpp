#pragma once

#include <deepum/core/fifo.hpp>
#include <deepum/separate.hpp>
#include <deepum/sim/event_loop.hpp>
#include <deepum/sim/link.hpp>
#include <deepum/units.hpp>

#include <utility>

namespace deepum {
inline namespace v0 {
namespace sim {

DEEPUM_SEPARATE void link::submit(urgency who, cost time, event_loop::action done, inlet* into) {
  (who == urgency::fault ? urgent_ : normal_).push_back({std::move(time), std::move(done), into});
  if (!busy_) {
    start_next();
  }
}

DEEPUM_SEPARATE void link::start_next() {
  fifo<transfer>& queue = urgent_.empty() ? normal_ : urgent_;
  busy_ = !queue.empty();
  if (!busy_) {
    return;
  }
  transfer next = std::move(queue.front());
  queue.pop_front();
  inlet* const into = next.into;
  if (into == nullptr || into->take([this, next] { run(next); })) {
    run(std::move(next));
  }
}

DEEPUM_SEPARATE void link::run(transfer next) {
  began_ = loop_.now();
  const nanoseconds alone = next.time();
  const nanoseconds time = host_ != nullptr ? host_->begin(alone) : alone;
  loop_.after(time, [this, done = std::move(next.done), into = next.into] {
    if (host_ != nullptr) {
      host_->end();
    }
    if (into != nullptr) {
      into->give();
    }
    done();  // still busy: what `done` submits queues up behind what waited longer
    start_next();
  });
}

}  // namespace sim
}  // namespace v0
}  // namespace deepum
