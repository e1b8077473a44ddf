#pragma once

#include <deepum/core/block.hpp>
#include <deepum/core/launch.hpp>
#include <deepum/engine/accounting.hpp>
#include <deepum/engine/block_contents.hpp>
#include <deepum/engine/memory_space.hpp>
#include <deepum/engine/records.hpp>
#include <deepum/error.hpp>
#include <deepum/policy/policy.hpp>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace deepum {
inline namespace v0 {

namespace detail {

/// The uploads that are not finished, block by block (HUM; docs/adr/0021): when the host may write a block, and which
/// launches wait for it.
///
/// An upload has a number among the launches and executes nothing. A block of it *waits* while launches and uploads
/// that were submitted before may touch it, is *cleared* while devices give up what they have of it, without a copy, is
/// *writable*, and is over when it was written. Launches that were submitted later wait until then.
///
/// Not synchronised: used under the engine's state lock. Cost: nothing while there is no upload.
class uploads {
 public:
  /// All outlive it.
  uploads(memory_space& space, records& shared, policy& chooser, block_contents& contents, accounting& account)
      : memory_(space),
        state_(shared),
        policy_(chooser),
        contents_(contents),
        account_(account) {}

  [[nodiscard]] bool none() const { return blocks_.empty() && failed_.empty(); }

  /// @name Facts
  /// @{

  /// An upload was submitted. @param record  As the launches in flight keep it; each block of it is overwritten.
  void submitted(const launch_record& record);
  /// A launch was submitted, or begins. What it overwrites as a whole has contents again, whatever became of an upload.
  void launch_submitted(const launch_record& record);
  /// A launch has finished, or was taken back.
  void launch_ended(const launch_record& record);
  /// The blocks hold nothing of value any more.
  void died(block_range range) { forget_failures(range); }
  /// The host has written a block of an upload, or could not.
  /// @param failure  Why it could not; empty: it has.
  /// @returns        Whether the upload is over.
  bool written(upload_block which, const std::string& failure);
  /// @}

  /// @name Questions
  /// @{

  /// Whether a launch has to wait: for the blocks that it declares, and where it may touch others for all uploads that
  /// were submitted before it.
  [[nodiscard]] bool hold_back(const launch_record& record) const;
  /// Whether an upload writes one of the blocks, or will.
  [[nodiscard]] bool any_on(block_range range) const;
  /// Contents that a launch needs, or the host, could not be read from the source of an upload.
  /// @errors  `status::io_failure`, with the reason.
  void refuse_failed(const launch_record& record) const;
  void refuse_failed(block_range range, const std::string& reader) const;
  /// @}

  /// The host overwrites all of these blocks, through a view: what devices have of them is given up, unless a launch in
  /// flight may use it. @returns  Whether something is.
  bool forget(block_range range);

  /// @name For those that write
  /// @{

  /// Looks what may be written now. @returns  Whether there is news for those that write.
  bool advance();
  /// Blocks that may be written, in the order of their uploads, and blocks that have to wait for launches.
  void take(std::vector<upload_block>& writable, std::vector<upload_block>& delayed);
  /// Blocks that the oldest launch waits for.
  /// @param out  Emptied first.
  void list_demanded(std::vector<upload_block>& out) const;
  /// The launches in question have changed.
  void launch_held() { news_ = true; }
  /// @}

 private:
  static constexpr std::size_t most_cleared = 64;    // blocks whose old contents are being given up at a time
  static constexpr std::size_t most_demanded = 256;  // that are named first
  static constexpr unsigned most_tries = 16;         // to give up old contents

  enum class phase : std::uint8_t { waiting, clearing, writable };
  struct pending {
    launch_id upload{};
    std::uint32_t earlier = 0;  // launches and uploads in flight that were submitted before and use the block
    phase is = phase::waiting;
    unsigned tries = 0;
  };
  using pending_of = std::map<std::uint32_t, std::deque<pending>>;

  /// Whether the block may be written now; else what that takes is asked for.
  bool try_clear(block_id b, pending& p);
  void make_writable(block_id b, pending& p);
  void end_block(pending_of::iterator at, bool done);
  void end_upload(launch_id upload);
  void bring(block_id b);
  void forget_failures(block_range range);
  void refuse_failed(block_range range, const std::string& reader, launch_id before) const;

  memory_space& memory_;
  records& state_;
  policy& policy_;
  block_contents& contents_;
  accounting& account_;
  pending_of blocks_{};                            // the oldest upload of a block first
  std::deque<std::uint32_t> next_{};               // blocks whose first upload waits for no launch
  std::deque<std::uint32_t> clearing_{};           // blocks whose old contents are being given up
  std::map<std::uint64_t, std::uint32_t> left_{};  // by upload: blocks that are not written
  std::map<std::uint32_t, std::pair<launch_id, std::string>> failed_{};  // blocks without contents, and why
  std::vector<upload_block> writable_{};
  std::vector<upload_block> delayed_{};
  bool asked_ = false;  // old contents have to be given up
  bool news_ = false;
};

}  // namespace detail
}  // namespace v0
}  // namespace deepum

#ifndef DEEPUM_SEPARATE_COMPILATION
#include <deepum/engine/impl/uploads.hpp>  // what it declares
#endif
