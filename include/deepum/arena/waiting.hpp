#pragma once

#include <deepum/engine/memory_space.hpp>
#include <deepum/units.hpp>

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace deepum {
inline namespace v0 {
namespace detail {

/// A thread of the program that waits looks again after this time whatever happens: the device may have failed, or
/// another thread may have taken in what the pump would have.
inline constexpr nanoseconds looks_every = std::chrono::milliseconds(1);

/// Waits until `done()`: asked once, and then once for each time that something has happened to the memory.
template <class Done>
void wait_until(memory_space& memory, Done&& done) {
  for (std::uint64_t seen = memory.happened(); !done(); seen = memory.happened()) {
    memory.wait(seen, looks_every);
  }
}

/// A wait for the program itself, which may never end. It says so in the log when it has lasted for a second of the
/// device's clock, and again whenever that time has doubled.
class long_wait {
 public:
  /// @param log  May be empty. Both outlive it.
  long_wait(memory_space& space, const std::function<void(std::string_view)>& log)
      : memory_(space),
        log_(log),
        began_(space.now()) {}

  /// @param what  () -> std::string: what it waits for.
  template <class Done, class What>
  void until(Done&& done, What&& what) {
    wait_until(memory_, [&] {
      const bool over = done();
      if (!over) {
        speak(what);
      }
      return over;
    });
  }
  [[nodiscard]] nanoseconds lasted() const { return memory_.now() - began_; }

 private:
  template <class What>
  void speak(What&& what) {
    if (const nanoseconds so_far = lasted(); so_far >= next_) {
      if (log_) {
        log_(what() + " (for " + std::to_string(so_far / std::chrono::seconds(1)) + " s so far)");
      }
      next_ = 2 * so_far;
    }
  }

  memory_space& memory_;
  const std::function<void(std::string_view)>& log_;
  nanoseconds began_;
  nanoseconds next_ = std::chrono::seconds(1);
};

}  // namespace detail
}  // namespace v0
}  // namespace deepum
