#pragma once

#include <deepum/arena/allocation_size.hpp>
#include <deepum/arena/allocation_table.hpp>
#include <deepum/arena/allocator.hpp>
#include <deepum/arena/array.hpp>
#include <deepum/arena/checker.hpp>
#include <deepum/arena/declaration.hpp>
#include <deepum/arena/enqueuing.hpp>
#include <deepum/arena/given_up.hpp>
#include <deepum/arena/host_guard.hpp>
#include <deepum/arena/lending.hpp>
#include <deepum/arena/new_memory.hpp>
#include <deepum/arena/options.hpp>
#include <deepum/arena/reports.hpp>
#include <deepum/arena/residency.hpp>
#include <deepum/arena/waiting.hpp>
#include <deepum/core/archive.hpp>
#include <deepum/core/block.hpp>
#include <deepum/core/block_grid.hpp>
#include <deepum/core/launch.hpp>
#include <deepum/core/location.hpp>
#include <deepum/core/signature.hpp>
#include <deepum/engine/engine.hpp>
#include <deepum/engine/memory_kind.hpp>
#include <deepum/engine/statistics.hpp>
#include <deepum/environment.hpp>
#include <deepum/error.hpp>
#include <deepum/host_view.hpp>
#include <deepum/log.hpp>
#include <deepum/operand.hpp>
#include <deepum/policy/make_policy.hpp>
#include <deepum/units.hpp>

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace deepum {
inline namespace v0 {

namespace detail {

template <class T>
concept complete_type = requires { sizeof(T); };
/// The memory kind that a device has chosen.
template <class Device>
struct default_memory_of {
  using type = typename Device::default_memory;
  static_assert(complete_type<type>,
                "the header of this device's memory is missing: include <deepum/cuda.hpp>, or for the simulated GPU "
                "<deepum/deepum.hpp>");
};

}  // namespace detail

/// Memory that may be larger than the device: raw pointers, valid on host and device, whose blocks move before they are
/// needed.
///
/// Memory is reclaimed with the arena. Streams, arrays and views end before it.
///
/// Threads: every member, any thread. Kernel bodies and the callbacks of the options call none of them.
///
///     deepum::arena arena{gpu, {.device_budget = 8_GiB}};
///     float* x = arena.allocate<float>(n);
template <memory_kind Memory>
class arena {
 public:
  static_assert(detail::complete_type<typename Memory::stream_type>,
                "the header of this device's stream is missing: include <deepum/cuda.hpp>, or for the simulated GPU "
                "<deepum/deepum.hpp>");
  using memory_type = Memory;
  using device_type = typename Memory::device_type;
  /// Whether the host finds contents elsewhere than the device does, in views only.
  static constexpr bool host_uses_other_addresses = paged_memory_kind<Memory>;

  /// What DEEPUM_POLICY, DEEPUM_BUDGET and DEEPUM_CHECK in the environment say goes before the options, and the files
  /// of DEEPUM_STATISTICS and DEEPUM_TRACE are written when the arena ends. A value that cannot be used is a line in
  /// the log, and nothing else.
  /// @errors  `status::invalid_argument` for a policy that does not exist and for a budget below one block; those of
  ///          the memory kind.
  explicit arena(device_type& on, arena_options with = {})
      : policy_name_(after_environment(with)),
        reports_(with.log),
        memory_(on, checked_capacity(on, with)),
        engine_(memory_, chosen(with, policy_name_),
                engine_options{.budget = first_budget(on, with),
                               .headroom = with.headroom,
                               .log = with.log,
                               .observer = reports_.observed(std::move(with.observer), block(), policy_name_)}),
        table_(reinterpret_cast<std::uintptr_t>(memory_.base()), memory_.capacity(), memory_.block()),
        probe_(memory_),
        log_(with.log),
        lender_(*this) {
    if constexpr (requires { memory_.description(); }) {
      // That there is no feed, or a worse one, is worth a line in any case.
      if (with.log && (wanted_verbosity() >= verbosity::set_up || memory_.fault_feed() != "driver")) {
        with.log(memory_.description());
      }
    }
    if (!with.tables.empty()) {
      load_tables(with.tables, with.log);
    }
    if (with.checked) {
      order_ = std::make_unique<detail::launch_order>();
      if constexpr (paged_memory_kind<Memory>) {
        memory_.guard();
        host_guard_.emplace(memory_.base(), memory_.capacity());
      }
    }
    memory_.attach([this] { engine_.pump(); });
    if (with.checked || with.zero_new) {
      new_memory_ = std::make_unique<detail::new_memory<arena>>(*this, with.zero_new, order_.get());
    }
  }
  ~arena() {
    expects(streams_.load() == 0, "an arena is destroyed before its streams");
    new_memory_.reset();
    const deepum::statistics last = reports_.wanted() ? engine_.snapshot() : deepum::statistics{};
    memory_.detach();
    reports_.write(last);
  }
  arena(const arena&) = delete;
  arena& operator=(const arena&) = delete;

  /// @name Allocation
  /// @{

  /// Memory for `n` elements, which are not constructed: it holds what others have left there, where `cudaMalloc` in a
  /// fresh process happens to give zeroes (`arena_options::zero_new`).
  /// @param n   0 gives nullptr.
  /// @errors    `status::out_of_arena_space`, with the numbers. Waits for launches only where nothing but memory that
  ///            they may still use would do; meanwhile other threads launch and allocate. Within `stream::call` it does
  ///            not wait for the launch that is being enqueued: that is `status::out_of_arena_space`, too.
  /// Cost: logarithmic in the gaps of the arena. No device memory is taken before a launch uses it.
  template <class T>
  [[nodiscard]] T* allocate(std::size_t n) {
    static_assert(
        std::is_trivially_destructible_v<T>,
        "allocate<T>(n) is for plain data: its elements are neither constructed nor destroyed; for others there "
        "are deepum::allocator and allocate_bytes");
    return static_cast<T*>(allocate_bytes(detail::size_of_allocation<T>(n), bytes{alignof(T)}));
  }
  /// The same in bytes.
  /// @param alignment  In bytes, a power of two; 256 at least are given, a whole block from half a block on.
  /// @errors           Those of `allocate`; `status::invalid_argument` for an alignment that is none.
  [[nodiscard]] void* allocate_bytes(bytes size, bytes alignment = range_allocator::granularity) {
    if (alignment.count == 0 || (alignment.count & (alignment.count - 1)) != 0 || alignment > block_size) {
      throw error(status::invalid_argument,
                  "an alignment has to be a power of two of at most 2 MiB, not " + std::to_string(alignment.count));
    }
    if (size.count == 0) {
      return nullptr;
    }
    keep_pace();
    launch_id finished = engine_.finished_up_to();
    for (;;) {
      std::vector<block_range> unsettled;
      std::optional<std::uintptr_t> address;
      std::optional<launch_id> awaited;
      {
        const std::lock_guard lock(mutex_);
        std::vector<liveness_change> changes;
        table_.reclaim(finished, changes);
        address = table_.try_allocate(size, alignment, changes);
        unsettled = tell(changes);
        awaited = table_.awaited();
        if (!address && (!awaited || *awaited >= detail::enqueuing::oldest(this))) {
          throw out_of_space(size, awaited.has_value());
        }
      }
      settle(unsettled);
      if (address) {
        return handed_out(reinterpret_cast<void*>(*address), size);
      }
      await_finish(*awaited, size);
      finished = *awaited;
    }
  }
  /// Gives memory back. Its contents are of no value from now on. Launches that were issued before may still use it:
  /// its addresses are reused when they have finished (docs/adr/0003).
  /// @param p   As it was handed out; nullptr is fine.
  /// @errors    `status::double_free`, `status::foreign_pointer`, `status::invalid_argument` for an interior pointer.
  /// Cost: logarithmic in the gaps of the arena. Waits for no launch.
  void deallocate(const void* p) {
    if (p == nullptr) {
      return;
    }
    if (new_memory_) {
      forget_new(p);
    }
    keep_pace();
    const std::lock_guard lock(mutex_);
    std::vector<liveness_change> changes;
    const launch_id last = engine_.last_launch();
    table_.free(address_of(p), last, engine_.finished(last), changes);
    (void)tell(changes);  // nothing comes alive
  }
  /// Memory that is given back with the array. Errors and cost: those of `allocate`.
  template <class T>
  [[nodiscard]] array<T, Memory> make_array(std::size_t n) {
    return array<T, Memory>(*this, n);
  }
  /// Names the parts of an allocation that the program carves up itself, so that a pointer into it means its part.
  /// @param p      As it was handed out.
  /// @param parts  Their sizes in bytes, from the beginning on; what is left over is one more.
  /// @errors       `status::invalid_argument` where they do not fit, `status::foreign_pointer`.
  /// Cost: linear in the parts.
  void split(const void* p, std::span<const bytes> parts) {
    const std::lock_guard lock(mutex_);
    table_.split(address_of(p), parts);
  }
  /// @}

  /// @name What the program knows
  /// Hints: they may be left out, and they may fail. Blocks count that the bytes touch. Places are the host and
  /// `location::device()`, the arena's device, whatever number CUDA has for it. Cost of each: a message to the
  /// migration thread; a caller that sends thousands without a launch waits for that thread's next turn.
  /// @errors  `status::foreign_pointer`, `status::invalid_argument` for a device that the arena does not have.
  /// @{

  /// Begins to move the blocks to the device or to the host, and returns. To the device as far as the budget allows.
  void prefetch(const void* p, bytes size, location to) {
    check_place("prefetch", to);
    if (const block_range range = blocks_at(p, size); !range.empty()) {
      keep_pace();
      engine_.prefetch(range, to);
    }
  }
  /// The same for elements.
  template <class T>
  void prefetch(std::span<T> elements, location to) {
    prefetch(elements.data(), bytes{elements.size_bytes()}, to);
  }
  /// Passes a hint to the driver. Memory that never faults knows none and ignores it.
  /// @param where  For hints about a place.
  void advise(const void* p, bytes size, advice hint, location where = location::device()) {
    check_place("advise", where);
    if (const block_range range = blocks_at(p, size); !range.empty()) {
      keep_pace();
      engine_.advise(range, hint, where);
    }
  }
  /// @}

  /// @name Contents that are of no value
  /// Only blocks that are covered as a whole are given up; the bytes of a block that several calls name count together
  /// for `mark_inactive`, where bytes that are not allocated count too.
  /// @errors  `status::foreign_pointer`, `status::invalid_argument` where the bytes reach beyond an allocation.
  /// @{

  /// The contents are of no value now. Waits until that is done. Blocks that a launch in flight may touch are left
  /// alone.
  void discard(const void* p, bytes size) {
    give_up(p, size);
    block_range range{};
    {
      const std::lock_guard lock(mutex_);
      range = size.count == 0
                  ? block_range{}
                  : block_grid{block()}.whole_blocks_of(table_.checked_in_allocation(address_of(p), size), size);
    }
    if (!range.empty()) {
      engine_.discard(range);
      settle({&range, 1});
    }
  }
  /// The contents are of no value once the launches that were issued before have finished, until the memory is used
  /// again: it is marked active, a launch overwrites or updates it, or the host writes it. That brings exactly the
  /// bytes back that are named, and what they hold is undefined. A launch or host view that reads what was given up is
  /// refused. Launches that do not declare the memory must not use it.
  void mark_inactive(const void* p, bytes size) {
    if (size.count == 0) {
      return;
    }
    give_up(p, size);
    keep_pace();
    const std::lock_guard lock(mutex_);
    std::vector<liveness_change> changes;
    table_.mark_inactive(address_of(p), size, engine_.last_launch(), changes);
    (void)tell(changes);
  }
  /// The memory is used again; what it holds is undefined. Waits for a discard that is on its way. Needed only before
  /// uses that do not say what they are: launches that do not declare the memory, or read it after they have written
  /// it.
  void mark_active(const void* p, bytes size) {
    if (size.count == 0) {
      return;
    }
    keep_pace();
    std::vector<block_range> unsettled;
    {
      const std::lock_guard lock(mutex_);
      std::vector<liveness_change> changes;
      table_.mark_active(address_of(p), size, changes);
      unsettled = tell(changes);
    }
    settle(unsettled);
  }
  /// @}

  /// @name Host access
  /// See `host_view`. Each call waits until the contents are on the host: their bytes at the rate of the link, beside
  /// what launches in flight still do to the blocks. Counts are of elements.
  /// @errors  `status::foreign_pointer` for memory that is free or of no arena; `status::invalid_argument` where the
  ///          bytes reach beyond their allocation, or what is read was given up; on memory that never faults
  ///          `status::out_of_host_memory`.
  /// @{

  /// The host reads elements.
  template <class T>
  [[nodiscard]] host_view<const T> host_read(const T* p, std::size_t n) {
    return host_view<const T>(*this, p, n, access::read);
  }
  /// The host reads and writes elements. Memory that was given up is in use again then.
  template <class T>
  [[nodiscard]] host_view<T> host_write(T* p, std::size_t n) {
    return host_view<T>(*this, p, n, access::update);
  }
  /// Every element is written before it is read.
  template <class T>
  [[nodiscard]] host_view<T> host_overwrite(T* p, std::size_t n) {
    return host_view<T>(*this, p, n, access::overwrite);
  }
  /// The host touches the bytes now, at their own addresses. Blocks until they are where it can.
  void host_access(const void* p, bytes size, access mode)
    requires(!paged_memory_kind<Memory>)
  {
    if (size.count == 0) {
      return;
    }
    (void)bring_to_host({host_uses(p, size, mode), size}, mode);
  }
  /// The host uses the bytes from now on, until `end_host_access`. Blocks until it may. For `host_view`.
  /// @returns  Where it finds them.
  [[nodiscard]] std::byte* begin_host_access(const void* p, bytes size, access mode) {
    if (size.count == 0) {
      return host_uses_other_addresses ? nullptr : static_cast<std::byte*>(const_cast<void*>(p));
    }
    const byte_span where{host_uses(p, size, mode), size};
    if (new_memory_ && mode != access::overwrite) {
      new_memory_->before_host(where);
    }
    std::byte* const found = bring_to_host(where, mode);
    if (new_memory_ && mode == access::overwrite) {
      new_memory_->host_overwrites(where, found);
    }
    return found;
  }
  /// The same for fills of bytes that were never written.
  [[nodiscard]] std::byte* bring_to_host(byte_span where, access mode) {
    if constexpr (!paged_memory_kind<Memory>) {
      engine_.host_access(um_grid.blocks_of(where.offset, where.size), mode);
      memory_.host_access(where.offset, where.size, mode);
      return memory_.base() + where.offset.count;
    } else {
      const block_range range = block_grid{block()}.blocks_of(where.offset, where.size);
      engine_.begin_host_access(range, mode);
      std::byte* found = nullptr;
      try {
        found = await_host_access(where.offset, where.size, mode);
      } catch (...) {
        engine_.end_host_access(range, mode);
        throw;
      }
      if (order_) {
        memory_.let_host_in(range);
      }
      return found;
    }
  }
  /// The host has finished with what `begin_host_access` gave it.
  void end_host_access(const void* p, bytes size, access mode) {
    if constexpr (paged_memory_kind<Memory>) {
      if (size.count != 0) {
        const block_range range = block_grid{block()}.blocks_of(table_.checked(address_of(p), size), size);
        if (order_) {
          memory_.keep_host_out(range);
        }
        engine_.end_host_access(range, mode);
      }
    }
  }
  /// @}

  /// @name State
  /// @{

  /// What has been done so far, up to this moment. Take two and subtract them for what was done in between.
  /// Cost: one pump of the engine.
  [[nodiscard]] deepum::statistics statistics() { return engine_.snapshot(); }
  /// How much is allocated. Memory that was given back does not count, also while launches still use it.
  [[nodiscard]] arena_footprint footprint() const {
    const std::lock_guard lock(mutex_);
    return {table_.allocated(), table_.peak()};
  }
  /// Its address range.
  [[nodiscard]] bytes capacity() const { return memory_.capacity(); }
  /// Device memory that its contents hold at most, in whole blocks.
  [[nodiscard]] bytes budget() const { return engine_.budget(); }
  /// @param budget  Device memory to hold at most; 0: what is free, less the headroom.
  /// @errors        `status::invalid_argument` for less than a block.
  void set_budget(bytes budget) { engine_.set_budget(checked_budget(budget)); }
  /// The policy that decides, after DEEPUM_POLICY.
  [[nodiscard]] std::string_view policy_name() const {
    return policy_name_.empty() ? engine_.policy_name() : policy_name_;
  }
  /// What moves as one: `block_size`, or what the memory kind has chosen.
  [[nodiscard]] bytes block() const { return memory_.block(); }
  /// Whether an address lies in the arena. No lock.
  [[nodiscard]] bool contains(const void* p) const { return offset_of(p).has_value(); }
  /// Where in the arena an address lies; nothing where it does not. No lock.
  [[nodiscard]] std::optional<bytes> offset_of(const void* p) const {
    const bytes offset{address_of(p) - address_of(memory_.base())};  // wraps for what lies before the arena
    return offset < memory_.capacity() ? std::optional<bytes>(offset) : std::nullopt;
  }
  /// @}

  /// @name Tables
  /// @{

  /// Saves what the policy has learned, for `arena_options::tables` of the next run. Launches are recognised in it as
  /// long as the program allocates in the same order. The file is replaced as a whole; a symbolic link, a device or
  /// anything else that is no regular file is left alone.
  /// @errors  `status::io_failure`, also for what is no regular file; then the file is as it was.
  void save_tables(const std::string& path) { save_archive(path, engine_.save_tables()); }
  /// @}

  /// @name Launches that run together
  /// On memory that never faults a launch waits for room that launches in flight hold. Where those wait for it in turn
  /// (NCCL, kernels that synchronise with each other), all that they touch together has to be there before the first of
  /// them: `arena.hold` brings it and keeps it until the `residency` ends.
  /// @errors  As for a launch with these operands.
  /// @{

  /// Waits until all that the operands name is on the device.
  [[nodiscard]] residency<Memory> hold(std::initializer_list<operand> operands) {
    return hold(std::span<const operand>(operands.begin(), operands.size()));
  }
  /// The same with operands that are counted at run time.
  [[nodiscard]] residency<Memory> hold(std::span<const operand> operands) { return residency<Memory>(*this, operands); }
  /// @}

  /// @name For streams and tools
  /// @{

  /// The memory kind.
  [[nodiscard]] Memory& memory() { return memory_; }
  /// What carries out plans.
  [[nodiscard]] deepum::engine& engine() { return engine_; }
  /// The bytes that operands of one launch name. Those outside the arena are left out.
  /// @param launch  Its name, for messages.
  /// @param out     Emptied first.
  /// @errors        `status::foreign_pointer` where an operand names memory that is free, or that of another arena
  ///                which never faults, `status::invalid_argument` where it reaches past its allocation. A plain
  ///                pointer into free memory is logged once instead, and left out.
  void name_operands(std::string_view launch, std::span<const operand> operands, std::vector<named_operand>& out) {
    bool stray = false;
    {
      const std::lock_guard lock(mutex_);
      stray = name(launch, operands, out);
    }
    if (stray) {
      log_stray(launch);
    }
  }
  /// Work in several launches is checked as a whole before the first of them.
  /// @errors  Those of `name_operands`; `status::invalid_argument` where it reads what was given up.
  void check_operand(std::string_view launch, const operand& o) {
    std::vector<named_operand> named;
    name_operands(launch, {&o, 1}, named);
    const std::lock_guard lock(mutex_);
    given_up_.check_reads(launch, named);
  }
  /// The other arena that an address lies in, whose memory never faults; nullptr where it lies in none. No lock for
  /// memory of this arena and of the host.
  [[nodiscard]] detail::lending_arena* other_arena(const void* p) const {
    return contains(p) ? nullptr : detail::lending_arenas::find(p);
  }
  /// This one, as other arenas know it; nullptr where memory faults.
  [[nodiscard]] const void* lends_as() const {
    if constexpr (paged_memory_kind<Memory>) {
      return static_cast<const detail::lending_arena*>(&lender_);
    } else {
      return nullptr;
    }
  }
  /// @param what, number  Which of the launch's arguments or operands it is.
  /// @errors              `status::foreign_pointer` where an address lies in another arena whose memory never faults.
  void refuse_other_arena(std::string_view launch, const char* what, std::size_t number, const void* p) const {
    if (other_arena(p) != nullptr) {
      throw detail::uses_other_arena(launch, std::string(what) + " " + std::to_string(number), p);
    }
  }
  /// The blocks that the operands of one launch touch.
  /// @param out  Emptied first. An overwrite counts only for whole blocks that nothing else in the list touches.
  void declare(std::span<const named_operand> operands, std::vector<block_access>& out) const {
    detail::blocks_of(operands, block_grid{block()}, out);
  }
  /// The same for operands that were not named before. @errors  Those of `name_operands`.
  void declare(std::span<const operand> operands, std::vector<block_access>& out) {
    std::vector<named_operand> named;
    name_operands("declare", operands, named);
    declare(named, out);
  }
  /// A graph's operands are as they were when it was recorded.
  /// @errors  `status::invalid_argument` where memory was given back since.
  void check_recorded(std::string_view graph, std::span<const named_operand> operands) const {
    const std::lock_guard lock(mutex_);
    for (const named_operand& o : operands) {
      if (!table_.exists(o.where)) {
        throw error(status::invalid_argument, "graph '" + std::string(graph) + "' uses " + detail::text_of(o) +
                                                  " which were given back after it was recorded; record it again");
      }
    }
  }
  /// Reports a launch to the engine. In the order of submission over all streams and facts, what it overwrites or
  /// updates is in use again, and what it reads must not have been given up. Waits for discards of its blocks that the
  /// device has, however long they take.
  /// @param record    With everything but its number.
  /// @param operands  What its accesses were made of.
  /// @returns         Its number. `await_admission` comes next.
  /// @errors          Those of `engine::check`; `status::invalid_argument` where it reads what was given up. Then
  ///                  nothing has happened.
  launch_id submit(launch_record&& record, std::span<const named_operand> operands) {
    engine_.check(record);
    keep_pace();
    return report(std::unique_lock(mutex_), std::move(record), operands, false);
  }
  /// The same for operands that were not named before: they are named and reported in one hold of the lock.
  /// @param record  With everything but its number and its accesses.
  /// @param out     What it declares; blocks only where memory never faults.
  /// @errors        Those of `name_operands`, too.
  launch_id submit(launch_record&& record, std::span<const operand> operands, declaration& out) {
    keep_pace();
    std::unique_lock lock(mutex_);
    const bool stray = name(record.name, operands, out.operands);
    declare(out.operands, record.accesses);
    if constexpr (paged_memory_kind<Memory>) {
      out.blocks = record.accesses;  // they are waited for
    }
    if (!engine_.surely_fits(record)) {
      lock.unlock();  // what comes may wait for the engine
      engine_.check(record);
      lock.lock();
    }
    return report(std::move(lock), std::move(record), out.operands, stray);
  }
  /// Waits until a launch that was submitted may be given to the device. At most `longest_hold`: the device may be
  /// waiting for something that this very thread will do next. On memory that never faults it waits on, and says so.
  /// @errors  Those of `engine::admitted`; on memory that never faults that of a device that has failed, and
  ///          `status::out_of_device_memory` within `stream::call`, where it would wait for its own thread. Then the
  ///          launch was taken back.
  void await_admission(launch_id id, stream_id stream, std::string_view name) {
    await_admission(id, stream, name, [] { return false; });
  }
  /// @param later  () -> bool: the launch is captured and executes later, if at all. Then it waits for nothing. Asked
  ///               where it would wait.
  template <class Later>
  void await_admission(launch_id id, stream_id stream, std::string_view name, Later&& later) {
    if (engine_.has_to_ask()) {
      await_turn(id, stream, name, std::forward<Later>(later));
    }
  }

 private:
  template <class Later>
  void await_turn(launch_id id, stream_id stream, std::string_view name, Later&& later) {
    const std::size_t outer = detail::enqueuing::count(this);
    if (engine_.admitted(id, stream, outer)) {
      return;
    }
    if (later()) {
      engine_.let_pass(id);
      return;
    }
    try {
      detail::long_wait wait(memory_, log_);
      bool forced = false;
      const auto may_go = [&] {
        if (engine_.admitted(id, stream, outer)) {
          return true;
        }
        if (!forced && wait.lasted() >= longest_hold) {
          forced = true;
          if (engine_.admit(id)) {
            return true;
          }
        }
        if constexpr (paged_memory_kind<Memory>) {
          probe_.check_device();
          if (!engine_.fits_beside(id, stream, detail::enqueuing::all(this))) {
            throw error(status::out_of_device_memory,
                        "launch '" + std::string(name) +
                            "' inside a stream::call does not fit the budget beside what the call itself keeps on the "
                            "device: launch it outside, or raise the budget");
          }
        }
        return false;
      };
      wait.until(may_go, [&] {
        return "launch '" + std::string(name) +
               "' waits for memory that launches in flight hold; if those wait for it in turn, launch all of them "
               "under one arena::hold";
      });
    } catch (...) {
      engine_.withdraw(id, stream);
      throw;
    }
  }

 public:
  /// In which launches run, in checked mode; else null.
  [[nodiscard]] detail::launch_order* order() const { return order_.get(); }
  /// What sees that new memory is filled; null where nothing does.
  [[nodiscard]] detail::new_memory<arena>* new_memory() const { return new_memory_.get(); }
  /// Counts a stream, which the arena must outlive.
  void stream_opened() {
    ++streams_;
    keep_pace();
  }
  /// A stream has ended.
  void stream_closed() { --streams_; }
  /// @}

 private:
  static constexpr nanoseconds longest_hold = std::chrono::seconds(1);
  static constexpr nanoseconds longest_shortage = std::chrono::seconds(10);  // of host memory

  void check_place(const char* what, location l) const {
    if (!l.is_host() && l != memory_.place()) {
      throw error(status::invalid_argument, std::string(what) + " to device " + std::to_string(l.index() - 1) +
                                                ", which this arena does not have: location::device() is its device, "
                                                "location::host() the host");
    }
  }
  static std::uintptr_t address_of(const void* p) { return reinterpret_cast<std::uintptr_t>(p); }

  /// A run without what an earlier one has learned is slower and nothing else, so no error comes out of here.
  void load_tables(const std::string& path, const std::function<void(std::string_view)>& log) {
    std::string why;
    try {
      engine_.load_tables(load_archive(path));
      return;
    } catch (const error& e) {
      if (e.code() == status::io_failure && e.native_code() == ENOENT) {
        return;  // the first run
      }
      why = e.code() == status::io_failure ? e.what() : path + ": " + e.what();
    }
    if (log) {
      log(why + "; the policy begins without tables");
    }
  }
  static std::unique_ptr<policy> chosen(const arena_options& options, const std::string& name) {
    return options.make_policy ? options.make_policy(options.tuning) : make_policy(name, options.tuning);
  }
  /// Puts what the environment says in the place of options. @returns  The name of the policy; none for the program's
  /// own.
  static std::string after_environment(arena_options& options) {
    options.checked = detail::environment::checked(options.log).value_or(options.checked);
    if (options.make_policy) {
      return {};
    }
    return detail::environment::policy(policy_names(), options.log).value_or(options.policy);
  }
  bytes first_budget(const device_type& gpu, const arena_options& options) const {
    const std::optional<bytes> wanted = detail::environment::budget(gpu.properties().memory, block(), options.log);
    return wanted ? *wanted : checked_budget(options.device_budget);
  }
  bytes checked_budget(bytes budget) const {
    if (budget.count != 0 && budget < block()) {
      throw error(status::invalid_argument, "a device budget of " + std::to_string(budget.count) +
                                                " bytes is less than a block of " + std::to_string(block().count) +
                                                " bytes; 0 means what is free");
    }
    return budget;
  }
  static bytes checked_capacity(const device_type& gpu, const arena_options& options) {
    bytes capacity = options.capacity;
    if (capacity.count == 0) {
      const bytes device = gpu.properties().memory;
      const auto pages = static_cast<std::uint64_t>(std::max(::sysconf(_SC_PHYS_PAGES), 0L));
      const bytes host{pages * static_cast<std::uint64_t>(std::max(::sysconf(_SC_PAGESIZE), 0L))};
      capacity = std::min(4 * device, device + host);
      if constexpr (requires { Memory::most_capacity(); }) {
        capacity = std::min(capacity, Memory::most_capacity().value_or(capacity));
      }
    }
    constexpr bytes most = block_size * std::numeric_limits<std::uint32_t>::max();
    if (capacity > most) {
      throw error(status::invalid_argument, "an arena has at most " + std::to_string(most.count) + " bytes, not " +
                                                std::to_string(capacity.count));
    }
    return block_size * ((capacity + block_size - bytes{1}) / block_size);
  }
  /// @param waits  Memory that was given back would do, but for the launch that this thread is enqueuing.
  error out_of_space(bytes asked, bool waits) const {
    return error(status::out_of_arena_space,
                 "no room for " + std::to_string(asked.count) + " bytes in the arena: the largest gap has " +
                     std::to_string(table_.largest_gap().count) + ", " + std::to_string(table_.free_space().count) +
                     " of " + std::to_string(table_.capacity().count) + " bytes are free; " +
                     (waits ? "what was given back cannot be reused before the launch ends that this thread is "
                              "enqueuing: allocate before stream::call, or make arena_options::capacity larger"
                            : "make arena_options::capacity larger"));
  }

  [[nodiscard]] block_range blocks_at(const void* p, bytes size) const {
    return size.count == 0 ? block_range{} : block_grid{block()}.blocks_of(table_.checked(address_of(p), size), size);
  }
  /// Tells the engine what became of blocks, in the order in which it happens: under the lock.
  /// @returns  What must be `settle`d before it is used, without the lock.
  [[nodiscard]] std::vector<block_range> tell(const std::vector<liveness_change>& changes) {
    std::vector<block_range> unsettled;
    for (const liveness_change& c : changes) {
      if (c.now != liveness::live) {
        engine_.dead(c.range, c.now, c.last);
      } else if (!engine_.tell_live(c.range)) {
        unsettled.push_back(c.range);
      }
    }
    return unsettled;
  }
  /// Waits for discards that the device has. They end whatever the program does, also where the device has failed.
  void settle(std::span<const block_range> ranges) {
    for (const block_range& r : ranges) {
      detail::wait_until(memory_, [&] { return engine_.settled(r); });
    }
  }
  /// Waits for a launch whose end gives memory back. The program has to let it end.
  void await_finish(launch_id last, bytes asked) {
    engine_.catch_up();
    detail::long_wait(memory_, log_)
        .until([&] { return engine_.finished(last); },
               [&] {
                 return "an allocation of " + std::to_string(asked.count) +
                        " bytes waits for launches that may still use memory that was given back";
               });
  }
  /// Waits until the host may use bytes. @returns  Where it finds them.
  [[nodiscard]] std::byte* await_host_access(bytes offset, bytes size, access mode)
    requires paged_memory_kind<Memory>
  {
    const block_range range = block_grid{block()}.blocks_of(offset, size);
    const auto what = [&] {
      return "the host waits for " + std::to_string(size.count) + " bytes at offset " + std::to_string(offset.count) +
             " of the arena, which launches in flight or an arena::hold use; synchronise with the launches, or end the "
             "hold, before the host touches them";
    };
    detail::long_wait wait(memory_, log_);
    const auto may_use = [&] {
      const bool may = engine_.host_may_use(range, mode);
      if (!may) {
        probe_.check_device();
      }
      return may;
    };
    wait.until(may_use, what);
    const nanoseconds before = wait.lasted();
    std::byte* found = nullptr;
    const auto has_memory = [&] {
      const auto find = [&] { return (found = memory_.host_address(offset, size)) != nullptr; };
      if (find()) {
        return true;
      }
      if (!engine_.relieve_host() || wait.lasted() - before >= longest_shortage) {
        if (find()) {  // the engine has just learnt of memory that was given up
          return true;
        }
        throw error(status::out_of_host_memory, "the host has no memory for a view of " + std::to_string(size.count) +
                                                    " bytes: " + memory_.last_failure());
      }
      probe_.check_device();
      return false;
    };
    wait.until(has_memory, what);
    return found;
  }

  /// The bytes that operands of one launch name; see `name_operands`. Under the lock.
  /// @returns  Whether one of them is a plain pointer into free memory, and that is worth a line in the log.
  bool name(std::string_view launch, std::span<const operand> operands, std::vector<named_operand>& out) {
    out.resize(operands.size());
    std::size_t count = 0;
    bool stray = false;
    for (const operand& o : operands) {
      if (o.size.count == 0) {
        continue;
      }
      const std::optional<bytes> offset = offset_of(o.address);
      if (!offset) [[unlikely]] {
        refuse_other_arena(launch, "operand", static_cast<std::size_t>(&o - operands.data()) + 1, o.address);
        continue;
      }
      if (detail::name_operand(o, *offset, table_, launch, out[count])) {
        ++count;
      } else {
        stray = true;
      }
    }
    out.resize(count);
    return stray && detail::note_name(stray_launches_, launch);
  }
  void log_stray(std::string_view launch) const {
    log("launch '" + std::string(launch) +
        "' has a pointer argument into memory that was given back; it must not use it (logged once)");
  }
  /// Reports a launch; see `submit`. @param lock  Is given back.
  launch_id report(std::unique_lock<std::mutex> lock, launch_record&& record, std::span<const named_operand> operands,
                   bool stray) {
    if (!stray && !given_up_.is_used_by(operands)) [[likely]] {
      return engine_.report(std::move(record));
    }
    return report_reuse(std::move(lock), std::move(record), operands, stray);
  }
  /// The same where it writes what was given up, or is worth a line in the log.
  launch_id report_reuse(std::unique_lock<std::mutex> lock, launch_record&& record,
                         std::span<const named_operand> operands, bool stray) {
    given_up_.check_reads(record.name, operands);
    if (order_) {
      given_up_.check_updates(record.name, operands);
    }
    std::vector<liveness_change> changes;
    const std::string warning = given_up_.use_again(record.name, operands, changes);
    const std::vector<block_range> unsettled = tell(changes);
    const bool reads_dead = given_up_.is_used_by(operands);
    const std::string name = record.name;
    const launch_id id = engine_.report(std::move(record));
    lock.unlock();
    if constexpr (paged_memory_kind<Memory>) {
      if (reads_dead) {
        engine_.catch_up();  // blocks of which nothing is in use have to be there, too
      }
    }
    if (stray) {
      log_stray(name);
    }
    if (!warning.empty()) {
      log(warning);
    }
    settle(unsettled);
    return id;
  }
  void log(const std::string& line) const {
    if (log_) {
      log_(line);
    }
  }
  void* handed_out(void* p, bytes size) {
    if (new_memory_) {
      try {
        new_memory_->allocated(span_at(p, size));
      } catch (...) {
        deallocate(p);
        throw;
      }
    }
    return p;
  }
  /// An allocation is about to be given back.
  void forget_new(const void* p) {
    std::optional<byte_span> whole;
    {
      const std::lock_guard lock(mutex_);
      whole = table_.whole(address_of(p));
    }
    if (whole) {
      new_memory_->freed(*whole);
    }
  }
  /// The contents of bytes are about to be given up.
  void give_up(const void* p, bytes size) {
    if (order_ && size.count != 0) {
      {
        const std::lock_guard lock(mutex_);
        (void)table_.checked_in_allocation(address_of(p), size);
      }
      new_memory_->given_up(span_at(p, size));
    }
  }
  [[nodiscard]] byte_span span_at(const void* p, bytes size) const {
    return {table_.checked(address_of(p), size), size};
  }
  /// The host is about to use bytes. @returns  Their offset.
  bytes host_uses(const void* p, bytes size, access mode) {
    keep_pace();
    std::vector<block_range> unsettled;
    bytes offset{};
    {
      const std::lock_guard lock(mutex_);
      offset = table_.checked_in_allocation(address_of(p), size);
      if (const bytes lost = table_.given_up({offset, size}); lost.count != 0) {
        if (mode == access::read) {
          throw error(status::invalid_argument, "the host reads " + std::to_string(size.count) + " bytes at offset " +
                                                    std::to_string(offset.count) + " of the arena, of which " +
                                                    std::to_string(lost.count) +
                                                    " were given up (mark_inactive) and not written since");
        }
        std::vector<liveness_change> changes;
        table_.use_again({offset, size}, changes);
        unsettled = tell(changes);
      }
    }
    settle(unsettled);
    return offset;
  }
  /// Who tells the engine things faster than it takes them in waits for its next turn, which comes whatever the device
  /// does.
  void keep_pace() {
    if (engine_.crowded()) [[unlikely]] {
      detail::wait_until(memory_, [&] { return !engine_.crowded(); });
    }
  }

  std::string policy_name_;
  detail::arena_reports reports_;
  Memory memory_;
  deepum::engine engine_;
  mutable std::mutex mutex_;
  allocation_table table_;  // its base and capacity never change and need no lock
  detail::given_up_memory given_up_{table_};
  std::set<std::string, std::less<>> stray_launches_{};  // names that were logged
  typename Memory::stream_type probe_;
  std::function<void(std::string_view)> log_;
  std::atomic<int> streams_{0};
  std::unique_ptr<detail::launch_order> order_{};            // in checked mode
  std::optional<detail::host_guard> host_guard_{};           // likewise
  std::unique_ptr<detail::new_memory<arena>> new_memory_{};  // likewise, and with `zero_new`
  typename detail::lender_of<Memory>::type lender_;          // last: it offers all of the above to other arenas
};

/// An arena is of the memory kind that its device has chosen, where the program names none.
template <class Device>
arena(Device&, arena_options = {}) -> arena<typename detail::default_memory_of<Device>::type>;

}  // namespace v0
}  // namespace deepum
