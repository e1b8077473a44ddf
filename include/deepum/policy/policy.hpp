#pragma once

#include <deepum/core/archive.hpp>
#include <deepum/core/block_map.hpp>
#include <deepum/core/launch.hpp>
#include <deepum/core/plan.hpp>

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>

namespace deepum {
inline namespace v0 {

/// What a policy reports of itself.
struct policy_statistics {
  std::uint64_t launches = 0;       ///< launches seen
  std::uint64_t predicted = 0;      ///< launches that the launch before them had predicted
  std::uint64_t mispredicted = 0;   ///< launches for which another one was predicted
  std::uint64_t unpredicted = 0;    ///< launches for which nothing was predicted
  std::uint64_t table_bytes = 0;    ///< memory of all tables
  std::uint64_t execution_ids = 0;  ///< execution IDs known
  std::uint64_t block_tables = 0;   ///< `deepum`: launches that have a block table, because they have faulted
  std::uint64_t shared_blocks = 0;  ///< `vdnn`, `vdnn_ext`: blocks of inputs that stay, because other memory is in them
};

/// Work that takes a policy long and needs nothing but what it holds, as the plan of a whole step.
class long_work {
 public:
  long_work() = default;
  long_work(const long_work&) = delete;
  long_work& operator=(const long_work&) = delete;
  virtual ~long_work() = default;
  /// Any thread, under no lock, while the policy is called for other things.
  virtual void run() = 0;
};

/// Decides which blocks move, and when. It is told of events and asked for plans; it calls nothing.
///
/// It knows no time, no threads and no CUDA: one thread at a time calls it, and the same events give the same plans.
/// Events are facts of the past. `block_map` is the state at the moment of the call.
class policy {
 public:
  policy() = default;
  policy(const policy&) = delete;
  policy& operator=(const policy&) = delete;
  virtual ~policy() = default;

  /// The name by which `DEEPUM_POLICY` and `--policy` choose it.
  [[nodiscard]] virtual std::string_view name() const = 0;

  /// A stream was opened, with its degree N of lookahead; nothing: the policy's own.
  virtual void on_stream(stream_id, std::optional<std::uint32_t> /*lookahead*/) {}
  /// A stream was closed, and all its launches have finished. The next stream that is opened may have its number: what
  /// was learned of its launches stays, what it did last does not.
  virtual void on_stream_closed(stream_id) {}
  /// A launch was issued. In order of issue; it may execute much later.
  virtual void on_launch(const launch_record&, const block_map&) {}
  /// A launch finished. In order for each stream. The next one of that stream is executing now.
  virtual void on_finish(launch_id, stream_id, const block_map&) {}
  /// A block faulted (and is being brought in by the driver).
  virtual void on_fault(const fault_record&, const block_map&) {}
  /// Blocks arrived at or left the device, by command or by the driver.
  virtual void on_migrated(block_range, location /*to*/, const block_map&) {}
  /// Contents became live: allocated, marked active.
  virtual void on_live(block_range, const block_map&) {}
  /// Contents became dead as a whole: freed, marked inactive. The launch is the last one that may still use the blocks;
  /// invalid: none.
  virtual void on_dead(block_range, launch_id /*last*/, const block_map&) {}
  /// The host reads or writes the blocks.
  virtual void on_host_access(block_range, access, const block_map&) {}

  /// Work to be done before the next plan, if there is any. The engine runs it without the lock under which it calls
  /// the policy, and gives it to `end_work`, between any other calls. Where `plan_next` is called without this, it does
  /// that work itself.
  [[nodiscard]] virtual std::unique_ptr<long_work> begin_work(const block_map&) { return nullptr; }
  /// Takes what `begin_work` gave, after it was run.
  virtual void end_work(std::unique_ptr<long_work> /*done*/, const block_map&) {}

  /// Asked whenever something happened and the engine has commands to spare. Appends to `out`.
  /// @param out  Empty when called. Left empty where nothing is worth doing.
  virtual void plan_next(const block_map&, plan& out) = 0;

  /// Whether launches are held back at all; `ready` is asked only where they are.
  [[nodiscard]] virtual bool holds_launches() const { return false; }
  /// Whether a launch that was issued may begin: no block is missing that the policy is bringing for it. Where it will
  /// not bring them, because they do not fit or nothing is known, the launch is ready.
  [[nodiscard]] virtual bool ready(launch_id, stream_id, const block_map&) const { return true; }
  /// Whether `ready` says when launches begin beside what is brought for them: then each launch asks, also where all
  /// that it touches is on the device, and on memory that never faults nothing is brought that neither the policy nor a
  /// launch asked for. It holds for the policy's whole life.
  [[nodiscard]] virtual bool orders_launches() const { return false; }
  /// Whether memory that never faults may take the room of this block for a launch that is ready and lacks room. No:
  /// the launch is refused where nothing else may leave.
  [[nodiscard]] virtual bool gives_up(block_id, const block_map&) const { return true; }

  /// Whether its plans name the neighbour where a block goes, and what leaves one. No: the engine sees to that
  /// (docs/adr/0019). It holds for the policy's whole life.
  [[nodiscard]] virtual bool places_blocks() const { return false; }

  /// Launches of the step that it recognises in what was issued last; 0: none, or it looks for none. For traces.
  [[nodiscard]] virtual std::uint32_t period() const { return 0; }

  /// Appends the tables with which a later run can begin. A policy without tables appends nothing.
  virtual void save(archive_writer&) const {}
  /// Takes the tables that a policy of this name saved. It has been told of no event yet. See `load_tables`. The number
  /// is that of the arena's blocks; the tables may name no others.
  /// @param in      Holds nothing behind them.
  /// @errors        `status::bad_format`, also for tables of other options; then the policy is as it was.
  virtual void load(archive_reader& in, std::uint32_t /*blocks*/) { in.finish(); }

  /// What it has predicted and what its tables take. Any thread, between two other calls.
  [[nodiscard]] virtual policy_statistics statistics() const = 0;
};

}  // namespace v0
}  // namespace deepum
