#pragma once

#include <deepum/arena.hpp>
#include <deepum/arena/argument_reader.hpp>
#include <deepum/arena/device_queue.hpp>
#include <deepum/arena/enqueuing.hpp>
#include <deepum/arena/kernel_arguments.hpp>
#include <deepum/arena/recorded_graph.hpp>
#include <deepum/arena/run_in_slices.hpp>
#include <deepum/arena/slice_arguments.hpp>
#include <deepum/arena/sliced_launches.hpp>
#include <deepum/arena/stream_copies.hpp>
#include <deepum/arena/stream_launches.hpp>
#include <deepum/arena/stream_uploads.hpp>
#include <deepum/core/launch.hpp>
#include <deepum/dim.hpp>
#include <deepum/error.hpp>
#include <deepum/operand.hpp>
#include <deepum/slices.hpp>
#include <deepum/units.hpp>
#include <deepum/upload_calls.hpp>

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>

namespace deepum {
inline namespace v0 {

/// How a stream is set up.
struct stream_options {
  std::optional<std::uint32_t> lookahead{};  ///< degree N: launches ahead to prefetch for; nothing: the policy's own
  /// Ordered with the legacy default stream (`cudaStreamLegacy`, the stream of `kernel<<<grid, block>>>`): each waits
  /// for what was enqueued in the other before. Else the two are not ordered, as with `cudaStreamNonBlocking`. On the
  /// simulated GPU, which has no default stream, it means nothing.
  bool blocking = false;
  /// On a stream that the program has: all that is enqueued there goes through this object, so that ends of launches
  /// need not be marked more often than in a stream of its own. `cudaStreamPerThread` may be taken then, by the thread
  /// that alone uses this object and ends it.
  bool sole = false;
};

/// A stream of launches whose memory the arena moves ahead of them.
///
/// Threads: one at a time for each stream; different streams from different threads at once. Ends with a
/// synchronisation.
///
///     deepum::stream s{arena, {.lookahead = 32}};
///     s.launch("relu", grid, block, 0, relu_kernel, y, x, n);
template <memory_kind Memory>
class stream : public detail::upload_calls<stream<Memory>> {
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
        alone_(true),
        launches_(memory_of.rooms(), queue_, memory_of.rooms().back.open_stream(chosen.lookahead)) {}
  /// On a stream that the program has, the default stream too: launches keep their order with all that the program
  /// enqueues there itself. Of that the library sees nothing: on memory that never faults it has to go through `call`,
  /// and `mark_inactive`, `discard` and `deallocate` wait for launches of the library alone.
  /// @param existing  A stream of the arena's device. Not owned: it outlives this, which ends with a synchronisation.
  /// @errors  As above; `status::invalid_argument` for a simulated stream of other memory.
  template <class Existing>
    requires std::convertible_to<Existing, handle_type>
  stream(arena<Memory>& owner, Existing&& existing, stream_options options = {})
      : arena_(owner),
        native_(owner.memory(), static_cast<handle_type>(std::forward<Existing>(existing)), options.sole),
        alone_(options.sole),
        launches_(owner.rooms(), queue_, owner.rooms().back.open_stream(options.lookahead)) {}
  /// Waits for all launches. Their errors are lost here: synchronise before, where that matters.
  ~stream() {
    uploads_.end();
    try {
      native_.synchronize();
    } catch (...) {  // NOLINT(bugprone-empty-catch): a destructor cannot report it
    }
    arena_.rooms().front.retire(id());
    arena_.rooms().back.close_stream(id());
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

  /// @name Launches in slices
  /// Where the operands of a launch are more than the budget, it runs as several launches, each of a part of the grid
  /// or of the elements, that fits beside what the next one needs. One that fits is one launch, and is not slower.
  /// Inside `record_graph` it is one launch too, and so it is where the arguments may hide pointers.
  /// @{

  /// Launches a kernel of `sliced`. Its arguments are those behind the `grid_slice`; operands say by `by_x`, `by_y`,
  /// `by_z` or `by_slice` which part of them a thread block touches. Others are taken to be touched everywhere.
  /// @returns  The last of the launches.
  /// @errors   Those of `launch`, and those of the descriptions (see `by_x`); `status::out_of_device_memory` where
  ///           memory never faults and not even the smallest slice fits. Then nothing was launched.
  template <class Kernel, class... Args>
  launch_id launch(std::string_view name, dim grid, dim block, unsigned shared, const sliced_kernel<Kernel>& kernel,
                   Args&&... args) {
    using behind = detail::parameters_behind_slice<detail::kernel_parameters<Kernel>>;
    if constexpr (behind::fit) {
      using arguments = detail::launch_arguments<typename behind::type, detail::whole_argument_type<Args>...>;
      if constexpr (arguments::fit) {
        return launch_sliced(typename arguments::parameters{}, name, grid, block, shared, kernel.kernel,
                             std::forward<Args>(args)...);
      } else {
        arguments::refuse(std::index_sequence_for<Args...>{});  // does not compile, and says why
      }
    } else {
      detail::kernel_of_sliced_launch_does_not_take_a_grid_slice_first<Kernel>();
    }
    return {};
  }

  /// Launches a kernel that does the same to each element of some arrays: AdamW on weights, gradients and moments. Each
  /// piece gets pointers to its own elements, and its number of elements where `piece_size` is written:
  ///
  ///     s.launch_in_pieces("scale", {.elements = n}, scale, deepum::updates(w, n), 2.0F, deepum::piece_size);
  ///
  /// @param work    Its elements, and how many a thread block computes. Pieces begin at multiples of 256 elements.
  /// @param kernel  An ordinary one; its grid is as large as the elements of a piece need.
  /// @param args    Arrays as `reads(p, n)`, `updates(p, n)` or `overwrites(p, n)`, where n is the number of elements
  /// or
  ///                a multiple of it; `everywhere(p)` for what all elements look up; scalars.
  /// @returns       The last of the launches; invalid where there are no elements.
  /// @errors        Those of `launch`; `status::invalid_argument` for a pointer into the arena that is none of these.
  template <class Kernel, class... Args>
  launch_id launch_in_pieces(std::string_view name, const elementwise& work, const Kernel& kernel, Args&&... args) {
    using arguments = detail::launch_arguments<detail::kernel_parameters<Kernel>, detail::whole_argument_type<Args>...>;
    if constexpr (arguments::fit) {
      if (work.elements == 0) {
        return {};
      }
      const detail::pieces_of pieces(name, work);
      return [&]<std::size_t... I>(std::index_sequence<I...>) {
        return launch_pieces(
            typename arguments::parameters{}, pieces, kernel,
            pieces.described(static_cast<const std::decay_t<Args>&>(args), I + 1, launches_.rooms.front)...);
      }(std::index_sequence_for<Args...>{});
    } else {
      arguments::refuse(std::index_sequence_for<Args...>{});  // does not compile, and says why
      return {};
    }
  }
  /// @}

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
    detail::open_launch opened(launches_, name, launches_.signature_of(name, operands), operands, !operands.empty());
    const detail::enqueuing during(&arena_.rooms().back, opened.id(), id());
    std::forward<Enqueue>(enqueue)(native_.native());
    return opened.issued();
  }

  /// The same for who knows the launch by other means than its arguments' types: with a signature of its own, and
  /// operands that need not be all that it touches.
  /// @param complete  They are.
  template <class Enqueue>
  launch_id call(std::string_view name, launch_signature signature, std::span<const operand> operands, bool complete,
                 Enqueue&& enqueue) {
    detail::open_launch opened(launches_, name, signature, operands, complete);
    const detail::enqueuing during(&arena_.rooms().back, opened.id(), id());
    std::forward<Enqueue>(enqueue)(native_.native());
    return opened.issued();
  }

  /// @name Allocation in stream order
  /// As `cudaMallocAsync` and `cudaFreeAsync`: memory that was given back in this stream's order is used again by it at
  /// once, by a fit that depends on its own calls alone, so that a step that recurs gets the same addresses. Other
  /// streams, and the arena, get it when there is no other room, behind the launches that were issued before.
  /// @{

  /// Memory that launches of this stream use first, or what is ordered behind them by events.
  /// @errors  Those of `arena::allocate_bytes`. With `arena_options::zero_new` it is `arena::allocate_bytes`.
  [[nodiscard]] void* allocate_bytes(bytes size, bytes alignment = range_allocator::granularity) {
    return arena_.rooms().front.allocate(size, alignment, id());
  }
  /// Gives memory back behind all that was launched on this stream, wherever it was allocated. Its contents are of no
  /// value behind the launches that were issued before, on any stream.
  /// @errors  Those of `arena::deallocate`. Uses on other streams have to be ordered before this, by events.
  void deallocate(const void* p) { arena_.rooms().front.deallocate(p, id()); }
  /// @}

  /// Copies bytes in stream order; either side may lie outside the arena. A launch of its own; several where the memory
  /// never faults and the budget is small. Memory of another arena that never faults is brought and kept there while it
  /// is copied, by launches of that arena: then the call returns when the copy is done, and it cannot be recorded. 8
  /// MiB and more of pageable memory outside of all arenas go the way of `upload`.
  /// @returns  The last one.
  /// @errors   Those of a launch, of the other arena too.
  launch_id memcpy(void* to, const void* from, bytes n) {
    if (uploads_.is_worth(to, n) && this->may_be_uploaded(from)) {
      return uploads_.upload(to, detail::upload_source(from), n, true)->id;
    }
    return copies_.memcpy(to, from, n);
  }
  /// `memcpy`, and returns when the copy is done, as `cudaMemcpy` does: behind what this stream holds, and behind
  /// nothing else.
  /// @errors  Those of `memcpy` and of `synchronize`; `status::unsupported` while a graph is recorded.
  launch_id memcpy_and_wait(void* to, const void* from, bytes n) {
    if (launches_.recorded) {
      throw error(status::unsupported, "a graph cannot record that the host waits for a copy; record memcpy");
    }
    const launch_id last = memcpy(to, from, n);
    synchronize();
    return last;
  }
  /// Sets bytes in stream order. A launch of its own, or several, as `memcpy`.
  launch_id memset(void* to, int value, bytes n) { return copies_.memset(to, value, n); }

  /// Launches of this stream belong to a layer of a net until what this returns ends, copies and graphs too: a fact for
  /// the policies `vdnn` and `vdnn_ext`, which others ignore. At most one layer is open on each stream. Where several
  /// streams have layers, those run in the order of their first launches.
  /// @errors  `status::invalid_argument` within another layer of this stream, and for the input of a backward pass;
  ///          `status::unsupported` while a graph is recorded, which is one launch; those of operands, as `launch`.
  ///
  ///     const auto at = s.layer({.layer = 3, .kind = deepum::layer_kind::conv, .input = {deepum::reads(x, n)}});
  [[nodiscard]] in_layer layer(const named_layer& what) { return launches_.layer(what); }

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
    std::optional<detail::recording>& recorded = launches_.recorded;
    recorded.emplace(name);
    try {
      std::forward<Body>(body)();
    } catch (...) {
      recorded.reset();
      native_.abandon_capture();
      throw;
    }
    made.signature = recorded->signature.finish();
    made.operands = std::move(recorded->operands);
    made.complete = recorded->complete;
    made.keeps = std::move(recorded->keeps);
    const auto kept = std::move(recorded->kept);  // until the graph is made
    recorded.reset();
    made.native = native_.end_capture();
    return made;
  }
  /// The graph that is being recorded keeps this until it ends: memory that its launches use and the program does not
  /// know of.
  /// @returns  Whether one is being recorded.
  bool keep_in_graph(std::shared_ptr<const void> what) {
    if (!launches_.recorded) {
      return false;
    }
    if (std::find(launches_.recorded->keeps.begin(), launches_.recorded->keeps.end(), what) ==
        launches_.recorded->keeps.end()) {
      launches_.recorded->keeps.push_back(std::move(what));
    }
    return true;
  }
  /// Runs what was recorded, as one launch. Its operands are those of the time when it was recorded.
  /// @errors  Those of a launch. `status::invalid_argument` where memory that it uses was given back since.
  template <class Native>
  launch_id launch(const recorded_graph<Native>& graph) {
    arena_.rooms().launches.check_recorded(graph.name, graph.operands);
    detail::open_launch opened(launches_, graph.name, graph.signature, std::span<const named_operand>(graph.operands),
                               graph.complete);
    native_.launch(graph.native);
    return opened.issued();
  }
  /// @}

  /// Records an event behind what was launched.
  void record(event_type& e) {
    launches_.named([&] { native_.record(e); });
  }
  /// Work launched from now on starts when `e`, as it was last recorded, has been reached.
  void wait(event_type& e) {
    launches_.named([&] { native_.wait(e); });
  }
  /// Waits for all that was launched, and for uploads.
  /// @errors  Those of the device.
  void synchronize() {
    launches_.named([&] {
      uploads_.await();
      native_.synchronize();
    });
  }

  /// The device's own stream.
  [[nodiscard]] native_type& native() { return native_; }
  /// Its number in the arena, as observers see it.
  [[nodiscard]] stream_id id() const { return launches_.id; }

 private:
  template <class... Parameters, class Kernel, class... Args>
  launch_id launch_as(detail::parameter_list<Parameters...> /*of the kernel*/, std::string_view name, dim grid,
                      dim block, unsigned shared, const Kernel& kernel, Args&&... args) {
    detail::argument_reader<sizeof...(Args)> reader(name);
    [[maybe_unused]] const auto offset_of = [&](const void* first_byte) {
      return launches_.offset_of_argument(name, reader.position(), first_byte);
    };
    (reader.template read<Parameters>(static_cast<const std::decay_t<Args>&>(args), offset_of), ...);
    detail::open_launch opened(launches_, name, reader.signature(), reader.operands(), reader.complete());
    native_.launch(grid, block, shared, kernel, detail::kernel_argument<Parameters>(std::forward<Args>(args))...);
    return opened.issued();
  }

  template <class... Parameters, class Kernel, class... Args>
  launch_id launch_sliced(detail::parameter_list<Parameters...> types, std::string_view name, dim grid, dim block,
                          unsigned shared, const Kernel& kernel, Args&&... args) {
    detail::check_shapes(name, grid, args...);
    return detail::run_in_slices(
        launches_, slices_, types, name, detail::slices_of{grid},
        [&](const grid_slice& slice, const auto&... /*own*/) {
          native_.launch(slice.blocks, block, shared, kernel, slice,
                         detail::kernel_argument<Parameters>(detail::whole_argument(std::forward<Args>(args)))...);
        },
        args...);
  }
  template <class... Parameters, class Kernel, class... Args>
  launch_id launch_pieces(detail::parameter_list<Parameters...> types, const detail::pieces_of& pieces,
                          const Kernel& kernel, const Args&... args) {
    return detail::run_in_slices(
        launches_, slices_, types, pieces.name(), pieces,
        [&](const grid_slice& piece, auto&&... own) {
          native_.launch(pieces.grid_of(piece), pieces.threads(), pieces.shared(), kernel,
                         detail::kernel_argument<Parameters>(std::move(own))...);
        },
        args...);
  }
  friend class detail::upload_calls<stream<Memory>>;

  arena<Memory>& arena_;
  native_type native_;
  const bool alone_;  // all that is enqueued in it goes through this
  detail::device_queue_of<native_type&> queue_{native_};
  detail::stream_launches launches_;
  detail::sliced_launches slices_{launches_};
  detail::stream_copies copies_{launches_};
  detail::stream_uploads uploads_{launches_, copies_};
};

}  // namespace v0
}  // namespace deepum
