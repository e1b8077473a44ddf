#pragma once

#include <deepum/arena/residency.hpp>
#include <deepum/core/signature.hpp>
#include <deepum/separate.hpp>

#include <utility>
#include <vector>

namespace deepum {
inline namespace v0 {
namespace detail {

DEEPUM_SEPARATE held_operands::held_operands(arena_rooms& of, std::span<const operand> operands)
    : marker_(of.back.queues().make()),
      back_(of.back),
      stream_(back_.open_stream({})) {
  launch_record record;
  record.stream = stream_;
  record.name = "hold";
  record.hold = true;
  signature_builder signature(record.name);
  try {
    std::vector<named_operand> named;
    of.launches.name_operands(record.name, operands, named);
    for (named_operand& o : named) {
      o.mode = o.mode == access::read ? access::read : access::update;  // it writes nothing itself
    }
    of.launches.declare(named, record.accesses);
    for (const block_access& a : record.accesses) {
      signature.operand(a.range.begin_value(), a.range.count, a.mode);
    }
    record.signature = signature.finish();
    id_ = back_.engine().submit(std::move(record));
    back_.await_admission(id_, stream_, "hold");
  } catch (...) {
    back_.close_stream(stream_);
    throw;
  }
}

DEEPUM_SEPARATE held_operands::~held_operands() {
  marker_->begin(id_);
  marker_->end(id_);
  try {
    marker_->synchronize();
  } catch (...) {  // NOLINT(bugprone-empty-catch): the streams that failed tell
  }
  back_.close_stream(stream_);
}

}  // namespace detail
}  // namespace v0
}  // namespace deepum
