#pragma once

#include <deepum/arena/allocation_table.hpp>
#include <deepum/core/launch.hpp>
#include <deepum/core/signature.hpp>
#include <deepum/engine/memory_kind.hpp>
#include <deepum/operand.hpp>

#include <span>
#include <utility>
#include <vector>

namespace deepum {
inline namespace v0 {

template <memory_kind Memory>
class arena;

/// Memory that stays on the device for as long as this lives. Made by `arena::hold`.
///
/// It is a launch of its own to the policy, one that begins when all of it is there and finishes when this ends. On
/// memory that faults it is a hint: nothing can be kept from leaving there.
template <memory_kind Memory>
class residency {
 public:
  /// See `arena::hold`.
  residency(arena<Memory>& owner, std::span<const operand> operands) : marker_(owner.memory()), owner_(owner) {
    stream_ = owner.engine().open_stream({});
    launch_record record;
    record.stream = stream_;
    record.name = "hold";
    record.hold = true;
    signature_builder signature(record.name);
    owner.stream_opened();
    try {
      std::vector<named_operand> named;
      owner.name_operands(record.name, operands, named);
      for (named_operand& o : named) {
        o.mode = o.mode == access::read ? access::read : access::update;  // it writes nothing itself
      }
      owner.declare(named, record.accesses);
      for (const block_access& a : record.accesses) {
        signature.operand(a.range.begin_value(), a.range.count, a.mode);
      }
      record.signature = signature.finish();
      id_ = owner.engine().submit(std::move(record));
      owner.await_admission(id_, stream_, "hold");
    } catch (...) {
      close();
      throw;
    }
  }
  ~residency() {
    marker_.begin(id_);
    marker_.end(id_);
    try {
      marker_.synchronize();
    } catch (...) {  // NOLINT(bugprone-empty-catch): the streams that failed tell
    }
    close();
  }
  residency(const residency&) = delete;
  residency& operator=(const residency&) = delete;

 private:
  void close() {
    owner_.engine().close_stream(stream_);
    owner_.stream_closed();
  }

  typename Memory::stream_type marker_;  // tells the engine of the end, as launches do
  arena<Memory>& owner_;
  stream_id stream_{};
  launch_id id_{};
};

}  // namespace v0
}  // namespace deepum
