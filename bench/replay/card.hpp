#pragma once

#include "replay/machine.hpp"
#include "replay/workload.hpp"
#include <deepum/sim/profile.hpp>
#include <deepum/units.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace deepum::replay {

/// What a replay on the card of a profile costs.
///
/// Faults are served as `sim::fault_service` serves a kernel that streams through a block: what a block has of a batch,
/// of the block itself and of its pages, in a row, before its copy (and the eviction, unless `fault_overlap` is set).
/// @param home_copy  The rates of explicit copies, as paged memory makes them; else those of the driver of managed
///                   memory.
/// @param entries_per_block  Fault records that the driver reads for a block of 2 MiB; 0: as the profile has them.
[[nodiscard]] link_costs costs_on(const sim::profile& card, bool home_copy, double entries_per_block = 0);

/// Launches of one kind, before and after `on_card`.
struct scaled_kernels {
  std::string kernel{};
  std::uint32_t launches = 0;
  nanoseconds recorded{};
  nanoseconds scaled{};
  std::uint32_t by_products = 0;  ///< launches whose time comes from their multiplications, not from their bytes

  [[nodiscard]] double factor() const {
    return recorded.count() == 0 ? 1 : static_cast<double>(scaled.count()) / static_cast<double>(recorded.count());
  }
};

/// The products of a launch, out of its operands' sizes: of `mm`, `addmm` and `convolution` (forward and backward), as
/// PyTorch names them. With operands of m k, k n and m n elements that is m k n, the root of their product; so it is
/// for convolutions of stride and filter 1. For a filter of 3 by 3 it counts a third of the products, which is about
/// what is left of them by Winograd's method. Nothing for other kernels.
/// @returns  Multiplications, each with one addition.
[[nodiscard]] std::optional<double> products_of(std::string_view kernel, const std::vector<double>& read_elements,
                                                double written_elements);

/// The workload with the times that its launches would have on another card, by roofline.
///
/// A launch that is limited by its bytes takes longer by the ratio of the memories' rates. One whose products are known
/// takes, where that is longer, two operations each at the rate of `to`, `peak_flops * flops_efficiency`. Kernels of
/// the convolutional and dense layers of the G10 simulator, which names no sizes, go by the ratio of those rates. The
/// part of a time that is the latency of a launch stays.
/// @param from     The card on which it was recorded.
/// @param latency  Of each launch, at most its time.
/// @param kinds    Takes what was done, by kernel, the longest first; null: nobody.
[[nodiscard]] workload_description on_card(const workload& of, const sim::profile& from, const sim::profile& to,
                                           nanoseconds latency, std::vector<scaled_kernels>* kinds);

}  // namespace deepum::replay
