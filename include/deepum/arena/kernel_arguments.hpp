#pragma once

#include <deepum/operand.hpp>

#include <cstddef>
#include <type_traits>
#include <utility>

namespace deepum {
inline namespace v0 {
namespace detail {

/// Types of the parameters of a kernel. `void` stands for one that is not known.
template <class... Parameters>
struct parameter_list {};
/// A generic lambda has different ones in each call, and an overloaded function has several lists of them.
struct unknown_parameters {};
template <class Argument>
struct unknown_parameter {
  using type = void;
};

template <class F>
struct function_parameters {
  using type = unknown_parameters;
};
template <class R, class... Parameters, bool NoThrow>
struct function_parameters<R(Parameters...) noexcept(NoThrow)> {
  using type = parameter_list<Parameters...>;
};
template <class R, class C, class... Parameters, bool NoThrow>
struct function_parameters<R (C::*)(Parameters...) noexcept(NoThrow)> {
  using type = parameter_list<Parameters...>;
};
template <class R, class C, class... Parameters, bool NoThrow>
struct function_parameters<R (C::*)(Parameters...) const noexcept(NoThrow)> {
  using type = parameter_list<Parameters...>;
};

/// Of a function, a pointer to one, or an object with one `operator()`.
template <class F>
struct callable_parameters : function_parameters<std::remove_pointer_t<F>> {};
template <class F>
  requires requires { &F::operator(); }
struct callable_parameters<F> : function_parameters<decltype(&F::operator())> {};

/// What the member `body` of a kernel of the simulated GPU takes: an object that can be called, or a member function.
template <class Member>
struct body_parameters : function_parameters<std::remove_pointer_t<Member>> {};
template <class Body, class C>
  requires(!std::is_function_v<Body>)
struct body_parameters<Body C::*> : callable_parameters<std::remove_cv_t<Body>> {};

/// Of a `__global__` function, or of a kernel of the simulated GPU.
template <class Kernel>
struct kernel_parameters_of : callable_parameters<Kernel> {};
template <class Kernel>
  requires requires { &Kernel::body; }
struct kernel_parameters_of<Kernel> : body_parameters<decltype(&Kernel::body)> {};

template <class Kernel>
using kernel_parameters = typename kernel_parameters_of<std::remove_cv_t<Kernel>>::type;

template <class T>
struct is_typed_operand : std::false_type {};
template <class T>
struct is_typed_operand<typed_operand<T>> : std::true_type {};

/// Whether a kernel only reads through a parameter: a pointer to const.
template <class Parameter>
inline constexpr bool reads_only = std::is_pointer_v<std::remove_cvref_t<Parameter>> &&
                                   std::is_const_v<std::remove_pointer_t<std::remove_cvref_t<Parameter>>>;

/// Whether an argument may be the 0 or the `NULL` for a pointer: it is a number, and not a variable.
template <class Argument, class Parameter>
inline constexpr bool may_be_null =
    std::is_pointer_v<std::remove_cvref_t<Parameter>> && !std::is_lvalue_reference_v<Argument> &&
    (std::is_same_v<std::remove_cvref_t<Argument>, int> || std::is_same_v<std::remove_cvref_t<Argument>, long>);

/// An argument as the kernel takes it.
template <class Parameter = void, class T>
[[nodiscard]] constexpr decltype(auto) kernel_argument(T&& argument) {
  if constexpr (is_typed_operand<std::remove_cvref_t<T>>::value) {
    return static_cast<decltype(argument.pointer)>(argument.pointer);
  } else if constexpr (may_be_null<T, Parameter>) {
    return static_cast<std::remove_cvref_t<Parameter>>(nullptr);
  } else {
    return std::forward<T>(argument);
  }
}

/// @name What a compiler says of arguments that do not fit a kernel
/// The message is the name with the template arguments. Positions count from 1.
/// @{
// NOLINTBEGIN(readability-identifier-naming): the names are words of the message
template <std::size_t given, std::size_t kernel_takes>
void wrong_number_of_arguments_in_launch() = delete;
template <std::size_t position, class given, class kernel_takes>
void argument_of_launch_does_not_convert() = delete;
template <std::size_t position, class given, class kernel_takes>
void argument_is_declared_as_read_but_kernel_may_write() = delete;  // updates(p); reads_as_mutable(p), if it does not
// NOLINTEND(readability-identifier-naming)
/// @}

/// The arguments of one launch beside the parameters of its kernel, before anything is made of them.
/// @tparam Kernel     Its `kernel_parameters`.
/// @tparam Arguments  As `launch` deduces them.
template <class Kernel, class... Arguments>
struct launch_arguments {  // of a kernel whose parameters are not known
  using parameters = parameter_list<typename unknown_parameter<Arguments>::type...>;
  static constexpr bool fit = true;
};
template <class... Parameters, class... Arguments>
  requires(sizeof...(Parameters) != sizeof...(Arguments))
struct launch_arguments<parameter_list<Parameters...>, Arguments...> {
  static constexpr bool fit = false;
  template <class Positions>
  static void refuse(Positions) {
    wrong_number_of_arguments_in_launch<sizeof...(Arguments), sizeof...(Parameters)>();
  }
};
template <class... Parameters, class... Arguments>
  requires(sizeof...(Parameters) == sizeof...(Arguments))
struct launch_arguments<parameter_list<Parameters...>, Arguments...> {
  using parameters = parameter_list<Parameters...>;

  template <class Argument, class Parameter>
  using given = decltype(kernel_argument<Parameter>(std::declval<Argument>()));
  // A kernel of the simulated GPU has a copy of its own, and may take it by reference.
  template <class Argument, class Parameter>
  static constexpr bool fits = std::is_convertible_v<given<Argument, Parameter>, Parameter> ||
                               std::is_convertible_v<std::decay_t<given<Argument, Parameter>>&, Parameter>;
  static constexpr bool fit = (fits<Arguments, Parameters> && ...);

  template <std::size_t... I>
  static void refuse(std::index_sequence<I...>) {
    (refuse_one<I + 1, Arguments, Parameters>(), ...);
  }

 private:
  template <std::size_t Position, class Argument, class Parameter>
  static void refuse_one() {
    using argument = std::decay_t<given<Argument, Parameter>>;
    if constexpr (fits<Argument, Parameter>) {
    } else if constexpr (is_typed_operand<std::remove_cvref_t<Argument>>::value && reads_only<argument> &&
                         std::is_convertible_v<Parameter, argument>) {
      argument_is_declared_as_read_but_kernel_may_write<Position, argument, Parameter>();
    } else {
      argument_of_launch_does_not_convert<Position, argument, Parameter>();
    }
  }
};

}  // namespace detail
}  // namespace v0
}  // namespace deepum
