#pragma once

#include <deepum/cxx20.hpp>

#include <cxxabi.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace deepum {
inline namespace v0 {
namespace interpose {

/// A parameter of a compiled kernel, as the driver tells it.
struct kernel_parameter {
  std::uint32_t offset = 0;  ///< in the packed arguments, in bytes
  std::uint32_t size = 0;    ///< in bytes
  bool only_read = false;    ///< a pointer to const, by the kernel's mangled name
};

/// A kernel as it is known by its name and the layout of its parameters.
struct kernel_description {
  std::string symbol{};  ///< mangled
  std::string name{};    ///< for people
  std::vector<kernel_parameter> parameters{};
  bool layout_known = false;  ///< else `parameters` is empty because the driver does not say

  /// Bytes of the packed arguments.
  [[nodiscard]] std::size_t size() const {
    return parameters.empty() ? 0 : std::size_t{parameters.back().offset} + parameters.back().size;
  }
};

namespace detail {

/// A mangled name for people; nothing for one that is none.
[[nodiscard]] inline std::optional<std::string> demangled(const std::string& symbol) {
  int failure = 0;
  const std::unique_ptr<char, void (*)(void*)> text(abi::__cxa_demangle(symbol.c_str(), nullptr, nullptr, &failure),
                                                    std::free);
  return failure == 0 && text ? std::optional<std::string>(text.get()) : std::nullopt;
}

/// Where the list of parameters of a demangled function begins, at its parenthesis; npos where it has none.
[[nodiscard]] inline std::size_t parameter_list_of(std::string_view function) {
  if (function.empty() || function.back() != ')') {
    return std::string_view::npos;
  }
  std::size_t depth = 0;
  for (std::size_t i = function.size(); i-- > 0;) {
    depth += function[i] == ')' ? 1 : 0;
    if (function[i] == '(' && --depth == 0) {
      return i;
    }
  }
  return std::string_view::npos;
}

/// The types of a parameter list without its parentheses.
[[nodiscard]] inline std::vector<std::string_view> split_types(std::string_view list) {
  std::vector<std::string_view> types;
  if (list.empty() || list == "void") {
    return types;
  }
  std::size_t begin = 0;
  int depth = 0;
  for (std::size_t i = 0; i < list.size(); ++i) {
    const char c = list[i];
    if (c == '(' || c == '<' || c == '[' || c == '{') {
      ++depth;
    } else if (c == ')' || c == '>' || c == ']' || c == '}') {
      --depth;
    } else if (c == ',' && depth == 0) {
      types.push_back(list.substr(begin, i - begin));
      begin = i + 1;
    }
  }
  types.push_back(list.substr(begin));
  return types;
}

}  // namespace detail

/// Which parameters of a function are pointers to const, as far as its mangled name tells.
/// @returns  One for each parameter; nothing where the name tells no parameters (C names, names that do not parse).
[[nodiscard]] inline std::vector<bool> only_read_parameters(const std::string& symbol) {
  const std::optional<std::string> function = detail::demangled(symbol);
  const std::size_t begin = function ? detail::parameter_list_of(*function) : std::string_view::npos;
  if (begin == std::string_view::npos) {
    return {};
  }
  const std::string_view list = std::string_view(*function).substr(begin + 1, function->size() - begin - 2);
  std::vector<bool> found;
  for (const std::string_view type : detail::split_types(list)) {
    constexpr std::string_view pointer_to_const = " const*";
    found.push_back(type.size() > pointer_to_const.size() &&
                    type.substr(type.size() - pointer_to_const.size()) == pointer_to_const);
  }
  return found;
}

/// The name of a kernel for logs and traces: without its parameters, and not longer than is of use.
[[nodiscard]] inline std::string readable_kernel_name(const std::string& symbol) {
  constexpr std::size_t longest = 96;
  std::string name = detail::demangled(symbol).value_or(symbol);
  if (const std::size_t end = detail::parameter_list_of(name); end != std::string_view::npos && end != 0) {
    name.resize(end);
  }
  if (name.rfind("void ", 0) == 0) {
    name.erase(0, 5);
  }
  if (name.size() > longest) {
    name.resize(longest);
  }
  return name;
}

/// Puts together what is known of a kernel.
/// @param symbol      Its mangled name; empty where the driver does not say.
/// @param parameters  Where they lie, in order, `only_read` unset.
/// @param known       The driver has told them.
[[nodiscard]] inline kernel_description describe_kernel(std::string symbol, std::vector<kernel_parameter> parameters,
                                                        bool known) {
  kernel_description made;
  const std::vector<bool> only_read = only_read_parameters(symbol);
  if (only_read.size() == parameters.size()) {  // else the name is that of something else
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      parameters[i].only_read = only_read[i] && parameters[i].size == sizeof(void*);
    }
  }
  made.name = symbol.empty() ? "kernel" : readable_kernel_name(symbol);
  made.symbol = std::move(symbol);
  made.parameters = std::move(parameters);
  made.layout_known = known;
  return made;
}

}  // namespace interpose
}  // namespace v0
}  // namespace deepum
