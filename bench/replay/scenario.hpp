#pragma once

#include "replay/program.hpp"
#include "replay/workload.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

namespace deepum::replay {

struct scenario_options {
  std::size_t steps = 8;       ///< of a regime; at least 1
  std::uint64_t seed = 1;      ///< of what is random; the same seed gives the same program
  std::size_t validation = 4;  ///< a validation follows every so many steps; at least 1
};

/// The names that `make_scenario` knows.
[[nodiscard]] std::span<const std::string_view> scenario_names();

/// A program in which something changes while a model runs.
///
/// Everything is derived from one workload. What changes is described anew, launch by launch, and goes through the same
/// analysis as a file. With n for `options.steps`:
///
/// * `steady`: nothing changes. 3n steps.
/// * `batch`: n steps, n of half the batch, n as before, n of three quarters of the batch. Tensors that do not persist
///   shrink, except gradients: those that a launch uses to update a tensor of the same size that persists. Launches
///   that use what shrinks take that part of their time, and look up that part of the blocks. An allocator places anew
///   what does not persist.
/// * `validation`: 3n steps, and a forward pass after every `options.validation` of them. The forward pass is the step
/// up to
///   the launch where the most bytes are alive, without writes to what persists and without launches that write nothing
///   else; tensors are freed after their last use in it, and placed anew by an allocator.
/// * `two_models`: the workload on stream 0, and on stream 1 one with tensors of half the size and launches of half the
///   time at other addresses. Orders 001011, then 1001, then a random one, 2n steps of each, or as many more as
///   complete the order.
/// * `growth`: n steps, then 2n of the model with one more layer. The layer is a sixteenth of the launches of the
/// forward
///   pass, in its middle, and the later launches that use what these leave behind, if those are close together: the
///   layer's part of the backward pass. Both stretches run twice in a row, the second time with weights and results of
///   their own behind the end of the address space, and with the inputs of the first. No optimiser updates the new
///   weights.
/// * `reuse`: n steps, n with tensors that do not persist at other addresses, n with them at others again. Stretches of
///   blocks that tensors share trade places, and once are mirrored as well, so that blocks hold other tensors than
///   before. Blocks that hold something that persists stay.
/// * `random`: n steps, n with the launches of each in a random order of its own, n as before. A launch that is the
/// first
///   to name a tensor that does not persist stays before all others that do. Tensors are freed after their last use and
///   placed anew by an allocator.
/// * `lookups`: steps that differ in the blocks that they look up. 3n steps of a workload with data-dependent accesses;
///   another one does n steps as it is, and 2n in which each uses a random eighth of the blocks of the largest tensor
///   that persists.
///
/// Placed anew means: best fit among what is free, no block with a tensor that persists, tensors of a block or more on
/// whole blocks, smaller ones in blocks of their own. Where no address of the workload is used twice, none is here;
/// then tensors that keep their size keep their address too.
///
/// Turns are of one regime where they run the same workload; those in random orders are one regime.
/// @param base  Built by `build_workload`, so that it has its description.
/// @errors      `status::invalid_argument`: no such scenario, or one that cannot be made of this workload.
[[nodiscard]] program make_scenario(std::string_view name, std::shared_ptr<const workload> base,
                                    const scenario_options& options);

}  // namespace deepum::replay
