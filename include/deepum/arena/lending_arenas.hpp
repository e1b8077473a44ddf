#pragma once

#include <deepum/error.hpp>
#include <deepum/operand.hpp>
#include <deepum/units.hpp>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <limits>
#include <mutex>
#include <shared_mutex>
#include <span>
#include <string>
#include <string_view>
#include <typeindex>
#include <typeinfo>
#include <vector>

namespace deepum {
inline namespace v0 {
namespace detail {

/// Which device it is: equal for two arenas on one.
struct device_key {
  std::type_index kind;
  std::uint64_t number;
  friend bool operator==(const device_key&, const device_key&) = default;
};
template <class Device>
[[nodiscard]] device_key key_of(const Device& device) {
  if constexpr (requires { device.properties().ordinal; }) {
    return {typeid(Device), static_cast<std::uint64_t>(device.properties().ordinal)};
  } else {
    return {typeid(Device), reinterpret_cast<std::uintptr_t>(&device)};
  }
}

/// An arena on memory that never faults, as streams of other arenas see it: only its own launches bring its memory.
class lending_arena {
 public:
  lending_arena(const lending_arena&) = delete;
  lending_arena& operator=(const lending_arena&) = delete;
  virtual ~lending_arena() = default;

  /// Brings what the operands name and keeps it on the device while `body` runs, as a launch of this arena. What
  /// `body` enqueues has been done when it returns.
  /// @errors  Those of a launch with these operands, and of `body`.
  virtual void lend(std::string_view name, std::span<const operand> operands, const std::function<void()>& body) = 0;
  /// Copies between memory of this arena and the host, as a launch of this arena, and waits for that.
  virtual void copy(std::string_view name, void* to, const void* from, bytes n) = 0;
  /// @errors  Those of `lend` that can be told before.
  virtual void check(std::string_view name, const operand& o) = 0;
  /// The most that is lent at a time: whole blocks, a part of the budget.
  [[nodiscard]] virtual bytes most() const = 0;
  [[nodiscard]] virtual bytes block() const = 0;

  [[nodiscard]] virtual const device_key& device() const = 0;

 protected:
  lending_arena() = default;
};

/// Where the arenas of this process lie whose memory never faults. Threads: any.
class lending_arenas {
 public:
  static void add(const std::byte* base, bytes size, lending_arena& arena) {
    registry& all = the();
    const std::unique_lock lock(all.mutex);
    all.entries.push_back({address_of(base), size.count, &arena});
    note_bounds(all);
  }
  static void remove(const lending_arena& arena) {
    registry& all = the();
    const std::unique_lock lock(all.mutex);
    std::erase_if(all.entries, [&](const entry& e) { return e.arena == &arena; });
    note_bounds(all);
  }
  /// The one that an address lies in; nullptr where it lies in none. Cost: two loads for what lies beside all of them,
  /// as host memory does.
  [[nodiscard]] static lending_arena* find(const void* p) {
    registry& all = the();
    const std::uintptr_t address = address_of(p);
    if (address < all.first.load(std::memory_order_relaxed) || address >= all.end.load(std::memory_order_relaxed)) {
      return nullptr;
    }
    const std::shared_lock lock(all.mutex);
    for (const entry& e : all.entries) {
      if (address - e.first < e.size) {  // wraps for what lies before it
        return e.arena;
      }
    }
    return nullptr;
  }

 private:
  struct entry {
    std::uintptr_t first = 0;
    std::uint64_t size = 0;
    lending_arena* arena = nullptr;
  };
  struct registry {
    std::shared_mutex mutex;
    std::vector<entry> entries{};
    std::atomic<std::uintptr_t> first{std::numeric_limits<std::uintptr_t>::max()};  // what all lie between
    std::atomic<std::uintptr_t> end{0};
  };
  static registry& the() {
    static registry one;
    return one;
  }
  static std::uintptr_t address_of(const void* p) { return reinterpret_cast<std::uintptr_t>(p); }
  static void note_bounds(registry& all) {
    std::uintptr_t first = std::numeric_limits<std::uintptr_t>::max();
    std::uintptr_t end = 0;
    for (const entry& e : all.entries) {
      first = std::min(first, e.first);
      end = std::max(end, e.first + e.size);
    }
    all.first.store(first, std::memory_order_relaxed);
    all.end.store(end, std::memory_order_relaxed);
  }
};

/// What a launch is refused with that uses memory of another arena.
/// @param what  Which argument or operand it is.
[[nodiscard]] inline error uses_other_arena(std::string_view launch, const std::string& what, const void* p) {
  char address[32];
  std::snprintf(address, sizeof address, "%p", p);
  return error(status::foreign_pointer,
               "launch '" + std::string(launch) + "': " + what + ", " + address +
                   ", is memory of another arena, on memory that never faults: only launches of that arena's streams "
                   "bring it. Launch it there, or copy the contents into this arena with stream::memcpy");
}

}  // namespace detail
}  // namespace v0
}  // namespace deepum
