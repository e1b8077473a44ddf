#pragma once

#include <deepum/core/block.hpp>
#include <deepum/core/launch.hpp>
#include <deepum/core/signature.hpp>
#include <deepum/interpose/kernel_parameters.hpp>
#include <deepum/operand.hpp>
#include <deepum/units.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace deepum {
inline namespace v0 {
namespace interpose {

/// Operands and signature of a launch out of the bytes of its arguments: each aligned word that is an address in the
/// arena names what it points into, in classes, tensor maps and packed buffers too. Numbers do not count: a step number
/// or a seed that is another one in each step would let no launch recur. Of an address its block counts: a small result
/// that is kept until there is the next one lies at two addresses in turn, and moves no other block.
///
/// What it cannot tell are sizes, whether a plain pointer is written through, and addresses that lie in memory. So its
/// operands are hints, which never are a reason for an error (`operand::declared`), and the launch counts as one that
/// may touch more.
///
/// Threads: one at a time. Keeps its memory, so that one object for each thread costs no allocation for a launch.
class operand_scan {
 public:
  /// By what an address is recognised. @param offset  Where it lies in the arena.
  [[nodiscard]] static std::uint64_t recognised(bytes offset) { return offset / block_size; }

  /// A launch begins.
  /// @param symbol  By which the kernel is recognised.
  void begin(std::string_view symbol) {
    signature_ = signature_builder(symbol);
    operands_.clear();
  }
  /// One argument.
  /// @param argument   Its bytes, at any alignment.
  /// @param offset_of  (const void*) -> std::optional<bytes>: where an address lies in the arena.
  template <class OffsetOf>
  void add(const void* argument, const kernel_parameter& p, const OffsetOf& offset_of) {
    const auto* const bytes_of = static_cast<const std::byte*>(argument);
    // Words lie at multiples of 8 bytes of the packed arguments, which is where the compiler puts pointers.
    const std::size_t first = (word - p.offset % word) % word;
    for (std::size_t at = first; at + word <= p.size; at += word) {
      const void* address = nullptr;
      std::memcpy(&address, bytes_of + at, word);
      if (const std::optional<bytes> offset = offset_of(address)) {
        const access mode = p.only_read ? access::read : access::update;
        signature_.operand(recognised(*offset), 0, mode);
        operands_.push_back({.address = address, .mode = mode, .declared = false, .guessed = true});
      }
    }
  }
  /// The shape of a launch, as far as it is no operand.
  void add_shape(const void* bytes_of, std::size_t count) { signature_.scalar(bytes_of, count); }
  /// All arguments of a launch.
  /// @param arguments  (index, parameter) -> const void*: where the bytes of one are; nullptr where they are not given.
  template <class Arguments, class OffsetOf>
  void scan(const kernel_description& kernel, const Arguments& arguments, const OffsetOf& offset_of) {
    begin(kernel.symbol);
    for (std::size_t i = 0; i < kernel.parameters.size(); ++i) {
      if (const void* const argument = arguments(i, kernel.parameters[i])) {
        add(argument, kernel.parameters[i], offset_of);
      }
    }
  }

  [[nodiscard]] std::span<const operand> operands() const { return operands_; }
  [[nodiscard]] launch_signature signature() const { return signature_.finish(); }

 private:
  static constexpr std::size_t word = sizeof(void*);

  signature_builder signature_{""};
  std::vector<operand> operands_{};
};

}  // namespace interpose
}  // namespace v0
}  // namespace deepum
