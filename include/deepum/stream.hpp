#pragma once

#include <deepum/arena.hpp>
#include <deepum/arena/argument_reader.hpp>
#include <deepum/arena/declaration.hpp>
#include <deepum/arena/enqueuing.hpp>
#include <deepum/arena/kernel_arguments.hpp>
#include <deepum/arena/recorded_graph.hpp>
#include <deepum/core/element_bytes.hpp>
#include <deepum/core/launch.hpp>
#include <deepum/core/signature.hpp>
#include <deepum/dim.hpp>
#include <deepum/error.hpp>
#include <deepum/operand.hpp>
#include <deepum/units.hpp>

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace deepum {
inline namespace v0 {

/// How a stream is set up.
struct stream_options {
  std::optional<std::uint32_t> lookahead{};  ///< degree N: launches ahead to prefetch for; nothing: the policy's own
  /// Ordered with the legacy default stream (`cudaStreamLegacy`, the stream of `kernel<<<grid, block>>>`): each waits
  /// for what was enqueued in the other before. Else the two are not ordered, as with `cudaStreamNonBlocking`. On the
  /// simulated GPU, which has no default stream, it means nothing.
  bool blocking = false;
};

/// A stream of launches whose memory the arena moves ahead of them.
///
/// Threads: one at a time for each stream; different streams from different threads at once. Ends with a
/// synchronisation.
///
///     deepum::stream s{arena, {.lookahead = 32}};
///     s.launch("relu", grid, block, 0, relu_kernel, y, x, n);
template <memory_kind Memory>
class stream {
 public:
  using native_type = typename Memory::stream_type;
  using event_type = typename Memory::event_type;
  /// What `call` gives to its function: `cudaStream_t`, on the simulated GPU `sim::stream&`.
  using handle_type = decltype(std::declval<native_type&>().native());

  /// A stream of its own: ordered with no other one, and with the default stream as `stream_options::blocking` says.
  /// @errors  `status::unsupported` for more streams than an arena numbers; those of the device.
  explicit stream(arena<Memory>& memory_of, stream_options chosen = {})
      : arena_(memory_of),
        native_(memory_of.memory(), chosen.blocking),
        id_(memory_of.engine().open_stream(chosen.lookahead)) {
    arena_.stream_opened();
  }
  /// On a stream that the program has, the default stream too: launches keep their order with all that the program
  /// enqueues there itself. Of that the library sees nothing: on memory that never faults it has to go through `call`,
  /// and `mark_inactive`, `discard` and `deallocate` wait for launches of the library alone.
  /// @param existing  A stream of the arena's device. Not owned: it outlives this, which ends with a synchronisation.
  /// @errors  As above; `status::invalid_argument` for a simulated stream of other memory.
  template <class Existing>
    requires std::convertible_to<Existing, handle_type>
  stream(arena<Memory>& owner, Existing&& existing, stream_options options = {})
      : arena_(owner),
        native_(owner.memory(), static_cast<handle_type>(std::forward<Existing>(existing))),
        id_(owner.engine().open_stream(options.lookahead)) {
    arena_.stream_opened();
  }
  /// Waits for all launches. Their errors are lost here: synchronise before, where that matters.
  ~stream() {
    try {
      native_.synchronize();
    } catch (...) {  // NOLINT(bugprone-empty-catch): a destructor cannot report it
    }
    arena_.engine().close_stream(id_);
    arena_.stream_closed();
  }
  stream(const stream&) = delete;
  stream& operator=(const stream&) = delete;

  /// Launches a kernel. Of its arguments, `const T*` is read, `T*` is updated, or read where the kernel takes `const
  /// T*`, and `reads(p, n)`, `updates(p, n)` and `overwrites(p, n)` stand for the pointer and say more; a pointer
  /// without a size means its allocation or part. Other arguments are scalars. Pointers to pointers, to void and to
  /// classes, and classes by value, can hide pointers: with them the launch may touch more than it declares (see
  /// `hides_no_pointers`).
  /// @param name    By which the launch is recognised, with its arguments (DeepUM, section 3.1).
  /// @param shared  Bytes of dynamic shared memory.
  /// @errors        Those of the device's launch. `status::invalid_argument` and `status::foreign_pointer` where an
  ///                operand reaches past its allocation, names memory that is free, or reads what was given up, and
  ///                where a number other than 0 stands for a pointer. Then nothing was launched. Cost beside it: well
  ///                below a microsecond.
  template <class Kernel, class... Args>
  launch_id launch(std::string_view name, dim grid, dim block, unsigned shared, const Kernel& kernel, Args&&... args) {
    using arguments = detail::launch_arguments<detail::kernel_parameters<Kernel>, Args...>;
    if constexpr (arguments::fit) {
      return launch_as(typename arguments::parameters{}, name, grid, block, shared, kernel,
                       std::forward<Args>(args)...);
    } else {
      arguments::refuse(std::index_sequence_for<Args...>{});  // does not compile, and says why
      return {};
    }
  }

  /// Launches whatever `enqueue(native)` enqueues: calls of libraries, several kernels. It counts as one launch.
  /// `enqueue` may launch in turn, on this stream and on others. Such a launch is one of its own, and ends before this
  /// one where it is on this stream; on memory that never faults, all of them have to fit the budget together.
  /// @param operands  All that it touches; an empty list means that this is not known.
  /// @errors          What `enqueue` throws, after the launch has been closed. Operands that it declares to overwrite
  ///                  are then as they were before, or as what had been enqueued left them.
  template <class Enqueue>
  launch_id call(std::string_view name, std::initializer_list<operand> operands, Enqueue&& enqueue) {
    return call(name, std::span<const operand>(operands.begin(), operands.size()), std::forward<Enqueue>(enqueue));
  }
  /// The same with operands that are counted at run time.
  template <class Enqueue>
  launch_id call(std::string_view name, std::span<const operand> operands, Enqueue&& enqueue) {
    open_launch opened(*this, name, signature_of(name, operands), operands, !operands.empty());
    const detail::enqueuing during(&arena_, opened.id(), id_);
    std::forward<Enqueue>(enqueue)(native_.native());
    return opened.issued();
  }

  /// Copies bytes in stream order; either side may lie outside the arena. A launch of its own; several where the memory
  /// never faults and the budget is small. Memory of another arena that never faults is brought and kept there while it
  /// is copied, by launches of that arena: then the call returns when the copy is done, and it cannot be recorded.
  /// @returns  The last one.
  /// @errors   Those of a launch, of the other arena too.
  launch_id memcpy(void* to, const void* from, bytes n) {
    detail::lending_arena* const to_other = arena_.other_arena(to);
    detail::lending_arena* const from_other = arena_.other_arena(from);
    if (to_other != nullptr || from_other != nullptr) {
      return memcpy_between(to_other, static_cast<std::byte*>(to), from_other, static_cast<const std::byte*>(from), n);
    }
    check_transfer("memcpy", nullptr, {to, n, access::overwrite});
    check_transfer("memcpy", nullptr, {from, n, access::read});
    return in_pieces(to, from, n, [&](bytes begin, bytes piece) {
      std::byte* const begin_to = static_cast<std::byte*>(to) + begin.count;
      const std::byte* const begin_from = static_cast<const std::byte*>(from) + begin.count;
      if (!recording_ && !fit_together(begin_to, begin_from)) {
        return copy_staged(nullptr, begin_to, nullptr, begin_from, piece);
      }
      const std::array<operand, 2> operands{operand{begin_to, piece, access::overwrite},
                                            operand{begin_from, piece, access::read}};
      return transfer("memcpy", operands, [&] { native_.copy(begin_to, begin_from, piece.count); });
    });
  }
  /// `memcpy`, and returns when the copy is done, as `cudaMemcpy` does: behind what this stream holds, and behind
  /// nothing else.
  /// @errors  Those of `memcpy` and of `synchronize`; `status::unsupported` while a graph is recorded.
  launch_id memcpy_and_wait(void* to, const void* from, bytes n) {
    if (recording_) {
      throw error(status::unsupported, "a graph cannot record that the host waits for a copy; record memcpy");
    }
    const launch_id last = memcpy(to, from, n);
    synchronize();
    return last;
  }
  /// Sets bytes in stream order. A launch of its own, or several, as `memcpy`.
  launch_id memset(void* to, int value, bytes n) {
    check_transfer("memset", nullptr, {to, n, access::overwrite});
    return in_pieces(to, nullptr, n, [&](bytes begin, bytes piece) {
      std::byte* const begin_to = static_cast<std::byte*>(to) + begin.count;
      const std::array<operand, 1> operands{operand{begin_to, piece, access::overwrite}};
      return transfer("memset", operands, [&] { native_.fill(begin_to, value, piece.count); });
    });
  }

  /// @name Graphs
  /// Launches that are recorded once and run as one: to the policy a graph is one launch with all that they touch, and
  /// nothing is inserted into it.
  /// @{

  /// Records what `body()` launches on this stream instead of running it. Other streams stay out of it.
  /// @errors  What `body` throws; those of the device. Then nothing was recorded.
  template <class Body>
    requires requires(native_type n) { n.begin_capture(); }
  [[nodiscard]] auto record_graph(std::string_view name, Body&& body) {
    recorded_graph<decltype(native_.end_capture())> made;
    made.name = name;
    native_.begin_capture();
    recording_.emplace(name);
    try {
      std::forward<Body>(body)();
    } catch (...) {
      recording_.reset();
      native_.abandon_capture();
      throw;
    }
    made.signature = recording_->signature.finish();
    made.operands = std::move(recording_->operands);
    made.complete = recording_->complete;
    made.keeps = std::move(recording_->keeps);
    const auto kept = std::move(recording_->kept);  // until the graph is made
    recording_.reset();
    made.native = native_.end_capture();
    return made;
  }
  /// The graph that is being recorded keeps this until it ends: memory that its launches use and the program does not
  /// know of.
  /// @returns  Whether one is being recorded.
  bool keep_in_graph(std::shared_ptr<const void> what) {
    if (!recording_) {
      return false;
    }
    if (std::find(recording_->keeps.begin(), recording_->keeps.end(), what) == recording_->keeps.end()) {
      recording_->keeps.push_back(std::move(what));
    }
    return true;
  }
  /// Runs what was recorded, as one launch. Its operands are those of the time when it was recorded.
  /// @errors  Those of a launch. `status::invalid_argument` where memory that it uses was given back since.
  template <class Native>
  launch_id launch(const recorded_graph<Native>& graph) {
    arena_.check_recorded(graph.name, graph.operands);
    open_launch opened(*this, graph.name, graph.signature, std::span<const named_operand>(graph.operands),
                       graph.complete);
    native_.launch(graph.native);
    return opened.issued();
  }
  /// @}

  /// Records an event behind what was launched.
  void record(event_type& e) {
    named([&] { native_.record(e); });
  }
  /// Work launched from now on starts when `e`, as it was last recorded, has been reached.
  void wait(event_type& e) {
    named([&] { native_.wait(e); });
  }
  /// Waits for all that was launched.
  /// @errors  Those of the device.
  void synchronize() {
    named([&] { native_.synchronize(); });
  }

  /// The device's own stream.
  [[nodiscard]] native_type& native() { return native_; }
  /// Its number in the arena, as observers see it.
  [[nodiscard]] stream_id id() const { return id_; }

 private:
  /// Whether blocks count as arrived when their copy is on its way, so that launches have to wait for it.
  static constexpr bool orders_arrivals =
      requires(native_type n, const std::vector<block_access>& blocks) { n.order_after_arrival(blocks, true); };

  /// A launch between its report to the engine and the end of what is enqueued for it, however that ends.
  class open_launch {
   public:
    /// @param copies  It is a copy or fill of the library's own.
    open_launch(stream& on, std::string_view launch_name, launch_signature signature, std::span<const operand> operands,
                bool complete, bool copies = false)
        : owner_(on),
          copies_(copies) {
      if (!on.recording_ && on.arena_.order() == nullptr && on.arena_.new_memory() == nullptr) {
        refuse_capture(on, launch_name);
        launch_record record = record_of(launch_name, signature, complete);
        const launch_id id = on.arena_.submit(std::move(record), operands, on.declared_);
        begin(id, launch_name, on.declared_.operands, complete, nullptr, {});
        return;
      }
      on.arena_.name_operands(launch_name, operands, on.declared_.operands);
      if (on.recording_) {
        on.recording_->add(launch_name, on.declared_.operands, complete);
      } else {
        open(launch_name, signature, on.declared_.operands, complete);
      }
    }
    open_launch(stream& on, std::string_view launch_name, launch_signature signature,
                std::span<const named_operand> operands, bool complete)
        : owner_(on) {
      open(launch_name, signature, operands, complete);
    }
    ~open_launch() {
      if (id_.valid()) {
        spares_.not_written();
        owner_.arena_.engine().abandon(id_, owner_.id_);
        owner_.native_.end(id_);
      }
    }
    open_launch(const open_launch&) = delete;
    open_launch& operator=(const open_launch&) = delete;

    /// Invalid while a graph is recorded.
    [[nodiscard]] launch_id id() const { return id_; }
    /// The device has it: what it declares takes effect. In checked mode it has run when this returns.
    /// @returns  Its number.
    /// @errors   In checked mode what was found.
    launch_id issued() {
      const launch_id id = std::exchange(id_, {});
      if (id.valid()) {
        owner_.native_.end(id);
        spares_.written();
        if (check_) {
          check_->finish();
        }
      }
      return id;
    }

   private:
    [[nodiscard]] launch_record record_of(std::string_view name, launch_signature signature, bool complete) const {
      return {.stream = owner_.id_, .signature = signature, .complete = complete, .name = std::string(name)};
    }
    void open(std::string_view name, launch_signature signature, std::span<const named_operand> operands,
              bool complete) {
      stream& s = owner_;
      refuse_capture(s, name);
      if (s.arena_.order() != nullptr) {
        s.arena_.order()->refuse_after_failure();
      }
      if (detail::new_memory<arena<Memory>>* const fresh = s.arena_.new_memory()) {
        spares_ = fresh->before_launch(operands, complete);
      }
      launch_record record = record_of(name, signature, complete);
      s.arena_.declare(operands, s.declared_.blocks);
      record.accesses = s.declared_.blocks;
      detail::launch_order* const order = s.arena_.order() != nullptr && s.captured() ? nullptr : s.arena_.order();
      std::vector<block_access> allowed;
      if (order != nullptr) {
        s.arena_.engine().check(record);  // one that may touch anything declares it then
        allowed = record.accesses;
      }
      const launch_id id = s.arena_.submit(std::move(record), operands);
      begin(id, name, operands, complete, order, std::move(allowed));
    }
    /// The launch has been submitted: what is enqueued from now on is its own.
    /// @param order    In checked mode, where it is checked.
    /// @param allowed  What it may touch then.
    void begin(launch_id id, std::string_view name, std::span<const named_operand> operands, bool complete,
               detail::launch_order* order, std::vector<block_access> allowed) {
      stream& s = owner_;
      s.arena_.await_admission(id, s.id_, name, [&s] { return s.captured(); });
      try {
        if constexpr (orders_arrivals) {
          s.native_.order_after_arrival(s.declared_.blocks, complete);
        }
        if (order != nullptr) {
          check_.emplace(s.arena_, *order, std::pair(id, s.id_), s.native_, name, operands, std::move(allowed),
                         complete, copies_);
        }
      } catch (...) {  // a launch that is known has to end, or it holds its memory for ever
        spares_.not_written();
        s.arena_.engine().abandon(id, s.id_);
        s.native_.begin(id);
        s.native_.end(id);
        throw;
      }
      s.native_.begin(id);
      id_ = id;
    }
    /// A captured launch is executed later, when its needs are not known.
    static void refuse_capture([[maybe_unused]] stream& s, [[maybe_unused]] std::string_view name) {
      if constexpr (paged_memory_kind<Memory> && requires { s.native_.capturing(); }) {
        if (s.native_.capturing()) {
          throw error(status::unsupported, "launch '" + std::string(name) +
                                               "' while its stream is captured: on memory that never faults, record "
                                               "launches with stream::record_graph");
        }
      }
    }

    stream& owner_;
    const bool copies_ = false;
    launch_id id_{};  // until the device has it
    typename detail::new_memory<arena<Memory>>::spared spares_{};
    std::optional<detail::launch_check<arena<Memory>>> check_{};
  };
  struct recording {
    explicit recording(std::string_view graph) : name(graph), signature(graph) {}

    void add(std::string_view launch, std::span<const named_operand> named, bool declares_all) {
      signature.scalar(launch.data(), launch.size());
      for (const named_operand& o : named) {
        signature.operand(o.where.span.offset.count, o.where.span.size.count, o.mode);
      }
      operands.insert(operands.end(), named.begin(), named.end());
      complete = complete && declares_all;
    }

    std::string name;
    signature_builder signature;
    std::vector<named_operand> operands{};
    bool complete = true;
    std::vector<std::shared_ptr<const void>> keeps{};
    std::vector<std::unique_ptr<residency<Memory>>> kept{};  // what copies name
  };

  template <class... Parameters, class Kernel, class... Args>
  launch_id launch_as(detail::parameter_list<Parameters...> /*of the kernel*/, std::string_view name, dim grid,
                      dim block, unsigned shared, const Kernel& kernel, Args&&... args) {
    detail::argument_reader<sizeof...(Args)> reader(name);
    [[maybe_unused]] const auto offset_of = [&](const void* first_byte) {
      const std::optional<bytes> place = arena_.offset_of(first_byte);
      if (!place) {
        arena_.refuse_other_arena(name, "argument", reader.position(), first_byte);
      }
      return place;
    };
    (reader.template read<Parameters>(static_cast<const std::decay_t<Args>&>(args), offset_of), ...);
    open_launch opened(*this, name, reader.signature(), reader.operands(), reader.complete());
    native_.launch(grid, block, shared, kernel, detail::kernel_argument<Parameters>(std::forward<Args>(args))...);
    return opened.issued();
  }
  /// In checked mode what fails behind a launch that broke the device names that launch.
  template <class Call>
  void named(Call&& call) {
    try {
      call();
    } catch (const error&) {
      if (arena_.order() != nullptr) {
        arena_.order()->refuse_after_failure();
      }
      throw;
    }
  }
  /// Whether the program captures what is launched, which then runs later.
  [[nodiscard]] bool captured() const {
    if constexpr (requires { native_.capturing(); }) {
      return !paged_memory_kind<Memory> && native_.capturing();
    } else {
      return false;
    }
  }
  [[nodiscard]] launch_signature signature_of(std::string_view name, std::span<const operand> operands) const {
    signature_builder signature(name);
    for (const operand& o : operands) {
      detail::sign(signature, o, [this](const void* first_byte) { return arena_.offset_of(first_byte); });
    }
    return signature.finish();
  }
  /// There the budget bounds what a launch must have on the device as a whole.
  template <class Piece>
  launch_id in_pieces(const void* to, const void* from, bytes n, Piece&& piece) {
    bytes most = detail::bytes_of_elements<void>(n.count);  // all bytes is no size
    bool within_blocks = false;  // pieces end where blocks do: else one could touch two blocks on either side
    if constexpr (paged_memory_kind<Memory>) {
      const bytes block = arena_.block();
      const bytes budget = arena_.budget();
      most = std::max(block, block * (budget / (8 * block)));
      within_blocks = budget < 4 * block;
    }
    launch_id last{};
    for (bytes begin{}; begin < n;) {
      bytes size = std::min(most, n - begin);
      if (within_blocks) {
        size = std::min({size, most_of(nullptr, static_cast<const std::byte*>(to) + begin.count),
                         from == nullptr ? size : most_of(nullptr, static_cast<const std::byte*>(from) + begin.count)});
      }
      last = piece(begin, size);
      begin += size;
    }
    return last;
  }
  /// Whether what a piece of a copy touches fits the budget.
  [[nodiscard]] bool fit_together(const void* a, const void* b) const {
    if constexpr (paged_memory_kind<Memory>) {
      const std::optional<bytes> first = arena_.offset_of(a);
      const std::optional<bytes> second = arena_.offset_of(b);
      const bytes block = arena_.block();
      return !first || !second || *first / block == *second / block || arena_.budget() >= 2 * block;
    }
    return true;
  }
  /// Copies where a side lies in another arena whose memory never faults. Each of the arenas lends a piece at a time.
  launch_id memcpy_between(detail::lending_arena* to_other, std::byte* to, detail::lending_arena* from_other,
                           const std::byte* from, bytes n) {
    bool recorded = recording_.has_value();
    if constexpr (requires { native_.capturing(); }) {
      recorded = recorded || native_.capturing();
    }
    if (recorded) {
      throw error(status::unsupported,
                  "memcpy between arenas while its stream is captured: a graph can bring the memory of one arena only; "
                  "copy before or after the graph");
    }
    const auto key = detail::lending_arena::key_of(arena_.memory().owner());
    const bool staged = (to_other != nullptr && !(to_other->device() == key)) ||
                        (from_other != nullptr && !(from_other->device() == key));
    if (staged) {
      native_.synchronize();  // the other device does not wait for this stream
    }
    check_transfer("memcpy", to_other, {to, n, access::overwrite});
    check_transfer("memcpy", from_other, {from, n, access::read});
    launch_id last{};
    while (n.count != 0) {
      const bytes size = std::min({n, most_of(to_other, to), most_of(from_other, from), most_of(nullptr, to),
                                   most_of(nullptr, from), staged ? most_staged : n});
      last =
          staged ? copy_staged(to_other, to, from_other, from, size) : copy_lent(to_other, to, from_other, from, size);
      to += size.count;
      from += size.count;
      n -= size;
    }
    return last;
  }
  /// Work in pieces is checked as a whole before the first of them.
  void check_transfer(std::string_view name, detail::lending_arena* other, const operand& o) {
    if (other != nullptr) {
      other->check(name, o);
    } else if constexpr (paged_memory_kind<Memory>) {
      arena_.check_operand(name, o);
    }
  }
  /// How much may be copied from or to an address in one piece, so that it touches a part of its arena's budget.
  [[nodiscard]] bytes most_of(const detail::lending_arena* other, const void* p) {
    bytes most = operand::whole;
    bytes block{1};
    if (other != nullptr) {
      most = other->most();
      block = other->block();
    } else if (paged_memory_kind<Memory> && arena_.contains(p)) {
      block = arena_.block();
      most = std::max(block, block * (arena_.budget() / (8 * block)));
    }
    return most - bytes{reinterpret_cast<std::uintptr_t>(p) % block.count};
  }
  /// All arenas are on this device: they keep what they lend until the copy is done.
  launch_id copy_lent(detail::lending_arena* to_other, std::byte* to, detail::lending_arena* from_other,
                      const std::byte* from, bytes n) {
    const operand written{to, n, access::overwrite};
    const operand read{from, n, access::read};
    struct part {
      detail::lending_arena* lender = nullptr;  // none: this arena
      std::vector<operand> operands{};
    };
    std::vector<part> parts{{.lender = nullptr, .operands = {}}};
    const auto add = [&](detail::lending_arena* lender, const operand& each) {
      const auto it =
          std::find_if(parts.begin(), parts.end(), [&](const part& each_part) { return each_part.lender == lender; });
      (it != parts.end() ? *it : parts.emplace_back(part{lender, {}})).operands.push_back(each);
    };
    add(to_other, written);
    add(from_other, read);
    // In one order in all threads, so that two of them do not wait for what the other one has been lent.
    const auto place = [this](const part& each_part) -> const void* {
      return each_part.lender != nullptr ? each_part.lender : arena_.lends_as();
    };
    std::sort(parts.begin(), parts.end(),
              [&](const part& earlier, const part& later) { return std::less<>()(place(earlier), place(later)); });
    launch_id made{};
    const auto with_all_from = [&](auto&& self, std::size_t next_part) -> void {
      if (next_part == parts.size()) {
        native_.copy(to, from, n.count);
        native_.synchronize();
      } else if (parts[next_part].lender != nullptr) {
        parts[next_part].lender->lend("memcpy", parts[next_part].operands, [&] { self(self, next_part + 1); });
      } else {
        made = transfer("memcpy", parts[next_part].operands, [&] { self(self, next_part + 1); });
      }
    };
    with_all_from(with_all_from, 0);
    return made;
  }
  /// By way of the host: the other device does not reach this one's memory, or the budget has no room for both sides.
  launch_id copy_staged(detail::lending_arena* to_other, std::byte* to, detail::lending_arena* from_other,
                        const std::byte* from, bytes n) {
    std::vector<std::byte> stage(n.count);
    launch_id made{};
    if (from_other != nullptr) {
      from_other->copy("memcpy", stage.data(), from, n);
    } else {
      made = memcpy(stage.data(), from, n);
      native_.synchronize();
    }
    if (to_other != nullptr) {
      to_other->copy("memcpy", to, stage.data(), n);
    } else {
      made = memcpy(to, stage.data(), n);
      native_.synchronize();
    }
    return made;
  }
  /// The runtime takes a copy into a graph only where it finds the memory. So all of it is there until the graph is
  /// made.
  template <class Enqueue>
  void record_transfer([[maybe_unused]] std::span<const operand> operands, Enqueue&& enqueue) {
    if constexpr (paged_memory_kind<Memory>) {
      launch_record graph;
      graph.name = recording_->name;
      arena_.declare(recording_->operands, graph.accesses);
      arena_.engine().check(graph);  // else what is kept of it would wait for what is kept of it
      std::vector<operand> kept;
      for (const operand& o : operands) {
        if (arena_.contains(o.address)) {
          kept.push_back({o.address, o.size, access::read});
        }
      }
      recording_->kept.push_back(std::make_unique<residency<Memory>>(arena_, kept));
      arena_.declare(declared_.operands, declared_.blocks);
      const detail::access_for access(arena_.memory(), declared_.blocks, arena_.order() != nullptr);
      enqueue();
    } else {
      enqueue();
    }
  }
  template <class Enqueue>
  launch_id transfer(std::string_view name, std::span<const operand> operands, Enqueue&& enqueue) {
    open_launch opened(*this, name, signature_of(name, operands), operands, true, true);
    if (recording_) {
      record_transfer(operands, enqueue);
    } else {
      enqueue();
    }
    return opened.issued();
  }

  static constexpr bytes most_staged{std::uint64_t{64} << 20};

  arena<Memory>& arena_;
  native_type native_;
  stream_id id_;
  declaration declared_{};  // by the launch that is being opened
  std::optional<recording> recording_{};
};

}  // namespace v0
}  // namespace deepum
