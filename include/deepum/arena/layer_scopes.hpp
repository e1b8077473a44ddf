#pragma once

#include <deepum/arena/allocation_table.hpp>
#include <deepum/core/block.hpp>
#include <deepum/core/block_grid.hpp>
#include <deepum/core/launch.hpp>
#include <deepum/core/layer.hpp>
#include <deepum/error.hpp>
#include <deepum/operand.hpp>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace deepum {
inline namespace v0 {

/// A layer of a net, as a program names it to `stream::layer`.
struct named_layer {
  std::uint32_t layer = 0;  ///< its number, as the program counts; the same in both passes and in each step
  layer_pass pass = layer_pass::forward;
  layer_kind kind = layer_kind::other;
  std::vector<operand> input{};  ///< X, one operand for each tensor; in the forward pass alone
};

namespace detail {

/// The layer scopes of one stream: at most one is open. Not synchronised.
class layer_scopes {
 public:
  /// What a launch belongs to that is made now; none: to no layer.
  [[nodiscard]] const std::shared_ptr<const layer_scope>& current() const { return current_; }

  /// @param made  With everything but its number.
  /// @returns     Its number.
  /// @errors      `status::invalid_argument` within another one.
  std::uint64_t begin(layer_scope made) {
    if (current_) {
      throw error(status::invalid_argument, "layer " + std::to_string(made.layer) + " begins within layer " +
                                                std::to_string(current_->layer) +
                                                " of its stream; layers do not nest: end that one first");
    }
    made.number = ++last_;
    current_ = std::make_shared<const layer_scope>(std::move(made));
    return last_;
  }
  void end(std::uint64_t number) {
    if (current_ && current_->number == number) {
      current_.reset();
    }
  }

 private:
  std::shared_ptr<const layer_scope> current_{};
  std::uint64_t last_ = 0;
};

/// The fact about launches that a named layer is.
/// @param input   Where its operands lie.
/// @errors        `status::invalid_argument` for the input of a backward pass.
[[nodiscard]] inline layer_scope scope_of(const named_layer& what, std::span<const named_operand> input,
                                          block_grid grid) {
  if (what.pass == layer_pass::backward && !what.input.empty()) {
    throw error(status::invalid_argument,
                "layer " + std::to_string(what.layer) +
                    " names an input in the backward pass; it is named in the forward pass alone");
  }
  layer_scope made{.layer = what.layer, .pass = what.pass, .kind = what.kind};
  for (const named_operand& o : input) {
    const block_range whole = grid.whole_blocks_of(o.where.span.offset, o.where.span.size);
    made.input.push_back(whole);
    made.shared += grid.blocks_of(o.where.span.offset, o.where.span.size).count - whole.count;
  }
  return made;
}

}  // namespace detail

/// Launches of a stream belong to a layer as long as this lives. Made by `stream::layer`. Threads: those of the stream.
class in_layer {
 public:
  in_layer(std::shared_ptr<detail::layer_scopes> of, layer_scope made)
      : of_(std::move(of)),
        number_(of_->begin(std::move(made))) {}
  ~in_layer() { of_->end(number_); }
  in_layer(const in_layer&) = delete;
  in_layer& operator=(const in_layer&) = delete;

 private:
  std::shared_ptr<detail::layer_scopes> of_;
  std::uint64_t number_;
};

}  // namespace v0
}  // namespace deepum
