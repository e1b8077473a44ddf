#pragma once

#include <deepum/core/launch.hpp>
#include <deepum/units.hpp>

#include <array>
#include <cstdint>
#include <sstream>
#include <string>
#include <vector>

namespace deepum_test {

/// Some units of a buffer. A unit is a number of words of which programs compute with the first; all that is declared,
/// given up or freed is whole units, so that one word stands for all bytes of its unit.
struct piece {
  std::uint32_t buffer = 0;
  std::uint32_t first = 0;
  std::uint32_t n = 0;
};

/// One operation of a program that runs on an arena and on a shadow in lockstep.
struct step {
  enum class kind : std::uint8_t {
    allocate,      ///< a.n units of `unit` words; `arena`
    release,       ///< buffer a, whatever is in flight
    split,         ///< buffer a into parts of `sizes` units
    fill,          ///< launch: a = f(i, value)
    derive,        ///< launch: a = f(b, i, value)
    mix,           ///< launch: a = f(a, b, value)
    gather,        ///< launch: a = f(a, b[c[i]], value)
    chase,         ///< launch: as mix, b is found through a pointer in memory
    copy,          ///< memcpy a <- b
    copy_in,       ///< memcpy a <- the host's memory
    copy_out,      ///< memcpy the host's memory <- a, and compare
    set_bytes,     ///< memset a
    scratch,       ///< launch: as mix, by a library that needs `unit` words of scratch memory
    open_view,     ///< of a, in `mode`
    close_view,    ///< number `value` of those that are open
    give_up,       ///< mark_inactive a
    mark_active,   ///< a
    discard,       ///< a
    hint,          ///< prefetch or advise a
    hold,          ///< a (updated) and b (read)
    end_hold,      ///< number `value`
    nest,          ///< `inner` within a call that is `inner.front()`
    record_graph,  ///< of `inner`
    launch_graph,  ///< number `value`
    drop_graph,    ///< number `value`
    set_budget,    ///< `value` blocks
    disturb,       ///< something happens to the device
    reopen,        ///< the stream is closed, another one opened
    ask,           ///< statistics
    synchronize,
    pause,  ///< `value` microseconds
  };
  /// How a launch declares its operands.
  enum class route : std::uint8_t {
    plain,  ///< pointers
    sized,  ///< reads(p, n) and the like
    call,   ///< stream::call with a list; `unsized` says whose sizes are left out (bits: a, b, c)
  };
  /// How it goes.
  enum class ending : std::uint8_t { well, throws_before, throws_after, device_refuses };

  kind what = kind::synchronize;
  route by = route::plain;
  ending ends = ending::well;
  deepum::access mode = deepum::access::read;
  std::uint8_t stream = 0;
  std::uint8_t arena = 0;
  std::uint8_t unsized = 0;
  piece a{}, b{}, c{};
  std::uint32_t value = 0;
  std::uint32_t unit = 1;
  std::vector<std::uint32_t> sizes{};
  std::vector<step> inner{};
};

[[nodiscard]] inline bool is_launch(step::kind k) {
  return k == step::kind::fill || k == step::kind::derive || k == step::kind::mix || k == step::kind::gather ||
         k == step::kind::chase || k == step::kind::scratch;
}
[[nodiscard]] inline bool is_transfer(step::kind k) {
  return k == step::kind::copy || k == step::kind::copy_in || k == step::kind::copy_out || k == step::kind::set_bytes;
}
[[nodiscard]] inline bool reads_b(step::kind k) {
  return (is_launch(k) && k != step::kind::fill) || k == step::kind::copy || k == step::kind::hold;
}
/// It is not declared.
[[nodiscard]] inline bool hides_b(const step& s) { return s.what == step::kind::chase && s.by != step::route::call; }

[[nodiscard]] inline std::string text(const step& s) {
  constexpr std::array names{
      "allocate",    "release",    "split",    "fill",      "derive",   "mix",         "gather",       "chase",
      "copy",        "copy_in",    "copy_out", "set_bytes", "scratch",  "open_view",   "close_view",   "give_up",
      "mark_active", "discard",    "hint",     "hold",      "end_hold", "nest",        "record_graph", "launch_graph",
      "drop_graph",  "set_budget", "disturb",  "reopen",    "ask",      "synchronize", "pause"};
  std::ostringstream out;
  out << names.at(static_cast<std::size_t>(s.what));
  const auto put = [&](const char* name, const piece& p) {
    if (p.n != 0 || (s.what == step::kind::release && *name == 'a')) {
      out << ' ' << name << '=' << p.buffer << '[' << p.first << '+' << p.n << ']';
    }
  };
  put("a", s.a);
  put("b", s.b);
  put("c", s.c);
  out << " stream " << unsigned{s.stream} << " value " << s.value;
  if (is_launch(s.what)) {
    out << (s.by == step::route::plain ? " plain" : s.by == step::route::sized ? " sized" : " call");
    out << " unsized " << unsigned{s.unsized};
  }
  if (s.what == step::kind::open_view) {
    out << " mode " << static_cast<int>(s.mode);
  }
  if (s.what == step::kind::allocate) {
    out << " arena " << unsigned{s.arena} << " unit " << s.unit;
  }
  if (s.ends != step::ending::well) {
    out << " ends " << static_cast<int>(s.ends);
  }
  for (const std::uint32_t size : s.sizes) {
    out << " part " << size;
  }
  if (!s.inner.empty()) {
    out << " {";
    for (const step& i : s.inner) {
      out << ' ' << text(i) << ';';
    }
    out << " }";
  }
  return out.str();
}

}  // namespace deepum_test
