#pragma once

#include <deepum/core/launch.hpp>
#include <deepum/core/sequence.hpp>
#include <deepum/dim.hpp>
#include <deepum/sim/address_space.hpp>
#include <deepum/sim/device.hpp>
#include <deepum/sim/executor.hpp>
#include <deepum/sim/kernel.hpp>
#include <deepum/sim/managed_memory.hpp>
#include <deepum/sim/paged_memory.hpp>
#include <deepum/units.hpp>

#include <cstddef>
#include <memory>
#include <tuple>
#include <utility>

namespace deepum {
inline namespace v0 {
namespace sim {

/// Marks a place in a stream. One that was never recorded counts as reached. Threads: one at a time.
class event {
 public:
  /// Costs a little host time, so that a loop around it comes to an end.
  [[nodiscard]] bool done() const;
  /// The host waits for the work before the mark.
  /// @errors  Those of an operation that failed; see `stream::synchronize`.
  void synchronize() const;

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
  /// @param of        Its engine hears of finished launches.
  /// @param blocking  Means nothing: there is no default stream to be ordered with.
  explicit stream(managed_memory& of, bool blocking = false) : stream(of.owner(), of.space(), blocking) {}
  explicit stream(paged_memory& of, bool blocking = false) : stream(of.owner(), of.space(), blocking) {}
  /// The same stream again, which outlives this: what either enqueues is in one order.
  /// @errors  `status::invalid_argument` for a stream of other memory.
  stream(managed_memory& of, stream& existing, bool /*sole*/ = false) : stream(of.owner(), of.space(), existing) {}
  stream(paged_memory& of, stream& existing, bool /*sole*/ = false) : stream(of.owner(), of.space(), existing) {}
  ~stream();
  stream(const stream&) = delete;
  stream& operator=(const stream&) = delete;

  /// Work enqueued until `end` belongs to this launch. `launch_finished` is reported when all of it is done.
  /// Launches may nest: what is enqueued belongs to the innermost one, and the inner ones end first.
  void begin(launch_id id);
  void end(launch_id id);

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
    op->describe = [call](work& to) {
      std::apply([&](auto&... each) { call->code.describe(to, each...); }, call->arguments);
    };
    op->body = [call] { std::apply([&](auto&... each) { call->code.body(each...); }, call->arguments); };
    issue(std::move(op));
  }

  /// Whether an address is of the host's own memory, and of no arena.
  [[nodiscard]] bool is_pageable(const void* p) const { return arena_of(p) == nullptr; }

  /// Copies bytes; each side may be in an arena of any device of the machine, or outside of all arenas (pageable host
  /// memory). Such a source has been read when the call returns; into such a target the call returns when the copy is
  /// done, as `cudaMemcpyAsync`.
  void copy(void* to, const void* from, std::size_t n);

  /// Sets bytes, like memset.
  void fill(void* to, int value, std::size_t n);

  void record(event& e);
  /// Work enqueued from now on starts when `e`, as it was last recorded, has been reached.
  void wait(const event& e);

  /// The host waits until the stream has nothing left to do.
  /// @errors  What the first operation that failed threw; once one has failed, nothing more is executed on this device.
  void synchronize();
  /// Costs a little host time, so that a loop around it comes to an end.
  [[nodiscard]] bool idle();

  /// Takes no time.
  /// @errors  As `synchronize`, where an operation has failed.
  void check_device();

  /// The stream to which library calls enqueue: here this one itself.
  [[nodiscard]] stream& native() { return *this; }

 private:
  stream(device& holder, address_space& listener, bool blocking);
  stream(device& holder, address_space& listener, stream& existing);
  /// The arena of any device of the machine that the address lies in; nullptr: none.
  [[nodiscard]] const address_space* arena_of(const void* p) const;
  void issue(std::unique_ptr<operation> op);

  device& owner_;
  std::unique_ptr<stream_state> own_;  // none: the state of an existing one
  stream_state& state_;
  sequence<launch_id> open_{};  // the launches between `begin` and `end`, the innermost last
};

}  // namespace sim
}  // namespace v0
}  // namespace deepum

#ifndef DEEPUM_SEPARATE_COMPILATION
#include <deepum/sim/impl/stream.hpp>  // what it declares
#endif
