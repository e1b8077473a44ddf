#pragma once

#include <deepum/arena/lending.hpp>
#include <deepum/core/signature.hpp>
#include <deepum/separate.hpp>

#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace deepum {
inline namespace v0 {
namespace detail {

class lender::opened {
 public:
  explicit opened(lender& lends) : owner_(lends), marker_(lends.back_.queues().make()) {
    stream_ = back().open_stream({});
  }
  ~opened() {
    if (id_.valid()) {
      if (issued_) {
        spares_.written();
      } else {
        spares_.not_written();
        back().engine().abandon(id_, stream_);
      }
      marker_->end(id_);
    }
    back().close_stream(stream_);
  }
  opened(const opened&) = delete;
  opened& operator=(const opened&) = delete;

  void begin(std::string_view name, std::span<const operand> operands) {
    std::vector<named_operand> named;
    owner_.submission_.name_operands(name, operands, named);
    launch_record record;
    record.stream = stream_;
    record.name = name;
    signature_builder signature(name);
    for (const named_operand& o : named) {
      signature.operand(o.where.span.offset.count, o.where.span.size.count, o.mode);
    }
    record.signature = signature.finish();
    owner_.submission_.declare(named, record.accesses);
    const std::vector<block_access> accesses = record.accesses;
    if (owner_.fills_ != nullptr) {
      spares_ = owner_.fills_->before_launch(named, true);
    }
    const launch_id submitted = owner_.submission_.submit(std::move(record), named);
    back().await_admission(submitted, stream_, name);
    try {
      marker_->order_after_arrival(accesses, true);
      let_in_.emplace(back().memory(), accesses, owner_.checked_);
    } catch (...) {  // it is known, so it has to end
      marker_->begin(submitted);
      id_ = submitted;
      throw;
    }
    marker_->begin(submitted);
    id_ = submitted;
  }
  [[nodiscard]] device_queue& marker() { return *marker_; }
  /// The device has all of it.
  void issued() { issued_ = true; }

 private:
  [[nodiscard]] arena_back& back() { return owner_.back_; }

  lender& owner_;
  std::unique_ptr<device_queue> marker_;
  stream_id stream_{};
  launch_id id_{};
  new_memory::spared spares_{};
  std::optional<access_for> let_in_{};
  bool issued_ = false;
};

DEEPUM_SEPARATE lender::lender(arena_back& of, allocation_front& owner, submission& submits, new_memory* fills,
                               bool checked, device_key on)
    : back_(of),
      front_(owner),
      submission_(submits),
      fills_(fills),
      checked_(checked),
      device_(on) {
  lending_arenas::add(of.memory().base(), of.memory().capacity(), *this);
}

DEEPUM_SEPARATE void lender::lend(std::string_view name, std::span<const operand> operands,
                                  const std::function<void()>& body) {
  run(name, operands, [&](device_queue& marker) {
    marker.synchronize();  // copies that are on their way
    body();
  });
}

DEEPUM_SEPARATE void lender::copy(std::string_view name, void* to, const void* from, bytes n) {
  const operand used = front_.contains(from) ? operand{from, n, access::read} : operand{to, n, access::overwrite};
  run(name, {&used, 1}, [&](device_queue& marker) {
    marker.copy(to, from, n.count);
    marker.synchronize();
  });
}

DEEPUM_SEPARATE void lender::run(std::string_view name, std::span<const operand> operands,
                                 const std::function<void(device_queue& marker)>& body) {
  opened launch(*this);
  launch.begin(name, operands);
  body(launch.marker());
  launch.issued();
}

}  // namespace detail
}  // namespace v0
}  // namespace deepum
