#pragma once

#include <deepum/arena/argument_reader.hpp>
#include <deepum/arena/byte_interval.hpp>
#include <deepum/arena/checker.hpp>
#include <deepum/arena/declaration.hpp>
#include <deepum/arena/device_queue.hpp>
#include <deepum/arena/layer_scopes.hpp>
#include <deepum/arena/new_memory.hpp>
#include <deepum/arena/residency.hpp>
#include <deepum/arena/rooms.hpp>
#include <deepum/core/launch.hpp>
#include <deepum/core/signature.hpp>
#include <deepum/operand.hpp>
#include <deepum/units.hpp>

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace deepum {
inline namespace v0 {
namespace detail {

/// Launches that a stream records instead of running them: to the policy they are one.
struct recording {
  explicit recording(std::string_view graph) : name(graph), signature(graph) {}

  void add(std::string_view launch, std::span<const named_operand> named, bool declares_all);

  std::string name;
  signature_builder signature;
  std::vector<named_operand> operands{};
  bool complete = true;
  std::vector<std::shared_ptr<const void>> keeps{};
  std::vector<std::unique_ptr<held_operands>> kept{};  // what copies name
};

/// The launches of one stream, whatever the memory kind. `open_launch` makes them.
///
/// Threads: one at a time.
struct stream_launches {
  stream_launches(arena_rooms& of, device_queue& on, stream_id number) : rooms(of), queue(on), id(number) {}
  stream_launches(const stream_launches&) = delete;
  stream_launches& operator=(const stream_launches&) = delete;

  /// See `stream::layer`.
  [[nodiscard]] in_layer layer(const named_layer& what);
  [[nodiscard]] launch_signature signature_of(std::string_view name, std::span<const operand> operands) const;
  /// Where an argument of a launch lies in the arena; nothing where it does not.
  /// @param position  Of the argument, counted from 1.
  /// @errors          Those of an argument that lies in another arena.
  [[nodiscard]] std::optional<bytes> offset_of_argument(std::string_view name, std::size_t position,
                                                        const void* first_byte) const {
    const std::optional<bytes> place = rooms.front.offset_of(first_byte);
    if (!place) {
      rooms.launches.refuse_other_arena(name, "argument", position, first_byte);
    }
    return place;
  }
  /// Whether the program captures what is launched, which then runs later.
  [[nodiscard]] bool captured() const { return rooms.back.faults() && queue.capturing(); }
  /// In checked mode what fails behind a launch that broke the device names that launch.
  /// @errors  `status::device_failure`, which names it, where one has.
  void accuse() const {
    if (rooms.order) {
      rooms.order->refuse_after_failure();
    }
  }
  /// Runs `call()`, and names a launch that broke the device before it.
  template <class Call>
  void named(Call&& call) const {
    try {
      call();
    } catch (const error&) {
      accuse();
      throw;
    }
  }

  arena_rooms& rooms;
  device_queue& queue;
  const stream_id id;
  declaration declared{};  // by the launch that is being opened
  std::optional<recording> recorded{};
  std::shared_ptr<layer_scopes> layers{};  // none: no layer was named
};

/// A launch between its report to the engine and the end of what is enqueued for it, however that ends.
class open_launch {
 public:
  /// @param copies  It is a copy or fill of the library's own.
  /// @param sliced  Where it is a slice of a launch, in checked mode: all that the whole launch has described.
  open_launch(stream_launches& on, std::string_view launch_name, launch_signature signature,
              std::span<const operand> operands, bool complete, bool copies = false,
              std::span<const byte_interval> sliced = {});
  open_launch(stream_launches& on, std::string_view launch_name, launch_signature signature,
              std::span<const named_operand> operands, bool complete);
  ~open_launch() {
    if (id_.valid()) [[unlikely]] {
      give_up();
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
    const launch_id made = std::exchange(id_, {});
    if (made.valid()) [[likely]] {
      owner_.queue.end(made);
      spares_.written();
      if (check_) {
        check_->finish();
      }
    }
    return made;
  }

 private:
  /// What is checked of a launch in checked mode.
  struct checked_part {
    launch_order& order;
    std::span<const named_operand> operands;
    std::vector<block_access> allowed;  // it may touch nothing else
  };

  [[nodiscard]] launch_record record_of(std::string_view name, launch_signature signature, bool complete) const;
  void open(std::string_view name, launch_signature signature, std::span<const named_operand> operands, bool complete);
  /// The launch has been submitted: what is enqueued from now on is its own.
  /// @param part  Null where it is not checked.
  void begin(launch_id submitted, std::string_view name, bool complete, checked_part* part);
  /// It was not issued.
  void give_up();
  /// A captured launch is executed later, when its needs are not known.
  void refuse_capture(std::string_view name) const;

  stream_launches& owner_;
  const bool copies_ = false;
  const std::span<const byte_interval> sliced_{};
  launch_id id_{};  // until the device has it
  new_memory::spared spares_{};
  std::unique_ptr<launch_check> check_{};
};

}  // namespace detail
}  // namespace v0
}  // namespace deepum

#ifndef DEEPUM_SEPARATE_COMPILATION
#include <deepum/arena/impl/stream_launches.hpp>  // what it declares
#endif
