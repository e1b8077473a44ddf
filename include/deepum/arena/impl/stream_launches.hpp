#pragma once

#include <deepum/arena/stream_launches.hpp>
#include <deepum/error.hpp>
#include <deepum/separate.hpp>

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace deepum {
inline namespace v0 {
namespace detail {

DEEPUM_SEPARATE void recording::add(std::string_view launch, std::span<const named_operand> named, bool declares_all) {
  signature.scalar(launch.data(), launch.size());
  for (const named_operand& o : named) {
    signature.operand(o.where.span.offset.count, o.where.span.size.count, o.mode);
  }
  operands.insert(operands.end(), named.begin(), named.end());
  complete = complete && declares_all;
}

DEEPUM_SEPARATE launch_signature stream_launches::signature_of(std::string_view name,
                                                               std::span<const operand> operands) const {
  signature_builder signature(name);
  for (const operand& o : operands) {
    sign(signature, o, [this](const void* first_byte) { return rooms.front.offset_of(first_byte); });
  }
  return signature.finish();
}

// --- a launch --------------------------------------------------------------------------------------------------------

DEEPUM_SEPARATE open_launch::open_launch(stream_launches& on, std::string_view launch_name, launch_signature signature,
                                         std::span<const operand> operands, bool complete, bool copies,
                                         std::span<const byte_interval> sliced)
    : owner_(on),
      copies_(copies),
      sliced_(sliced) {
  if (!on.recorded && !on.rooms.order && !on.rooms.fills) {
    refuse_capture(launch_name);
    launch_record record = record_of(launch_name, signature, complete);
    const launch_id submitted = on.rooms.launches.submit(std::move(record), operands, on.declared);
    begin(submitted, launch_name, complete, nullptr);
    return;
  }
  on.rooms.launches.name_operands(launch_name, operands, on.declared.operands);
  if (on.recorded) {
    on.recorded->add(launch_name, on.declared.operands, complete);
  } else {
    open(launch_name, signature, on.declared.operands, complete);
  }
}

DEEPUM_SEPARATE open_launch::open_launch(stream_launches& on, std::string_view launch_name, launch_signature signature,
                                         std::span<const named_operand> operands, bool complete)
    : owner_(on) {
  open(launch_name, signature, operands, complete);
}

DEEPUM_SEPARATE void open_launch::give_up() {
  spares_.not_written();
  owner_.rooms.back.engine().abandon(id_, owner_.id);
  owner_.queue.end(id_);
}

DEEPUM_SEPARATE in_layer stream_launches::layer(const named_layer& what) {
  const std::string name = "layer " + std::to_string(what.layer);
  if (recorded || captured()) {
    throw error(status::unsupported, name +
                                         " begins while a graph is recorded, which is one launch; name the layer "
                                         "where the graph is launched");
  }
  std::vector<named_operand> input;
  rooms.launches.name_operands(name, what.input, input);
  if (!layers) {
    layers = std::make_shared<layer_scopes>();
  }
  return {layers, scope_of(what, input, rooms.back.grid())};
}

DEEPUM_SEPARATE launch_record open_launch::record_of(std::string_view name, launch_signature signature,
                                                     bool complete) const {
  return {.stream = owner_.id,
          .signature = signature,
          .complete = complete,
          .name = std::string(name),
          .layer = owner_.layers ? owner_.layers->current() : nullptr};
}

DEEPUM_SEPARATE void open_launch::open(std::string_view name, launch_signature signature,
                                       std::span<const named_operand> operands, bool complete) {
  stream_launches& s = owner_;
  refuse_capture(name);
  s.accuse();
  if (s.rooms.fills) {
    spares_ = s.rooms.fills->before_launch(operands, complete);
  }
  launch_record record = record_of(name, signature, complete);
  s.rooms.launches.declare(operands, s.declared.blocks);
  record.accesses = s.declared.blocks;
  launch_order* const order = s.rooms.order && s.captured() ? nullptr : s.rooms.order.get();
  if (order == nullptr) {
    const launch_id submitted = s.rooms.launches.submit(std::move(record), operands);
    begin(submitted, name, complete, nullptr);
    return;
  }
  s.rooms.back.engine().check(record);  // one that may touch anything declares it then
  checked_part part{*order, operands, record.accesses};
  const launch_id submitted = s.rooms.launches.submit(std::move(record), operands);
  begin(submitted, name, complete, &part);
}

DEEPUM_SEPARATE void open_launch::begin(launch_id submitted, std::string_view name, bool complete, checked_part* part) {
  stream_launches& s = owner_;
  s.rooms.back.await_admission(submitted, s.id, name, &s.queue);
  try {
    if (!s.rooms.back.faults()) {
      s.queue.order_after_arrival(s.declared.blocks, complete);
    }
    if (part != nullptr) {
      check_ = std::make_unique<launch_check>(s.rooms.back, part->order, std::pair(submitted, s.id), s.queue, name,
                                              part->operands, std::move(part->allowed), complete, copies_, sliced_);
    }
  } catch (...) {  // a launch that is known has to end, or it holds its memory for ever
    spares_.not_written();
    s.rooms.back.engine().abandon(submitted, s.id);
    s.queue.begin(submitted);
    s.queue.end(submitted);
    throw;
  }
  s.queue.begin(submitted);
  id_ = submitted;
}

DEEPUM_SEPARATE void open_launch::refuse_capture(std::string_view name) const {
  if (!owner_.rooms.back.faults() && owner_.queue.capturing()) {
    throw error(status::unsupported, "launch '" + std::string(name) +
                                         "' while its stream is captured: on memory that never faults, record "
                                         "launches with stream::record_graph");
  }
}

}  // namespace detail
}  // namespace v0
}  // namespace deepum
