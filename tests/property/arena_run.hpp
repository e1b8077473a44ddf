#pragma once

#include "property/random_program.hpp"
#include <deepum/arena.hpp>
#include <deepum/host_view.hpp>
#include <deepum/operand.hpp>
#include <deepum/stream.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace deepum_test {

/// A random program on an arena, whatever the device.
///
/// A machine has the device (`device`, `memory_type`), the kernels for it (`fill()`, `mix()`, `gather()`, `chase()`:
/// what `stream::launch` takes), `before(n)` for what happens to it before the nth operation, and
/// `host_touched(p, size, mode)` for what it has to be told of the host. Where memory never faults every launch has to
/// declare all it touches: there it has `enqueue_chase(native stream, arguments...)`.
template <class Machine>
class arena_run {
 public:
  using arena_type = deepum::arena<typename Machine::memory_type>;
  using stream_type = deepum::stream<typename Machine::memory_type>;

  /// @param machine  Outlives the run.
  arena_run(Machine& machine, deepum::arena_options options)
      : machine_(machine),
        arena_(machine.device, std::move(options)),
        streams_{stream_type(arena_), stream_type(arena_)} {}

  /// @returns  A sum of all that the program has read, and of what all buffers held in the end.
  std::uint64_t run(const random_program& program) {
    buffers_.resize(program.buffers);
    slot_ = arena_.template allocate<word*>(1);
    std::uint64_t sum = 0xcbf29ce484222325ULL;
    std::size_t count = 0;
    for (const operation& op : program.operations) {
      machine_.before(count++);
      step(op, sum);
    }
    synchronize();
    for (const std::span<word> buffer : buffers_) {
      fold(buffer, sum);
    }
    return sum;
  }

  [[nodiscard]] arena_type& arena() { return arena_; }
  [[nodiscard]] deepum::statistics counts() { return arena_.statistics(); }

 private:
  using word = std::uint32_t;

  /// The host uses elements.
  template <class T, class Use>
  void with_view(T* p, std::size_t n, deepum::access mode, Use&& use) {
    const deepum::host_view<T> made(arena_, p, n, mode);
    machine_.host_touched(made.data(), n * sizeof(T), mode);
    use(std::span<T>(made.data(), made.size()));
  }
  void fold(std::span<const word> words, std::uint64_t& sum) {
    if (!words.empty()) {
      with_view(words.data(), words.size(), deepum::access::read, [&](std::span<const word> seen) {
        for (const word w : seen) {
          sum = folded(sum, w);
        }
      });
    }
  }
  void synchronize() {
    for (stream_type& s : streams_) {
      s.synchronize();
    }
  }
  /// The stream of the operation, made to wait for whatever ran last on the other one.
  stream_type& on(const operation& op) {
    if (op.stream != last_stream_) {
      typename stream_type::event_type done;
      streams_[last_stream_].record(done);
      streams_[op.stream].wait(done);
      last_stream_ = op.stream;
    }
    return streams_[op.stream];
  }

