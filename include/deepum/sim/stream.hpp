#pragma once

#include <deepum/core/launch.hpp>
#include <deepum/dim.hpp>
#include <deepum/sim/address_space.hpp>
#include <deepum/sim/device.hpp>
#include <deepum/sim/executor.hpp>
#include <deepum/sim/kernel.hpp>
#include <deepum/sim/managed_memory.hpp>
#include <deepum/sim/mapped_memory.hpp>
#include <deepum/units.hpp>

#include <cstddef>
#include <cstring>
#include <memory>
#include <tuple>
#include <utility>
#include <vector>

namespace deepum {
inline namespace v0 {
namespace sim {

/// Marks a place in a stream. One that was never recorded counts as reached. Threads: one at a time.
class event {
 public:
  /// Costs a little host time, so that a loop around it comes to an end.
  [[nodiscard]] bool done() const {
    if (owner_ == nullptr) {
      return true;
    }
    event_loop::host_call call(owner_->loop());
    call.spend(owner_->properties().host_query);
    return when_->passed;
  }
  /// The host waits for the work before the mark.
  /// @errors  Those of an operation that failed; see `stream::synchronize`.
  void synchronize() const {
    if (owner_ == nullptr) {
      return;
    }
    event_loop::host_call call(owner_->loop());
    call.wait([&] { return when_->passed; });
    owner_->operations().rethrow();
  }

 private:
  friend class stream;
  device* owner_ = nullptr;
  std::shared_ptr<moment> when_;
};

/// A stream of the simulated GPU: operations in order, on memory of its arena, of other arenas and outside.
///
/// Threads: any, one launch at a time between `begin` and `end`.
class stream {
 public:
  /// @param memory  Its engine hears of finished launches.
  explicit stream(managed_memory& memory) : stream(memory.owner(), memory.space()) {}
  explicit stream(mapped_memory& memory) : stream(memory.owner(), memory.space()) {}
  ~stream() {
    event_loop::host_call call(owner_.loop());
    call.wait([&] { return state_.queue.empty(); });
    owner_.operations().remove(state_);
  }
  stream(const stream&) = delete;
  stream& operator=(const stream&) = delete;

  /// What is enqueued until `end` belongs to this launch. `launch_finished` is reported when all of it is done.
  void begin(launch_id id) {
    const auto lock = owner_.loop().lock();
    current_ = id;
  }
  void end(launch_id id) {
    event_loop::host_call call(owner_.loop());
    auto op = std::make_unique<operation>();
    op->what = operation::kind::finish;
    op->launch = id;
    owner_.operations().enqueue(state_, std::move(op));
    current_ = {};
  }

  /// Enqueues a kernel. Arguments are captured by value.
  /// @param k  `sim::kernel`, or anything with `body(args...)` and `describe(work&, args...)`; copied.
  template <class Kernel, class... Args>
  void launch(dim /*grid*/, dim /*block*/, unsigned /*shared_bytes*/, const Kernel& k, Args... args) {
    struct captured {
      Kernel code;
      std::tuple<Args...> arguments;
    };
    auto call = std::make_shared<captured>(captured{k, std::tuple<Args...>(std::move(args)...)});
    auto op = std::make_unique<operation>();
    if constexpr (requires { k.name; }) {
      op->touched.name = k.name;
    } else {
      op->touched.name = "kernel";
    }
    op->describe = [call](work& w) { std::apply([&](auto&... a) { call->code.describe(w, a...); }, call->arguments); };
    op->body = [call] { std::apply([&](auto&... a) { call->code.body(a...); }, call->arguments); };
    issue(std::move(op));
  }

  /// Copies bytes; either side may be outside of all arenas (pageable host memory). Such a source has been read when
  /// the call returns; into such a target the call returns when the copy is done, as `cudaMemcpyAsync`.
  void copy(void* to, const void* from, std::size_t n) {
    if (n == 0) {
      return;
    }
    const executor& operations = owner_.operations();
    const bool to_device = in_an_arena(operations, to);
    const bool from_device = in_an_arena(operations, from);
    auto op = std::make_unique<operation>();
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

  /// Sets bytes, like memset.
  void fill(void* to, int value, std::size_t n) {
    auto op = std::make_unique<operation>();
    op->touched.name = "fill";
    op->describe = [=](work& w) { w.overwrites(to, n); };
    op->body = [=] { std::memset(to, value, n); };
    issue(std::move(op));
  }

  void record(event& e) {
    event_loop::host_call call(owner_.loop());
    call.spend(owner_.properties().host_record);
    e.owner_ = &owner_;
    e.when_ = std::make_shared<moment>();
    auto op = std::make_unique<operation>();
    op->what = operation::kind::record;
    op->when = e.when_;
    owner_.operations().enqueue(state_, std::move(op));
  }
  /// What is enqueued from now on starts when `e`, as it was last recorded, has been reached.
  void wait(const event& e) {
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

  /// The host waits until the stream has nothing left to do.
  /// @errors  What the first operation that failed threw; once one has failed, nothing more is executed on this device.
  void synchronize() {
    event_loop::host_call call(owner_.loop());
    call.wait([&] { return state_.queue.empty(); });
    owner_.operations().rethrow();
  }
  /// Costs a little host time, so that a loop around it comes to an end.
  [[nodiscard]] bool idle() {
    event_loop::host_call call(owner_.loop());
    call.spend(owner_.properties().host_query);
    return state_.queue.empty();
  }

  /// What a library call enqueues to: here the stream itself.
  [[nodiscard]] stream& native() { return *this; }

 private:
  stream(device& owner, address_space& listener) : owner_(owner), state_(listener) {
    const auto lock = owner_.loop().lock();
    owner_.operations().add(state_);
  }
  [[nodiscard]] bool in_an_arena(const executor& operations, const void* p) {
    const auto lock = owner_.loop().lock();
    return operations.space_of(p) != nullptr;
  }
  void issue(std::unique_ptr<operation> op) {
    event_loop::host_call call(owner_.loop());
    call.spend(owner_.properties().host_launch);
    call.wait([&] { return state_.queue.size() < owner_.properties().launch_queue; });
    op->launch = current_;
    owner_.operations().enqueue(state_, std::move(op));
  }

  device& owner_;
  stream_state state_;
  launch_id current_{};
};

}  // namespace sim
}  // namespace v0
}  // namespace deepum
