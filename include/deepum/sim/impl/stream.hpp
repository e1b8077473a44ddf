#pragma once

#include <deepum/core/launch.hpp>
#include <deepum/error.hpp>
#include <deepum/separate.hpp>
#include <deepum/sim/address_space.hpp>
#include <deepum/sim/device.hpp>
#include <deepum/sim/event_loop.hpp>
#include <deepum/sim/executor.hpp>
#include <deepum/sim/fabric.hpp>
#include <deepum/sim/kernel.hpp>
#include <deepum/sim/profile.hpp>
#include <deepum/sim/stream.hpp>

#include <cstddef>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

namespace deepum {
inline namespace v0 {
namespace sim {

DEEPUM_SEPARATE bool event::done() const {
  if (owner_ == nullptr) {
    return true;
  }
  event_loop::host_call call(owner_->loop());
  call.spend(owner_->properties().host_query);
  return when_->passed;
}

DEEPUM_SEPARATE void event::synchronize() const {
  if (owner_ == nullptr) {
    return;
  }
  event_loop::host_call call(owner_->loop());
  call.wait([&] { return when_->passed; });
  owner_->operations().rethrow();
}

DEEPUM_SEPARATE stream::~stream() {
  event_loop::host_call call(owner_.loop());
  call.wait([&] { return state_.queue.empty(); });
  if (own_) {
    owner_.operations().remove(state_);
  }
}

DEEPUM_SEPARATE void stream::begin(launch_id id) {
  const auto lock = owner_.loop().lock();
  open_.push_back(id);
}

DEEPUM_SEPARATE void stream::end(launch_id id) {
  expects(!open_.empty() && open_.back() == id, "launches end in the opposite order of their beginning");
  event_loop::host_call call(owner_.loop());
  auto op = std::make_unique<operation>();
  op->what = operation::kind::finish;
  op->launch = id;
  owner_.operations().enqueue(state_, std::move(op));
  open_.pop_back();
}

DEEPUM_SEPARATE void stream::copy(void* to, const void* from, std::size_t n) {
  if (n == 0) {
    return;
  }
  const address_space* const target = arena_of(to);
  const address_space* const source = arena_of(from);
  const bool to_device = target != nullptr;
  const bool from_device = source != nullptr;
  auto op = std::make_unique<operation>();
  op->copies = true;
  op->touched.name = "copy";
  op->describe = [=](work& w) {
    if (from_device) {
      w.reads(from, n);
    }
    if (to_device) {
      w.overwrites(to, n);
    }
  };
  if (to_device && !from_device) {
    op->engine = engine_kind::copy_in;
    op->link_rate = owner_.properties().pageable;
    const auto* first = static_cast<const std::byte*>(from);
    auto staged = std::make_shared<std::vector<std::byte>>(first, first + n);
    op->body = [=] { std::memcpy(to, staged->data(), n); };
  } else {
    if (from_device && !to_device) {
      op->engine = engine_kind::copy_out;
      op->link_rate = owner_.properties().pageable;
    } else if (source->home() != target->home()) {
      op->engine = target->home() == &owner_.operations() ? engine_kind::copy_in : engine_kind::copy_out;
      op->link_rate = owner_.properties().peer;
      op->between = &owner_.connections().out_of(source->home()->ordinal());
      op->into = &owner_.connections().into(target->home()->ordinal());
    }
    op->body = [=] { std::memmove(to, from, n); };
  }
  issue(std::move(op));
  if (!to_device) {
    event done;
    record(done);
    done.synchronize();
  }
}

DEEPUM_SEPARATE void stream::fill(void* to, int value, std::size_t n) {
  auto op = std::make_unique<operation>();
  op->touched.name = "fill";
  op->describe = [=](work& w) { w.overwrites(to, n); };
  op->body = [=] { std::memset(to, value, n); };
  issue(std::move(op));
}

DEEPUM_SEPARATE void stream::record(event& e) {
  event_loop::host_call call(owner_.loop());
  call.spend(owner_.properties().host_record);
  e.owner_ = &owner_;
  e.when_ = std::make_shared<moment>();
  auto op = std::make_unique<operation>();
  op->what = operation::kind::record;
  op->when = e.when_;
  owner_.operations().enqueue(state_, std::move(op));
}

DEEPUM_SEPARATE void stream::wait(const event& e) {
  if (e.owner_ == nullptr) {
    return;
  }
  event_loop::host_call call(owner_.loop());
  call.spend(owner_.properties().host_wait);
  auto op = std::make_unique<operation>();
  op->what = operation::kind::wait;
  op->when = e.when_;
  owner_.operations().enqueue(state_, std::move(op));
}

DEEPUM_SEPARATE void stream::synchronize() {
  event_loop::host_call call(owner_.loop());
  call.wait([&] { return state_.queue.empty(); });
  owner_.operations().rethrow();
}

DEEPUM_SEPARATE bool stream::idle() {
  event_loop::host_call call(owner_.loop());
  call.spend(owner_.properties().host_query);
  return state_.queue.empty();
}

DEEPUM_SEPARATE void stream::check_device() {
  const auto lock = owner_.loop().lock();
  owner_.operations().rethrow();
}

DEEPUM_SEPARATE stream::stream(device& holder, address_space& listener, bool /*blocking*/)
    : owner_(holder),
      own_(std::make_unique<stream_state>(listener)),
      state_(*own_) {
  const auto lock = owner_.loop().lock();
  owner_.operations().add(state_);
}

DEEPUM_SEPARATE stream::stream(device& holder, address_space& listener, stream& existing)
    : owner_(holder),
      state_(existing.state_) {
  if (state_.space != &listener) {
    throw error(status::invalid_argument, "a stream of other memory cannot take launches of this arena");
  }
}

DEEPUM_SEPARATE const address_space* stream::arena_of(const void* p) const {
  const auto lock = owner_.loop().lock();
  return executor::space_of(owner_.connections(), p);
}

DEEPUM_SEPARATE void stream::issue(std::unique_ptr<operation> op) {
  event_loop::host_call call(owner_.loop());
  call.spend(owner_.properties().host_launch);
  call.wait([&] { return state_.queue.size() < owner_.properties().launch_queue; });
  op->launch = open_.empty() ? launch_id{} : open_.back();
  owner_.operations().enqueue(state_, std::move(op));
}

}  // namespace sim
}  // namespace v0
}  // namespace deepum