  void step(const operation& op, std::uint64_t& sum) {
    using kind = operation::kind;
    const std::span<word> a = buffers_[op.a];
    const std::span<word> b = buffers_[op.b];
    const std::span<word> c = buffers_[op.c];
    const auto size = static_cast<word>(a.size());
    const auto other = static_cast<word>(b.size());
    switch (op.what) {
      case kind::allocate:
        buffers_[op.a] = {arena_.template allocate<word>(op.n), op.n};
        break;
      case kind::release:
        arena_.deallocate(a.data());  // with work in flight: the arena's matter, not the program's
        buffers_[op.a] = {};
        break;
      case kind::fill:
        on(op).launch("fill", 1, 1, 0, machine_.fill(), deepum::overwrites(a), size, op.value);
        break;
      case kind::fill_part:
        on(op).launch("fill_part", 1, 1, 0, machine_.fill(), a.data() + op.first, op.n, op.value);
        break;
      case kind::mix:
        on(op).launch("mix", 1, 1, 0, machine_.mix(), a.data(), size, b.data(), other, op.value);
        break;
      case kind::gather:
        on(op).launch("gather", 1, 1, 0, machine_.gather(), a.data(), size, b.data(), other, c.data(),
                      static_cast<word>(c.size()), op.value);
        break;
      case kind::chase: {
        synchronize();
        with_view(slot_, 1, deepum::access::overwrite, [&](std::span<word*> slot) { slot[0] = b.data(); });
        if constexpr (arena_type::host_uses_other_addresses) {
          on(op).call("chase", {deepum::updates(a.data()), deepum::reads(slot_, 1), deepum::reads(b.data())},
                      [&](auto&& native) { machine_.enqueue_chase(native, a.data(), size, slot_, other, op.value); });
        } else {
          on(op).launch("chase", 1, 1, 0, machine_.chase(), a.data(), size, slot_, other, op.value);
        }
        break;
      }
      case kind::copy:
        if (op.a != op.b) {
          on(op).memcpy(a.data(), b.data(), deepum::bytes{op.n * sizeof(word)});
        }
        break;
      case kind::set_bytes:
        on(op).memset(a.data(), static_cast<int>(op.value & 0xffU), deepum::bytes{op.n * sizeof(word)});
        break;
      case kind::host_read: {
        synchronize();
        fold(a.subspan(op.first, op.n), sum);
        break;
      }
      case kind::host_write: {
        synchronize();
        with_view(a.data() + op.first, op.n, deepum::access::update, [&](std::span<word> words) {
          for (word i = 0; i < op.n; ++i) {
            words[i] = filled(i, op.value);
          }
        });
        break;
      }
      case kind::forget:
        if (op.value % 2 == 0) {
          arena_.mark_inactive(a.data(), deepum::bytes{a.size_bytes()});
          arena_.mark_active(a.data(), deepum::bytes{a.size_bytes()});
        } else {
          arena_.discard(a.data(), deepum::bytes{a.size_bytes()});
        }
        on(op).launch("fill", 1, 1, 0, machine_.fill(), deepum::overwrites(a), size, op.value);
        break;
      case kind::hint:
        switch (op.value % 4) {
          case 0:
            arena_.prefetch(a.data(), deepum::bytes{a.size_bytes()}, deepum::location::device());
            break;
          case 1:
            arena_.prefetch(a.data(), deepum::bytes{a.size_bytes()}, deepum::location::host());
            break;
          case 2:
            arena_.advise(a.data(), deepum::bytes{a.size_bytes()}, deepum::advice::set_read_mostly);
            break;
          default:
            arena_.advise(a.data(), deepum::bytes{a.size_bytes()}, deepum::advice::unset_read_mostly);
            break;
        }
        break;
      case kind::synchronize:
        synchronize();
        break;
    }
  }

  Machine& machine_;
  arena_type arena_;
  std::array<stream_type, 2> streams_;
  std::vector<std::span<word>> buffers_;
  word** slot_ = nullptr;
  std::uint16_t last_stream_ = 0;
};

/// Three threads at once, each with a stream and memory of its own.
/// @returns  How many of them computed something wrong.
template <class Machine>
std::size_t threads_that_go_wrong(Machine& machine, deepum::arena_options options) {
  using word = std::uint32_t;
  constexpr word size = 600'000;
  deepum::arena<typename Machine::memory_type> memory(machine.device, std::move(options));
  std::array<bool, 3> wrong{};
  std::vector<std::thread> threads;
  for (word t = 0; t < wrong.size(); ++t) {
    threads.emplace_back([&, t] {
      deepum::stream s(memory);
      word* kept = memory.template allocate<word>(size);
      std::vector<word> expected(size);
      s.launch("fill", 1, 1, 0, machine.fill(), deepum::overwrites(kept, size), size, t);
      for (word i = 0; i < size; ++i) {
        expected[i] = filled(i, t);
      }
      for (word round = 0; round < 6; ++round) {
        word* scratch = memory.template allocate<word>(size);
        s.launch("fill", 1, 1, 0, machine.fill(), deepum::overwrites(scratch, size), size, round);
        s.launch("mix", 1, 1, 0, machine.mix(), kept, size, scratch, size, t);
        memory.deallocate(scratch);
        for (word i = 0; i < size; ++i) {
          expected[i] = mixed(expected[i], filled(i, round), t);
        }
      }
      s.synchronize();
      const auto view = memory.host_read(kept, size);
      machine.host_touched(view.data(), size * sizeof(word), deepum::access::read);
      wrong[t] = !std::equal(view.begin(), view.end(), expected.begin());
    });
  }
  for (std::thread& t : threads) {
    t.join();
  }
  return static_cast<std::size_t>(std::count(wrong.begin(), wrong.end(), true));
}

}  // namespace deepum_test
