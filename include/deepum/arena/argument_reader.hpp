#pragma once

#include <deepum/arena/kernel_arguments.hpp>
#include <deepum/core/launch.hpp>
#include <deepum/core/signature.hpp>
#include <deepum/error.hpp>
#include <deepum/operand.hpp>
#include <deepum/units.hpp>

#include <array>
#include <cstddef>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

namespace deepum {
inline namespace v0 {
namespace detail {

/// Takes memory into a signature: by its offset in the arena, so that it is the same in the next run of the program.
/// An address elsewhere is a number like any other.
/// @param offset_of  Where an address lies in the arena; nothing where it does not.
/// @returns          Whether it lies in the arena.
template <class OffsetOf>
bool sign(signature_builder& signature, const operand& o, const OffsetOf& offset_of) {
  const std::optional<bytes> offset = offset_of(o.address);
  if (offset) {
    signature.operand(offset->count, o.size == operand::whole ? 0 : o.size.count, o.mode);
  } else {
    signature.scalar(&o.address, sizeof o.address);
  }
  return offset.has_value();
}

/// Takes an argument by value into a signature. Pointers into the arena that it hides count by their offsets, so that
/// it is the same in the next run; those in packed classes, where they are not aligned, are not found.
template <class Argument, class OffsetOf>
void sign_value(signature_builder& signature, const Argument& argument, const OffsetOf& offset_of) {
  if constexpr (hides_no_pointers<Argument>) {
    signature.scalar(&argument, sizeof argument);
  } else {
    std::array<std::byte, sizeof argument> copy;
    std::memcpy(copy.data(), &argument, sizeof argument);
    for (std::size_t at = 0; at + sizeof(void*) <= copy.size(); at += sizeof(void*)) {
      const void* p = nullptr;
      std::memcpy(&p, copy.data() + at, sizeof p);
      if (const std::optional<bytes> offset = offset_of(p)) {
        signature.address(at, offset->count);
        std::memset(copy.data() + at, 0, sizeof p);
      }
    }
    signature.scalar(copy.data(), copy.size());
  }
}

/// Collects what the arguments of one launch tell: its operands, its signature, whether they can tell all.
template <std::size_t MaxOperands>
class argument_reader {
 public:
  explicit argument_reader(std::string_view kernel_name) : name_(kernel_name), signature_(kernel_name) {}

  /// @tparam Parameter  Of the kernel, for this argument; void where it is not known.
  /// @param offset_of   As for `sign`.
  /// @errors            `status::invalid_argument` for a number that stands for a pointer and is not 0.
  template <class Parameter = void, class Argument, class OffsetOf>
  void read(const Argument& argument, const OffsetOf& offset_of) {
    ++position_;
    if constexpr (is_typed_operand<Argument>::value) {
      // A declared void pointer is plain memory.
      using pointee = std::remove_cv_t<std::remove_pointer_t<decltype(argument.pointer)>>;
      complete_ = complete_ && (std::is_void_v<pointee> || hides_no_pointers<pointee>);
      add(argument, offset_of);
    } else if constexpr (std::is_null_pointer_v<Argument>) {
      signature_.scalar(nullptr, 0);
    } else if constexpr (std::is_pointer_v<Argument> && !std::is_function_v<std::remove_pointer_t<Argument>>) {
      using pointee = std::remove_pointer_t<Argument>;
      complete_ = complete_ && hides_no_pointers<std::remove_cv_t<pointee>>;
      constexpr bool is_read = std::is_const_v<pointee> || reads_only<Parameter>;
      add({argument, operand::whole, is_read ? access::read : access::update, false}, offset_of);
    } else if constexpr (may_be_null<Argument, Parameter>) {
      if (argument != 0) {
        throw error(status::invalid_argument,
                    "launch '" + std::string(name_) + "': argument " + std::to_string(position_) + " is the number " +
                        std::to_string(argument) +
                        ", and the kernel takes a pointer; of numbers, 0 alone stands for one");
      }
      signature_.scalar(nullptr, 0);
    } else {
      static_assert(std::is_trivially_copyable_v<Argument>, "arguments of a kernel are copied byte by byte");
      complete_ = complete_ && (hides_no_pointers<Argument> || std::is_pointer_v<Argument>);
      sign_value(signature_, argument, offset_of);
    }
  }

  template <class OffsetOf>
  void add(const operand& o, const OffsetOf& offset_of) {
    if (sign(signature_, o, offset_of)) {
      operands_[count_++] = o;
    }
  }

  [[nodiscard]] std::span<const operand> operands() const { return {operands_.data(), count_}; }
  [[nodiscard]] launch_signature signature() const { return signature_.finish(); }
  [[nodiscard]] bool complete() const { return complete_; }
  /// Of the argument that is read, or was read last, counted from 1.
  [[nodiscard]] std::size_t position() const { return position_; }

 private:
  std::string_view name_;
  signature_builder signature_;
  std::array<operand, MaxOperands> operands_{};
  std::size_t count_ = 0;
  std::size_t position_ = 0;
  bool complete_ = true;
};

}  // namespace detail
}  // namespace v0
}  // namespace deepum
