#pragma once

#include <deepum/engine/host_workers.hpp>
#include <deepum/sim/device.hpp>
#include <deepum/sim/event_loop.hpp>
#include <deepum/sim/profile.hpp>
#include <deepum/units.hpp>

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace deepum {
inline namespace v0 {
namespace sim {

/// Threads of the host as the simulator has them: each copies at `profile::host_copy` where it is alone, and all
/// together at `profile::host_copies`. A job is done when its time is over, on the virtual clock.
class copy_threads final : public deepum::detail::host_workers {
 public:
  copy_threads(device& owner, unsigned how_many, next_job jobs) : shared_(std::make_shared<state>()) {
    shared_->loop = &owner.loop();
    shared_->costs = &owner.properties();
    shared_->next = std::move(jobs);
    shared_->idle = how_many;
  }
  ~copy_threads() override {
    event_loop::host_call call(*shared_->loop);
    shared_->stopping = true;
    call.wait([&] { return shared_->busy == 0; });
  }

  void wake() override {
    const auto lock = shared_->loop->lock();
    for (; shared_->idle != 0 && !shared_->stopping; --shared_->idle) {
      ++shared_->busy;
      shared_->loop->after({}, [s = shared_] { look(s); });
    }
  }

 private:
  struct state {
    event_loop* loop = nullptr;
    const profile* costs = nullptr;
    next_job next{};
    unsigned idle = 0;
    unsigned busy = 0;  // woken, and not idle yet
    unsigned copying = 0;
    bool stopping = false;
  };

  /// A thread is free. Within an event.
  static void look(const std::shared_ptr<state>& s) {
    std::optional<deepum::detail::host_job> job;
    if (!s->stopping) {
      s->loop->unlocked([&] { job = s->next(); });
    }
    if (!job) {
      --s->busy;
      ++s->idle;
      return;
    }
    ++s->copying;
    const double rate = std::min(s->costs->host_copy, s->costs->host_copies / s->copying);
    s->loop->after(time_at(job->size, rate), [s, run = std::move(job->run)] {
      --s->copying;
      s->loop->unlocked(run);
      look(s);
    });
  }

  const std::shared_ptr<state> shared_;
};

}  // namespace sim
}  // namespace v0
}  // namespace deepum
