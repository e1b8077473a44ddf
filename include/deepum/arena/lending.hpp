#pragma once

#include <deepum/arena/allocation_table.hpp>
#include <deepum/arena/checker.hpp>
#include <deepum/arena/new_memory.hpp>
#include <deepum/core/launch.hpp>
#include <deepum/core/signature.hpp>
#include <deepum/engine/memory_kind.hpp>
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
#include <optional>
#include <shared_mutex>
#include <span>
#include <string>
#include <string_view>
#include <typeindex>
#include <typeinfo>
#include <vector>

namespace deepum {
inline namespace v0 {

template <memory_kind Memory>
class arena;

namespace detail {

/// An arena on memory that never faults, as streams of other arenas see it: only its own launches bring its memory.
class lending_arena {
 public:
  lending_arena(const lending_arena&) = delete;
  lending_arena& operator=(const lending_arena&) = delete;

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

  /// Which device it is: equal for two arenas on one.
  struct device_key {
    std::type_index kind;
    std::uint64_t number;
    friend bool operator==(const device_key&, const device_key&) = default;
  };
  template <class Device>
  [[nodiscard]] static device_key key_of(const Device& device) {
    if constexpr (requires { device.properties().ordinal; }) {
      return {typeid(Device), static_cast<std::uint64_t>(device.properties().ordinal)};
    } else {
      return {typeid(Device), reinterpret_cast<std::uintptr_t>(&device)};
    }
  }
  [[nodiscard]] virtual device_key device() const = 0;

 protected:
  lending_arena() = default;
  ~lending_arena() = default;
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

/// How an arena lends its memory.
template <memory_kind Memory>
class lender final : public lending_arena {
 public:
  explicit lender(arena<Memory>& owner) : owner_(owner) {
    lending_arenas::add(owner_.memory().base(), owner_.memory().capacity(), *this);
  }
  ~lender() { lending_arenas::remove(*this); }

  void lend(std::string_view name, std::span<const operand> operands, const std::function<void()>& body) override {
    run(name, operands, [&](typename Memory::stream_type& marker) {
      marker.synchronize();  // copies that are on their way
      body();
    });
  }
  void copy(std::string_view name, void* to, const void* from, bytes n) override {
    const bool outward = owner_.contains(from);
    const operand used = outward ? operand{from, n, access::read} : operand{to, n, access::overwrite};
    run(name, {&used, 1}, [&](typename Memory::stream_type& marker) {
      marker.copy(to, from, n.count);
      marker.synchronize();
    });
  }
  void check(std::string_view name, const operand& o) override { owner_.check_operand(name, o); }
  [[nodiscard]] bytes most() const override { return std::max(block(), block() * (owner_.budget() / (8 * block()))); }
  [[nodiscard]] bytes block() const override { return owner_.block(); }
  [[nodiscard]] device_key device() const override { return key_of(owner_.memory().owner()); }

 private:
  template <class Body>
  void run(std::string_view name, std::span<const operand> operands, Body&& body) {
    opened launch(owner_);
    launch.begin(name, operands);
    body(launch.marker);
    launch.issued = true;
  }

  /// A launch on a stream of its own, which ends with it.
  struct opened {
    explicit opened(arena<Memory>& lent) : owner(lent), marker(lent.memory()), stream(lent.engine().open_stream({})) {
      owner.stream_opened();
    }
    ~opened() {
      if (id.valid()) {
        if (issued) {
          spares.written();
        } else {
          spares.not_written();
          owner.engine().abandon(id, stream);
        }
        marker.end(id);
      }
      owner.engine().close_stream(stream);
      owner.stream_closed();
    }
    opened(const opened&) = delete;
    opened& operator=(const opened&) = delete;

    void begin(std::string_view name, std::span<const operand> operands) {
      std::vector<named_operand> named;
      owner.name_operands(name, operands, named);
      launch_record record;
      record.stream = stream;
      record.name = name;
      signature_builder signature(name);
      for (const named_operand& o : named) {
        signature.operand(o.where.span.offset.count, o.where.span.size.count, o.mode);
      }
      record.signature = signature.finish();
      owner.declare(named, record.accesses);
      const std::vector<block_access> accesses = record.accesses;
      if (owner.new_memory() != nullptr) {
        spares = owner.new_memory()->before_launch(named, true);
      }
      const launch_id submitted = owner.submit(std::move(record), named);
      owner.await_admission(submitted, stream, name);
      try {
        if constexpr (requires { marker.order_after_arrival(accesses, true); }) {
          marker.order_after_arrival(accesses, true);
        }
        let_in.emplace(owner.memory(), accesses, owner.order() != nullptr);
      } catch (...) {  // it is known, so it has to end
        marker.begin(submitted);
        id = submitted;
        throw;
      }
      marker.begin(submitted);
      id = submitted;
    }

    arena<Memory>& owner;
    typename Memory::stream_type marker;
    stream_id stream{};
    launch_id id{};
    typename new_memory<arena<Memory>>::spared spares{};
    std::optional<access_for> let_in{};
    bool issued = false;
  };

  arena<Memory>& owner_;
};

/// In its place where memory faults: the driver brings what is touched.
struct no_lender {
  template <class Arena>
  explicit no_lender(Arena&) {}
};

template <class Memory>
struct lender_of {
  using type = no_lender;
};
template <paged_memory_kind Memory>
struct lender_of<Memory> {
  using type = lender<Memory>;
};

}  // namespace detail
}  // namespace v0
}  // namespace deepum
