#pragma once

#include "property/lockstep_step.hpp"
#include "property/lockstep_world.hpp"
#include "property/shadow.hpp"
#include <deepum/core/launch.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <random>
#include <utility>
#include <vector>

namespace deepum_test {

/// What steps of a random program are made of: buffers, pieces of them, launches. Nothing here is sure to be possible.
class step_dice {
 public:
  using kind = step::kind;

  /// @param world  Outlives it.
  explicit step_dice(const lockstep_world& world) : world_(world), random_(world.options.seed) {}

  [[nodiscard]] std::uint32_t below(std::uint64_t n) { return static_cast<std::uint32_t>(random_() % n); }
  [[nodiscard]] std::uint32_t value() { return below(1U << 30); }

  [[nodiscard]] std::uint8_t stream() {
    return static_cast<std::uint8_t>(below(3) == 0 ? below(world_.options.arenas * world_.options.streams)
                                                   : world_.options.streams * below(world_.options.arenas));
  }
  /// One that is alive. There has to be one.
  [[nodiscard]] std::uint32_t buffer() {
    for (;;) {
      const std::uint32_t n = below(world_.memory.buffers.size());
      if (world_.memory.buffers[n].alive) {
        return n;
      }
    }
  }
  /// Often all of a buffer, or one of its parts.
  [[nodiscard]] piece some() {
    const std::uint32_t n = buffer();
    const shadow::buffer& b = world_.memory.buffers[n];
    const std::uint32_t first = below(b.size());
    switch (below(4)) {
      case 0:
        return {n, first, 1 + below(b.size() - first)};
      case 1:
        return world_.memory.part({n, first, 1});
      default:
        return {n, 0, b.size()};
    }
  }

  [[nodiscard]] step plain(kind what) {
    step s;
    s.what = what;
    s.stream = stream();
    s.value = value();
    return s;
  }
  [[nodiscard]] step on_any(kind what) {
    step s = plain(what);
    s.a = some();
    return s;
  }
  /// Of something that is counted; nothing where there is none.
  [[nodiscard]] std::optional<step> numbered(kind what, std::size_t of) {
    if (of == 0) {
      return std::nullopt;
    }
    step s = plain(what);
    s.value = below(of);
    return s;
  }
  [[nodiscard]] step pause() {
    step s = plain(kind::pause);
    s.value = below(4) == 0 ? below(20000) : below(200);
    return s;
  }

  [[nodiscard]] step allocation() {
    step s = plain(kind::allocate);
    s.arena = world_.arena_of(s.stream);
    const std::size_t most = world_.options.buffer_blocks * world_.block;
    std::size_t size = 0;
    switch (below(5)) {
      case 0:
        size = 4 * (1 + below(4000));
        s.unit = 1;
        break;
      case 1:
        s.unit = 3001;
        size = 1 + below(world_.block / 2);
        break;
      case 2:
        s.unit = 4096;
        size = (world_.block / 2) * (1 + below(2 * world_.options.buffer_blocks));
        break;
      default:
        s.unit = 3001;
        size = 1 + below(most);
        break;
    }
    const std::size_t unit = s.unit * sizeof(shadow::word);
    s.a = {0, 0, static_cast<std::uint32_t>(std::max<std::size_t>(1, size / unit))};
    return s;
  }

  [[nodiscard]] step launch() {
    step s = plain(kind::mix);
    const std::uint32_t dice = below(20);
    s.what = dice < 5     ? kind::fill
             : dice < 9   ? kind::derive
             : dice < 14  ? kind::mix
             : dice < 17  ? kind::gather
             : dice == 17 ? kind::chase
                          : kind::scratch;
    s.by = static_cast<step::route>(below(3));
    s.unsized = static_cast<std::uint8_t>(below(8));
    s.a = some();
    s.b = some();
    s.c = some();
    if (s.what == kind::scratch) {
      s.unit = 1 + below(world_.block / 4 * (1 + below(4)) / 2);
      s.by = step::route::call;
    }
    if ((s.what == kind::scratch && !world_.has_scratch) ||
        (s.what == kind::chase && (!world_.options.alone || !world_.holds.empty()))) {
      s.what = kind::mix;
    }
    if (s.what == kind::chase && world_.paged) {
      s.by = step::route::call;
    }
    if (s.by == step::route::call && s.what != kind::scratch && below(12) == 0) {
      s.ends = below(2) == 0 ? step::ending::throws_before : step::ending::throws_after;
    } else if (below(60) == 0) {
      s.ends = step::ending::device_refuses;
    }
    return s;
  }
  [[nodiscard]] step transfer() {
    step s = plain(kind::copy);
    s.a = some();
    const std::uint32_t dice = below(8);
    if (dice < 4) {
      s.b = some();
      s.a.n = s.b.n = std::min(s.a.n, s.b.n);
    } else if (dice < 6) {
      s.what = kind::set_bytes;
    } else {
      s.what = dice == 6 ? kind::copy_in : kind::copy_out;
      s.a.n = std::min(s.a.n, 12U);
    }
    if (below(60) == 0) {
      s.ends = step::ending::device_refuses;
    }
    return s;
  }
  /// Numbers of units of up to five parts; none where there is only one unit.
  [[nodiscard]] std::vector<std::uint32_t> parts(const piece& whole) {
    std::vector<std::uint32_t> sizes;
    std::uint32_t left = world_.memory.of(whole).size();
    while (left > 1 && sizes.size() < 4) {
      sizes.push_back(1 + below(left));
      left -= sizes.back();
    }
    return sizes;
  }

 private:
  const lockstep_world& world_;
  std::mt19937_64 random_;
};

}  // namespace deepum_test
