#pragma once

#include <deepum/arena/allocation_size.hpp>
#include <deepum/arena/allocator.hpp>
#include <deepum/arena/array.hpp>
#include <deepum/arena/device_queue.hpp>
#include <deepum/arena/lending_arenas.hpp>
#include <deepum/arena/options.hpp>
#include <deepum/arena/reports.hpp>
#include <deepum/arena/residency.hpp>
#include <deepum/arena/rooms.hpp>
#include <deepum/arena/set_up.hpp>
#include <deepum/core/archive.hpp>
#include <deepum/core/block.hpp>
#include <deepum/core/launch.hpp>
#include <deepum/core/location.hpp>
#include <deepum/core/neighbour.hpp>
#include <deepum/core/plan.hpp>
#include <deepum/engine/engine.hpp>
#include <deepum/engine/memory_kind.hpp>
#include <deepum/engine/statistics.hpp>
#include <deepum/error.hpp>
#include <deepum/host_view.hpp>
#include <deepum/log.hpp>
#include <deepum/operand.hpp>
#include <deepum/policy/make_policy.hpp>
#include <deepum/units.hpp>
#include <deepum/upload.hpp>

#include <cstddef>
#include <initializer_list>
#include <optional>
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
      : policy_name_(detail::after_environment(with, policy_names())),
        reports_(with.log),
        memory_(make_memory(on, with)),
        queues_(memory_),
        rooms_(memory_, queues_,
               with.make_policy ? with.make_policy(with.tuning) : make_policy(policy_name_, with.tuning),
               {.budget = detail::first_budget(on.properties().memory, block(), with),
                .headroom = with.headroom,
                .log = with.log,
                .observer = reports_.observed(std::move(with.observer), policy_name_)},
               {.checked = with.checked, .zero_new = with.zero_new, .uploads = with.uploads},
               detail::key_of(memory_.owner())) {
    if constexpr (requires { memory_.description(); }) {
      // That there is no feed, or a worse one, is worth a line in any case.
      if (with.log && (wanted_verbosity() >= verbosity::set_up || memory_.fault_feed() != "driver")) {
        with.log(memory_.description());
      }
    }
    if (!with.tables.empty()) {
      detail::load_tables(engine(), with.tables, with.log);
    }
    if constexpr (paged_memory_kind<Memory>) {
      rooms_.lend_and_guard();
    }
    memory_.attach([this] { engine().pump(); });
  }
  ~arena() {
    expects(!rooms_.back.has_streams(), "an arena is destroyed before its streams");
    rooms_.fills.reset();
    finish();
  }
  arena(const arena&) = delete;
  arena& operator=(const arena&) = delete;

  /// Ends what the arena does beside the program: its threads, and the reports that the environment asks for, which are
  /// written now. For who leaves it behind as it is, streams too, because the process ends: nothing is launched,
  /// allocated or given back any more. The second time it does nothing.
  void finish() {
    if (!std::exchange(finished_, true)) {
      const deepum::statistics last = reports_.wanted() ? engine().snapshot() : deepum::statistics{};
      rooms_.end_uploads();
      memory_.detach();
      reports_.write(last);
    }
  }

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
    return rooms_.front.allocate(size, alignment);
  }
  /// Gives memory back. Its contents are of no value from now on. Launches that were issued before may still use it:
  /// its addresses are reused when they have finished (docs/adr/0003).
  /// @param p   As it was handed out; nullptr is fine.
  /// @errors    `status::double_free`, `status::foreign_pointer`, `status::invalid_argument` for an interior pointer.
  /// Cost: logarithmic in the gaps of the arena. Waits for no launch.
  void deallocate(const void* p) { rooms_.front.deallocate(p); }
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
  void split(const void* p, std::span<const bytes> parts) { rooms_.front.split(p, parts); }
  /// The same for one part, named when the program carves it: a pointer into it means these bytes from now on.
  /// @errors  `status::foreign_pointer`; `status::invalid_argument` where they reach beyond an allocation, or are none.
  /// Cost: linear in the parts that the allocation has.
  void name_part(const void* p, bytes size) { rooms_.front.name_part(p, size); }
  /// The same for one place that is learned on the way: a part begins at `p`, wherever in an allocation that is, unless
  /// that is less than a block behind the beginning of another one. It may be said again and again.
  void cut(const void* p) { rooms_.front.cut(p, block()); }
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
    if (const block_range range = rooms_.front.blocks_at(p, size); !range.empty()) {
      rooms_.back.keep_pace();
      engine().prefetch(range, to);
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
    if (const block_range range = rooms_.front.blocks_at(p, size); !range.empty()) {
      rooms_.back.keep_pace();
      engine().advise(range, hint, where);
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
  void discard(const void* p, bytes size) { rooms_.front.discard(p, size); }
  /// The contents are of no value once the launches that were issued before have finished, until the memory is used
  /// again: it is marked active, a launch overwrites or updates it, or the host writes it. That brings exactly the
  /// bytes back that are named, and what they hold is undefined. A launch or host view that reads what was given up is
  /// refused. Launches that do not declare the memory must not use it.
  void mark_inactive(const void* p, bytes size) { rooms_.front.mark_inactive(p, size); }
  /// The memory is used again; what it holds is undefined. Waits for a discard that is on its way. Needed only before
  /// uses that do not say what they are: launches that do not declare the memory, or read it after they have written
  /// it.
  void mark_active(const void* p, bytes size) { rooms_.front.mark_active(p, size); }
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
  /// Every element is written before it is read, in place, and given away from the front: launches that are issued
  /// meanwhile, on any stream, begin when what they declare has been committed. Waits until the host may write all of
  /// it: for launches that were issued before and use it.
  /// @errors  As above; those of `stream::upload`. Where the elements share blocks with other allocations, launches
  /// that
  ///          use those are refused as beside any view that writes.
  template <class T>
  [[nodiscard]] upload_view<T> stream_in(T* p, std::size_t n) {
    return upload_view<T>(rooms_, p, n);
  }
  /// The host touches the bytes now, at their own addresses. Blocks until they are where it can.
  void host_access(const void* p, bytes size, access mode)
    requires(!paged_memory_kind<Memory>)
  {
    if (size.count != 0) {
      (void)rooms_.on_host.bring(rooms_.front.used_by_host(p, size, mode), mode);
    }
  }
  /// The host uses the bytes from now on, until `end_host_access`. Blocks until it may. For `host_view`.
  /// @returns  Where it finds them.
  [[nodiscard]] std::byte* begin_host_access(const void* p, bytes size, access mode) {
    if (size.count == 0) {
      return host_uses_other_addresses ? nullptr : static_cast<std::byte*>(const_cast<void*>(p));
    }
    return rooms_.begin_host_access(p, size, mode);
  }
  /// The host has finished with what `begin_host_access` gave it.
  void end_host_access(const void* p, bytes size, access mode) {
    if (host_uses_other_addresses && size.count != 0) {
      rooms_.on_host.give_back(rooms_.front.span_at(p, size), mode);
    }
  }
  /// @}

  /// @name State
  /// @{

  /// What has been done so far, up to this moment. Take two and subtract them for what was done in between.
  /// Cost: one pump of the engine.
  [[nodiscard]] deepum::statistics statistics() { return engine().snapshot(); }
  /// How much is allocated. Memory that was given back does not count, also while launches still use it.
  [[nodiscard]] arena_footprint footprint() const { return rooms_.front.footprint(); }
  /// Its address range.
  [[nodiscard]] bytes capacity() const { return memory_.capacity(); }
  /// Device memory that its contents hold at most, in whole blocks.
  [[nodiscard]] bytes budget() const { return rooms_.back.engine().budget(); }
  /// @param budget  Device memory to hold at most; 0: what is free, less the headroom.
  /// @errors        `status::invalid_argument` for less than a block.
  void set_budget(bytes budget) { engine().set_budget(detail::checked_budget(budget, block())); }
  /// The same of a neighbour: memory that blocks of this arena may take there. Waits until it holds no more than that;
  /// what nobody else has goes on to the host. With 0 the neighbour is left alone, but for its link.
  /// @param at      `location::device(i)` with i from 1 on: the neighbour at place i - 1 of
  /// `arena_options::neighbours`.
  /// @param budget  Whole blocks count.
  /// @errors        `status::invalid_argument` for a place that the arena does not have or that lent it no memory when
  /// it
  ///                was made; `status::out_of_host_memory`, `status::device_failure` where contents cannot be saved.
  void set_budget(location at, bytes budget) {
    if (at == memory_.place()) {
      set_budget(budget);
      return;
    }
    check_neighbour(at);
    engine().set_budget(at, budget);
    rooms_.back.await_giving_back(at);
  }
  /// The policy that decides, after DEEPUM_POLICY.
  [[nodiscard]] std::string_view policy_name() const {
    return policy_name_.empty() ? rooms_.back.engine().policy_name() : policy_name_;
  }
  /// What moves as one: `block_size`, or what the memory kind has chosen.
  [[nodiscard]] bytes block() const { return memory_.block(); }
  /// Whether an address lies in the arena. No lock.
  [[nodiscard]] bool contains(const void* p) const { return rooms_.front.contains(p); }
  /// Where in the arena an address lies; nothing where it does not. No lock.
  [[nodiscard]] std::optional<bytes> offset_of(const void* p) const { return rooms_.front.offset_of(p); }
  /// @}

  /// @name Tables
  /// @{

  /// Saves what the policy has learned, for `arena_options::tables` of the next run. Launches are recognised in it as
  /// long as the program allocates in the same order. The file is replaced as a whole; a symbolic link, a device or
  /// anything else that is no regular file is left alone.
  /// @errors  `status::io_failure`, also for what is no regular file; then the file is as it was.
  void save_tables(const std::string& path) { save_archive(path, engine().save_tables()); }
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
  [[nodiscard]] deepum::engine& engine() { return rooms_.back.engine(); }
  /// What stands behind this face.
  [[nodiscard]] detail::arena_rooms& rooms() { return rooms_; }
  /// @}

 private:
  [[nodiscard]] static bytes capacity_on(const device_type& gpu, const arena_options& options) {
    std::optional<bytes> most;
    if constexpr (requires { Memory::most_capacity(); }) {
      most = options.capacity.count == 0 ? Memory::most_capacity() : std::nullopt;
    }
    return detail::checked_capacity(gpu.properties().memory, most, options);
  }
  [[nodiscard]] static Memory make_memory(device_type& on, const arena_options& options) {
    if constexpr (std::is_constructible_v<Memory, device_type&, bytes, const std::vector<neighbour>&>) {
      return Memory(on, capacity_on(on, options), options.neighbours);
    } else {
      if (!options.neighbours.empty()) {
        throw error(status::unsupported, "this memory kind uses no neighbours: leave arena_options::neighbours empty");
      }
      return Memory(on, capacity_on(on, options));
    }
  }
  void check_neighbour(location at) const {
    if (!at.is_device() || at.index() >= memory_.places().places() || memory_.places().budget(at).count == 0) {
      throw error(status::invalid_argument, "a budget for " + to_string(at) +
                                                ", which lends this arena no memory: name it in "
                                                "arena_options::neighbours, with the memory that it lends");
    }
  }
  void check_place(const char* what, location l) const {
    if (!l.is_host() && l != memory_.place()) {
      throw error(status::invalid_argument, std::string(what) + " to device " + std::to_string(l.index() - 1) +
                                                ", which this arena does not have: location::device() is its device, "
                                                "location::host() the host");
    }
  }

  std::string policy_name_;
  detail::arena_reports reports_;
  Memory memory_;
  detail::device_queues_of<Memory> queues_;
  detail::arena_rooms rooms_;
  bool finished_ = false;
};

/// An arena is of the memory kind that its device has chosen, where the program names none.
template <class Device>
arena(Device&, arena_options = {}) -> arena<typename detail::default_memory_of<Device>::type>;

}  // namespace v0
}  // namespace deepum
