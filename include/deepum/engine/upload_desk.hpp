#pragma once

#include <deepum/core/block.hpp>
#include <deepum/core/launch.hpp>
#include <deepum/engine/fact_finder.hpp>
#include <deepum/engine/inbox.hpp>
#include <deepum/engine/memory_space.hpp>
#include <deepum/engine/uploads.hpp>

#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace deepum {
inline namespace v0 {
namespace detail {

/// What those that write uploads, and the host, say to the engine and ask it (`uploads`).
///
/// Threads: any, each call but `advance` takes the engine's state lock.
class upload_desk {
 public:
  /// Runs something under the engine's state lock, after what happened has been taken in.
  using turns = std::function<void(const std::function<void()>&)>;

  /// All outlive it.
  upload_desk(memory_space& space, inbox& mail, uploads& unfinished, const fact_finder& facts, turns in_turn)
      : memory_(space),
        inbox_(mail),
        uploads_(unfinished),
        facts_(facts),
        in_turn_(std::move(in_turn)) {}

  /// @errors  `status::invalid_argument` where a view of the host writes one of the blocks.
  void check(block_range range) const;
  /// What is told when there is something to write, or a launch waits. Called under the state lock, by any thread: it
  /// calls nothing of the engine. Said before the first upload.
  void set_listener(std::function<void()> listener);
  /// Blocks that may be written now, or have to wait for launches, since the last call; and those that the oldest
  /// launch waits for.
  void take(std::vector<upload_block>& writable, std::vector<upload_block>& delayed,
            std::vector<upload_block>& demanded) const;
  /// A block that was writable has been written. @param failure  Why not; empty: it has.
  void written(upload_block which, const std::string& failure);
  /// Whether one of the blocks has not been written.
  [[nodiscard]] bool any_on(block_range range) const;
  /// @param reader  For the message. @errors  `status::io_failure` where an upload of one of the blocks has failed.
  void refuse_failed(block_range range, const std::string& reader) const;
  /// The host is about to overwrite the blocks as a whole, through a view: what devices have of them is given up, where
  /// no launch in flight may use it.
  /// @returns  Whether something is. Then the memory must not be used before `engine::settled`.
  [[nodiscard]] bool forget(block_range range);

  /// Something has happened. Under the state lock.
  void advance() {
    if (!uploads_.none() && uploads_.advance() && listener_) {
      listener_();
    }
  }

 private:
  memory_space& memory_;
  inbox& inbox_;
  uploads& uploads_;
  const fact_finder& facts_;
  const turns in_turn_;
  std::function<void()> listener_{};  // under the state lock
};

}  // namespace detail
}  // namespace v0
}  // namespace deepum

#ifndef DEEPUM_SEPARATE_COMPILATION
#include <deepum/engine/impl/upload_desk.hpp>  // what it declares
#endif
