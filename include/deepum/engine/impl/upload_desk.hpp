#pragma once

#include <deepum/engine/upload_desk.hpp>
#include <deepum/error.hpp>
#include <deepum/separate.hpp>

#include <string>
#include <utility>
#include <vector>

namespace deepum {
inline namespace v0 {
namespace detail {

DEEPUM_SEPARATE void upload_desk::check(block_range range) const {
  in_turn_([&] {
    for (const block_id b : range) {
      if (facts_.with_host(b)) {
        throw error(status::invalid_argument,
                    "an upload overwrites memory that a host view is writing; end the view first");
      }
    }
  });
}

DEEPUM_SEPARATE void upload_desk::set_listener(std::function<void()> listener) {
  in_turn_([&] { listener_ = std::move(listener); });
}

DEEPUM_SEPARATE void upload_desk::take(std::vector<upload_block>& writable, std::vector<upload_block>& delayed,
                                       std::vector<upload_block>& demanded) const {
  in_turn_([&] {
    uploads_.take(writable, delayed);
    uploads_.list_demanded(demanded);
  });
}

DEEPUM_SEPARATE void upload_desk::written(upload_block which, const std::string& failure) {
  bool over = false;
  in_turn_([&] { over = uploads_.written(which, failure); });
  if (over) {
    inbox_.upload_over();
  }
  memory_.notify();
}

DEEPUM_SEPARATE bool upload_desk::any_on(block_range range) const {
  bool found = false;
  in_turn_([&] { found = uploads_.any_on(range); });
  return found;
}

DEEPUM_SEPARATE void upload_desk::refuse_failed(block_range range, const std::string& reader) const {
  in_turn_([&] { uploads_.refuse_failed(range, reader); });
}

DEEPUM_SEPARATE bool upload_desk::forget(block_range range) {
  bool asked = false;
  in_turn_([&] { asked = uploads_.forget(range); });
  if (asked) {
    memory_.notify();
  }
  return asked;
}

}  // namespace detail
}  // namespace v0
}  // namespace deepum
