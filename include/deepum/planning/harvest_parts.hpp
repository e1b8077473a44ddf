#pragma once

#include <deepum/cxx20.hpp>

#include <cstdint>

namespace deepum {
inline namespace v0 {

/// The techniques of memHarvester (ATC'22, figure 7), to be left out one by one. Its large pages (LP) are no choice
/// here: what is copied to the host is a whole block in any case.
struct harvest_parts {
  /// Where the prefetcher brings what it expects.
  enum class prefetcher : std::uint8_t {
    none,
    local,       ///< LPF: to the device, wherever it is
    multi_path,  ///< MPF: what the host has to a neighbour, what a neighbour has to the device, both at once
  };

  bool neighbours = true;                        ///< H: what leaves goes to a neighbour that has room
  bool pre_evict = true;                         ///< PE: room for `reserve` blocks before it is needed
  bool parallel_faults = true;                   ///< PLF: the end of what a launch misses comes by a neighbour
  prefetcher prefetch = prefetcher::multi_path;  ///< LPF, MPF
  std::uint32_t reserve = 50;                    ///< blocks that are kept free; at most an eighth of the budget
  std::uint32_t ahead = 16;                      ///< blocks that are prefetched
  std::uint32_t stride = 2;                      ///< every so many blocks
  std::uint32_t harvesters = 1;  ///< arenas that use these neighbours; more than neighbours: MPF does what LPF does
};

}  // namespace v0
}  // namespace deepum
