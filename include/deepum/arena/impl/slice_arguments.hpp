#pragma once

#include <deepum/arena/slice_arguments.hpp>
#include <deepum/error.hpp>
#include <deepum/separate.hpp>

#include <limits>
#include <numeric>
#include <string>

namespace deepum {
inline namespace v0 {
namespace detail {

DEEPUM_SEPARATE pieces_of::pieces_of(std::string_view launch_name, const elementwise& work)
    : name_(launch_name),
      work_(work),
      per_block_(work.per_block != 0 ? work.per_block : work.threads),
      unit_(per_block_ != 0 ? std::lcm(per_block_, alignment) : 0) {
  constexpr std::uint64_t most = std::numeric_limits<std::int32_t>::max();  // thread blocks of a grid
  if (work.threads == 0 || per_block_ > (most << 20U) ||
      (work.elements != 0 && (work.elements - 1) / per_block_ >= most)) {
    throw error(status::invalid_argument,
                "launch '" + std::string(launch_name) + "': " + std::to_string(work.elements) +
                    " elements in pieces, " + std::to_string(per_block_) + " for a thread block of " +
                    std::to_string(work.threads) + " threads: no grid is so large, or has no threads");
  }
  units_.x = work.elements != 0 ? static_cast<unsigned>((work.elements - 1) / unit_ + 1) : 1;
}

DEEPUM_SEPARATE bytes pieces_of::step_of(bytes size, std::size_t position) const {
  if (size == operand::whole || size.count == 0 || size.count % work_.elements != 0) {
    throw error(status::invalid_argument,
                "launch '" + std::string(name_) + "': argument " + std::to_string(position) + " is an array of " +
                    (size == operand::whole ? "a size that it does not say" : std::to_string(size.count) + " bytes") +
                    ", of which pieces of " + std::to_string(work_.elements) +
                    " elements have no equal parts; give reads(p, n), updates(p, n) or overwrites(p, n) with that "
                    "number of elements or a multiple of it, or everywhere(p) for what all elements look up");
  }
  return bytes{size.count / work_.elements * unit_};
}

DEEPUM_SEPARATE void pieces_of::refuse_where(bool unclear, std::size_t position) const {
  if (unclear) {
    throw error(status::invalid_argument,
                "launch '" + std::string(name_) + "': argument " + std::to_string(position) +
                    " is a pointer that does not say which part of it a piece touches; give reads(p, n), updates(p, n) "
                    "or overwrites(p, n) for an array of the elements, or everywhere(p) for what all of them look up");
  }
}

DEEPUM_SEPARATE void pieces_of::refuse_number(std::uint64_t of) const {
  throw error(status::invalid_argument, "launch '" + std::string(name_) + "': " + std::to_string(of) +
                                            " elements are more than the kernel's parameter can count; give it a "
                                            "larger type");
}

}  // namespace detail
}  // namespace v0
}  // namespace deepum
