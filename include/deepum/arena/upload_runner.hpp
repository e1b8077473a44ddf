#pragma once

#include <deepum/arena/allocation_table.hpp>
#include <deepum/arena/back.hpp>
#include <deepum/arena/upload_options.hpp>
#include <deepum/arena/upload_source.hpp>
#include <deepum/core/block.hpp>
#include <deepum/core/launch.hpp>
#include <deepum/engine/host_workers.hpp>
#include <deepum/units.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace deepum {
inline namespace v0 {

namespace detail {

/// Writes what uploads bring, block by block: the host's part of HUM (docs/adr/0021).
///
/// The engine says which blocks may be written. One block of each upload is written in turn, and first those that a
/// launch waits for. Where launches still use a block, its bytes are read into memory of the runner's own meanwhile, so
/// that the source is the program's again.
///
/// Threads: any. Its lock comes before those of the engine.
class upload_runner {
 public:
  /// @param of  Outlives it.
  upload_runner(arena_back& of, const upload_options& chosen);
  /// All uploads are over.
  ~upload_runner();
  upload_runner(const upload_runner&) = delete;
  upload_runner& operator=(const upload_runner&) = delete;

  /// What one upload writes: blocks as a whole, with the bytes of them that it has.
  struct target {
    block_range blocks{};
    byte_span span{};  ///< in the arena
    bytes skip{};      ///< of the source, before them
  };
  /// Begins an upload to memory that is in use.
  /// @param stages  The source is read as soon as there is memory for what it holds.
  /// @errors        `status::invalid_argument` where a view of the host writes one of the blocks.
  std::shared_ptr<upload_progress> begin(stream_id of, const target& to, const upload_source& source, bool stages);

  /// Whether threads read: a thread of the program that waits does not keep them from it.
  [[nodiscard]] bool has_threads() const { return threads_; }

  class produced;
  /// Begins an upload that the program writes itself, in place.
  std::shared_ptr<produced> begin_produced(const target& to);
  /// Waits until all of it may be written. @returns  Where the host finds the first byte.
  /// @errors  `status::out_of_host_memory`; that of a device that has failed.
  [[nodiscard]] std::byte* await_writable(const produced& of);
  /// The program has written the first so many blocks. @param failure  Why not; empty: it has.
  void written(produced& of, std::uint32_t blocks, const std::string& failure);

  /// Waits until the source has been read, or all of it has been written.
  /// @errors  That of a device that has failed: then nothing is read any more.
  void await_read(const upload_progress& which);
  void await_written(const upload_progress& which);
  /// Waits for all uploads of a stream. @errors  As above.
  void await(stream_id of);
  /// Waits until no upload writes one of the blocks. @errors  As above.
  void await(block_range range);
  /// The source is not read any more; what was not read has no contents.
  void abandon(stream_id of);

 private:
  enum class piece_state : std::uint8_t { unread, under_way, staged, done };
  struct one_block {
    bool writable = false;
    bool queued = false;  // in `ready`
    std::vector<piece_state> pieces{};
    std::vector<std::unique_ptr<std::byte[]>> staged{};
    std::uint32_t left = 0;  // pieces that are not done
    std::string failure{};
  };
  struct active {
    bool produced = false;       // by the program
    std::uint32_t writable = 0;  // blocks, of those that it produces
    launch_id id{};
    stream_id stream{};
    target to{};
    upload_source source;
    bool stages = false;
    std::shared_ptr<upload_progress> progress{};
    std::vector<one_block> blocks{};
    std::deque<std::uint32_t> ready{};    // blocks that may be written, by their place in the upload
    std::deque<std::uint32_t> delayed{};  // that have to wait for launches
    std::uint64_t unread = 0;             // pieces
    std::uint32_t left = 0;               // blocks
    bool abandoned = false;
  };
  using upload = std::shared_ptr<active>;
  struct piece_of {
    upload in{};
    std::uint32_t block = 0;
    std::uint32_t piece = 0;
  };

  void add(const upload& made);
  void end_block(const upload& in, std::uint32_t block, const std::string& failure);
  [[nodiscard]] std::optional<host_job> next();
  void take_news();
  [[nodiscard]] upload find(launch_id id) const;
  /// The first piece of a block that has to be written, or read; nothing: none.
  [[nodiscard]] static std::optional<std::uint32_t> next_piece(const one_block& b, bool unread_alone);
  [[nodiscard]] std::optional<host_job> write_of(const upload& in, std::uint32_t block);
  [[nodiscard]] std::optional<host_job> demanded_write();
  [[nodiscard]] std::optional<host_job> write_in_turn();
  [[nodiscard]] std::optional<host_job> read_ahead();
  [[nodiscard]] byte_span bytes_of(const active& in, std::uint32_t block, std::uint32_t piece) const;
  void queue(active& in, std::uint32_t block);

  void write(const piece_of& p, bool was_staged);
  void stage(const piece_of& p);
  /// The host has no memory for the piece: later. @returns  Whether it is worth to try again.
  bool put_back(const piece_of& p, bool was_staged);
  void wrote(const piece_of& p, bool was_staged, const std::string& failure);
  /// A piece has been read. @returns  Whether it was the last one.
  [[nodiscard]] static bool read(active& in);
  void source_is_read(active& in);
  template <class Done>
  void wait(Done&& done);

  // What the program produces.
 public:
  class produced {
   private:
    friend class upload_runner;
    explicit produced(upload made) : upload_(std::move(made)) {}
    upload upload_;
    std::uint32_t written_ = 0;
  };

 private:
  arena_back& back_;
  const upload_options options_;
  const bytes piece_;
  std::mutex mutex_;
  std::list<upload> active_{};
  std::list<upload>::iterator turn_ = active_.end();  // of the upload whose turn it is
  std::vector<upload_block> demanded_{};
  bytes staged_{};
  unsigned refusals_ = 0;  // of host memory, one after the other
  std::optional<stream_id> stream_{};
  std::atomic<bool> news_{false};
  bool threads_ = false;
  std::unique_ptr<host_workers> workers_{};  // last: they use what is above
};

}  // namespace detail
}  // namespace v0
}  // namespace deepum

#ifndef DEEPUM_SEPARATE_COMPILATION
#include <deepum/arena/impl/upload_runner.hpp>  // what it declares
#endif
