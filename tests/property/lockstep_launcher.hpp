#pragma once

#include "property/lockstep_step.hpp"
#include "property/random_program.hpp"
#include "property/shadow.hpp"
#include <deepum/arena.hpp>
#include <deepum/operand.hpp>
#include <deepum/stream.hpp>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

namespace deepum_test {

/// Thrown by bodies of calls.
struct body_failed : std::exception {};

/// Makes the launches and transfers of a program in lockstep, each in the way that its step says.
template <class Machine>
class lockstep_launcher {
 public:
  using arena_type = deepum::arena<typename Machine::memory_type>;
  using stream_type = deepum::stream<typename Machine::memory_type>;
  using library_type = typename decltype(std::declval<Machine&>().open_library(
      std::declval<arena_type&>(), std::declval<stream_type&>()))::element_type;
  using word = shadow::word;
  using kind = step::kind;

  /// @param memory  Where buffers lie. Outlives it, as the machine does.
  lockstep_launcher(Machine& machine, const shadow& memory) : machine_(machine), memory_(memory) {}

  /// Where launches that chase a pointer find it.
  void set_slot(word** slot) { slot_ = slot; }
  /// Where the first word of the piece was copied to wrongly; nothing where all of it is right.
  [[nodiscard]] std::optional<std::uint32_t> wrongly_copied_out(const piece& p) const {
    return memory_.difference(p, outside_.data(), memory_.of(p).unit);
  }

  /// @param enqueued  Set when the body of a call has enqueued its kernel, however the call ends.
  void launch(stream_type& stream, library_type* library, const step& s, const std::vector<shadow::named>& operands,
              bool& enqueued) {
    const shadow& m = memory_;
    word* const a = m.address(s.a);
    const deepum::bytes n{m.words(s.a) * sizeof(word)};
    switch (s.what) {
      case kind::copy:
        stream.memcpy(a, m.address(s.b), n);
        return;
      case kind::set_bytes:
        stream.memset(a, static_cast<int>(s.value & 0xffU), n);
        return;
      case kind::copy_in:
        outside_.assign(m.words(s.a), 0);
        for (word i = 0; i < s.a.n; ++i) {
          outside_[std::size_t{i} * m.of(s.a).unit] = filled(i, s.value);
        }
        stream.memcpy(a, outside_.data(), n);
        return;
      case kind::copy_out:
        outside_.assign(m.words(s.a), 0);
        stream.memcpy(outside_.data(), a, n);
        machine_.insist([&] { stream.synchronize(); });
        return;
      default:
        break;
    }
    if constexpr (Machine::has_scratch) {
      if (s.what == kind::scratch) {
        machine_.call_library(*library, listed(operands), s.unit, a, s.a.n, m.of(s.a).unit, m.address(s.b), s.b.n,
                              m.of(s.b).unit, s.value);
        return;
      }
    }
    if (s.by == step::route::call) {
      std::vector<deepum::operand> list = listed(operands);
      if (s.what == kind::chase) {
        list.push_back(deepum::reads(slot_, 1));
      }
      stream.call(text_of(s.what), list, [&](auto&& native) {
        if (s.ends == step::ending::throws_before) {
          throw body_failed{};
        }
        enqueue(native, s);
        enqueued = true;
        if (s.ends == step::ending::throws_after) {
          throw body_failed{};
        }
      });
    } else if (s.by == step::route::sized) {
      launch_with(
          stream, s, [&](word* p, std::size_t k) { return deepum::updates(p, k); },
          [&](word* p, std::size_t k) { return deepum::overwrites(p, k); },
          [&](const word* p, std::size_t k) { return deepum::reads(p, k); });
    } else {
      launch_with(
          stream, s, [](word* p, std::size_t) { return p; }, [](word* p, std::size_t) { return p; },
          [](const word* p, std::size_t) { return p; });
    }
  }

  template <class Native>
  void enqueue(Native&& native, const step& s) {
    const shadow& m = memory_;
    word* const a = m.address(s.a);
    const word n = s.a.n;
    const word ua = m.of(s.a).unit;
    const auto with_b = [&](auto&& kernel) {
      machine_.enqueue(native, kernel, a, n, ua, static_cast<const word*>(m.address(s.b)), word{s.b.n},
                       word{m.of(s.b).unit}, word{s.value});
    };
    switch (s.what) {
      case kind::fill:
        machine_.enqueue(native, machine_.fill(), a, n, ua, word{s.value});
        break;
      case kind::derive:
        with_b(machine_.derive());
        break;
      case kind::mix:
        with_b(machine_.mix());
        break;
      case kind::gather:
        machine_.enqueue(native, machine_.gather(), a, n, ua, static_cast<const word*>(m.address(s.b)), word{s.b.n},
                         word{m.of(s.b).unit}, static_cast<const word*>(m.address(s.c)), word{s.c.n},
                         word{m.of(s.c).unit}, word{s.value});
        break;
      case kind::chase:
        machine_.enqueue(native, machine_.chase(), a, n, ua, static_cast<word* const*>(slot_), word{s.b.n},
                         word{m.of(s.b).unit}, word{s.value});
        break;
      default:
        break;
    }
  }
  static std::string_view text_of(kind k) {
    return k == kind::fill ? "fill" : k == kind::derive ? "derive" : k == kind::gather ? "gather" : "mix";
  }
  [[nodiscard]] std::vector<deepum::operand> listed(const std::vector<shadow::named>& operands) const {
    std::vector<deepum::operand> list;
    for (const shadow::named& o : operands) {
      deepum::operand made;
      made.address = memory_.address(o.what);
      made.size = o.sized ? deepum::bytes{memory_.words(o.what) * sizeof(word)} : deepum::operand::whole;
      made.mode = o.mode;
      list.push_back(made);
    }
    return list;
  }

 private:
  template <class Updated, class Overwritten, class Read>
  void launch_with(stream_type& stream, const step& s, Updated&& updated, Overwritten&& overwritten, Read&& read) {
    const shadow& m = memory_;
    const auto updates_a = [&] { return updated(m.address(s.a), m.words(s.a)); };
    const auto overwrites_a = [&] { return overwritten(m.address(s.a), m.words(s.a)); };
    const auto reads_b = [&] { return read(m.address(s.b), m.words(s.b)); };
    const word n = s.a.n;
    const word ua = m.of(s.a).unit;
    switch (s.what) {
      case kind::fill:
        stream.launch("fill", 1, 1, 0, machine_.fill(), overwrites_a(), n, ua, s.value);
        break;
      case kind::derive:
        stream.launch("derive", 1, 1, 0, machine_.derive(), overwrites_a(), n, ua, reads_b(), s.b.n, m.of(s.b).unit,
                      s.value);
        break;
      case kind::mix:
        stream.launch("mix", 1, 1, 0, machine_.mix(), updates_a(), n, ua, reads_b(), s.b.n, m.of(s.b).unit, s.value);
        break;
      case kind::gather:
        stream.launch("gather", 1, 1, 0, machine_.gather(), updates_a(), n, ua, reads_b(), s.b.n, m.of(s.b).unit,
                      read(m.address(s.c), m.words(s.c)), s.c.n, m.of(s.c).unit, s.value);
        break;
      case kind::chase:
        stream.launch("chase", 1, 1, 0, machine_.chase(), updates_a(), n, ua, static_cast<word* const*>(slot_), s.b.n,
                      m.of(s.b).unit, s.value);
        break;
      default:
        break;
    }
  }

  Machine& machine_;
  const shadow& memory_;
  word** slot_ = nullptr;
  std::vector<word> outside_{};
};

}  // namespace deepum_test
