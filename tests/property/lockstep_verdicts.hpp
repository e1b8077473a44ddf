#pragma once

#include "property/lockstep_launcher.hpp"
#include "property/lockstep_sides.hpp"
#include "property/lockstep_step.hpp"
#include "property/lockstep_world.hpp"
#include "property/shadow.hpp"
#include <deepum/core/launch.hpp>
#include <deepum/error.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace deepum_test {

/// What may become of a launch of a program in lockstep, and whether it did.
template <class Machine>
class lockstep_verdicts {
 public:
  using kind = step::kind;

  /// @param sides  Outlive it.
  explicit lockstep_verdicts(lockstep_sides<Machine>& sides) : sides_(sides) {}

  /// What becomes of a launch.
  struct expectation {
    bool refused = false;         ///< it has to be refused
    bool may_be_refused = false;  ///< where a view writes a block that the shadow does not know the launch to touch
    bool may_lack_space = false;  ///< of the arena
    std::size_t blocks = 0;       ///< that it needs on the device at once, with those that are kept there
  };
  /// @param scratch  Memory that the program does not see is touched, too.
  [[nodiscard]] expectation expected(const std::vector<piece>& touched, bool refused, bool scratch) const {
    return {.refused = refused || sides_.world.beside_written_view(touched),
            // where scratch memory lies is not known, and others have views, too
            .may_be_refused =
                (scratch && sides_.world.writes_views()) || (sides_.world.paged && !sides_.world.options.alone),
            .may_lack_space = scratch,
            .blocks = scratch ? std::size_t{sides_.world.budget} : sides_.world.busy(touched).size()};
  }
  [[nodiscard]] expectation expected(const step& s, const std::vector<shadow::named>& operands) const {
    expectation e = expected(shadow::pieces(operands), sides_.world.must_be_refused(s), s.what == kind::scratch);
    e.blocks += sides_.world.other_blocks(s);
    return e;
  }
  /// Whether memory may be short, on the device for so many blocks, or on the host for all that has contents.
  /// @param before  `shortages()` before the call: other threads' programs make memory short, too, and end that.
  [[nodiscard]] bool may_be_short(const deepum::error& e, std::size_t blocks, std::uint64_t before) const {
    if (e.code() != deepum::status::out_of_device_memory && e.code() != deepum::status::out_of_host_memory) {
      return false;
    }
    if (sides_.arenas.size() != 1 || !sides_.world.options.alone) {
      return sides_.machine.short_of_memory() || sides_.machine.shortages() != before;
    }
    return sides_.machine.lacks_device_memory(blocks) ||
           sides_.machine.lacks_host_memory(sides_.world.blocks_with_contents());
  }

  /// Makes a launch. @param make  Throws where the launch is not made.
  /// @returns  Whether it was made.
  template <class Make>
  bool attempt(const expectation& expected, bool must_fail, Make&& make) {
    ++sides_.launches;
    const std::uint64_t shortages = sides_.machine.shortages();
    try {
      make();
    } catch (const body_failed&) {
      return false;
    } catch (const deepum::error& e) {
      if (expected.refused) {
        return false;
      }
      if ((expected.may_lack_space && e.code() == deepum::status::out_of_arena_space) ||
          (expected.may_be_refused && e.code() == deepum::status::invalid_argument) || must_fail ||
          may_be_short(e, expected.blocks, shortages)) {
        ++sides_.tolerated;
        return false;
      }
      throw;
    }
    if (expected.refused) {
      wrong("a launch was made that has to be refused");
    }
    return true;
  }
  /// After a launch that was submitted and not made: whether what it would have written is in use again is not said.
  // What a body has enqueued before it throws runs, and what the launch would have overwritten is as that left it, or
  // as it was before (`stream::call`).
  void use_again(const std::vector<shadow::named>& operands, bool enqueued = false) {
    for (const shadow::named& o : operands) {
      if (enqueued && o.mode == deepum::access::overwrite) {
        sides_.world.memory.forget(o.what, false);
      }
      if (o.mode != deepum::access::read) {
        sides_.arena_of(o.what).mark_active(sides_.world.memory.address(o.what), sides_.size(o.what));
        sides_.world.memory.revive(o.what);
      }
    }
  }

 private:
  lockstep_sides<Machine>& sides_;
};

}  // namespace deepum_test
