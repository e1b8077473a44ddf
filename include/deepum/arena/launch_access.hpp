#pragma once

#include <deepum/core/launch.hpp>
#include <deepum/engine/engine.hpp>
#include <deepum/engine/memory_space.hpp>

#include <span>
#include <utility>
#include <vector>

namespace deepum {
inline namespace v0 {
namespace detail {

/// For as long as it lives, launches find these blocks. They find them anyway out of checked mode, and where memory is
/// not guarded.
class access_for {
 public:
  /// @param checked  Whether the arena is in checked mode.
  access_for(memory_space& space, std::vector<block_access> wanted, bool checked)
      : memory_(checked ? &space : nullptr),
        blocks_(std::move(wanted)) {
    begin();
  }
  ~access_for() { end(); }
  access_for(const access_for&) = delete;
  access_for& operator=(const access_for&) = delete;

  void begin() {
    if (memory_ != nullptr && !std::exchange(there_, true)) {
      memory_->let_in(blocks_);
    }
  }
  void end() {
    if (std::exchange(there_, false)) {
      memory_->keep_out(blocks_);
    }
  }

 private:
  memory_space* memory_;
  std::vector<block_access> blocks_;
  bool there_ = false;
};

/// For as long as it lives, the blocks of a launch that was admitted stay on the device, also when it has finished.
class kept_on_device {
 public:
  /// @param pager  Outlives it. So do the blocks.
  kept_on_device(engine& pager, launch_id of, stream_id on, std::span<const block_access> touched)
      : engine_(pager),
        id_(of),
        blocks_(touched) {
    engine_.keep(id_, on, blocks_);
  }
  ~kept_on_device() { engine_.release_kept(id_, blocks_); }
  kept_on_device(const kept_on_device&) = delete;
  kept_on_device& operator=(const kept_on_device&) = delete;

 private:
  engine& engine_;
  launch_id id_;
  std::span<const block_access> blocks_;
};

}  // namespace detail
}  // namespace v0
}  // namespace deepum
