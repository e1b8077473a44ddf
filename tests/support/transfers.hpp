#pragma once

#include <deepum/engine/memory_space.hpp>

#include <cstdint>

namespace deepum_test {

/// @name What an engine starts on a memory space, with the places of one device
/// @{
inline bool start(deepum::memory_space& memory, deepum::transfer t, deepum::location from, std::uint64_t ticket) {
  t.from = from;
  return memory.start(t, ticket);
}
inline bool prefetch(deepum::memory_space& memory, deepum::block_range blocks, std::uint64_t ticket) {
  return start(memory, deepum::transfer::prefetch(deepum::location::device(), deepum::reason::predicted, blocks),
               deepum::location::host(), ticket);
}
inline bool populate(deepum::memory_space& memory, deepum::block_range blocks, std::uint64_t ticket) {
  return start(memory, deepum::transfer::populate(deepum::location::device(), deepum::reason::predicted, blocks),
               deepum::location::device(), ticket);
}
inline bool evict(deepum::memory_space& memory, deepum::block_range blocks, std::uint64_t ticket) {
  return start(memory, deepum::transfer::evict(deepum::location::host(), deepum::reason::make_room, blocks),
               deepum::location::device(), ticket);
}
inline bool clean(deepum::memory_space& memory, deepum::block_range blocks, std::uint64_t ticket) {
  return start(memory, deepum::transfer::clean(deepum::reason::write_back, blocks), deepum::location::device(), ticket);
}
inline bool drop(deepum::memory_space& memory, deepum::block_range blocks, std::uint64_t ticket) {
  return start(memory, deepum::transfer::drop(deepum::reason::make_room, blocks), deepum::location::device(), ticket);
}
inline bool discard(deepum::memory_space& memory, deepum::block_range blocks, std::uint64_t ticket) {
  return start(memory, deepum::transfer::discard(deepum::reason::dead, blocks), deepum::location::device(), ticket);
}
/// @}

}  // namespace deepum_test
