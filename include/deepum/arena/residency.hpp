#pragma once

#include <deepum/arena/back.hpp>
#include <deepum/arena/rooms.hpp>
#include <deepum/core/launch.hpp>
#include <deepum/engine/memory_kind.hpp>
#include <deepum/operand.hpp>

#include <memory>
#include <span>

namespace deepum {
inline namespace v0 {

template <memory_kind Memory>
class arena;

namespace detail {

/// What `residency` is, whatever the memory kind.
class held_operands {
 public:
  held_operands(arena_rooms& of, std::span<const operand> operands);
  ~held_operands();
  held_operands(const held_operands&) = delete;
  held_operands& operator=(const held_operands&) = delete;

 private:
  std::unique_ptr<device_queue> marker_;  // tells the engine of the end, as launches do
  arena_back& back_;
  stream_id stream_;
  launch_id id_{};
};

}  // namespace detail

/// Memory that stays on the device for as long as this lives. Made by `arena::hold`.
///
/// It is a launch of its own to the policy, one that begins when all of it is there and finishes when this ends. On
/// memory that faults it is a hint: nothing can be kept from leaving there.
template <memory_kind Memory>
class residency {
 public:
  /// See `arena::hold`.
  residency(arena<Memory>& owner, std::span<const operand> operands) : held_(owner.rooms(), operands) {}
  residency(const residency&) = delete;
  residency& operator=(const residency&) = delete;

 private:
  detail::held_operands held_;
};

}  // namespace v0
}  // namespace deepum

#ifndef DEEPUM_SEPARATE_COMPILATION
#include <deepum/arena/impl/residency.hpp>  // what it declares
#endif
