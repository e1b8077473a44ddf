#pragma once

#include <deepum/arena/argument_reader.hpp>
#include <deepum/arena/byte_interval.hpp>
#include <deepum/arena/slice_arguments.hpp>
#include <deepum/arena/sliced_launches.hpp>
#include <deepum/arena/slicing.hpp>
#include <deepum/arena/stream_launches.hpp>
#include <deepum/core/launch.hpp>
#include <deepum/grid_slice.hpp>

#include <array>
#include <cstddef>
#include <span>
#include <string_view>
#include <utility>

namespace deepum {
inline namespace v0 {
namespace detail {

/// Makes the launches of one that may run in slices: one where it need not, else one for each slice.
/// @tparam Parameters  Of the kernel, for the arguments.
/// @param cut          `slices_of` or `pieces_of`.
/// @param enqueue      Gets a slice, and what each argument is there.
/// @param args         As the program gave them, with what they tell of slices.
/// @returns            The last of the launches.
/// @errors             Those of `sliced_launches::cut`, and of a launch.
template <class... Parameters, class Cut, class Enqueue, class... Args>
launch_id run_in_slices(stream_launches& launches, sliced_launches& slices, parameter_list<Parameters...> /*types*/,
                        std::string_view name, const Cut& cut, const Enqueue& enqueue, const Args&... args) {
  const auto read = [&](const grid_slice& slice, const auto&... own) {
    argument_reader<sizeof...(Args)> reader(name);
    const auto offset_of = [&](const void* first_byte) {
      return launches.offset_of_argument(name, reader.position(), first_byte);
    };
    (reader.template read<Parameters>(own, offset_of), ...);
    reader.read(slice, offset_of);  // slices are launches of their own, each time the same ones
    return reader;
  };
  const auto run = [&](const grid_slice& slice, const auto& reader, auto&&... own) {
    open_launch opened(launches, name, reader.signature(), reader.operands(), reader.complete(), false,
                       slice == all_of(slice.grid) ? std::span<const byte_interval>() : slices.watched());
    enqueue(slice, std::move(own)...);
    return opened.issued();
  };
  const auto read_and_run = [&](const grid_slice& slice, auto... own) {
    return run(slice, read(slice, own...), std::move(own)...);
  };
  const grid_slice all = all_of(cut.grid());
  const auto whole = read(all, cut.template own<Parameters>(whole_argument(args), all)...);
  if (!slices.surely_whole(whole.operands(), whole.complete())) {
    std::array<sliced_pointer, sizeof...(Args)> pointers{pointer_of<Parameters>(args)...};
    if (const auto cuts = slices.cut(name, whole.signature(), cut.grid(), pointers)) {
      return [&]<std::size_t... I>(std::index_sequence<I...>) {
        launch_id made{};
        for (std::size_t each = 0; each != cuts->size(); ++each) {
          const grid_slice slice = (*cuts)[each];
          made = read_and_run(slice, cut.template own<Parameters>(narrowed(args, pointers[I].access, slice), slice)...);
        }
        return made;
      }(std::index_sequence_for<Args...>{});
    }
  }
  return run(all, whole, cut.template own<Parameters>(whole_argument(args), all)...);
}

}  // namespace detail
}  // namespace v0
}  // namespace deepum
