#pragma once

#include <deepum/arena/back.hpp>
#include <deepum/arena/front.hpp>
#include <deepum/arena/launch_access.hpp>
#include <deepum/arena/lending_arenas.hpp>
#include <deepum/arena/new_memory.hpp>
#include <deepum/arena/submission.hpp>
#include <deepum/core/launch.hpp>
#include <deepum/operand.hpp>
#include <deepum/units.hpp>

#include <functional>
#include <span>
#include <string_view>

namespace deepum {
inline namespace v0 {
namespace detail {

/// How an arena lends its memory to launches of others. Threads: every call, any thread.
class lender final : public lending_arena {
 public:
  /// @param on       Its device.
  /// @param checked  The arena is in checked mode.
  lender(arena_back& of, allocation_front& owner, submission& submits, new_memory* fills, bool checked, device_key on);
  ~lender() override { lending_arenas::remove(*this); }

  void lend(std::string_view name, std::span<const operand> operands, const std::function<void()>& body) override;
  void copy(std::string_view name, void* to, const void* from, bytes n) override;
  void check(std::string_view name, const operand& o) override { submission_.check_operand(name, o); }
  [[nodiscard]] bytes most() const override { return back_.most_at_once(); }
  [[nodiscard]] bytes block() const override { return back_.block(); }
  [[nodiscard]] const device_key& device() const override { return device_; }

 private:
  /// A launch on a stream of its own, which ends with it.
  class opened;

  void run(std::string_view name, std::span<const operand> operands,
           const std::function<void(device_queue& marker)>& body);

  arena_back& back_;
  allocation_front& front_;
  submission& submission_;
  new_memory* const fills_;
  const bool checked_;
  const device_key device_;
};

}  // namespace detail
}  // namespace v0
}  // namespace deepum

#ifndef DEEPUM_SEPARATE_COMPILATION
#include <deepum/arena/impl/lending.hpp>  // what it declares
#endif
