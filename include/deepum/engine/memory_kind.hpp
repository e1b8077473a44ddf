#pragma once

#include <deepum/engine/memory_space.hpp>

#include <concepts>

namespace deepum {
inline namespace v0 {

/// The memory of an arena, as its typed face sees it: a space that says at compile time what it can do, so that a face
/// offers no call that its memory cannot serve.
///
/// A memory kind also names its `device_type`, `stream_type` and `event_type`. It may name a `capture_guard`: while one
/// lives, what its thread does is part of no capture of the program's.
template <class M>
concept memory_kind = std::derived_from<M, memory_space> && requires {
  { M::traits } -> std::convertible_to<memory_capabilities>;
};

/// Memory that the engine pages: nothing else moves it (`memory_capabilities::faults`).
template <class M>
concept paged_memory_kind = memory_kind<M> && !M::traits.faults;

/// The old name, for one version.
template <class M>
concept faultless_memory_kind = paged_memory_kind<M>;

}  // namespace v0
}  // namespace deepum
